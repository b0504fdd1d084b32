"""The block converter: what goes in comes out, whatever the layout of its buffers; and how it refuses."""

import datetime
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from expectations import Expect, ExpectFail, cases, check, check_refused, check_same
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorframes.blocks import rebatch as rebatch_room
from tensorframes.blocks.cells import Cells, decode_cells, encode_cells
from tensorframes.blocks.dense import decode_dense, encode_dense, scan_shapes
from tensorframes.blocks.rebatch import rebatch
from tensorframes.blocks.scalars import ALIGNMENT, align, cast_values, empty_aligned, even_rows
from tensorframes.columns import list_type, split_lists
from tensorframes.dtypes import BY_NAME
from tensorframes.errors import DTypeError, NullError, ShapeError
from tensorframes.feeds import ColumnInput
from tensorframes.shapes import Shape

few = settings(max_examples=12, deadline=None)

LEAVES = {name: scalar.arrow for name, scalar in BY_NAME.items() if scalar.arrow is not None}
LEAVES |= {"binary": pa.binary(), "large_binary": pa.large_binary(), "large_string": pa.large_string(), "fixed": pa.binary(3)}
LEAVES |= {"string_view": pa.string_view(), "binary_view": pa.binary_view()}
TEXTS = ["", "a", "zwölf", "日本", "\0", "end\0\0", "𝄞" * 5]


def random_values(leaf: pa.DataType, shape: list[int], seed: int) -> np.ndarray:
    """Draw values of all bit patterns, NaNs with payloads too."""
    rng = np.random.default_rng(seed)
    size = math.prod(shape)
    if pa.types.is_boolean(leaf):
        return rng.integers(0, 2, size).astype(bool).reshape(shape)
    if pa.types.is_fixed_size_binary(leaf):
        return as_objects([rng.bytes(leaf.byte_width) for _ in range(size)], shape)
    if "binary" in str(leaf):
        return as_objects([rng.bytes(int(rng.integers(0, 20))) for _ in range(size)], shape)
    if "string" in str(leaf):
        return as_objects([TEXTS[i].encode() for i in rng.integers(0, len(TEXTS), size)], shape)
    dtype = leaf.to_pandas_dtype()
    return np.frombuffer(rng.bytes(size * np.dtype(dtype).itemsize), dtype).reshape(shape)


def cells_of(shape: Shape, cast: str | None = None) -> ColumnInput:
    """Ask for the cells of a column ``y`` for an input ``x``."""
    return ColumnInput("x", "y", 0, shape, cast)


def as_objects(cells: list[bytes], shape: list[int]) -> np.ndarray:
    values = np.empty(len(cells), object)
    values[:] = cells
    return values.reshape(shape)


# --- layouts: other buffers for the same cells ---


def as_is(array: pa.Array) -> pa.Array:
    return array


def sliced(array: pa.Array) -> pa.Array:
    around = pa.concat_arrays([array, array, array])
    return around.slice(len(array), len(array))


def concatenated(array: pa.Array) -> pa.Array:
    middle = len(array) // 2
    return pa.concat_arrays([array.slice(0, middle), array.slice(0, 0), array.slice(middle)])


def unaligned(array: pa.Array) -> pa.Array:
    """Move each buffer to an address that is a multiple of 8 and of no more, as Spark's are."""
    if isinstance(array, pa.FixedShapeTensorArray):
        return pa.ExtensionArray.from_storage(array.type, unaligned(array.storage))
    if "view" in str(array.type):
        return array  # a view's buffers are its cells' own
    nested = isinstance(array, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray)
    buffers = [None if buffer is None else moved(buffer) for buffer in array.buffers()[: array.type.num_buffers]]
    children = [unaligned(array.values)] if nested else None
    return pa.Array.from_buffers(array.type, len(array), buffers, offset=array.offset, children=children)


