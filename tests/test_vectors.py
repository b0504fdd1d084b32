"""Vectors: what Spark ML stores comes out as its own `toArray` gives it, whatever the layout of its buffers; and how it is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from expectations import Expect, ExpectFail, cases, check, check_refused, check_same
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.ml.linalg import (
    DenseMatrix,
    DenseVector,
    Matrices,
    Matrix,
    MatrixUDT,
    SparseMatrix,
    SparseVector,
    Vector,
    Vectors,
    VectorUDT,
)
from pyspark.sql.pandas.types import to_arrow_type

from tensorframes.blocks.dense import decode_dense
from tensorframes.blocks.scalars import empty_aligned
from tensorframes.blocks.vectors import Coordinates, as_coordinates, as_lists, encode_matrices, encode_vectors
from tensorframes.columns import MATRIX, VECTOR, vector_rank
from tensorframes.errors import NullError, ShapeError
from tensorframes.shapes import Shape

NAN, INF = float("nan"), float("inf")


def stored(cells: list[Any], arrow: pa.DataType) -> pa.Array:
    """Put cells into Arrow as Spark does: objects by their UDT, None and what is no object as they are."""
    udt = VectorUDT() if vector_rank(arrow) == 1 else MatrixUDT()
    rows = [udt.serialize(cell) if isinstance(cell, Vector | Matrix) else cell for cell in cells]
    names = [field.name for field in arrow]
    return pa.array([None if row is None else dict(zip(names, row, strict=True)) for row in rows], arrow)


# --- types ---

LOOSE_VECTOR = pa.struct(
    {"type": pa.int8(), "size": pa.int32(), "indices": pa.large_list(pa.int32()), "values": pa.large_list(pa.float64())}.items()
)
LOOSE_MATRIX = pa.struct(
    {
        **{"type": pa.int8(), "numRows": pa.int32(), "numCols": pa.int32(), "colPtrs": pa.list_(pa.int32())},
        **{"rowIndices": pa.large_list(pa.int32()), "values": pa.large_list(pa.float64()), "isTransposed": pa.bool_()},
    }.items()
)


def without(arrow: pa.DataType, name: str) -> pa.DataType:
    return pa.struct([field for field in arrow if field.name != name])


def retyped(arrow: pa.DataType, name: str, other: pa.DataType) -> pa.DataType:
    return pa.struct([field.with_type(other) if field.name == name else field for field in arrow])


def test_types_are_those_of_spark():
    for arrow, udt in ((VECTOR, VectorUDT()), (MATRIX, MatrixUDT())):
        check_same(arrow, to_arrow_type(udt))
        for held, wanted in zip(arrow, to_arrow_type(udt), strict=True):
            assert held.equals(wanted)


@cases(
    Expect(VECTOR, 1, "vector"),
    Expect(MATRIX, 2, "matrix"),
    Expect(LOOSE_VECTOR, 1, "vector of large lists, all nullable"),
    Expect(LOOSE_MATRIX, 2, "matrix of large lists, all nullable"),
    Expect(without(VECTOR, "size"), None, "a field less"),
    Expect(pa.struct([*VECTOR, pa.field("more", pa.int8())]), None, "a field more"),
    Expect(pa.struct(list(VECTOR)[::-1]), None, "another order"),
    Expect(retyped(VECTOR, "values", pa.list_(pa.float32())), None, "values of another type"),
    Expect(retyped(VECTOR, "indices", pa.int32()), None, "no list"),
    Expect(retyped(MATRIX, "isTransposed", pa.int8()), None, "another type"),
    Expect(pa.struct([]), None, "no field"),
    Expect(pa.list_(pa.float64()), None, "list"),
    Expect(pa.float64(), None, "number"),
)
def test_vectors_and_matrices_are_known_by_their_type(case):
    check(vector_rank, case)


# --- tables ---

TALL = Matrices.dense(3, 2, [1, 2, 3, 4, 5, 6])
WIDE = DenseMatrix(2, 3, [1, 2, 3, 4, 5, 6], isTransposed=True)
CSC = SparseMatrix(3, 2, [0, 1, 3], [2, 0, 1], [7, 8, 9])
CSR = SparseMatrix(2, 3, [0, 2, 3], [0, 2, 1], [7, 8, 9], isTransposed=True)


def lists_of_vectors(cells: list[Any]) -> list[Any]:
    return as_lists(stored(cells, VECTOR), "v").to_pylist()


def lists_of_matrices(cells: list[Any]) -> list[Any]:
    return as_lists(stored(cells, MATRIX), "m").to_pylist()


@cases(
    Expect([], [], "no rows"),
    Expect([None, None], [None, None], "nulls only"),
    Expect([Vectors.dense([1, 2]), Vectors.dense([])], [[1.0, 2.0], []], "dense"),
    Expect([Vectors.dense([1, 2]), None, Vectors.dense([3])], [[1.0, 2.0], None, [3.0]], "dense beside a null"),
    Expect([Vectors.sparse(4, [1, 3], [5, 6])], [[0.0, 5.0, 0.0, 6.0]], "sparse"),
    Expect([Vectors.sparse(0, [], []), Vectors.sparse(2, [], [])], [[], [0.0, 0.0]], "sparse without entries"),
    Expect(
        [None, Vectors.sparse(2, [1], [5]), Vectors.dense([1]), None, Vectors.sparse(1, [0], [6])],
        [None, [0.0, 5.0], [1.0], None, [6.0]],
        "all at once",
    ),
    Expect([(0, 3, [2, 0], [5.0, 6.0])], [[6.0, 0.0, 5.0]], "indices in no order"),
    Expect([(1, 99, [7], [5.0])], [[5.0]], "dense with a size and indices of no meaning"),
)
def test_vectors_as_lists(case):
    check(lists_of_vectors, case)


@cases(
    Expect([], [], "no rows"),
    Expect([None], [None], "nulls only"),
    Expect([TALL, TALL], [[[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]] * 2, "dense by columns, of one shape"),
    Expect([TALL, None, TALL], [[[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]], None, [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]], "beside a null"),
    Expect(
        [TALL, Matrices.dense(2, 2, [1, 2, 3, 4])], [[[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]], [[1.0, 3.0], [2.0, 4.0]]], "of several shapes"
    ),
    Expect([TALL, Matrices.dense(0, 3, [])], [[[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]], []], "beside one without elements"),
    Expect([WIDE, WIDE], [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]] * 2, "dense by rows"),
    Expect([CSC], [[[0.0, 8.0], [0.0, 9.0], [7.0, 0.0]]], "sparse by columns"),
    Expect([CSR], [[[7.0, 0.0, 8.0], [0.0, 9.0, 0.0]]], "sparse by rows"),
    Expect(
        [CSR, WIDE, None, CSC, TALL],
        [
            [[7.0, 0.0, 8.0], [0.0, 9.0, 0.0]],
            [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
            None,
            [[0.0, 8.0], [0.0, 9.0], [7.0, 0.0]],
            [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]],
        ],
        "all at once",
    ),
    Expect([Matrices.dense(0, 3, []), Matrices.dense(2, 0, [])], [[], [[], []]], "dense without elements"),
    Expect([SparseMatrix(2, 0, [0], [], []), SparseMatrix(0, 1, [0, 0], [], [])], [[[], []], []], "sparse without elements"),
    Expect([SparseMatrix(2, 2, [0, 0, 0], [], [])], [[[0.0, 0.0], [0.0, 0.0]]], "sparse without entries"),
    Expect([SparseMatrix(3, 1, [0, 2], [2, 0], [5, 6])], [[[6.0], [0.0], [5.0]]], "indices in no order"),
)
def test_matrices_as_lists(case):
    check(lists_of_matrices, case)


def plain(held: Coordinates) -> tuple[list[Any], ...]:
    assert [part.dtype for part in (held.rows, held.places, held.values, held.shapes)] == [np.int64, np.int64, np.float64, np.int64]
    return held.rows.tolist(), held.places.tolist(), held.values.tolist(), held.shapes.tolist()


def coordinates_of_vectors(cells: list[Any]) -> tuple[list[Any], ...]:
    return plain(as_coordinates(stored(cells, VECTOR), "v"))


def coordinates_of_matrices(cells: list[Any]) -> tuple[list[Any], ...]:
    return plain(as_coordinates(stored(cells, MATRIX), "m"))


@cases(
    Expect([], ([], [], [], []), "no rows"),
    Expect([None], ([], [], [], [[0]]), "nulls only"),
    Expect([Vectors.dense([0, 5, -0.0, 6])], ([0, 0], [[1], [3]], [5.0, 6.0], [[4]]), "dense, whose zeros are dropped"),
    Expect([Vectors.dense([INF, 0, -INF])], ([0, 0], [[0], [2]], [INF, -INF], [[3]]), "dense, whose infinities are kept"),
    Expect([Vectors.sparse(4, [1, 3], [0, 6])], ([0, 0], [[1], [3]], [0.0, 6.0], [[4]]), "sparse, whose zeros are kept"),
    Expect(
        [Vectors.sparse(9, [8], [1]), None, Vectors.dense([2, 0, 3]), Vectors.dense([]), Vectors.sparse(2, [], [])],
        ([0, 2, 2], [[8], [0], [2]], [1.0, 2.0, 3.0], [[9], [0], [3], [0], [2]]),
        "all at once",
    ),
    Expect([(0, 3, [2, 0], [5.0, 6.0])], ([0, 0], [[0], [2]], [6.0, 5.0], [[3]]), "indices in no order"),
    Expect([Vectors.sparse(2**31 - 1, [5], [1])] * 2, ([0, 1], [[5], [5]], [1.0, 1.0], [[2**31 - 1]] * 2), "of any size"),
)
def test_vectors_as_coordinates(case):
    check(coordinates_of_vectors, case)


@cases(
    Expect([], ([], [], [], []), "no rows"),
    Expect([None], ([], [], [], [[0, 0]]), "nulls only"),
    Expect([Matrices.dense(2, 2, [1, 2, 0, 3])], ([0] * 3, [[0, 0], [1, 0], [1, 1]], [1.0, 2.0, 3.0], [[2, 2]]), "dense by columns"),
    Expect([WIDE], ([0] * 6, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [[2, 3]]), "dense by rows"),
    Expect([CSC], ([0] * 3, [[0, 1], [1, 1], [2, 0]], [8.0, 9.0, 7.0], [[3, 2]]), "sparse by columns"),
    Expect([CSR], ([0] * 3, [[0, 0], [0, 2], [1, 1]], [7.0, 8.0, 9.0], [[2, 3]]), "sparse by rows"),
    Expect(
        [None, CSC, Matrices.dense(2, 1, [4, 0]), Matrices.dense(0, 2, []), CSR],
        (
            [1, 1, 1, 2, 4, 4, 4],
            [[0, 1], [1, 1], [2, 0], [0, 0], [0, 0], [0, 2], [1, 1]],
            [8.0, 9.0, 7.0, 4.0, 7.0, 8.0, 9.0],
            [[0, 0], [3, 2], [2, 1], [0, 2], [2, 3]],
        ),
        "all at once",
    ),
    Expect(
        [SparseMatrix(2**31 - 1, 1, [0, 1], [2**31 - 2], [5])] * 3,
        ([0, 1, 2], [[2**31 - 2, 0]] * 3, [5.0] * 3, [[2**31 - 1, 1]] * 3),
        "of any size",
    ),
)
def test_matrices_as_coordinates(case):
    check(coordinates_of_matrices, case)


def test_nan_is_an_entry():
    held = as_coordinates(stored([Vectors.dense([0, NAN]), Vectors.sparse(2, [0], [NAN])], VECTOR), "v")
    assert held.rows.tolist() == [0, 1]
    assert held.places.tolist() == [[1], [0]]
    assert np.isnan(held.values).all()


# --- properties ---


def as_is(array: pa.Array) -> pa.Array:
    return array


def sliced(array: pa.Array) -> pa.Array:
    around = pa.concat_arrays([array, array, array])
    return around.slice(len(array), len(array))


def concatenated(array: pa.Array) -> pa.Array:
    middle = len(array) // 2
    return pa.concat_arrays([array.slice(0, middle), array.slice(0, 0), array.slice(middle)])


WRONG = {1: (0, -1, [9, 9, 9], [5.0]), 2: (0, -1, 7, [9], [9, -9], [5.0], True)}


def nulls_over_anything(array: pa.Array) -> pa.Array:
    """Put a null before and after each cell but the first, over fields that contradict themselves."""
    wrong = WRONG[vector_rank(array.type)]
    around = pa.concat_arrays([stored([wrong, (7, *wrong[1:])], array.type), array])
    around = around.take(pa.array(np.array([[0, row + 2, 1] for row in range(len(array))], np.int64).reshape(-1)))
    absent = around.is_null().to_numpy(zero_copy_only=False) | np.tile([True, False, True], len(array))
    fields = [around.field(field.name) for field in array.type]
    return pa.StructArray.from_arrays(fields, fields=list(array.type), mask=pa.array(absent)).slice(1)


def loose(array: pa.Array) -> pa.Array:
    return array.cast(LOOSE_VECTOR if vector_rank(array.type) == 1 else LOOSE_MATRIX)


LAYOUTS = [as_is, sliced, concatenated, nulls_over_anything, loose]

NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e300, 5e-324, NAN, -NAN, INF])


@st.composite
def vectors(draw: st.DrawFn) -> Vector:
    size = draw(st.integers(0, 5))
    if draw(st.booleans()):
        return DenseVector(draw(st.lists(NUMBERS, min_size=size, max_size=size)))
    indices = sorted(draw(st.sets(st.integers(0, size - 1)))) if size else []
    return SparseVector(size, indices, draw(st.lists(NUMBERS, min_size=len(indices), max_size=len(indices))))


@st.composite
def matrices(draw: st.DrawFn, shape: tuple[int, int] | None = None) -> Matrix:
    high, wide = shape or (draw(st.integers(0, 4)), draw(st.integers(0, 4)))
    is_transposed = draw(st.booleans())
    if draw(st.booleans()):
        return DenseMatrix(high, wide, draw(st.lists(NUMBERS, min_size=high * wide, max_size=high * wide)), is_transposed)
    lines, across = (high, wide) if is_transposed else (wide, high)
    indices = [draw(st.lists(st.integers(0, across - 1), unique=True)) if across else [] for _ in range(lines)]
    pointers = np.concatenate([[0], np.cumsum([len(line) for line in indices])])
    values = draw(st.lists(NUMBERS, min_size=int(pointers[-1]), max_size=int(pointers[-1])))
    return SparseMatrix(high, wide, pointers, [index for line in indices for index in line], values, is_transposed)


def blocks_of(cells: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | cells, max_size=6)


KINDS = {
    "vectors": (blocks_of(vectors()), VECTOR),
    "dense vectors": (blocks_of(vectors().filter(lambda cell: isinstance(cell, DenseVector))), VECTOR),
    "matrices": (blocks_of(matrices()), MATRIX),
    "matrices of one shape": (blocks_of(matrices((2, 3))), MATRIX),
    "dense matrices of one shape": (blocks_of(st.lists(NUMBERS, min_size=6, max_size=6).map(lambda v: DenseMatrix(2, 3, v))), MATRIX),
}
every_kind = pytest.mark.parametrize(("blocks", "arrow"), KINDS.values(), ids=KINDS)
some = settings(max_examples=60, deadline=None)


def laid_out(data: st.DataObject, cells: list[Any], arrow: pa.DataType) -> tuple[pa.Array, list[np.ndarray | None]]:
    """Draw a layout of the cells, and return what Spark says that each of its rows holds."""
    wanted = [None if cell is None else np.ascontiguousarray(cell.toArray()) for cell in cells]
    layout = data.draw(st.sampled_from(LAYOUTS))
    array = layout(stored(cells, arrow))
    array.validate(full=True)
    if layout is nulls_over_anything:
        wanted = [around for cell in wanted for around in (None, cell, None)][1:]
    return array, wanted


def filled(lists: pa.Array, shape: tuple[int, ...]) -> np.ndarray:
    """Turn a list scalar into an array of the shape that its cell has."""
    values = lists.flatten() if len(shape) == 1 else lists.flatten().flatten()
    return values.to_numpy().reshape(shape)


@every_kind
@some
@given(data=st.data())
def test_lists_hold_what_spark_gives_as_arrays(blocks, arrow, data):
    array, wanted = laid_out(data, data.draw(blocks), arrow)
    lists = as_lists(array, "v")
    lists.validate(full=True)
    assert lists.type == (pa.list_(pa.float64()) if vector_rank(arrow) == 1 else pa.list_(pa.list_(pa.float64())))
    assert lists.is_null().to_pylist() == [cell is None for cell in wanted]
    for row, cell in enumerate(wanted):
        if cell is not None:
            assert len(lists[row]) == len(cell)
            check_same(filled(lists.slice(row, 1), cell.shape), cell)


@every_kind
@some
@given(data=st.data())
def test_coordinates_hold_what_spark_gives_as_arrays(blocks, arrow, data):
    cells = data.draw(blocks)
    array, wanted = laid_out(data, cells, arrow)
    held = as_coordinates(array, "v")
    rank = vector_rank(arrow)
    assert held.shapes.tolist() == [[0] * rank if cell is None else list(cell.shape) for cell in wanted]
    assert held.places.shape == (len(held.rows), rank)
    order = [(row, *place) for row, place in zip(held.rows.tolist(), held.places.tolist(), strict=True)]
    assert order == sorted(set(order))
    for row, cell in enumerate(wanted):
        here = held.rows == row
        if cell is None:
            assert not here.any()
        else:
            again = np.zeros(cell.shape)
            again[tuple(held.places[here].T)] = held.values[here]
            np.testing.assert_array_equal(again, cell)  # a dense -0.0 comes back as 0.0
    entries = [len(cell.values) if "Sparse" in type(cell).__name__ else np.count_nonzero(cell.values) for cell in cells if cell is not None]
    assert len(held.rows) == sum(entries)


@some
@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=3),
    st.integers(0, 99),
    st.sampled_from([as_is, lambda v: v[::-1], lambda v: np.asfortranarray(v)]),
)
def test_decode_undoes_encode(shape, seed, layout):
    values = layout(np.random.default_rng(seed).normal(size=shape))
    arrow, udt, encode = (VECTOR, VectorUDT(), encode_vectors) if len(shape) == 2 else (MATRIX, MatrixUDT(), encode_matrices)
    array = encode(values)
    array.validate(full=True)
    assert array.type == arrow
    assert array.null_count == 0
    check_same(decode_dense(as_lists(array, "v"), "v", Shape(shape[1:])), np.ascontiguousarray(values))
    for row, cell in zip(array.to_pylist(), values, strict=True):
        np.testing.assert_array_equal(udt.deserialize(tuple(row.values())).toArray(), cell)
    own = [DenseVector(cell) if len(shape) == 2 else DenseMatrix(*cell.shape, cell.ravel(order="F")) for cell in values]
    assert array.equals(stored(own, arrow))


def test_what_nulls_hide_would_be_refused():
    for rank, arrow in ((1, VECTOR), (2, MATRIX)):
        for cell in (WRONG[rank], (7, *WRONG[rank][1:])):
            with pytest.raises(ShapeError):
                as_lists(stored([cell], arrow), "v")
    hidden = nulls_over_anything(stored([Vectors.dense([1])] * 2, VECTOR))
    assert hidden.field("indices").value_lengths().to_pylist() == [None, 3, 3, None, 3]
    assert as_lists(hidden, "v").to_pylist() == [[1.0], None, None, [1.0], None]


# --- memory ---


def address(lists: pa.Array) -> int:
    """Return where the first value of lists, or of lists of lists, is."""
    values = lists.flatten()
    values = values.flatten() if pa.types.is_list(values.type) else values
    return values.buffers()[1].address + values.offset * 8


@pytest.mark.parametrize("arrow", [VECTOR, LOOSE_VECTOR], ids=["lists", "large lists"])
def test_dense_vectors_are_shared(arrow):
    array = stored([Vectors.dense([1, 2]), Vectors.dense([3]), None, Vectors.dense([4, 5])], arrow)
    begin = array.field("values").values.buffers()[1].address
    assert address(as_lists(array, "v")) == begin
    assert address(as_lists(array.slice(1), "v")) == begin + 2 * 8
    assert address(as_lists(array.slice(3), "v")) == begin + 3 * 8


def test_dense_matrices_that_are_stored_by_rows_are_shared():
    array = stored([WIDE, None, Matrices.dense(0, 2, []), WIDE], MATRIX)
    begin = array.field("values").values.buffers()[1].address
    assert address(as_lists(array, "m")) == begin
    assert address(as_lists(array.slice(3), "m")) == begin + 6 * 8


def test_encoded_values_share_their_memory():
    values = empty_aligned([6, 4], np.dtype("float64"))
    values[...] = np.arange(24).reshape(6, 4)
    assert address(encode_vectors(values).field("values")) == values.ctypes.data
    by_columns = values.reshape(2, 4, 3).transpose(0, 2, 1)
    assert address(encode_matrices(by_columns).field("values")) == values.ctypes.data


# --- refusals ---


def vector(held: str, row: int = 0) -> str:
    return f"column 'v' holds a {held} in row {row} of the block."


def matrix(held: str, row: int = 0) -> str:
    return f"column 'm' holds a {held} in row {row} of the block."


def check_both(case: ExpectFail, convert: list[Callable[[pa.Array, str], Any]], arrow: pa.DataType, column: str) -> None:
    for call in convert:
        check(lambda cells, call=call: call(stored(cells, arrow), column), case)


UNKNOWN = "which is neither 0 (sparse) nor 1 (dense),"
V = Vectors.sparse(3, [1], [5])


@cases(
    ExpectFail([None, V, (0, 3, [0, 5], [1.0, 2.0])], ShapeError, vector("sparse vector of size 3 with index 5", 2), "index too large"),
    ExpectFail([(0, 3, [3], [1.0])], ShapeError, vector("sparse vector of size 3 with index 3"), "index just too large"),
    ExpectFail([V, (0, 3, [-1], [1.0])], ShapeError, vector("sparse vector of size 3 with index -1", 1), "index below 0"),
    ExpectFail([V, (0, 3, [0, 1], [1.0])], ShapeError, vector("sparse vector with 2 indices and 1 values", 1), "fewer values"),
    ExpectFail(
        [(0, 3, [0, 1], [1.0]), (0, 3, [0], [1.0, 2.0])], ShapeError, vector("sparse vector with 2 indices and 1 values"), "sums that fit"
    ),
    ExpectFail([V, (0, 3, [2, 0, 2], [1.0, 2.0, 3.0])], ShapeError, vector("sparse vector with index 2 more than once", 1), "twice"),
    ExpectFail([(0, -3, [], [])], ShapeError, vector("sparse vector of size -3"), "size below 0"),
    ExpectFail([V, (2, 3, [], [])], ShapeError, vector(f"vector of type 2, {UNKNOWN}", 1), "type too large"),
    ExpectFail([None, (-1, 3, [], [])], ShapeError, vector(f"vector of type -1, {UNKNOWN}", 1), "type below 0"),
    ExpectFail([V, (None, 3, [], [])], ShapeError, vector("vector without type", 1), "no type"),
    ExpectFail([V, (1, None, None, None)], ShapeError, vector("vector without values", 1), "no values"),
    ExpectFail([V, (0, None, [], [])], ShapeError, vector("sparse vector without size", 1), "no size"),
    ExpectFail([V, (0, 2, None, [])], ShapeError, vector("sparse vector without indices", 1), "no indices"),
    ExpectFail(
        [None, (1, None, None, [1.0, None])],
        NullError,
        "column 'v' holds 1 null, at element 1 of row 1 of the block, where no null may be; nulls= of tfs.feed says what becomes of them.",
        "null among values",
    ),
    ExpectFail(
        [V, (0, 3, [None], [1.0])],
        NullError,
        "column 'v' holds 1 null, at element 0 of row 1 of the block, where no null may be; nulls= of tfs.feed says what becomes of them.",
        "null among indices",
    ),
)
def test_vectors_that_contradict_themselves(case):
    check_both(case, [as_lists, as_coordinates], LOOSE_VECTOR, "v")


POINTERS = "sparse matrix whose column pointers do not rise from 0 to"


@cases(
    ExpectFail([TALL, (1, 2, 3, None, None, [1.0] * 5, False)], ShapeError, matrix("dense matrix of size 2 × 3 with 5 values", 1), "dense"),
    ExpectFail([(1, -1, -1, None, None, [1.0], False)], ShapeError, matrix("matrix of size -1 × -1"), "size below 0"),
    ExpectFail([None, (0, 2, -1, [], [], [], True)], ShapeError, matrix("matrix of size 2 × -1", 1), "sparse size below 0"),
    ExpectFail([CSC, (3, 1, 1, None, None, [1.0], False)], ShapeError, matrix(f"matrix of type 3, {UNKNOWN}", 1), "type"),
    ExpectFail(
        [CSC, (0, 2, 1, [0, 1], [0, 1], [1.0], False)], ShapeError, matrix("sparse matrix with 2 row indices and 1 values", 1), "fewer"
    ),
    ExpectFail(
        [CSC, (0, 2, 1, [0, 1, 1], [0], [1.0], False)],
        ShapeError,
        matrix("sparse matrix of size 2 × 1 with 3 column pointers", 1),
        "too many pointers",
    ),
    ExpectFail(
        [CSC, (0, 2, 1, [0, 1], [0], [1.0], True)], ShapeError, matrix("sparse matrix of size 2 × 1 with 2 column pointers", 1), "too few"
    ),
    ExpectFail([(0, 2, 0, [], [], [], False)], ShapeError, matrix("sparse matrix of size 2 × 0 with 0 column pointers"), "no pointer"),
    ExpectFail([CSC, (0, 2, 1, [1, 1], [0], [1.0], False)], ShapeError, matrix(f"{POINTERS} 1", 1), "first pointer"),
    ExpectFail([(0, 2, 1, [0, 0], [0], [1.0], False), CSC], ShapeError, matrix(f"{POINTERS} 1"), "last pointer"),
    ExpectFail([CSC, (0, 2, 3, [0, 2, 1, 2], [0, 1], [1.0, 2.0], False)], ShapeError, matrix(f"{POINTERS} 2", 1), "pointers that fall"),
    ExpectFail([(0, 2, 0, [1], [0], [1.0], False)], ShapeError, matrix(f"{POINTERS} 1"), "entries of no column"),
    ExpectFail(
        [CSC, (0, 2, 3, [0, 1, 1, 1], [2], [1.0], False)],
        ShapeError,
        matrix("sparse matrix of size 2 × 3 with row index 2", 1),
        "row too large",
    ),
    ExpectFail(
        [(0, 2, 3, [0, 1, 1, 1], [-1], [1.0], False)], ShapeError, matrix("sparse matrix of size 2 × 3 with row index -1"), "row below 0"
    ),
    ExpectFail(
        [CSR, (0, 2, 3, [0, 1, 1], [3], [1.0], True)],
        ShapeError,
        matrix("sparse matrix of size 2 × 3 with column index 3", 1),
        "column too large",
    ),
    ExpectFail(
        [CSC, (0, 3, 2, [0, 0, 2], [2, 2], [1.0, 2.0], False)],
        ShapeError,
        matrix("sparse matrix with index (2, 1) more than once", 1),
        "twice in a column",
    ),
    ExpectFail(
        [CSR, (0, 2, 3, [0, 0, 3], [2, 0, 2], [1.0, 2.0, 3.0], True)],
        ShapeError,
        matrix("sparse matrix with index (1, 2) more than once", 1),
        "twice in a row",
    ),
    ExpectFail([CSC, (None, 1, 1, None, None, [1.0], False)], ShapeError, matrix("matrix without type", 1), "no type"),
    ExpectFail([CSC, (1, None, 1, None, None, [1.0], False)], ShapeError, matrix("matrix without numRows", 1), "no rows"),
    ExpectFail([CSC, (1, 1, None, None, None, [1.0], False)], ShapeError, matrix("matrix without numCols", 1), "no columns"),
    ExpectFail([CSC, (1, 1, 1, None, None, [1.0], None)], ShapeError, matrix("matrix without isTransposed", 1), "no order"),
    ExpectFail([CSC, (1, 0, 1, None, None, None, False)], ShapeError, matrix("matrix without values", 1), "no values"),
    ExpectFail([CSC, (0, 1, 1, None, [], [], False)], ShapeError, matrix("sparse matrix without colPtrs", 1), "no pointers"),
    ExpectFail([CSC, (0, 1, 1, [0, 0], None, [], False)], ShapeError, matrix("sparse matrix without rowIndices", 1), "no row indices"),
)
def test_matrices_that_contradict_themselves(case):
    check_both(case, [as_lists, as_coordinates], LOOSE_MATRIX, "m")


def test_rows_are_counted_from_the_slice():
    array = stored([V, V, (0, 3, [7], [1.0])], VECTOR).slice(1)
    check_refused(lambda: as_lists(array, "v"), ShapeError, vector("sparse vector of size 3 with index 7", 1))


def too_many(what: str, count: int) -> str:
    return f"{what} {count} elements in one block, more than an array column's 32-bit offsets can count.\n  Pass a smaller block_rows."


MOST = 2**31 - 1


@cases(
    ExpectFail(([Vectors.sparse(MOST, [], [])] * 2, VECTOR), ShapeError, too_many("column 'v' holds", 2 * MOST), "vectors"),
    ExpectFail(([SparseMatrix(MOST, 1, [0, 0], [], [])] * 2, MATRIX), ShapeError, too_many("column 'm' holds", 2 * MOST), "rows"),
    ExpectFail(([SparseMatrix(2, MOST, [0] * 3, [], [], True)], MATRIX), ShapeError, too_many("column 'm' holds", 2 * MOST), "elements"),
)
def test_more_elements_than_offsets_can_count_are_refused(case):
    check(lambda given: as_lists(stored(*given), "v" if given[1] is VECTOR else "m"), case)


def test_more_elements_than_offsets_can_count_are_not_encoded():
    values = np.broadcast_to(np.float64(0), [2**20, 2**11])  # takes no memory
    check_refused(lambda: encode_vectors(values, "z"), ShapeError, too_many("output 'z' has", 2**31))
    values = np.broadcast_to(np.float64(0), [2**20, 2**11, 1]).transpose(0, 2, 1)
    check_refused(lambda: encode_matrices(values, "z"), ShapeError, too_many("output 'z' has", 2**31))
