"""Every kind of frame behind one interface, and the comparison of what comes out of it."""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from expectations import check_refused

BATCH_ROWS = 3  # every frame that has batches has them this small, so that every test of more rows crosses block boundaries

Columns = Mapping[str, pa.Array | Sequence[Any]]


def as_table(columns: Columns, schema: pa.Schema | None = None) -> pa.Table:
    """Make a table of `BATCH_ROWS` rows a chunk."""
    if schema is None:
        arrays = {name: cells if isinstance(cells, pa.Array) else pa.array(cells) for name, cells in columns.items()}
        table = pa.table(arrays)
    else:
        table = pa.table(dict(columns), schema=schema)
    batches = table.to_batches(max_chunksize=BATCH_ROWS)
    return pa.Table.from_batches(batches or [pa.RecordBatch.from_pylist([], table.schema)], table.schema)


def plain(table: pa.Table) -> pa.Table:
    """Spell a table's types in one way (32-bit offsets, lists of any length), without metadata."""
    fields = [pa.field(field.name, _plain_type(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields)).combine_chunks()


def _plain_type(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return pa.list_(_plain_type(arrow.value_type))
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in arrow])
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return pa.string()
    if pa.types.is_large_binary(arrow) or pa.types.is_binary_view(arrow):
        return pa.binary()
    return arrow


# --- Flavours: the kinds of frames ---


class Stream:
    """An object that is nothing but an Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


@dataclass(frozen=True)
class Flavour:
    """A kind of frame: how to make one, how to read it, and how it differs from the others.

    Attributes:
        name: the kind.
        result: the type of what a map of it gives.
        is_lazy: whether a map computes only when it is read.
        keeps_order: whether rows come back in the order in which they went in; otherwise `read` sorts them by a column ``id``.
        keeps_kind: whether a map of it gives a frame of the same kind.
        keeps_batches: whether a block never spans the batches that the frame was made of.
        knows_types: whether a frame without rows still knows what its array columns hold.
        on_spark: whether columns are of Spark's types, and errors that the data causes arrive as text.
        is_costly: whether reading takes long, so that tests of what no frame has a part in look at schemas only.
        build: makes the native frame.
        to_arrow: reads it.
    """

    name: str
    result: type
    build: Callable[[pa.Table], Any]
    to_arrow: Callable[[Any], pa.Table]
    is_lazy: bool = False
    keeps_order: bool = True
    keeps_kind: bool = True
    keeps_batches: bool = True
    knows_types: bool = True
    on_spark: bool = False
    is_costly: bool = False

    def make(self, columns: Columns, schema: pa.Schema | None = None) -> Any:
        """Make a native frame of Arrow data."""
        return self.build(as_table(columns, schema))

    def read(self, native: Any) -> pa.Table:
        """Read a native frame that a verb gave, in plain Arrow types."""
        assert isinstance(native, self.result), f"{self.name}: a {type(native)} is no {self.result}"
        table = plain(self.to_arrow(native))
        return table if self.keeps_order or "id" not in table.column_names else table.sort_by("id")

    def schema(self, native: Any) -> pa.Schema:
        """Return the schema of what a verb gave, in plain Arrow types, without reading a lazy frame's rows."""
        if not self.on_spark:
            return self.read(native).schema
        from pyspark.sql.pandas.types import to_arrow_schema

        return plain(to_arrow_schema(native.schema).empty_table()).schema

    def check_fails(self, call: Callable[[], Any], error: type[Exception], message: str) -> None:
        """Check that computing fails with this error and this whole message: at once, or when the result is read."""
        native = call() if self.is_lazy else None
        if not self.on_spark:
            check_refused(lambda: self.to_arrow(native) if self.is_lazy else call(), error, message)
            return
        from pyspark.errors import PythonException

        with pytest.raises(PythonException) as caught:
            self.to_arrow(native)
        assert f"tensorframes.errors.{error.__name__}: {message}\n" in f"{caught.value}\n"


