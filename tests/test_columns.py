"""Columns and schemas: look-ups, print, and the codec to metadata."""

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from expectations import Expect, ExpectFail, cases, check
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorframes.columns import Column, Schema, TensorType, column_from_field, field_with_metadata, list_type, metadata_of, split_lists
from tensorframes.dtypes import BY_NAME
from tensorframes.errors import ColumnError
from tensorframes.shapes import Shape


def column(name: str, arrow: pa.DataType) -> Column:
    return column_from_field(pa.field(name, arrow))


IMAGE = pa.struct([("data", pa.list_(pa.float32())), ("size", pa.struct([("w", pa.int32()), ("h.x", pa.int32())]))])
SCHEMA = Schema(
    (
        column("x", pa.float64()),
        column("image", IMAGE),
        column("image.size.w", pa.string()),
        column("m", pa.map_(pa.int8(), pa.int8())),
    )
)
FACTS = "\n  columns: x: float64[?], image: <no tensor: struct>, image.size.w: string[?], m: <no tensor: map>"


@cases(
    Expect("x", (("x",), "x: float64[?]"), "a name"),
    Expect("image", (("image",), "image: <no tensor: struct>"), "a struct"),
    Expect("image.data", (("image", "data"), "image.data: float32[?, ?]"), "a field"),
    Expect("image.size", (("image", "size"), "image.size: <no tensor: struct>"), "a struct in a struct"),
    Expect("image.size.w", (("image.size.w",), "image.size.w: string[?]"), "a column that is really named so wins"),
    Expect("image.size.h.x", (("image", "size", "h.x"), "image.size.h.x: int32[?]"), "a field with a dot in its name"),
    ExpectFail("y", ColumnError, "the frame has no column 'y'." + FACTS, "no such name"),
    ExpectFail("image.", ColumnError, "the frame has no column 'image.'." + FACTS, "an empty field"),
    ExpectFail("image.nothing", ColumnError, "the frame has no column 'image.nothing'." + FACTS, "no such field"),
    ExpectFail("x.y", ColumnError, "the frame has no column 'x.y'." + FACTS, "a field of a scalar"),
    ExpectFail("X", ColumnError, "the frame has no column 'X'." + FACTS, "another case"),
)
def test_look_ups(case):
    def find(name: str) -> tuple[tuple[str, ...], str]:
        path, found = SCHEMA.resolve(name)
        assert SCHEMA[name] == found == SCHEMA.find(name)[1]
        return path, str(found)

    check(find, case)


def test_the_longer_prefix_that_has_the_field_wins():
    struct = pa.struct([("b.c", pa.int8())])
    schema = Schema((column("a", struct), column("a.b", pa.struct([("c", pa.int16())]))))
    assert schema.resolve("a.b.c")[0] == ("a", "b.c")  # the first that has it
    assert Schema(schema.columns[::-1]).resolve("a.b.c")[0] == ("a.b", "c")


def test_two_columns_of_one_name_are_no_answer():
    schema = Schema((column("x", pa.int8()), column("x", pa.int16())))
    check(schema.find, ExpectFail("x", ColumnError, "the frame has 2 columns named 'x'.\n  columns: x: int8[?], x: int16[?]", ""))


@cases(
    Expect(("A", False), None, "case counts"),
    Expect(("A", True), "a", "case does not count"),
    Expect(("a", True), "a", "the same"),
    Expect(("É", True), "é", "beyond ASCII"),
    Expect(("b", True), None, "free"),
)
def test_taken_names(case):
    columns = (column("a", pa.int8()), column("é", pa.int8()))
    check(lambda given: Schema(columns, folds_case=given[1]).taken(given[0]), case)


def test_a_schema_is_a_value():
    assert [c.name for c in SCHEMA] == SCHEMA.names == ["x", "image", "image.size.w", "m"]
    assert len(SCHEMA) == 4
    again = pickle.loads(pickle.dumps(SCHEMA))
    assert again == SCHEMA
    assert hash(again) == hash(SCHEMA)
    with pytest.raises(AttributeError, match="columns"):
        SCHEMA.columns = ()


