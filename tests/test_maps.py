import datetime
import decimal
import functools
import subprocess
import sys
import textwrap
import threading
import typing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import tensorflow as tf
from expectations import check_refused
from flavours import LOCAL, Columns, Flavour, Stream, as_table, check_same_table, plain
from hypothesis import given, settings
from hypothesis import strategies as st
from verbs import Expect, ExpectFail, each

import tensorframes as tfs
from tensorframes.programs import CACHE

UTC = datetime.timezone.utc
DOUBLES = {"x": [1.0, 2.0, 3.0, 4.0, 5.0]}
PAIRS = {"v": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]}
RAGGED = {"v": [[1.0, 2.0], [3.0], [], [4.0], [5.0, 6.0, 7.0]]}


def check_maps(case: Expect, frame: Flavour) -> None:
    # `id` comes first, so that Spark's rows can be put in order again.
    columns = {"id": list(range(len(next(iter(case.input.values()))))), **case.input}
    held = frame.read(case.verb(case.fetches, frame.make(columns), case.feed_dict, **case.options))
    check_same_table(held, plain(as_table({**columns, **case.output})))


def check_captures(case: Expect, frame: Flavour) -> None:
    """Check what the frames have no part in, as capture and names: where reading is costly, the schema only."""
    if not frame.is_costly:
        check_maps(case, frame)
        return
    mapped = case.verb(case.fetches, frame.make(case.input), case.feed_dict, **case.options)
    assert frame.schema(mapped) == plain(as_table({**case.input, **case.output})).schema


def check_refuses(case: ExpectFail, frame: Flavour) -> None:
    """Check that the verb itself raises, whether the frame is lazy or not."""
    native = frame.make(case.input)
    check_refused(lambda: case.verb(case.fetches, native, case.feed_dict, **case.options), case.error, case.message)


def check_fails(case: ExpectFail, frame: Flavour) -> None:
    """Check that the job raises: the verb itself, or the reading of a lazy frame."""
    native = frame.make(case.input)
    frame.check_fails(lambda: case.verb(case.fetches, native, case.feed_dict, **case.options), case.error, case.message)


def lines(*text: str) -> str:
    return "\n".join(text)


def floats(*cells: float) -> pa.Array:
    return pa.array(cells, pa.float32())


def ints(*cells: int) -> pa.Array:
    return pa.array(cells, pa.int32())


def in_graph(build: Callable[[], Any]) -> Any:
    """Build v1 tensors in a graph of their own, which is not the default graph afterwards."""
    with tf.Graph().as_default():
        return build()


def placeholder(name: str, dtype: str = "float64", shape: Any = (None,)) -> tf.Tensor:
    return tf.compat.v1.placeholder(dtype, shape, name)


# --- Names: API.md's table of fetches ---


class Moments(typing.NamedTuple):
    total: Any
    square: Any


def doubled(x):
    return 2 * x


def with_default(x, by=10.0):
    return {"z": x * by}


class Scale:
    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x):
        return {"z": self.by * x}


@tf.function
def plus_one(x):
    return x + 1


@tf.function(input_signature=[tf.TensorSpec([None], tf.float64)])
def signed(x):
    return x + 1


ADD3 = tfs.program(lambda x: {"z": x + 3}, signature={"x": tf.TensorSpec([None], tf.float64)})
PLUS3 = [4.0, 5.0, 6.0, 7.0, 8.0]
TWICE = [2.0, 4.0, 6.0, 8.0, 10.0]


@each(
    Expect("keys of a dict", DOUBLES, lambda x: {"b": x, "a": 2 * x}, {"b": DOUBLES["x"], "a": TWICE}),
    Expect("a function's own name", DOUBLES, doubled, {"doubled": TWICE}),
    Expect("output of a lambda", DOUBLES, lambda x: 2 * x, {"output": TWICE}),
    Expect("fields of a NamedTuple", DOUBLES, lambda x: Moments(2 * x, x + 3), {"total": TWICE, "square": PLUS3}),
    Expect("positions of a tuple", DOUBLES, lambda x: (2 * x, x + 3), {"output_0": TWICE, "output_1": PLUS3}),
    Expect("positions of a list", DOUBLES, lambda x: [2 * x, x + 3], {"output_0": TWICE, "output_1": PLUS3}),
    Expect("parameters in another order than the columns", {"a": [1.0], "b": [2.0]}, lambda b, a: {"z": b - a}, {"z": [1.0]}),
    Expect("a default counts where nobody feeds it", DOUBLES, with_default, {"z": [10.0, 20.0, 30.0, 40.0, 50.0]}),
    Expect(
        "a default is not fed by a column of its name",
        {**DOUBLES, "by": [0.0] * 5},
        with_default,
        {"z": [10.0, 20.0, 30.0, 40.0, 50.0]},
    ),
    Expect(
        "a default gives way to a column that feed_dict names",
        {**DOUBLES, "by": [0.0, 1.0, 2.0, 3.0, 4.0]},
        with_default,
        {"z": [0.0, 2.0, 6.0, 12.0, 20.0]},
        {"by": "by"},
    ),
    Expect("a default gives way to a constant", DOUBLES, with_default, {"z": TWICE}, {"by": 2.0}),
    Expect("a partial function", DOUBLES, functools.partial(with_default, by=2.0), {"z": TWICE}),
    Expect("an object that can be called", DOUBLES, Scale(2.0), {"z": TWICE}),
    Expect("a bound method", DOUBLES, Scale(2.0).__call__, {"z": TWICE}),
    Expect("a tf.function", DOUBLES, plus_one, {"plus_one": [2.0, 3.0, 4.0, 5.0, 6.0]}),
    Expect("a tf.function with a signature", DOUBLES, signed, {"signed": [2.0, 3.0, 4.0, 5.0, 6.0]}),
    Expect(
        "a concrete function",
        DOUBLES,
        plus_one.get_concrete_function(tf.TensorSpec([None], tf.float64)),
        {"plus_one": [2.0, 3.0, 4.0, 5.0, 6.0]},
    ),
    Expect("a program", DOUBLES, ADD3, {"z": PLUS3}),
    Expect("a dict renames a function", DOUBLES, {"w": doubled}, {"w": TWICE}),
    Expect("a dict renames a program", DOUBLES, {"w": ADD3}, {"w": PLUS3}),
    Expect(
        "a dict of mixed kinds",
        DOUBLES,
        {"f": doubled, "p": ADD3, "g": in_graph(lambda: placeholder("x") - 1.0), "t": plus_one},
        {"f": TWICE, "p": PLUS3, "g": [0.0, 1.0, 2.0, 3.0, 4.0], "t": [2.0, 3.0, 4.0, 5.0, 6.0]},
    ),
    Expect(
        "a dict of functions of different columns",
        {"a": [1.0, 2.0], "b": [10.0, 20.0]},
        {"y": lambda a: a, "z": lambda b, a: a + b},
        {"y": [1.0, 2.0], "z": [11.0, 22.0]},
    ),
    Expect("a list of functions", DOUBLES, [doubled, plus_one], {"doubled": TWICE, "plus_one": [2.0, 3.0, 4.0, 5.0, 6.0]}),
)
def test_outputs_are_named(case: Expect, frame: Flavour) -> None:
    check_captures(case, frame)


# --- v1 graphs ---


def add_and_top_k() -> list[tf.Tensor]:
    top = tf.math.top_k(placeholder("v", shape=(None, 2)), k=2, name="top")
    return [top.values, top.indices]


def two_placeholders() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    a, b = placeholder("a"), placeholder("b")
    return a, b, tf.subtract(a, b, name="z")


A, B, A_MINUS_B = in_graph(two_placeholders)


@each(
    Expect("a tensor", DOUBLES, in_graph(lambda: tf.add(placeholder("x"), 3, name="z")), {"z": PLUS3}),
    Expect(
        "a list of tensors",
        DOUBLES,
        in_graph(lambda: [tf.add(x := placeholder("x"), 3, name="z"), tf.add(x, x, name="y")]),
        {"z": PLUS3, "y": TWICE},
    ),
    Expect("a dict of tensors", DOUBLES, {"w": in_graph(lambda: placeholder("x") + 3.0)}, {"w": PLUS3}),
    Expect(
        "both outputs of one operation",
        PAIRS,
        in_graph(add_and_top_k),
        {
            "top": [[2.0, 1.0], [4.0, 3.0], [6.0, 5.0], [8.0, 7.0]],
            "top_1": pa.array([[1, 0]] * 4, pa.list_(pa.int32())),
        },
    ),
    Expect(
        "a placeholder named unlike its column",
        {"column": [1.0, 2.0]},
        in_graph(lambda: tf.add(placeholder("x_tf"), 3, name="z")),
        {"z": [4.0, 5.0]},
        {"x_tf": "column"},
    ),
    Expect("names of placeholders as keys", {"p": [3.0, 5.0], "q": [1.0, 1.0]}, A_MINUS_B, {"z": [2.0, 4.0]}, {"a:0": "p", "b": "q"}),
    Expect(
        "a placeholder fed by a constant", {"a": [3.0, 5.0]}, A_MINUS_B, {"z": [2.0, 3.0]}, {"b": [1.0, 2.0]}, options={"block_rows": 2}
    ),
    Expect(
        "a placeholder with a default, which nobody feeds",
        DOUBLES,
        in_graph(
            lambda: tf.multiply(placeholder("x"), tf.compat.v1.placeholder_with_default(tf.constant(2.0, tf.float64), [], "by"), name="z")
        ),
        {"z": TWICE},
    ),
    Expect(
        "an untyped rank",
        DOUBLES,
        in_graph(lambda: tf.add(tf.compat.v1.placeholder(tf.float64, name="x"), 3, name="z")),
        {"z": PLUS3},
    ),
)
def test_graphs_of_v1_map(case: Expect, frame: Flavour) -> None:
    check_captures(case, frame)


def test_placeholder_tensors_are_keys_of_feed_dict(frame: Flavour) -> None:
    native = frame.make({"id": [0, 1], "p": [3.0, 5.0], "q": [1.0, 1.0]})
    with A.graph.as_default():  # TensorFlow hashes symbolic tensors only there
        feed_dict = {A: "p", B: "q"}
    held = frame.read(tfs.map_blocks(A_MINUS_B, native, feed_dict))
    assert held["z"].to_pylist() == [2.0, 4.0]


