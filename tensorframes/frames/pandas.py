"""pandas: ``DataFrame``s. Never changed in place; shapes are noted in ``attrs``."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.typing import DataFrameGroupBy

from tensorframes.blocks.cells import encode_cells, is_rectangular
from tensorframes.blocks.dense import unwrap_list
from tensorframes.columns import MATRIX, SHAPE_KEY, VECTOR, Column, Schema, column_from_field, metadata_of, plain_schema
from tensorframes.frames.base import AbstractGrouped, AbstractMemoryFrame, Folding, Path, arrow_schema, field_of, positional_names
from tensorframes.shapes import Shape


def wrap_pandas(native: Any) -> PandasFrame | None:
    """Return the adapter of a pandas DataFrame, or None if it is none."""
    return PandasFrame(native) if isinstance(native, pd.DataFrame) else None


class PandasFrame(AbstractMemoryFrame):
    """A ``pandas.DataFrame``."""

    def __init__(self, native: pd.DataFrame) -> None:
        """Convert the columns; one that Arrow cannot hold means no tensor."""
        self.native = native
        names = [str(label) for label in native.columns]
        arrays = [_to_arrow(native.iloc[:, position]) for position in range(len(names))]
        shapes = native.attrs.get(SHAPE_KEY, {})
        dtypes = [str(dtype).lower() for dtype in native.dtypes]
        self.schema = Schema(tuple(_column(*each, shapes) for each in zip(names, arrays, dtypes, strict=True)))
        self._arrays = dict(zip(names, arrays, strict=True))

    def column(self, path: Path) -> pa.ChunkedArray:
        """Return a column, or a struct's field."""
        array = self._arrays[path[0]]
        assert array is not None
        return pa.chunked_array([field_of(array, path)])

    def append_table(self, outputs: pa.Table) -> Any:
        """Return a frame that shares the columns and the index."""
        columns = pd.DataFrame(_to_series(outputs), index=self.native.index)
        return _with_shapes(pd.concat([self.native, columns], axis=1), self.native.attrs, outputs.schema)

    def from_table(self, outputs: pa.Table) -> Any:
        """Return a frame with a new index."""
        return _with_shapes(pd.DataFrame(_to_series(outputs), index=pd.RangeIndex(outputs.num_rows)), {}, outputs.schema)

    def with_shapes(self, columns: Sequence[Column]) -> Any:
        """Return a shallow copy that notes the shapes in its ``attrs``."""
        frame = self.native.copy(deep=False)
        noted = {column.name: metadata_of(column)[SHAPE_KEY] for column in columns}
        frame.attrs = {**self.native.attrs, SHAPE_KEY: {**self.native.attrs.get(SHAPE_KEY, {}), **noted}}
        return frame

    def with_keys(self, native: Any, names: Sequence[str], keys: Sequence[Path], rows: np.ndarray) -> Any:
        """Take keys from this frame: categories, time zones, pandas' nullable types."""
        labels = [str(label) for label in self.native.columns]
        for position, path in enumerate(keys):
            if len(path) == 1:
                native.isetitem(position, self.native.iloc[rows, labels.index(path[0])].array)
        return native


_NULLABLE: dict[pa.DataType, Any] = {
    pa.bool_(): pd.BooleanDtype(),
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
    pa.float32(): pd.Float32Dtype(),
    pa.float64(): pd.Float64Dtype(),
}


def _column(name: str, array: pa.Array | None, dtype: str, shapes: Mapping[str, list[int]]) -> Column:
    if array is None:
        return Column(name, pa.null(), native_type=dtype)
    column = column_from_field(pa.field(name, array.type, array.null_count > 0 or pa.types.is_null(array.type)))
    known = shapes.get(name)
    if known and column.cell_shape is not None and column.cell_shape.accepts(Shape.of(known[1:])):
        return column.with_cell_shape(column.cell_shape.narrow(Shape.of(known[1:])))
    return column


