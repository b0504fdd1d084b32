"""Groups: key columns → a group number for each row.

Keys are compared as Spark groups them: null is a key of its own, all NaNs are one key, -0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MOST_CODES = 2**62


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of some rows.

    Attributes:
        codes: for each row the number of its group, counted from 0 without gaps.
        keys: for each group the values of its keys.
        first: for each group its first row.
    """

    codes: np.ndarray
    keys: list[pa.Array]
    first: np.ndarray

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.keys[0])


def group_rows(keys: Sequence[pa.Array]) -> Groups:
    """Number the groups that rows with these keys form, in the order of their first rows.

    Args:
        keys: one array for each key column; scalars, or structs of them.
    """
    keys = [normalized(key) for key in keys]
    codes, count = _codes(keys[0])
    for key in keys[1:]:
        more, most = _codes(key)
        if count * most > _MOST_CODES:
            codes, count = _dense(codes)
        codes, count = codes * most + more, count * most
    first, codes = _first_rows(codes)
    rows = pa.array(first)
    return Groups(codes, [key.take(rows) for key in keys], first)


def can_group(arrow: pa.DataType) -> bool:
    """Tell whether a type can be a key: scalars, and structs of them."""
    if pa.types.is_dictionary(arrow):
        return can_group(arrow.value_type) and not pa.types.is_struct(arrow.value_type)
    if pa.types.is_struct(arrow):
        return all(can_group(arrow.field(i).type) for i in range(arrow.num_fields))
    return not pa.types.is_nested(arrow) and not isinstance(arrow, pa.BaseExtensionType)


def normalized(key: pa.Array) -> pa.Array:
    """Return float keys with one zero and one NaN, in types that Arrow can compare and gather: halves widened, dictionaries decoded."""
    if pa.types.is_dictionary(key.type):
        return normalized(key.dictionary_decode())
    if pa.types.is_struct(key.type) and key.type.num_fields:
        return _over_fields(key, [normalized(pc.struct_field(key, [i])) for i in range(key.type.num_fields)])
    if pa.types.is_string_view(key.type) or pa.types.is_binary_view(key.type):
        return key.cast(pa.large_string() if pa.types.is_string_view(key.type) else pa.large_binary())
    if pa.types.is_float16(key.type):
        key = key.cast(pa.float32())
    if not pa.types.is_floating(key.type):
        return key
    zero = pa.scalar(0.0, key.type)
    return pc.if_else(pc.is_nan(key), pa.scalar(float("nan"), key.type), pc.add(key, zero))


def restored(key: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Return normalized keys in the type that they had."""
    if key.type == arrow:
        return key
    if pa.types.is_dictionary(arrow):  # Arrow casts nothing but text to a dictionary
        return restored(key, arrow.value_type).dictionary_encode().cast(arrow)
    if pa.types.is_struct(arrow):
        return _over_fields(key, [restored(pc.struct_field(key, [i]), arrow.field(i).type) for i in range(arrow.num_fields)])
    return key.cast(arrow)


def _over_fields(key: pa.Array, parts: Sequence[pa.Array]) -> pa.Array:
    """Return a struct with other values of its fields."""
    fields = [key.type.field(i).with_type(part.type) for i, part in enumerate(parts)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=key.is_null())


def _codes(key: pa.Array) -> tuple[np.ndarray, int]:
    """Return numbers that are equal where keys are equal, and one more than the largest."""
    if pa.types.is_struct(key.type):
        parts = [key.is_valid(), *(pc.struct_field(key, [i]) for i in range(key.type.num_fields))]
        groups = group_rows([part if part.type != pa.bool_() else part.cast(pa.int8()) for part in parts])
        return groups.codes, groups.count
    encoded = key.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), max(len(encoded.dictionary), 1)


def _dense(codes: np.ndarray) -> tuple[np.ndarray, int]:
    _, dense = np.unique(codes, return_inverse=True)
    return dense.astype(np.int64), int(dense.max(initial=-1)) + 1


def _first_rows(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row of each group, in order, and each row's group number in that order."""
    encoded = pa.array(codes).dictionary_encode()
    numbers = encoded.indices.to_numpy().astype(np.int64)
    first = np.empty(len(encoded.dictionary), dtype=np.int64)
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)
    return first, numbers
