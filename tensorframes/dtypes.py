"""The table of scalar types, and every look-up that is derived from it.

Knows names only: no TensorFlow, no Spark. A dtype is its TensorFlow name, a plain string ("float64"), which TensorFlow and NumPy
take as it is. The one law: what a type becomes anywhere is said here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One row of the table.

    Attributes:
        name: TensorFlow's name of the type.
        arrow: the Arrow type that holds it, or None.
        numpy: the NumPy dtype of its buffer.
        spark: Spark's simple name, or None where Spark has no such type.
        widened: the dtype whose values hold all of this one's on Spark, or None where there is none.
    """

    name: str
    arrow: pa.DataType | None
    numpy: np.dtype
    spark: str | None
    widened: str | None


_TABLE = (
    ScalarType("bool", pa.bool_(), np.dtype("bool"), "boolean", "bool"),
    ScalarType("int8", pa.int8(), np.dtype("int8"), "byte", "int8"),
    ScalarType("int16", pa.int16(), np.dtype("int16"), "short", "int16"),
    ScalarType("int32", pa.int32(), np.dtype("int32"), "int", "int32"),
    ScalarType("int64", pa.int64(), np.dtype("int64"), "long", "int64"),
    ScalarType("uint8", pa.uint8(), np.dtype("uint8"), None, "int16"),
    ScalarType("uint16", pa.uint16(), np.dtype("uint16"), None, "int32"),
    ScalarType("uint32", pa.uint32(), np.dtype("uint32"), None, "int64"),
    ScalarType("uint64", pa.uint64(), np.dtype("uint64"), None, None),
    ScalarType("float16", pa.float16(), np.dtype("float16"), None, "float32"),
    ScalarType("bfloat16", None, np.dtype("uint16"), None, "float32"),
    ScalarType("float32", pa.float32(), np.dtype("float32"), "float", "float32"),
    ScalarType("float64", pa.float64(), np.dtype("float64"), "double", "float64"),
    ScalarType("complex64", None, np.dtype("complex64"), None, None),
    ScalarType("complex128", None, np.dtype("complex128"), None, None),
    ScalarType("string", pa.string(), np.dtype("object"), "string", "string"),
)

BY_NAME = {scalar.name: scalar for scalar in _TABLE}
_BY_ARROW = {scalar.arrow: scalar.name for scalar in _TABLE if scalar.arrow is not None}

_IS_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_IS_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)


def dtype_of_arrow(arrow: pa.DataType) -> str | None:
    """Return the dtype of an Arrow scalar type, or None where no tensor can hold it.

    Example:
        >>> dtype_of_arrow(pa.date32()), dtype_of_arrow(pa.large_string()), dtype_of_arrow(pa.decimal128(5, 2))
        ('int32', 'string', None)
    """
    if pa.types.is_dictionary(arrow):
        return dtype_of_arrow(arrow.value_type)
    if is_text(arrow) or is_bytes(arrow):
        return "string"
    if pa.types.is_date32(arrow):
        return "int32"
    if pa.types.is_timestamp(arrow):
        return "int64"
    return _BY_ARROW.get(arrow)


def is_text(arrow: pa.DataType) -> bool:
    """Tell whether an Arrow type holds UTF-8 text."""
    return any(check(arrow) for check in _IS_TEXT)


def is_bytes(arrow: pa.DataType) -> bool:
    """Tell whether an Arrow type holds bytes."""
    return any(check(arrow) for check in _IS_BYTES)


def stored_dtype(dtype: str, *, on_spark: bool) -> str | None:
    """Return the dtype in which a column holds an output, widened exactly where the frame lacks it; None: refused.

    Example:
        >>> stored_dtype("uint8", on_spark=True), stored_dtype("uint8", on_spark=False), stored_dtype("complex64", on_spark=True)
        ('int16', 'uint8', None)
    """
    scalar = BY_NAME.get(dtype)
    if scalar is None:
        return None
    return dtype if scalar.arrow is not None and not on_spark else scalar.widened


def can_cast(held: str, wanted: str) -> bool:
    """Tell whether a column's dtype may be fed to a program that declares another one.

    Widening that keeps every value, integer → float, and a wider float → a narrower one (each value is checked then); nothing else.
    The rule is NumPy's ``same_kind`` without its integer narrowing.

    Example:
        >>> can_cast("int32", "float32"), can_cast("float64", "float32"), can_cast("int64", "int32"), can_cast("float32", "int64")
        (True, True, False, False)
    """
    if held == wanted:
        return True
    if "string" in (held, wanted) or "bfloat16" in (held, wanted):
        return False
    source, target = BY_NAME[held].numpy, BY_NAME[wanted].numpy
    return np.can_cast(source, target, "safe") or (target.kind in "fc" and np.can_cast(source, target, "same_kind"))