@pytest.mark.parametrize("name", ["z", "z:0"])
def test_names_of_tensors_mean_the_default_graph(name: str, frame: Flavour) -> None:
    native = frame.make({"id": [0, 1], "x": [1.0, 2.0]})
    with tf.Graph().as_default():
        tf.add(placeholder("x"), 3, name="z")
        mapped = tfs.map_blocks(name, native)
    check_same_table(frame.read(mapped), plain(as_table({"id": [0, 1], "x": [1.0, 2.0], "z": [4.0, 5.0]})))


def test_block_makes_a_placeholder_for_map_blocks(frame: Flavour) -> None:
    columns = {"id": [0, 1, 2, 3], **PAIRS}
    frame_2 = tfs.append_shape(frame.make(columns), "v", [None, 2])
    with tf.Graph().as_default():
        v = tfs.block(frame_2, "v")
        z = tf.reduce_sum(v, axis=1, name="z")
    assert v.shape.as_list() == [None, 2]
    held = frame.read(tfs.map_blocks(z, frame_2))
    assert held["z"].to_pylist() == [3.0, 7.0, 11.0, 15.0]


def test_row_makes_a_placeholder_for_map_rows(frame: Flavour) -> None:
    native = frame.make({"id": [0, 1, 2, 3], **PAIRS})
    with tf.Graph().as_default():
        z = tf.reduce_sum(tfs.row(native, "v", "other"), name="z")
    assert z.shape.as_list() == []
    held = frame.read(tfs.map_rows(z, native, {"other": "v"}))
    assert held["z"].to_pylist() == [3.0, 7.0, 11.0, 15.0]


def scaled_by_variable(resource: bool) -> Callable[[], Any]:
    def build() -> Any:
        weight = tf.compat.v1.get_variable("w", initializer=tf.constant(2.0, tf.float64), use_resource=resource)
        return tf.multiply(placeholder("x"), weight, name="z"), weight

    return build


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
class TestVariablesOfV1:
    def test_the_default_session_gives_trained_values(self, resource: bool, frame: Flavour) -> None:
        z, weight = in_graph(scaled_by_variable(resource))
        native = frame.make({"id": [0, 1], "x": [1.0, 2.0]})
        with tf.compat.v1.Session(graph=z.graph) as session:
            session.run(weight.initializer)
            session.run(weight.assign(5.0))
            mapped = tfs.map_blocks(z, native)
            assert session.run(weight) == 5.0
        assert frame.read(mapped)["z"].to_pylist() == [5.0, 10.0]

    def test_without_a_session_they_are_initialised(self, resource: bool, frame: Flavour) -> None:
        z, _ = in_graph(scaled_by_variable(resource))
        native = frame.make({"id": [0, 1], "x": [1.0, 2.0]})
        assert frame.read(tfs.map_blocks(z, native))["z"].to_pylist() == [2.0, 4.0]

    def test_initialising_leaves_the_session_as_it_is(self, resource: bool) -> None:
        z, weight = in_graph(scaled_by_variable(resource))
        with tf.compat.v1.Session(graph=z.graph) as session:
            held = tfs.map_blocks(z, pa.table({"x": [1.0]}))
            with pytest.raises(tf.errors.FailedPreconditionError):
                session.run(weight)
        assert held["z"].to_pylist() == [2.0]

    @pytest.mark.parametrize("verb", [tfs.map_blocks, tfs.map_rows])
    def test_or_are_named_if_that_is_not_wanted(self, verb: Callable[..., Any], resource: bool) -> None:
        z, _ = in_graph(scaled_by_variable(resource)) if verb is tfs.map_blocks else in_graph(row_variable)
        with pytest.raises(tfs.ProgramError) as caught:
            verb(z, pa.table({"x": [1.0]}), initial_variables=False)
        assert str(caught.value) == lines(
            f"{verb.__name__}: the fetches read variables that have no value.",
            "  variables: w",
            "  Pass their session to tfs.program(…, session=…), or initial_variables=True.",
        )

    def test_a_program_takes_the_session_it_is_given(self, resource: bool) -> None:
        z, weight = in_graph(scaled_by_variable(resource))
        session = tf.compat.v1.Session(graph=z.graph)
        with z.graph.as_default():
            session.run(weight.initializer)
            session.run(weight.assign(7.0))
        program = tfs.program(z, session=session)
        session.close()
        assert tfs.map_blocks(program, pa.table({"x": [1.0]}))["z"].to_pylist() == [7.0]


def row_variable() -> Any:
    weight = tf.compat.v1.get_variable("w", initializer=tf.constant(2.0, tf.float64))
    return tf.multiply(placeholder("x", shape=()), weight, name="z"), weight


def test_the_callers_graph_and_default_graph_stay_as_they_were() -> None:
    z, _ = in_graph(scaled_by_variable(True))
    before, default = len(z.graph.get_operations()), tf.compat.v1.get_default_graph()
    tfs.map_blocks(z, pa.table({"x": [1.0]}))
    # Initialising and reading variables adds nothing either: the graph that the user goes on building is the user's.
    assert len(z.graph.get_operations()) == before
    assert tf.compat.v1.get_default_graph() is default
    assert len(default.get_operations()) == 0


def test_variables_of_v2_are_read_when_the_verb_is_called(frame: Flavour) -> None:
    weight = tf.Variable(2.0, dtype=tf.float64)
    native = frame.make({"id": [0, 1], "x": [1.0, 2.0]})
    mapped = tfs.map_blocks(lambda x: {"z": x * weight}, native)
    weight.assign(100.0)
    assert frame.read(mapped)["z"].to_pylist() == [2.0, 4.0]


# --- feed_dict ---

POINTS = {"p": [{"x": 1.0, "q": {"y": 10.0}}, {"x": 2.0, "q": {"y": 20.0}}]}


@pytest.mark.core
@each(
    Expect("input to column", {"c": [1.0, 2.0]}, lambda x: {"z": x}, {"z": [1.0, 2.0]}, {"x": "c"}),
    Expect("one column by position", {"c": [1.0, 2.0]}, lambda x: {"z": x}, {"z": [1.0, 2.0]}, "c"),
    Expect(
        "columns by position, the rest by name",
        {"c": [3.0], "d": [2.0], "third": [1.0]},
        lambda a, b, third: {"z": a - b - third},
        {"z": [0.0]},
        ["c", "d"],
    ),
    Expect("one column for two inputs", {"c": [1.0, 2.0]}, lambda a, b: {"z": a + b}, {"z": [2.0, 4.0]}, {"a": "c", "b": "c"}),
    Expect("a struct's field", POINTS, lambda x: {"z": x}, {"z": [1.0, 2.0]}, {"x": "p.x"}),
    Expect("a field of a struct's struct", POINTS, lambda x: {"z": x}, {"z": [10.0, 20.0]}, "p.q.y"),
    Expect(
        "a column really named like a path wins",
        {"image": [{"data": 1.0}, {"data": 2.0}], "image.data": [10.0, 20.0]},
        lambda x: {"z": x},
        {"z": [10.0, 20.0]},
        {"x": "image.data"},
    ),
    Expect("a column with a dot in its name", {"a.b": [1.0, 2.0]}, lambda x: {"z": x}, {"z": [1.0, 2.0]}, {"x": "a.b"}),
    Expect("an array as a constant", PAIRS, lambda v, w: {"z": v @ w}, {"z": [[3.0], [7.0], [11.0], [15.0]]}, {"w": np.ones((2, 1))}),
    Expect(
        "a list as a constant", PAIRS, lambda v, w: {"z": v * w}, {"z": [[0.0, 2.0], [0.0, 4.0], [0.0, 6.0], [0.0, 8.0]]}, {"w": [0.0, 1.0]}
    ),
    Expect("a number as a constant", DOUBLES, lambda x, by: {"z": x * by}, {"z": TWICE}, {"by": 2.0}),
    Expect("a string array as a constant", {"s": ["a", "b"]}, lambda s, t: {"z": s + t}, {"z": ["aé", "bé"]}, {"t": np.array("é")}),
    Expect(
        "a column and a constant together",
        {"c": [1.0, 2.0]},
        lambda x, by: {"z": x * by},
        {"z": [3.0, 6.0]},
        {"x": "c", "by": np.float64(3)},
    ),
    Expect("a constant's integers for a declared float", DOUBLES, {"z": tf.function(lambda x, by: x * by)}, {"z": TWICE}, {"by": 2.0}),
    Expect(
        "a path and a constant by rows",
        POINTS,
        lambda x, w: {"z": x * w},
        {"z": [[1.0, 2.0], [2.0, 4.0]]},
        {"x": "p.x", "w": [1.0, 2.0]},
        verb=tfs.map_rows,
    ),
)
def test_feed_dict_says_where_inputs_come_from(case: Expect, frame: Flavour) -> None:
    check_captures(case, frame)


# --- Shapes and types ---

SQUARES = [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]], [[9.0, 10.0], [11.0, 12.0]], [[13.0, 14.0], [15.0, 16.0]]]


def nested(shape: tuple[int, ...], leaf: pa.DataType, rows: int = 4) -> pa.Array:
    for _ in shape:
        leaf = pa.list_(leaf)
    return pa.array(np.arange(rows * int(np.prod(shape))).reshape(rows, *shape).tolist(), leaf)


@each(
    Expect("2 × 2 cells", {"m": SQUARES}, lambda m: {"z": tf.transpose(m, [0, 2, 1])}, {"z": [np.array(m).T.tolist() for m in SQUARES]}),
    Expect("3 × 5 × 5 cells of float", {"m": nested((3, 5, 5), pa.float32())}, lambda m: {"z": m}, {"z": nested((3, 5, 5), pa.float32())}),
    Expect("cells of rank 5", {"m": nested((2, 1, 3, 1, 2), pa.int32())}, lambda m: {"z": m}, {"z": nested((2, 1, 3, 1, 2), pa.int32())}),
    Expect("a column of length 1 stays one", DOUBLES, lambda x: {"z": x[:, None]}, {"z": [[1.0], [2.0], [3.0], [4.0], [5.0]]}),
    Expect(
        "empty cells",
        {"v": pa.array([[]] * 4, pa.list_(pa.float64()))},
        lambda v: {"same": 2 * v, "sum": tf.reduce_sum(v, 1), "wide": tf.ones([tf.shape(v)[0], tf.shape(v)[1], 2])},
        {
            "same": pa.array([[]] * 4, pa.list_(pa.float64())),
            "sum": [0.0] * 4,
            "wide": pa.array([[]] * 4, pa.list_(pa.list_(pa.float32()))),
        },
    ),
    Expect("one row", {"x": [1.0]}, lambda x: {"z": x + 3}, {"z": [4.0]}),
    Expect(
        "a cell's shape from a scalar",
        {"n": [1, 2]},
        lambda n: {"z": tf.one_hot(n, 3)},
        {"z": pa.array([[0, 1, 0], [0, 0, 1]], pa.list_(pa.float32()))},
    ),
)
def test_shapes_go_in_and_out(case: Expect, frame: Flavour) -> None:
    check_maps(case, frame)


