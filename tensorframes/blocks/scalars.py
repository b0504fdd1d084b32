"""Scalars: flat Arrow arrays without nulls ↔ flat NumPy arrays.

Fixed-width values share Arrow's buffer where its address is a multiple of 64, and are copied once into a buffer that is otherwise:
TensorFlow's kernels abort the process on memory that is less aligned. Text and bytes travel as arrays of Python bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorframes.dtypes import BY_NAME, dtype_of_arrow, is_text
from tensorframes.errors import DTypeError, ShapeError
from tensorframes.feeds import ColumnInput

ALIGNMENT = 64
_MOST_BYTES = 2**31 - 1

RowOf = Callable[[int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Elements:
    """Cells that are elements of a block's rows, as the lists inside ragged ones are.

    Attributes:
        rows: for each cell the number of its row, ascending.
        depth: how many levels of lists are around it.
    """

    rows: np.ndarray
    depth: int


Numbers = np.ndarray | Elements | None
"""How messages call cells: by these numbers of rows, as elements of rows, or by their places (None)."""


def even_rows(per_cell: int, numbers: Numbers = None) -> RowOf:
    """Return element → row and position in the row, where every cell has equally many elements.

    Args:
        per_cell: elements of a cell.
        numbers: how messages call the cells.
    """

    def row_of(element: int) -> tuple[int, int]:
        cell, position = divmod(element, max(per_cell, 1))
        if numbers is None:
            return cell, position
        if isinstance(numbers, Elements):
            row = int(numbers.rows[cell])
            return row, (cell - int(np.searchsorted(numbers.rows, row))) * max(per_cell, 1) + position
        return int(numbers[cell]), position

    return row_of


def levels_around(numbers: Numbers) -> int:
    """Return how many levels of lists are around the cells."""
    return numbers.depth if isinstance(numbers, Elements) else 0


def decode_scalars(array: pa.Array, column: str, row_of: RowOf) -> np.ndarray:
    """Turn a flat Arrow array without nulls into an aligned NumPy array.

    Dates become days and timestamps microseconds since the epoch, as 32- and 64-bit integers; text and bytes become Python bytes.

    Args:
        array: the values.
        column: the column's name, for messages.
        row_of: element → row, for messages.

    Raises:
        DTypeError: a timestamp that is no whole number of microseconds.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    dtype = dtype_of_arrow(array.type)
    assert dtype is not None
    if dtype == "string":
        cells: np.ndarray = array.cast(pa.large_binary()).to_numpy(zero_copy_only=False)
        return cells
    if dtype == "bool":
        unpacked = empty_aligned([len(array)], np.dtype("bool"))
        unpacked[:] = array.cast(pa.uint8()).to_numpy().view(np.bool_)
        return unpacked
    if pa.types.is_timestamp(array.type):
        array = _microseconds(array, column, row_of)
    values = BY_NAME[dtype].numpy
    if len(array) == 0:
        return empty_aligned([0], values)
    start = array.offset * values.itemsize
    return align(np.frombuffer(array.buffers()[1], dtype=values, count=len(array), offset=start))


def encode_scalars(values: np.ndarray, arrow: pa.DataType, output: str, row_of: RowOf) -> pa.Array:
    """Turn a flat NumPy array into an Arrow array of the given type; numbers share their memory.

    Raises:
        DTypeError: bytes for a string column that are not UTF-8; names the row.
    """
    if dtype_of_arrow(arrow) != "string":
        return pa.array(np.ascontiguousarray(values), type=arrow)
    array = pa.array(values, type=pa.large_binary())
    if array.nbytes > _MOST_BYTES and not (pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow)):
        raise ShapeError(
            f"output {output!r} holds {array.nbytes} bytes in one block, more than a column's 32-bit offsets can count.",
            hint="Pass a smaller block_rows.",
        )
    if is_text(arrow):
        try:
            return array.cast(pa.large_string()).cast(arrow)
        except pa.ArrowInvalid as error:
            row, _ = row_of(_first_invalid_utf8(array))
            raise DTypeError(
                f"output {output!r} is a string column, but row {row} of the block holds bytes that are not UTF-8.",
                hint=f"Keep the bytes with tfs.program(…, binary=({output!r},)).",
            ) from error
    return array.cast(arrow)


