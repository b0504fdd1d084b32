"""What a feed's options do in maps: nulls, ragged, padded and sparse inputs, casts; vectors and matrices; ragged outputs."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf
from expectations import check_refused
from flavours import Columns, Flavour, as_table, check_same_table, plain
from verbs import Expect, ExpectFail, each

import tensorframes as tfs
from tensorframes.columns import MATRIX, VECTOR

NAN, INF = float("nan"), float("inf")
LONG = 2**63 - 101
SCALARS = {"x": [1, None, 3, 4, None, 6, 7]}
WORDS = {"x": ["a", None, "b", None, None, None, "é"]}  # the second batch of three holds only nulls
BYTES = {"x": pa.array([b"ab\x00\x00", None, b"", b"\xff"], pa.binary())}
LISTS = {"x": [[1.0, None], [2.0, 3.0], None]}
NESTED = {"x": [[[1, 2], None], [[None, 3], [4, 5]], None]}
TOKENS = {"x": [[1, 2], [3], [], [4, 5, 6], [7]]}


READ_EVERYWHERE = {
    "longs that no double holds",
    "doubles, a null apart from NaN",
    "booleans, masked, over many batches",
    "strings, a batch of nulls only",
    "bytes, replaced",
    "nested arrays, masked",
    "three policies",
    "trimmed",
    "tokens, out as they came in",
    "two ragged dimensions",
    "the mask tells padding too",
    "arrays: entries are what is not 0",
    "decimals with nulls",
}


def check_maps(case: Expect, frame: Flavour) -> None:
    # `id` comes first, so that Spark's rows can be put in order again.
    columns = {"id": list(range(len(next(iter(case.input.values()))))), **case.input}
    held = frame.read(case.verb(case.fetches, frame.make(columns), case.feed_dict, **case.options))
    if case.options.get("trim"):
        check_same_table(held, plain(as_table(case.output)))
    else:
        check_same_table(held, plain(as_table({**columns, **case.output})))


def check_types(case: Expect, frame: Flavour) -> None:
    """Check a case that is like others; where reading is costly, the schema only."""
    if not frame.is_costly or case.id in READ_EVERYWHERE:
        check_maps(case, frame)
        return
    mapped = case.verb(case.fetches, frame.make(case.input), case.feed_dict, **case.options)
    kept_columns = {} if case.options.get("trim") else case.input
    assert frame.schema(mapped) == plain(as_table({**kept_columns, **case.output})).schema


def check_map(case: Expect) -> None:
    """Check what the frames have no part in."""
    held = case.verb(case.fetches, pa.table(dict(case.input)), case.feed_dict, **case.options)
    check_same_table(held, pa.table({**case.input, **case.output}))


def check_refuses(case: ExpectFail) -> None:
    native = pa.table(dict(case.input))
    check_refused(lambda: case.verb(case.fetches, native, case.feed_dict, **case.options), case.error, case.message)


def lines(*text: str) -> str:
    return "\n".join(text)


def feeds(**options: Any) -> dict[str, Any]:
    """Feed the input x from the column x."""
    return {"x": tfs.feed("x", **options)}


def kept(x):
    return {"z": x}


def with_mask(x, x_mask):
    return {"z": x, "m": x_mask}


def declared(dtype: str, shape: Any = (None,)) -> Any:
    return tf.function(kept, input_signature=[tf.TensorSpec(shape, dtype)])


def declared_ragged(dtype: str, shape: Any = (None, None), ragged_rank: int | None = None) -> Any:
    return tf.function(kept, input_signature=[tf.RaggedTensorSpec(shape, dtype, ragged_rank)])


IN_BYTES = tfs.program(kept, signature={"x": tf.TensorSpec([None], tf.string)}, binary="z")
IN_BYTES_WITH_MASK = tfs.program(
    with_mask, signature={"x": tf.TensorSpec([None], tf.string), "x_mask": tf.TensorSpec([None], tf.bool)}, binary="z"
)


# --- Nulls ---

# pandas' floats have no null, only NaN.
FLOATS_WITH_NULLS = {"doubles, a null apart from NaN", "doubles, replaced", "doubles, masked", "two feeds that skip", "three policies"}


@each(
    Expect("longs that no double holds", {"x": [LONG, None, -(2**63)]}, kept, {"z": [LONG, None, -(2**63)]}, feeds(nulls="skip")),
    Expect("longs, skipped", SCALARS, lambda x: {"z": 2 * x}, {"z": [2, None, 6, 8, None, 12, 14]}, feeds(nulls="skip")),
    Expect("longs, replaced", {"x": [LONG, None]}, kept, {"z": [LONG, 2**63 - 1]}, feeds(nulls=2**63 - 1)),
    Expect(
        "longs, masked",
        SCALARS,
        with_mask,
        {"z": [1, 0, 3, 4, 0, 6, 7], "m": [True, False, True, True, False, True, True]},
        feeds(nulls="mask"),
    ),
    Expect("doubles, a null apart from NaN", {"x": [1.0, None, NAN]}, lambda x: {"z": x + 1}, {"z": [2.0, None, NAN]}, feeds(nulls="skip")),
    Expect("doubles, replaced", {"x": [1.0, None, NAN]}, kept, {"z": [1.0, INF, NAN]}, feeds(nulls=INF)),
    Expect("doubles, masked", {"x": [None, 1.0, NAN]}, with_mask, {"z": [0.0, 1.0, NAN], "m": [False, True, True]}, feeds(nulls="mask")),
    Expect(
        "booleans, masked, over many batches",
        {"x": [True, None, False, None, None, None, True]},
        with_mask,
        {"z": [True, False, False, False, False, False, True], "m": [True, False, True, False, False, False, True]},
        feeds(nulls="mask"),
    ),
    Expect("booleans, skipped", {"x": [True, None, False]}, lambda x: {"z": ~x}, {"z": [False, None, True]}, feeds(nulls="skip")),
    Expect("booleans, replaced", {"x": [True, None, False]}, kept, {"z": [True, True, False]}, feeds(nulls=True)),
    Expect(
        "strings, a batch of nulls only",
        WORDS,
        lambda x: {"z": x + "ß"},
        {"z": ["aß", None, "bß", None, None, None, "éß"]},
        feeds(nulls="skip"),
    ),
    Expect("strings, replaced", WORDS, kept, {"z": ["a", "日", "b", "日", "日", "日", "é"]}, feeds(nulls="日")),
    Expect(
        "strings, masked",
        WORDS,
        with_mask,
        {"z": ["a", "", "b", "", "", "", "é"], "m": [True, False, True, False, False, False, True]},
        feeds(nulls="mask"),
    ),
    Expect("bytes, skipped", BYTES, IN_BYTES, {"z": BYTES["x"]}, feeds(nulls="skip")),
    Expect("bytes, replaced", BYTES, IN_BYTES, {"z": pa.array([b"ab\x00\x00", b"\xfe", b"", b"\xff"])}, feeds(nulls=b"\xfe")),
    Expect(
        "bytes, masked",
        BYTES,
        IN_BYTES_WITH_MASK,
        {"z": pa.array([b"ab\x00\x00", b"", b"", b"\xff"]), "m": [True, False, True, True]},
        feeds(nulls="mask"),
    ),
    Expect("arrays, skipped", LISTS, kept, {"z": [None, [2.0, 3.0], None]}, feeds(nulls="skip")),
    Expect("arrays, replaced", LISTS, kept, {"z": [[1.0, 0.5], [2.0, 3.0], [0.5, 0.5]]}, feeds(nulls=0.5)),
    Expect(
        "arrays, masked",
        LISTS,
        with_mask,
        {"z": [[1.0, 0.0], [2.0, 3.0], [0.0, 0.0]], "m": [[True, False], [True, True], [False, False]]},
        feeds(nulls="mask"),
    ),
    Expect("a null array, first", {"x": [None, [1, 3]]}, kept, {"z": [[7, 7], [1, 3]]}, feeds(nulls=7)),
    Expect("a null array, last", {"x": [[1, 3], None]}, kept, {"z": [[1, 3], [7, 7]]}, feeds(nulls=7)),
    Expect(
        "nested arrays, skipped",
        {"x": [[[1, 2], [6, 7]], *NESTED["x"][:2]]},
        kept,
        {"z": [[[1, 2], [6, 7]], None, None]},
        feeds(nulls="skip"),
    ),
    Expect("nested arrays, replaced", NESTED, kept, {"z": [[[1, 2], [9, 9]], [[9, 3], [4, 5]], [[9, 9], [9, 9]]]}, feeds(nulls=9)),
    Expect(
        "nested arrays, masked",
        NESTED,
        with_mask,
        {
            "z": [[[1, 2], [0, 0]], [[0, 3], [4, 5]], [[0, 0], [0, 0]]],
            "m": [[[True, True], [False, False]], [[False, True], [True, True]], [[False, False], [False, False]]],
        },
        feeds(nulls="mask"),
    ),
    Expect("arrays of strings, replaced", {"x": [["a", None], None]}, kept, {"z": [["a", "é"], ["é", "é"]]}, feeds(nulls="é")),
    Expect(
        "arrays of booleans, masked",
        {"x": [[True, None], None]},
        with_mask,
        {"z": [[True, False], [False, False]], "m": [[True, False], [False, False]]},
        feeds(nulls="mask"),
    ),
    Expect(
        "two feeds that skip",
        {"x": [None, 1.0, None, 3.0, 5.0], "y": [1.0, 2.0, None, None, 6.0]},
        lambda x, y: {"z": x + y},
        {"z": [None, 3.0, None, None, 11.0]},
        {**feeds(nulls="skip"), "y": tfs.feed("y", nulls="skip")},
    ),
    Expect(
        "a null where another feed skips",
        {"x": [1, None, 3, None], "y": [1, None, 3, 4]},
        lambda x, y: {"z": x + y},
        {"z": [2, None, 6, None]},
        feeds(nulls="skip"),
    ),
    Expect(
        "three policies",
        {"a": [1.0, None, 3.0, 4.0], "b": [1.0, 2.0, None, 4.0], "c": [1.0, None, None, 4.0]},
        lambda a, b, c, c_mask: {"z": a + b + c, "m": c_mask},
        {"z": [3.0, None, 13.0, 12.0], "m": [True, None, False, True]},
        {"a": tfs.feed("a", nulls="skip"), "b": tfs.feed("b", nulls=10), "c": tfs.feed("c", nulls="mask")},
    ),
    Expect("the last batch skipped", {"x": [1, 2, 3, None, None]}, kept, {"z": [1, 2, 3, None, None]}, feeds(nulls="skip")),
    Expect("the first batch skipped", {"x": [None, None, None, 4]}, kept, {"z": [None, None, None, 4]}, feeds(nulls="skip")),
    Expect("blocks of one row", SCALARS, kept, {"z": SCALARS["x"]}, feeds(nulls="skip"), options={"block_rows": 1}),
    Expect(
        "rows of different shapes, skipped",
        {"x": [[1, 2], None, [3], [None, 4, 5], []]},
        lambda x: {"z": 2 * x, "n": tf.size(x)},
        {"z": [[2, 4], None, [6], None, []], "n": pa.array([2, None, 1, None, 0], pa.int32())},
        feeds(nulls="skip"),
        verb=tfs.map_rows,
    ),
    Expect(
        "rows, replaced, beside rows of different shapes",
        {"x": [1, None, 3], "v": [[1], [1, 2], []]},
        lambda x, v: {"z": x + v},
        {"z": [[2], [11, 12], []]},
        feeds(nulls=10),
        verb=tfs.map_rows,
    ),
    Expect(
        "rows, masked, and a constant",
        {"x": [1, None, 3]},
        lambda x, x_mask, w: {"z": tf.where(x_mask, x, w)},
        {"z": [1, 7, 3]},
        {**feeds(nulls="mask"), "w": np.int64(7)},
        verb=tfs.map_rows,
    ),
    Expect(
        "rows of arrays, masked",
        LISTS,
        lambda x, x_mask: {"z": tf.reduce_all(x_mask)},
        {"z": [False, True, False]},
        feeds(nulls="mask"),
        verb=tfs.map_rows,
    ),
    Expect("trimmed", {"x": [1, None, 3]}, kept, {"z": [1, 3]}, feeds(nulls="skip"), options={"trim": True}),
    Expect("trimmed to arrays", {"x": [1, None]}, lambda x: {"z": x[:, None]}, {"z": [[1]]}, feeds(nulls="skip"), options={"trim": True}),
)
def test_nulls(case: Expect, frame: Flavour) -> None:
    if frame.name == "pandas" and case.id in FLOATS_WITH_NULLS:
        pytest.skip("pandas' floats hold no nulls")
    check_types(case, frame)


ALL_NULL = {"n": pa.int64(), "s": pa.string(), "b": pa.bool_()}


def test_when_all_rows_are_skipped_outputs_keep_their_types(frame: Flavour) -> None:
    if not frame.knows_types:
        pytest.skip("a column of nulls has no type there")
    columns = {"id": list(range(4)), **{name: pa.nulls(4, arrow) for name, arrow in ALL_NULL.items()}}
    fetches = {f"{name}_out": with_parameter(name) for name in ALL_NULL}
    held = frame.read(tfs.map_blocks(fetches, frame.make(columns), {name: tfs.feed(name, nulls="skip") for name in ALL_NULL}))
    check_same_table(held, plain(as_table({**columns, **{f"{name}_out": columns[name] for name in ALL_NULL}})))


def with_parameter(name: str) -> Any:
    return {"n": lambda n: n, "s": lambda s: s, "b": lambda b: b}[name]


@each(
    Expect("no row is left", {"x": pa.nulls(5, pa.float64())}, kept, {"z": pa.nulls(5, pa.float64())}, feeds(nulls="skip")),
    Expect(
        "no array is left",
        {"x": pa.nulls(3, pa.list_(pa.float64()))},
        lambda x: {"z": tf.reduce_sum(x, 1)},
        {"z": pa.nulls(3, pa.float64())},
        feeds(nulls="skip"),
    ),
    Expect(
        "no row is left to map", {"x": pa.nulls(5, pa.int8())}, kept, {"z": pa.nulls(5, pa.int8())}, feeds(nulls="skip"), verb=tfs.map_rows
    ),
    Expect(
        "what rows are computed from together are those that are shown",
        {"x": [None, 1.0, None, 3.0]},
        lambda x: {"z": x - tf.reduce_mean(x)},
        {"z": [None, -1.0, None, 1.0]},
        feeds(nulls="skip"),
    ),
    Expect("a null in a struct", {"p": [{"x": 1}, None, {"x": None}]}, kept, {"z": [1, None, None]}, {"x": tfs.feed("p.x", nulls="skip")}),
    Expect(
        "a dictionary's own null",
        {"x": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array(["a", None]))},
        with_mask,
        {"z": ["a", "", "", "a"], "m": [True, False, False, True]},
        feeds(nulls="mask"),
    ),
    Expect(
        "large lists",
        {"x": pa.array([[1.0, None], None], pa.large_list(pa.float64()))},
        kept,
        {"z": [[1.0, 4.0], [4.0, 4.0]]},
        feeds(nulls=4),
    ),
    Expect(
        "lists of a fixed size",
        {"x": pa.array([[1, 2], None, [None, 3]], pa.list_(pa.int64(), 2))},
        kept,
        {"z": [[1, 2], [0, 0], [0, 3]]},
        feeds(nulls=0),
    ),
    Expect("lists of a fixed size, all null", {"x": pa.nulls(2, pa.list_(pa.int64(), 2))}, kept, {"z": [[6, 6], [6, 6]]}, feeds(nulls=6)),
    Expect("dates", {"x": [datetime.date(1970, 1, 3), None]}, kept, {"z": pa.array([2, None], pa.int32())}, feeds(nulls="skip")),
    Expect("timestamps", {"x": [None, datetime.datetime(1970, 1, 1, 0, 0, 1)]}, kept, {"z": [-1, 10**6]}, feeds(nulls=-1)),
    Expect("a word that is a policy, as bytes", {"x": ["a", None]}, kept, {"z": ["a", "skip"]}, feeds(nulls=b"skip")),
    Expect("NumPy's numbers as values", {"x": [1.0, None]}, kept, {"z": [1.0, 0.5]}, feeds(nulls=np.float32(0.5))),
    Expect("NaN as a value", {"x": [1.0, None]}, kept, {"z": [1.0, NAN]}, feeds(nulls=NAN)),
    Expect("one as a boolean", {"x": [False, None]}, kept, {"z": [False, True]}, feeds(nulls=1)),
    Expect(
        "the largest number of 64 bits",
        {"x": pa.array([1, None], pa.uint64())},
        kept,
        {"z": pa.array([1, 2**64 - 1], pa.uint64())},
        feeds(nulls=2**64 - 1),
    ),
    Expect(
        "a fraction for a program that declares float",
        {"x": [1, None]},
        declared("float32"),
        {"z": pa.array([1.0, 0.5], pa.float32())},
        feeds(nulls=0.5),
    ),
    Expect(
        "a mask for an input of another name",
        {"x": [1, None]},
        lambda a, a_mask: {"z": a, "m": a_mask},
        {"z": [1, 0], "m": [True, False]},
        {"a": tfs.feed("x", nulls="mask")},
    ),
    Expect(
        "the mask before its input",
        {"x": [1, None]},
        lambda x_mask, x: {"z": x, "m": x_mask},
        {"z": [1, 0], "m": [True, False]},
        feeds(nulls="mask"),
    ),
    Expect(
        "a column of the mask's name is not fed",
        {"x": [1, None], "x_mask": [False, True]},
        with_mask,
        {"z": [1, 0], "m": [True, False]},
        feeds(nulls="mask"),
    ),
    Expect(
        "unless it is named",
        {"x": [1, None], "b": [False, True]},
        with_mask,
        {"z": [1, 0], "m": [False, True]},
        {**feeds(nulls="mask"), "x_mask": "b"},
    ),
    Expect("2**70 as a double", {"x": [1.0, None]}, kept, {"z": [1.0, 2.0**70]}, feeds(nulls=2**70)),
)
def test_nulls_of_a_table(case: Expect) -> None:
    check_map(case)


SPANNED = pa.ListArray.from_buffers(
    pa.list_(pa.float64()),
    3,
    [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0, 2, 4, 5], np.int32))],
    1,
    0,
    [pa.array([1.0, 2.0, 3.0, 4.0, 5.0])],
)


@each(
    Expect("padded", {"x": SPANNED}, kept, {"z": [[1.0, 2.0], [9.0, 9.0], [5.0, 0.0]]}, feeds(nulls=9, pad=0)),
    Expect("ragged", {"x": SPANNED}, kept, {"z": [[1.0, 2.0], [], [5.0]]}, feeds(nulls=9, ragged=True)),
    Expect("skipped", {"x": SPANNED}, kept, {"z": [[1.0, 2.0], None, [5.0]]}, feeds(nulls="skip", ragged=True)),
    Expect("skipped by rows", {"x": SPANNED}, kept, {"z": [[1.0, 2.0], None, [5.0]]}, feeds(nulls="skip"), verb=tfs.map_rows),
)
def test_the_elements_that_a_null_list_spans_are_left_out(case: Expect) -> None:
    assert SPANNED.null_count == 1
    check_map(case)


def test_any_policy_is_no_matter_where_there_is_no_null() -> None:
    table = pa.table({"x": [[1.0, 2.0], [3.0, 4.0]]})
    for nulls in ("error", "skip", 7.0):
        for verb in (tfs.map_blocks, tfs.map_rows):
            assert verb(kept, table, feeds(nulls=nulls))["z"].to_pylist() == table["x"].to_pylist()
    held = tfs.map_blocks(with_mask, table, feeds(nulls="mask"))
    assert held["m"].to_pylist() == [[True, True], [True, True]]


# --- Ragged: in and out ---


def lengths(x):
    return {"n": x.row_lengths(), "s": tf.reduce_sum(x, axis=1)}


@pytest.mark.core
@each(
    Expect("tokens, every row of another length", TOKENS, lengths, {"n": [2, 1, 0, 3, 1], "s": [3, 3, 0, 15, 7]}, feeds(ragged=True)),
    Expect("tokens, out as they came in", TOKENS, lambda x: {"z": x + 1}, {"z": [[2, 3], [4], [], [5, 6, 7], [8]]}, feeds(ragged=True)),
    Expect(
        "two ragged dimensions",
        {"x": [[[1.0], [2.0, 3.0]], [], [[]], [[4.0, 5.0, 6.0]]]},
        lambda x: {"z": 2 * x, "s": tf.reduce_sum(x, axis=2)},
        {"z": [[[2.0], [4.0, 6.0]], [], [[]], [[8.0, 10.0, 12.0]]], "s": [[1.0, 5.0], [], [0.0], [15.0]]},
        feeds(ragged=True),
    ),
    Expect(
        "strings",
        {"x": [["a", "é"], [], ["日"], [""]]},
        lambda x: {"z": tf.strings.reduce_join(x, 1)},
        {"z": ["aé", "", "日", ""]},
        feeds(ragged=True),
    ),
    Expect(
        "booleans", {"x": [[True], [False, True], [False]]}, lambda x: {"z": x}, {"z": [[True], [False, True], [False]]}, feeds(ragged=True)
    ),
    Expect(
        "nulls replaced, a null array empty", {"x": [[1, None], None, [3]]}, kept, {"z": [[1, -1], [], [3]]}, feeds(ragged=True, nulls=-1)
    ),
    Expect(
        "nulls skipped",
        {"x": [[1, None], None, [3], [4, 5], []]},
        kept,
        {"z": [None, None, [3], [4, 5], []]},
        feeds(ragged=True, nulls="skip"),
    ),
    Expect(
        "nulls masked",
        {"x": [[1, None], None, [3]]},
        with_mask,
        {"z": [[1, 0], [], [3]], "m": [[True, False], [], [True]]},
        feeds(ragged=True, nulls="mask"),
    ),
    Expect(
        "rows",
        TOKENS,
        lambda x: {"z": 2 * x, "n": tf.size(x)},
        {"z": [[2, 4], [6], [], [8, 10, 12], [14]], "n": pa.array([2, 1, 0, 3, 1], pa.int32())},
        feeds(ragged=True),
        verb=tfs.map_rows,
    ),
    Expect(
        "rows of two ragged dimensions",
        {"x": [[[1, 2], [3]], [], [[]]]},
        lambda x: {"z": x, "n": x.row_lengths()},
        {"z": [[[1, 2], [3]], [], [[]]], "n": [[2, 1], [], [0]]},
        feeds(ragged=True),
        verb=tfs.map_rows,
    ),
    Expect("a declared signature", TOKENS, declared_ragged("int64"), {"z": TOKENS["x"]}),
    Expect(
        "words of a string", {"x": ["a b", "", "c é d"]}, lambda x: {"z": tf.strings.split(x)}, {"z": [["a", "b"], [], ["c", "é", "d"]]}
    ),
    Expect("ranges of numbers", {"x": [3, 0, 2, 1]}, lambda x: {"z": tf.ragged.range(x)}, {"z": [[0, 1, 2], [], [0, 1], [0]]}),
    Expect(
        "letters of words",
        {"x": ["ab c", "", "é"]},
        lambda x: {"z": tf.strings.unicode_split(tf.strings.split(x), "UTF-8")},
        {"z": [[["a", "b"], ["c"]], [], [["é"]]]},
    ),
)
def test_ragged(case: Expect, frame: Flavour) -> None:
    check_types(case, frame)


def noting_shapes(seen: list[Any]) -> Any:
    def fetches(x):
        seen.append((x.shape.as_list(), x.ragged_rank))
        return {"z": x}

    return fetches


@pytest.mark.parametrize(
    ("cells", "shape", "seen"),
    [
        ([[[1, 2]], [], [[3, 4], [5, 6]]], None, ([None, None, None], 2)),
        ([[[1, 2]], [], [[3, 4], [5, 6]]], [None, None, 2], ([None, None, 2], 1)),
        ([[[1], [2, 3]], [[], [4]]], [None, 2, None], ([None, None, None], 2)),
        ([[[1], [2]]], [None, 2, 1], ([None, None, 1], 1)),
        ([[1], [2]], [None, 1], ([None, None], 1)),
    ],
    ids=["none known", "inner known", "outer known", "all known", "a known vector"],
)
def test_dimensions_behind_the_last_unknown_one_stay_uniform(cells: Any, shape: Any, seen: Any) -> None:
    table = pa.table({"x": cells})
    traced: list[Any] = []
    held = tfs.map_blocks(noting_shapes(traced), table if shape is None else tfs.append_shape(table, "x", shape), feeds(ragged=True))
    assert traced == [seen]
    assert held["z"].to_pylist() == cells


DEEP = [[[[1]], []], [], [[[2, 3], []], [[4]]]]


@each(
    Expect("three ragged dimensions", {"x": DEEP}, kept, {"z": DEEP}, feeds(ragged=True)),
    Expect(
        "empty lists only",
        {"x": pa.array([[], []], pa.list_(pa.int64()))},
        kept,
        {"z": pa.array([[], []], pa.list_(pa.int64()))},
        feeds(ragged=True),
    ),
    Expect("a slice", {"x": pa.array([[9], [1], [], [2, 3], [8]]).slice(1, 3)}, kept, {"z": [[1], [], [2, 3]]}, feeds(ragged=True)),
    Expect(
        "a slice of nested lists",
        {"x": pa.array([[[9]], [[1], []], [], [[2, 3]], [[8]]]).slice(1, 3)},
        kept,
        {"z": [[[1], []], [], [[2, 3]]]},
        feeds(ragged=True),
    ),
    Expect("large lists", {"x": pa.array([[1], [2, 3]], pa.large_list(pa.int64()))}, kept, {"z": [[1], [2, 3]]}, feeds(ragged=True)),
    Expect(
        "lists of a fixed size",
        {"x": pa.array([[1, 4], [2, 3]], pa.list_(pa.int64(), 2))},
        kept,
        {"z": [[1, 4], [2, 3]]},
        feeds(ragged=True),
    ),
    Expect(
        "declared, cast", {"x": [[1], [], [2, 3]]}, declared_ragged("float32"), {"z": pa.array([[1], [], [2, 3]], pa.list_(pa.float32()))}
    ),
    Expect(
        "declared, splits of 32 bits",
        {"x": [[1], [], [2, 3]]},
        tf.function(kept, input_signature=[tf.RaggedTensorSpec([None, None], "int64", 1, tf.int32)]),
        {"z": [[1], [], [2, 3]]},
    ),
    Expect(
        "declared, a uniform inner dimension",
        {"x": [[[1, 2]], [], [[3, 4], [5, 6]]]},
        declared_ragged("int64", (None, None, 2), 1),
        {"z": [[[1, 2]], [], [[3, 4], [5, 6]]]},
    ),
    Expect(
        "declared, two ragged dimensions",
        {"x": [[[1, 2], []], [], [[3]]]},
        declared_ragged("int64", (None, None, None), 2),
        {"z": [[[1, 2], []], [], [[3]]]},
    ),
    Expect(
        "declared of a row", {"x": [[[1, 2], []], [], [[3]]]}, declared_ragged("int64"), {"z": [[[1, 2], []], [], [[3]]]}, verb=tfs.map_rows
    ),
    Expect(
        "cast",
        {"x": [[1.0], [], [2.0, 3.0]]},
        kept,
        {"z": pa.array([[1], [], [2, 3]], pa.list_(pa.uint8()))},
        feeds(ragged=True, dtype="uint8"),
    ),
    Expect(
        "nested nulls replaced",
        {"x": [[[1, None], None], None, [[None]]]},
        kept,
        {"z": [[[1, 0], []], [], [[0]]]},
        feeds(ragged=True, nulls=0),
    ),
    Expect(
        "nested nulls masked by rows",
        {"x": [[[1, None], [2]], None]},
        with_mask,
        {"z": [[[1, 0], [2]], []], "m": [[[True, False], [True]], []]},
        feeds(ragged=True, nulls="mask"),
        verb=tfs.map_rows,
    ),
    Expect(
        "out: splits of 32 bits", {"x": [2, 1]}, lambda x: {"z": tf.ragged.range(x).with_row_splits_dtype(tf.int32)}, {"z": [[0, 1], [0]]}
    ),
    Expect(
        "out: a uniform inner dimension",
        {"x": [2, 0, 1]},
        lambda x: {"z": tf.RaggedTensor.from_row_lengths(tf.ones([tf.reduce_sum(x), 2], tf.int64), x)},
        {"z": [[[1, 1], [1, 1]], [], [[1, 1]]]},
    ),
    Expect(
        "out: of rows", {"x": ["a b", "", "c"]}, lambda x: {"z": tf.strings.split(x)}, {"z": [["a", "b"], [], ["c"]]}, verb=tfs.map_rows
    ),
    Expect(
        "out: beside skipped rows",
        {"x": [2, None, 1]},
        lambda x: {"z": tf.ragged.range(x)},
        {"z": [[0, 1], None, [0]]},
        feeds(nulls="skip"),
    ),
    Expect("out: a bare one", {"x": [2, 1]}, lambda x: tf.ragged.range(x), {"output": [[0, 1], [0]]}),
    Expect(
        "a ragged and a dense input",
        {"x": [[1, 2], [3]], "y": [10, 20]},
        lambda x, y: {"z": x + y[:, None]},
        {"z": [[11, 12], [23]]},
        feeds(ragged=True),
    ),
)
def test_ragged_of_a_table(case: Expect) -> None:
    check_map(case)


def test_a_ragged_output_may_be_trimmed() -> None:
    held = tfs.map_blocks(lambda x: {"z": tf.ragged.range(x)[:2]}, pa.table({"x": [2, 0, 1]}), trim=True)
    check_same_table(held, pa.table({"z": [[0, 1], []]}))


# --- Pad; three rows are one block in every kind of frame ---


@pytest.mark.core
@each(
    Expect("to the longest", {"x": [[1.0], [2.0, 3.0], []]}, kept, {"z": [[1.0, -1.0], [2.0, 3.0], [-1.0, -1.0]]}, feeds(pad=-1)),
    Expect(
        "to what is declared",
        {"x": [[1.0], [2.0, 3.0], []]},
        declared("float64", (None, 3)),
        {"z": [[1.0, 0.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 0.0]]},
        feeds(pad=0),
    ),
    Expect("strings", {"x": [["a"], ["b", "日"], []]}, kept, {"z": [["a", "é"], ["b", "日"], ["é", "é"]]}, feeds(pad="é")),
    Expect(
        "two dimensions",
        {"x": [[[1], [2, 3]], [], [[4]]]},
        kept,
        {"z": [[[1, 0], [2, 3]], [[0, 0], [0, 0]], [[4, 0], [0, 0]]]},
        feeds(pad=0),
    ),
    Expect("nulls replaced", {"x": [[1, None], None, [3]]}, kept, {"z": [[1, 7], [7, 7], [3, 9]]}, feeds(pad=9, nulls=7)),
    Expect("nulls skipped", {"x": [[1, None], [3], [4, 5]]}, kept, {"z": [None, [3, 9], [4, 5]]}, feeds(pad=9, nulls="skip")),
    Expect(
        "the mask tells padding too",
        {"x": [[1, None], None, [3]]},
        with_mask,
        {"z": [[1, 0], [0, 0], [3, 9]], "m": [[True, False], [False, False], [True, False]]},
        feeds(pad=9, nulls="mask"),
    ),
    Expect(
        "rows",
        {"x": [[1], [2, 3], []]},
        lambda x: {"z": x, "n": tf.size(x)},
        {"z": [[1, 0], [2, 3], [0, 0]], "n": pa.array([2, 2, 2], pa.int32())},
        feeds(pad=0),
        verb=tfs.map_rows,
    ),
)
def test_pad(case: Expect, frame: Flavour) -> None:
    check_types(case, frame)


@each(
    Expect(
        "empty lists only",
        {"x": pa.array([[], []], pa.list_(pa.int64()))},
        kept,
        {"z": pa.array([[], []], pa.list_(pa.int64()))},
        feeds(pad=0),
    ),
    Expect(
        "nulls only", {"x": pa.nulls(2, pa.list_(pa.int64()))}, kept, {"z": pa.array([[], []], pa.list_(pa.int64()))}, feeds(pad=0, nulls=1)
    ),
    Expect(
        "a shorter list than is declared, cast",
        {"x": [[1.0], [2.0, 3.0]]},
        declared("float32", (None, 3)),
        {"z": pa.array([[1, 0.5, 0.5], [2, 3, 0.5]], pa.list_(pa.float32()))},
        feeds(pad=0.5),
    ),
    Expect(
        "an inner size is declared",
        {"x": [[[1]], [[2], [3, 4]]]},
        declared("int64", (None, None, 3)),
        {"z": [[[1, 0, 0], [0, 0, 0]], [[2, 0, 0], [3, 4, 0]]]},
        feeds(pad=0),
    ),
    Expect(
        "nested nulls",
        {"x": [[[1], None], None, [[None]]]},
        kept,
        {"z": [[[1], [-2]], [[-2], [-2]], [[-2], [-1]]]},
        feeds(pad=-1, nulls=-2),
    ),
    Expect("booleans", {"x": [[True], [True, True], []]}, kept, {"z": [[True, False], [True, True], [False, False]]}, feeds(pad=False)),
    Expect("a slice", {"x": pa.array([[9, 9, 9], [1], [2, 3], [8, 8, 8]]).slice(1, 2)}, kept, {"z": [[1, 0], [2, 3]]}, feeds(pad=0)),
    Expect("cells of one length", {"x": [[1, 2], [3, 4]]}, kept, {"z": [[1, 2], [3, 4]]}, feeds(pad=0)),
    Expect(
        "bfloat16",
        {"x": [[1.0], [2.0, 3.0]]},
        kept,
        {"z": pa.array([[1, 0.5], [2, 3]], pa.list_(pa.float32()))},
        feeds(pad=0.5, dtype="bfloat16"),
    ),
    Expect(
        "to a declared size by rows",
        {"x": [[1], [2, 3]]},
        declared("int64", (3,)),
        {"z": [[1, 0, 0], [2, 3, 0]]},
        feeds(pad=0),
        verb=tfs.map_rows,
    ),
)
def test_pad_of_a_table(case: Expect) -> None:
    check_map(case)


def test_the_size_that_append_shape_tells_is_padded_to() -> None:
    table = tfs.append_shape(pa.table({"x": [[1, 2], [3]]}), "x", [None, 3])
    assert tfs.map_blocks(kept, table, feeds(pad=0))["z"].to_pylist() == [[1, 2, 0], [3, 0, 0]]


def test_the_shape_that_append_shape_tells_is_a_null_arrays() -> None:
    table = tfs.append_shape(pa.table({"x": pa.nulls(2, pa.list_(pa.float64()))}), "x", [None, 3])
    assert tfs.map_blocks(kept, table, feeds(nulls=2))["z"].to_pylist() == [[2.0] * 3] * 2


# --- Sparse; vectors and matrices ---


def dense_vector(*values: float) -> dict[str, Any]:
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


def sparse_vector(size: int, entries: dict[int, float]) -> dict[str, Any]:
    return {"type": 0, "size": size, "indices": list(entries), "values": list(entries.values())}


def matrix(rows: int, columns: int, *values: float) -> dict[str, Any]:
    """Make a dense matrix of values column by column."""
    return {
        "type": 1,
        "numRows": rows,
        "numCols": columns,
        "colPtrs": None,
        "rowIndices": None,
        "values": list(values),
        "isTransposed": False,
    }


def vectors(*cells: Any) -> pa.Array:
    return pa.array(cells, VECTOR)


def matrices(*cells: Any) -> pa.Array:
    return pa.array(cells, MATRIX)


def entries(x):
    """Give a sparse block as a dense one, and how many entries are stored, in each row."""
    stored = tf.fill([tf.cast(tf.shape(x)[0], tf.int32)], tf.size(x.values))
    return {"z": tf.sparse.to_dense(x), "stored": stored}


def counted(count: int, rows: int) -> pa.Array:
    return pa.array([count] * rows, pa.int32())


MIXED = vectors(dense_vector(1, 0, 3), sparse_vector(3, {1: 5.0}), dense_vector(0, 0, 0), sparse_vector(3, {0: 0.0, 2: 2.0}))
MIXED_ROWS = [[1.0, 0.0, 3.0], [0.0, 5.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 2.0]]
ARRAYS_WITH_ZEROS = {"x": [[1.0, 0.0], [0.0, -0.0], [NAN, 2.0]]}


@each(
    Expect(
        "arrays: entries are what is not 0",
        ARRAYS_WITH_ZEROS,
        entries,
        {"z": [[1.0, 0.0], [0.0, 0.0], [NAN, 2.0]], "stored": counted(3, 3)},
        feeds(sparse=True),
    ),
    Expect(
        "nested arrays",
        {"x": [[[1, 0], [0, 2]], [[0, 0], [3, 0]]]},
        entries,
        {"z": [[[1, 0], [0, 2]], [[0, 0], [3, 0]]], "stored": counted(3, 2)},
        feeds(sparse=True),
    ),
    Expect(
        "rows",
        {"x": [[1.0, 0.0], [0.0, 2.0]]},
        lambda x: {"z": tf.reduce_sum(tf.sparse.to_dense(x))},
        {"z": [1.0, 2.0]},
        feeds(sparse=True),
        verb=tfs.map_rows,
    ),
)
def test_sparse(case: Expect, frame: Flavour) -> None:
    check_types(case, frame)


@each(
    Expect("dense and sparse ones, dense", {"x": MIXED}, kept, {"z": MIXED_ROWS}, feeds()),
    Expect("dense ones", {"x": MIXED.take(pa.array([0, 2]))}, kept, {"z": MIXED_ROWS[::2]}),
    Expect("sparse ones", {"x": MIXED.take(pa.array([1, 3]))}, kept, {"z": MIXED_ROWS[1::2]}),
    Expect(
        "as a sparse tensor: entries are what is stored",
        {"x": MIXED},
        entries,
        {"z": MIXED_ROWS, "stored": counted(5, 4)},
        feeds(sparse=True),
    ),
    Expect(
        "a slice as a sparse tensor", {"x": MIXED.slice(1, 2)}, entries, {"z": MIXED_ROWS[1:3], "stored": counted(1, 2)}, feeds(sparse=True)
    ),
    Expect(
        "as a sparse tensor, cast",
        {"x": MIXED},
        entries,
        {"z": pa.array(MIXED_ROWS, pa.list_(pa.int32())), "stored": counted(5, 4)},
        feeds(sparse=True, dtype="int32"),
    ),
    Expect(
        "rows as sparse tensors",
        {"x": MIXED},
        lambda x: {"z": tf.sparse.to_dense(x)},
        {"z": MIXED_ROWS},
        feeds(sparse=True),
        verb=tfs.map_rows,
    ),
    Expect(
        "a declared sparse tensor",
        {"x": MIXED},
        tf.function(
            lambda x: {"z": tf.sparse.sparse_dense_matmul(x, tf.ones([3, 1]))}, input_signature=[tf.SparseTensorSpec([None, 3], tf.float32)]
        ),
        {"z": pa.array([[4], [5], [0], [2]], pa.list_(pa.float32()))},
    ),
    Expect("cast", {"x": MIXED}, kept, {"z": pa.array(MIXED_ROWS, pa.list_(pa.float32()))}, feeds(dtype="float32")),
    Expect(
        "a null skipped",
        {"x": vectors(dense_vector(1), None, sparse_vector(1, {}))},
        kept,
        {"z": [[1.0], None, [0.0]]},
        feeds(nulls="skip"),
    ),
    Expect("a null replaced", {"x": vectors(None, sparse_vector(2, {1: 3.0}))}, kept, {"z": [[7.0, 7.0], [0.0, 3.0]]}, feeds(nulls=7)),
    Expect(
        "a null masked",
        {"x": vectors(None, sparse_vector(2, {1: 3.0}))},
        with_mask,
        {"z": [[0.0, 0.0], [0.0, 3.0]], "m": [[False, False], [True, True]]},
        feeds(nulls="mask"),
    ),
    Expect(
        "a null skipped in a sparse tensor",
        {"x": vectors(None, sparse_vector(2, {1: 3.0}))},
        entries,
        {"z": [None, [0.0, 3.0]], "stored": pa.array([None, 1], pa.int32())},
        feeds(nulls="skip", sparse=True),
    ),
    Expect(
        "a null replaced in a sparse tensor",
        {"x": vectors(None, sparse_vector(2, {1: 3.0}))},
        entries,
        {"z": [[7.0, 7.0], [0.0, 3.0]], "stored": counted(3, 2)},
        feeds(nulls=7, sparse=True),
    ),
    Expect(
        "of different sizes, ragged",
        {"x": vectors(dense_vector(1), sparse_vector(3, {1: 5.0}), dense_vector())},
        kept,
        {"z": [[1.0], [0.0, 5.0, 0.0], []]},
        feeds(ragged=True),
    ),
    Expect(
        "of different sizes, padded",
        {"x": vectors(dense_vector(1), sparse_vector(3, {1: 5.0}))},
        kept,
        {"z": [[1.0, -1.0, -1.0], [0.0, 5.0, 0.0]]},
        feeds(pad=-1),
    ),
    Expect(
        "of different sizes, by rows",
        {"x": vectors(dense_vector(1), sparse_vector(3, {1: 5.0}))},
        lambda x: {"z": tf.reduce_sum(x)},
        {"z": [1.0, 5.0]},
        verb=tfs.map_rows,
    ),
    Expect(
        "matrices",
        {"x": matrices(matrix(2, 3, 1, 2, 3, 4, 5, 6), matrix(2, 3, *([0.0] * 6)))},
        kept,
        {"z": [[[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]], [[0.0] * 3] * 2]},
    ),
    Expect(
        "matrices as a sparse tensor",
        {"x": matrices(matrix(1, 2, 0, 2), matrix(1, 2, 0, 0))},
        entries,
        {"z": [[[0.0, 2.0]], [[0.0, 0.0]]], "stored": counted(1, 2)},
        feeds(sparse=True),
    ),
    Expect(
        "matrices, padded",
        {"x": matrices(matrix(1, 2, 1, 2), matrix(2, 1, 3, 4))},
        kept,
        {"z": [[[1.0, 2.0], [0.0, 0.0]], [[3.0, 0.0], [4.0, 0.0]]]},
        feeds(pad=0),
    ),
    Expect("a null matrix skipped", {"x": matrices(None, matrix(1, 1, 4))}, kept, {"z": [None, [[4.0]]]}, feeds(nulls="skip")),
)
def test_vectors_and_matrices(case: Expect) -> None:
    check_map(case)


def as_vectors(dtype: str, shape: Any = (None, None)) -> Any:
    return tfs.program(kept, signature={"x": tf.TensorSpec(shape, dtype)}, vector="z")


@each(
    Expect("vectors", {"x": [[1.0, 2.0], [3.0, 4.0]]}, as_vectors("float64"), {"z": vectors(dense_vector(1, 2), dense_vector(3, 4))}),
    Expect("of floats", {"x": [[1.0, 2.0]]}, as_vectors("float32"), {"z": vectors(dense_vector(1, 2))}),
    Expect("of ints", {"x": pa.array([[1, 2]], pa.list_(pa.int32()))}, as_vectors("int32"), {"z": vectors(dense_vector(1, 2))}),
    Expect("beside a skipped row", {"x": [[1.0], None]}, as_vectors("float64"), {"z": vectors(dense_vector(1), None)}, feeds(nulls="skip")),
    Expect(
        "of rows of different lengths",
        {"x": [[1.0], [2.0, 3.0], []]},
        as_vectors("float64", (None,)),
        {"z": vectors(dense_vector(1), dense_vector(2, 3), dense_vector())},
        verb=tfs.map_rows,
    ),
    Expect(
        "matrices",
        {"x": [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]},
        as_vectors("float64", (None, None, None)),
        {"z": matrices(matrix(2, 3, 1, 4, 2, 5, 3, 6))},
    ),
    Expect(
        "matrices of rows",
        {"x": [[[1.0, 2.0]], [[3.0], [4.0]]]},
        as_vectors("float64", (None, None)),
        {"z": matrices(matrix(1, 2, 1, 2), matrix(2, 1, 3, 4))},
        verb=tfs.map_rows,
    ),
)
def test_outputs_become_vectors(case: Expect) -> None:
    check_map(case)


def test_vectors_that_a_program_gave_are_read_again(frame: Flavour) -> None:
    if frame.is_costly:
        pytest.skip("shown there by a stage of Spark's")
    mapped = tfs.map_blocks(as_vectors("float64"), frame.make({"id": [0, 1, 2, 3], "x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]}))
    held = frame.read(tfs.map_blocks(lambda z: {"w": 2 * z}, mapped))
    assert held["w"].to_pylist() == [[2.0, 4.0], [6.0, 8.0], [10.0, 12.0], [14.0, 16.0]]


def test_vectors_of_polars_are_read() -> None:
    native = pl.DataFrame(pa.table({"x": vectors(dense_vector(1, 0), sparse_vector(2, {1: 5.0}), None)}))
    held = tfs.map_blocks(kept, native, feeds(nulls="skip"))
    assert held["z"].to_list() == [[1.0, 0.0], [0.0, 5.0], None]


# --- dtype ---


def decimals(*cells: str | None, precision: int = 5, scale: int = 2) -> pa.Array:
    return pa.array([None if cell is None else Decimal(cell) for cell in cells], pa.decimal128(precision, scale))


DECIMALS = {"x": decimals("100.50", "0.10", "-7.25")}


@each(
    Expect("decimals as doubles", DECIMALS, kept, {"z": [100.5, 0.1, -7.25]}, feeds(dtype="float64")),
    Expect("decimals as longs", {"x": decimals("100.00", "-3.00")}, kept, {"z": [100, -3]}, feeds(dtype="int64")),
    Expect(
        "decimals with nulls",
        {"x": decimals("100.50", None)},
        kept,
        {"z": pa.array([100.5, 0.5], pa.float32())},
        feeds(dtype="float32", nulls=0.5),
    ),
    Expect("long to int", {"x": [2**31 - 1, -(2**31)]}, kept, {"z": pa.array([2**31 - 1, -(2**31)], pa.int32())}, feeds(dtype="int32")),
    Expect("double to int", {"x": [1.0, -2.0]}, lambda x: {"z": 3 * x}, {"z": pa.array([3, -6], pa.int32())}, feeds(dtype="int32")),
    Expect("double to float", {"x": [0.1, INF, NAN]}, kept, {"z": pa.array([0.1, INF, NAN], pa.float32())}, feeds(dtype="float32")),
)
def test_dtype(case: Expect, frame: Flavour) -> None:
    check_types(case, frame)


def of_type(arrow: pa.DataType, *cells: Any) -> Columns:
    return {"z": pa.array(cells, arrow)}


@each(
    Expect("decimals, exactly", {"x": decimals("0.10", "0.30", "0.70", scale=2)}, kept, {"z": [0.1, 0.3, 0.7]}, feeds(dtype="float64")),
    Expect(
        "the largest long",
        {"x": decimals(str(2**63 - 1), str(-(2**63)), precision=38, scale=0)},
        kept,
        {"z": [2**63 - 1, -(2**63)]},
        feeds(dtype="int64"),
    ),
    Expect(
        "the largest unsigned one",
        {"x": decimals(str(2**64 - 1), precision=38, scale=0)},
        kept,
        of_type(pa.uint64(), 2**64 - 1),
        feeds(dtype="uint64"),
    ),
    Expect("decimals to uint8", {"x": decimals("255.00", "0.00")}, kept, of_type(pa.uint8(), 255, 0), feeds(dtype="uint8")),
    Expect("decimals to booleans", {"x": decimals("1.00", "0.00")}, kept, {"z": [True, False]}, feeds(dtype="bool")),
    Expect("decimals to float16", {"x": decimals("1.50")}, kept, of_type(pa.float16(), np.float16(1.5)), feeds(dtype="float16")),
    Expect("decimals to bfloat16", {"x": decimals("1.50")}, kept, of_type(pa.float32(), 1.5), feeds(dtype="bfloat16")),
    Expect("decimals of 256 bits", {"x": pa.array([Decimal("1.50")], pa.decimal256(50, 2))}, kept, {"z": [1.5]}, feeds(dtype="float64")),
    Expect("decimals skipped", {"x": decimals("1.00", None)}, kept, {"z": [1, None]}, feeds(dtype="int64", nulls="skip")),
    Expect(
        "decimals masked", {"x": decimals("1.00", None)}, with_mask, {"z": [1, 0], "m": [True, False]}, feeds(dtype="int64", nulls="mask")
    ),
    Expect(
        "arrays of decimals",
        {"x": pa.array([[Decimal("1.50"), None], [Decimal("2.00"), Decimal("0.25")]], pa.list_(pa.decimal128(5, 2)))},
        kept,
        {"z": [[1.5, 0.0], [2.0, 0.25]]},
        feeds(dtype="float64", nulls=0),
    ),
    Expect(
        "ragged arrays of decimals",
        {"x": pa.array([[Decimal("1.50")], []], pa.list_(pa.decimal128(5, 2)))},
        kept,
        {"z": pa.array([[1.5], []])},
        feeds(dtype="float64", ragged=True),
    ),
    Expect("decimals by rows", {"x": decimals("1.50", "2.00")}, kept, {"z": [1.5, 2.0]}, feeds(dtype="float64"), verb=tfs.map_rows),
    Expect(
        "decimals for a program that declares float",
        {"x": decimals("1.50")},
        declared("float32"),
        of_type(pa.float32(), 1.5),
        feeds(dtype="float64"),
    ),
    Expect(
        "decimals as ints for a program that declares float",
        {"x": decimals("2.00")},
        declared("float32"),
        of_type(pa.float32(), 2.0),
        feeds(dtype="int32"),
    ),
    Expect(
        "long to uint8", {"x": [0, 255]}, lambda x: {"z": x + tf.constant(1, tf.uint8)}, of_type(pa.uint8(), 1, 0), feeds(dtype="uint8")
    ),
    Expect("long to boolean", {"x": [0, 1]}, lambda x: {"z": ~x}, {"z": [True, False]}, feeds(dtype="bool")),
    Expect("double to boolean", {"x": [0.0, -0.0, 1.0]}, kept, {"z": [False, False, True]}, feeds(dtype=bool)),
    Expect("boolean to float", {"x": [False, True]}, kept, of_type(pa.float32(), 0.0, 1.0), feeds(dtype=np.float32)),
    Expect("double to bfloat16", {"x": [1.1, 3e38]}, kept, of_type(pa.float32(), 1.1015625, 3.00405527047391e38), feeds(dtype=tf.bfloat16)),
    Expect(
        "double to float16", {"x": [1.1, 65504.0]}, kept, of_type(pa.float16(), np.float16(1.1), np.float16(65504)), feeds(dtype="half")
    ),
    Expect("the least long", {"x": [-(2.0**63)]}, kept, {"z": [-(2**63)]}, feeds(dtype="int64")),
    Expect("unsigned to long", {"x": pa.array([2**63 - 1], pa.uint64())}, kept, {"z": [2**63 - 1]}, feeds(dtype=int)),
    Expect("date to long", {"x": [datetime.date(1970, 1, 2)]}, kept, {"z": [1]}, feeds(dtype="int64")),
    Expect("the dtype that it has", {"x": [1.5]}, kept, {"z": [1.5]}, feeds(dtype=float)),
    Expect(
        "arrays",
        {"x": [[1.0, 2.0], [3.0, 4.0]]},
        kept,
        {"z": pa.array([[1, 2], [3, 4]], pa.list_(pa.int8()))},
        feeds(dtype=np.dtype("int8")),
    ),
    Expect(
        "rows of different lengths",
        {"x": [[1.0], [2.0, 3.0]]},
        kept,
        {"z": pa.array([[1], [2, 3]], pa.list_(pa.float32()))},
        feeds(dtype="bfloat16"),
        verb=tfs.map_rows,
    ),
    Expect(
        "a decimal to the nearest float",
        {"x": decimals("1.000000059604644775390625000001", precision=38, scale=30)},
        kept,
        of_type(pa.float32(), 1.0000001192092896),
        feeds(dtype="float32"),
    ),
    Expect(
        "a double to the nearest bfloat16", {"x": [1 + 2**-8 + 2**-40]}, kept, of_type(pa.float32(), 1.0078125), feeds(dtype="bfloat16")
    ),
)
def test_dtype_of_a_table(case: Expect) -> None:
    check_map(case)


# --- Refused by the data ---


def misfit(verb: str, dtype: str, value: Any, row: int) -> str:
    return f"{verb}: input 'x' wants {dtype} but column 'x' holds {value} in row {row} of the block, which {dtype} cannot hold."


FAILURES = [
    ExpectFail(
        "a null beside a feed that skips others",
        {"x": [None, 1, 3], "y": [1, 2, None]},
        lambda x, y: {"z": x + y},
        tfs.NullError,
        "map_blocks: column 'y' holds 1 null, at row 2 of the block, where no null may be; nulls= of tfs.feed says what becomes of them.",
        feeds(nulls="skip"),
    ),
    ExpectFail(
        "a fraction after skipped rows",
        {"x": decimals("100.00", None, "1.50")},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "int32", "1.50", 2),
        feeds(dtype="int32", nulls="skip"),
    ),
    ExpectFail(
        "an operation that fails after skipped rows",
        {"x": [None, 1, 5]},
        lambda x, w: {"z": tf.gather(w, x)},
        tfs.ProgramError,
        lines(
            "map_blocks: the program failed on row 2 of the block: InvalidArgumentError: indices[1] = 5 is not in [0, 2)",
            "  inputs: x ← column 'x', w ← constant float64[2]",
        ),
        {**feeds(nulls="skip"), "w": [10.0, 20.0]},
    ),
    ExpectFail(
        "a row that is too long to be padded",
        {"x": [[1.0], [2.0, 3.0], [1.0, 2.0, 3.0, 4.0]]},
        declared("float64", (None, 3)),
        tfs.ShapeError,
        "map_blocks: column 'x' is padded to 3 elements at level 1 but row 2 of the block holds 4.",
        feeds(pad=0),
    ),
]


@each(*FAILURES)
def test_is_refused_by_the_job(case: ExpectFail, frame: Flavour) -> None:
    if frame.is_costly and case.id != "a fraction after skipped rows":
        pytest.skip("one failure is enough where it costs a worker")
    native = frame.make(case.input)
    frame.check_fails(lambda: case.verb(case.fetches, native, case.feed_dict, **case.options), case.error, case.message)


def null_at(verb: str, where: str, count: str = "1 null, at") -> str:
    return f"{verb}: column 'x' holds {count} {where} of the block, where no null may be; nulls= of tfs.feed says what becomes of them."


NO_SHAPE = lines(
    "{}: column 'x' holds a null array at row 0 of the block, and no other that would tell its length.",
    "  Note the shape: tfs.append_shape(frame, 'x', [None, …]).",
)
UNEVEN_NULL = lines(
    "map_rows: column 'x' holds nulls beside cells of different shapes, so that nothing tells the shape of a null: "
    "column 'x' is no dense block: at level 1, row 0 of the block holds 1 elements and row 2 holds 2; tfs.feed has ragged= and pad= for "
    "such.",
    "  Pass pad= to tfs.feed, or feed the column with ragged=True.",
)


@each(
    ExpectFail("ragged: a null array", {"x": [[1], None, [2]]}, kept, tfs.NullError, null_at("map_blocks", "row 1"), feeds(ragged=True)),
    ExpectFail(
        "ragged: a null inner array",
        {"x": [[[1]], [[2], None], []]},
        kept,
        tfs.NullError,
        null_at("map_blocks", "element 1 of row 1"),
        feeds(ragged=True),
    ),
    ExpectFail(
        "ragged: a null element",
        {"x": [[1], [2, 3, None], []]},
        kept,
        tfs.NullError,
        null_at("map_blocks", "element 2 of row 1"),
        feeds(ragged=True),
    ),
    ExpectFail(
        "ragged: null elements",
        {"x": [[[1, 4], [None]], [[None]]]},
        kept,
        tfs.NullError,
        null_at("map_blocks", "element 2 of row 0", "2 nulls, the first at"),
        feeds(ragged=True),
    ),
    ExpectFail(
        "ragged: an inner dimension that is not the declared one",
        {"x": [[[1, 2]], [], [[2, 3], [4]]]},
        declared_ragged("int64", (None, None, 2), 1),
        tfs.ShapeError,
        "map_blocks: column 'x' wants 2 elements at level 2 but row 2 of the block holds 1.",
    ),
    ExpectFail(
        "ragged: a double that no float holds",
        {"x": [[1.0], [], [2.0, 1e300]]},
        declared_ragged("float32"),
        tfs.DTypeError,
        misfit("map_blocks", "float32", "1e+300", 2),
    ),
    ExpectFail(
        "ragged: too few rows out",
        {"x": [2, 0, 1]},
        lambda x: {"z": tf.ragged.range(x)[:2]},
        tfs.ShapeError,
        lines("map_blocks: output 'z' has 2 rows but the block has 3.", "  With trim=True an output may have any number of rows."),
    ),
    ExpectFail(
        "ragged: another number of rows than a dense output",
        {"x": [2, 0, 1]},
        lambda x: {"z": tf.ragged.range(x)[:2], "y": x},
        tfs.ShapeError,
        lines("map_blocks: the outputs of a block have different numbers of rows.", "  rows: z: 2, y: 3"),
        options={"trim": True},
    ),
    ExpectFail(
        "ragged: bytes out after skipped rows",
        {"x": pa.array([None, [b"a"], None, [b"a", b"\xff"]])},
        kept,
        tfs.DTypeError,
        lines(
            "map_blocks: output 'z' is a string column, but row 3 of the block holds bytes that are not UTF-8.",
            "  Keep the bytes with tfs.program(…, binary=('z',)).",
        ),
        feeds(ragged=True, nulls="skip"),
    ),
    ExpectFail("pad: a null array", {"x": [[1, 2], None]}, kept, tfs.NullError, null_at("map_blocks", "row 1"), feeds(pad=0)),
    ExpectFail(
        "pad: a null element", {"x": [[1], [2, None]]}, kept, tfs.NullError, null_at("map_blocks", "element 1 of row 1"), feeds(pad=0)
    ),
    ExpectFail(
        "pad: an inner list that is too long",
        {"x": [[[1]], [[2], [1, 2, 3]]]},
        declared("int64", (None, 2, 2)),
        tfs.ShapeError,
        "map_blocks: column 'x' is padded to 2 elements at level 2 but row 1 of the block holds 3.",
        feeds(pad=0),
    ),
    ExpectFail(
        "pad: too long after skipped rows",
        {"x": [None, [1], None, [1, 2]]},
        declared("int64", (None, 1)),
        tfs.ShapeError,
        "map_blocks: column 'x' is padded to 1 elements at level 1 but row 3 of the block holds 2.",
        feeds(pad=0, nulls="skip"),
    ),
    ExpectFail(
        "pad: too long by rows",
        {"x": [[1], [1, 2]]},
        declared("int64", (1,)),
        tfs.ShapeError,
        "map_rows: column 'x' is padded to 1 elements at level 1 but row 1 of the block holds 2.",
        feeds(pad=0),
        verb=tfs.map_rows,
    ),
    ExpectFail(
        "sparse: a null element",
        {"x": [[1.0, None], [0.0, 2.0]]},
        entries,
        tfs.NullError,
        null_at("map_blocks", "element 1 of row 0"),
        feeds(sparse=True),
    ),
    ExpectFail(
        "sparse: arrays of different lengths",
        {"x": [[1.0, 0.0], [0.0]]},
        entries,
        tfs.ShapeError,
        "map_blocks: column 'x' is no dense block: at level 1, row 0 of the block holds 2 elements and row 1 holds 1;"
        " tfs.feed has ragged= and pad= for such.",
        feeds(sparse=True),
    ),
    ExpectFail(
        "sparse: vectors of different sizes",
        {"x": vectors(dense_vector(1), sparse_vector(3, {}))},
        entries,
        tfs.ShapeError,
        "map_blocks: column 'x' wants 1 elements at level 1 but row 1 of the block holds 3.",
        feeds(sparse=True),
    ),
    ExpectFail(
        "sparse: an entry that does not fit",
        {"x": vectors(None, dense_vector(1), sparse_vector(1, {0: 2.5}))},
        entries,
        tfs.DTypeError,
        misfit("map_blocks", "int32", "2.5", 2),
        feeds(sparse=True, dtype="int32", nulls="skip"),
    ),
    ExpectFail(
        "vectors: of different sizes",
        {"x": vectors(dense_vector(1), None, sparse_vector(3, {}))},
        kept,
        tfs.ShapeError,
        "map_blocks: column 'x' is no dense block: at level 1, row 0 of the block holds 1 elements and row 2 holds 3;"
        " tfs.feed has ragged= and pad= for such.",
        feeds(nulls="skip"),
    ),
    ExpectFail("vectors: a null", {"x": vectors(dense_vector(1), None)}, kept, tfs.NullError, null_at("map_blocks", "row 1")),
    ExpectFail(
        "vectors: a null in a sparse tensor",
        {"x": vectors(dense_vector(1), None)},
        entries,
        tfs.NullError,
        null_at("map_blocks", "row 1"),
        feeds(sparse=True),
    ),
    ExpectFail(
        "nulls: arrays only", {"x": pa.nulls(2, pa.list_(pa.float64()))}, kept, tfs.NullError, NO_SHAPE.format("map_blocks"), feeds(nulls=0)
    ),
    ExpectFail(
        "nulls: arrays only, masked, by rows",
        {"x": pa.nulls(2, pa.list_(pa.float64()))},
        with_mask,
        tfs.NullError,
        NO_SHAPE.format("map_rows"),
        feeds(nulls="mask"),
        verb=tfs.map_rows,
    ),
    ExpectFail(
        "nulls: an array beside others of different lengths",
        {"x": [[1], None, [2, 3]]},
        kept,
        tfs.ShapeError,
        "map_blocks: column 'x' is no dense block: at level 1, row 0 of the block holds 1 elements and row 2 holds 2;"
        " tfs.feed has ragged= and pad= for such.",
        feeds(nulls=0),
    ),
    ExpectFail(
        "nulls: an array beside rows of different lengths",
        {"x": [[1], None, [2, 3]]},
        kept,
        tfs.NullError,
        UNEVEN_NULL,
        feeds(nulls=0),
        verb=tfs.map_rows,
    ),
    ExpectFail(
        "nulls: lengths differ after skipped rows",
        {"x": [None, [1], None, [2, 3]]},
        kept,
        tfs.ShapeError,
        "map_blocks: column 'x' is no dense block: at level 1, row 1 of the block holds 1 elements and row 3 holds 2;"
        " tfs.feed has ragged= and pad= for such.",
        feeds(nulls="skip"),
    ),
    ExpectFail(
        "nulls: by rows, a failure after skipped ones",
        {"x": [None, 1, None, 5]},
        lambda x, w: {"z": tf.gather(w, x)},
        tfs.ProgramError,
        lines(
            "map_rows: the program failed on row 3 of the block: InvalidArgumentError: indices[1] = 5 is not in [0, 2)",
            "  inputs: x ← column 'x', w ← constant float64[2]",
        ),
        {**feeds(nulls="skip"), "w": [1.0, 2.0]},
        verb=tfs.map_rows,
    ),
    ExpectFail("dtype: NaN", {"x": [1.0, NAN]}, kept, tfs.DTypeError, misfit("map_blocks", "int32", "nan", 1), feeds(dtype="int32")),
    ExpectFail("dtype: infinity", {"x": [INF]}, kept, tfs.DTypeError, misfit("map_blocks", "int64", "inf", 0), feeds(dtype="int64")),
    ExpectFail("dtype: a fraction", {"x": [1.0, 2.5]}, kept, tfs.DTypeError, misfit("map_blocks", "int64", "2.5", 1), feeds(dtype="int64")),
    ExpectFail(
        "dtype: 2**63",
        {"x": [2.0**63]},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "int64", "9.223372036854776e+18", 0),
        feeds(dtype="int64"),
    ),
    ExpectFail(
        "dtype: a long for int",
        {"x": [0, 2**31]},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "int32", "2147483648", 1),
        feeds(dtype="int32"),
    ),
    ExpectFail(
        "dtype: 256 for uint8", {"x": [255, 256]}, kept, tfs.DTypeError, misfit("map_blocks", "uint8", "256", 1), feeds(dtype="uint8")
    ),
    ExpectFail(
        "dtype: a negative for uint64", {"x": [-1]}, kept, tfs.DTypeError, misfit("map_blocks", "uint64", "-1", 0), feeds(dtype="uint64")
    ),
    ExpectFail(
        "dtype: 2**63 of unsigned",
        {"x": pa.array([2**63], pa.uint64())},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "int64", 2**63, 0),
        feeds(dtype="int64"),
    ),
    ExpectFail("dtype: two for a boolean", {"x": [1, 2]}, kept, tfs.DTypeError, misfit("map_blocks", "bool", "2", 1), feeds(dtype="bool")),
    ExpectFail(
        "dtype: a fraction for a boolean", {"x": [0.5]}, kept, tfs.DTypeError, misfit("map_blocks", "bool", "0.5", 0), feeds(dtype="bool")
    ),
    ExpectFail(
        "dtype: a double that no float holds",
        {"x": [1.0, 1e39]},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "float32", "1e+39", 1),
        feeds(dtype="float32"),
    ),
    ExpectFail(
        "dtype: a double that no bfloat16 holds",
        {"x": [3.4e38]},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "bfloat16", "3.4e+38", 0),
        feeds(dtype="bfloat16"),
    ),
    ExpectFail(
        "dtype: a long that no float16 holds",
        {"x": [65504, 70000]},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "float16", "70000", 1),
        feeds(dtype="float16"),
    ),
    ExpectFail(
        "dtype: of arrays",
        {"x": [[1.0, 2.0], [3.0, 4.5]]},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "int32", "4.5", 1),
        feeds(dtype="int32"),
    ),
    ExpectFail(
        "dtype: of ragged arrays",
        {"x": [[1.0], [], [3.0, 4.5]]},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "int32", "4.5", 2),
        feeds(dtype="int32", ragged=True),
    ),
    ExpectFail(
        "dtype: of padded arrays",
        {"x": [[1.0], [], [3.0, 4.5]]},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "int32", "4.5", 2),
        feeds(dtype="int32", pad=0),
    ),
    ExpectFail(
        "dtype: of rows of different lengths",
        {"x": [[1.0], [], [3.0, 4.5]]},
        kept,
        tfs.DTypeError,
        misfit("map_rows", "int32", "4.5", 2),
        feeds(dtype="int32"),
        verb=tfs.map_rows,
    ),
    ExpectFail(
        "dtype: beside a null that is replaced",
        {"x": [[1.0], None, [4.5]]},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "int32", "4.5", 2),
        feeds(dtype="int32", nulls=0),
    ),
    ExpectFail(
        "decimals: a null", {"x": decimals("1.00", None)}, kept, tfs.NullError, null_at("map_blocks", "row 1"), feeds(dtype="float64")
    ),
    ExpectFail(
        "decimals: a fraction for an integer",
        {"x": decimals("1.00", "1.50")},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "int64", "1.50", 1),
        feeds(dtype="int64"),
    ),
    ExpectFail(
        "decimals: too large",
        {"x": decimals("1", str(2**63), precision=38, scale=0)},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "int64", 2**63, 1),
        feeds(dtype="int64"),
    ),
    ExpectFail(
        "decimals: 128 for int8",
        {"x": decimals("127.00", "128.00")},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "int8", "128", 1),
        feeds(dtype="int8"),
    ),
    ExpectFail(
        "decimals: a negative for uint8",
        {"x": decimals("1.00", "-1.00")},
        kept,
        tfs.DTypeError,
        misfit("map_blocks", "uint8", "-1.00", 1),
        feeds(dtype="uint8"),
    ),
)
def test_is_refused_by_the_data(case: ExpectFail) -> None:
    check_refuses(case)


# --- Refused at the call; a lazy frame shows that it is not the data's doing ---


def at_the_call(case: ExpectFail) -> None:
    lazy = pa.table(dict(case.input)).to_reader()
    check_refused(lambda: case.verb(case.fetches, lazy, case.feed_dict, **case.options), case.error, case.message)


@each(
    ExpectFail(
        "a scalar padded",
        {"x": [1.0]},
        kept,
        tfs.ShapeError,
        "map_blocks: input 'x' is to be padded, but the cells of column 'x' are scalars.",
        feeds(pad=0),
    ),
    ExpectFail(
        "a ragged scalar",
        {"x": [1.0]},
        kept,
        tfs.ShapeError,
        "map_rows: input 'x' is to be ragged, but the cells of column 'x' are scalars.",
        feeds(ragged=True),
        verb=tfs.map_rows,
    ),
    ExpectFail(
        "a scalar for a program that declares a ragged input",
        {"x": [1.0]},
        declared_ragged("float64"),
        tfs.ShapeError,
        "map_blocks: input 'x' is to be ragged, but the cells of column 'x' are scalars.",
    ),
    ExpectFail(
        "a sparse scalar",
        {"x": [1.0]},
        entries,
        tfs.ShapeError,
        "map_blocks: input 'x' is to be sparse, but column 'x' holds float64[?].",
        feeds(sparse=True),
    ),
    ExpectFail(
        "sparse strings",
        {"x": [["a"]]},
        entries,
        tfs.ShapeError,
        "map_blocks: input 'x' is to be sparse, but column 'x' holds string[?, ?].",
        feeds(sparse=True),
    ),
    ExpectFail(
        "no input for the mask",
        {"x": [1.0]},
        kept,
        tfs.ProgramError,
        lines(
            "map_blocks: the feed of input 'x' has nulls='mask', but the program has no input 'x_mask' for the mask.",
            "  inputs:  x",
            "  columns: x: float64[?]",
        ),
        feeds(nulls="mask"),
    ),
    ExpectFail(
        "a mask that is to be a number",
        {"x": [1.0]},
        tfs.program(with_mask, signature={"x": tf.TensorSpec([None], tf.float64), "x_mask": tf.TensorSpec([None], tf.float64)}),
        tfs.DTypeError,
        "map_blocks: input 'x_mask' wants float64[?] but the mask of input 'x' is bool[?].",
        feeds(nulls="mask"),
    ),
    ExpectFail(
        "a mask of another shape",
        {"x": [1.0]},
        tfs.program(with_mask, signature={"x": tf.TensorSpec([None], tf.float64), "x_mask": tf.TensorSpec([None, 1], tf.bool)}),
        tfs.DTypeError,
        "map_blocks: input 'x_mask' wants bool[?, 1] but the mask of input 'x' is bool[?].",
        feeds(nulls="mask"),
    ),
    ExpectFail(
        "a fraction for the nulls of a long",
        {"x": [1]},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is int64, of which nulls=1.5 is none.",
        feeds(nulls=1.5),
    ),
    ExpectFail(
        "NaN for the nulls of a long",
        {"x": [1]},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is int64, of which nulls=nan is none.",
        feeds(nulls=NAN),
    ),
    ExpectFail(
        "text for the nulls of a number",
        {"x": [1]},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is int64, of which nulls=b'a' is none; the policies are 'error', 'skip' and 'mask'.",
        feeds(nulls="a"),
    ),
    ExpectFail(
        "a number for the nulls of text",
        {"x": ["a"]},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is string, of which nulls=0 is none.",
        feeds(nulls=0),
    ),
    ExpectFail(
        "two for the nulls of a boolean",
        {"x": [True]},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is bool, of which nulls=2 is none.",
        feeds(nulls=2),
    ),
    ExpectFail(
        "128 for the nulls of int8",
        {"x": pa.array([1], pa.int8())},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is int8, of which nulls=128 is none.",
        feeds(nulls=128),
    ),
    ExpectFail(
        "-1 for the nulls of uint64",
        {"x": pa.array([1], pa.uint64())},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is uint64, of which nulls=-1 is none.",
        feeds(nulls=-1),
    ),
    ExpectFail(
        "1e300 for the nulls of a float",
        {"x": pa.array([1], pa.float32())},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is float32, of which nulls=1e+300 is none.",
        feeds(nulls=1e300),
    ),
    ExpectFail(
        "a complex number for the nulls of a double",
        {"x": [1.0]},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is float64, of which nulls=1j is none.",
        feeds(nulls=1j),
    ),
    ExpectFail(
        "a fraction for the nulls of what is cast to int",
        {"x": [1.0]},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is int32, of which nulls=0.5 is none.",
        feeds(nulls=0.5, dtype="int32"),
    ),
    ExpectFail(
        "a fraction to pad longs",
        {"x": [[1]]},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is int64, of which pad=0.5 is none.",
        feeds(pad=0.5),
    ),
    ExpectFail(
        "a number to pad text",
        {"x": [["a"]]},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is string, of which pad=0 is none.",
        feeds(pad=0),
    ),
    ExpectFail(
        "text cast to a number",
        {"x": ["1"]},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is to be float32, but column 'x' holds string, which is not cast.",
        feeds(dtype="float32"),
    ),
    ExpectFail(
        "a number cast to text",
        {"x": [1]},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is to be string, but column 'x' holds int64, which is not cast.",
        feeds(dtype="string"),
    ),
    ExpectFail(
        "decimals cast to text",
        {"x": decimals("1.00")},
        kept,
        tfs.DTypeError,
        "map_blocks: input 'x' is to be string, but column 'x' holds decimal(5,2), which is not cast.",
        feeds(dtype="string"),
    ),
    ExpectFail(
        "decimals without a dtype",
        {"x": pa.array([[Decimal("1.00")]])},
        kept,
        tfs.DTypeError,
        lines(
            "map_blocks: input 'x' reads column 'x', whose type array no tensor holds.",
            "  Say which number it becomes: feed_dict={'x': tfs.feed('x', dtype='float64')}.",
        ),
    ),
    ExpectFail(
        "a ragged feed for a dense input",
        {"x": [[1.0]]},
        declared("float64", (None, None)),
        tfs.ShapeError,
        lines(
            "map_blocks: input 'x' wants float64[?, ?] but column 'x' holds ragged float64[?, ?].",
            "  inputs:  x: float64[?, ?]",
            "  columns: x: float64[?, ?]",
            "  The program declares a dense input; leave out what asks for another one.",
        ),
        feeds(ragged=True),
    ),
    ExpectFail(
        "a sparse feed for a dense input",
        {"x": [[1.0]]},
        declared("float64", (None, None)),
        tfs.ShapeError,
        lines(
            "map_blocks: input 'x' wants float64[?, ?] but column 'x' holds sparse float64[?, ?].",
            "  inputs:  x: float64[?, ?]",
            "  columns: x: float64[?, ?]",
            "  The program declares a dense input; leave out what asks for another one.",
        ),
        feeds(sparse=True),
    ),
    ExpectFail(
        "a padded feed for a ragged input",
        {"x": [[1.0]]},
        declared_ragged("float64"),
        tfs.ShapeError,
        lines(
            "map_blocks: input 'x' wants ragged float64[?, ?] but column 'x' holds float64[?, ?].",
            "  inputs:  x: ragged float64[?, ?]",
            "  columns: x: float64[?, ?]",
            "  The program declares a ragged input; leave out what asks for another one.",
        ),
        feeds(pad=0),
    ),
    ExpectFail(
        "a declared ragged input of another rank",
        {"x": [[[1.0]]]},
        declared_ragged("float64"),
        tfs.ShapeError,
        lines(
            "map_blocks: input 'x' wants ragged float64[?, ?] but column 'x' holds ragged float64[?, ?, ?].",
            "  inputs:  x: ragged float64[?, ?]",
            "  columns: x: float64[?, ?, ?]",
            "  The program takes one row; map_rows maps it over rows.",
        ),
    ),
    ExpectFail(
        "a narrowed column that the program does not take",
        {"x": [1.0]},
        declared("int32"),
        tfs.DTypeError,
        lines(
            "map_blocks: input 'x' wants int32[?] but column 'x' holds int64[?].",
            "  inputs:  x: int32[?]",
            "  columns: x: float64[?]",
            "  Cast the column, or feed another one with feed_dict={'x': …}.",
        ),
        feeds(dtype="int64"),
    ),
    ExpectFail(
        "a sparse output",
        {"x": [[1.0]]},
        kept,
        tfs.ProgramError,
        "map_blocks: the function 'kept' gives output 'z' as a SparseTensor, but a dense or ragged tensor is wanted.",
        feeds(sparse=True),
    ),
    ExpectFail(
        "scalars as vectors",
        {"x": [1.0]},
        as_vectors("float64", (None,)),
        tfs.ShapeError,
        "map_blocks: vector= names output 'z', which is float64[?], but dense cells of one or two dimensions are wanted.",
    ),
    ExpectFail(
        "booleans as vectors",
        {"x": [[True]]},
        as_vectors("bool"),
        tfs.DTypeError,
        "map_blocks: vector= names output 'z', which is bool[?, ?], but numbers that float64 holds are wanted.",
    ),
    ExpectFail(
        "longs as vectors",
        {"x": [[1]]},
        as_vectors("int64"),
        tfs.DTypeError,
        "map_blocks: vector= names output 'z', which is int64[?, ?], but numbers that float64 holds are wanted.",
    ),
    ExpectFail(
        "text as vectors",
        {"x": [["a"]]},
        as_vectors("string"),
        tfs.DTypeError,
        "map_blocks: vector= names output 'z', which is string[?, ?], but numbers that float64 holds are wanted.",
    ),
    ExpectFail(
        "ragged vectors",
        {"x": [[1.0]]},
        tfs.program(kept, signature={"x": tf.RaggedTensorSpec([None, None], tf.float64)}, vector="z"),
        tfs.ShapeError,
        "map_blocks: vector= names output 'z', which is ragged float64[?, ?], but dense cells of one or two dimensions are wanted.",
    ),
    ExpectFail(
        "a ragged feed for a sparse input",
        {"x": [[1.0]]},
        tf.function(entries, input_signature=[tf.SparseTensorSpec([None, None], tf.float64)]),
        tfs.ShapeError,
        lines(
            "map_blocks: input 'x' wants sparse float64[?, ?] but column 'x' holds ragged float64[?, ?].",
            "  inputs:  x: sparse float64[?, ?]",
            "  columns: x: float64[?, ?]",
            "  The program declares a sparse input; leave out what asks for another one.",
        ),
        feeds(ragged=True),
    ),
)
def test_is_refused_at_the_call(case: ExpectFail) -> None:
    at_the_call(case)


def test_vectors_of_an_output_that_is_not_there() -> None:
    check_refused(
        lambda: tfs.program(kept, signature={"x": tf.TensorSpec([None, 1], tf.float64)}, vector="y"),
        tfs.ProgramError,
        "program: vector= names outputs that the program does not have: ['y'].\n  outputs: z",
    )


def one_or_the_other(first: str, second: str) -> str:
    return f"feed: the feed of column 'x' has {first} and {second}, but an input is one or the other."


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ragged": True, "pad": 0}, tfs.ProgramError, one_or_the_other("ragged=True", "pad=")),
        ({"ragged": True, "sparse": True}, tfs.ProgramError, one_or_the_other("ragged=True", "sparse=True")),
        ({"pad": "", "sparse": True}, tfs.ProgramError, one_or_the_other("pad=", "sparse=True")),
        (
            {"sparse": True, "nulls": "mask"},
            tfs.ProgramError,
            "feed: the feed of column 'x' has sparse=True and nulls='mask', but a mask is dense.",
        ),
        *(
            ({"dtype": dtype}, tfs.DTypeError, f"feed: the feed of column 'x' has dtype={dtype!r}, but a dtype of TensorFlow's is wanted.")
            for dtype in ("nope", "", "str", "datetime64", "resource", object, str, tf.qint8, 3, pa.float32())
        ),
        *(
            (
                {option: value},
                tfs.DTypeError,
                f"feed: the feed of column 'x' has {option}={value!r}, but a number, a boolean, a text or bytes are wanted.",
            )
            for option, value in (("nulls", None), ("nulls", [1]), ("pad", [1]), ("pad", np.array([1, 2])), ("pad", datetime.date.min))
        ),
    ],
)
def test_options_that_no_feed_has(options: dict[str, Any], error: type[Exception], message: str) -> None:
    check_refused(lambda: tfs.feed("x", **options), error, message)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("float", "float64"),
        ("double", "float64"),
        ("half", "float16"),
        ("f4", "float32"),
        (tf.int8, "int8"),
        (np.uint16, "uint16"),
        (int, "int64"),
    ],
)
def test_names_of_dtypes(dtype: Any, name: str) -> None:
    assert tfs.feed("x", dtype=dtype).dtype == name


# --- Known faults of map_rows ---


@each(
    Expect("null elements", {"x": [[1, None], [2]]}, kept, {"z": [[1, 7], [2]]}, feeds(nulls=7), verb=tfs.map_rows),
    Expect(
        "null elements, masked",
        {"x": [[1, None], [2]]},
        with_mask,
        {"z": [[1, 0], [2]], "m": [[True, False], [True]]},
        feeds(nulls="mask"),
        verb=tfs.map_rows,
    ),
    Expect("ragged rows", {"x": [[1, None], None, [2]]}, kept, {"z": [[1, 7], [], [2]]}, feeds(nulls=7, ragged=True), verb=tfs.map_rows),
    Expect(
        "ragged rows, masked",
        {"x": [[1, None], None, [2]]},
        with_mask,
        {"z": [[1, 0], [], [2]], "m": [[True, False], [], [True]]},
        feeds(nulls="mask", ragged=True),
        verb=tfs.map_rows,
    ),
    Expect(
        "an empty row where the inner size is declared",
        {"x": [[[1, 2]], [], [[3, 4]]]},
        tf.function(lambda x: {"z": tf.reduce_sum(x, 0)}, input_signature=[tf.TensorSpec([None, 2], tf.int64)]),
        {"z": [[1, 2], [0, 0], [3, 4]]},
        verb=tfs.map_rows,
    ),
)
def test_rows_of_different_shapes(case: Expect) -> None:
    check_map(case)


def test_ragged_rows_of_a_uniform_inner_dimension() -> None:
    table = tfs.append_shape(pa.table({"x": [[[1, 2]], [[3, 4], [5, 6]]]}), "x", [None, None, 2])
    held = tfs.map_rows(lambda x: {"z": tf.reduce_sum(x, 0)}, table, feeds(ragged=True))
    assert held["z"].to_pylist() == [[1, 2], [8, 10]]


# --- Spark's own vectors and matrices ---


def spark_rows(df: Any, *names: str) -> list[Any]:
    return [tuple(row[name] for name in names) for row in sorted(df.collect(), key=lambda row: row["id"])]


def test_vector_columns_of_spark(spark: Any) -> None:
    from pyspark.ml.linalg import Vectors

    cells = [Vectors.dense(1, 0, 3), Vectors.sparse(3, {1: 5.0}), Vectors.dense(0, 0, 0), Vectors.sparse(3, [0, 2], [0.0, 2.0])]
    df = spark.createDataFrame(list(enumerate(cells)), ["id", "x"]).coalesce(1)
    assert spark_rows(tfs.map_blocks(kept, df), "z") == [(cell,) for cell in MIXED_ROWS]
    sparse = tfs.map_blocks(lambda x: {"z": tf.reduce_sum(tf.sparse.to_dense(x), axis=1)}, df, feeds(sparse=True))
    assert spark_rows(sparse, "z", "x") == [(sum(row), cell) for row, cell in zip(MIXED_ROWS, cells, strict=True)]


def test_null_vectors_of_spark(spark: Any) -> None:
    from pyspark.ml.linalg import Vectors, VectorUDT

    rows = [(0, None), (1, Vectors.dense(1, 2)), (2, Vectors.sparse(2, {0: 4.0})), (3, None)]
    schema = _spark_schema(VectorUDT())
    df = spark.createDataFrame(rows, schema).coalesce(1)
    assert spark_rows(tfs.map_blocks(kept, df, feeds(nulls="skip")), "z") == [(None,), ([1.0, 2.0],), ([4.0, 0.0],), (None,)]


def _spark_schema(udt: Any) -> Any:
    from pyspark.sql.types import LongType, StructField, StructType

    return StructType([StructField("id", LongType()), StructField("x", udt)])


def test_a_stage_of_spark_takes_vectors_that_a_program_gave(spark: Any) -> None:
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.linalg import Vectors, VectorUDT

    df = spark.createDataFrame([(0, [1.0, 2.0], 5.0), (1, [3.0, 4.0], 6.0)], ["id", "x", "y"])
    program = tfs.program(lambda x: {"z": 2 * x}, frame=df, vector="z")
    mapped = tfs.map_blocks(program, df)
    assert mapped.schema["z"].dataType == VectorUDT()
    assembled = VectorAssembler(inputCols=["z", "y"], outputCol="all").transform(mapped)
    assert spark_rows(assembled, "all") == [(Vectors.dense(2, 4, 5),), (Vectors.dense(6, 8, 6),)]


def test_matrix_columns_of_spark(spark: Any) -> None:
    from pyspark.ml.linalg import DenseMatrix, Matrices, MatrixUDT

    rows = [(0, Matrices.dense(2, 3, [1, 2, 3, 4, 5, 6])), (1, Matrices.sparse(2, 3, [0, 1, 1, 1], [1], [7.0])), (2, None)]
    df = spark.createDataFrame(rows, _spark_schema(MatrixUDT())).coalesce(1)
    program = tfs.program(lambda x: {"z": tf.transpose(x, [0, 2, 1]), "s": tf.reduce_sum(x, [1, 2])}, frame=df, vector="z")
    mapped = tfs.map_blocks(program, df, feeds(nulls="skip"))
    assert mapped.schema["z"].dataType == MatrixUDT()
    first, second, third = spark_rows(mapped, "z", "s")
    assert first == (DenseMatrix(3, 2, [1, 3, 5, 2, 4, 6]), 21.0)
    assert second == (DenseMatrix(3, 2, [0, 0, 0, 7, 0, 0]), 7.0)
    assert third == (None, None)