DAY, NOON = datetime.date(2024, 2, 29), datetime.datetime(1969, 7, 20, 20, 17, 40, 123456, UTC)
LONG = 2**53 + 1


def declared(dtype: str, shape: Any = (None,)) -> Any:
    return tf.function(lambda x: {"z": x}, input_signature=[tf.TensorSpec(shape, dtype)])


def kept(x):
    return {"z": x}


TYPES_READ_EVERYWHERE = {
    "booleans, over many batches",
    "longs that no double holds",
    "NaN, infinity and minus zero",
    "arrays of strings",
    "strings, not only ASCII",
    "dates are days",
    "timestamps are microseconds",
    "arrays of double for a program that declares float",
}


@pytest.mark.core
@each(
    Expect(
        "booleans, over many batches",
        {"x": [True, False, False, True, True, False, True]},
        lambda x: {"z": ~x},
        {"z": [False, True, True, False, False, True, False]},
    ),
    Expect("bytes of 8 bits", {"x": pa.array([-128, 127], pa.int8())}, kept, {"z": pa.array([-128, 127], pa.int8())}),
    Expect("shorts", {"x": pa.array([-(2**15), 1], pa.int16())}, kept, {"z": pa.array([-(2**15), 1], pa.int16())}),
    Expect("ints", {"x": ints(-(2**31), 1)}, kept, {"z": ints(-(2**31), 1)}),
    Expect("longs that no double holds", {"x": [LONG, -LONG, 2**63 - 1]}, kept, {"z": [LONG, -LONG, 2**63 - 1]}),
    Expect("floats", {"x": floats(0.1, 1e38)}, kept, {"z": floats(0.1, 1e38)}),
    Expect("NaN, infinity and minus zero", {"x": [float("nan"), float("inf"), -0.0]}, kept, {"z": [float("nan"), float("inf"), -0.0]}),
    Expect("strings, not only ASCII", {"x": ["a", "", "é日本", "🙂"]}, lambda x: {"z": x + "ß"}, {"z": ["aß", "ß", "é日本ß", "🙂ß"]}),
    Expect("lengths of strings", {"x": ["a", "é", "日本"]}, lambda x: {"z": tf.strings.length(x, "UTF8_CHAR")}, {"z": ints(1, 1, 2)}),
    Expect("arrays of strings", {"x": [["a", "é"], ["", "🙂"]]}, lambda x: {"z": tf.reverse(x, [1])}, {"z": [["é", "a"], ["🙂", ""]]}),
    Expect("arrays of booleans", {"x": [[True, False], [False, False]]}, lambda x: {"z": ~x}, {"z": [[False, True], [True, True]]}),
    Expect(
        "dates are days",
        {"x": [DAY, datetime.date(1969, 12, 31)]},
        kept,
        {"z": ints((DAY - datetime.date(1970, 1, 1)).days, -1)},
    ),
    Expect("timestamps are microseconds", {"x": pa.array([NOON, NOON], pa.timestamp("us", "UTC"))}, kept, {"z": [-14182939876544] * 2}),
    Expect("double for a program that declares float", DOUBLES, declared("float32"), {"z": floats(1, 2, 3, 4, 5)}),
    Expect("float for a program that declares double", {"x": floats(0.5, 1.5)}, declared("float64"), {"z": [0.5, 1.5]}),
    Expect("int for a program that declares float", {"x": ints(1, 2)}, declared("float32"), {"z": floats(1, 2)}),
    Expect("int for a program that declares long", {"x": ints(1, 2)}, declared("int64"), {"z": [1, 2]}),
    Expect(
        "infinity for a program that declares float",
        {"x": [float("inf"), float("nan")]},
        declared("float32"),
        {"z": floats(float("inf"), float("nan"))},
    ),
    Expect(
        "arrays of double for a program that declares float",
        PAIRS,
        declared("float32", (None, 2)),
        {"z": pa.array(PAIRS["v"], pa.list_(pa.float32()))},
        {"x": "v"},
    ),
    Expect("a boolean output", DOUBLES, lambda x: {"z": x > 2}, {"z": [False, False, True, True, True]}),
)
def test_types_go_in_and_out(case: Expect, frame: Flavour) -> None:
    (check_maps if case.id in TYPES_READ_EVERYWHERE else check_captures)(case, frame)


WIDENED = {  # dtype → its column's type, and that on Spark
    "uint8": (pa.uint8(), pa.int16()),
    "uint16": (pa.uint16(), pa.int32()),
    "uint32": (pa.uint32(), pa.int64()),
    "float16": (pa.float16(), pa.float32()),
    "bfloat16": (pa.float32(), pa.float32()),
}


def test_types_that_spark_lacks_are_widened_there(frame: Flavour) -> None:
    def cast(x):
        return {name: tf.cast(values, dtype) for dtype in WIDENED for name, values in ((dtype, x), (f"{dtype}s", x[:, None]))}

    held = frame.read(tfs.map_blocks(cast, frame.make({"id": [0, 1], "x": [1.0, 200.0]})))
    for dtype, (local, on_spark) in WIDENED.items():
        wanted = on_spark if frame.on_spark else local
        assert [held[dtype].type, held[f"{dtype}s"].type] == [wanted, pa.list_(wanted)]
        assert [float(cell) for cell in held[dtype].to_pylist()] == [1.0, 200.0]
        assert [[float(value) for value in cell] for cell in held[f"{dtype}s"].to_pylist()] == [[1.0], [200.0]]


def test_bytes_come_back_as_they_went_in(frame: Flavour) -> None:
    program = tfs.program(kept, signature={"x": tf.TensorSpec([None], tf.string)}, binary=("z",))
    cells = [b"ab\x00\x00", b"", bytes(range(256)) * 12, b"\xff\xfe"]
    native = frame.make({"id": [0, 1, 2, 3], "x": pa.array(cells, pa.binary())})
    held = frame.read(tfs.map_blocks(program, native))
    assert held["z"].type == pa.binary()
    assert held["z"].to_pylist() == cells


# --- Blocks ---

NUMBERS = {"x": [float(i) for i in range(21)]}


@pytest.mark.parametrize("block_rows", [None, 1, 10, 21, 100])
def test_blocks_of_any_size_give_the_same(block_rows: int | None, frame: Flavour) -> None:
    if frame.is_costly and block_rows not in (1, 10):
        pytest.skip("two sizes are enough where reading is costly")
    check_maps(
        Expect(
            "", NUMBERS, lambda x: {"z": x + 3, "v": tf.stack([x, -x], 1)},
            {"z": [i + 3.0 for i in range(21)], "v": [[float(i), -float(i)] for i in range(21)]},
            options={"block_rows": block_rows},
        ),
        frame,
    )  # fmt: skip


def test_block_rows_is_the_size_of_all_blocks_but_the_last() -> None:
    held = tfs.map_blocks(lambda x: {"n": tf.fill([tf.shape(x)[0]], tf.shape(x)[0])}, as_table(NUMBERS), block_rows=10)
    assert held["n"].to_pylist() == [10] * 20 + [1]


@pytest.mark.core
@settings(deadline=None, max_examples=50)  # the first example traces
@given(st.lists(st.integers(0, 5), max_size=8), st.sampled_from([None, 1, 2, 7]))
def test_any_division_into_batches_gives_the_same(sizes: list[int], block_rows: int | None) -> None:
    whole = pa.table({"x": np.arange(float(sum(sizes))), "v": pa.array([[i, i] for i in range(sum(sizes))], pa.list_(pa.int64()))})
    ends = np.cumsum([0, *sizes]).tolist()
    parts = [batch for start, size in zip(ends, sizes, strict=False) for batch in whole.slice(start, size).to_batches()]
    divided = pa.Table.from_batches(parts, whole.schema)
    fetches = {"z": lambda x: x + 3, "w": lambda v: 2 * v}
    check_same_table(plain(tfs.map_blocks(fetches, divided, block_rows=block_rows)), plain(tfs.map_blocks(fetches, whole)))


@pytest.mark.parametrize("verb", [tfs.map_blocks, tfs.map_rows])
def test_batches_of_every_length_need_one_trace(verb: Callable[..., Any]) -> None:
    traces: list[int] = []

    def counted(x):
        traces.append(1)
        return {"z": x + 3}

    verb(counted, pa.table({"x": [1.0]}))
    once, loads = len(traces), CACHE.loads
    batches = [pa.record_batch({"x": np.arange(float(length))}) for length in range(1, 301)]
    held = verb(counted, pa.Table.from_batches(batches))
    assert len(traces) <= 2 * once
    assert CACHE.loads == loads
    assert held["z"].to_numpy().sum() == sum(sum(range(n)) + 3 * n for n in range(1, 301))


def test_each_block_may_have_its_own_cell_shape() -> None:
    images = pa.Table.from_batches([pa.record_batch({"m": nested((side, side), pa.float64(), 2)}) for side in (32, 64)])
    for verb in (tfs.map_blocks, tfs.map_rows):
        held = verb(lambda m: {"z": m + 1}, images)
        assert [np.array(cell).shape for cell in held["z"].to_pylist()] == [(32, 32)] * 2 + [(64, 64)] * 2
        assert held["z"][3].as_py()[63][63] == 2 * 64 * 64
    whole = images.combine_chunks()
    assert tfs.map_rows(lambda m: {"z": m + 1}, whole)["z"].to_pylist() == held["z"].to_pylist()
    with pytest.raises(tfs.ShapeError):
        tfs.map_blocks(lambda m: {"z": m + 1}, whole)


# --- trim ---


@pytest.mark.core
@each(
    Expect("outputs only", DOUBLES, lambda x: {"z": x + 3}, {"z": PLUS3}),
    Expect("an output may have a column's name", DOUBLES, lambda x: {"x": x + 3}, {"x": PLUS3}),
    Expect("fewer rows", DOUBLES, lambda x: {"z": tf.boolean_mask(x, x > 3)}, {"z": [4.0, 5.0]}),
    Expect(
        "more rows",
        DOUBLES,
        lambda x: {"z": tf.repeat(x, 2), "n": tf.repeat(2 * x, 2)},
        {"z": np.repeat(DOUBLES["x"], 2), "n": np.repeat(TWICE, 2)},
    ),
    Expect("no rows", DOUBLES, lambda x: {"z": x[:0]}, {"z": pa.array([], pa.float64())}),
    Expect("arrays", PAIRS, lambda v: {"z": tf.boolean_mask(v, v[:, 0] > 4)}, {"z": [[5.0, 6.0], [7.0, 8.0]]}),
)
def test_trim_keeps_outputs_only_with_any_number_of_rows(case: Expect, frame: Flavour) -> None:
    held = frame.read(tfs.map_blocks(case.fetches, frame.make(case.input), trim=True))
    check_same_table(
        held.sort_by(held.column_names[0]) if not frame.keeps_order and case.id != "arrays" else held, plain(as_table(case.output))
    )