def moved(buffer: pa.Buffer) -> pa.Buffer:
    space = np.empty(buffer.size + 2 * ALIGNMENT, np.uint8)
    start = (8 - space.ctypes.data) % ALIGNMENT
    space[start : start + buffer.size] = np.frombuffer(buffer, np.uint8)
    return pa.py_buffer(space).slice(start, buffer.size)


def unaligned_slice(array: pa.Array) -> pa.Array:
    return unaligned(sliced(array))


LAYOUTS = [as_is, sliced, concatenated, unaligned, unaligned_slice]


def list_kinds(rank: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(["list", "large", "fixed"]), min_size=rank, max_size=rank)


def nested_type(leaf: pa.DataType, dims: list[int], kinds: list[str]) -> pa.DataType:
    for size, kind in zip(reversed(dims), reversed(kinds), strict=True):
        leaf = {"list": pa.list_(leaf), "large": pa.large_list(leaf), "fixed": pa.list_(leaf, size)}[kind]
    return leaf


@pytest.mark.parametrize("rank", range(5))
@pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES)
@few
@given(data=st.data())
def test_decode_undoes_encode(leaf, rank, data):
    dims = data.draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank))
    kinds = data.draw(list_kinds(rank))
    kinds = [kind if size else "list" for kind, size in zip(kinds, dims, strict=True)]  # Arrow casts to no list of size 0
    values = random_values(leaf, [data.draw(st.integers(0, 5)), *dims], data.draw(st.integers(0, 2**32)))
    array = data.draw(st.sampled_from(LAYOUTS))(encode_dense(values, nested_type(leaf, dims, kinds), "y"))
    array.validate(full=True)
    assert array.type == nested_type(leaf, dims, kinds)
    shape = split_lists(array.type)[1]
    decoded = decode_dense(array, "y", shape)
    if len(values) and 0 not in dims:
        check_same(decoded, values)
    else:  # without a list there is no length to be known
        check_same(decoded.reshape(-1), values.reshape(-1))
        assert len(decoded) == len(values)
    check_same(decode_dense(array, "y", Shape(dims)), values)
    assert decoded.dtype == object or decoded.ctypes.data % ALIGNMENT == 0


@pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES)
@few
@given(data=st.data())
def test_cells_of_their_own_shapes_come_back(leaf, data):
    rank = data.draw(st.integers(1, 3))
    shapes = data.draw(st.lists(st.lists(st.integers(0, 3), min_size=rank, max_size=rank), min_size=1, max_size=6))
    seed = data.draw(st.integers(0, 2**32))
    cells = [random_values(leaf, shape, seed + i) for i, shape in enumerate(shapes)]
    array = encode_cells(cells).cast(list_type(leaf, rank))
    held, _ = decode_cells(data.draw(st.sampled_from(LAYOUTS))(array), cells_of(Shape([None] * rank)))
    for row, cell in enumerate(cells):
        taken = held.take(np.array([row]))
        check_same(taken.reshape(-1), cell.reshape(-1))
        assert taken.shape[1:] == tuple(held.shapes[row])
        assert 0 in cell.shape or taken.shape[1:] == cell.shape
        assert taken.dtype == object or taken.ctypes.data % ALIGNMENT == 0


@few
@given(data=st.data())
def test_a_dense_block_is_cells_of_one_shape(data):
    dims = data.draw(st.lists(st.integers(1, 3), max_size=4))
    values = random_values(pa.int64(), [data.draw(st.integers(1, 5)), *dims], data.draw(st.integers(0, 99)))
    array = data.draw(st.sampled_from(LAYOUTS))(encode_dense(values, list_type(pa.int64(), len(dims)), "y"))
    cells, _ = decode_cells(array, cells_of(Shape([None] * len(dims))))
    rows = np.array(data.draw(st.permutations(range(len(values)))))
    check_same(cells.take(rows), np.ascontiguousarray(values[rows]))
    assert encode_cells(list(values)).cast(array.type).equals(array)


# --- other types that hold the same ---


