import numpy as np
import pytest
from expectations import Expect, ExpectFail, check, check_same


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (1, 2),
        (1, 1.0),
        (True, 1),
        (np.float64(1), 1.0),
        ([1], (1,)),
        (np.array([1.0]), np.array([2.0])),
        (np.array([1.0]), np.array([[1.0]])),
        (np.array([1], np.int32), np.array([1], np.int64)),
        (np.array([0.0]), np.array([-0.0])),
        (np.array([b"a"], object), np.array([b"b"], object)),
        (np.array([b"a"], object), np.array([b"a"])),
    ],
    ids=repr,
)
def test_what_differs_is_found(held, wanted):
    with pytest.raises(AssertionError, match=r" is (not |a )"):
        check_same(held, wanted)


def test_what_is_the_same_passes():
    for value in (1, "a", [1, None], np.array([np.nan, 1.0]), np.array([b"a"], object)):
        check_same(value, value)


@pytest.mark.parametrize(
    ("error", "message", "found"),
    [
        (KeyError, "invalid literal for int() with base 10: 'a'", "invalid literal"),
        (ValueError, "invalid literal", "the message is"),
        (Exception, "invalid literal for int() with base 10: 'a'", "raised ValueError instead of Exception"),
    ],
    ids=["class", "message", "subclass"],
)
def test_another_refusal_is_found(error, message, found):
    with pytest.raises((AssertionError, ValueError), match=found.replace("(", r"\(")):
        check(int, ExpectFail("a", error, message, "case"))


def test_no_refusal_is_found():
    with pytest.raises(AssertionError, match="gave 1 instead of raising ValueError"):
        check(int, ExpectFail("1", ValueError, "", "case"))
    with pytest.raises(AssertionError, match="1 is not 2"):
        check(int, Expect("1", 2, "case"))