def test_trim_of_a_fixed_number_of_rows_gives_them_for_each_block(frame: Flavour) -> None:
    native = frame.make({"x": [1.0, 2.0, 3.0]})
    held = frame.read(tfs.map_blocks(lambda x: {"z": tf.reduce_sum(x, keepdims=True)}, native, trim=True))
    check_same_table(held, plain(as_table({"z": [6.0]})))


# --- Frames without rows ---


@pytest.mark.core
@pytest.mark.parametrize("verb", [tfs.map_blocks, tfs.map_rows])
def test_a_frame_without_rows_gives_one_with_the_right_schema(verb: Callable[..., Any], frame: Flavour) -> None:
    schema = pa.schema({"x": pa.float64(), "s": pa.string()} | ({"v": pa.list_(pa.float32())} if frame.knows_types else {}))
    native = frame.make({name: [] for name in schema.names}, schema)
    fetches = {"z": lambda x: x > 3}
    if frame.knows_types:
        fetches["w"] = lambda v: 2 * v
    held = frame.read(verb(fetches, native))
    assert held.num_rows == 0
    assert held.column_names == [*schema.names, *fetches]
    if frame.knows_types:
        wanted = [*schema.types, pa.bool_(), pa.list_(pa.float32())]
        assert held.schema.types == wanted


def test_trim_of_a_frame_without_rows_gives_the_right_schema(frame: Flavour) -> None:
    native = frame.make({"x": []}, pa.schema({"x": pa.float64()}))
    held = frame.read(tfs.map_blocks(lambda x: {"z": tf.cast(x, tf.int32)}, native, trim=True))
    check_same_table(held, pa.table({"z": ints()}))


# --- The kind of the result, and when it is computed ---


def test_the_result_is_of_the_frames_kind(frame: Flavour) -> None:
    native = frame.make({"id": [0, 1, 2, 3], **PAIRS})
    assert isinstance(native, frame.result) is frame.keeps_kind
    for result in (
        tfs.map_blocks(lambda v: {"z": 2 * v}, native),
        tfs.map_blocks(lambda v: {"z": 2 * v}, frame.make({"id": [0, 1, 2, 3], **PAIRS}), trim=True),
        tfs.map_rows(lambda v: {"z": 2 * v}, frame.make({"id": [0, 1, 2, 3], **PAIRS})),
    ):
        assert type(result) is frame.result or frame.on_spark
        assert isinstance(result, frame.result)


def test_a_lazy_frame_computes_nothing_before_it_is_read(frame: Flavour) -> None:
    def refuse(x):
        with tf.control_dependencies([tf.debugging.assert_less(x, 0.0 * x, "computed")]):
            return {"z": tf.identity(x)}

    native = frame.make({"x": [1.0]})
    if frame.is_lazy:
        tfs.map_blocks(refuse, native)
        tfs.map_blocks(refuse, native, trim=True)
        tfs.map_rows(refuse, native)
    else:
        with pytest.raises(tfs.ProgramError, match="computed"):
            tfs.map_blocks(refuse, native)


def test_a_reader_is_read_a_batch_at_a_time() -> None:
    taken: list[int] = []

    def batches():
        for number in range(100):
            taken.append(number)
            yield pa.record_batch({"x": [float(number)] * 4})

    source = pa.RecordBatchReader.from_batches(pa.schema({"x": pa.float64()}), batches())
    mapped = tfs.map_rows(lambda z: {"y": z + 1}, tfs.map_blocks(lambda x: {"z": x + 3}, source))
    assert taken == []
    assert mapped.read_next_batch().to_pylist() == [{"x": 0.0, "z": 3.0, "y": 4.0}] * 4
    assert len(taken) <= 2
    assert mapped.read_all().num_rows == 99 * 4


def test_a_dataset_is_scanned_for_the_columns_that_are_read_when_trimmed(tmp_path: Any) -> None:
    scans: list[Any] = []

    class Recorded(ds.InMemoryDataset):
        def to_batches(self, *args: Any, **options: Any) -> Any:
            scans.append(options["columns"])
            return super().to_batches(*args, **options)

    native = Recorded(as_table({"a": [1.0, 2.0], "x": [1.0, 2.0], "s": [{"y": 1}] * 2}))
    held = tfs.map_blocks(lambda x, y: {"z": x}, native, {"y": "s.y"}, trim=True).read_all()
    assert held.to_pydict() == {"z": [1.0, 2.0]}
    assert scans == [["x", "s"]]


@pytest.mark.core
def test_columns_pass_through_untouched() -> None:
    table = pa.table(
        {
            "x": pa.array([1.0, 2.0]),
            "d": pa.array(["a", None]).dictionary_encode(),
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "n": pa.array([decimal.Decimal("1.50"), None]),
            "f": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
        }
    ).replace_schema_metadata({"origin": "here"})
    table = table.cast(table.schema.set(1, table.schema.field("d").with_metadata({"note": "kept"})))
    for verb in (tfs.map_blocks, tfs.map_rows):
        for native, read in ((table, lambda frame: frame), (table.to_reader(), pa.RecordBatchReader.read_all)):
            held = read(verb(lambda x: {"z": x}, native)).drop_columns("z")
            assert held.equals(table, check_metadata=True)


def test_an_object_that_is_only_a_stream_is_read_once() -> None:
    reads: list[int] = []

    class Counted(Stream):
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            reads.append(1)
            return super().__arrow_c_stream__(requested_schema)

    held = tfs.map_blocks(lambda x: {"z": x + 3}, Counted(as_table(DOUBLES)))
    check_same_table(held, plain(as_table({**DOUBLES, "z": PLUS3})))
    assert reads == [1]


# --- map_rows ---


ROWS_READ_EVERYWHERE = {
    "scalars",
    "rows of unequal length, each in its place",
    "outputs of unequal length",
    "two columns of unequal shapes",
    "a constant for all rows",
    "a loop whose length the row says",
    "a selection from rows of unequal length",
}


@tf.function
def halvings(n):
    steps = 0
    while n > 1:
        n = n // 2
        steps += 1
    return {"z": steps}


def clipped(x):
    if x > 3:
        z = x * 0 + 3
    elif x < 2:
        z = x * 0 + 2
    else:
        z = x
    return {"z": z}


def summed_in_a_loop(v):
    total = tf.constant(0.0, tf.float64)
    for value in v:
        total += value
    return {"z": total}


@pytest.mark.core
@each(
    Expect("scalars", DOUBLES, lambda x: {"z": x + 3}, {"z": PLUS3}),
    Expect("arrays to scalars", PAIRS, lambda v: {"z": tf.reduce_sum(v)}, {"z": [3.0, 7.0, 11.0, 15.0]}),
    Expect("scalars to arrays", {"x": [1.0, 2.0]}, lambda x: {"z": tf.stack([x, -x])}, {"z": [[1.0, -1.0], [2.0, -2.0]]}),
    Expect("cells of rank 2", {"m": SQUARES}, lambda m: {"z": tf.transpose(m)}, {"z": [np.array(m).T.tolist() for m in SQUARES]}),
    Expect("two columns", {"a": [1.0, 2.0], "b": [[1.0, 2.0], [3.0, 4.0]]}, lambda a, b: {"z": a * b}, {"z": [[1.0, 2.0], [6.0, 8.0]]}),
    Expect(
        "rows of unequal length, each in its place",
        RAGGED,
        lambda v: {"z": tf.reduce_sum(v), "n": tf.size(v)},
        {"z": [3.0, 3.0, 0.0, 4.0, 18.0], "n": ints(2, 1, 0, 1, 3)},
    ),
    Expect("outputs of unequal length", RAGGED, lambda v: {"z": 2 * v}, {"z": [[2.0, 4.0], [6.0], [], [8.0], [10.0, 12.0, 14.0]]}),
    Expect(
        "two columns of unequal shapes",
        {"v": [[1.0], [1.0, 2.0], [3.0]], "m": [[[1.0], [2.0]], [[1.0, 2.0]], [[1.0]]]},
        lambda v, m: {"z": tf.reduce_sum(v) + tf.reduce_sum(m), "s": tf.shape(m)},
        {"z": [4.0, 6.0, 4.0], "s": pa.array([[2, 1], [1, 2], [1, 1]], pa.list_(pa.int32()))},
    ),
    Expect("strings of unequal number", {"s": [["a", "é"], ["b"], []]}, lambda s: {"z": tf.strings.reduce_join(s)}, {"z": ["aé", "b", ""]}),
    Expect("a constant for all rows", PAIRS, lambda v, w: {"z": tf.tensordot(v, w, 1)}, {"z": [1.0, 3.0, 5.0, 7.0]}, {"w": [1.0, 0.0]}),
    Expect(
        "a constant is not one row each",
        {"x": [1.0, 2.0]},
        lambda x, w: {"z": x + w},
        {"z": [[11.0, 21.0], [12.0, 22.0]]},
        {"w": [10.0, 20.0]},
    ),
    Expect(
        "an output that no input reaches",
        {"x": [1.0, 2.0]},
        lambda x: {"z": tf.constant([7, 8])},
        {"z": pa.array([[7, 8]] * 2, pa.list_(pa.int32()))},
    ),
    Expect("a condition on the row", DOUBLES, clipped, {"z": [2.0, 2.0, 3.0, 3.0, 3.0]}),
    Expect("a loop whose length the row says", {"n": [1, 2, 3, 1024, 5]}, halvings, {"z": ints(0, 1, 1, 10, 2)}),
    Expect("a loop over the cell", RAGGED, summed_in_a_loop, {"z": [3.0, 3.0, 0.0, 4.0, 18.0]}),
    Expect(
        "a selection whose size the row says",
        PAIRS,
        lambda v: {"z": tf.reduce_sum(tf.boolean_mask(v, v > 3))},
        {"z": [0.0, 4.0, 11.0, 15.0]},
    ),
    Expect("a range whose size the row says", {"n": ints(0, 3, 5)}, lambda n: {"z": tf.reduce_sum(tf.range(n))}, {"z": ints(0, 3, 10)}),
    Expect("distinct values", {"v": [[1, 1, 2], [3, 3, 3]]}, lambda v: {"z": tf.size(tf.unique(v).y)}, {"z": ints(2, 1)}),
    Expect("words of a string", {"s": ["a b", "c", "d e f"]}, lambda s: {"z": tf.shape(tf.strings.split(s))[0]}, {"z": ints(2, 1, 3)}),
    Expect(
        "a selection from rows of unequal length",
        RAGGED,
        lambda v: {"z": tf.reduce_sum(tf.boolean_mask(v, v > 3))},
        {"z": [0.0, 0.0, 0.0, 4.0, 18.0]},
    ),
    Expect("a double for a program that declares float", DOUBLES, declared("float32", ()), {"z": floats(1, 2, 3, 4, 5)}),
    Expect(
        "unequal lengths for a program that declares float",
        RAGGED,
        declared("float32", (None,)),
        {"z": pa.array(RAGGED["v"], pa.list_(pa.float32()))},
        {"x": "v"},
    ),
    Expect(
        "a program of rows",
        {"v": PAIRS["v"]},
        tfs.program(lambda v: {"z": v[0]}, signature={"v": tf.TensorSpec([2], tf.float64)}),
        {"z": [1.0, 3.0, 5.0, 7.0]},
    ),
    Expect("a function's own name", DOUBLES, doubled, {"doubled": TWICE}),
    Expect("a bare lambda", DOUBLES, lambda x: 2 * x, {"output": TWICE}),
    Expect("a tuple", DOUBLES, lambda x: (2 * x, x + 3), {"output_0": TWICE, "output_1": PLUS3}),
    Expect("a graph", DOUBLES, in_graph(lambda: tf.add(placeholder("x", shape=()), 3, name="z")), {"z": PLUS3}),
    Expect("a graph with a variable", DOUBLES, in_graph(row_variable)[0], {"z": TWICE}),
    Expect(
        "a dict of mixed kinds", DOUBLES, {"f": doubled, "g": in_graph(lambda: placeholder("x", shape=()) + 3.0)}, {"f": TWICE, "g": PLUS3}
    ),
)
def test_map_rows_calls_the_program_once_per_row_in_meaning(case: Expect, frame: Flavour) -> None:
    (check_maps if case.id in ROWS_READ_EVERYWHERE else check_captures)(replace(case, verb=tfs.map_rows), frame)