def tensors(values: np.ndarray, permutation: list[int] | None = None) -> pa.Array:
    """Make a fixed-shape tensor array whose cells are those of `values`, laid out in memory as the permutation says."""
    order = permutation or list(range(values.ndim - 1))
    inverse = np.argsort(order)
    stored = values.transpose(0, *(1 + inverse))
    leaf = pa.array(np.ascontiguousarray(stored).reshape(-1))
    shape = list(stored.shape[1:])
    kind = pa.fixed_shape_tensor(leaf.type, shape, permutation=permutation)
    storage = pa.Array.from_buffers(kind.storage_type, len(values), [None], children=[leaf])
    return pa.ExtensionArray.from_storage(kind, storage)


@pytest.mark.parametrize("layout", [as_is, sliced, unaligned, unaligned_slice])
@pytest.mark.parametrize("leaf", ["bool", "int8", "float16", "float64", "string"])
@pytest.mark.parametrize("permutation", [None, [0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]])
def test_fixed_shape_tensors_are_decoded_in_their_logical_order(permutation, leaf, layout):
    values = random_values(LEAVES[leaf], [4, 2, 3, 5], seed=7)
    if leaf == "string":
        values = np.array([cell.decode() for cell in values.ravel()], object).reshape(values.shape)
    array = layout(tensors(values, permutation))
    assert split_lists(array.type)[1] == (2, 3, 5)
    wanted = np.array([cell.encode() for cell in values.ravel()], object).reshape(values.shape) if leaf == "string" else values
    check_same(decode_dense(array, "y", Shape([2, 3, 5])), wanted)
    if leaf in ("int8", "float64") and permutation in (None, [0, 1, 2], [2, 1, 0]):  # the rest Arrow itself takes for its inverse
        check_same(np.ascontiguousarray(array.to_numpy_ndarray()), values)


@pytest.mark.parametrize("shape", [[0], [2, 0]])
def test_fixed_shape_tensors_without_elements_keep_their_shape(shape):
    array = tensors(np.zeros([3, *shape]))
    assert decode_dense(array, "y", Shape(shape)).shape == (3, *shape)


def test_a_fixed_shape_tensor_is_shared():
    array = tensors(align(np.arange(64.0)).reshape(8, 2, 4))
    assert decode_dense(array, "y", Shape([2, 4])).ctypes.data == array.storage.values.buffers()[1].address


MICROSECONDS = [0, -1, 1_700_000_000_123_456]
SAME = {
    "dictionary": (pa.array(["b", "a", "b"]).dictionary_encode(), [b"b", b"a", b"b"]),
    "sliced dictionary": (pa.array(["x", "b", "a", "b"]).dictionary_encode().slice(1), [b"b", b"a", b"b"]),
    "dictionary of numbers": (pa.array([7, 5, 7]).dictionary_encode(), [7, 5, 7]),
    "dictionary in a list": (
        pa.ListArray.from_arrays([0, 1, 3], pa.array(["b", "a", "b"]).dictionary_encode()).slice(1),
        [[b"a", b"b"]],
    ),
    "unneeded null in a dictionary": (
        pa.DictionaryArray.from_arrays(pa.array([2, 0], pa.int8()), pa.array(["a", None, "b"])),
        [b"b", b"a"],
    ),
    "date": (pa.array([datetime.date(1970, 1, 2), datetime.date(1969, 12, 31)]), [1, -1]),
    "seconds": (pa.array([5, -1], pa.timestamp("s")), [5_000_000, -1_000_000]),
    "milliseconds": (pa.array([5, -1], pa.timestamp("ms")), [5000, -1000]),
    "microseconds": (pa.array(MICROSECONDS, pa.timestamp("us")), MICROSECONDS),
    "nanoseconds": (pa.array([5000, -1000], pa.timestamp("ns")), [5, -1]),
    "instants": (pa.array(MICROSECONDS, pa.timestamp("us", "Europe/Berlin")), MICROSECONDS),
    "fixed-size binary": (pa.array([b"ab\0", b"\0\0\0"], pa.binary(3)), [b"ab\0", b"\0\0\0"]),
    "long binary": (pa.array([bytes(range(256)) * 12]), [bytes(range(256)) * 12]),
}


