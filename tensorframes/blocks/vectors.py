"""Vectors: Spark ML's vectors and matrices, which arrive as Arrow structs ↔ lists, coordinates and dense arrays.

Decode reads the stored entries of a block, checks them, and lays them out row after row; a block of dense vectors is laid out so already
and shares Arrow's buffer. Knows the storage of `pyspark.ml.linalg`, and not PySpark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tensorframes.blocks.dense import check_no_nulls, encode_dense, unwrap_list
from tensorframes.blocks.scalars import Numbers, even_rows
from tensorframes.columns import MATRIX, VECTOR, vector_rank
from tensorframes.errors import ShapeError

_MOST_ELEMENTS = 2**31 - 1
_SPARSE, _DENSE = 0, 1


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The entries of a block of vectors or matrices, row after row of the block, and in each cell by their places.

    Attributes:
        rows: the row of the block that holds each entry, ``int64[entries]``.
        places: where in its cell each entry is, ``int64[entries, rank]``.
        values: the entries, ``float64[entries]``.
        shapes: the shape of each cell, ``int64[rows, rank]``; 0 for a null.
    """

    rows: np.ndarray
    places: np.ndarray
    values: np.ndarray
    shapes: np.ndarray


def as_lists(array: pa.Array, column: str, numbers: Numbers = None) -> pa.Array:
    """Turn vectors into lists of numbers, and matrices into lists of their rows, sparse ones filled up with zeros.

    Args:
        array: the column's cells, of a type that has a `vector_rank`. Slices, and nulls over anything, are fine.
        column: the column's name, for messages.
        numbers: how messages call the cells.

    Returns:
        ``list<double>`` or ``list<list<double>>``, with a null where there is one in the array. Dense vectors, and dense matrices that
        are stored by rows, share Arrow's buffer where all cells are such and no null hides values.

    Raises:
        ShapeError: a cell's storage contradicts itself, or there are more elements than Arrow's 32-bit list offsets can count.
        NullError: there is a null in a cell's list of values or of indices.
    """
    stored = _read(array, column, numbers)
    lengths = [stored.shapes[:, 0]]
    for depth in range(1, stored.shapes.shape[1]):
        _check_countable(lengths[-1], column)
        lengths.append(np.repeat(stored.shapes[:, depth], stored.shapes[:, depth - 1]))
    _check_countable(stored.sizes, column)
    cells = pa.array(_filled(stored))
    for depth, held in reversed(list(enumerate(lengths))):
        offsets = pa.array(np.concatenate([[0], np.cumsum(held)]), type=pa.int32())
        mask = None if depth or stored.valid.all() else pa.array(~stored.valid)
        cells = pa.ListArray.from_arrays(offsets, cells, mask=mask)
    return cells


def as_coordinates(array: pa.Array, column: str, numbers: Numbers = None) -> Coordinates:
    """Turn vectors or matrices into the coordinates and values of their entries.

    Entries are what a sparse cell stores, zeros too, and what a dense cell holds beside zeros (0.0 and -0.0; a NaN is an entry).

    Args:
        array: the column's cells, of a type that has a `vector_rank`. Slices, and nulls over anything, are fine.
        column: the column's name, for messages.
        numbers: how messages call the cells.

    Raises:
        ShapeError: a cell's storage contradicts itself.
        NullError: there is a null in a cell's list of values or of indices.
    """
    stored = _read(array, column, numbers)
    rows, places = _places(stored)
    values = stored.values
    kept = (values != 0) | ~stored.dense[rows]
    if not kept.all():
        rows, places, values = rows[kept], places[kept], values[kept]
    if not _is_ascending(rows, places):
        order = np.lexsort((places, rows))
        rows, places, values = rows[order], places[order], values[order]
    if stored.shapes.shape[1] == 1:
        return Coordinates(rows, places[:, None], values, stored.shapes)
    return Coordinates(rows, np.stack(np.divmod(places, stored.shapes[rows, 1]), axis=1), values, stored.shapes)


def encode_vectors(values: np.ndarray, output: str = "") -> pa.StructArray:
    """Turn an array of shape ``[rows, size]`` into dense vectors that share its memory.

    Args:
        values: the block, of float64.
        output: the output's name, for messages.

    Raises:
        ShapeError: more elements than Arrow's 32-bit list offsets can count.
    """
    return as_vectors(encode_dense(values, pa.list_(pa.float64()), output))


