"""Benchmarks: with the clock off, every case runs once, small, and its answers are right."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from benchmarks.cases import OURS, Case, Contestants, adds, beats, within
from benchmarks.catalog import CASES
from benchmarks.race import Result, race
from benchmarks.report import as_json, draw, questions, table


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if not case.on_spark])
def test_a_local_case_runs(case):
    check_runs(case, None)


@pytest.mark.spark
@pytest.mark.classic
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if case.on_spark])
def test_a_spark_case_runs(case, spark):
    check_runs(case, spark)


def check_runs(case, spark):
    result = race(case, spark, case.small, repeat=1, seconds=0)
    assert list(result.warm)[:2] == [case.floor, OURS]
    assert all(result.checks.values()), result.checks
    if not case.unit.startswith("s"):
        assert result.is_met


def test_names_are_distinct():
    assert len({case.name for case in CASES}) == len(CASES)


def toy(target, floor=1.0, ours=2.0, unit="MB", also=(), **others):
    @contextmanager
    def prepare(setting):
        yield Contestants(lambda: floor, lambda: ours, **others)

    return Case("toy", "How?", "nothing", target, prepare, rows=7, on_spark=False, unit=unit, also=also)


@pytest.mark.parametrize(
    ("target", "is_met"),
    [(within(2), True), (within(1.9), False), (adds(1), True), (adds(0.9), False), (beats("peer", 3), True), (beats("peer", 3.1), False)],
    ids=str,
)
def test_targets(target, is_met):
    assert race(toy(target, peers={"peer": lambda: 6.0})).is_met is is_met


@pytest.mark.parametrize(("factor", "met"), [(3, "met"), (3.1, "MISSED")])
def test_a_case_may_have_further_targets(factor, met):
    result = race(toy(within(2), also=(beats("peer", factor),), peers={"peer": lambda: 6.0}))
    assert result.is_met is (met == "met")
    ours, peer = table([result]).splitlines()[3:]
    assert ours.split()[-6:] == ["ours", "/", "floor", "≤", "2", "met"]
    assert peer.split()[-6:] == ["peer", "/", "ours", "≥", f"{factor:g}", met]


def test_what_ours_adds_to_the_floor_is_shown_in_its_unit():
    assert "floor + 1 MB  ours − floor ≤ 1  met" in table([race(toy(adds(1)))])
    for ours, shown in ((0.75, "floor + 250.0 ms"), (0.25, "floor − 250.0 ms")):
        assert shown in table([Result(toy(adds(0.3), unit="s"), 7, {}, {"nothing": (0.5,), OURS: (ours,)}, {})])


def test_a_check_that_fails_misses_the_target():
    assert not race(toy(within(2), checks={"it holds": lambda: False})).is_met


def test_a_peer_with_another_answer_is_refused():
    case = toy(within(9), unit="s", peers={"peer": lambda: 2.1})
    with pytest.raises(AssertionError, match=r"^toy: peer answers 2\.1, tensorframes answers 2\.0$"):
        race(case, repeat=1, seconds=0)


def test_contestants_run_in_turn_after_a_warm_up():
    ran = []

    @contextmanager
    def prepare(setting):
        yield Contestants(*(lambda name=name: ran.append(name) for name in "fo"), {"p": lambda: ran.append("p")})

    result = race(Case("toy", "How?", "f", within(1), prepare, rows=1, on_spark=False), repeat=3, seconds=0)
    assert "".join(ran) == "fop" + "fop" + "opf" + "pfo"
    assert [len(times) for times in result.warm.values()] == [3, 3, 3]
    assert list(result.cold) == ["f", OURS, "p"]


def test_reports(tmp_path):
    results = [race(toy(beats("peer", 3), peers={"peer": lambda: 6.0}, checks={"it holds": lambda: True}))]
    assert table(results).splitlines() == [
        "case  contestant    cold  best  median  ratio         target",
        "─" * 74,
        "toy   nothing             1 MB          floor",
        "      tensorframes        2 MB          2.00 × floor",
        "      peer                6 MB          3.00 × ours   peer / ours ≥ 3  met",
    ]
    assert questions(results) == "toy: How? (7 rows)\n  ✓ it holds"
    assert json.loads(as_json(results))["cases"][0]["targets"] == [{"target": "peer / ours ≥ 3", "figure": 3.0}]
    draw([*results, race(toy(within(9), unit="s"), repeat=1, seconds=0)], str(tmp_path / "ratios.png"))
    assert (tmp_path / "ratios.png").stat().st_size > 1000