def _to_arrow(series: pd.Series) -> pa.Array | None:
    """Convert a column; NaN stays NaN in floats, and None, NaT and NA are nulls. None: Arrow cannot hold it."""
    try:
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":
            return pa.array(series.to_numpy().astype(series.dtype.newbyteorder("="), copy=False))
        if series.dtype == object:
            return _objects_to_arrow(series)
        array = pa.array(series, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


def _objects_to_arrow(series: pd.Series) -> pa.Array:
    """Convert Python objects; what pandas calls missing is null as a cell, and is what it is inside one."""
    if len(series) == 0:
        return pa.array([], pa.string())  # what columns of objects mostly hold; there is nothing else to go by
    first = next((cell for cell in series if not _is_missing(cell)), None)
    if isinstance(first, dict) and (kind := _VECTORS.get(tuple(first))):
        return pa.array(series, kind, from_pandas=True)
    if not isinstance(first, list | tuple | np.ndarray):
        return pa.array(series, from_pandas=True)
    cells = [None if _is_missing(cell) else cell for cell in series]
    if isinstance(first, np.ndarray) and first.ndim > 1:
        kinds = {np.asarray(cell).dtype for cell in cells if cell is not None}
        if len(kinds) > 1:
            raise TypeError(f"arrays of dtypes {kinds}")  # NumPy would change values to join them
        return encode_cells([None if cell is None else np.asarray(cell) for cell in cells])
    return pa.array(cells, from_pandas=False)


_VECTORS = {tuple(field.name for field in kind): kind for kind in (VECTOR, MATRIX)}


def _is_missing(cell: Any) -> bool:
    return cell is None or cell is pd.NA or (isinstance(cell, float) and cell != cell)


def _to_series(table: pa.Table) -> dict[str, Any]:
    return {field.name: _to_cells(column) for field, column in zip(table.schema, table.columns, strict=True)}


def _to_cells(column: pa.ChunkedArray) -> Any:
    """Convert scalars, with nulls to pandas' nullable types; cells of higher rank to arrays of their own shape, views of one buffer."""
    if isinstance(column.type, pa.FixedShapeTensorType):
        flat = pa.chunked_array([chunk.storage.cast(pa.list_(column.type.value_type)) for chunk in column.chunks])
        cells = _to_cells(flat)
        for position, cell in enumerate(cells):
            cells[position] = None if cell is None else cell.reshape(column.type.shape)
        return cells
    if not pa.types.is_list(column.type):
        if pa.types.is_float16(column.type) and column.null_count:
            column = column.cast(pa.float32())  # pandas has no nullable half
        series = column.to_pandas(types_mapper=_NULLABLE.get if column.null_count else None)
        return series.array if isinstance(series.dtype, pd.api.extensions.ExtensionDtype) else series.to_numpy()
    cells = np.empty(len(column), dtype=object)
    start = 0
    for chunk in column.chunks:
        for position, cell in enumerate(_views(chunk), start):
            cells[position] = cell
        start += len(chunk)
    return cells


def _views(array: pa.Array) -> list[Any]:
    """Cut an array of nested lists into one NumPy array for each row, or nested Python lists where a cell is not rectangular."""
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if not valid.all():
        present = iter(_views(array.drop_null()))
        return [next(present) if is_valid else None for is_valid in valid]
    if not is_rectangular(array):
        return list(array.to_pylist())
    per_row = np.ones(len(array), dtype=np.int64)
    dims = []
    while pa.types.is_list(array.type):
        lengths, array = unwrap_list(array)
        assert not isinstance(lengths, int)
        starts = np.minimum(np.cumsum(per_row) - per_row, max(len(lengths) - 1, 0))
        dims.append(np.where(per_row > 0, lengths[starts], 0) if len(lengths) else np.zeros(len(per_row), dtype=np.int64))
        per_row = per_row * dims[-1]
    values = array.to_numpy(zero_copy_only=False, writable=True)
    ends = np.cumsum(per_row)
    return [values[end - size : end].reshape(shape) for end, size, shape in zip(ends, per_row, np.stack(dims, axis=1), strict=True)]


def _with_shapes(frame: pd.DataFrame, attrs: Mapping[str, Any], schema: pa.Schema) -> pd.DataFrame:
    noted = {}
    for field in schema:
        column = column_from_field(field)
        if column.cell_shape:
            noted[field.name] = metadata_of(column)[SHAPE_KEY]
    frame.attrs = {**attrs, SHAPE_KEY: {**attrs.get(SHAPE_KEY, {}), **noted}} if noted else dict(attrs)
    return frame


class PandasGrouped(AbstractGrouped):
    """A pandas ``DataFrameGroupBy``: groups are as pandas makes them, also where it drops nulls or sorts."""

    def __init__(self, native: DataFrameGroupBy) -> None:
        """Take the number of each row's group, and each group's keys, from pandas."""
        self._frame = PandasFrame(native.obj)
        codes = native.ngroup().fillna(-1).to_numpy(np.int64)
        indexed = copy.copy(native)
        indexed.as_index = True
        sizes = indexed.size()
        # pandas lists groups without rows too, of unused categories, and numbers the others now with them and now without.
        has_rows = np.bincount(codes[codes >= 0]) > 0
        self._codes = np.where(codes >= 0, (np.cumsum(has_rows) - 1)[codes], -1) if has_rows.any() else codes
        keys = sizes.index[sizes.to_numpy() > 0].to_frame(index=False)
        assert len(keys) == has_rows.sum()
        self._keys = keys.set_axis(_key_names(sizes.index.names), axis=1)
        self.frame = self._frame
        self.keys = PandasFrame(self._keys).schema.columns

    @property
    def grouping(self) -> tuple[Column, ...]:
        """The number of the group."""
        return (Column("group number", pa.int64()),)

    def aggregate(self, reads: Sequence[Path], outputs: Sequence[Column], combine: Folding, again: Folding) -> Any:
        """Fold the rows by the numbers of their groups."""
        held = pa.array(self._codes >= 0)
        columns = [pa.chunked_array([pa.array(self._codes)]), *(self._frame.column(path) for path in reads)]
        table = pa.table(columns, names=positional_names(len(columns))).filter(held)
        schema = arrow_schema([*self.grouping, *outputs])
        found = pa.Table.from_batches(again(combine(table.to_batches())), plain_schema([*self.grouping, *outputs]))
        found = found.cast(schema).sort_by("group number")
        keys = self._keys.iloc[found.column(0).to_numpy()].reset_index(drop=True)
        result = self._frame.from_table(found.drop_columns(["group number"]))
        return _with_shapes(pd.concat([keys, result], axis=1), {}, schema)


def _key_names(names: Sequence[Any]) -> list[str]:
    """Name the keys; those that are no column's are "key", or numbered where there are several keys."""
    nameless = ["key"] if len(names) == 1 else [f"key_{position}" for position in range(len(names))]
    return [other if name is None else str(name) for name, other in zip(names, nameless, strict=True)]


def wrap_grouped_pandas(native: Any) -> AbstractGrouped | None:
    """Return the adapter of a pandas grouping, or None if it is none."""
    return PandasGrouped(native) if isinstance(native, DataFrameGroupBy) else None
