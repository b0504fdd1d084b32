"""Nulls and short cells: what a feed's `nulls=` and `pad=` put in their place.

Every element's place in the dense block is computed level by level, and the elements that are there are put into a block that is full of
what stands for the others. No Python loop over rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tensorframes.blocks.dense import common_length, null_error
from tensorframes.blocks.nested import Level, is_valid, unnest
from tensorframes.blocks.scalars import Numbers, decode_values, empty_aligned, even_rows, levels_around, stored
from tensorframes.blocks.vectors import as_vectors, encode_matrices
from tensorframes.columns import vector_rank
from tensorframes.dtypes import dtype_of_arrow
from tensorframes.errors import NullError, ShapeError
from tensorframes.feeds import ColumnInput


def decode_filled(array: pa.Array, source: ColumnInput, numbers: Numbers = None) -> tuple[np.ndarray, np.ndarray]:
    """Turn an Arrow array into one array of shape ``[rows, *cell]``, nulls and missing elements replaced.

    Args:
        array: the column's cells, as plain lists.
        source: says what stands for a null, what shorter cells are filled up with, and what is known of the cells' shape.
        numbers: how messages call the cells.

    Returns:
        The values, and where one was present, of the same shape.

    Raises:
        NullError: there is a null and nothing stands for it, or a null array whose shape nothing tells.
        ShapeError: cells differ in shape, or a cell is larger than the input's declared size.
        DTypeError: a value does not fit.
    """
    dims, places = [len(array)], np.arange(len(array))
    absent: list[tuple[int, np.ndarray]] = []
    for depth, wanted in enumerate(source.cell_shape):
        level, array = unnest(array)
        if level.valid is not None:
            _check_has_shape(level, places, source, dims, numbers)
            _check_may_be_null(~level.valid, places, source, dims, numbers)
            absent.append((depth + 1, places[~level.valid]))
        length = _length(level, wanted, source, dims, places, numbers)
        within = np.arange(level.lengths.sum()) - np.repeat(np.cumsum(level.lengths) - level.lengths, level.lengths)
        places = np.repeat(places * length, level.lengths) + within
        dims.append(length)
    if array.null_count:
        valid = is_valid(array)
        _check_may_be_null(~valid, places, source, dims, numbers)
        absent.append((len(dims), places[~valid]))
        array, places = array.drop_null(), places[valid]
    row_of = even_rows(math.prod(dims[1:]), numbers)
    present = decode_values(array, source, lambda element: row_of(int(places[element])))
    return _assemble(present, places, dims, absent, source, dtype=source.cast or source.narrowed or str(dtype_of_arrow(array.type)))


def _assemble(
    present: np.ndarray, places: np.ndarray, dims: Sequence[int], absent: Sequence[tuple[int, np.ndarray]], source: ColumnInput, dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Put the present values into their places, what stands for a null where nulls are, and the padding everywhere else."""
    values = empty_aligned(dims, present.dtype) if dtype != "string" else np.empty(dims, dtype=object)
    if source.pad is not None:
        values[...] = stored(source.pad, dtype)
    for depth, where in absent:
        values.reshape(math.prod(dims[:depth]), math.prod(dims[depth:]))[where] = stored(source.fill, dtype)
    values.reshape(-1)[places] = present
    is_present = np.zeros(dims, dtype=bool)
    is_present.reshape(-1)[places] = True
    return values, is_present


def _check_may_be_null(null: np.ndarray, places: np.ndarray, source: ColumnInput, dims: Sequence[int], numbers: Numbers) -> None:
    if source.fill is None and null.any():
        first = int(places[np.argmax(null)])
        raise null_error(
            int(null.sum()), first, source.column, even_rows(math.prod(dims[1:]), numbers), len(dims) + levels_around(numbers) == 1
        )


def _check_has_shape(level: Level, places: np.ndarray, source: ColumnInput, dims: Sequence[int], numbers: Numbers) -> None:
    if source.fill is not None and not source.knows_nulls:
        assert level.valid is not None
        row, _ = even_rows(math.prod(dims[1:]), numbers)(int(places[np.argmin(level.valid)]))
        raise NullError(
            f"column {source.column!r} holds a null array in row {row} of the block, whose length, when it is padded in a reduce, would "
            "depend on the block.",
            hint=f"Skip such rows with nulls='skip', or note the shape: tfs.append_shape(frame, {source.column!r}, [None, …]).",
        )


def _length(level: Level, wanted: int | None, source: ColumnInput, dims: Sequence[int], places: np.ndarray, numbers: Numbers) -> int:
    """Return how long the lists of a level are in the block."""
    lengths, held = (level.lengths, places) if level.valid is None else (level.lengths[level.valid], places[level.valid])
    row_of, depth = even_rows(math.prod(dims[1:]), numbers), len(dims) + levels_around(numbers)
    if source.pad is not None:
        length = int(lengths.max(initial=0)) if wanted is None else wanted
        if (lengths > length).any():
            longest = int(np.argmax(lengths > length))
            raise ShapeError(
                f"column {source.column!r} is padded to {length} elements at level {depth} but row {row_of(int(held[longest]))[0]} of "
                f"the block holds {lengths[longest]}."
            )
        return length
    if len(lengths) == 0 and wanted is None and level.valid is not None and len(level.valid):
        row, element = row_of(int(places[0]))
        where = f"row {row}" if depth == 1 else f"element {element} of row {row}"
        raise NullError(
            f"column {source.column!r} holds a null array at {where} of the block, and no other that would tell its length.",
            hint=f"Note the shape: tfs.append_shape(frame, {source.column!r}, [None, …]).",
        )
    differs = np.flatnonzero(lengths != (lengths[:1] if wanted is None else wanted))
    if len(differs):  # lists are not evenly spread over rows where some are null, so that the message gets these two only
        pair = np.array([0, differs[0]])
        named = np.array([row_of(int(place))[0] for place in held[pair]])
        return common_length(lengths[pair], wanted, source.column, [2, *(1 for _ in range(depth - 1))], named)
    return common_length(lengths, wanted, source.column, dims)


def pad_alike(parts: Sequence[np.ndarray], pad: Any, dtype: str | None) -> list[np.ndarray]:
    """Fill up the cells of several blocks to the size of the largest."""
    largest = np.max([values.shape[1:] for values in parts], axis=0)
    element = stored(pad, dtype) if dtype is not None else pad
    filled = []
    for values in parts:
        whole = np.full((len(values), *largest), element, dtype=values.dtype)
        whole[tuple(slice(0, size) for size in values.shape)] = values
        filled.append(whole)
    return filled


def spread(array: pa.Array, is_present: np.ndarray) -> pa.Array:
    """Return an array with a null for each row that is not present, the others in their order."""
    rows = np.cumsum(is_present) - 1
    rank = vector_rank(array.type)
    if rank is None:
        return array.take(pa.array(rows, mask=~is_present))
    # The fields of Spark's vectors may not be null, not even in a null vector: such rows are blank behind the mask.
    blank = as_vectors(pa.array([[]], pa.list_(pa.float64()))) if rank == 1 else encode_matrices(np.zeros([1, 0, 0]))
    filled = pa.concat_arrays([array, blank]).take(pa.array(np.where(is_present, rows, len(array))))
    return pa.StructArray.from_arrays(filled.flatten(), fields=list(array.type), mask=pa.array(~is_present))
