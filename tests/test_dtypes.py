"""The table of scalar types."""

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from expectations import Expect, cases, check

from tensorframes.dtypes import BY_NAME, can_cast, dtype_of_arrow, is_bytes, is_text, stored_dtype


def test_names_are_those_of_tensorflow_and_numpy():
    for name, scalar in BY_NAME.items():
        assert tf.as_dtype(name).name == name
        if name not in ("bfloat16", "string"):
            assert scalar.numpy == np.dtype(name) == tf.as_dtype(name).as_numpy_dtype
        if scalar.arrow is not None:
            assert dtype_of_arrow(scalar.arrow) == name
        if scalar.widened is not None:
            assert BY_NAME[scalar.widened].spark is not None


@cases(
    Expect(pa.bool_(), "bool", "bool"),
    Expect(pa.int8(), "int8", "int8"),
    Expect(pa.uint64(), "uint64", "uint64"),
    Expect(pa.float16(), "float16", "float16"),
    Expect(pa.string(), "string", "string"),
    Expect(pa.large_string(), "string", "large string"),
    Expect(pa.string_view(), "string", "string view"),
    Expect(pa.binary(), "string", "binary"),
    Expect(pa.binary(4), "string", "fixed-size binary"),
    Expect(pa.large_binary(), "string", "large binary"),
    Expect(pa.binary_view(), "string", "binary view"),
    Expect(pa.date32(), "int32", "date"),
    Expect(pa.date64(), None, "date64"),
    Expect(pa.timestamp("us"), "int64", "timestamp without a zone"),
    Expect(pa.timestamp("ns", "UTC"), "int64", "timestamp"),
    Expect(pa.dictionary(pa.int8(), pa.string()), "string", "dictionary of strings"),
    Expect(pa.dictionary(pa.int8(), pa.float32()), "float32", "dictionary of floats"),
    Expect(pa.dictionary(pa.int8(), pa.decimal128(3)), None, "dictionary of decimals"),
    Expect(pa.decimal128(5, 2), None, "decimal"),
    Expect(pa.null(), None, "null"),
    Expect(pa.duration("us"), None, "duration"),
    Expect(pa.time64("us"), None, "time"),
    Expect(pa.month_day_nano_interval(), None, "interval"),
    Expect(pa.map_(pa.string(), pa.int8()), None, "map"),
    Expect(pa.struct([("a", pa.int8())]), None, "struct"),
    Expect(pa.list_(pa.int8()), None, "list, which is no scalar"),
)
def test_dtype_of_arrow(case):
    check(dtype_of_arrow, case)


def test_text_is_not_bytes():
    for arrow in (pa.string(), pa.large_string(), pa.string_view()):
        assert is_text(arrow)
        assert not is_bytes(arrow)
    for arrow in (pa.binary(), pa.large_binary(), pa.binary(2), pa.binary_view()):
        assert is_bytes(arrow)
        assert not is_text(arrow)


@cases(
    *(
        Expect((name, True), wanted, f"{name} on Spark")
        for name, wanted in {
            **{same: same for same in ("bool", "int8", "int16", "int32", "int64", "float32", "float64", "string")},
            **{"uint8": "int16", "uint16": "int32", "uint32": "int64", "float16": "float32", "bfloat16": "float32"},
            **{"uint64": None, "complex64": None, "complex128": None, "variant": None, "resource": None, "qint8": None},
        }.items()
    ),
    *(Expect((name, False), name, f"{name} locally") for name, scalar in BY_NAME.items() if scalar.arrow is not None),
    Expect(("bfloat16", False), "float32", "bfloat16 locally"),
    Expect(("complex64", False), None, "complex64 locally"),
    Expect(("variant", False), None, "variant locally"),
)
def test_stored_dtype(case):
    check(lambda given: stored_dtype(given[0], on_spark=given[1]), case)


def test_stored_dtypes_hold_every_value():
    for name in BY_NAME.keys() - {"string", "bfloat16"}:
        for on_spark in (False, True):
            stored = stored_dtype(name, on_spark=on_spark)
            assert stored is None or np.can_cast(name, stored, "safe")


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]


@pytest.mark.parametrize("held", BY_NAME)
def test_casts(held):
    for wanted in BY_NAME:
        allowed = (
            held == wanted
            or (held == "bool" and wanted not in ("string", "bfloat16"))
            or (held in INTEGERS and wanted in INTEGERS and np.can_cast(held, wanted, "safe"))
            or (held in INTEGERS and wanted in (*FLOATS, "complex64", "complex128"))
            or (held in FLOATS and wanted in (*FLOATS, "complex64", "complex128"))
            or (held.startswith("complex") and wanted.startswith("complex"))
        )
        assert can_cast(held, wanted) is allowed, f"{held} → {wanted}"


@cases(
    Expect(("int32", "float32"), True, "int to float"),
    Expect(("int64", "float64"), True, "long to double"),
    Expect(("int32", "int64"), True, "widening"),
    Expect(("uint8", "int16"), True, "unsigned to a wider signed"),
    Expect(("float64", "float32"), True, "narrower float, checked by value"),
    Expect(("float32", "float64"), True, "wider float"),
    Expect(("int64", "int32"), False, "narrower int"),
    Expect(("uint64", "int64"), False, "unsigned to signed"),
    Expect(("float32", "int64"), False, "float to int"),
    Expect(("string", "int64"), False, "string to number"),
    Expect(("float64", "string"), False, "number to string"),
    Expect(("int8", "bool"), False, "int to bool"),
    Expect(("float32", "bfloat16"), False, "to bfloat16"),
)
def test_casts_that_the_contract_names(case):
    check(lambda given: can_cast(*given), case)