@pytest.mark.parametrize(("array", "cells"), SAME.values(), ids=SAME)
def test_types_without_a_tensor_of_their_own_become_what_the_table_says(array, cells):
    decoded = decode_dense(array, "y", split_lists(array.type)[1])
    assert decoded.tolist() == cells
    wanted = np.int32 if pa.types.is_date32(array.type) else np.asarray(cells, object if decoded.dtype == object else None).dtype
    assert decoded.dtype == wanted


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")], ids=str)
def test_dates_and_times_are_encoded_from_their_numbers(kind):
    values = np.array([0, -1, 20_000], np.int32 if pa.types.is_date32(kind) else np.int64)
    array = encode_dense(values, kind, "y")
    assert array.type == kind
    check_same(decode_dense(array, "y", Shape()), values)


# --- memory ---


@pytest.mark.parametrize("dims", [[], [3], [2, 3]], ids=str)
@pytest.mark.parametrize("leaf", ["int8", "int32", "float64"])
def test_aligned_memory_is_shared_both_ways_and_other_memory_is_copied_once(leaf, dims):
    values = empty_aligned([128, *dims], BY_NAME[leaf].numpy)
    values[...] = np.arange(values.size).reshape(values.shape) % 100
    array = encode_dense(values, list_type(LEAVES[leaf], len(dims)), "y")
    for cells in (array, array.slice(64)):
        decoded = decode_dense(cells, "y", Shape([None] * len(dims)))
        assert decoded.ctypes.data == values[cells.offset :].ctypes.data
    for cells in (array.slice(1), unaligned(array)):
        decoded = decode_dense(cells, "y", Shape(dims))
        assert decoded.ctypes.data % ALIGNMENT == 0
        assert not np.shares_memory(decoded, values)
        check_same(decoded, values[cells.offset :])


def test_align_copies_only_what_is_not_aligned():
    values = empty_aligned([9], np.dtype("float64"))
    values[:] = range(9)
    assert align(values) is values
    assert align(values[1:]).ctypes.data % ALIGNMENT == 0
    check_same(align(values[1:]), np.arange(1.0, 9.0))


@pytest.mark.parametrize("shape", [[], [0], [3, 0], [5], [2, 3]], ids=str)
@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float64", "complex128"])
def test_empty_aligned_has_the_shape(dtype, shape):
    values = empty_aligned(shape, np.dtype(dtype))
    assert (values.dtype, values.shape) == (np.dtype(dtype), tuple(shape))
    assert values.ctypes.data % ALIGNMENT == 0
    assert values.flags.writeable


# --- nulls ---

HIDDEN = pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), pa.array([1, None, 3, 4]), mask=pa.array([True, False]))
HIDDEN_LARGE = pa.LargeListArray.from_arrays(pa.array([0, 2, 4], pa.int64()), pa.array([1, 2, 3, 4]), mask=pa.array([False, True]))


def decode_both(array: pa.Array) -> Any:
    """Decode as a block and as cells, which must agree."""
    shape = split_lists(array.type)[1]
    try:
        block = decode_dense(array, "y", shape).tolist()
    except (NullError, DTypeError) as error:
        check_refused(lambda: decode_cells(array, cells_of(shape)), type(error), str(error))
        raise
    cells, _ = decode_cells(array, cells_of(shape))
    assert cells.take(np.arange(len(array))).tolist() == block
    return block


def null(where: str, held: str = "1 null, at") -> str:
    return f"column 'y' holds {held} {where} of the block, where no null may be; nulls= of tfs.feed says what becomes of them."


ONE_NULL_TENSOR = pa.ExtensionArray.from_storage(
    pa.fixed_shape_tensor(pa.int32(), [2, 1]), pa.array([[1, 2], [3, 4], [5, None]], pa.list_(pa.int32(), 2))
)