@pytest.mark.parametrize("block_rows", [1, 2, 100])
def test_map_rows_gives_the_same_whatever_rows_are_looked_at_together(block_rows: int, frame: Flavour) -> None:
    if frame.is_costly and block_rows != 2:
        pytest.skip("one size is enough where reading is costly")
    output = {"z": [[3.0], [3.0], [0.0], [4.0], [18.0]], "w": [[2.0, 4.0], [6.0], [], [8.0], [10.0, 12.0, 14.0]]}
    fetches = {"z": lambda v: tf.reduce_sum(v, keepdims=True), "w": lambda v: 2 * v}
    check_maps(Expect("", RAGGED, fetches, output, verb=tfs.map_rows, options={"block_rows": block_rows}), frame)


def test_map_rows_equals_the_block_version() -> None:
    table = as_table({"v": np.random.default_rng(0).normal(size=(50, 4)).tolist()})
    rows = tfs.map_rows(lambda v: {"z": tf.nn.softmax(v)}, table)
    blocks = tfs.map_blocks(lambda v: {"z": tf.nn.softmax(v)}, table)
    np.testing.assert_allclose(np.stack(rows["z"].to_pylist()), np.stack(blocks["z"].to_pylist()), rtol=1e-12)


def test_map_rows_is_vectorised() -> None:
    """All rows of one shape are one call: a function of a cell is computed as one of blocks."""
    table = pa.table({"v": pa.array([[1.0, 2.0]] * 1000)})
    counts = tfs.map_rows(lambda v: {"z": v @ tf.ones([2, 2], tf.float64)} if v.shape.rank == 2 else {"z": 2 * v}, table)
    assert counts["z"].to_pylist() == [[2.0, 4.0]] * 1000
    from tensorframes.capture import as_program
    from tensorframes.capture.vectorizing import vectorize
    from tensorframes.frames import wrap

    def fetches(v):
        return {"z": tf.reduce_sum(2 * v)}

    program = as_program(fetches, wrap(table).schema, rowwise=True)
    graph = vectorize(fetches, program, ()).program.graph_def
    kinds = {node.op for body in (graph.node, *(function.node_def for function in graph.library.function)) for node in body}
    assert "Sum" in kinds
    assert not kinds & {"While", "StatelessWhile"}


# --- Python in functions ---


def sign_of_sum(x):
    z = x if tf.reduce_sum(x) > 100 else -x
    for _ in range(2):  # Python's own loop
        z = z + 1
    while tf.reduce_max(z) < 100:
        z = z + 50
    return {"z": z}


def test_autograph_runs_python_control_flow(frame: Flavour) -> None:
    check_maps(Expect("", {"x": [1.0, 2.0]}, sign_of_sum, {"z": [101.0, 100.0]}), frame)


def test_numpy_on_constants_and_print_run_when_traced(capsys: pytest.CaptureFixture[str]) -> None:
    def scaled(x):
        print("traced with", x.dtype.name)
        return {"z": x * np.sqrt(np.array(4.0))}

    assert tfs.map_blocks(scaled, pa.table(DOUBLES))["z"].to_pylist() == TWICE
    assert capsys.readouterr().out == "traced with float64\n"


def test_numpy_on_a_tensor_gives_tensorflows_message_with_the_verb_in_front() -> None:
    with pytest.raises(tfs.ProgramError) as caught:
        tfs.map_blocks(lambda x: {"z": np.cumsum(x)}, pa.table(DOUBLES))
    first, *_, last = str(caught.value).splitlines()
    assert first.startswith("map_blocks: the lambda cannot be traced: NotImplementedError: in user code:")
    assert last.strip().startswith("NotImplementedError: Cannot convert a symbolic tf.Tensor")
    assert last.endswith(
        "to a numpy array. This error may indicate that you're trying to pass a Tensor to a NumPy call, which is not supported."
    )


# --- Refused when the verb is called ---

VECTOR_MODEL = tf.function(lambda v: {"z": v}, input_signature=[tf.TensorSpec([None, 3], tf.float64)])


