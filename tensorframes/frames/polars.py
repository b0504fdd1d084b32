"""polars: ``DataFrame``s. Known dimensions of arrays are noted in the type itself, as polars' ``Array``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from polars.dataframe.group_by import GroupBy

from tensorframes.columns import Column, Schema, column_from_field, plain_schema, vector_rank
from tensorframes.errors import ColumnError, FrameError, ShapeError
from tensorframes.frames.base import (
    AbstractGrouped,
    AbstractMemoryFrame,
    Folding,
    Path,
    arrow_schema,
    check_key,
    field_of,
    first_rows,
    positional_names,
)


def wrap_polars(native: Any) -> PolarsFrame | None:
    """Return the adapter of a polars DataFrame, or None if it is none."""
    return PolarsFrame(native) if isinstance(native, pl.DataFrame) else None


class PolarsFrame(AbstractMemoryFrame):
    """A ``polars.DataFrame``."""

    def __init__(self, native: pl.DataFrame) -> None:
        """Read the schema from the types; a Python object means no tensor."""
        self.native = native
        self.schema = Schema(tuple(_column(native.get_column(name)) for name in native.columns))

    def column(self, path: Path) -> pa.ChunkedArray:
        """Return a column, or a struct's field."""
        array = self.native.get_column(path[0]).to_arrow()
        return pa.chunked_array([field_of(array, path)])

    def append_table(self, outputs: pa.Table) -> Any:
        """Append the columns."""
        return self.native.hstack(_from_arrow(outputs).get_columns())

    def from_table(self, outputs: pa.Table) -> Any:
        """Return a frame of the columns."""
        return _from_arrow(outputs)

    def with_shapes(self, columns: Sequence[Column]) -> Any:
        """Cast lists whose length is known to fixed-size arrays."""
        lists = [column for column in columns if vector_rank(column.arrow) is None]  # a vector's type has no place for its size
        return self.native.with_columns(_as_array(self.native.get_column(column.name), column) for column in lists)

    def with_keys(self, native: Any, names: Sequence[str], keys: Sequence[Path], rows: np.ndarray) -> Any:
        """Take keys from this frame: Enum, or Categorical of its own kind."""
        taken = (self.native.get_column(path[0])[rows].alias(name) for name, path in zip(names, keys, strict=True) if len(path) == 1)
        return native.with_columns(taken)


def _column(series: pl.Series) -> Column:
    if series.dtype == pl.Object:
        return Column(series.name, pa.null(), native_type="object")
    try:
        arrow = series.head(0).to_arrow().type
    except (pl.exceptions.PolarsError, pa.ArrowException, ValueError, TypeError):  # an integer of 128 bits, or objects in a list
        return Column(series.name, pa.null(), native_type=str(series.dtype).lower())
    return column_from_field(pa.field(series.name, arrow, series.null_count() > 0 or pa.types.is_null(arrow)))


def _from_arrow(outputs: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(outputs)
    assert isinstance(frame, pl.DataFrame)
    shaped = [column for column in map(column_from_field, outputs.schema) if column.cell_shape and vector_rank(column.arrow) is None]
    return frame.with_columns(_as_array(frame.get_column(column.name), column) for column in shaped)


def _as_array(series: pl.Series, column: Column) -> pl.Series:
    dtype: Any = series.dtype
    dims = []
    while isinstance(dtype, pl.List | pl.Array):
        dims.append(dtype.size if isinstance(dtype, pl.Array) else None)
        dtype = dtype.inner
        if len(dims) == len(column.cell_shape or ()):
            break
    shape = column.cell_shape or ()
    steps = []
    for lists in range(len(shape) + 1):  # the first so many levels still lists
        step = dtype
        for level in reversed(range(len(shape))):
            known = shape[level]
            step = pl.List(step) if known is None or level < lists else pl.Array(step, known)
        steps.append(step)
    dtype = steps[0]
    try:
        # From the inside out: polars refuses nulls where it casts several levels at once.
        for step in reversed(range(1, len(steps))):
            series = series.cast(steps[step])
        shaped: pl.Series = series.cast(dtype)
    except pl.exceptions.PolarsError as error:
        raise ShapeError(
            f"column {series.name!r} is said to have cells of shape {column.cell_shape}, but holds others: {error}."
        ) from error
    return shaped


class PolarsGrouped(AbstractGrouped):
    """A polars ``GroupBy``, by columns or expressions."""

    def __init__(self, native: GroupBy) -> None:
        """Compute the keys."""
        if getattr(native, "predicates", None):
            raise FrameError("a grouping with having() is no plain group_by.", hint="Filter the result.")
        try:
            names = native.df.head(0).select(*native.by, **native.named_by).columns
            keys = native.df.with_columns(*native.by, **native.named_by).select(names)  # a literal too has a value for each row
        except pl.exceptions.ColumnNotFoundError as error:
            facts = {"columns": PolarsFrame(native.df).schema.facts}
            raise ColumnError(f"the grouping names a column that the frame does not have: {error}.", facts=facts) from error
        self._native, self._keys = native, PolarsFrame(keys)
        self.frame = self._frame = PolarsFrame(native.df)
        self.keys = tuple(map(check_key, self._keys.schema))

    def aggregate(self, reads: Sequence[Path], outputs: Sequence[Column], combine: Folding, again: Folding) -> Any:
        """Fold the rows of each key, in the order of their first rows."""
        columns = [*(self._keys.column((column.name,)) for column in self.keys), *(self._frame.column(path) for path in reads)]
        table = pa.table(columns, names=positional_names(len(columns)))
        found = pa.Table.from_batches(again(combine(table.to_batches())), plain_schema([*self.keys, *outputs]))
        result = self._frame.from_table(found.cast(arrow_schema([*self.keys, *outputs])))
        names = [column.name for column in self.keys]
        return self._keys.with_keys(result, names, [(name,) for name in names], first_rows(columns[: len(names)]))


def wrap_grouped_polars(native: Any) -> AbstractGrouped | None:
    """Return the adapter of a polars grouping, or None if it is none."""
    return PolarsGrouped(native) if isinstance(native, GroupBy) else None