@cases(
    ExpectFail(pa.array([1, None]), NullError, null("row 1"), "scalar"),
    ExpectFail(pa.array([1.0, None, float("nan"), None]), NullError, null("row 1", "2 nulls, the first at"), "several"),
    ExpectFail(pa.array([True, None]), NullError, null("row 1"), "boolean"),
    ExpectFail(pa.array(["a", None]), NullError, null("row 1"), "string"),
    ExpectFail(pa.array([5, 6, 1, None]).slice(2), NullError, null("row 1"), "sliced"),
    Expect(pa.array([None, 1, 2, None]).slice(1, 2), [1, 2], "outside the slice"),
    ExpectFail(pa.array(["a", None]).dictionary_encode(), NullError, null("row 1"), "dictionary"),
    ExpectFail(
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([5, None])), NullError, null("row 1"), "in the dictionary"
    ),
    ExpectFail(
        pa.ListArray.from_arrays([0, 1, 2], pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", None]))),
        NullError,
        null("element 0 of row 1"),
        "in the dictionary of a list",
    ),
    ExpectFail(pa.array([[1.0, None]]), NullError, null("element 1 of row 0"), "element"),
    ExpectFail(pa.array([[1, 2], [3, None], [None, 4]]), NullError, null("element 1 of row 1", "2 nulls, the first at"), "elements"),
    ExpectFail(pa.array([[1, 3], None]), NullError, null("row 1"), "list"),
    ExpectFail(pa.array([None, [1, 3]]), NullError, null("row 0"), "first list"),
    ExpectFail(pa.array([[[1], [2]], [[3], None]]), NullError, null("element 1 of row 1"), "inner list"),
    ExpectFail(pa.array([[[1], [2]], [[3], [None]]]), NullError, null("element 1 of row 1"), "element of an inner list"),
    ExpectFail(pa.array([[1, 3], None], pa.list_(pa.int64(), 2)), NullError, null("row 1"), "fixed-size list"),
    ExpectFail(HIDDEN, NullError, null("row 0"), "null list over children"),
    ExpectFail(HIDDEN_LARGE, NullError, null("row 1"), "null large list over children"),
    Expect(HIDDEN.slice(1), [[3, 4]], "beside a null list over a null child"),
    Expect(HIDDEN_LARGE.slice(0, 1), [[1, 2]], "before a null large list over children"),
    ExpectFail(ONE_NULL_TENSOR, NullError, null("element 1 of row 2"), "element of a fixed-shape tensor"),
    Expect(ONE_NULL_TENSOR.slice(0, 2), [[[1], [2]], [[3], [4]]], "before the null of a fixed-shape tensor"),
    ExpectFail(
        pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.bool_(), [1]), pa.array([None, [True]], pa.list_(pa.bool_(), 1))),
        NullError,
        null("row 0"),
        "fixed-shape tensor",
    ),
)
def test_nulls(case):
    check(decode_both, case)


def test_analysis_passes_over_nulls_and_what_they_hide():
    assert scan_shapes(pa.array([[1, 2], None, [3]]), 1) == [(1, 2)]
    assert scan_shapes(HIDDEN, 1) == [(2, 2)]
    hidden = pa.ListArray.from_arrays(pa.array([0, 3, 5], pa.int32()), pa.array([[1]] * 3 + [[2, 3]] * 2), mask=pa.array([True, False]))
    assert scan_shapes(hidden, 2) == [(2, 2), (2, 2)]
    assert scan_shapes(pa.array([None, None], pa.list_(pa.list_(pa.int8()))), 2) == [None, None]
    assert scan_shapes(pa.array([[], []], pa.list_(pa.list_(pa.int8()))), 2) == [(0, 0), None]
    assert scan_shapes(pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), 1) == [(2, 2)]


# --- shapes ---


