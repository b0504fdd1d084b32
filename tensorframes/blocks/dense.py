"""Dense blocks: cells that all have one shape, as one array with the rows in front.

Decode walks down the list levels of an Arrow array by its offsets, whatever slice of its buffers the array is, and shares the
buffer of the values where its address allows; encode wraps a flat array into list levels again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorframes.blocks.scalars import Numbers, RowOf, decode_scalars, encode_scalars, even_rows, levels_around
from tensorframes.columns import split_lists
from tensorframes.errors import NullError, ShapeError
from tensorframes.shapes import Shape

_MOST_ELEMENTS = 2**31 - 1

Leaves = Callable[[pa.Array, RowOf], np.ndarray]


def decode_dense(array: pa.Array, column: str, cell_shape: Shape, leaves: Leaves | None = None, numbers: Numbers = None) -> np.ndarray:
    """Turn an Arrow array into one array of shape ``[rows, *cell]``.

    Args:
        array: the column's cells; lists to the depth of the cell's rank. Slices, and null lists over any range of children, are fine.
        column: the column's name, for messages.
        cell_shape: what is known of the cells' shape; known dimensions are held to.
        leaves: decodes the elements; None: `decode_scalars`.
        numbers: how messages call the cells.

    Returns:
        An array whose address is a multiple of 64 and that shares Arrow's buffer where that already is.

    Raises:
        NullError: there is a null, in a cell or as a cell.
        ShapeError: cells differ in shape, or from the known one.
    """
    dims = [len(array)]
    around = levels_around(numbers)
    row_of = even_rows(1, numbers)
    for wanted in cell_shape:
        check_no_nulls(array, column, row_of, is_cell=len(dims) + around == 1)
        lengths, array = unwrap_list(array)
        dims.append(common_length(lengths, wanted, column, dims, numbers))
        row_of = even_rows(math.prod(dims[1:]), numbers)
    check_no_nulls(array, column, row_of, is_cell=len(dims) + around == 1)
    values = decode_scalars(array, column, row_of) if leaves is None else leaves(array, row_of)
    return values.reshape(dims)


def encode_dense(values: np.ndarray, arrow: pa.DataType, output: str, rows: np.ndarray | None = None) -> pa.Array:
    """Turn an array of shape ``[rows, *cell]`` into an Arrow array of the given type; the inverse of `decode_dense`.

    Args:
        values: the block.
        arrow: the column's type.
        output: the output's name, for messages.
        rows: the rows' numbers in their block, for messages; None: all rows, in order.

    Raises:
        ShapeError: more elements than Arrow's 32-bit list offsets can count.
        DTypeError: bytes for a string column that are not UTF-8.
    """
    leaf, inner = split_lists(arrow)
    assert len(inner) == values.ndim - 1
    if values.size > _MOST_ELEMENTS:
        raise ShapeError(
            f"output {output!r} has {values.size} elements in one block, more than an array column's 32-bit offsets can count.",
            hint="Pass a smaller block_rows.",
        )
    array = encode_scalars(values.reshape(-1), leaf, output, even_rows(math.prod(values.shape[1:]), rows))
    if isinstance(arrow, pa.FixedShapeTensorType):
        size = math.prod(arrow.shape)
        storage = pa.Array.from_buffers(arrow.storage_type, len(values), [None], children=[array]) if size else None
        return pa.ExtensionArray.from_storage(arrow, storage or pa.array([[]] * len(values), arrow.storage_type))
    for depth in range(values.ndim - 1, 0, -1):
        count, length = math.prod(values.shape[:depth]), values.shape[depth]
        offsets = pa.array(np.arange(count + 1, dtype=np.int32) * np.int32(length))
        array = pa.ListArray.from_arrays(offsets, array)
    return array if array.type == arrow else array.cast(arrow)


def unwrap_list(array: pa.Array) -> tuple[np.ndarray | int, pa.Array]:
    """Take one list level off.

    Returns:
        The length of each list (one number where the type fixes it), and the elements of these lists only, end to end. A fixed-shape
        tensor array gives its flat storage, with the dimensions still to be taken off as lists.
    """
    if isinstance(array, pa.FixedShapeTensorArray):
        array = _as_nested_lists(array)
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        return size, array.values.slice(array.offset * size, len(array) * size)
    offsets = list_offsets(array)
    return np.diff(offsets), array.values.slice(offsets[0], offsets[-1] - offsets[0])


def list_offsets(array: pa.Array) -> np.ndarray:
    """Return the offsets of a list array into its ``values``, one more than it has rows, whatever slice it is."""
    wide = pa.types.is_large_list(array.type)
    if len(array) == 0:
        return np.zeros(1, dtype=np.int64)
    buffer = array.buffers()[1]
    return np.frombuffer(buffer, dtype=np.int64 if wide else np.int32)[array.offset : array.offset + len(array) + 1]


def scan_shapes(array: pa.Array, rank: int) -> list[tuple[int, int] | None]:
    """Return the smallest and largest list length at each level, None where there is no list; nulls are passed over.

    The one pass of `analyze`: offsets only, no values.
    """
    found: list[tuple[int, int] | None] = []
    for _ in range(rank):
        array = array.drop_null() if array.null_count else array
        lengths, array = unwrap_list(array)
        if isinstance(lengths, int):
            found.append((lengths, lengths))
        else:
            found.append((int(lengths.min()), int(lengths.max())) if len(lengths) else None)
    return found


def check_no_nulls(array: pa.Array, column: str, row_of: RowOf, is_cell: bool) -> None:
    """Raise if an array holds a null.

    Args:
        array: cells, or the elements of all cells, end to end.
        column: the column's name, for the message.
        row_of: element → row and position in the row.
        is_cell: whether the array holds cells.

    Raises:
        NullError: names the column, the number of nulls and the first row (and element) that has one.
    """
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = array.dictionary_decode()  # the indices are valid, what they point at is not
    if array.null_count:
        raise null_error(array.null_count, pc.index(array.is_null(), True).as_py(), column, row_of, is_cell)


def null_error(count: int, first: int, column: str, row_of: RowOf, is_cell: bool) -> NullError:
    """Return the error about so many nulls, the first of which is this cell or element."""
    row, element = row_of(first)
    where = f"row {row}" if is_cell else f"element {element} of row {row}"
    held = "1 null, at" if count == 1 else f"{count} nulls, the first at"
    return NullError(
        f"column {column!r} holds {held} {where} of the block, where no null may be; nulls= of tfs.feed says what becomes of them."
    )


def common_length(lengths: np.ndarray | int, wanted: int | None, column: str, dims: Sequence[int], numbers: Numbers = None) -> int:
    """Return the length that all lists of a level have.

    Args:
        lengths: their lengths, or the one of a fixed-size list.
        wanted: the length that is known.
        column: the column's name, for messages.
        dims: the dimensions before this one, the cells first.
        numbers: how messages call the cells.

    Raises:
        ShapeError: names the two that differ.
    """
    if isinstance(lengths, int):
        lengths = np.array([lengths])
    if len(lengths) == 0:
        return wanted or 0
    common = int(lengths[0]) if wanted is None else wanted
    differs = lengths != common
    if not differs.any():
        return common
    first = int(np.argmax(differs))
    row_of, level = even_rows(math.prod(dims[1:]), numbers), len(dims) + levels_around(numbers)
    (zeroth, _), (row, _), held = row_of(0), row_of(first), int(lengths[first])
    if wanted is not None:
        raise ShapeError(f"column {column!r} wants {wanted} elements at level {level} but row {row} of the block holds {held}.")
    raise ShapeError(
        f"column {column!r} is no dense block: at level {level}, row {zeroth} of the block holds {common} elements and row {row} holds "
        f"{held}; tfs.feed has ragged= and pad= for such."
    )


def _as_nested_lists(array: pa.FixedShapeTensorArray) -> pa.Array:
    """Spell a fixed-shape tensor array, whatever its permutation, as nested fixed-size lists."""
    shape, order, rows = tuple(array.type.shape), array.type.permutation, len(array)
    storage, size = array.storage, math.prod(shape)
    nested = storage.values.slice(storage.offset * size, rows * size)
    if order:
        places = np.arange(rows * size).reshape(rows, *shape).transpose(0, *(1 + i for i in order))
        shape, nested = places.shape[1:], nested.take(pa.array(places.reshape(-1)))
    for depth in range(len(shape) - 1, -1, -1):
        count = rows * math.prod(shape[:depth])
        nested = pa.Array.from_buffers(pa.list_(nested.type, shape[depth]), count, [None], children=[nested])
    return pc.if_else(storage.is_valid(), nested, pa.scalar(None, nested.type)) if storage.null_count else nested