TYPES = {
    "boolean": (pa.bool_(), "boolean", "boolean[?]", "bool[?]"),
    "byte": (pa.int8(), "byte", "byte[?]", "int8[?]"),
    "int": (pa.int32(), "integer", "int[?]", "int32[?]"),
    "long": (pa.int64(), "long", "long[?]", "int64[?]"),
    "uint8": (pa.uint8(), "uint8", "uint8[?]", "uint8[?]"),
    "half": (pa.float16(), "halffloat", "float16[?]", "float16[?]"),
    "float": (pa.float32(), "float", "float[?]", "float32[?]"),
    "double": (pa.float64(), "double", "double[?]", "float64[?]"),
    "string": (pa.string(), "string", "string[?]", "string[?]"),
    "large string": (pa.large_string(), "string", "string[?]", "string[?]"),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), "string", "string[?]", "string[?]"),
    "binary": (pa.binary(), "binary", "binary[?]", "string[?]"),
    "fixed-size binary": (pa.binary(3), "binary", "binary[?]", "string[?]"),
    "date": (pa.date32(), "date", "int[?]", "int32[?]"),
    "instant": (pa.timestamp("us", "UTC"), "timestamp", "long[?]", "int64[?]"),
    "timestamp": (pa.timestamp("ms"), "timestamp_ntz", "long[?]", "int64[?]"),
    "decimal": (pa.decimal128(5, 2), "decimal(5,2)", "<no tensor>", None),
    "map": (pa.map_(pa.string(), pa.int8()), "map", "<no tensor>", None),
    "null": (pa.null(), "null", "<no tensor>", None),
    "duration": (pa.duration("us"), "duration[us]", "<no tensor>", None),
    "list": (pa.list_(pa.float32()), "array", "float[?,?]", "float32[?, ?]"),
    "list of lists": (pa.large_list(pa.list_(pa.int8())), "array", "byte[?,?,?]", "int8[?, ?, ?]"),
    "fixed-size list": (pa.list_(pa.list_(pa.int8(), 3)), "array", "byte[?,?,3]", "int8[?, ?, 3]"),
    "tensor": (pa.fixed_shape_tensor(pa.int8(), [2, 3]), "array", "byte[?,2,3]", "int8[?, 2, 3]"),
    "permuted tensor": (pa.fixed_shape_tensor(pa.int8(), [2, 3, 4], permutation=[2, 0, 1]), "array", "byte[?,4,2,3]", "int8[?, 4, 2, 3]"),
    "list of tensors": (pa.list_(pa.fixed_shape_tensor(pa.int8(), [2])), "array", "byte[?,?,2]", "int8[?, ?, 2]"),
    "list of binary": (pa.list_(pa.binary()), "array", "binary[?,?]", "string[?, ?]"),
    "list of structs": (pa.list_(pa.struct([("a", pa.int8())])), "array", "<no tensor>", None),
    "list of decimals": (pa.list_(pa.decimal128(5, 2)), "array", "<no tensor>", None),
}


@pytest.mark.parametrize(("arrow", "name", "tensor", "block"), TYPES.values(), ids=TYPES)
def test_what_a_type_means(arrow, name, tensor, block):
    found = column("y", arrow)
    assert (found.type_name, found.tensor_name, str(found)) == (name, tensor, f"y: {block or f'<no tensor: {name}>'}")
    assert (found.block is None) is (block is None)
    assert found.block is None or str(found.block) == block


def test_print_of_a_schema():
    schema = Schema(
        (
            column_from_field(pa.field("y", pa.list_(pa.float64(), 2), nullable=False)),
            column("a b", pa.string()),
            column("image", IMAGE),
        )
    )
    assert repr(schema) == (
        "root\n"
        " |-- y: array (nullable = false) double[?,2]\n"
        " |-- a b: string (nullable = true) string[?]\n"
        " |-- image: struct (nullable = true) <no tensor>"
    )
    assert repr(Schema(())) == "root"