def decode_values(array: pa.Array, source: ColumnInput, row_of: RowOf) -> np.ndarray:
    """Turn a flat Arrow array without nulls into an aligned NumPy array of the dtype that an input wants.

    Raises:
        DTypeError: a value does not fit; names it and its row.
    """
    wanted = source.narrowed
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    is_decimal = pa.types.is_decimal(array.type)
    values = _decode_decimals(array, source, row_of) if is_decimal else decode_scalars(array, source.column, row_of)
    if wanted is not None and (values.dtype != BY_NAME[wanted].numpy or wanted == "bfloat16"):
        cast, lost = narrow_values(values, wanted)
        if lost.any():
            first = int(np.argmax(lost))
            raise _misfit(source.name, source.column, wanted, values[first], row_of(first)[0])
        values = align(cast)
    return values if source.cast is None else cast_values(values, source.cast, source.name, source.column, row_of)


def _decode_decimals(array: pa.Array, source: ColumnInput, row_of: RowOf) -> np.ndarray:
    """Turn decimals into the integers that they are, or into the nearest 64-bit floats."""
    assert source.narrowed is not None
    kind = np.dtype(BY_NAME[source.narrowed].numpy).kind
    if kind in "iub" and source.narrowed != "bfloat16":
        whole = pa.uint64() if kind == "u" else pa.int64()
        try:
            return decode_scalars(array.cast(whole), source.column, row_of)
        except pa.ArrowInvalid as error:
            back = array.cast(whole, safe=False).cast(pa.decimal256(40, 0)).cast(pa.decimal256(76, max(array.type.scale, 0)))
            lost = pc.not_equal(back, array.cast(back.type))
            first = pc.index(lost, True).as_py()
            raise _misfit(source.name, source.column, source.narrowed, array[first].as_py(), row_of(first)[0]) from error
    # By way of text, which Arrow reads to the nearest float; its own cast of decimals is off by one place in the last digit.
    text, nearest = array.cast(pa.string()), pa.float32() if source.narrowed == "float32" else pa.float64()
    values = decode_scalars(text.cast(nearest), source.column, row_of)
    lost = np.isinf(values)
    if lost.any():
        first = int(np.argmax(lost))
        raise _misfit(source.name, source.column, source.narrowed, array[first].as_py(), row_of(first)[0])
    return values


