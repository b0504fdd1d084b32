"""Plans: what is decided, and what is refused, before there is data."""

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from expectations import Expect, ExpectFail, cases, check

from tensorframes.columns import Column, Schema, TensorType, column_from_field
from tensorframes.errors import ColumnError, DTypeError, ProgramError, ShapeError
from tensorframes.feeds import Constant
from tensorframes.plan import ColumnInput, Plan, fit_constant, plan_map
from tensorframes.programs import Port, Program
from tensorframes.shapes import Shape


def port(name: str, dtype: str, *shape: Any) -> Port:
    """Make a port; ``...`` for a shape of unknown rank."""
    return Port(name, TensorType(dtype, None if shape == (...,) else Shape(shape)), (f"{name}:0",))


Z = port("z", "float64", None)


def program(*ports: Port, out: Port | tuple[Port, ...] = Z, binary: tuple[str, ...] = ()) -> Program:
    return Program(ports, out if isinstance(out, tuple) else (out,), "digest", frozenset(binary))


STRUCT = pa.struct([("f", pa.list_(pa.float32(), 3))])
COLUMNS = pa.schema([("x", pa.float64()), ("n", pa.int64()), ("v", pa.list_(pa.float64())), ("s", STRUCT), ("t", pa.string())])
SCHEMA = Schema(tuple(map(column_from_field, COLUMNS)))
HELD = "columns: x: float64[?], n: int64[?], v: float64[?, ?], s: <no tensor: struct>, t: string[?]"
X = port("x", "float64", None)


def plan(program: Program, feed_dict: Any = None, schema: Schema = SCHEMA, **options: Any) -> Plan:
    return plan_map("map_blocks", program, schema, feed_dict, **options)


# --- inputs ---


def inputs(given: tuple[Any, ...]) -> list[Any]:
    ports, feed_dict, options = given
    out = port("z", "float64") if options.get("rowwise") else Z
    return [
        (source.column, str(source.cell_shape), source.cast) if isinstance(source, ColumnInput) else str(source.type)
        for source in plan(program(*ports, out=out), feed_dict, **options).inputs
    ]


def cast_hint(name: str) -> str:
    return f"\n  Cast the column, or feed another one with feed_dict={{'{name}': …}}."


ROWS = "\n  The program takes one row; map_rows maps it over rows."


def mismatch(wanted: str, column: str, held: str, hint: str = "") -> str:
    return f"input 'i' wants {wanted} but column {column!r} holds {held}.\n  inputs:  i: {wanted}\n  {HELD}{hint}"