@each(
    ExpectFail(
        "a missing column",
        {"k": [1], "y": [1.0]},
        lambda x: {"z": x},
        tfs.ColumnError,
        lines(
            "map_blocks: input 'x' wants a column 'x', but the frame has none of that name.",
            "  inputs:  x",
            "  columns: k: int64[?], y: float64[?]",
            "  Feed it from another column with feed_dict={'x': …}.",
        ),
    ),
    ExpectFail(
        "a wrong column in feed_dict",
        {"y": [1.0]},
        lambda x: {"z": x},
        tfs.ColumnError,
        lines(
            "map_rows: input 'x' wants a column 'w', but the frame has none of that name.",
            "  inputs:  x",
            "  columns: y: float64[?]",
            "  Name one of the columns with feed_dict={'x': …}.",
        ),
        {"x": "w"},
        tfs.map_rows,
    ),
    ExpectFail(
        "a struct without that field",
        {"p": [{"a": 1.0}]},
        lambda x: {"z": x},
        tfs.ColumnError,
        lines(
            "map_blocks: input 'x' wants a column 'p.b', but the frame has none of that name.",
            "  inputs:  x",
            "  columns: p: <no tensor: struct>",
            "  Name one of the columns with feed_dict={'x': …}.",
        ),
        {"x": "p.b"},
    ),
    ExpectFail(
        "a long for a program that declares int",
        {"x": [1, 2]},
        declared("int32"),
        tfs.DTypeError,
        lines(
            "map_blocks: input 'x' wants int32[?] but column 'x' holds int64[?].",
            "  inputs:  x: int32[?]",
            "  columns: x: int64[?]",
            "  Cast the column, or feed another one with feed_dict={'x': …}.",
        ),
    ),
    ExpectFail(
        "a double for a program that declares long",
        {"x": [1.0]},
        declared("int64"),
        tfs.DTypeError,
        lines(
            "map_blocks: input 'x' wants int64[?] but column 'x' holds float64[?].",
            "  inputs:  x: int64[?]",
            "  columns: x: float64[?]",
            "  Cast the column, or feed another one with feed_dict={'x': …}.",
        ),
    ),
    ExpectFail(
        "a string for a program that declares float",
        {"k": [1], "x": ["1"]},
        declared("float32"),
        tfs.DTypeError,
        lines(
            "map_blocks: input 'x' wants float32[?] but column 'x' holds string[?].",
            "  inputs:  x: float32[?]",
            "  columns: k: int64[?], x: string[?]",
            "  Cast the column, or feed another one with feed_dict={'x': …}.",
        ),
    ),
    ExpectFail(
        "a number for a program that declares string",
        {"x": [1]},
        declared("string"),
        tfs.DTypeError,
        lines(
            "map_blocks: input 'x' wants string[?] but column 'x' holds int64[?].",
            "  inputs:  x: string[?]",
            "  columns: x: int64[?]",
            "  Cast the column, or feed another one with feed_dict={'x': …}.",
        ),
    ),
    ExpectFail(
        "a scalar column for a program of vectors",
        {"v": [1.0, 2.0]},
        VECTOR_MODEL,
        tfs.ShapeError,
        lines(
            "map_blocks: input 'v' wants float64[?, 3] but column 'v' holds float64[?].",
            "  inputs:  v: float64[?, 3]",
            "  columns: v: float64[?]",
        ),
    ),
    ExpectFail(
        "a program of rows in map_blocks",
        {"x": [1.0]},
        declared("float64", ()),
        tfs.ShapeError,
        lines(
            "map_blocks: input 'x' wants float64[] but column 'x' holds float64[?].",
            "  inputs:  x: float64[]",
            "  columns: x: float64[?]",
            "  The program takes one row; map_rows maps it over rows.",
        ),
    ),
    ExpectFail(
        "a program of blocks in map_rows",
        {"x": [1.0]},
        ADD3,
        tfs.ShapeError,
        lines(
            "map_rows: input 'x' wants float64[?] but column 'x' holds float64[].",
            "  inputs:  x: float64[?]",
            "  columns: x: float64[?]",
            "  The program takes a block; map_blocks maps it over blocks.",
        ),
        verb=tfs.map_rows,
    ),
    ExpectFail(
        "blocks of a declared number of rows",
        {"x": [1.0]},
        declared("float64", (32,)),
        tfs.ShapeError,
        lines(
            "map_blocks: input 'x' wants blocks of 32 rows, but blocks may have any number.",
            "  inputs:  x: float64[32]",
            "  columns: x: float64[?]",
            "  Pass block_rows=32 if their number divides by 32 in every partition.",
        ),
    ),
    ExpectFail(
        "a decimal column",
        {"x": [decimal.Decimal("1.50")]},
        lambda x: {"z": x},
        tfs.DTypeError,
        lines(
            "map_blocks: input 'x' reads column 'x', whose type decimal(3,2) no tensor holds.",
            "  Say which number it becomes: feed_dict={'x': tfs.feed('x', dtype='float64')}.",
        ),
    ),
    ExpectFail(
        "a whole struct",
        {"p": [{"a": 1.0, "b": 2.0}]},
        lambda p: {"z": p},
        tfs.DTypeError,
        lines(
            "map_blocks: input 'p' reads column 'p', whose type struct no tensor holds.",
            "  Feed one of its fields with feed_dict={'p': 'p.a'}.",
        ),
    ),
    ExpectFail(
        "an output that is a column",
        {"x": [1.0], "y": [1.0]},
        lambda x: {"z": x, "y": x},
        tfs.ColumnError,
        lines(
            "map_blocks: output 'y' has the name of a column.",
            "  outputs: z, y",
            "  columns: x: float64[?], y: float64[?]",
            "  Rename the output by a dict: {'new_name': fetch}.",
        ),
    ),
    ExpectFail(
        "an output without a row dimension",
        DOUBLES,
        lambda x: {"z": tf.reduce_mean(x)},
        tfs.ShapeError,
        lines(
            "map_blocks: output 'z' is float64[], which has no row dimension.",
            "  outputs: z: float64[]",
            "  reduce_blocks folds a frame to one value; with trim=True an output may have any number of rows, such as [1].",
        ),
    ),
    ExpectFail(
        "an output of a known number of rows",
        DOUBLES,
        lambda x: {"z": tf.stack([x[0], x[0]])},
        tfs.ShapeError,
        lines(
            "map_blocks: output 'z' is float64[2]: 2 rows for every block, but one for each of its rows is wanted.",
            "  outputs: z: float64[2]",
            "  With trim=True an output may have any number of rows.",
        ),
    ),
    ExpectFail(
        "an output of an unknown rank",
        DOUBLES,
        lambda x: {"z": tf.reshape(x, tf.cast(x, tf.int32))},
        tfs.ShapeError,
        lines(
            "map_blocks: output 'z' has an unknown rank, but a column has one.",
            "  outputs: z: float64[...]",
            "  Give it one with tf.ensure_shape.",
        ),
    ),
    ExpectFail(
        "a complex output",
        DOUBLES,
        lambda x: {"y": x, "z": tf.complex(x, x)},
        tfs.DTypeError,
        lines(
            "map_blocks: output 'z' is complex128[?], which no column holds.",
            "  outputs: y: float64[?], z: complex128[?]",
            "  Return its tf.math.real and tf.math.imag parts.",
        ),
    ),
    ExpectFail(
        "an unnamed second output in a dict",
        DOUBLES,
        {"z": lambda x: (x, x)},
        tfs.ProgramError,
        "map_blocks: fetch 'z' gives 2 outputs (output_0, output_1), but a fetch inside a dict must give one.",
    ),
    ExpectFail(
        "two outputs without names of their own",
        DOUBLES,
        [lambda x: x, lambda x: 2 * x],
        tfs.ProgramError,
        lines("map_blocks: the fetches name several outputs 'output'.", "  Name them by a dict: {'name': fetch, …}."),
    ),
    ExpectFail(
        "an output that is no tensor",
        DOUBLES,
        lambda x: {"z": None},
        tfs.ProgramError,
        "map_blocks: the lambda gives output 'z' as a NoneType, but a tensor is wanted.",
    ),
    ExpectFail("no output", DOUBLES, lambda x: {}, tfs.ProgramError, "map_blocks: the lambda gives no output."),
    ExpectFail("an empty dict", DOUBLES, {}, tfs.ProgramError, "map_blocks: the fetches are an empty dict."),
    ExpectFail(
        "something that is no program",
        DOUBLES,
        3,
        tfs.ProgramError,
        "map_blocks: the fetches are a int; wanted is a function, a tf.function, a ConcreteFunction, a v1 tensor or its name, a Keras "
        "model, a Program or its file, or a dict or list of these.",
    ),
    ExpectFail(
        "an eager tensor",
        DOUBLES,
        tf.constant(1.0),
        tfs.ProgramError,
        "map_blocks: the fetches are an eager tensor, which is a value and no computation; wanted is a function, a tf.function, a "
        "ConcreteFunction, a v1 tensor or its name, a Keras model, a Program or its file, or a dict or list of these.",
    ),
    ExpectFail(
        "tensors of two graphs",
        DOUBLES,
        [in_graph(lambda: placeholder("x") + 1.0), in_graph(lambda: placeholder("x") - 1.0)],
        tfs.ProgramError,
        lines("map_blocks: the fetches belong to 2 graphs, but one is wanted.", "  fetches: add, sub"),
    ),
    ExpectFail(
        "a function of any number of inputs",
        DOUBLES,
        lambda *x: x[0],
        tfs.ProgramError,
        "map_blocks: the lambda takes *x, but inputs are matched by name; wrap it in a lambda that names its parameters.",
    ),
    ExpectFail(
        "a program that reads no column",
        DOUBLES,
        lambda w: {"z": w},
        tfs.ProgramError,
        lines(
            "map_blocks: the program reads no column, so that it has no rows to work on.",
            "  inputs:  w: float64[1]",
            "  columns: x: float64[?]",
        ),
        {"w": [1.0]},
    ),
    ExpectFail(
        "a function that runs Python of its own",
        DOUBLES,
        lambda x: {"z": tf.ensure_shape(tf.numpy_function(np.cumsum, [x], tf.float64), [None])},
        tfs.ProgramError,
        "map_blocks: the program calls a Python function (operation 'PyFunc' of type PyFunc), which cannot leave the process that made it.",
    ),
    ExpectFail(
        "feed_dict of an input that is not there",
        DOUBLES,
        lambda x: {"z": x},
        tfs.ProgramError,
        lines(
            "map_blocks: feed_dict feeds an input 'y' that the program does not have.",
            "  inputs:  x",
            "  columns: x: float64[?]",
        ),
        {"y": "x"},
    ),
    ExpectFail(
        "more positions than inputs",
        DOUBLES,
        lambda x: {"z": x},
        tfs.ProgramError,
        lines(
            "map_blocks: feed_dict feeds 2 inputs by position, but the program has 1.",
            "  inputs:  x",
            "  columns: x: float64[?]",
        ),
        ["x", "x"],
    ),
    ExpectFail(
        "a feed_dict of no known form",
        DOUBLES,
        lambda x: {"z": x},
        tfs.ProgramError,
        "map_blocks: feed_dict is a int, but a dict {input: column}, a column name or a list of column names is wanted.",
        3,
    ),
    ExpectFail(
        "a key of feed_dict that names nothing",
        DOUBLES,
        lambda x: {"z": x},
        tfs.ProgramError,
        "map_blocks: feed_dict has a key of type int, but input names or placeholders are wanted.",
        {1: "x"},
    ),
    ExpectFail(
        "a constant that does not fit",
        DOUBLES,
        tf.function(lambda x, n: {"z": x}, input_signature=[tf.TensorSpec([None], tf.float64), tf.TensorSpec([], tf.int32)]),
        tfs.DTypeError,
        "map_blocks: input 'n' wants int32[] but the constant for it is float64[].",
        {"n": 1.5},
    ),
    ExpectFail(
        "a constant of another shape",
        DOUBLES,
        tf.function(lambda x, n: {"z": x}, input_signature=[tf.TensorSpec([None], tf.float64), tf.TensorSpec([2], tf.float64)]),
        tfs.ShapeError,
        "map_blocks: input 'n' wants float64[2] but the constant for it is float64[3].",
        {"n": [1.0, 2.0, 3.0]},
    ),
    ExpectFail(
        "a constant that is no array",
        DOUBLES,
        lambda x, n: {"z": x},
        tfs.DTypeError,
        "map_blocks: the constant for input 'n' holds a object, which no tensor holds.",
        {"n": object()},
    ),
    ExpectFail(
        "a name of a tensor that is not there",
        DOUBLES,
        "nowhere",
        tfs.ProgramError,
        lines(
            "map_blocks: the default graph has no tensor named 'nowhere', and there is no program in a file of that name.",
            "  tensors: (none)",
        ),
    ),
    ExpectFail(
        "block_rows below one",
        DOUBLES,
        lambda x: {"z": x},
        tfs.ProgramError,
        "map_rows: block_rows is 0, but a positive integer or None is wanted.",
        verb=tfs.map_rows,
        options={"block_rows": 0},
    ),
    ExpectFail(
        "a device that is none",
        DOUBLES,
        lambda x: {"z": x},
        tfs.ProgramError,
        "map_blocks: device is 'tpu', but one of 'auto', 'cpu', 'gpu' is wanted.",
        options={"device": "tpu"},
    ),
)
def test_is_refused_when_the_verb_is_called(case: ExpectFail, frame: Flavour) -> None:
    check_refuses(case, frame)


def test_a_known_cell_shape_is_held_to_the_declared_one(frame: Flavour) -> None:
    native = tfs.append_shape(frame.make(PAIRS), "v", [None, 2])
    with pytest.raises(tfs.ShapeError) as caught:
        tfs.map_blocks(VECTOR_MODEL, native)
    assert str(caught.value) == lines(
        "map_blocks: input 'v' wants float64[?, 3] but column 'v' holds float64[?, 2].",
        "  inputs:  v: float64[?, 3]",
        "  columns: v: float64[?, 2]",
    )


def test_unsigned_longs_are_refused_on_spark_only(frame: Flavour) -> None:
    native = frame.make({"id": [0, 1], "x": [1, 2]})

    def fetches(x):
        return {"z": tf.cast(x, tf.uint64)}

    if not frame.on_spark:
        assert frame.read(tfs.map_blocks(fetches, native))["z"].type == pa.uint64()
        return
    with pytest.raises(tfs.DTypeError) as caught:
        tfs.map_blocks(fetches, native)
    assert str(caught.value) == lines(
        "map_blocks: output 'z' is uint64[?], which no column holds.",
        "  outputs: z: uint64[?]",
        "  Return tf.cast(…, tf.int64) or tf.cast(…, tf.float64) of it.",
    )