def ragged(level: int, first: int, row: int, held: int) -> str:
    elements = f"row 0 of the block holds {first} elements and row {row} holds {held}"
    return f"column 'y' is no dense block: at level {level}, {elements}; tfs.feed has ragged= and pad= for such."


@cases(
    ExpectFail(([[1.0, 2.0], [3.0]], [None]), ShapeError, ragged(1, 2, 1, 1), "lengths"),
    ExpectFail(([[], [3]], [None]), ShapeError, ragged(1, 0, 1, 1), "an empty first"),
    ExpectFail(([[[1], [2]], [[3], [4, 5]]], [None, None]), ShapeError, ragged(2, 1, 1, 2), "inner lengths"),
    ExpectFail(([[[1], [2, 3]]], [None, None]), ShapeError, ragged(2, 1, 0, 2), "inner lengths of one row"),
    ExpectFail(
        ([[1, 2], [3, 4]], [3]), ShapeError, "column 'y' wants 3 elements at level 1 but row 0 of the block holds 2.", "known length"
    ),
    ExpectFail(
        ([[[1], [2]], [[3], [4, 5]]], [2, 1]),
        ShapeError,
        "column 'y' wants 1 elements at level 2 but row 1 of the block holds 2.",
        "known inner length",
    ),
    Expect(([[], []], [None]), (2, 0), "empty lists"),
    Expect(([], [None, 3]), (0, 0, 3), "no rows"),
    Expect(([[], []], [None, None]), (2, 0, 0), "empty lists of lists"),
)
def test_shapes_of_dense_blocks(case):
    def shape(given: tuple[list[Any], list[int | None]]) -> tuple[int, ...]:
        cells, known = given
        return decode_dense(pa.array(cells, list_type(pa.int64(), len(known))), "y", Shape(known)).shape

    check(shape, case)


def test_a_fixed_size_list_is_held_to_the_known_length():
    array = pa.array([[1, 2]], pa.list_(pa.int64(), 2))
    message = "column 'y' wants 3 elements at level 1 but row 0 of the block holds 2."
    check_refused(lambda: decode_dense(array, "y", Shape([3])), ShapeError, message)
    check_refused(lambda: decode_cells(array, cells_of(Shape([3]))), ShapeError, message)


@cases(
    Expect(([[1, 2], [3], []], [None]), [[2], [1], [0]], "lists"),
    Expect(([[[1, 2]], [], [[3], [4]]], [None, None]), [[1, 2], [0, 0], [2, 1]], "lists of lists"),
    ExpectFail(
        ([[[1]], [[1, 2], [3]]], [None, None]),
        ShapeError,
        "column 'y' wants rectangular cells, but row 1 of the block holds lists of lengths 1 and 2 at level 2.",
        "not rectangular",
    ),
    ExpectFail(
        ([[1, 2], [3]], [2]), ShapeError, "column 'y' wants 2 elements at level 1 but row 1 of the block holds 1.", "not the known length"
    ),
)
def test_shapes_of_cells(case):
    def shapes(given: tuple[list[Any], list[int | None]]) -> list[list[int]]:
        cells, known = given
        return decode_cells(pa.array(cells, list_type(pa.int64(), len(known))), cells_of(Shape(known)))[0].shapes.tolist()

    check(shapes, case)


def test_cells_of_several_ranks_are_refused():
    check_refused(lambda: encode_cells([np.zeros(1), np.zeros([1, 1])]), ShapeError, "cells have ranks [1, 2], but one is wanted.")


def test_missing_cells_are_nulls():
    array = encode_cells([None, np.array([[1, 2]]), None, np.zeros([0, 2], np.int64)])
    assert array.to_pylist() == [None, [[1, 2]], None, []]


def test_a_null_among_cells_of_several_lengths_is_named_by_its_own_row():
    array = pa.array([[], [1, 2, 3], [4, None]])
    check_refused(lambda: decode_cells(array, cells_of(Shape([None]))), NullError, null("element 1 of row 2"))
    array = pa.array([[[1], [2]], [], [[3], None]])
    check_refused(lambda: decode_cells(array, cells_of(Shape([None, None]))), NullError, null("element 1 of row 2"))


