"""reduce_blocks and reduce_rows, on every kind of frame."""

from __future__ import annotations

import typing
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
from expectations import check_refused, check_same
from flavours import BATCH_ROWS, LOCAL, Flavour, as_table
from hypothesis import given, settings
from hypothesis import strategies as st
from verbs import ReduceExpect as Expect
from verbs import ReduceExpectFail as ExpectFail
from verbs import each, run

import tensorframes as tfs
from tensorframes.frames import spark as spark_room
from tensorframes.ops import reduces as reduces_room

DOUBLES = {"x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]}
TWO = {"x": [1.0, 2.0, 3.0, 4.0], "n": [4, 3, 9, 1]}
VECTORS = {"v": [[1.0, 8.0], [2.0, 7.0], [3.0, 6.0], [4.0, 5.0]]}
MATRICES = {"m": [[[1, 2, 3], [4, 5, 6]], [[10, 20, 30], [40, 50, 60]], [[0, 0, 1], [0, 1, 0]], [[1, 1, 1], [1, 1, 1]]]}
TEXTS = {"s": ["a", "b", "é", ""], "b": [b"\xff", b"\0", b"", b"z"], "w": [["p", "q"], ["r", "s"], ["t", "u"], ["é", ""]]}


# For what is refused before anything runs.
SOME_FRAMES = pytest.mark.parametrize(
    "frame", [LOCAL[0], LOCAL[5], pytest.param("spark", marks=pytest.mark.spark)], ids=["table", "pandas", "spark"], indirect=True
)


def check_value(held: Any, wanted: Any) -> None:
    """Check a value, a list of values or a dict of values, whose order counts."""
    if isinstance(wanted, dict | list):
        assert type(held) is type(wanted)
        assert [*held] == [*wanted] if isinstance(wanted, dict) else len(held) == len(wanted)
        for key in wanted if isinstance(wanted, dict) else range(len(wanted)):
            check_value(held[key], wanted[key])
    else:
        check_same(held, wanted)


def lines(*text: str) -> str:
    return "\n".join(text)


def array(cells: Any, dtype: str = "float64") -> np.ndarray:
    return np.array(cells, dtype)


def number(value: float, dtype: str = "float64") -> Any:
    return np.dtype(dtype).type(value)


class Extremes(typing.NamedTuple):
    x: Any
    n: Any


def total(x):
    return tf.reduce_sum(x, axis=0)


def both(x, n):
    return {"n": tf.reduce_max(n, 0), "x": tf.reduce_sum(x, 0)}


def scaled(x, scale):
    return tf.reduce_sum(x, 0) + 0.0 * scale


def with_default(x, by=0.0):
    return {"x": tf.reduce_sum(x, 0) + by}


def pair_with_default(a, b, by=0.0):
    return a + b + by


@tf.function
def summed(x):
    return {"x": tf.reduce_sum(x, 0)}


PROGRAM = tfs.program(lambda x: {"x": tf.reduce_sum(x, 0)}, signature={"x": tf.TensorSpec([None], tf.float64)})
FLOAT32 = tfs.program(lambda x: {"x": tf.reduce_sum(x, 0)}, signature={"x": tf.TensorSpec([None], tf.float32)})


@pytest.mark.core
@each(
    Expect("an output x of an input x", DOUBLES, lambda x: {"x": tf.reduce_sum(x, 0)}, {"x": number(28)}),
    Expect("an output x of an input x_input", DOUBLES, lambda x_input: {"x": tf.reduce_sum(x_input, 0)}, {"x": number(28)}),
    Expect("a bare output of one parameter", DOUBLES, lambda x: tf.reduce_sum(x, 0), number(28)),
    Expect("a bare output of one parameter x_input", DOUBLES, lambda x_input: tf.reduce_sum(x_input, 0), number(28)),
    Expect("a bare output of a named function", DOUBLES, total, number(28)),
    Expect("a bare output beside a constant", DOUBLES, scaled, number(28), {"scale": 2.0}),
    Expect("a tf.function", DOUBLES, summed, {"x": number(28)}),
    Expect("a program", DOUBLES, PROGRAM, {"x": number(28)}),
    Expect("a dict of functions", TWO, {"n": lambda n: tf.reduce_min(n, 0), "x": total}, {"n": number(1, "int64"), "x": number(10)}),
    Expect("a dict in the fetches' order", TWO, both, {"n": number(9, "int64"), "x": number(10)}),
    Expect(
        "a NamedTuple's fields",
        TWO,
        lambda x, n: Extremes(tf.reduce_min(x, 0), tf.reduce_max(n, 0)),
        {"x": number(1), "n": number(9, "int64")},
    ),
    Expect("x_input by what is said of x", TWO, lambda x_input: {"x": tf.reduce_sum(x_input, 0)}, {"x": number(17, "int64")}, {"x": "n"}),
    Expect("x_input by its own name", TWO, lambda x_input: {"x": tf.reduce_sum(x_input, 0)}, {"x": number(17, "int64")}, {"x_input": "n"}),
    Expect("a parameter of another name than the column", DOUBLES, lambda y: tf.reduce_sum(y, 0), number(28), {"y": "x"}),
    Expect("by position", TWO, lambda y: tf.reduce_sum(y, 0), number(17, "int64"), "n"),
    Expect(
        "several by position",
        TWO,
        lambda a, b: {"a": tf.reduce_sum(a, 0), "b": tf.reduce_sum(b, 0)},
        {"a": number(17, "int64"), "b": number(10)},
        ["n", "x"],
    ),
    Expect(
        "one column for two outputs",
        DOUBLES,
        lambda a, b: {"a": tf.reduce_min(a, 0), "b": tf.reduce_max(b, 0)},
        {"a": number(1), "b": number(7)},
        {"a": "x", "b": "x"},
    ),
    Expect(
        "a struct's field",
        {"s": [{"x": 1.0}, {"x": 2.0}, {"x": 4.0}, {"x": 8.0}]},
        lambda x: {"x": tf.reduce_sum(x, 0)},
        {"x": number(15)},
        {"x": "s.x"},
    ),
    Expect("a default that nobody feeds", DOUBLES, with_default, {"x": number(28)}),
    Expect("a default is not fed by a column", {**DOUBLES, "by": DOUBLES["x"]}, with_default, {"x": number(28)}),
    Expect("a declared float32", DOUBLES, FLOAT32, {"x": number(28, "float32")}),
    Expect("an int column for a declared float32", {"x": [1, 2, 4, 8]}, FLOAT32, {"x": number(15, "float32")}),
)
@pytest.mark.parametrize("frame", [LOCAL[0], LOCAL[5], LOCAL[6]], ids=lambda frame: frame.name)
def test_blocks_by_name(case: Expect, frame: Flavour) -> None:
    check_value(run(case, frame.make(case.input)), case.output)


@pytest.mark.core
@each(
    Expect("x_1 and x_2", DOUBLES, lambda x_1, x_2: {"x": x_1 + x_2}, {"x": number(28)}),
    Expect("x_2 before x_1", {"x": ["a", "b", "c", "d"]}, lambda x_2, x_1: {"x": x_1 + x_2}, {"x": "abcd"}),
    Expect("any two names, of the only column", DOUBLES, lambda a, b: a + b, number(28)),
    Expect("any two names, one fed by a column", TWO, lambda a, b: tf.maximum(a, b), number(9, "int64"), {"a": "n"}),
    Expect("any two names, by position", TWO, lambda a, b: a + b, number(17, "int64"), "n"),
    Expect("any two names, both fed by one column", TWO, lambda a, b: {"z": a + b}, {"z": number(17, "int64")}, {"a": "n", "b": "n"}),
    Expect("a named function of two parameters", DOUBLES, pair_with_default, number(28)),
    Expect("a dict of one function", DOUBLES, {"total": lambda a, b: a + b}, {"total": number(28)}),
    Expect("x_1 and x_2 by what is said of x", TWO, lambda x_1, x_2: {"x": x_1 + x_2}, {"x": number(17, "int64")}, {"x": "n"}),
    Expect(
        "several outputs",
        TWO,
        lambda x_1, n_1, x_2, n_2: {"n": tf.minimum(n_1, n_2), "x": x_1 * x_2},
        {"n": number(1, "int64"), "x": number(24)},
    ),
    Expect("a constant", DOUBLES, lambda x_1, x_2, c: {"x": x_1 + x_2 + c}, {"x": number(28)}, {"c": 0.0}),
    Expect("a constant beside any two names", DOUBLES, lambda a, b, c: a + b + c, number(28), {"c": 0.0}),
    Expect(
        "a struct's field",
        {"s": [{"x": 1.0}, {"x": 2.0}, {"x": 4.0}, {"x": 8.0}]},
        lambda a, b: a + b,
        number(15),
        "s.x",
    ),
)
@pytest.mark.parametrize("frame", [LOCAL[0], LOCAL[5], LOCAL[6]], ids=lambda frame: frame.name)
def test_rows_by_name(case: Expect, frame: Flavour) -> None:
    check_value(tfs.reduce_rows(case.fetches, frame.make(case.input), case.feed_dict), case.output)


@each(
    Expect("vectors", VECTORS, lambda v: tf.reduce_max(v, 0), array([4, 8])),
    Expect("matrices", MATRICES, lambda m: tf.reduce_sum(m, 0), array([[12, 23, 35], [45, 57, 67]], "int64")),
    Expect("booleans", {"x": [True, True, False, True]}, lambda x: tf.reduce_all(x, 0), np.False_),
    Expect("int32", {"x": pa.array([1, 2, 3, 4], pa.int32())}, lambda x: tf.reduce_prod(x, 0), number(24, "int32")),
    Expect("float32", {"x": pa.array([1, 2, 3, 4], pa.float32())}, lambda x: tf.reduce_prod(x, 0), number(24, "float32")),
    Expect("int64 beyond 2**53", {"x": [2**53, 1, 0, 0]}, lambda x: tf.reduce_sum(x, 0), number(2**53 + 1, "int64")),
    Expect("strings", TEXTS, lambda s: tf.strings.reduce_join(s, 0), "abé"),
    Expect("bytes", TEXTS, lambda b: tf.strings.reduce_join(b, 0), b"\xff\0z"),
    Expect("lists of strings", TEXTS, lambda w: tf.strings.reduce_join(w, 0), array(["prté", "qsu"], "object")),
    Expect("dates are days", {"d": pa.array([3, 9, 2, 5], pa.date32())}, lambda d: tf.reduce_max(d, 0), number(9, "int32")),
)
def test_types_of_blocks_and_rows(case: Expect, frame: Flavour) -> None:
    check_value(run(case, frame.make(case.input)), case.output)
    pairs = {
        "vectors": tf.maximum,
        "booleans": tf.logical_and,
        "int32": tf.multiply,
        "float32": tf.multiply,
        "dates are days": tf.maximum,
    }.get(case.id, tf.add)
    (name,) = [name for name in case.input if name in case.fetches.__code__.co_varnames]
    check_value(tfs.reduce_rows(lambda a, b: pairs(a, b), frame.make(case.input), name), case.output)


def test_names_on_spark(spark: Any) -> None:
    df = spark.range(1, 5, 1, 2).selectExpr("id as n", "named_struct('x', cast(id as double)) as s")

    def fetches(n, x_input, c):
        return {"x": tf.reduce_sum(x_input, 0) + c, "n": tf.reduce_max(n, 0)}

    check_value(tfs.reduce_blocks(fetches, df, {"x": "s.x", "c": 0.0}), {"x": number(10), "n": number(4, "int64")})
    check_value(tfs.reduce_rows(lambda a, b: a + b, df, "s.x"), number(10))


def test_v1_graphs_by_the_original_names(frame: Flavour) -> None:
    with tf.Graph().as_default():
        native = frame.make(TWO)
        x_input, n_input = tfs.block(native, "x", "x_input"), tfs.block(native, "n", "n_input")
        x, n = tf.reduce_sum(x_input, 0, name="x"), tf.reduce_max(n_input, 0, name="n")
        check_value(tfs.reduce_blocks([n, x], native if frame.keeps_kind else frame.make(TWO)), [number(9, "int64"), number(10)])
    check_value(tfs.reduce_blocks({"n": n, "x": x}, frame.make(TWO)), {"n": number(9, "int64"), "x": number(10)})
    check_value(tfs.reduce_blocks(x, frame.make(TWO)), number(10))
    renamed = frame.make({"y": TWO["x"]})
    check_value(tfs.reduce_blocks(x, renamed, {x_input: "y"}), number(10))


def test_v1_graphs_of_pairs(frame: Flavour) -> None:
    with tf.Graph().as_default():
        native = frame.make(TWO)
        x_1, x_2 = tfs.row(native, "x", "x_1"), tfs.row(native, "x", "x_2")
        x = tf.add(x_1, x_2, name="x")
        n = tf.maximum(tfs.row(native, "n", "n_1"), tfs.row(native, "n", "n_2"), name="n")
    check_value(tfs.reduce_rows([x, n], frame.make(TWO)), [number(10), number(9, "int64")])
    check_value(tfs.reduce_rows(x, frame.make(TWO)), number(10))
    renamed = {"y": TWO["x"]}
    check_value(tfs.reduce_rows(x, frame.make(renamed), {x_1: "y", x_2: "y"}), number(10))
    check_value(tfs.reduce_rows(x, frame.make(renamed), {"x": "y"}), number(10))


# --- Partitions and blocks ---


@pytest.mark.parametrize("block_rows", [1, 3, 7, None])
def test_blocks_of_any_size_give_the_same(block_rows: int | None, frame: Flavour) -> None:
    columns = {"x": list(range(1, 12)), "v": [[i, -i] for i in range(11)]}
    wanted = {"x": number(66, "int64"), "v": array([10, 0], "int64")}
    blocks = tfs.reduce_blocks(
        lambda x, v: {"x": tf.reduce_sum(x, 0), "v": tf.reduce_max(v, 0)}, frame.make(columns), block_rows=block_rows
    )
    check_value(blocks, wanted)
    rows = tfs.reduce_rows(
        lambda x_1, x_2, v_1, v_2: {"x": x_1 + x_2, "v": tf.maximum(v_1, v_2)}, frame.make(columns), block_rows=block_rows
    )
    check_value(rows, wanted)


def test_one_row(frame: Flavour) -> None:
    columns = {"x": [3.0], "v": [[1.0, 2.0]]}
    blocks = tfs.reduce_blocks(lambda x, v: {"x": tf.reduce_sum(x, 0), "v": tf.reduce_max(v, 0)}, frame.make(columns))
    check_value(blocks, {"x": number(3), "v": array([1, 2])})
    rows = tfs.reduce_rows(lambda x_1, x_2, v_1, v_2: {"x": x_1 + x_2, "v": v_1 + v_2}, frame.make(columns))
    check_value(rows, {"x": number(3), "v": array([1, 2])})


def test_a_sum_of_squares_is_a_sum_over_a_mapped_column(frame: Flavour) -> None:
    columns = {"x": [float(i) for i in range(1, 2 * BATCH_ROWS + 2)]}  # the last batch has one row
    squares = tfs.map_blocks(lambda x: {"y": x * x}, frame.make(columns), trim=True)
    check_value(tfs.reduce_blocks(lambda y: tf.reduce_sum(y, 0), squares), number(140))
    squares = tfs.map_rows(lambda x: {"y": x * x}, frame.make(columns))
    check_value(tfs.reduce_rows(lambda y_1, y_2: {"y": y_1 + y_2}, squares), {"y": number(140)})


@pytest.mark.core
@pytest.mark.parametrize("verb", [tfs.reduce_blocks, tfs.reduce_rows])
def test_an_empty_frame_has_no_value(verb: Any, frame: Flavour) -> None:
    native = frame.make({"x": pa.array([], pa.float64())})
    fetches = (lambda x: tf.reduce_sum(x, 0)) if verb is tfs.reduce_blocks else (lambda a, b: a + b)
    check_refused(lambda: verb(fetches, native), tfs.EmptyFrameError, f"{verb.__name__}: the frame has no row to fold.")


@pytest.mark.core
def test_few_rows_in_many_partitions(spark: Any) -> None:
    df = spark.range(0, 3, 1, 8).selectExpr("cast(id + 1 as double) as x")
    squares = tfs.map_blocks(lambda x: {"y": x * x}, df)
    check_value(tfs.reduce_blocks(lambda y: tf.reduce_sum(y, 0), squares), number(14))
    check_value(tfs.reduce_rows(lambda y_1, y_2: {"y": y_1 + y_2}, squares), {"y": number(14)})
    none = df.where("x > 5")
    check_refused(
        lambda: tfs.reduce_blocks(lambda x: tf.reduce_sum(x, 0), none), tfs.EmptyFrameError, "reduce_blocks: the frame has no row to fold."
    )


@pytest.mark.core
def test_large_rows_are_folded_once_more_on_the_cluster(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    df = spark.range(0, 12, 1, 4).selectExpr("id as x", "array(id, -id) as v")
    fetches = {"x": lambda x: tf.reduce_sum(x, 0), "v": lambda v: tf.reduce_max(v, 0)}
    pairs = {"x": number(66, "int64")}
    stages = []
    fold = spark_room.SparkFrame.fold

    def noted(self: Any, reads: Any, outputs: Any, folding: Any, refold: Any = None) -> Any:
        stages.append(refold is not None)
        return fold(self, reads, outputs, folding, refold)

    monkeypatch.setattr(spark_room.SparkFrame, "fold", noted)
    known = tfs.append_shape(df, "v", [None, 2])
    small = tfs.reduce_blocks(fetches, known)
    check_value(tfs.reduce_rows(lambda x_1, x_2: {"x": x_1 + x_2}, known), pairs)
    monkeypatch.setattr(reduces_room, "LARGE_ROW", 0)
    large = tfs.reduce_blocks(fetches, known)
    check_value(tfs.reduce_rows(lambda x_1, x_2: {"x": x_1 + x_2}, known), pairs)
    monkeypatch.undo()
    check_value(small, {"x": number(66, "int64"), "v": array([11, 0], "int64")})
    check_value(large, small)
    assert stages == [False, False, True, True]


def test_rows_of_unknown_size_are_folded_once_more_on_the_cluster(spark: Any) -> None:
    df = spark.range(0, 8, 1, 4).selectExpr("array(id, -id) as v", "'a' as s")
    held = tfs.reduce_blocks(lambda v, s: {"v": tf.reduce_max(v, 0), "s": tf.strings.reduce_join(s, 0)}, df)
    check_value(held, {"v": array([7, 0], "int64"), "s": "a" * 8})


@pytest.mark.parametrize("held", [2, 3])
def test_only_some_folded_cells_are_held(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorframes import fold as fold_room

    monkeypatch.setattr(fold_room, "_MOST_HELD", held)
    sizes = []
    rows = fold_room.Fold._rows
    monkeypatch.setattr(fold_room.Fold, "_rows", lambda self, held: sizes.append(len(held)) or rows(self, held))
    frame = as_table({"x": list(range(20))})
    check_value(tfs.reduce_blocks(lambda x: tf.reduce_sum(x, 0), frame, block_rows=1), number(190, "int64"))
    check_value(tfs.reduce_rows(lambda a, b: a + b, frame, block_rows=1), number(190, "int64"))
    assert max(sizes) == held


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 200))
def test_rows_are_folded_in_their_order_in_a_tree(rows: int) -> None:
    table = pa.table({"s": [f"{i}," for i in range(rows)]})
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        from tensorframes import fold as fold_room

        call = fold_room.call_program
        patch.setattr(fold_room, "call_program", lambda *args: calls.append(1) or call(*args))
        assert tfs.reduce_rows(lambda a, b: a + b, table) == "".join(table["s"].to_pylist())
    assert len(calls) == (rows - 1).bit_length()


# --- Shapes ---


def test_shapes_that_blocks_agree_on_need_not_be_known(frame: Flavour) -> None:
    cells = {"v": [[1.0, 2.0, 3.0]] * 5}
    check_value(tfs.reduce_blocks(lambda v: tf.reduce_sum(v, 0), frame.make(cells)), array([5, 10, 15]))
    check_value(tfs.reduce_rows(lambda a, b: a + b, frame.make(cells)), array([5, 10, 15]))
    empty = {"v": pa.array([[]] * 4, pa.list_(pa.float64()))}
    if frame.knows_types:
        check_value(tfs.reduce_blocks(lambda v: tf.reduce_sum(v, 0), frame.make(empty)), array([]))


@each(
    ExpectFail(
        "an output that grows",
        VECTORS,
        lambda v: {"v": tf.concat([v[0], v[0]], 0)},
        tfs.ShapeError,
        "reduce_blocks: output 'v' has shape [4] in round 1, but the cells that it is folded from have shape [2].",
    ),
    ExpectFail(
        "an output of pairs that grows",
        VECTORS,
        lambda v_1, v_2: {"v": tf.concat([v_1, v_2], 0)},
        tfs.ShapeError,
        "reduce_rows: output 'v' has shape [4] in round 1, but the cells that it is folded from have shape [2].",
        verb=tfs.reduce_rows,
        options={"block_rows": 2},
    ),
    ExpectFail(
        "a null",
        {"x": [1, None, 3, 4]},
        lambda x: tf.reduce_sum(x, 0),
        tfs.NullError,
        "reduce_blocks: column 'x' holds 1 null, at row 1 of the block, where no null may be;"
        " nulls= of tfs.feed says what becomes of them.",
    ),
    ExpectFail(
        "a null in pairs",
        {"x": [1, None, 3, 4]},
        lambda a, b: a + b,
        tfs.NullError,
        "reduce_rows: column 'x' holds 1 null, at row 1 of the block, where no null may be; nulls= of tfs.feed says what becomes of them.",
        verb=tfs.reduce_rows,
    ),
    ExpectFail(
        "lengths that differ",
        {"v": [[1.0, 2.0], [1.0], [3.0]]},
        lambda v: tf.reduce_sum(v, 0),
        tfs.ShapeError,
        "reduce_blocks: column 'v' is no dense block: at level 1, row 0 of the block holds 2 elements and row 1 holds 1;"
        " tfs.feed has ragged= and pad= for such.",
    ),
    ExpectFail(
        "an operation that fails on a row",
        {"x": [1.0, float("nan"), 3.0]},
        lambda x: tf.reduce_sum(tf.debugging.check_numerics(x, "bad")),
        tfs.ProgramError,
        lines(
            "reduce_blocks: the program failed on row 1 of the block: InvalidArgumentError: bad : Tensor had NaN values",
            "  inputs: x ← column 'x'",
        ),
    ),
    ExpectFail(
        "an operation that fails on a pair",
        {"x": [1.0, 2.0, float("nan"), 3.0]},
        lambda x_1, x_2: {"x": tf.debugging.check_numerics(x_1 + x_2, "bad")},
        tfs.ProgramError,
        lines(
            "reduce_rows: the program failed on pair 1 of the block: InvalidArgumentError: bad : Tensor had NaN values",
            "  inputs: x_1 ← column 'x', x_2 ← column 'x'",
        ),
        verb=tfs.reduce_rows,
    ),
)
@pytest.mark.parametrize("frame", [LOCAL[0], LOCAL[2], LOCAL[5]], ids=lambda frame: frame.name)
@pytest.mark.filterwarnings("ignore:reduce_rows. TensorFlow cannot vectorize:UserWarning")
def test_what_only_the_data_shows(case: ExpectFail, frame: Flavour) -> None:
    check_refused(lambda: run(case, frame.make(case.input)), case.error, case.message)


def test_what_the_data_shows_on_spark_arrives_as_text(spark: Any) -> None:  # once: the worker ends with it, and the next one starts cold
    from pyspark.errors import PythonException

    df = spark.range(0, 4, 1, 1).selectExpr("nullif(id, 1) as x")
    with pytest.raises(PythonException) as caught:
        tfs.reduce_blocks(total, df)
    message = (
        "reduce_blocks: column 'x' holds 1 null, at row 1 of the block, where no null may be; nulls= of tfs.feed says what becomes of them."
    )
    assert f"tensorframes.errors.NullError: {message}\n" in f"{caught.value}\n"


def test_a_program_that_changes_shape_when_applied_twice() -> None:
    # Square cells stay square once, and what comes of others is another shape each time.
    turned = tfs.program(
        lambda m: {"m": tf.cond(tf.shape(m)[0] > 2, lambda: m[0], lambda: tf.transpose(m[0]))},
        signature={"m": tf.TensorSpec([None, None, None], tf.float64)},
    )
    table = pa.table({"m": [[[1.0, 2.0, 3.0]]] * 5})
    message = "reduce_blocks: output 'm' has shape [3, 1] in round 2, but the cells that it is folded from have shape [1, 3]."
    check_refused(lambda: tfs.reduce_blocks(turned, table, block_rows=3), tfs.ShapeError, message.replace("round 2", "round 1"))
    frame = pa.table({"m": [[[1.0, 2.0, 3.0]]] * 6})
    check_refused(lambda: tfs.reduce_blocks(turned, frame, block_rows=3), tfs.ShapeError, message)


def test_blocks_of_different_shapes_are_not_folded_together() -> None:
    table = pa.table({"v": [[1.0, 2.0], [3.0, 4.0], [5.0], [6.0]]})
    message = lines(
        "column 'v' has cells of shapes [1] and [2], which are not folded together.",
        "  Feed them padded or ragged: tfs.feed('v', pad=0), or ragged=True.",
    )
    check_refused(
        lambda: tfs.reduce_blocks(lambda v: tf.reduce_sum(v, 0), table, block_rows=2), tfs.ShapeError, f"reduce_blocks: {message}"
    )
    check_refused(lambda: tfs.reduce_rows(lambda a, b: a + b, table, block_rows=2), tfs.ShapeError, f"reduce_rows: {message}")


# --- What is refused before anything runs ---


@each(
    ExpectFail(
        "an output without its input",
        TWO,
        lambda x: {"z": tf.reduce_sum(x, 0)},
        tfs.ProgramError,
        lines(
            "reduce_blocks: output 'z' has no input to be folded from: 'z' or 'z_input' is wanted.",
            "  inputs:  x: float64[?]",
            "  outputs: z: float64[]",
            "  Give the function a parameter 'z' and say what feeds it: feed_dict={'z': …}.",
        ),
    ),
    ExpectFail(
        "an input too many",
        TWO,
        lambda x, n: {"x": tf.reduce_sum(x, 0)},
        tfs.ProgramError,
        lines(
            "reduce_blocks: input 'n' has no output that is folded from it.",
            "  inputs:  x: float64[?], n: int64[?]",
            "  outputs: x: float64[]",
        ),
    ),
    ExpectFail(
        "x and x_input",
        TWO,
        lambda x, x_input: {"x": tf.reduce_sum(x + x_input, 0)},
        tfs.ProgramError,
        lines(
            "reduce_blocks: input 'x_input' has no output that is folded from it.",
            "  inputs:  x: float64[?], x_input: float64[?]",
            "  outputs: x: float64[]",
        ),
    ),
    ExpectFail(
        "another dtype",
        TWO,
        lambda n: {"n": tf.cast(tf.reduce_sum(n, 0), tf.float64)},
        tfs.DTypeError,
        "reduce_blocks: output 'n' is float64[] but a cell of its input 'n' is int64[].",
    ),
    ExpectFail(
        "another rank",
        TWO,
        lambda x: {"x": tf.reduce_sum(x, 0, keepdims=True)},
        tfs.ShapeError,
        "reduce_blocks: output 'x' is float64[1] but a cell of its input 'x' is float64[].",
    ),
    ExpectFail(
        "no reduction",
        VECTORS,
        lambda v: {"v": 2 * v},
        tfs.ShapeError,
        "reduce_blocks: output 'v' is float64[?, ?] but a cell of its input 'v' is float64[?].",
    ),
    ExpectFail(
        "no such column",
        TWO,
        lambda y: tf.reduce_sum(y, 0),
        tfs.ColumnError,
        lines(
            "reduce_blocks: input 'y' wants a column 'y', but the frame has none of that name.",
            "  inputs:  y",
            "  columns: x: float64[?], n: int64[?]",
            "  Feed it from another column with feed_dict={'y': …}.",
        ),
    ),
    ExpectFail(
        "constants only",
        TWO,
        lambda x: {"x": tf.reduce_sum(x, 0)},
        tfs.ProgramError,
        lines(
            "reduce_blocks: the program reads no column, so that it has no rows to work on.",
            "  inputs:  x: float64[2]",
            "  columns: x: float64[?], n: int64[?]",
        ),
        {"x": [1.0, 2.0]},
    ),
    ExpectFail(
        "no proper block_rows",
        TWO,
        total,
        tfs.ProgramError,
        "reduce_blocks: block_rows is 0, but a positive integer or None is wanted.",
        options={"block_rows": 0},
    ),
    ExpectFail(
        "no such device",
        TWO,
        total,
        tfs.ProgramError,
        "reduce_blocks: device is 'tpu', but one of 'auto', 'cpu', 'gpu' is wanted.",
        options={"device": "tpu"},
    ),
    ExpectFail(
        "an output of pairs without its inputs",
        TWO,
        lambda x_1, x_2: {"z": x_1 + x_2, "x": x_1},
        tfs.ProgramError,
        lines(
            "reduce_rows: output 'z' has no two inputs to be folded from: 'z_1' and 'z_2' are wanted.",
            "  inputs:  x_1: float64[], x_2: float64[]",
            "  outputs: z: float64[], x: float64[]",
        ),
        verb=tfs.reduce_rows,
    ),
    ExpectFail(
        "inputs of pairs too many",
        TWO,
        lambda x_1, x_2, n_1: {"x": x_1 + x_2},
        tfs.ProgramError,
        lines(
            "reduce_rows: input 'n_1' has no output that is folded from it.",
            "  inputs:  x_1: float64[], x_2: float64[], n_1: int64[]",
            "  outputs: x: float64[]",
        ),
        verb=tfs.reduce_rows,
    ),
    ExpectFail(
        "any two names of a frame of two columns",
        TWO,
        lambda a, b: a + b,
        tfs.ColumnError,
        lines(
            "reduce_rows: input 'a' wants a column 'a', but the frame has none of that name.",
            "  inputs:  a, b",
            "  columns: x: float64[?], n: int64[?]",
            "  Feed it from another column with feed_dict={'a': …}.",
        ),
        verb=tfs.reduce_rows,
    ),
    ExpectFail(
        "a pair of two columns",
        {"a": [1.0, 2.0], "b": [3.0, 4.0]},
        lambda x_1, x_2: {"x": x_1 + x_2},
        tfs.ProgramError,
        lines(
            "reduce_rows: inputs 'x_1' and 'x_2' are folded with each other, but are fed by the columns 'a' and 'b'.",
            "  inputs:  x_1: float64[], x_2: float64[]",
            "  outputs: x: float64[]",
        ),
        {"x_1": "a", "x_2": "b"},
        tfs.reduce_rows,
    ),
    ExpectFail(
        "a pair of a column and a constant",
        DOUBLES,
        lambda x_1, x_2: {"x": x_1 + x_2},
        tfs.ProgramError,
        lines(
            "reduce_rows: output 'x' has no two inputs to be folded from: 'x_1' and 'x_2' are wanted.",
            "  inputs:  x_1: float64[], x_2: float64[]",
            "  outputs: x: float64[]",
        ),
        {"x_2": 1.0},
        tfs.reduce_rows,
    ),
    ExpectFail(
        "another dtype of a pair",
        TWO,
        lambda n_1, n_2: {"n": tf.cast(n_1 + n_2, tf.int32)},
        tfs.DTypeError,
        "reduce_rows: output 'n' is int32[] but a cell of its input 'n_1' is int64[].",
        verb=tfs.reduce_rows,
    ),
    ExpectFail(
        "another shape of a pair",
        TWO,
        lambda n_1, n_2: {"n": tf.stack([n_1, n_2])},
        tfs.ShapeError,
        "reduce_rows: output 'n' is int64[2] but a cell of its input 'n_1' is int64[].",
        verb=tfs.reduce_rows,
    ),
)
@SOME_FRAMES
def test_refusals(case: ExpectFail, frame: Flavour) -> None:
    native = frame.make(case.input)
    check_refused(lambda: run(case, native), case.error, case.message)


@pytest.mark.parametrize("verb", [tfs.reduce_blocks, tfs.reduce_rows])
def test_what_is_no_frame_is_refused(verb: Any) -> None:
    message = (
        f"{verb.__name__}: a builtins.list is no frame; wanted is a Spark, pandas or polars DataFrame, a pyarrow Table, RecordBatch, "
        "RecordBatchReader or Dataset, or an object with __arrow_c_stream__."
    )
    check_refused(lambda: verb(total, [1.0]), tfs.FrameError, message)


# --- What is left as it was ---


def test_a_pandas_frame_is_not_changed() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "v": [[1.0], [2.0]]}, index=[5, 3])
    frame.attrs["note"] = "kept"
    before = frame.copy(deep=True)
    tfs.reduce_blocks(lambda x, v: {"x": tf.reduce_sum(x, 0), "v": tf.reduce_sum(v, 0)}, frame)
    tfs.reduce_rows(lambda x_1, x_2: {"x": x_1 + x_2}, frame)
    pd.testing.assert_frame_equal(frame, before)
    assert frame.attrs == before.attrs


def test_results_can_be_written_to_and_share_no_memory() -> None:
    table = pa.table({"v": [[1.0, 2.0]]})
    held = tfs.reduce_rows(lambda a, b: a + b, table)
    held += 1
    assert table["v"].to_pylist() == [[1.0, 2.0]]


def test_the_graph_and_the_session_are_left_as_they_were(frame: Flavour) -> None:
    native = frame.make(DOUBLES)
    session = getattr(native, "sparkSession", None)
    settings_before = session.conf.getAll if session is not None else {}
    with tf.Graph().as_default() as graph:
        check_value(tfs.reduce_blocks(total, native), number(28))
        check_value(tfs.reduce_rows(lambda a, b: a + b, frame.make(DOUBLES)), number(28))
        assert tf.compat.v1.get_default_graph() is graph
        assert graph.get_operations() == []
    assert tf.executing_eagerly()
    assert (session.conf.getAll if session is not None else {}) == settings_before
