"""feed_dict in all its forms, constants, and how they are refused."""

from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import tensorflow as tf
from expectations import Expect, ExpectFail, cases, check, check_refused

from tensorframes.columns import Schema, column_from_field
from tensorframes.errors import ColumnError, DTypeError, ProgramError
from tensorframes.feeds import Constant, Feed, feed, feed_type
from tensorframes.matching import resolve_feeds

STRUCT = pa.struct([("f", pa.list_(pa.float32()))])
COLUMNS = pa.schema([("x", pa.float64()), ("y", pa.int32()), ("s", STRUCT), ("d", pa.decimal128(5, 2))])
SCHEMA = Schema(tuple(map(column_from_field, COLUMNS)))
FACTS = "\n  inputs:  x, k, y\n  columns: x: float64[?], y: int32[?], s: <no tensor: struct>, d: <no tensor: decimal(5,2)>"
THREE = Constant.of("", 3)


def resolve(feed_dict: Any) -> dict[str, Any]:
    """Feed a program of the inputs x, k (which has a default) and y."""
    return resolve_feeds(["x", "k", "y"], ["k"], feed_dict, SCHEMA)


with tf.Graph().as_default():
    PLACEHOLDER = tf.compat.v1.placeholder(tf.float64, [None], "x")


@cases(
    Expect(None, {"x": Feed("x"), "y": Feed("y")}, "by name"),
    Expect({}, {"x": Feed("x"), "y": Feed("y")}, "an empty dict"),
    Expect([], {"x": Feed("x"), "y": Feed("y")}, "an empty list"),
    Expect({"x": "y"}, {"x": Feed("y"), "y": Feed("y")}, "another column"),
    Expect({"x": "s.f"}, {"x": Feed("s.f"), "y": Feed("y")}, "a field"),
    Expect({"x:0": "y"}, {"x": Feed("y"), "y": Feed("y")}, "the name of a tensor"),
    Expect({PLACEHOLDER: "y"}, {"x": Feed("y"), "y": Feed("y")}, "a placeholder"),
    Expect({"x": Feed("y")}, {"x": Feed("y"), "y": Feed("y")}, "a feed"),
    Expect({"k": "y"}, {"x": Feed("x"), "k": Feed("y"), "y": Feed("y")}, "a column where there is a default"),
    Expect({"k": 3}, {"x": Feed("x"), "k": THREE, "y": Feed("y")}, "a constant"),
    Expect("y", {"x": Feed("y"), "y": Feed("y")}, "one name"),
    Expect(["y", "x"], {"x": Feed("y"), "k": Feed("x"), "y": Feed("y")}, "names by position"),
    Expect(("y", Feed("x"), "x"), {"x": Feed("y"), "k": Feed("x"), "y": Feed("x")}, "a tuple"),
    ExpectFail(["x"] * 4, ProgramError, "feed_dict feeds 4 inputs by position, but the program has 3." + FACTS, "too many by position"),
    ExpectFail(
        {"z": "x"}, ProgramError, "feed_dict feeds an input 'z' that the program does not have." + FACTS, "an input that is not there"
    ),
    ExpectFail(
        {"x": "z"},
        ColumnError,
        f"input 'x' wants a column 'z', but the frame has none of that name.{FACTS}\n  Name one of the columns with feed_dict={{'x': …}}.",
        "a column that is not there",
    ),
    ExpectFail(
        5, ProgramError, "feed_dict is a int, but a dict {input: column}, a column name or a list of column names is wanted.", "a number"
    ),
    ExpectFail(
        ["x", 3],
        ProgramError,
        "feed_dict is a list, but a dict {input: column}, a column name or a list of column names is wanted.",
        "a mixed list",
    ),
    ExpectFail(
        {3: "x"}, ProgramError, "feed_dict has a key of type int, but input names or placeholders are wanted.", "a key that names nothing"
    ),
)
def test_forms_of_a_feed_dict(case):
    check(resolve, case)


def test_the_inputs_keep_their_order():
    assert list(resolve({"y": 3, "k": 3, "x": 3})) == ["x", "k", "y"]


def test_a_missing_column_of_the_input_s_own_name():
    message = (
        "input 'z' wants a column 'z', but the frame has none of that name.\n"
        "  inputs:  z\n"
        "  columns: x: float64[?], y: int32[?], s: <no tensor: struct>, d: <no tensor: decimal(5,2)>\n"
        "  Feed it from another column with feed_dict={'z': …}."
    )
    check(lambda name: resolve_feeds([name], (), None, SCHEMA), ExpectFail("z", ColumnError, message, ""))


def test_a_frame_without_columns_gets_no_hint():
    message = "input 'z' wants a column 'z', but the frame has none of that name.\n  inputs:  z\n  columns: (none)"
    check(lambda name: resolve_feeds([name], (), None, Schema(())), ExpectFail("z", ColumnError, message, ""))


# --- constants ---


def frozen(value: Any) -> tuple[str, Any]:
    constant = Constant.of("c", value)
    assert constant == Constant.of("c", value)
    assert hash(constant) == hash(Constant.of("c", value))
    return str(constant.type), constant.data if isinstance(constant.data, tuple) else bytes(constant.data.view())