def as_vectors(lists: pa.Array) -> pa.StructArray:
    """Turn ``list<double>``, of any lengths, into dense vectors that share its memory."""
    return _struct(VECTOR, {"type": pa.array(np.full(len(lists), _DENSE, np.int8)), "values": lists}, len(lists))


def encode_matrices(values: np.ndarray, output: str = "") -> pa.StructArray:
    """Turn an array of shape ``[rows, high, wide]`` into dense matrices, stored by columns as Spark's own are.

    Args:
        values: the block, of float64; its memory is shared where its matrices lie in it by columns.
        output: the output's name, for messages.

    Raises:
        ShapeError: more elements than Arrow's 32-bit list offsets can count.
    """
    rows, high, wide = values.shape
    by_columns = values.transpose(0, 2, 1).reshape(rows, high * wide)
    fields = {
        "type": pa.array(np.full(rows, _DENSE, np.int8)),
        "numRows": pa.array(np.full(rows, high, np.int32)),
        "numCols": pa.array(np.full(rows, wide, np.int32)),
        "values": encode_dense(by_columns, pa.list_(pa.float64()), output),
        "isTransposed": pa.array(np.zeros(rows, np.bool_)),
    }
    return _struct(MATRIX, fields, rows)


@dataclass(frozen=True, slots=True)
class _Stored:
    """What a block of cells stores, checked.

    Attributes:
        valid: whether each row is no null, ``bool[rows]``.
        dense: whether each row stores all its elements, ``bool[rows]``; so does a null, which has none.
        by_rows: whether the elements of a dense row are in row-major order, ``bool[rows]``.
        shapes: the shape of each cell, ``int64[rows, rank]``; 0 for a null.
        counts: how many values each row stores, ``int64[rows]``.
        values: the values of all rows, end to end.
        places: for each value of a sparse row its place in the cell, in row-major order.
    """

    valid: np.ndarray
    dense: np.ndarray
    by_rows: np.ndarray
    shapes: np.ndarray
    counts: np.ndarray
    values: np.ndarray
    places: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Count the elements of each cell."""
        sizes: np.ndarray = self.shapes.prod(axis=1)
        return sizes


class _MalformedError(Exception):
    """A cell whose storage contradicts itself: what the column holds, and the row."""


def _read(array: pa.Array, column: str, numbers: Numbers) -> _Stored:
    """Read the storage of cells, or raise naming the first row where it contradicts itself."""
    rank = vector_rank(array.type)
    assert rank is not None
    try:
        return _read_vectors(array, column) if rank == 1 else _read_matrices(array, column)
    except _MalformedError as error:
        held, row = error.args
        raise ShapeError(f"{held} in row {even_rows(1, numbers)(row)[0]} of the block.") from None


def _read_vectors(array: pa.Array, column: str) -> _Stored:
    valid, sparse = _read_kinds(array, column, "vector")
    counts, values = _elements(array, "values", valid, column)
    _check_fields(array, ["size", "indices"], sparse, column, "a sparse vector")
    sizes = np.where(sparse, _numbers(array, "size"), counts)
    _check(sizes < 0, column, lambda row: f"a sparse vector of size {sizes[row]}")
    lengths, indices = _elements(array, "indices", sparse, column)
    _check(sparse & (lengths != counts), column, lambda row: f"a sparse vector with {lengths[row]} indices and {counts[row]} values")
    rows = np.repeat(np.arange(len(array)), lengths)
    outside = (indices < 0) | (indices >= sizes[rows])
    _check(outside, column, lambda entry: f"a sparse vector of size {sizes[rows[entry]]} with index {indices[entry]}", rows)
    _check_distinct(rows, indices, column, lambda index, row: f"a sparse vector with index {index} more than once")
    return _Stored(valid, ~sparse, np.ones(len(array), np.bool_), sizes[:, None], counts, values, indices)


def _read_matrices(array: pa.Array, column: str) -> _Stored:
    valid, sparse = _read_kinds(array, column, "matrix")
    _check_fields(array, ["numRows", "numCols", "isTransposed"], valid, column, "a matrix")
    shapes = np.stack([_numbers(array, "numRows"), _numbers(array, "numCols")], axis=1) * valid[:, None]
    by_rows = _numbers(array, "isTransposed").astype(np.bool_)

    def size(row: int) -> str:
        return "{} × {}".format(*shapes[row])

    _check((shapes < 0).any(axis=1), column, lambda row: f"a matrix of size {size(row)}")
    counts, values = _elements(array, "values", valid, column)
    wrong = ~sparse & (counts != shapes.prod(axis=1))
    _check(wrong, column, lambda row: f"a dense matrix of size {size(row)} with {counts[row]} values")
    _check_fields(array, ["colPtrs", "rowIndices"], sparse, column, "a sparse matrix")
    lines, across = np.where(by_rows[:, None], shapes, shapes[:, ::-1]).T * sparse  # a line is a column, or a row where transposed
    lengths, indices = _elements(array, "rowIndices", sparse, column)
    wrong = sparse & (lengths != counts)
    _check(wrong, column, lambda row: f"a sparse matrix with {lengths[row]} row indices and {counts[row]} values")
    owners, line = _lines_of_entries(array, sparse, lines, lengths, column, size)
    outside = (indices < 0) | (indices >= across[owners])

    def beyond(entry: int) -> str:
        row = owners[entry]
        return f"a sparse matrix of size {size(row)} with {'column' if by_rows[row] else 'row'} index {indices[entry]}"

    def twice(place: int, row: int) -> str:
        index = divmod(place, int(across[row]))
        return f"a sparse matrix with index {index if by_rows[row] else index[::-1]} more than once"

    _check(outside, column, beyond, owners)
    _check_distinct(owners, line * across[owners] + indices, column, twice)
    wide = shapes[owners, 1]
    places = np.where(by_rows[owners], line * wide + indices, indices * wide + line)
    return _Stored(valid, ~sparse, by_rows, shapes, counts, values, places)


def _lines_of_entries(
    array: pa.Array, sparse: np.ndarray, lines: np.ndarray, counts: np.ndarray, column: str, size: Callable[[int], str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return each entry's row of the block, and its line in the matrix: what the pointers say.

    Args:
        array: the column's cells.
        sparse: which of them are sparse.
        lines: how many lines each has.
        counts: how many entries each of them has.
        column: the column's name, for messages.
        size: row → the size of its matrix, for messages.
    """
    lengths, pointers = _elements(array, "colPtrs", sparse, column)
    _check(sparse & (lengths != lines + 1), column, lambda row: f"a sparse matrix of size {size(row)} with {lengths[row]} column pointers")
    rows = np.repeat(np.arange(len(array)), lengths)
    ends = np.cumsum(lengths)[sparse]
    wrong = np.zeros(len(pointers), np.bool_)
    wrong[1:] = (np.diff(pointers) < 0) & (rows[1:] == rows[:-1])
    wrong[ends - lengths[sparse]] |= pointers[ends - lengths[sparse]] != 0
    wrong[ends - 1] |= pointers[ends - 1] != counts[sparse]
    _check(wrong, column, lambda place: f"a sparse matrix whose column pointers do not rise from 0 to {counts[rows[place]]}", rows)
    is_line = np.ones(len(pointers), np.bool_)
    is_line[ends - 1] = False
    owners, per_line = rows[is_line], np.diff(pointers, append=0)[is_line]
    line = np.arange(len(owners)) - np.repeat(np.cumsum(lines) - lines, lines)
    return np.repeat(owners, per_line), np.repeat(line, per_line)


