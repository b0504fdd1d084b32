"""Races: the contestants of a case, in turn, warm-up first."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.cases import OURS, Case, Contestant, Setting, Target

MOST_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Result:
    """What came out of one case.

    Attributes:
        case: the case.
        rows: how many rows it took.
        cold: contestant → what its first call took.
        warm: contestant → what each further call took, or the one number that it returned.
        checks: sentence → whether it holds.
    """

    case: Case
    rows: int
    cold: Mapping[str, float]
    warm: Mapping[str, tuple[float, ...]]
    checks: Mapping[str, bool]

    @property
    def best(self) -> dict[str, float]:
        """Contestant → its best."""
        return {name: min(times) for name, times in self.warm.items()}

    @property
    def median(self) -> dict[str, float]:
        """Contestant → its median."""
        return {name: statistics.median(times) for name, times in self.warm.items()}

    @property
    def peers(self) -> list[str]:
        """The contestants that are neither floor nor ours."""
        return [name for name in self.warm if name not in (self.case.floor, OURS)]

    def figure(self, target: Target) -> float:
        """Return the figure that a target is about."""
        return target.figure(self.best, self.case.floor)

    def meets(self, target: Target) -> bool:
        """Tell whether a target is met and every check holds."""
        return target.is_met(self.figure(target)) and all(self.checks.values())

    @property
    def is_met(self) -> bool:
        """Whether all targets are met and every check holds."""
        return all(map(self.meets, self.case.targets))


def race(case: Case, spark: Any = None, rows: int | None = None, repeat: int = 5, seconds: float = 3.0) -> Result:
    """Run a case.

    Args:
        case: the case.
        spark: the session, for a case that needs one.
        rows: how many rows, when not the case's own number.
        repeat: rounds at least; further ones follow, up to 40, until `seconds` have passed.
        seconds: see there; more rounds make short cases quieter.

    Raises:
        AssertionError: a peer gives another answer than ours.
    """
    rows = rows or case.rows
    with case.prepare(Setting(rows, spark)) as contestants:
        named = {case.floor: contestants.floor, OURS: contestants.ours, **contestants.peers}
        if case.unit == "s":
            cold, answers = _warm_up(named)
            _check_answers(case.name, {name: answers[name] for name in (OURS, *contestants.peers)})
            warm = _take_turns(named, repeat, seconds)
        else:
            cold, warm = {}, {name: (float(run()),) for name, run in named.items()}
        checks = {sentence: bool(check()) for sentence, check in contestants.checks.items()}
    return Result(case, rows, cold, warm, checks)


def _warm_up(named: Mapping[str, Contestant]) -> tuple[dict[str, float], dict[str, Any]]:
    cold, answers = {}, {}
    for name, run in named.items():
        cold[name], answers[name] = _clock(run)
    return cold, answers


def _take_turns(named: Mapping[str, Contestant], repeat: int, seconds: float) -> dict[str, tuple[float, ...]]:
    """Run rounds of all contestants, another one first in each, so that none always follows the same one."""
    times: dict[str, list[float]] = {name: [] for name in named}
    order, begin, rounds = list(named), time.perf_counter(), 0
    while rounds < repeat or (rounds < MOST_ROUNDS and time.perf_counter() - begin < seconds):
        for name in order:
            times[name].append(_clock(named[name])[0])
        order = [*order[1:], order[0]]
        rounds += 1
    return {name: tuple(taken) for name, taken in times.items()}


def _clock(run: Contestant) -> tuple[float, Any]:
    begin = time.perf_counter()
    answer = run()
    return time.perf_counter() - begin, answer


def _check_answers(case: str, answers: Mapping[str, Any]) -> None:
    ours = answers[OURS]
    for name, answer in answers.items():
        assert answer == ours or math.isclose(answer, ours, rel_tol=1e-5), f"{case}: {name} answers {answer}, {OURS} answers {ours}"
