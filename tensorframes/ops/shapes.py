"""schema, print_schema, analyze, append_shape: what is known of a frame's columns as tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tensorframes.blocks.dense import scan_shapes
from tensorframes.blocks.nested import plain
from tensorframes.columns import Column, Schema
from tensorframes.errors import ColumnError, FrameError, ShapeError, verb
from tensorframes.frames import wrap
from tensorframes.shapes import Shape


@verb
def schema(frame: Any) -> Schema:
    """Return a frame's columns as a value: iterate over it, look columns up by name, print it.

    Raises:
        FrameError: the frame is none.

    Example:
        >>> import pyarrow as pa, tensorframes as tfs
        >>> tfs.schema(pa.table({"x": [1.0, 2.0]}))["x"].block
        TensorType(dtype='float64', shape=Shape([None]))
    """
    return wrap(frame).schema


@verb
def print_schema(frame: Any) -> None:
    """Print a frame's columns: name, type, nullability, and the block that each one gives.

    Raises:
        FrameError: the frame is none.

    Example:
        >>> import pyarrow as pa, tensorframes as tfs
        >>> tfs.print_schema(pa.table({"x": [1.0, 2.0], "y": [[1], [2]]}))
        root
         |-- x: double (nullable = true) double[?]
         |-- y: array (nullable = true) long[?,?]
    """
    print(wrap(frame).schema)


@verb
def append_shape(frame: Any, col: Any, shape: Sequence[int | None]) -> Any:
    """Note the shape of a column's blocks in the frame's metadata; the data is not looked at.

    Args:
        frame: the frame.
        col: the column's name, a `Column`, or the frame's own column object.
        shape: the block's shape, ``[None, 2]``; -1 is accepted for unknown.

    Returns:
        A frame of the same kind. On Spark and Arrow the shape is in the column's metadata, on pandas in ``attrs``, on polars in its type.

    Raises:
        ColumnError: there is no such column.
        ShapeError: the rank is not the column's, a known dimension is another, or the number of rows is fixed.

    Example:
        >>> import pyarrow as pa, tensorframes as tfs
        >>> tfs.print_schema(tfs.append_shape(pa.table({"y": [[1.0, 2.0]]}), "y", [None, 2]))
        root
         |-- y: array (nullable = true) double[?,2]
    """
    source = wrap(frame)
    name = _column_name(col)
    path, column = source.schema.resolve(name)
    try:
        wanted = Shape.of(shape)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"column {name!r} wants a shape like [None, 2], but {shape!r} is given: {error}.") from error
    if column.block is None or column.block.shape is None or len(path) > 1:
        raise ColumnError(f"column {name!r} holds {column.type_name}, which has no shape to be noted.")
    if wanted[:1] != (None,) or any(dim is not None and dim < 0 for dim in wanted) or not column.block.shape.accepts(wanted):
        raise ShapeError(f"column {name!r} wants a shape like {column.block.shape} but {wanted} is given.")
    return source.with_shapes([column.with_cell_shape(Shape(wanted[1:]))]) if len(wanted) > 1 else frame


@verb
def analyze(frame: Any, *, columns: str | Sequence[str] | None = None, sample: int | None = None) -> Any:
    """Look at the data once and note the dimensions that all cells share in the frame's metadata.

    Reads the offsets of array columns only, by Arrow; needs no TensorFlow. Nulls are passed over. Dimensions that are known already are
    kept.

    Args:
        frame: the frame.
        columns: the array columns to look at; None: all.
        sample: look at the first so many rows only; None: at all rows.

    Returns:
        A frame of the same kind, as from `append_shape`.

    Raises:
        ColumnError: there is no such column, or no tensor holds it.
        ShapeError: a cell contradicts the dimension that the metadata says.
        FrameError: a ``RecordBatchReader``, which a scan would use up.

    Example:
        >>> import pyarrow as pa, tensorframes as tfs
        >>> tfs.print_schema(tfs.analyze(pa.table({"y": [[1.0, 2.0], [3.0, 4.0]], "z": [[1.0], []]})))
        root
         |-- y: array (nullable = true) double[?,2]
         |-- z: array (nullable = true) double[?,?]
    """
    if sample is not None and (isinstance(sample, bool) or not isinstance(sample, int) or not 0 < sample < 2**31):
        raise FrameError(f"sample is {sample!r}, but a positive number of rows is wanted.")
    source = wrap(frame)
    names = [columns] if isinstance(columns, str) else columns
    wanted = list(source.schema) if names is None else [_array_column(source.schema, name) for name in names]
    # Columns that share their name cannot be told apart by the frame.
    scanned = [column for column in wanted if column.block and column.cell_shape and source.schema.names.count(column.name) == 1]
    if not scanned:
        return frame
    parts = source.gather([(column.name,) for column in scanned], Scan(tuple(len(column.cell_shape or ()) for column in scanned)), sample)
    found = [_merge(column, [json.loads(part)[i] for part in parts]) for i, column in enumerate(scanned)]
    return source.with_shapes(found)


@dataclass(frozen=True, slots=True)
class Scan:
    """A task that finds the smallest and largest list length at each level of each column.

    Attributes:
        ranks: the rank of each column's cells.
    """

    ranks: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Return, as JSON, a list for each column of ``[smallest, largest]`` or null for each level."""
        found: list[list[list[int] | None]] = [[None] * rank for rank in self.ranks]
        for batch in batches:
            for levels, array, rank in zip(found, batch.columns, self.ranks, strict=True):
                levels[:] = [_widen(held, seen) for held, seen in zip(levels, scan_shapes(plain(array, ""), rank), strict=True)]
        return json.dumps(found).encode()


def _widen(held: Sequence[int] | None, seen: Sequence[int] | None) -> list[int] | None:
    if held is None or seen is None:
        return list(held or seen or []) or None
    return [min(held[0], seen[0]), max(held[1], seen[1])]


def _merge(column: Column, parts: Sequence[Sequence[Sequence[int] | None]]) -> Column:
    assert column.cell_shape is not None
    dims: list[int | None] = []
    for level, known in enumerate(column.cell_shape):
        bounds: Sequence[int] | None = None
        for part in parts:
            bounds = _widen(bounds, part[level])
        found = bounds[0] if bounds and bounds[0] == bounds[1] else None
        if known is not None and bounds and (bounds[0] != known or bounds[1] != known):
            raise ShapeError(
                f"column {column.name!r} is said to have {known} elements at level {level + 1}, "
                f"but its cells hold {bounds[0]} to {bounds[1]}."
            )
        dims.append(found if known is None else known)
    return column.with_cell_shape(Shape(dims))


def _array_column(schema: Schema, name: str) -> Column:
    path, column = schema.resolve(_column_name(name))
    if column.block is None or len(path) > 1:
        raise ColumnError(f"column {name!r} holds {column.type_name}, which has no shape to be found.")
    return column


def _column_name(col: Any) -> str:
    """Return the name of a column given as text, as a `Column`, or as the frame's own column object."""
    if isinstance(col, str):
        return col
    if isinstance(getattr(col, "name", None), str):
        return str(col.name)
    text = str(col)  # Column<'y'>, which is all that Spark's own columns tell
    if text.startswith("Column<'") and text.endswith("'>"):
        return text[8:-2]
    raise ColumnError(f"a {type(col).__name__} names no column.")