def _read_kinds(array: pa.Array, column: str, cell: str) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows are no nulls, and which of these are sparse."""
    valid: np.ndarray = array.is_valid().to_numpy(zero_copy_only=False)
    _check_fields(array, ["type", "values"], valid, column, f"a {cell}")
    kinds = _numbers(array, "type")
    wrong = valid & (kinds != _SPARSE) & (kinds != _DENSE)
    _check(wrong, column, lambda row: f"a {cell} of type {kinds[row]}, which is neither 0 (sparse) nor 1 (dense),")
    return valid, valid & (kinds == _SPARSE)


def _numbers(array: pa.Array, name: str) -> np.ndarray:
    """Return a field of all rows as integers, 0 where it is null."""
    numbers: np.ndarray = array.field(name).cast(pa.int64()).fill_null(0).to_numpy()
    return numbers


def _elements(array: pa.Array, name: str, kept: np.ndarray, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the length of a field's list in each row, and the elements end to end; of the kept rows only, for others may hold anything."""
    lengths, elements = unwrap_list(array.field(name))
    lengths = np.asarray(lengths, dtype=np.int64)
    if lengths[~kept].any():
        elements = elements.filter(pa.array(np.repeat(kept, lengths)))
    lengths = np.where(kept, lengths, 0)
    ends = np.cumsum(lengths)

    def row_of(element: int) -> tuple[int, int]:
        row = int(np.searchsorted(ends, element, side="right"))
        return row, element - int(ends[row] - lengths[row])

    check_no_nulls(elements, column, row_of, is_cell=False)
    flat: np.ndarray = elements.to_numpy()
    return lengths, flat if flat.dtype == np.float64 else flat.astype(np.int64)