def test_a_schema_in_a_notebook():
    schema = Schema((column("<b>&", pa.list_(pa.float64())), column("s", pa.struct([]))))
    assert schema._repr_html_() == (
        "<table><tr><th>column</th><th>type</th><th>nullable</th><th>block</th></tr>"
        "<tr><td>&lt;b&gt;&amp;</td><td>array</td><td>true</td><td>double[?,?]</td></tr>"
        "<tr><td>s</td><td>struct</td><td>true</td><td>&lt;no tensor&gt;</td></tr></table>"
    )


def test_print_of_a_type():
    assert str(TensorType("float64", Shape([None, 100]))) == "float64[?, 100]"
    assert str(TensorType("string", Shape([]))) == "string[]"
    assert str(TensorType("int8", None)) == "int8[...]"


# --- metadata ---


def with_metadata(arrow: pa.DataType, **entries: Any) -> pa.Field:
    return pa.field("y", arrow, metadata={f"tensorframes.{key}": json.dumps(value) for key, value in entries.items()})


@settings(deadline=None, max_examples=50)
@given(st.sampled_from([s for s in BY_NAME.values() if s.arrow is not None]), st.lists(st.none() | st.integers(0, 9), max_size=4))
def test_metadata_comes_back(scalar, dims):
    field = pa.field("y", list_type(scalar.arrow, len(dims)), metadata={"kept": "as it is"})
    known = column_from_field(field).with_cell_shape(Shape(dims))
    noted = field_with_metadata(field, known)
    assert column_from_field(noted) == known
    assert noted.metadata[b"kept"] == b"as it is"
    metadata = metadata_of(known)
    assert metadata == {
        "tensorframes.shape": [-1, *(-1 if dim is None else dim for dim in dims)],
        "tensorframes.dtype": scalar.spark or scalar.name,
    }
    from_spark = field.with_metadata({"SPARK::metadata::json": json.dumps({**metadata, "comment": "é"})})
    assert column_from_field(from_spark) == known


@cases(
    Expect(with_metadata(pa.list_(pa.float64()), shape=[-1, 2]), Shape([2]), "a known dimension"),
    Expect(with_metadata(pa.list_(pa.float64()), shape=[-1, -1]), Shape([None]), "an unknown dimension"),
    Expect(with_metadata(pa.list_(pa.float64()), shape=[10, 2]), Shape([2]), "a number of rows does not count"),
    Expect(with_metadata(pa.list_(pa.float64()), shape=[-1, 2, 3]), Shape([None]), "another rank does not count"),
    Expect(with_metadata(pa.list_(pa.float64(), 3), shape=[-1, 2]), Shape([3]), "what contradicts the type does not count"),
    Expect(with_metadata(pa.list_(pa.list_(pa.float64(), 3)), shape=[-1, 2, -1]), Shape([2, 3]), "what the type lacks is filled in"),
    Expect(with_metadata(pa.decimal128(3), shape=[-1]), Shape([]), "decimals"),
    Expect(with_metadata(pa.month_day_nano_interval(), shape=[-1]), None, "no tensor"),
    Expect(with_metadata(pa.list_(pa.float64())), Shape([None]), "nothing"),
    Expect(pa.field("y", pa.list_(pa.float64()), metadata={"SPARK::metadata::json": "{}"}), Shape([None]), "nothing from Spark"),
)
def test_known_dimensions(case):
    check(lambda field: column_from_field(field).cell_shape, case)


def test_list_types():
    assert list_type(pa.int8(), 2) == pa.list_(pa.list_(pa.int8()))
    assert split_lists(list_type(pa.int8(), 3)) == (pa.int8(), (None, None, None))
    assert split_lists(pa.int8()) == (pa.int8(), ())