@pytest.mark.parametrize("verb", [tfs.map_blocks, tfs.map_rows])
def test_an_object_that_is_no_frame_is_refused(verb: Callable[..., Any]) -> None:
    with pytest.raises(tfs.FrameError) as caught:
        verb(lambda x: x, {"x": [1.0]})
    assert str(caught.value) == (
        f"{verb.__name__}: a builtins.dict is no frame; wanted is a Spark, pandas or polars DataFrame, a pyarrow Table, RecordBatch, "
        "RecordBatchReader or Dataset, or an object with __arrow_c_stream__."
    )


def test_long_lists_of_columns_are_cut() -> None:
    with pytest.raises(tfs.ColumnError) as caught:
        tfs.map_blocks(lambda x: x, pa.table({f"c{i}": [1] for i in range(32)}))
    assert str(caught.value).splitlines()[2] == "  columns: " + ", ".join(f"c{i}: int64[?]" for i in range(20)) + ", and 12 more"


# --- Refused by the data; frames of three rows are one block in every kind of frame ---

OVERLAP = pa.ListArray.from_buffers(
    pa.list_(pa.float64()), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([0, 2, 4], np.int32))], 1, 0, [pa.array([1.0, 2.0, 3.0, 4.0])]
)


def asserted(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, tf.constant(3.0, tf.float64), "too large")]):
        return {"z": tf.identity(x)}


DATA_FAILURES = [
    ExpectFail(
        "a ragged block",
        {"v": [[1.0, 2.0], [3.0, 4.0], [5.0]]},
        lambda v: {"z": v},
        tfs.ShapeError,
        "map_blocks: column 'v' is no dense block: at level 1, row 0 of the block holds 2 elements and row 2 holds 1;"
        " tfs.feed has ragged= and pad= for such.",
    ),
    ExpectFail(
        "a cell unlike the declared shape",
        PAIRS | {"v": PAIRS["v"][:3]},
        VECTOR_MODEL,
        tfs.ShapeError,
        "map_blocks: column 'v' wants 3 elements at level 1 but row 0 of the block holds 2.",
    ),
    ExpectFail(
        "a cell that is not rectangular",
        {"m": [[[1.0], [2.0]], [[1.0, 2.0], [3.0]]]},
        lambda m: {"z": m},
        tfs.ShapeError,
        "map_rows: column 'm' wants rectangular cells, but row 1 of the block holds lists of lengths 1 and 2 at level 2.",
        verb=tfs.map_rows,
    ),
    ExpectFail(
        "another number of rows",
        {"x": [1.0, 2.0, 3.0]},
        lambda x: {"z": tf.boolean_mask(x, x > 1)},
        tfs.ShapeError,
        lines("map_blocks: output 'z' has 2 rows but the block has 3.", "  With trim=True an output may have any number of rows."),
    ),
    ExpectFail(
        "outputs of different numbers of rows",
        {"x": [1.0, 2.0, 3.0]},
        lambda x: {"y": x, "z": x[1:]},
        tfs.ShapeError,
        lines("map_blocks: the outputs of a block have different numbers of rows.", "  rows: y: 3, z: 2"),
        options={"trim": True},
    ),
    ExpectFail(
        "a double that no float holds",
        {"x": [1.0, 1e300]},
        declared("float32"),
        tfs.DTypeError,
        "map_blocks: input 'x' wants float32 but column 'x' holds 1e+300 in row 1 of the block, which float32 cannot hold.",
    ),
    ExpectFail(
        "bytes that are not UTF-8",
        {"x": pa.array([b"a", b"\xff"], pa.binary())},
        kept,
        tfs.DTypeError,
        lines(
            "map_blocks: output 'z' is a string column, but row 1 of the block holds bytes that are not UTF-8.",
            "  Keep the bytes with tfs.program(…, binary=('z',)).",
        ),
    ),
    ExpectFail(
        "a null",
        {"x": pa.array([1, None, 3])},
        kept,
        tfs.NullError,
        "map_blocks: column 'x' holds 1 null, at row 1 of the block, where no null may be; nulls= of tfs.feed says what becomes of them.",
    ),
    ExpectFail(
        "a null instead of a cell, first",
        {"x": [None, [1.0, 3.0]]},
        kept,
        tfs.NullError,
        "map_blocks: column 'x' holds 1 null, at row 0 of the block, where no null may be; nulls= of tfs.feed says what becomes of them.",
    ),
    ExpectFail(
        "a null instead of a cell, last",
        {"x": [[1.0, 3.0], None]},
        kept,
        tfs.NullError,
        "map_blocks: column 'x' holds 1 null, at row 1 of the block, where no null may be; nulls= of tfs.feed says what becomes of them.",
    ),
    ExpectFail(
        "nulls instead of cells in map_rows",
        {"x": [[1.0], None, None]},
        kept,
        tfs.NullError,
        "map_rows: column 'x' holds 2 nulls, the first at row 1 of the block, where no null may be;"
        " nulls= of tfs.feed says what becomes of them.",
        verb=tfs.map_rows,
    ),
    ExpectFail(
        "a null in a cell",
        {"x": [[2.0, 3.0], [1.0, None]]},
        kept,
        tfs.NullError,
        "map_blocks: column 'x' holds 1 null, at element 1 of row 1 of the block, where no null may be;"
        " nulls= of tfs.feed says what becomes of them.",
    ),
    ExpectFail(
        "a null in a cell in map_rows",
        {"x": [[2.0], [1.0, None]]},
        kept,
        tfs.NullError,
        "map_rows: column 'x' holds 1 null, at element 1 of row 1 of the block, where no null may be;"
        " nulls= of tfs.feed says what becomes of them.",
        verb=tfs.map_rows,
    ),
    ExpectFail(
        "a null list that spans children",
        {"x": OVERLAP},
        kept,
        tfs.NullError,
        "map_blocks: column 'x' holds 1 null, at row 0 of the block, where no null may be; nulls= of tfs.feed says what becomes of them.",
    ),
    ExpectFail(
        "a failing operation",
        {"x": [1, 5, 0]},
        lambda x, w: {"z": tf.gather(w, x)},
        tfs.ProgramError,
        lines(
            "map_blocks: the program failed on row 1 of the block: InvalidArgumentError: indices[1] = 5 is not in [0, 2)",
            "  inputs: x ← column 'x', w ← constant float64[2]",
        ),
        {"w": [10.0, 20.0]},
    ),
]
# A worker of Spark that failed is not used again, and the next one must first import TensorFlow: one failure of each kind is enough there.
FAIL_EVERYWHERE = {"a ragged block", "a failing operation"}


@pytest.mark.core
@each(*DATA_FAILURES)
def test_is_refused_by_the_job(case: ExpectFail, frame: Flavour) -> None:
    if frame.is_costly and case.id not in FAIL_EVERYWHERE:
        pytest.skip("shown there by others of its kind")
    check_fails(case, frame)


def test_a_slice_behind_a_null_that_spans_children_is_read() -> None:
    held = tfs.map_blocks(lambda x: {"z": x}, pa.table({"x": OVERLAP}).slice(1))
    assert held["z"].to_pylist() == [[3.0, 4.0]]


def test_an_assertion_says_what_it_was_told(frame: Flavour) -> None:
    if frame.is_costly:
        pytest.skip("shown there by others of its kind")
    native = frame.make({"x": [1.0, 5.0]})
    with pytest.raises(tfs.ProgramError, match=r"map_blocks: the program failed on row 1 of the block: InvalidArgumentError: .*too large"):
        frame.to_arrow(tfs.map_blocks(asserted, native))


@pytest.mark.parametrize("verb", [tfs.map_blocks, tfs.map_rows])
def test_a_null_that_nobody_reads_harms_nobody(verb: Callable[..., Any], frame: Flavour) -> None:
    columns = {"id": [0, 1], "x": [1.0, 2.0], "s": ["a", None], "v": [None, [1.0]], "p": [{"a": None, "b": 1.0}, {"a": 2, "b": 2.0}]}
    held = frame.read(verb(lambda x, b: {"z": x + b}, frame.make(columns), {"b": "p.b"}))
    check_same_table(held.drop_columns("p"), plain(as_table({**columns, "z": [2.0, 4.0]}).drop_columns("p")))


def test_a_struct_that_is_null_makes_its_fields_null(frame: Flavour) -> None:
    if frame.is_costly:
        pytest.skip("shown there by others of its kind")
    case = ExpectFail(
        "",
        {"p": [{"a": 1.0}, None]},
        lambda x: {"z": x},
        tfs.NullError,
        "map_blocks: column 'p.a' holds 1 null, at row 1 of the block, where no null may be; nulls= of tfs.feed says what becomes of them.",
        {"x": "p.a"},
    )
    check_fails(case, frame)


# --- What stays as it was ---


def test_a_pandas_frame_is_not_changed() -> None:
    native = pd.DataFrame({"x": [1.0, 2.0], "v": [np.array([1.0]), np.array([2.0])]}, index=["a", "b"])
    native.attrs["note"] = "mine"
    before, cells = native.copy(deep=True), native["v"].tolist()
    mapped = tfs.map_rows(lambda v: {"w": 2 * v}, tfs.map_blocks(lambda x: {"z": x + 3}, native))
    trimmed = tfs.map_blocks(lambda x: {"x": x + 3}, native, trim=True)
    mapped.loc["a", ["x", "z"]] = -1.0
    trimmed.loc[0, "x"] = -1.0
    mapped.loc["a", "w"][0] = -1.0
    pd.testing.assert_frame_equal(native, before)
    assert native.attrs == {"note": "mine"}
    assert all(held is cell for held, cell in zip(native["v"], cells, strict=True))
    assert mapped.index.tolist() == ["a", "b"]


def test_constants_may_change_once_the_verb_was_called(frame: Flavour) -> None:
    weights = np.array([1.0, 1.0])
    mapped = tfs.map_blocks(lambda v, w: {"z": tf.linalg.matvec(v, w)}, frame.make({"id": [0, 1, 2, 3], **PAIRS}), {"w": weights})
    weights[:] = 100.0
    assert frame.read(mapped)["z"].to_pylist() == [3.0, 7.0, 11.0, 15.0]


