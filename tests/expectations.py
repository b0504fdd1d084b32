"""Tables of cases: what a function gives, or how it refuses, with the whole message."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest


@dataclass(frozen=True)
class Expect:
    """An input and what it gives."""

    input: Any
    output: Any
    id: str


@dataclass(frozen=True)
class ExpectFail:
    """An input and how it is refused: the exact class and the whole message."""

    input: Any
    error: type[Exception]
    message: str
    id: str


Case = Expect | ExpectFail


def cases(*table: Case) -> pytest.MarkDecorator:
    """Run a test once for each case, which it gets as its argument ``case``."""
    return pytest.mark.parametrize("case", table, ids=[case.id for case in table])


def check(function: Callable[[Any], Any], case: Case) -> None:
    """Raise unless the function does what the case says."""
    if isinstance(case, Expect):
        check_same(function(case.input), case.output)
    else:
        check_refused(lambda: function(case.input), case.error, case.message)


def check_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    """Raise unless the call raises exactly this error with exactly this message."""
    try:
        given = call()
    except error as raised:
        if type(raised) is not error:
            raise AssertionError(f"raised {type(raised).__name__} instead of {error.__name__}") from raised
        if str(raised) != message:
            raise AssertionError(f"the message is\n{raised}\ninstead of\n{message}") from raised
    else:
        raise AssertionError(f"gave {given!r} instead of raising {error.__name__}")


def check_same(held: Any, wanted: Any) -> None:
    """Raise unless two values are equal, in type too; arrays bit for bit, with dtype and shape."""
    if type(held) is not type(wanted):
        raise AssertionError(f"{held!r} is a {type(held).__name__}, but a {type(wanted).__name__} is wanted: {wanted!r}")
    if isinstance(wanted, np.ndarray):
        same = held.dtype == wanted.dtype and held.shape == wanted.shape
        same = same and (held.tolist() == wanted.tolist() if wanted.dtype == object else held.tobytes() == wanted.tobytes())
    else:
        same = held == wanted
    if not same:
        raise AssertionError(f"{held!r} is not {wanted!r}")