@cases(
    Expect(([X], None, {}), [("x", "[]", None)], "by name"),
    Expect(([port("i", "float32", None)], {"i": "x"}, {}), [("x", "[]", "float32")], "double into float"),
    Expect(([port("i", "float32", None)], {"i": "n"}, {}), [("n", "[]", "float32")], "long into float"),
    Expect(([port("i", "float64", None, 3)], {"i": "v"}, {}), [("v", "[3]", None)], "the program knows more"),
    Expect(([port("i", "float32", None, None)], {"i": "s.f"}, {}), [("s.f", "[3]", None)], "the column knows more"),
    Expect(([port("i", "float64", ...)], {"i": "v"}, {}), [("v", "[?]", None)], "any rank"),
    Expect(([port("i", "float64", 3)], {"i": "v"}, {"rowwise": True}), [("v", "[3]", None)], "a row"),
    Expect(([port("i", "float64", 10)], {"i": "x"}, {"block_rows": 10}), [("x", "[]", None)], "a fixed number of rows"),
    Expect(([X, port("k", "float64")], {"k": 2}, {}), [("x", "[]", None), "float64[]"], "a constant"),
    ExpectFail(
        ([port("i", "int32", None)], {"i": "n"}, {}), DTypeError, mismatch("int32[?]", "n", "int64[?]", cast_hint("i")), "long into int"
    ),
    ExpectFail(
        ([port("i", "int64", None)], {"i": "x"}, {}), DTypeError, mismatch("int64[?]", "x", "float64[?]", cast_hint("i")), "float into int"
    ),
    ExpectFail(
        ([port("i", "float32", None)], {"i": "t"}, {}),
        DTypeError,
        mismatch("float32[?]", "t", "string[?]", cast_hint("i")),
        "string into number",
    ),
    ExpectFail(
        ([port("i", "string", None)], {"i": "n"}, {}),
        DTypeError,
        mismatch("string[?]", "n", "int64[?]", cast_hint("i")),
        "number into string",
    ),
    ExpectFail(
        ([port("i", "qint8", None)], {"i": "n"}, {}), DTypeError, mismatch("qint8[?]", "n", "int64[?]", cast_hint("i")), "an odd dtype"
    ),
    ExpectFail(
        ([port("i", "float64", None)], {"i": "s"}, {}),
        DTypeError,
        "input 'i' reads column 's', whose type struct no tensor holds.\n  Feed one of its fields with feed_dict={'i': 's.f'}.",
        "a struct",
    ),
    ExpectFail(([port("i", "float64", None)], {"i": "v"}, {}), ShapeError, mismatch("float64[?]", "v", "float64[?, ?]", ROWS), "rank"),
    ExpectFail(
        ([port("i", "float32", None, 4)], {"i": "s.f"}, {}), ShapeError, mismatch("float32[?, 4]", "s.f", "float32[?, 3]"), "a dimension"
    ),
    ExpectFail(
        ([port("i", "float64")], {"i": "x"}, {}),
        ShapeError,
        mismatch("float64[]", "x", "float64[?]", ROWS),
        "a program of rows",
    ),
    ExpectFail(
        ([port("i", "float64", None)], {"i": "x"}, {"rowwise": True}),
        ShapeError,
        mismatch("float64[?]", "x", "float64[]", "\n  The program takes a block; map_blocks maps it over blocks."),
        "a program of blocks",
    ),
    ExpectFail(
        ([port("i", "float64", 10)], {"i": "x"}, {}),
        ShapeError,
        f"input 'i' wants blocks of 10 rows, but blocks may have any number.\n  inputs:  i: float64[10]\n  {HELD}\n"
        "  Pass block_rows=10 if their number divides by 10 in every partition.",
        "a fixed number of rows, without block_rows",
    ),
    ExpectFail(
        ([port("k", "float64")], {"k": 2}, {}),
        ProgramError,
        f"the program reads no column, so that it has no rows to work on.\n  inputs:  k: float64[]\n  {HELD}",
        "constants only",
    ),
    ExpectFail(
        ([], None, {}),
        ProgramError,
        f"the program reads no column, so that it has no rows to work on.\n  inputs:  (none)\n  {HELD}",
        "no inputs",
    ),
    ExpectFail(
        ([port("i", "float64", None)], {}, {}),
        ColumnError,
        f"input 'i' wants a column 'i', but the frame has none of that name.\n  inputs:  i\n  {HELD}\n"
        "  Feed it from another column with feed_dict={'i': …}.",
        "a missing column",
    ),
    *(
        ExpectFail(
            ([X], None, {"block_rows": wrong}),
            ProgramError,
            f"block_rows is {wrong!r}, but a positive integer or None is wanted.",
            repr(wrong),
        )
        for wrong in (0, -1, 2.0, "3", True)
    ),
    Expect(([X], None, {"block_rows": np.int64(3)}), [("x", "[]", None)], "block_rows from NumPy"),
    ExpectFail(([X], None, {"device": "tpu"}), ProgramError, "device is 'tpu', but one of 'auto', 'cpu', 'gpu' is wanted.", "device"),
)
def test_inputs(case):
    check(inputs, case)


def test_a_column_is_read_once():
    made = plan(program(X, port("y", "float32", None), port("f", "float32", None, 3)), {"y": "x", "f": "s.f"})
    assert made.reads == (("x",), ("s", "f"))
    assert [source.read for source in made.inputs] == [0, 0, 1]


