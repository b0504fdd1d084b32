"""What a case is: a question, contestants that answer it, and targets for their ratios.

Knows neither Spark nor TensorFlow. The one law: ours and every peer give the same answer, or the case fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

OURS = "tensorframes"

Contestant = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a case runs.

    Attributes:
        rows: how many rows it takes.
        spark: the session, None for a case that needs none.
    """

    rows: int
    spark: Any = None


@dataclass(frozen=True, slots=True)
class Contestants:
    """What runs in turn. Each returns its answer, None where there is nothing to compare.

    Attributes:
        floor: the least that could be done, such as the same hop with an identity function.
        ours: the same with this library.
        peers: name → the same by other means.
        checks: what must hold besides, sentence → whether it does; run once, after the warm-up.
    """

    floor: Contestant
    ours: Contestant
    peers: Mapping[str, Contestant] = field(default_factory=dict)
    checks: Mapping[str, Callable[[], bool]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """A bound for one figure of a case.

    Attributes:
        label: what is bounded: "ours / floor", "ours − floor", or "PEER / ours".
        limit: the bound.
        at_most: whether it is an upper bound.
        peer: the peer, where it is about one.
    """

    label: str
    limit: float
    at_most: bool = True
    peer: str | None = None

    def figure(self, best: Mapping[str, float], floor: str) -> float:
        """Compute the figure from each contestant's best."""
        ours = best[OURS]
        if self.peer is not None:
            return best[self.peer] / ours
        return ours - best[floor] if "−" in self.label else ours / best[floor]

    def is_met(self, figure: float) -> bool:
        """Tell whether the figure keeps within the bound."""
        return figure <= self.limit if self.at_most else figure >= self.limit

    def __str__(self) -> str:
        """Print as ``ours / floor ≤ 1.25``."""
        return f"{self.label} {'≤' if self.at_most else '≥'} {self.limit:g}"


def within(factor: float) -> Target:
    """Ours takes at most so many times what the floor takes."""
    return Target("ours / floor", factor)


def beats(peer: str, factor: float) -> Target:
    """The peer takes at least so many times what ours takes."""
    return Target(f"{peer} / ours", factor, at_most=False, peer=peer)


def adds(amount: float) -> Target:
    """Ours is at most so much more than the floor."""
    return Target("ours − floor", amount)


@dataclass(frozen=True, slots=True)
class Case:
    """A question about cost.

    Attributes:
        name: its name on the command line.
        question: what it answers.
        floor: what the floor is.
        target: the bound.
        prepare: makes the data and gives the contestants; what it holds is released at the end.
        rows: how many rows it is about.
        small: how many are enough to see that it works.
        on_spark: whether it needs a session.
        unit: "s" is measured by the clock over several rounds; anything else is the number that a contestant returns, once.
        also: further bounds, about other contestants.
    """

    name: str
    question: str
    floor: str
    target: Target
    prepare: Callable[[Setting], AbstractContextManager[Contestants]]
    rows: int
    small: int = 50
    on_spark: bool = True
    unit: str = "s"
    also: tuple[Target, ...] = ()

    @property
    def targets(self) -> tuple[Target, ...]:
        """All bounds."""
        return (self.target, *self.also)