def narrow_values(values: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Cast values to any dtype of numbers or booleans.

    Returns:
        The cast values, in the dtype's storage, and which of them did not fit: too large, or NaN or a fraction for an integer. A float
        is rounded to the nearest one.

    Raises:
        TypeError: the values are neither numbers nor booleans, or complex for a real dtype.
    """
    storage = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else BY_NAME[dtype].numpy
    if values.dtype.kind not in "biufc" or (values.dtype.kind == "c" and storage.kind != "c"):
        raise TypeError(f"{values.dtype} is not cast to {dtype}")
    with np.errstate(all="ignore"):
        cast = _to_odd_float32(values).astype(storage) if dtype == "bfloat16" else values.astype(storage)
        if storage.kind == "b":
            lost = (values != 0) & (values != 1)
        elif storage.kind in "iu":
            limits = np.iinfo(storage)
            if values.dtype.kind == "f":  # the bounds are powers of two, which every float holds
                fits = (values >= float(limits.min)) & (values < float(limits.max + 1)) & (values == np.trunc(values))
            elif values.dtype.kind == "b":
                fits = np.ones(values.shape, dtype=bool)
            else:
                held = np.iinfo(values.dtype)
                fits = (values >= max(limits.min, held.min)) & (values <= min(limits.max, held.max))
            lost = ~fits
        else:
            lost = ~np.isfinite(cast) & np.isfinite(values)
    return cast.view(np.uint16) if dtype == "bfloat16" else cast, np.asarray(lost)


def _to_odd_float32(values: np.ndarray) -> np.ndarray:
    """Round 64-bit floats to 32 bits so that rounding once more, to 16, gives the nearest: what is lost sets the last bit."""
    if values.dtype != np.float64:
        return values
    nearest = values.astype(np.float32)
    away = np.abs(nearest.astype(np.float64)) > np.abs(values)
    bits = nearest.view(np.uint32) - away
    is_exact = (nearest.astype(np.float64) == values) | ~np.isfinite(values)
    odd: np.ndarray = (
        np.where(is_exact | np.isinf(nearest), nearest.view(np.uint32), bits | np.uint32(1)).astype(np.uint32).view(np.float32)
    )
    return odd


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Return numbers whose bits an array holds, as float32."""
    wide: np.ndarray = (bits.astype(np.uint32) << 16).view(np.float32)
    return wide


def stored(value: Any, dtype: str) -> Any:
    """Return a number, boolean or bytes that fits a dtype as an element of its storage."""
    return value if dtype == "string" else narrow_values(np.asarray(value), dtype)[0][()]


def _misfit(input_name: str, column: str, dtype: str, value: Any, row: int) -> DTypeError:
    return DTypeError(
        f"input {input_name!r} wants {dtype} but column {column!r} holds {value} in row {row} of the block, which {dtype} cannot hold."
    )


def cast_values(values: np.ndarray, dtype: str, input_name: str, column: str, row_of: RowOf) -> np.ndarray:
    """Cast values to the dtype that a program declares, checking that no finite value becomes infinite.

    Raises:
        DTypeError: names the value and its row.
    """
    cast = empty_aligned(values.shape, BY_NAME[dtype].numpy)
    with np.errstate(over="ignore"):
        np.copyto(cast, values, casting="same_kind")
    if (cast.dtype.kind == "f" and cast.dtype.itemsize < 8) or (cast.dtype.kind == "c" and cast.dtype.itemsize < 16):
        lost = np.isinf(cast) & np.isfinite(values)
        if lost.any():
            first = int(np.argmax(lost))
            raise _misfit(input_name, column, dtype, values.reshape(-1)[first], row_of(first)[0])
    return cast


def align(values: np.ndarray) -> np.ndarray:
    """Return the array itself if it is in one piece at an address that is a multiple of 64, else a copy that is."""
    if values.dtype == object or (values.flags.c_contiguous and values.ctypes.data % ALIGNMENT == 0):
        return values
    copy = empty_aligned(values.shape, values.dtype)
    np.copyto(copy, values)
    return copy


def take_aligned(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Gather rows, which must be in range, into an array of shape ``rows.shape + values.shape[1:]`` that is aligned."""
    if values.dtype == object:
        objects: np.ndarray = values[rows]
        return objects
    taken = empty_aligned([*rows.shape, *values.shape[1:]], values.dtype)
    np.take(values, rows, axis=0, out=taken, mode="clip")  # "clip" writes into `taken` without a buffer
    return taken


def empty_aligned(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Allocate an array whose address is a multiple of 64."""
    size = math.prod(shape)
    buffer = pa.allocate_buffer(max(size * dtype.itemsize, ALIGNMENT))
    return np.frombuffer(buffer, dtype=dtype, count=size).reshape(shape)


def _microseconds(array: pa.Array, column: str, row_of: RowOf) -> pa.Array:
    wanted = pa.timestamp("us", array.type.tz)
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid as error:
        lost = pc.not_equal(array.cast(wanted, safe=False).cast(array.type), array)
        first = pc.index(lost, True).as_py()
        what = "is no whole number of microseconds" if array.type.unit == "ns" else "lies beyond 64-bit microseconds"
        held = array.slice(first, 1)
        # Arrow's text, for Python's has no nanoseconds; but neither has the year 10000.
        held = held.cast(pa.string())[0] if array.type.unit == "ns" else f"{held.cast(pa.int64())[0]} {array.type.unit} since 1970"
        raise DTypeError(f"column {column!r} holds {held} in row {row_of(first)[0]} of the block, which {what}.") from error


def _first_invalid_utf8(array: pa.Array) -> int:
    for index, cell in enumerate(array.to_pylist()):
        try:
            cell.decode()
        except UnicodeDecodeError:
            return index
    raise AssertionError("every cell is UTF-8")