def test_constants_are_named():
    assert plan(program(X, port("k", "float64")), {"k": 1.0}).constants == ["k"]


# --- constants ---


@cases(
    Expect((port("k", "float64"), 2), np.float64(2).tobytes(), "int to float"),
    Expect((port("k", "float32", 2), [1.5, float("inf")]), np.float32([1.5, np.inf]).tobytes(), "to a narrower float"),
    Expect((port("k", "int32"), 7), np.int32(7).tobytes(), "to a narrower int that holds it"),
    Expect((port("k", "uint8", None), [1, 255]), b"\1\xff", "to unsigned"),
    Expect((port("k", "string"), "a"), (b"a",), "string"),
    Expect((port("k", "float64", ...), [[1.0]]), np.float64(1).tobytes(), "any rank"),
    ExpectFail((port("k", "int32"), 2**31), DTypeError, "input 'k' wants int32[] but the constant for it is int64[].", "too large an int"),
    ExpectFail((port("k", "uint8"), -1), DTypeError, "input 'k' wants uint8[] but the constant for it is int64[].", "a sign"),
    ExpectFail((port("k", "int32"), 3.0), DTypeError, "input 'k' wants int32[] but the constant for it is float64[].", "float to int"),
    ExpectFail((port("k", "float32"), 1e300), DTypeError, "input 'k' wants float32[] but the constant for it is float64[].", "too large"),
    ExpectFail(
        (port("k", "float32"), "a"), DTypeError, "input 'k' wants float32[] but the constant for it is string[].", "string to float"
    ),
    ExpectFail((port("k", "string"), 1), DTypeError, "input 'k' wants string[] but the constant for it is int64[].", "int to string"),
    ExpectFail((port("k", "qint8"), 1), DTypeError, "input 'k' wants qint8[] but the constant for it is int64[].", "an odd dtype"),
    ExpectFail(
        (port("k", "float64", None, 2), [1.0, 2.0]),
        ShapeError,
        "input 'k' wants float64[?, 2] but the constant for it is float64[2].",
        "shape",
    ),
)
def test_constants(case):
    def fit(given: tuple[Port, Any]) -> Any:
        wanted, value = given
        fitted = fit_constant(wanted, Constant.of(wanted.name, value))
        assert fitted.type.dtype == wanted.type.dtype
        assert fitted.type.shape == np.shape(value)
        return fitted.data if isinstance(fitted.data, tuple) else bytes(fitted.data.view())

    check(fit, case)


# --- outputs ---

SPARK = Schema(SCHEMA.columns, on_spark=True, folds_case=True)


def outputs(given: tuple[Any, ...]) -> list[str]:
    out, options, *binary = given
    made = plan(program(X, out=out, binary=tuple(binary)), **options)
    return [f"{column.name}: {column.arrow} {column.cell_shape}" for column in made.outputs]


def output(kind: str, sentence: str, hint: str = "") -> str:
    return f"output 'z' {sentence}.\n  outputs: z: {kind}{hint}"


TRIM = "\n  With trim=True an output may have any number of rows."