@pytest.mark.core
@pytest.mark.parametrize("verb", [tfs.map_blocks, tfs.map_rows])
def test_other_constants_load_nothing(verb: Callable[..., Any]) -> None:
    table, loads = as_table(DOUBLES), []
    for by in (2.0, 3.0, 4.0):
        held = verb(lambda x, by: {"z": x * by * 0.125}, table, {"by": by})
        assert held["z"].to_pylist() == [x * by * 0.125 for x in DOUBLES["x"]]
        loads.append(CACHE.loads)
    assert loads[1:] == loads[:1] * 2


def test_a_closure_is_what_it_is_when_the_verb_is_called(frame: Flavour) -> None:
    state = {"by": 2.0}

    def scaled(x):
        return {"z": x * state["by"]}

    first = tfs.map_blocks(scaled, frame.make({"id": [0, 1], "x": [1.0, 2.0]}))
    state["by"] = 3.0
    second = tfs.map_blocks(scaled, frame.make({"id": [0, 1], "x": [1.0, 2.0]}))
    assert frame.read(first)["z"].to_pylist() == [2.0, 4.0]
    assert frame.read(second)["z"].to_pylist() == [3.0, 6.0]


@pytest.mark.core
def test_maps_follow_each_other(frame: Flavour) -> None:
    native = frame.make({"id": [0, 1, 2], "v": PAIRS["v"][:3]})
    once = tfs.map_blocks(lambda v: {"w": v[:, None] * v[:, :, None]}, native)
    twice = tfs.map_rows(lambda w: {"t": tf.linalg.trace(w)}, once)
    held = frame.read(tfs.map_blocks(lambda t, w: {"u": t + w[:, 0, 0]}, twice))
    assert held.column_names == ["id", "v", "w", "t", "u"]
    assert held["w"].to_pylist()[1] == [[9.0, 12.0], [12.0, 16.0]]
    assert held["t"].to_pylist() == [5.0, 25.0, 61.0]
    assert held["u"].to_pylist() == [6.0, 34.0, 86.0]


@pytest.mark.core
def test_threads_are_independent(frame: Flavour) -> None:
    start = threading.Barrier(4)
    native = [frame.make({"id": [0, 1], "x": [1.0, 2.0]}) for _ in range(4)]

    def run(number: int) -> Any:
        start.wait(60)
        mapped = tfs.map_blocks(lambda x: {"z": x + number}, native[number])
        with tf.Graph().as_default():
            tf.multiply(placeholder("z", shape=()), float(number), name="y")
            return frame.read(tfs.map_rows("y", mapped))

    with ThreadPoolExecutor(4) as pool:
        held = list(pool.map(run, range(4)))
    assert [table["z"].to_pylist() for table in held] == [[1.0 + n, 2.0 + n] for n in range(4)]
    assert [table["y"].to_pylist() for table in held] == [[(1.0 + n) * n, (2.0 + n) * n] for n in range(4)]


# --- Programs of old ---

WITHOUT_V2 = """
    import json
    import pandas as pd, polars as pl, pyarrow as pa
    import tensorflow.compat.v1 as tf
    import tensorframes as tfs
    from pyspark.sql import SparkSession

    tf.disable_v2_behavior()
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    frames = {
        "spark": spark.createDataFrame([(1.0,), (2.0,)], "x double"),
        "pandas": pd.DataFrame({"x": [1.0, 2.0]}),
        "polars": pl.DataFrame({"x": [1.0, 2.0]}),
        "table": pa.table({"x": [1.0, 2.0]}),
    }
    found = {}
    for name, frame in frames.items():
        tf.reset_default_graph()
        z = tf.add(tfs.block(frame, "x"), 3, name="z")
        y = tf.multiply(tfs.row(frame, "x", "one"), tf.get_variable("w", initializer=tf.constant(2.0, tf.float64)), name="y")
        for output, mapped in (("z", tfs.map_blocks(z, frame)), ("y", tfs.map_rows([y], frame, {"one": "x"}))):
            columns = mapped.toPandas() if name == "spark" else mapped
            found.setdefault(name, []).append(list(columns[output].__array__()))
        with tf.Session() as session:
            assert session.run(z, {"x:0": [5.0]}).tolist() == [8.0]
    assert not tf.executing_eagerly()
    print(json.dumps(found))
"""


@pytest.mark.spark
@pytest.mark.classic  # a child of a process with a Connect session has none but that
def test_programs_that_disable_v2_behaviour_map() -> None:
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(WITHOUT_V2)], capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    wanted = "[[4.0, 5.0], [2.0, 4.0]]"
    names = ("spark", "pandas", "polars", "table")
    assert ran.stdout.splitlines()[-1] == "{" + ", ".join(f'"{name}": {wanted}' for name in names) + "}"


# --- The comparison itself ---


@pytest.mark.parametrize(
    "other",
    [
        {"x": [1, 2]},
        {"x": [1.0, float("nan")]},
        {"x": [1.0]},
        {"y": [1.0, 2.0]},
        {"x": [1.0, 2.0], "y": [1.0, 2.0]},
        {"x": floats(1.0, 2.0)},
        {"x": [1.0, None]},
    ],
    ids=["integers", "NaN", "fewer rows", "another name", "one more column", "another type", "a null"],
)
def test_the_comparison_sees(other: Columns) -> None:
    check_same_table(as_table({"x": [1.0, 2.0]}), as_table({"x": [1.0, 2.0]}))
    with pytest.raises(AssertionError):
        check_same_table(as_table({"x": [1.0, 2.0]}), as_table(other))


@pytest.mark.parametrize("flavour", LOCAL, ids=lambda flavour: flavour.name)
def test_the_comparison_of_failures_sees(flavour: Flavour) -> None:
    native = flavour.make({"x": pa.array([1, None])})
    with pytest.raises(AssertionError):
        flavour.check_fails(lambda: tfs.map_blocks(kept, native), tfs.NullError, "map_blocks: column 'x'")


# --- What was found by trying odd things ---


def test_an_assert_of_each_row_is_kept() -> None:
    def root(x):
        tf.debugging.assert_greater(x, tf.constant(0.0, tf.float64))
        return {"z": tf.sqrt(x)}

    with pytest.raises(tfs.ProgramError, match=r"^map_rows: the program failed on row 1 of the block: InvalidArgumentError: "):
        tfs.map_rows(root, pa.table({"x": [1.0, -1.0, 4.0]}))


def test_defaults_of_positional_parameters_stay_where_they_are() -> None:
    def line(x, a=1.0, b=2.0, /):
        return {"z": x * a + b}

    table = pa.table({"x": [1.0, 2.0]})
    assert tfs.map_blocks(line, table, {"b": 10.0}).column("z").to_pylist() == [11.0, 12.0]
    assert tfs.map_rows(line, table, {"a": 10.0}).column("z").to_pylist() == [12.0, 22.0]


def test_rows_of_one_shape_may_give_outputs_of_several() -> None:
    table = pa.table({"s": ["a b", "c", ""], "n": [2, 0, 1]})
    held = tfs.map_rows(lambda s, n: {"words": tf.strings.split(s), "range": tf.range(n)}, table)
    assert held.column("words").to_pylist() == [["a", "b"], ["c"], []]
    assert held.column("range").to_pylist() == [[0, 1], [], [0]]


def test_nan_inside_arrays_of_pandas_stays_nan() -> None:
    frame = pd.DataFrame({"x": [np.array([1.0, np.nan]), [np.nan, 3.0]]})
    once = tfs.map_blocks(lambda x: {"y": x + 1}, frame)
    twice = tfs.map_blocks(lambda y: {"z": y + 1}, once)
    np.testing.assert_array_equal(np.stack(twice["z"]), [[3.0, np.nan], [np.nan, 5.0]])


def test_columns_that_no_tensor_holds_disturb_nobody() -> None:
    odd = {"swapped": np.array([1.5], ">f8"), "long": np.array([1], np.longdouble), "huge": [2**70], "mixed": [object()]}
    held = tfs.map_blocks(lambda x: {"z": x + 1}, pd.DataFrame({"x": [1.0], **odd}))
    assert held["z"].tolist() == [2.0]
    assert tfs.map_blocks(lambda swapped: {"z": swapped + 1}, pd.DataFrame(odd))["z"].tolist() == [2.5]


def test_an_empty_column_of_objects_is_text() -> None:
    empty = pd.DataFrame({"s": ["a"]}).iloc[:0]
    assert list(tfs.map_blocks(lambda s: {"z": tf.strings.upper(s)}, empty).columns) == ["s", "z"]


def test_functions_that_scatter_into_a_variable_are_refused() -> None:
    held = tf.Variable(tf.zeros(1, tf.float64))

    def counting(x):
        held.scatter_add(tf.IndexedSlices(tf.reduce_sum(x)[None], tf.constant([0])))
        return {"z": x + held[0]}

    message = "map_blocks: the program assigns a variable (operation 'ResourceScatterAdd'), but each worker would change its own."
    check_refused(lambda: tfs.map_blocks(counting, pa.table({"x": [1.0]})), tfs.ProgramError, message)


def test_a_captured_dataset_is_refused() -> None:
    numbers = tf.data.Dataset.range(3)

    def add_all(x):
        for number in numbers:
            x += tf.cast(number, tf.float64)
        return {"z": x}

    with pytest.raises(tfs.ProgramError, match=r"^map_blocks: the program reads a captured '.*' that is no tensor, such as a dataset; "):
        tfs.map_blocks(add_all, pa.table({"x": [1.0]}))


def test_a_session_of_another_graph_is_refused() -> None:
    with tf.Graph().as_default():
        z = tf.compat.v1.placeholder(tf.float64, [None], "x") + tf.compat.v1.get_variable("w", initializer=np.float64(1))
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        check_refused(
            lambda: tfs.program(z, session=session), tfs.ProgramError, "program: session is one of another graph than that of the fetches."
        )


def test_objects_with_a_stream_that_is_no_table_are_no_frames() -> None:
    message = (
        "map_blocks: the Arrow stream of a pyarrow.lib.ChunkedArray is no table: "
        "Cannot import schema: ArrowSchema describes non-struct type double."
    )
    check_refused(lambda: tfs.map_blocks(lambda x: x, pa.chunked_array([[1.0]])), tfs.FrameError, message)


def test_somebody_elses_metadata_is_passed_over() -> None:
    field = pa.field("v", pa.list_(pa.float64()), metadata={"tensorframes.shape": "abc"})
    held = tfs.map_blocks(lambda v: {"w": 2 * v}, pa.table({"v": [[1.0]]}, schema=pa.schema([field])))
    assert held.column("w").to_pylist() == [[2.0]]