@cases(
    Expect(3, ("int64[]", np.int64(3).tobytes()), "int"),
    Expect(3.5, ("float64[]", np.float64(3.5).tobytes()), "float"),
    Expect(True, ("bool[]", b"\1"), "bool"),
    Expect(1j, ("complex128[]", np.complex128(1j).tobytes()), "complex"),
    Expect([[1, 2], [3, 4]], ("int64[2, 2]", np.arange(1, 5).tobytes()), "lists"),
    Expect(np.arange(6, dtype=np.int16).reshape(2, 3).T, ("int16[3, 2]", np.array([0, 3, 1, 4, 2, 5], np.int16).tobytes()), "transposed"),
    Expect(np.array([1, 2], ">i4"), ("int32[2]", np.array([1, 2], np.int32).tobytes()), "another byte order"),
    Expect(np.zeros([0, 3], np.float32), ("float32[0, 3]", b""), "empty"),
    Expect(np.array([1.5], ml_dtypes.bfloat16), ("bfloat16[1]", b"\xc0\x3f"), "bfloat16"),
    Expect(tf.constant([1.0], tf.float32), ("float32[1]", np.float32(1).tobytes()), "an eager tensor"),
    Expect(np.float16(1), ("float16[]", np.float16(1).tobytes()), "a NumPy scalar"),
    Expect(["a", "é"], ("string[2]", (b"a", "é".encode())), "text"),
    Expect(b"ab\0\0", ("string[]", (b"ab\0\0",)), "bytes that end in zeros"),
    Expect([b"ab\0", b"c"], ("string[2]", (b"ab\0", b"c")), "bytes in a list"),
    Expect([["a\0"], ["b"]], ("string[2, 1]", (b"a\0", b"b")), "text in lists"),
    Expect(np.array([b"a", "é"], object), ("string[2]", (b"a", "é".encode())), "objects"),
    Expect(np.array(["a", "bc"]), ("string[2]", (b"a", b"bc")), "an array of text"),
    Expect(tf.constant([b"a\0"]), ("string[1]", (b"a\0",)), "an eager tensor of strings"),
    ExpectFail(None, DTypeError, "the constant for input 'c' holds a NoneType, which no tensor holds.", "None"),
    ExpectFail(["a", 1], DTypeError, "the constant for input 'c' holds a int, which no tensor holds.", "text and a number"),
    ExpectFail(len, DTypeError, "the constant for input 'c' holds a builtin_function_or_method, which no tensor holds.", "a function"),
    ExpectFail({}, DTypeError, "the constant for input 'c' holds a dict, which no tensor holds.", "a dict"),
    ExpectFail(np.datetime64(0, "s"), DTypeError, "the constant for input 'c' is of dtype datetime64[s], which no tensor holds.", "a date"),
    ExpectFail(
        np.longdouble(1),
        DTypeError,
        f"the constant for input 'c' is of dtype {np.dtype(np.longdouble)}, which no tensor holds.",
        "a long double",
    ),
    ExpectFail(
        [[1], [1, 2]],
        DTypeError,
        "the constant for input 'c' is no array: setting an array element with a sequence. The requested array has an inhomogeneous shape "
        "after 1 dimensions. The detected shape was (2,) + inhomogeneous part..",
        "ragged lists",
    ),
    ExpectFail(
        PLACEHOLDER,
        DTypeError,
        "the constant for input 'c' is no array: Cannot convert a symbolic tf.Tensor (x:0) to a numpy array. This error may indicate that "
        "you're trying to pass a Tensor to a NumPy call, which is not supported..",
        "a placeholder",
    ),
)
def test_constants(case):
    check(frozen, case)


def test_a_constant_is_frozen():
    array = np.array([1.0, 2.0])
    constant = Constant.of("c", array)
    array[0] = 7.0
    assert bytes(constant.data.view()) == np.array([1.0, 2.0]).tobytes()


@cases(
    Expect(("x", False), "float64[?]", "a block"),
    Expect(("x", True), "float64[]", "a cell"),
    Expect(("s.f", False), "float32[?, ?]", "a block of arrays"),
    Expect(("s.f", True), "float32[?]", "an array"),
    ExpectFail(
        ("s", False),
        DTypeError,
        "input 'i' reads column 's', whose type struct no tensor holds.\n  Feed one of its fields with feed_dict={'i': 's.f'}.",
        "a struct",
    ),
)
def test_types_of_feeds(case):
    check(lambda given: str(feed_type("i", SCHEMA[given[0]], Feed(given[0]), rowwise=given[1])), case)


def test_a_decimal_is_refused_with_the_way_out():
    message = (
        "input 'i' reads column 'd', whose type decimal(5,2) no tensor holds.\n"
        "  Say which number it becomes: feed_dict={'i': tfs.feed('d', dtype='float64')}."
    )
    check_refused(lambda: feed_type("i", SCHEMA["d"], Feed("d"), rowwise=False), DTypeError, message)
    assert str(feed_type("i", SCHEMA["d"], feed("d", dtype="float32"), rowwise=False)) == "float32[?]"


def test_a_number_that_is_the_name_of_a_column_is_refused():
    schema = Schema((column_from_field(pa.field("0", pa.int64())),))
    message = (
        "feed_dict feeds input 'x' with 0, which is a number and the name of a column.\n"
        "  Write '0' for the column, or another type of number, such as np.int32(0), for the constant."
    )
    check_refused(lambda: resolve_feeds(["x"], (), {"x": 0}, schema), ProgramError, message)
    assert resolve_feeds(["x", "y"], (), {"x": "0", "y": 1}, schema)["x"] == Feed("0")
