"""Tables of cases for the verbs: a frame's columns, what is done with them, and what comes out or how it is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from flavours import Columns

import tensorframes as tfs


@dataclass(frozen=True)
class Expect:
    """`verb` of a frame of the `input` columns gives `output`: the columns of a map behind its own, unless trimmed."""

    id: str
    input: Columns
    fetches: Any
    output: Any
    feed_dict: Any = None
    verb: Callable[..., Any] = tfs.map_blocks
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExpectFail:
    """`verb` of a frame of the `input` columns raises `error` with exactly this message."""

    id: str
    input: Columns
    fetches: Any
    error: type[Exception]
    message: str
    feed_dict: Any = None
    verb: Callable[..., Any] = tfs.map_blocks
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ReduceExpect(Expect):
    """A case of a reduce, whose `output` is a value, in type and structure too."""

    verb: Callable[..., Any] = tfs.reduce_blocks


@dataclass(frozen=True)
class ReduceExpectFail(ExpectFail):
    """A reduce that is refused."""

    verb: Callable[..., Any] = tfs.reduce_blocks


def each(*cases: Expect | ExpectFail) -> Any:
    """Run a test once for each case, which it gets as its argument ``case``."""
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.id)


def run(case: Expect | ExpectFail, native: Any, **options: Any) -> Any:
    """Call the case's verb on a native frame."""
    return case.verb(case.fetches, native, case.feed_dict, **case.options, **options)