def test_more_elements_than_offsets_can_count_are_refused():
    values = np.broadcast_to(np.int8(0), [2**20, 2**11])  # takes no memory
    check_refused(
        lambda: encode_dense(values, pa.list_(pa.int8()), "z"),
        ShapeError,
        "output 'z' has 2147483648 elements in one block, more than an array column's 32-bit offsets can count.\n"
        "  Pass a smaller block_rows.",
    )


# --- values ---


def cast(given: tuple[Any, str]) -> list[Any]:
    values = np.array(given[0])
    cast = cast_values(values, given[1], "x", "y", even_rows(math.prod(values.shape[1:])))
    assert cast.dtype == given[1]
    assert cast.ctypes.data % ALIGNMENT == 0
    return cast.tolist()


@cases(
    Expect(([1, 2], "float64"), [1.0, 2.0], "int to float"),
    Expect(([True, False], "float32"), [1.0, 0.0], "bool to float"),
    Expect(([1.5, float("inf"), -float("inf")], "float32"), [1.5, float("inf"), -float("inf")], "infinities stay"),
    Expect(([[1], [2]], "float16"), [[1.0], [2.0]], "shape stays"),
    Expect(([], "float32"), [], "nothing"),
    ExpectFail(
        ([1.0, -1e300, 1e300], "float32"),
        DTypeError,
        "input 'x' wants float32 but column 'y' holds -1e+300 in row 1 of the block, which float32 cannot hold.",
        "too large",
    ),
    ExpectFail(
        ([[1.0, 2.0], [3.0, 1e39]], "float32"),
        DTypeError,
        "input 'x' wants float32 but column 'y' holds 1e+39 in row 1 of the block, which float32 cannot hold.",
        "too large, in a list",
    ),
    ExpectFail(
        ([1, 100_000], "float16"),
        DTypeError,
        "input 'x' wants float16 but column 'y' holds 100000 in row 1 of the block, which float16 cannot hold.",
        "too large an int",
    ),
)
def test_casts(case):
    check(cast, case)


def test_nan_stays_nan_in_a_cast():
    assert np.isnan(cast_values(np.array([np.nan]), "float32", "x", "y", even_rows(1))).all()


def test_cells_are_cast_too():
    cells, _ = decode_cells(pa.array([[1], [2, 3]]), cells_of(Shape([None]), "float32"))
    check_same(cells.values, np.array([1, 2, 3], np.float32))
    message = "input 'x' wants float32 but column 'y' holds 1e+39 in row 1 of the block, which float32 cannot hold."
    check_refused(lambda: decode_cells(pa.array([[1.0], [2.0, 1e39]]), cells_of(Shape([None]), "float32")), DTypeError, message)


def lost_time(held: str, row: int, what: str) -> str:
    return f"column 'y' holds {held} in row {row} of the block, which {what}."


@cases(
    ExpectFail(
        pa.array([1000, 2001], pa.timestamp("ns")),
        DTypeError,
        lost_time("1970-01-01 00:00:00.000002001", 1, "is no whole number of microseconds"),
        "nanoseconds",
    ),
    ExpectFail(
        pa.array([[1000, 2000], [3000, 1]], pa.list_(pa.timestamp("ns", "UTC"))),
        DTypeError,
        lost_time("1970-01-01 00:00:00.000000001Z", 1, "is no whole number of microseconds"),
        "nanoseconds in a list",
    ),
    ExpectFail(
        pa.array([1, 2**62], pa.timestamp("s")),
        DTypeError,
        lost_time("4611686018427387904 s since 1970", 1, "lies beyond 64-bit microseconds"),
        "seconds",
    ),
    ExpectFail(pa.array([1, None, 1], pa.timestamp("ns")), NullError, null("row 1"), "null before the rest"),
)
def test_timestamps_that_are_no_whole_microseconds(case):
    check(decode_both, case)


