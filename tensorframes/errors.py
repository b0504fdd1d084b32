"""The exceptions, and the one function that lays out a message.

Knows nothing of frames or TensorFlow. The one law: a message stands alone. Inner code raises facts (what was wanted, what was held,
a way out); the verb that was called adds its own name, once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

_LISTED = 20


def format_message(summary: str, facts: Mapping[str, Sequence[str]] | None = None, hint: str | None = None, verb: str | None = None) -> str:
    """Lay out a message: one sentence, then facts in schema order, then a hint.

    Args:
        summary: one sentence that names thing, wanted and held.
        facts: label → items; at most 20 items are listed, then "and 12 more".
        hint: a way out that is certain to help.
        verb: the public function that was called.

    Example:
        >>> print(format_message("input 'x' wants a column.", {"columns": ["y: int64[?]"]}, verb="map_blocks"))
        map_blocks: input 'x' wants a column.
          columns: y: int64[?]
    """
    lines = [f"{verb}: {summary}" if verb else summary]
    width = max((len(label) for label in facts or ()), default=0) + 1
    for label, items in (facts or {}).items():
        shown = [*items[:_LISTED], *([f"and {len(items) - _LISTED} more"] if len(items) > _LISTED else [])]
        lines.append(f"  {label + ':':<{width}} {', '.join(shown) or '(none)'}")
    if hint:
        lines.append(f"  {hint}")
    return "\n".join(lines)


class TensorFramesError(Exception):
    """Whatever TensorFrames refuses; ``str()`` is the whole message.

    Args:
        summary: one sentence that names thing, wanted and held.
        facts: label → items, shown below the sentence.
        hint: a way out that is certain to help.
        verb: the public function that was called; added by `named`.
    """

    def __init__(
        self,
        summary: str,
        *,
        facts: Mapping[str, Sequence[str]] | None = None,
        hint: str | None = None,
        verb: str | None = None,
    ) -> None:
        """Keep the parts; the text is laid out when it is asked for."""
        super().__init__(summary)
        self.summary, self.facts, self.hint, self.verb = summary, facts, hint, verb

    def __str__(self) -> str:
        """Lay out the message."""
        return format_message(self.summary, self.facts, self.hint, self.verb)


class ColumnError(TensorFramesError, ValueError):
    """A column that is missing, or whose name is taken."""


class DTypeError(TensorFramesError, TypeError):
    """A scalar type that does not fit, or that no tensor can hold."""


class ShapeError(TensorFramesError, ValueError):
    """A shape that does not fit."""


class NullError(TensorFramesError, ValueError):
    """A null where the feed allows none."""


class ProgramError(TensorFramesError, ValueError):
    """Fetches that are no program, or a program that failed."""


class EmptyFrameError(TensorFramesError, ValueError):
    """A reduce of a frame without rows."""


class FrameError(TensorFramesError, TypeError):
    """An object that is no frame, or a frame that cannot do what was asked."""


def verb(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a public function add its name to the errors that leave it."""

    @functools.wraps(function)
    def named(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with raised_by(function.__name__):
            return function(*args, **kwargs)

    return named


@contextmanager
def raised_by(name: str) -> Iterator[None]:
    """Add a verb's name to the errors that leave the context without one."""
    try:
        yield
    except TensorFramesError as error:
        error.verb = error.verb or name
        raise