def _filled(stored: _Stored) -> np.ndarray:
    """Return the elements of all cells in row-major order, end to end."""
    counts, values = stored.counts, stored.values
    if (stored.dense & (stored.by_rows | (counts == 0))).all():
        return values
    shapes = stored.shapes[counts > 0]
    if stored.dense.all() and not stored.by_rows[counts > 0].any() and (shapes == shapes[0]).all():  # what most matrices are
        by_rows: np.ndarray = values.reshape(len(shapes), *shapes[0, ::-1]).transpose(0, 2, 1)
        return by_rows.reshape(-1)
    rows, places = _places(stored)
    sizes = stored.sizes
    filled = np.zeros(int(sizes.sum()))
    filled[(np.cumsum(sizes) - sizes)[rows] + places] = values
    return filled


def _places(stored: _Stored) -> tuple[np.ndarray, np.ndarray]:
    """Return each value's row of the block, and its place in the cell in row-major order."""
    counts = stored.counts
    rows = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    by_columns = (stored.dense & ~stored.by_rows)[rows]
    if by_columns.any():
        high, wide = stored.shapes[rows[by_columns]].T
        column, row = np.divmod(places[by_columns], high)
        places[by_columns] = row * wide + column
    places[~stored.dense[rows]] = stored.places
    return rows, places


def _is_ascending(rows: np.ndarray, places: np.ndarray) -> bool:
    """Return whether the places of each row, whose entries are side by side, ascend strictly."""
    return bool(((np.diff(places) > 0) | (rows[1:] != rows[:-1])).all())


def _check_distinct(rows: np.ndarray, places: np.ndarray, column: str, held: Callable[[int, int], str]) -> None:
    """Raise if a row has two entries in one place: whether they would add up or the last would win is told nowhere."""
    if _is_ascending(rows, places):
        return
    order = np.lexsort((places, rows))
    rows, places = rows[order], places[order]
    again = (np.diff(places) == 0) & (rows[1:] == rows[:-1])
    _check(again, column, lambda entry: held(int(places[entry]), int(rows[entry])), rows)


def _check_fields(array: pa.Array, names: Sequence[str], wanted: np.ndarray, column: str, cell: str) -> None:
    """Raise if a field is null in a row where it is wanted."""
    for name in names:
        missing = wanted & array.field(name).is_null().to_numpy(zero_copy_only=False)
        _check(missing, column, lambda row, name=name: f"{cell} without {name}")  # type: ignore[misc]


def _check(wrong: np.ndarray, column: str, held: Callable[[int], str], rows: np.ndarray | None = None) -> None:
    """Raise if anything is wrong.

    Args:
        wrong: for each row, or each entry, whether it is.
        column: the column's name, for the message.
        held: row or entry → what it holds, for the message.
        rows: each entry's row; None: there is one for each row.
    """
    if wrong.any():
        first = int(np.argmax(wrong))
        raise _MalformedError(f"column {column!r} holds {held(first)}", first if rows is None else int(rows[first]))


def _check_countable(lengths: np.ndarray, column: str) -> None:
    total = int(lengths.sum(dtype=np.float64))  # a sum of integers could wrap around
    if total > _MOST_ELEMENTS:
        raise ShapeError(
            f"column {column!r} holds {total} elements in one block, more than an array column's 32-bit offsets can count.",
            hint="Pass a smaller block_rows.",
        )


def _struct(arrow: pa.StructType, fields: dict[str, pa.Array], rows: int) -> pa.StructArray:
    """Put fields together, null where one is not given; lists take the type's spelling and keep their buffers."""
    children = [_respelled(fields[field.name], field.type) if field.name in fields else pa.nulls(rows, field.type) for field in arrow]
    return pa.StructArray.from_arrays(children, fields=list(arrow))


def _respelled(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(array.offsets, array.values, type=arrow) if pa.types.is_list(arrow) else array