def _make_pandas(table: pa.Table) -> pd.DataFrame:
    return pd.DataFrame({name: _pandas_cells(column) for name, column in zip(table.column_names, table.columns, strict=True)})


_NULLABLE = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}


def _pandas_cells(column: pa.ChunkedArray) -> Any:
    if not pa.types.is_list(column.type):
        return column.to_pandas(types_mapper=_NULLABLE.get if column.null_count else None)
    cells = column.to_pylist()
    leaf = _plain_leaf(column.type)
    if pa.types.is_primitive(leaf) and not any(cell is not None and _has_null(cell) for cell in cells):
        # As pandas users have them: arrays of the cell's own rank where all are rectangular, else lists of lists.
        with contextlib.suppress(ValueError):
            cells = [None if cell is None else np.array(cell, leaf.to_pandas_dtype()) for cell in cells]
    return pd.Series(cells, dtype=object)


def _plain_leaf(arrow: pa.DataType) -> pa.DataType:
    return _plain_leaf(arrow.value_type) if pa.types.is_list(arrow) else arrow


def _has_null(value: Any) -> bool:
    return any(map(_has_null, value)) if isinstance(value, list) else value is None


def _read_pandas(frame: pd.DataFrame) -> pa.Table:
    return pa.table({str(name): _arrow_cells(frame[name]) for name in frame.columns})


def _arrow_cells(series: pd.Series) -> pa.Array:
    first = next((cell for cell in series if cell is not None), None) if series.dtype == object else None
    if not isinstance(first, np.ndarray):
        return pa.array(series, from_pandas=series.dtype.kind != "f")
    arrow = pa.string() if first.dtype == object else pa.from_numpy_dtype(first.dtype)
    for _ in range(first.ndim):
        arrow = pa.list_(arrow)
    return pa.array([None if cell is None else cell.tolist() for cell in series], arrow)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays(column.chunks or [pa.array([], column.type)]) for column in table.columns], schema=table.schema
    )


LOCAL = (
    Flavour("table", pa.Table, lambda table: table, lambda table: table),
    Flavour("batch", pa.RecordBatch, _one_batch, lambda batch: pa.Table.from_batches([batch]), keeps_batches=False),
    Flavour("reader", pa.RecordBatchReader, pa.Table.to_reader, pa.RecordBatchReader.read_all, is_lazy=True),
    Flavour("dataset", pa.RecordBatchReader, ds.dataset, pa.RecordBatchReader.read_all, is_lazy=True, keeps_kind=False),
    Flavour("stream", pa.Table, Stream, lambda table: table, keeps_kind=False),
    Flavour("pandas", pd.DataFrame, _make_pandas, _read_pandas, keeps_batches=False, knows_types=False),
    Flavour("polars", pl.DataFrame, lambda table: pl.from_arrow(table, rechunk=True), pl.DataFrame.to_arrow, keeps_batches=False),
)


def spark_flavour(session: Any) -> Flavour:
    """Make the flavour of a Spark session."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.utils import is_remote

    def build(table: pa.Table) -> Any:
        """Make a frame of which each partition is one batch."""
        if not is_remote():
            return session.createDataFrame(table)
        parts = [session.createDataFrame(pa.Table.from_batches([batch])).coalesce(1) for batch in table.to_batches() if len(batch)]
        return functools.reduce(DataFrame.union, parts) if parts else session.createDataFrame([], from_arrow_schema(table.schema))

    return Flavour(
        "spark",
        DataFrame,
        build,
        lambda frame: frame.toArrow(),
        is_lazy=True,
        keeps_order=False,
        on_spark=True,
        is_costly=True,
    )


def check_same_table(held: pa.Table, wanted: pa.Table) -> None:
    """Check that two tables have the same columns of the same types in the same order, and the same cells; NaN is NaN, 1 is not 1.0."""
    assert held.column_names == wanted.column_names
    for name in wanted.column_names:
        assert held[name].type == wanted[name].type, f"type of column {name!r}"
        assert repr(held[name].to_pylist()) == repr(wanted[name].to_pylist()), f"cells of column {name!r}"
