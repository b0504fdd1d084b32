"""Shapes: print, parse, accept, narrow, merge."""

import copy
import pickle

import cloudpickle
import pytest
from expectations import Expect, cases, check, check_same
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorframes.shapes import Shape, merge_shapes

unhurried = settings(max_examples=50, deadline=None)
dims = st.lists(st.none() | st.integers(0, 2**40), max_size=5)


@cases(
    Expect([], ("[]", "[]", "Shape([])"), "scalar"),
    Expect([2], ("[2]", "[2]", "Shape([2])"), "vector"),
    Expect([None], ("[?]", "[?]", "Shape([None])"), "unknown"),
    Expect([None, 28, 28], ("[?, 28, 28]", "[?,28,28]", "Shape([None, 28, 28])"), "block"),
)
def test_print(case):
    def printed(given: list[int | None]) -> tuple[str, str, str]:
        shape = Shape(given)
        return str(shape), shape.print(), repr(shape)

    check(printed, case)


@cases(
    Expect("[]", [], "scalar"),
    Expect(" [ ? , 2 ] ", [None, 2], "spaces"),
    Expect("?,2", [None, 2], "no brackets"),
    Expect("[28]", [28], "vector"),
)
def test_parse(case):
    check(lambda text: list(Shape.parse(text)), case)


@unhurried
@given(dims)
def test_what_is_printed_can_be_read(given):
    shape = Shape(given)
    for text in (str(shape), shape.print(), shape.print(" , ")):
        check_same(Shape.parse(text), shape)


@unhurried
@given(dims)
def test_pickles_and_copies_are_shapes(given):
    shape = Shape(given)
    for again in (pickle.loads(pickle.dumps(shape)), cloudpickle.loads(cloudpickle.dumps(shape)), copy.deepcopy(shape)):
        check_same(again, shape)


def test_a_shape_is_its_tuple():
    assert Shape([None, 2]) == (None, 2)
    assert hash(Shape([None, 2])) == hash((None, 2))
    assert Shape.of([-1, None, 2]) == (None, None, 2)


ACCEPTED = [
    ([], [], True),
    ([2], [2], True),
    ([None], [2], True),
    ([2], [None], True),
    ([2], [3], False),
    ([None, 2], [3, 2], True),
    ([None, 2], [3, 4], False),
    ([None], [None, None], False),
    ([], [1], False),
]


@pytest.mark.parametrize(("a", "b", "accepted"), ACCEPTED, ids=str)
def test_accepts(a, b, accepted):
    assert Shape(a).accepts(b) is accepted
    assert Shape(b).accepts(a) is accepted


@unhurried
@given(dims, st.data())
def test_narrowing_keeps_what_is_known_and_merging_forgets_what_differs(given, data):
    shape = Shape(given)
    other = Shape(data.draw(st.sampled_from([None, dim])) for dim in shape)
    narrowed = Shape(data.draw(st.sampled_from([None, dim])) for dim in shape).narrow(shape)
    check_same(narrowed, shape)
    check_same(other.narrow(other), other)
    merged = merge_shapes(shape, other)
    check_same(merged, other)
    assert merged.accepts(shape)
    assert merged.accepts(other)


@cases(
    Expect(([2, 3], [4, 3]), Shape([None, 3]), "one differs"),
    Expect(([2], [2]), Shape([2]), "equal"),
    Expect(([None], [2]), Shape([None]), "unknown wins"),
    Expect(([], []), Shape([]), "scalars"),
)
def test_merge(case):
    check(lambda pair: merge_shapes(*pair), case)


def test_shapes_of_different_ranks_are_not_merged():
    with pytest.raises(ValueError, match="zip"):
        merge_shapes([1], [1, 2])
    with pytest.raises(ValueError, match="zip"):
        Shape([1]).narrow([1, 2])
