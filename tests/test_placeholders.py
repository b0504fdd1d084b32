"""block and row: placeholders of a column's type."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf
from expectations import Expect, ExpectFail, cases, check, check_refused

import tensorframes as tfs
from tensorframes.errors import ColumnError, DTypeError, ProgramError

TABLE = tfs.append_shape(
    pa.table(
        {
            "x": pa.array([1.0, 2.0]),
            "v": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32())),
            "s": pa.array([{"f": 1}, {"f": 2}]),
            "a b": pa.array(["p", "q"]),
            "d": pa.array([None, None]),
        }
    ),
    "v",
    [None, 2],
)
FACTS = "\n  columns: x: float64[?], v: int32[?, 2], s: <no tensor: struct>, a b: string[?], d: <no tensor: null>"


def described(tensor: tf.Tensor) -> str:
    return f"{tensor.name} {tensor.dtype.name}{tensor.shape.as_list()} {tensor.op.type}"


@cases(
    Expect(("block", ["x"]), "x:0 float64[None] Placeholder", "a block"),
    Expect(("row", ["x"]), "x:0 float64[] Placeholder", "a row"),
    Expect(("block", ["v"]), "v:0 int32[None, 2] Placeholder", "a block of arrays"),
    Expect(("row", ["v"]), "v:0 int32[2] Placeholder", "an array"),
    Expect(("block", ["v", "w"]), "w:0 int32[None, 2] Placeholder", "a name"),
    Expect(("row", ["s.f"]), "s.f:0 int64[] Placeholder", "a field"),
    Expect(("block", ["a b", "ab"]), "ab:0 string[None] Placeholder", "a name that TensorFlow takes"),
    ExpectFail(("block", ["z"]), ColumnError, "block: the frame has no column 'z'." + FACTS, "a missing column"),
    ExpectFail(("row", ["z"]), ColumnError, "row: the frame has no column 'z'." + FACTS, "a missing column, for a row"),
    ExpectFail(("row", ["d"]), DTypeError, "row: input 'd' reads column 'd', whose type null no tensor holds.", "no tensor"),
    ExpectFail(
        ("block", ["s"]),
        DTypeError,
        "block: input 's' reads column 's', whose type struct no tensor holds.\n  Feed one of its fields with feed_dict={'s': 's.f'}.",
        "a struct",
    ),
    ExpectFail(
        ("block", ["a b"]),
        ProgramError,
        "block: 'a b' is no name that TensorFlow takes for an operation.\n  Pass another tf_name, and feed_dict to the verb.",
        "a name that TensorFlow does not take",
    ),
    ExpectFail(
        ("block", ["x", "taken"]),
        ProgramError,
        "block: the current graph has an operation 'taken' already.\n  Pass another tf_name, and feed_dict to the verb.",
        "a name that is taken",
    ),
)
def test_placeholders(case):
    def make(given: tuple[str, list[str]]) -> str:
        with tf.Graph().as_default():
            tf.constant(1, name="taken")
            return described(getattr(tfs, given[0])(TABLE, *given[1]))

    check(make, case)


def test_without_a_graph_there_is_no_placeholder():
    hint = "\n  Call it inside `with tf.Graph().as_default():`."
    for name in ("block", "row"):
        message = f"{name}: there is no current v1 graph to hold a placeholder.{hint}"
        check_refused(lambda name=name: getattr(tfs, name)(TABLE, "x"), ProgramError, message)


@pytest.mark.parametrize("make", [pa.table, pd.DataFrame, pl.DataFrame], ids=["arrow", "pandas", "polars"])
def test_placeholders_of_any_frame_feed_its_verbs(make):
    frame = make({"x": [1.0, 2.0], "n": [3, 4]})
    with tf.Graph().as_default():
        z = tf.add(tfs.block(frame, "x"), tf.cast(tfs.block(frame, "n", tf_name="other"), tf.float64), name="z")
    assert list(tfs.map_blocks(z, frame, {"other": "n"})["z"].to_numpy()) == [4.0, 6.0]
    with tf.Graph().as_default():
        x, n = tfs.row(frame, "x"), tfs.row(frame, "n", "other")
        z = tf.add(x, tf.cast(n, tf.float64), name="z")
    assert list(tfs.map_rows(z, frame, {n: "n"})["z"].to_numpy()) == [4.0, 6.0]
