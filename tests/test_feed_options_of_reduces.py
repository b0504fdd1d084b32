"""What a feed's options do in reduce_blocks, reduce_rows and aggregate; the answer does not depend on where blocks begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
from expectations import check_refused, check_same
from flavours import Columns, Flavour, as_table, check_same_table, plain
from verbs import ReduceExpect as Expect
from verbs import ReduceExpectFail as ExpectFail
from verbs import each, run

import tensorframes as tfs
from tensorframes import combine as combine_room
from tensorframes.columns import VECTOR

# Ragged and sparse cells, and joined text, are not vectorized, which warns, once for each program.
pytestmark = pytest.mark.filterwarnings("ignore:(aggregate|reduce_rows). TensorFlow cannot vectorize:UserWarning")

GAPS = {"x": [1, None, 3, None, None, None, 7]}  # the second batch of three holds only nulls
UNEVEN = {"x": [[1], [2, 3], [], [4, 5, 6], [7]]}


READ_EVERYWHERE = {
    "skipped by blocks",
    "masked by rows",
    "padded by blocks",
    "skipped, a key without rows is null",
    "ragged, sizes",
}


def check_value(held: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        assert [*held] == [*wanted]
        for key in wanted:
            check_same(held[key], wanted[key])
    else:
        check_same(held, wanted)


def check_reduces(case: Expect) -> None:
    """Check a table that is one block, and blocks of one and two rows."""
    for block_rows in (None, 1, 2):
        check_value(run(case, pa.table(dict(case.input)), block_rows=block_rows), case.output)


def lines(*text: str) -> str:
    return "\n".join(text)


def feeds(**options: Any) -> dict[str, Any]:
    """Feed what is named x from the column x."""
    return {"x": tfs.feed("x", **options)}


def number(value: float, dtype: str = "int64") -> Any:
    return np.dtype(dtype).type(value)


def array(cells: Any, dtype: str = "int64") -> np.ndarray:
    return np.array(cells, dtype)


def texts(*cells: str) -> np.ndarray:
    return np.array(cells, dtype=object)


def total(x):
    return tf.reduce_sum(x, 0)


def added(x_1, x_2):
    return {"x": x_1 + x_2}


def joined(x_1, x_2):
    return {"x": tf.concat([x_1, x_2], 0)}


def flat(x):
    return {"x": x.values}


def counting_nulls(x, x_mask):
    """Count each null as 100."""
    return {"x": tf.reduce_sum(tf.where(x_mask, x, tf.constant(100, x.dtype)), 0)}


def counting_null_pairs(x_1, x_2, x_1_mask, x_2_mask):
    hundred = tf.constant(100, x_1.dtype)
    return {"x": tf.where(x_1_mask, x_1, hundred) + tf.where(x_2_mask, x_2, hundred)}


@each(
    Expect("skipped by blocks", GAPS, total, number(11), feeds(nulls="skip")),
    Expect("skipped by rows", GAPS, added, {"x": number(11)}, feeds(nulls="skip"), verb=tfs.reduce_rows),
    Expect("replaced by blocks", GAPS, total, number(51), feeds(nulls=10)),
    Expect("replaced by rows", GAPS, added, {"x": number(51)}, feeds(nulls=10), verb=tfs.reduce_rows),
    Expect("masked by blocks", GAPS, counting_nulls, {"x": number(411)}, feeds(nulls="mask")),
    Expect("masked by rows", GAPS, counting_null_pairs, {"x": number(411)}, feeds(nulls="mask"), verb=tfs.reduce_rows),
    Expect("the last batch skipped", {"x": [1, 2, 3, None, None]}, total, number(6), feeds(nulls="skip")),
    Expect(
        "text masked",
        {"x": ["a", None, "c"]},
        lambda x, x_mask: {"x": tf.strings.reduce_join(tf.where(x_mask, x, "?"), 0)},
        {"x": "a?c"},
        feeds(nulls="mask"),
    ),
    Expect("ragged by rows", UNEVEN, joined, {"x": array([1, 2, 3, 4, 5, 6, 7])}, feeds(ragged=True), verb=tfs.reduce_rows),
    Expect("padded by blocks", UNEVEN, total, array([14, 8, 6]), feeds(pad=0)),
    Expect("padded by rows", UNEVEN, added, {"x": array([14, 8, 6])}, feeds(pad=0), verb=tfs.reduce_rows),
    Expect("cast", {"x": [1, 2, 3, 4]}, total, number(10, "int32"), feeds(dtype="int32")),
)
def test_of_every_frame(case: Expect, frame: Flavour) -> None:
    if frame.is_costly and case.id not in READ_EVERYWHERE:
        pytest.skip("a few are enough where reading is costly")
    check_value(run(case, frame.make(case.input)), case.output)


def by_blocks_of_ragged(x):
    return {"x": tf.reduce_sum(x, 0)}


def decimals(*cells: str | None) -> pa.Array:
    return pa.array([None if cell is None else Decimal(cell) for cell in cells], pa.decimal128(5, 2))


VECTORS = pa.array(
    [
        {"type": 1, "size": None, "indices": None, "values": [1.0, 0.0, 3.0]},
        {"type": 0, "size": 3, "indices": [1], "values": [5.0]},
        None,
        {"type": 0, "size": 3, "indices": [0, 2], "values": [0.0, 2.0]},
    ],
    VECTOR,
)
PADDED_TO_THREE = {"x": tf.TensorSpec([None, 3], tf.int64)}


@each(
    Expect("skipped by blocks", GAPS, total, number(11), feeds(nulls="skip")),
    Expect("skipped by rows", GAPS, added, {"x": number(11)}, feeds(nulls="skip"), verb=tfs.reduce_rows),
    Expect("arrays skipped", {"x": [[1, 2], None, [None, 3], [5, 6]]}, total, array([6, 8]), feeds(nulls="skip")),
    Expect("arrays replaced", {"x": [[1, 2], [None, 3]]}, total, array([11, 5]), feeds(nulls=10)),
    Expect("arrays masked", {"x": [[1, None], [2, 3]]}, counting_nulls, {"x": array([3, 103])}, feeds(nulls="mask")),
    Expect(
        "arrays masked by rows",
        {"x": [[1, None], [2, 3], [None, 4]]},
        counting_null_pairs,
        {"x": array([103, 107])},
        feeds(nulls="mask"),
        verb=tfs.reduce_rows,
    ),
    Expect(
        "a null that is left over", {"x": [1, 2, None]}, counting_null_pairs, {"x": number(103)}, feeds(nulls="mask"), verb=tfs.reduce_rows
    ),
    Expect(
        "a mask of an input x_input",
        {"x": [1, None]},
        lambda x_input, x_input_mask: {"x": counting_nulls(x_input, x_input_mask)["x"]},
        {"x": number(101)},
        feeds(nulls="mask"),
    ),
    Expect(
        "masks of two inputs of any names",
        {"x": [1, None, 3]},
        lambda a, b, a_mask, b_mask: counting_null_pairs(a, b, a_mask, b_mask)["x"],
        number(104),
        {"a": tfs.feed("x", nulls="mask")},
        verb=tfs.reduce_rows,
    ),
    Expect(
        "two columns that skip",
        {"x": [1, None, 4, 8], "y": [None, 2, 8, 16]},
        lambda x, y: {"x": tf.reduce_sum(x, 0), "y": tf.reduce_max(y, 0)},
        {"x": number(12), "y": number(16)},
        {**feeds(nulls="skip"), "y": tfs.feed("y", nulls="skip")},
    ),
    Expect(
        "a null where another feed skips",
        {"x": [1, None, 4], "y": [1, None, 8]},
        lambda x, y: {"x": tf.reduce_sum(x, 0), "y": tf.reduce_sum(y, 0)},
        {"x": number(5), "y": number(9)},
        feeds(nulls="skip"),
    ),
    Expect("ragged by blocks", UNEVEN, flat, {"x": array([1, 2, 3, 4, 5, 6, 7])}, feeds(ragged=True)),
    Expect("ragged, longer ones win", {"x": [[1], [2, 3], []]}, by_blocks_of_ragged, {"x": array([3, 3])}, feeds(ragged=True)),
    Expect("ragged strings", {"x": [["a"], ["é", "c"], []]}, joined, {"x": texts("a", "é", "c")}, feeds(ragged=True), verb=tfs.reduce_rows),
    Expect("ragged, nothing but empty lists", {"x": pa.array([[], []], pa.list_(pa.int64()))}, flat, {"x": array([])}, feeds(ragged=True)),
    Expect(
        "ragged, nulls replaced",
        {"x": [[1, None], None, [3]]},
        joined,
        {"x": array([1, 0, 3])},
        feeds(ragged=True, nulls=0),
        verb=tfs.reduce_rows,
    ),
    Expect("ragged, nulls skipped", {"x": [[1, None], None, [3], [4, 5]]}, flat, {"x": array([3, 4, 5])}, feeds(ragged=True, nulls="skip")),
    Expect(
        "ragged, nulls masked",
        {"x": [[1, None], None, [3]]},
        lambda x, x_mask: {"x": tf.boolean_mask(x.values, x_mask.values)},
        {"x": array([1, 3])},
        feeds(ragged=True, nulls="mask"),
    ),
    Expect(
        "two ragged dimensions, a rectangle in the end",
        {"x": [[[1, 2]], [], [[3, 4], [5, 6]]]},
        flat,
        {"x": array([[1, 2], [3, 4], [5, 6]])},
        feeds(ragged=True),
    ),
    Expect(
        "a declared ragged input",
        UNEVEN,
        tf.function(flat, input_signature=[tf.RaggedTensorSpec([None, None], tf.int64)]),
        {"x": array([1, 2, 3, 4, 5, 6, 7])},
    ),
    Expect("padded matrices", {"x": [[[1, 2]], [], [[3], [5]]]}, added, {"x": array([[4, 2], [5, 0]])}, feeds(pad=0), verb=tfs.reduce_rows),
    Expect("padded by the least", {"x": [[-5], [-7, -3]]}, lambda x: tf.reduce_max(x, 0), array([-5, -3]), feeds(pad=-(2**63))),
    Expect("padded text", {"x": [["a"], ["b", "c"], []]}, lambda x: tf.strings.reduce_join(x, 0), texts("ab-", "-c-"), feeds(pad="-")),
    Expect(
        "padded to a declared size",
        {"x": [[1], [2, 3]]},
        tf.function(lambda x: {"x": total(x)}, input_signature=[PADDED_TO_THREE["x"]]),
        {"x": array([3, 3, 0])},
        feeds(pad=0),
    ),
    Expect(
        "padded and masked",
        {"x": [[1, None], [3, 4]]},
        lambda x, x_mask: {"x": tf.reduce_sum(tf.where(x_mask, x, 0), 0)},
        {"x": array([4, 4])},
        feeds(pad=9, nulls="mask"),
    ),
    Expect("sparse", {"x": [[1, 0], [2, 3]]}, lambda x: {"x": tf.sparse.reduce_sum(x, 0)}, {"x": array([3, 3])}, feeds(sparse=True)),
    Expect(
        "sparse by rows",
        {"x": [[1, 0], [2, 3], [4, 5]]},
        lambda x_1, x_2: {"x": tf.sparse.to_dense(tf.sparse.add(x_1, x_2))},
        {"x": array([7, 8])},
        feeds(sparse=True),
        verb=tfs.reduce_rows,
    ),
    Expect("vectors", {"x": VECTORS}, total, array([1, 5, 5], "float64"), feeds(nulls="skip")),
    Expect("vectors by rows", {"x": VECTORS}, added, {"x": array([1, 5, 5], "float64")}, feeds(nulls="skip"), verb=tfs.reduce_rows),
    Expect(
        "vectors, sparse",
        {"x": VECTORS},
        lambda x: {"x": tf.sparse.reduce_sum(x, 0)},
        {"x": array([1, 5, 5], "float64")},
        feeds(nulls="skip", sparse=True),
    ),
    Expect(
        "vectors out",
        {"x": [[1.0, 2.0]] * 3},
        tfs.program(lambda x: {"x": total(x)}, signature={"x": tf.TensorSpec([None, 2], tf.float64)}, vector="x"),
        {"x": array([3, 6], "float64")},
    ),
    Expect("decimals", {"x": decimals("1.50", None, "2.25")}, total, number(3.75, "float64"), feeds(dtype="float64", nulls="skip")),
    Expect(
        "decimals by rows",
        {"x": decimals("1.50", "2.25")},
        added,
        {"x": number(3.75, "float64")},
        feeds(dtype="float64"),
        verb=tfs.reduce_rows,
    ),
    Expect("bytes of 8 bits wrap", {"x": [100, 200]}, total, number(44, "uint8"), feeds(dtype="uint8")),
    Expect("float16", {"x": [1.0, 2.0]}, total, number(3, "float16"), feeds(dtype="float16")),
    Expect("bfloat16 by blocks", {"x": [1.0, 2.0, 3.0]}, total, number(6, "float32"), feeds(dtype="bfloat16")),
    Expect(
        "booleans", {"x": [0.0, 1.0]}, lambda a, b: tf.logical_or(a, b), np.True_, {"a": tfs.feed("x", dtype="bool")}, verb=tfs.reduce_rows
    ),
    Expect("bfloat16 by rows", {"x": [1.0, 2.0]}, added, {"x": number(3, "float32")}, feeds(dtype="bfloat16"), verb=tfs.reduce_rows),
    Expect("bfloat16 of one row", {"x": [1.0]}, added, {"x": number(1, "float32")}, feeds(dtype="bfloat16"), verb=tfs.reduce_rows),
    Expect(
        "ragged by rows, nulls masked",
        {"x": [[1, None], None, [3]]},
        lambda x_1, x_2, x_1_mask, x_2_mask: {"x": tf.concat([tf.boolean_mask(x_1, x_1_mask), tf.boolean_mask(x_2, x_2_mask)], 0)},
        {"x": array([1, 3])},
        feeds(ragged=True, nulls="mask"),
        verb=tfs.reduce_rows,
    ),
    Expect(
        "masked and padded to a declared size, by rows",
        {"x": [[1], [2, 3]]},
        tfs.program(
            lambda x_1, x_2, x_1_mask, x_2_mask: {"x": x_1 + x_2},
            signature={f"x_{i}{mask}": tf.TensorSpec([3], dtype) for mask, dtype in (("", tf.int64), ("_mask", tf.bool)) for i in (1, 2)},
        ),
        {"x": array([3, 12, 18])},
        feeds(pad=9, nulls="mask"),
        verb=tfs.reduce_rows,
    ),
    Expect(
        "masks of two inputs of any names, by position",
        {"x": [1, None, 3]},
        lambda a, b, a_mask, b_mask: counting_null_pairs(a, b, a_mask, b_mask)["x"],
        number(104),
        tfs.feed("x", nulls="mask"),
        verb=tfs.reduce_rows,
    ),
)
def test_of_blocks_of_any_size(case: Expect) -> None:
    check_reduces(case)


def test_two_ragged_dimensions_give_an_array_of_arrays() -> None:
    table = pa.table({"x": [[[1]], [[2, 3], []], []]})
    for verb, fetches in ((tfs.reduce_blocks, flat), (tfs.reduce_rows, joined)):
        held = verb(fetches, table, feeds(ragged=True))["x"]
        assert held.dtype == object
        assert [cell.tolist() for cell in held] == [[1], [2, 3], []]


def test_a_uniform_inner_dimension_stays_uniform() -> None:
    table = tfs.append_shape(pa.table({"x": [[[1, 2]], [], [[3, 4], [5, 6]]]}), "x", [None, None, 2])
    for verb, fetches in ((tfs.reduce_blocks, flat), (tfs.reduce_rows, joined)):
        check_same(verb(fetches, table, feeds(ragged=True))["x"], array([[1, 2], [3, 4], [5, 6]]))
    nothing = tfs.append_shape(pa.table({"x": pa.array([[], []], pa.list_(pa.list_(pa.int64())))}), "x", [None, None, 2])
    check_same(tfs.reduce_blocks(flat, nothing, feeds(ragged=True))["x"], np.empty((0, 2), np.int64))


# --- Refused ---

NOTHING = {"x": pa.nulls(4, pa.int64())}


@each(
    ExpectFail(
        "all rows skipped",
        NOTHING,
        total,
        tfs.EmptyFrameError,
        "reduce_blocks: the frame has no row to fold without a null in 'x'.",
        feeds(nulls="skip"),
    ),
    ExpectFail(
        "a null",
        GAPS,
        total,
        tfs.NullError,
        "reduce_blocks: column 'x' holds 1 null, at row 1 of the block, where no null may be;"
        " nulls= of tfs.feed says what becomes of them.",
    ),
    ExpectFail(
        "a fraction after skipped rows",
        {"x": decimals("1.00", None, "2.50")},
        total,
        tfs.DTypeError,
        "reduce_blocks: input 'x' wants int32 but column 'x' holds 2.50 in row 2 of the block, which int32 cannot hold.",
        feeds(nulls="skip", dtype="int32"),
    ),
)
def test_is_refused_by_every_frame(case: ExpectFail, frame: Flavour) -> None:
    if frame.on_spark and case.error is not tfs.EmptyFrameError:
        pytest.skip("shown there by maps")
    columns = {name: cells[:3] if case.id == "a null" else cells for name, cells in case.input.items()}
    if case.error is tfs.EmptyFrameError and not frame.knows_types:
        columns = {"x": [None] * 3}
        with pytest.raises(tfs.TensorFramesError):
            run(case, pd.DataFrame(columns))
        check_refused(lambda: run(case, pd.DataFrame(columns, dtype="Int64")), case.error, case.message)
        return
    check_refused(lambda: run(case, frame.make(columns)), case.error, case.message)


@each(
    ExpectFail(
        "no row",
        {"x": pa.array([], pa.int64())},
        total,
        tfs.EmptyFrameError,
        "reduce_blocks: the frame has no row to fold without a null in 'x'.",
        feeds(nulls="skip"),
    ),
    ExpectFail(
        "no row that both feeds show",
        {"x": [1, None], "y": [None, 2]},
        lambda x, y: {"x": total(x), "y": total(y)},
        tfs.EmptyFrameError,
        "reduce_blocks: the frame has no row to fold without a null in 'x' or 'y'.",
        {**feeds(nulls="skip"), "y": tfs.feed("y", nulls="skip")},
    ),
    ExpectFail(
        "all rows skipped, by rows",
        NOTHING,
        added,
        tfs.EmptyFrameError,
        "reduce_rows: the frame has no row to fold without a null in 'x'.",
        feeds(nulls="skip"),
        verb=tfs.reduce_rows,
    ),
    ExpectFail(
        "a null beside a feed that skips others",
        {"x": [1, None, 4, 2], "y": [1, None, 8, None]},
        lambda x_1, x_2, y_1, y_2: {"x": x_1 + x_2, "y": y_1 + y_2},
        tfs.NullError,
        "reduce_rows: column 'y' holds 1 null, at row 3 of the block, where no null may be; nulls= of tfs.feed says what becomes of them.",
        feeds(nulls="skip"),
        verb=tfs.reduce_rows,
    ),
    ExpectFail(
        "an operation that fails after skipped rows",
        {"x": [None, 1, None, 5]},
        lambda x, w: {"x": total(tf.gather(w, x))},
        tfs.ProgramError,
        lines(
            "reduce_blocks: the program failed on row 3 of the block: InvalidArgumentError: indices[1] = 5 is not in [0, 2)",
            "  inputs: x ← column 'x', w ← constant int64[2]",
        ),
        {**feeds(nulls="skip"), "w": np.array([1, 2])},
    ),
    ExpectFail(
        "too long to be padded",
        {"x": [[1], [2, 3, 4, 5]]},
        tf.function(lambda x: {"x": total(x)}, input_signature=[PADDED_TO_THREE["x"]]),
        tfs.ShapeError,
        "reduce_blocks: column 'x' is padded to 3 elements at level 1 but row 1 of the block holds 4.",
        feeds(pad=0),
    ),
    ExpectFail(
        "a mask that no input takes",
        {"x": [1]},
        lambda x_input, x_mask: {"x": total(x_input)},
        tfs.ProgramError,
        lines(
            "reduce_blocks: the feed of input 'x_input' has nulls='mask', but the program has no input 'x_input_mask' for the mask.",
            "  inputs:  x_input, x_mask",
            "  columns: x: int64[?]",
        ),
        feeds(nulls="mask"),
    ),
    ExpectFail(
        "a mask for one of the pair",
        {"x": [1]},
        lambda x_1, x_2, x_1_mask: {"x": x_1 + x_2},
        tfs.ProgramError,
        lines(
            "reduce_rows: the feed of input 'x_2' has nulls='mask', but the program has no input 'x_2_mask' for the mask.",
            "  inputs:  x_1, x_2, x_1_mask",
            "  columns: x: int64[?]",
        ),
        feeds(nulls="mask"),
        verb=tfs.reduce_rows,
    ),
    ExpectFail(
        "a padded scalar",
        {"x": [1]},
        total,
        tfs.ShapeError,
        "reduce_blocks: input 'x' is to be padded, but the cells of column 'x' are scalars.",
        feeds(pad=0),
    ),
    ExpectFail(
        "a ragged scalar",
        {"x": [1]},
        added,
        tfs.ShapeError,
        "reduce_rows: input 'x_1' is to be ragged, but the cells of column 'x' are scalars.",
        feeds(ragged=True),
        verb=tfs.reduce_rows,
    ),
)
def test_is_refused(case: ExpectFail) -> None:
    check_refused(lambda: run(case, pa.table(dict(case.input))), case.error, case.message)


@pytest.mark.parametrize("other", [tfs.feed("x", nulls=2), tfs.feed("x", nulls="skip")], ids=["another value", "another policy"])
def test_a_pair_is_fed_in_one_way(other: Any) -> None:
    feeds = {"x_1": tfs.feed("x", nulls=1), "x_2": other}
    message = "reduce_rows: inputs 'x_1' and 'x_2' are folded with each other, but their feeds differ."
    check_refused(lambda: tfs.reduce_rows(added, pa.table({"x": [1, None, None, 4]}), feeds), tfs.ProgramError, message)


# --- aggregate ---

KEYS = ["a", "a", "b", "c", "a", "c", "b"]


def by_chunks(x):
    """Sum, but known to no segment operation."""
    return {"x": tf.reduce_sum(x + x, 0) - tf.reduce_sum(x, 0)}


def known(x):
    return {"x": tf.reduce_sum(x, 0)}


def check_aggregates(case: Expect, held: pa.Table) -> None:
    rows = sorted(range(held.num_rows), key=lambda row: str(held["k"][row].as_py()))
    check_same_table(held.take(pa.array(rows, pa.int64())), plain(as_table(case.output)))


ABC = ["a", "b", "c"]


@each(
    Expect(
        "skipped, a key without rows is null",
        {"x": [1, None, 3, None, 5, None, 7]},
        by_chunks,
        {"k": ABC, "x": [6, 10, None]},
        feeds(nulls="skip"),
    ),
    Expect(
        "skipped by a segment operation", {"x": [1, None, 3, None, 5, None, 7]}, known, {"k": ABC, "x": [6, 10, None]}, feeds(nulls="skip")
    ),
    Expect("replaced", {"x": [1, None, 3, None, 5, None, 7]}, by_chunks, {"k": ABC, "x": [16, 10, 20]}, feeds(nulls=10)),
    Expect("masked", {"x": [1, None, 3, None, 5, None, 7]}, counting_nulls, {"k": ABC, "x": [106, 10, 200]}, feeds(nulls="mask")),
    Expect(
        "arrays skipped",
        {"x": [[1, 2], [None, 3], None, [1, 1], [5, 6], [2, 2], None]},
        by_chunks,
        {"k": ABC, "x": [[6, 8], None, [3, 3]]},
        feeds(nulls="skip"),
    ),
    Expect("padded", {"x": [[1], [2, 3], [], [4], [], [5], [6]]}, by_chunks, {"k": ABC, "x": [[3, 3], [6, 0], [9, 0]]}, feeds(pad=0)),
    Expect(
        "ragged, sizes",
        {"x": [[1], [2, 3], [], [4], [], [5], [6]]},
        lambda x: {"x": tf.sort(x.values)},
        {"k": ABC, "x": [[1, 2, 3], [6], [4, 5]]},
        feeds(ragged=True),
    ),
    Expect("cast", {"x": [1, 2, 3, 4, 5, 6, 7]}, by_chunks, {"k": ABC, "x": pa.array([8, 10, 10], pa.int32())}, feeds(dtype="int32")),
)
def test_aggregate_of_every_frame(case: Expect, frame: Flavour) -> None:
    if frame.is_costly and case.id not in READ_EVERYWHERE:
        pytest.skip("a few are enough where reading is costly")
    held = frame.read(tfs.aggregate(case.fetches, frame.make({"k": KEYS, **case.input}), case.feed_dict, by="k"))
    check_aggregates(case, held)


@each(
    Expect(
        "all rows skipped",
        {"k": ["a", "b", "a"], "x": pa.nulls(3, pa.int64())},
        known,
        {"k": ["a", "b"], "x": pa.nulls(2, pa.int64())},
        feeds(nulls="skip"),
    ),
    Expect(
        "all arrays skipped",
        {"k": ["a", "b", "a"], "x": pa.nulls(3, pa.list_(pa.int64()))},
        by_chunks,
        {"k": ["a", "b"], "x": pa.nulls(2, pa.list_(pa.int64()))},
        feeds(nulls="skip"),
    ),
    Expect("a null key", {"k": ["a", None, None], "x": [None, 1, 2]}, known, {"k": [None, "a"], "x": [3, None]}, feeds(nulls="skip")),
    Expect(
        "two feeds that skip",
        {"k": ["a", "a", "b", "b"], "x": [1, None, 2, None], "y": [None, 1, 2, None]},
        lambda x, y: {"x": tf.reduce_sum(x, 0), "y": tf.reduce_max(y, 0)},
        {"k": ["a", "b"], "x": [None, 2], "y": [None, 2]},
        {**feeds(nulls="skip"), "y": tfs.feed("y", nulls="skip")},
    ),
    Expect(
        "text, skipped",
        {"k": ["a", "a", "b"], "x": ["p", None, None]},
        lambda x: {"x": tf.strings.reduce_join(x, 0)},
        {"k": ["a", "b"], "x": ["p", None]},
        feeds(nulls="skip"),
    ),
    Expect(
        "text, masked",
        {"k": ["a", "a", "b"], "x": ["p", None, None]},
        lambda x, x_mask: {"x": tf.strings.reduce_join(tf.where(x_mask, x, "?"), 0)},
        {"k": ["a", "b"], "x": ["p?", "?"]},
        feeds(nulls="mask"),
    ),
    Expect(
        "arrays, masked",
        {"k": ["a", "a", "b"], "x": [[1, None], [3, 4], None]},
        counting_nulls,
        {"k": ["a", "b"], "x": [[4, 104], [100, 100]]},
        feeds(nulls="mask"),
    ),
    Expect(
        "matrices, padded and skipped",
        {"k": ["a", "b", "b"], "x": [None, [[1]], [[2, 3], [4]]]},
        known,
        {"k": ["a", "b"], "x": [None, [[3, 3], [4, 0]]]},
        feeds(nulls="skip", pad=0),
    ),
    Expect(
        "ragged, replaced",
        {"k": ["a", "b", "b"], "x": [None, [1, None], [2]]},
        flat,
        {"k": ["a", "b"], "x": pa.array([[], [1, -1, 2]])},
        feeds(nulls=-1, ragged=True),
    ),
    Expect(
        "ragged, skipped",
        {"k": ["a", "b", "b", "b"], "x": [None, [1, None], [2], []]},
        flat,
        {"k": ["a", "b"], "x": [None, [2]]},
        feeds(nulls="skip", ragged=True),
    ),
    Expect(
        "ragged, masked",
        {"k": ["a", "a", "b"], "x": [[1, None], [3], None]},
        lambda x, x_mask: {"x": tf.where(x_mask.values, x.values, -1)},
        {"k": ["a", "b"], "x": pa.array([[1, -1, 3], []])},
        feeds(nulls="mask", ragged=True),
    ),
    Expect(
        "ragged strings",
        {"k": ["a", "a", "b"], "x": [["p"], ["q", "é"], []]},
        flat,
        {"k": ["a", "b"], "x": pa.array([["p", "q", "é"], []])},
        feeds(ragged=True),
    ),
    Expect(
        "two ragged dimensions",
        {"k": ["a", "b", "b"], "x": [[], [[1], []], [[2, 3]]]},
        flat,
        {"k": ["a", "b"], "x": pa.array([[], [[1], [], [2, 3]]])},
        feeds(ragged=True),
    ),
    Expect(
        "sparse",
        {"k": ["a", "a", "b"], "x": [[1, 0], [2, 3], [4, 5]]},
        lambda x: {"x": tf.sparse.reduce_sum(x, 0)},
        {"k": ["a", "b"], "x": [[3, 3], [4, 5]]},
        feeds(sparse=True),
    ),
    Expect(
        "vectors",
        {"k": ["a", "a", "b", "c"], "x": VECTORS},
        known,
        {"k": ABC, "x": [[1.0, 5.0, 3.0], None, [0.0, 0.0, 2.0]]},
        feeds(nulls="skip"),
    ),
    Expect(
        "vectors out",
        {"k": ["a", "a", "b"], "x": [[1.0, 2.0]] * 3},
        tfs.program(known, signature={"x": tf.TensorSpec([None, 2], tf.float64)}, vector="x"),
        {
            "k": ["a", "b"],
            "x": pa.array([{"type": 1, "size": None, "indices": None, "values": cell} for cell in ([2.0, 4.0], [1.0, 2.0])], VECTOR),
        },
    ),
    Expect(
        "decimals",
        {"k": ["a", "a", "b"], "x": decimals("1.50", None, "2.25")},
        by_chunks,
        {"k": ["a", "b"], "x": [1.5, 2.25]},
        feeds(dtype="float64", nulls="skip"),
    ),
    Expect(
        "bfloat16",
        {"k": ["a", "a", "b"], "x": [1.0, 2.0, 4.0]},
        by_chunks,
        {"k": ["a", "b"], "x": pa.array([3, 4], pa.float32())},
        feeds(dtype="bfloat16"),
    ),
    Expect(
        "bfloat16 by a segment operation",
        {"k": ["a", "a", "b"], "x": [1.0, 2.0, 4.0]},
        known,
        {"k": ["a", "b"], "x": pa.array([3, 4], pa.float32())},
        feeds(dtype="bfloat16"),
    ),
)
def test_aggregate_of_a_table(case: Expect) -> None:
    for rows in (10, 1):
        table = pa.table(dict(case.input))
        divided = pa.Table.from_batches(table.to_batches(max_chunksize=rows), table.schema)
        check_same_table(tfs.aggregate(case.fetches, divided, case.feed_dict, by="k").sort_by([("k", "ascending")]), in_order(case.output))


def in_order(columns: Columns) -> pa.Table:
    return pa.table(dict(columns)).sort_by([("k", "ascending")])


@each(
    ExpectFail(
        "a null",
        {"k": ["a", "b"], "x": [1, None]},
        known,
        tfs.NullError,
        "aggregate: column 'x' holds 1 null, at row 1 of the block, where no null may be; nulls= of tfs.feed says what becomes of them.",
    ),
    ExpectFail(
        "a fraction after skipped rows",
        {"k": ["a", "b", "b"], "x": [None, 1.0, 4.5]},
        known,
        tfs.DTypeError,
        "aggregate: input 'x' wants int32 but column 'x' holds 4.5 in row 2 of the block, which int32 cannot hold.",
        feeds(dtype="int32", nulls="skip"),
    ),
    ExpectFail(
        "an operation that fails after skipped rows",
        {"k": ["a", "b", "b"], "x": [None, 1, 5]},
        lambda x, w: {"x": total(tf.gather(w, x))},
        tfs.ProgramError,
        lines(
            "aggregate: the program failed on rows of the key k = 'b': InvalidArgumentError: indices[1] = 5 is not in [0, 2)",
            "  inputs: x ← column 'x', w ← constant int64[2]",
        ),
        {**feeds(nulls="skip"), "w": np.array([1, 2])},
    ),
    ExpectFail(
        "no input for the mask",
        {"k": ["a"], "x": [1]},
        known,
        tfs.ProgramError,
        lines(
            "aggregate: the feed of input 'x' has nulls='mask', but the program has no input 'x_mask' for the mask.",
            "  inputs:  x",
            "  columns: k: string[?], x: int64[?]",
        ),
        feeds(nulls="mask"),
    ),
)
def test_aggregate_refuses(case: ExpectFail) -> None:
    check_refused(lambda: tfs.aggregate(case.fetches, pa.table(dict(case.input)), case.feed_dict, by="k"), case.error, case.message)


@pytest.mark.parametrize("nulls", ["skip", "mask", 5])
def test_keys_that_are_not_worth_combining_keep_their_nulls(nulls: Any) -> None:
    count = 140_000  # more rows than a block of keys has, nearly each with a key of its own
    numbers = np.arange(count)
    cells = pa.array(numbers, mask=numbers % 3 == 0)
    table = pa.table({"k": numbers // 1.5, "x": cells})

    def masked(x, x_mask):
        return {"x": tf.reduce_sum(tf.where(x_mask, x, 5), 0)}

    held = tfs.aggregate(masked if nulls == "mask" else by_chunks, table, feeds(nulls=nulls), by="k").sort_by("k")
    filled = cells if nulls == "skip" else cells.fill_null(5)
    wanted = pa.table({"k": table["k"], "x": filled}).group_by("k").aggregate([("x", "sum")]).sort_by("k")
    assert held["x"].to_pylist() == wanted["x_sum"].to_pylist()


def spark_values(df: Any, keys: Sequence[str]) -> list[Any]:
    return sorted((tuple(row) for row in df.collect()), key=lambda row: str(row[: len(keys)]))


def test_reduces_of_sparks_own_vectors(spark: Any) -> None:
    from pyspark.ml.linalg import Vectors

    rows = [("a", Vectors.dense(1, 0, 3)), ("a", Vectors.sparse(3, {1: 5.0})), ("b", Vectors.dense(4, 5, 6))]
    df = spark.createDataFrame(rows, ["k", "x"])
    check_same(tfs.reduce_blocks(total, df, feeds(sparse=False)), array([5, 10, 9], "float64"))
    held = tfs.aggregate(lambda x: {"x": tf.sparse.reduce_sum(x, 0)}, df.groupBy("k"), feeds(sparse=True))
    assert spark_values(held, ["k"]) == [("a", [1.0, 5.0, 3.0]), ("b", [4.0, 5.0, 6.0])]


@pytest.mark.parametrize("fetches", [known, by_chunks], ids=["by segments", "by chunks"])
def test_a_block_of_skipped_rows_only_is_merged_with_others(fetches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combine_room, "_BLOCK_ROWS", 2)
    cells = pa.array([None, None, [1.0, 2.0], [3.0, 4.0], [5.0, 6.0], None], pa.list_(pa.float64()))
    frame = pa.table({"k": [1, 1, 2, 2, 1, 1], "x": cells})
    held = tfs.aggregate(fetches, frame, {"x": tfs.feed("x", nulls="skip")}, by="k")
    assert held.to_pydict() == {"k": [1, 2], "x": [[5.0, 6.0], [4.0, 6.0]]}