def encode_text(given: tuple[Any, pa.DataType]) -> list[Any]:
    return encode_dense(np.array(given[0], object), given[1], "z").to_pylist()


def not_utf8(row: int) -> str:
    return (
        f"output 'z' is a string column, but row {row} of the block holds bytes that are not UTF-8.\n"
        "  Keep the bytes with tfs.program(…, binary=('z',))."
    )


@cases(
    Expect(([b"a", "é".encode()], pa.string()), ["a", "é"], "text"),
    Expect(([[b"a"], [b"b\0"]], pa.list_(pa.string())), [["a"], ["b\0"]], "text in lists"),
    Expect(([b"\xff\0"], pa.binary()), [b"\xff\0"], "bytes"),
    ExpectFail(([b"a", b"\xff"], pa.string()), DTypeError, not_utf8(1), "no text"),
    ExpectFail(([[b"a", b"b"], [b"c", b"\xc3"]], pa.list_(pa.large_string())), DTypeError, not_utf8(1), "no text in a list"),
)
def test_text(case):
    check(encode_text, case)


# --- rebatch ---


def batches_of(sizes: list[int]) -> list[pa.RecordBatch]:
    values = np.arange(sum(sizes))
    ends = np.cumsum(sizes)
    return [pa.record_batch({"x": values[end - size : end]}) for end, size in zip(ends, sizes, strict=True)]


def rows_of(blocks: list[pa.RecordBatch]) -> list[int]:
    return [row for block in blocks for row in block.column(0).to_pylist()]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 12))
def test_any_split_gives_the_same_rows_in_blocks_of_just_that_size(sizes, block_rows):
    blocks = list(rebatch(iter(batches_of(sizes)), block_rows))
    assert rows_of(blocks) == list(range(sum(sizes)))
    full, rest = divmod(sum(sizes), block_rows)
    assert [block.num_rows for block in blocks] == [block_rows] * full + [rest] * (rest > 0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 300), max_size=5), st.integers(1, 3000))
def test_without_a_wish_batches_are_only_cut(sizes, nbytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rebatch_room, "BLOCK_BYTES", nbytes)
        batches = batches_of(sizes)
        blocks = list(rebatch(batches))
    assert rows_of(blocks) == list(range(sum(sizes)))
    most = max(nbytes // 8 // 64 * 64, 64)
    wanted = [min(most, size - start) for size in sizes for start in range(0, size, most)]
    assert [block.num_rows for block in blocks] == wanted


def test_blocks_share_the_memory_of_their_batches_and_stay_aligned(monkeypatch):
    monkeypatch.setattr(rebatch_room, "BLOCK_BYTES", 1000)
    values = empty_aligned([500], np.dtype("float64"))
    batch = pa.record_batch({"x": values})
    blocks = list(rebatch([batch]))
    assert len(blocks) > 1
    for block in blocks:
        assert np.shares_memory(decode_dense(block.column(0), "x", Shape()), values)
    (whole,) = rebatch([batch.slice(0, 64)])
    assert np.shares_memory(whole.column(0).to_numpy(), values)
    for block in rebatch([batch], 100):
        assert np.shares_memory(block.column(0).to_numpy(), values)


def test_batches_are_read_one_at_a_time():
    taken = []

    def read():
        for batch in batches_of([4, 4, 4]):
            taken.append(batch)
            yield batch

    for block_rows in (None, 2, 4):
        taken.clear()
        next(iter(rebatch(read(), block_rows)))
        assert len(taken) == 1


def test_batches_without_rows_give_no_block():
    empty = batches_of([0, 0])
    assert list(rebatch(empty)) == list(rebatch(empty, 3)) == list(rebatch([])) == list(rebatch([], 3)) == []


def test_taking_needs_no_element_where_cells_are_empty():
    cells = Cells(np.empty(0), np.zeros([2, 1], np.int64), np.zeros(2, np.int64))
    assert cells.take(np.array([0, 1])).shape == (2, 0)
