"""Groups: key columns → a group number for each row, as a dictionary of Python values would give."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from expectations import Expect, cases, check
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorframes.blocks import groups as groups_room
from tensorframes.blocks.groups import can_group, group_rows, normalized, restored


def canonical(value: Any) -> Any:
    """Spell equal keys in one way: all NaNs are one, -0.0 is 0.0."""
    if isinstance(value, dict):
        return tuple((name, canonical(field)) for name, field in value.items())
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def by_dictionary(keys: Sequence[pa.Array]) -> tuple[list[int], list[tuple[Any, ...]]]:
    rows = [tuple(map(canonical, row)) for row in zip(*(key.to_pylist() for key in keys), strict=True)]
    numbers: dict[tuple[Any, ...], int] = {}
    return [numbers.setdefault(row, len(numbers)) for row in rows], list(numbers)


def check_groups(keys: Sequence[pa.Array]) -> None:
    held = group_rows(keys)
    codes, rows = by_dictionary(keys)
    assert held.codes.tolist() == codes
    assert held.codes.dtype == np.int64
    assert held.count == len(rows)
    found = [tuple(map(canonical, row)) for row in zip(*(key.to_pylist() for key in held.keys), strict=True)]
    assert found == rows


FLOATS = st.sampled_from([None, 0.0, -0.0, 1.0, -1.5, float("nan"), -float("nan"), float("inf"), 5e-324])
INTS = st.sampled_from([None, 0, 1, -1, 2**62, -(2**63), 2**63 - 1])
TEXTS = st.sampled_from([None, "", "a", "b", "é", "a\0"])
STRUCTS = st.none() | st.fixed_dictionaries({"f": FLOATS, "t": TEXTS, "b": st.sampled_from([None, True, False])})
STRUCT = pa.struct([("f", pa.float64()), ("t", pa.string()), ("b", pa.bool_())])
NESTED = pa.struct([("s", STRUCT), ("i", pa.int64())])
COLUMNS = {
    "int64": (INTS, pa.int64()),
    "float64": (FLOATS, pa.float64()),
    "float32": (FLOATS, pa.float32()),
    "bool": (st.sampled_from([None, True, False]), pa.bool_()),
    "string": (TEXTS, pa.string()),
    "large_string": (TEXTS, pa.large_string()),
    "string_view": (TEXTS, pa.string_view()),
    "binary": (st.sampled_from([None, b"", b"\0", b"\xff"]), pa.binary()),
    "struct": (STRUCTS, STRUCT),
    "nested": (st.none() | st.fixed_dictionaries({"s": STRUCTS, "i": INTS}), NESTED),
    "dictionary": (TEXTS, pa.string()),
    "dictionary of floats": (FLOATS, pa.float64()),
}


@st.composite
def key_columns(draw: Any) -> list[pa.Array]:
    rows, start, stop = draw(st.integers(0, 25)), draw(st.integers(0, 3)), draw(st.integers(0, 3))
    keys = []
    for kind in draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4)):
        cells, arrow = COLUMNS[kind]
        length = start + rows + stop
        array = pa.array(draw(st.lists(cells, min_size=length, max_size=length)), arrow)
        if kind.startswith("dictionary"):
            array = array.dictionary_encode(null_encoding=draw(st.sampled_from(["mask", "encode"])))
        keys.append(array.slice(start, rows))
    return keys


@settings(max_examples=150, deadline=None)
@given(key_columns())
def test_rows_are_grouped_as_by_a_dictionary(keys: list[pa.Array]) -> None:
    check_groups(keys)


@settings(max_examples=60, deadline=None)
@given(key_columns())
def test_normalized_keys_come_back_in_their_own_type(keys: list[pa.Array]) -> None:
    for key in keys:
        held = restored(normalized(key), key.type)
        assert held.type == key.type
        assert list(map(canonical, held.to_pylist())) == list(map(canonical, key.to_pylist()))


def test_many_key_columns_overflow_no_code() -> None:
    # Six columns of 2,048 keys each have more combinations than 64 bits count; the last rows differ in the first column's high bits only.
    high = [0, 512, 1024, 1536]
    check_groups([pa.array([*range(2048), *high]), *(pa.array([*range(2048), *(0 for _ in high)]) for _ in range(5))])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.lists(st.tuples(INTS, TEXTS, INTS), max_size=20))
def test_codes_that_overflow_early_give_the_same_groups(most: int, rows: list[tuple[Any, ...]]) -> None:
    keys = [pa.array([row[i] for row in rows], arrow) for i, arrow in enumerate([pa.int64(), pa.string(), pa.int64()])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups_room, "_MOST_CODES", most)
        check_groups(keys)


def test_groups_are_numbered_in_the_order_of_their_first_rows() -> None:
    held = group_rows([pa.array(["b", "a", "b", None, "a"])])
    assert held.codes.tolist() == [0, 1, 0, 2, 1]
    assert held.keys[0].to_pylist() == ["b", "a", None]


def test_groups_have_one_zero_and_one_nan() -> None:
    held = group_rows([pa.array([-0.0, 0.0, float("nan"), None, -float("nan")])])
    assert held.codes.tolist() == [0, 0, 1, 2, 1]
    assert repr(held.keys[0].to_pylist()) == "[0.0, nan, None]"
    inner = group_rows([pa.array([{"f": -0.0}, {"f": 0.0}, None])])
    assert repr(inner.keys[0].to_pylist()) == "[{'f': 0.0}, None]"


def test_a_null_struct_is_not_a_struct_of_nulls() -> None:
    held = group_rows([pa.array([{"f": None}, None, {"f": None}], pa.struct([("f", pa.int64())]))])
    assert held.codes.tolist() == [0, 1, 0]
    assert held.keys[0].to_pylist() == [{"f": None}, None]


@pytest.mark.parametrize(
    "key",
    [
        pa.array([1, 2, 1], pa.uint8()),
        pa.array([2**64 - 1, 2, 2**64 - 1], pa.uint64()),
        pa.array(np.array([1, 2, 1], np.float16)),
        pa.array([datetime.date(2020, 1, 1), None, datetime.date(2020, 1, 1)]),
        pa.array([1, 2, 1], pa.timestamp("ns", "UTC")),
        pa.array([1, 2, 1], pa.duration("us")),
        pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("1.50")]),
        pa.array([b"ab", b"cd", b"ab"], pa.binary(2)),
        pa.array([b"ab", b"cd", b"ab"], pa.binary_view()),
        pa.array([True, None, True]),
    ],
    ids=lambda key: str(key.type),
)
def test_keys_of_other_types(key: pa.Array) -> None:
    assert can_group(key.type)
    for held in (key, pa.concat_arrays([key, key]).slice(3)):
        check_groups([held])
    assert restored(normalized(key), key.type) == key


@cases(
    Expect(pa.int64(), True, "numbers"),
    Expect(pa.dictionary(pa.int8(), pa.string()), True, "dictionaries"),
    Expect(NESTED, True, "structs of structs"),
    Expect(pa.list_(pa.int64()), False, "lists"),
    Expect(pa.map_(pa.string(), pa.int64()), False, "maps"),
    Expect(pa.struct([("v", pa.list_(pa.int64()))]), False, "structs of lists"),
    Expect(pa.fixed_shape_tensor(pa.float64(), [2]), False, "tensors"),
)
def test_types_that_can_be_keys(case: Expect) -> None:
    check(can_group, case)
