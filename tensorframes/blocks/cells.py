"""Cells of different shapes: the values end to end, and where each cell begins.

What map_rows reads where rows differ: rows of one shape are gathered to one dense block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tensorframes.blocks.dense import check_no_nulls, unwrap_list
from tensorframes.blocks.nested import plain_leaves
from tensorframes.blocks.scalars import RowOf, decode_values, empty_aligned, stored, take_aligned
from tensorframes.columns import split_lists
from tensorframes.dtypes import dtype_of_arrow
from tensorframes.errors import NullError, ShapeError
from tensorframes.feeds import ColumnInput
from tensorframes.shapes import Shape


@dataclass(frozen=True, slots=True)
class Cells:
    """Rectangular cells, each of its own shape.

    Attributes:
        values: all values, end to end.
        shapes: the shape of each cell, ``int64[rows, rank]``.
        starts: where each cell's values begin.
    """

    values: np.ndarray
    shapes: np.ndarray
    starts: np.ndarray

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Gather the given rows, which must be of one shape, into an aligned dense block."""
        shape = self.shapes[rows[0]]
        where = self.starts[rows, None] + np.arange(int(np.prod(shape)))
        return take_aligned(self.values, where).reshape(len(rows), *shape)


def decode_cells(array: pa.Array, source: ColumnInput, rows: np.ndarray | None = None) -> tuple[Cells, Cells]:
    """Turn an Arrow array of nested lists into cells, and where a value was present.

    Args:
        array: the column's cells.
        source: what is known of the cells' shape, which is held to, the dtype that the input wants, and what stands for a null element.
        rows: the rows' numbers in their block, for messages; None: all rows, in order.

    Raises:
        NullError: there is a null array, or a null element and nothing stands for it.
        ShapeError: a cell is not rectangular, or not of the known shape.
        DTypeError: a value does not survive the cast.
    """
    column, cell_shape = source.column, source.cell_shape
    numbers = np.arange(len(array)) if rows is None else rows
    shapes = np.zeros((len(array), len(cell_shape)), dtype=np.int64)
    per_row = np.ones(len(array), dtype=np.int64)  # how many lists of the present level each row holds
    for depth, wanted in enumerate(cell_shape):
        check_no_nulls(array, column, _uneven_rows(per_row, numbers), is_cell=depth == 0)
        lengths, array = unwrap_list(array)
        if isinstance(lengths, int):
            lengths = np.full(int(per_row.sum()), lengths, dtype=np.int64)
        shapes[:, depth] = _one_length_per_row(lengths, per_row, column, depth, numbers)
        if wanted is not None:
            shapes[per_row == 0, depth] = wanted  # a row without lists there has none of another length
            differs = shapes[:, depth] != wanted
            if differs.any():
                row = int(np.argmax(differs))
                raise ShapeError(
                    f"column {column!r} wants {wanted} elements at level {depth + 1} but row {numbers[row]} of the block holds "
                    f"{shapes[row, depth]}."
                )
        per_row = per_row * shapes[:, depth]
    values, is_present = _decode_leaves(array, source, _uneven_rows(per_row, numbers))
    starts = np.cumsum(per_row) - per_row
    return Cells(values, shapes, starts), Cells(is_present, shapes, starts)


def _decode_leaves(array: pa.Array, source: ColumnInput, row_of: RowOf) -> tuple[np.ndarray, np.ndarray]:
    """Decode elements, with what stands for a null, and tell which were present."""
    array = plain_leaves(array)
    if source.fill is None or not array.null_count:
        check_no_nulls(array, source.column, row_of, is_cell=not source.cell_shape)
        values = decode_values(array, source, row_of)
        return values, np.broadcast_to(True, values.shape)
    is_present: np.ndarray = array.is_valid().to_numpy(zero_copy_only=False)
    where = np.flatnonzero(is_present)
    present = decode_values(array.drop_null(), source, lambda element: row_of(int(where[element])))
    values = np.empty(len(array), dtype=object) if present.dtype == object else empty_aligned([len(array)], present.dtype)
    values[~is_present] = stored(source.fill, source.cast or source.narrowed or str(dtype_of_arrow(array.type)))
    values[where] = present
    return values, is_present


def is_rectangular(array: pa.Array) -> bool:
    """Tell whether each cell of an array of nested lists, none of which is null, is rectangular and without nulls inside."""
    _, rank = split_lists(array.type)
    try:
        decode_cells(array.slice(0, 0) if len(array) == 0 else array, ColumnInput("", "", 0, Shape([None] * len(rank))))
    except (ShapeError, NullError):
        return False
    return True


def _one_length_per_row(lengths: np.ndarray, per_row: np.ndarray, column: str, depth: int, numbers: np.ndarray) -> np.ndarray:
    """Return the length that all lists of a row have at one level, 0 for a row without lists there."""
    held = per_row > 0
    common = np.zeros(len(per_row), dtype=np.int64)
    if not held.any():
        return common
    if held.all() and (lengths == lengths[0]).all():  # what most columns are, and cheap to see
        return np.full(len(per_row), lengths[0], dtype=np.int64)
    starts = (np.cumsum(per_row) - per_row)[held]
    smallest, largest = np.minimum.reduceat(lengths, starts), np.maximum.reduceat(lengths, starts)
    differs = smallest != largest
    if differs.any():
        first = int(np.argmax(differs))
        raise ShapeError(
            f"column {column!r} wants rectangular cells, but row {numbers[np.flatnonzero(held)[first]]} of the block holds lists of "
            f"lengths {int(smallest[first])} and {int(largest[first])} at level {depth + 1}."
        )
    common[held] = smallest
    return common


def _uneven_rows(per_row: np.ndarray, numbers: np.ndarray) -> RowOf:
    """Return element → row and position in the row, where rows hold so many elements and have these numbers."""
    ends = np.cumsum(per_row)

    def row_of(element: int) -> tuple[int, int]:
        row = int(np.searchsorted(ends, element, side="right"))
        return int(numbers[row]), element - int(ends[row] - per_row[row])

    return row_of


def encode_cells(cells: Sequence[np.ndarray | None]) -> pa.Array:
    """Turn arrays of one rank and dtype, None for a null, into an Arrow array of nested lists; the inverse of `decode_cells`.

    Raises:
        ShapeError: the arrays differ in rank.
    """
    present = [cell for cell in cells if cell is not None]
    ranks = sorted({cell.ndim for cell in present})
    if len(ranks) > 1:
        raise ShapeError(f"cells have ranks {ranks}, but one is wanted.")
    shapes = np.array([cell.shape for cell in present], dtype=np.int64).reshape(len(present), ranks[0])
    array = pa.array(np.concatenate([cell.reshape(-1) for cell in present]))
    for depth in range(ranks[0] - 1, -1, -1):
        lengths = np.repeat(shapes[:, depth], np.prod(shapes[:, :depth], axis=1, dtype=np.int64))
        array = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(lengths)]), type=pa.int32()), array)
    valid = np.array([cell is not None for cell in cells])
    return array if valid.all() else array.take(pa.array(np.cumsum(valid) - 1, mask=~valid))