@cases(
    Expect((port("z", "float64", None), {}), ["z: double []"], "a scalar"),
    Expect((port("z", "float32", None, 2, None), {}), ["z: list<item: list<item: float>> [2, ?]"], "arrays"),
    Expect((port("z", "uint8", None), {}), ["z: uint8 []"], "uint8 locally"),
    Expect((port("z", "uint8", None), {"schema": SPARK}), ["z: int16 []"], "uint8 on Spark"),
    Expect((port("z", "bfloat16", None), {}), ["z: float []"], "bfloat16"),
    Expect((port("z", "string", None, 1), {}), ["z: list<item: string> [1]"], "text"),
    Expect((port("z", "string", None), {}, "z"), ["z: binary []"], "bytes"),
    Expect((port("z", "float64", 10), {"block_rows": 10}), ["z: double []"], "as many rows as a block"),
    Expect((port("z", "float64", 1), {"keep_inputs": False}), ["z: double []"], "any number of rows"),
    Expect((port("x", "float64", None), {"keep_inputs": False}), ["x: double []"], "a column's name, where the columns go"),
    Expect((port("X", "float64", None), {}), ["X: double []"], "another case, locally"),
    ExpectFail(
        (port("z", "float64"), {}),
        ShapeError,
        output(
            "float64[]",
            "is float64[], which has no row dimension",
            "\n  reduce_blocks folds a frame to one value; with trim=True an output may have any number of rows, such as [1].",
        ),
        "no rows",
    ),
    ExpectFail(
        (port("z", "float64", 1), {}),
        ShapeError,
        output("float64[1]", "is float64[1]: 1 rows for every block, but one for each of its rows is wanted", TRIM),
        "a fixed number of rows",
    ),
    ExpectFail(
        (port("z", "float64", 3), {"block_rows": 10}),
        ShapeError,
        output("float64[3]", "is float64[3]: 3 rows for every block, but one for each of its rows is wanted", TRIM),
        "another fixed number of rows",
    ),
    ExpectFail(
        (port("z", "float64", ...), {}),
        ShapeError,
        output("float64[...]", "has an unknown rank, but a column has one", "\n  Give it one with tf.ensure_shape."),
        "unknown rank",
    ),
    ExpectFail(
        (port("z", "complex64", None), {}),
        DTypeError,
        output("complex64[?]", "is complex64[?], which no column holds", "\n  Return its tf.math.real and tf.math.imag parts."),
        "complex",
    ),
    ExpectFail(
        (port("z", "uint64", None), {"schema": SPARK}),
        DTypeError,
        output("uint64[?]", "is uint64[?], which no column holds", "\n  Return tf.cast(…, tf.int64) or tf.cast(…, tf.float64) of it."),
        "uint64 on Spark",
    ),
    ExpectFail((port("z", "variant", None), {}), DTypeError, output("variant[?]", "is variant[?], which no column holds"), "an odd dtype"),
    ExpectFail(
        (port("z", "int8", None), {}, "z"),
        DTypeError,
        "binary= names output 'z', which is int8[?] and no string.\n  outputs: z: int8[?]",
        "numbers as bytes",
    ),
    ExpectFail(
        (port("n", "float64", None), {}),
        ColumnError,
        f"output 'n' has the name of a column.\n  outputs: n\n  {HELD}\n  Rename the output by a dict: {{'new_name': fetch}}.",
        "a column's name",
    ),
    ExpectFail(
        (port("N", "float64", None), {"schema": SPARK}),
        ColumnError,
        f"output 'N' has the name of a column.\n  outputs: N\n  {HELD}\n  Rename the output by a dict: {{'new_name': fetch}}.",
        "a column's name in another case",
    ),
    ExpectFail(
        ((port("z", "int8", None), port("Z", "int8", None)), {"schema": SPARK}),
        ColumnError,
        "outputs 'z' and 'Z' would be one column: the session ignores case.\n  outputs: z, Z",
        "two names that differ in case",
    ),
    Expect(((port("z", "int8", None), port("Z", "int8", None)), {}), ["z: int8 []", "Z: int8 []"], "two such names locally"),
)
def test_outputs(case):
    check(outputs, case)


def test_many_columns_are_counted():
    schema = Schema(tuple(Column(f"c{i}", pa.int8(), True, "int8", Shape()) for i in range(32)))
    with pytest.raises(ColumnError, match=r", c19: int8\[\?\], and 12 more\n"):
        plan(program(X), schema=schema)


def test_a_plan_is_a_value():
    made = plan(program(X, port("k", "float64")), {"k": 1.0}, block_rows=7)
    again = pickle.loads(pickle.dumps(made))
    assert again == made
    assert hash(again) == hash(made)
    assert (made.verb, made.keep_rows, made.block_rows, made.device) == ("map_blocks", True, 7, "auto")
