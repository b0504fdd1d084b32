"""Reports: one table, JSON, and a picture."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.cases import OURS
from benchmarks.race import Result

_PACKAGES = ("tensorframes", "tensorflow", "pyspark", "pyarrow", "numpy", "pandas")
_HEADER = ("case", "contestant", "cold", "best", "median", "ratio", "target", "")


def machine() -> dict[str, Any]:
    """Return the versions and the cores that the figures belong to."""
    versions = {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in _PACKAGES}
    return {"cores": os.cpu_count(), "platform": platform.platform(), "versions": versions}


def table(results: Iterable[Result]) -> str:
    """Lay out all results, a line for each contestant."""
    lines = [_HEADER, *(line for result in results for line in _lines(result))]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEADER))]
    laid_out = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([laid_out[0], "─" * max(map(len, laid_out)), *laid_out[1:]])


def questions(results: Iterable[Result]) -> str:
    """Say what each case is about, and what was checked besides."""
    lines = []
    for result in results:
        lines.append(f"{result.case.name}: {result.case.question} ({result.rows:,} rows)")
        lines.extend(f"  {'✓' if holds else '✗'} {sentence}" for sentence, holds in result.checks.items())
    return "\n".join(lines)


def as_json(results: Iterable[Result]) -> str:
    """Write all that was measured."""
    cases = [
        {
            "case": result.case.name,
            "question": result.case.question,
            "rows": result.rows,
            "unit": result.case.unit,
            "floor": result.case.floor,
            "cold": dict(result.cold),
            "warm": {name: list(times) for name, times in result.warm.items()},
            "best": result.best,
            "median": result.median,
            "targets": [{"target": str(target), "figure": result.figure(target)} for target in result.case.targets],
            "checks": dict(result.checks),
            "is_met": result.is_met,
        }
        for result in results
    ]
    return json.dumps({**machine(), "cases": cases}, indent=2, ensure_ascii=False)


def draw(results: Sequence[Result], path: str) -> None:
    """Draw two panels of bars, ours / floor and peer / ours, each with a stroke where the target is."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    clocked = [result for result in results if result.case.unit == "s"]
    floors = [(result.case.name, result.best[OURS] / result.best[result.case.floor], _limit(result, "ours / floor")) for result in clocked]
    peers = [
        (f"{result.case.name}: {name}", result.best[name] / result.best[OURS], _limit(result, f"{name} / ours"))
        for result in clocked
        for name in result.peers
    ]
    figure, axes = plt.subplots(1, 2, figsize=(13, 1.5 + 0.4 * max(len(floors), len(peers), 1)), layout="constrained")
    _bars(axes[0], floors, "ours / floor (shorter is better)", lambda ratio, limit: ratio <= limit)
    _bars(axes[1], peers, "peer / ours (longer is better)", lambda ratio, limit: ratio >= limit)
    facts = machine()
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    figure.suptitle(f"best of several, in turn; {facts['cores']} cores; {versions}", fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _lines(result: Result) -> Iterable[Sequence[str]]:
    case, best, median = result.case, result.best, result.median
    for number, name in enumerate(result.warm):
        target = next((target for target in case.targets if (target.peer or OURS) == name), None)
        yield (
            case.name if number == 0 else "",
            name,
            _amount(result.cold.get(name), case.unit),
            _amount(best[name], case.unit),
            _amount(median[name] if case.unit == "s" else None, case.unit),
            _ratio(result, name),
            "" if target is None else str(target),
            "" if target is None else "met" if result.meets(target) else "MISSED",
        )


def _ratio(result: Result, name: str) -> str:
    best = result.best
    if name == result.case.floor:
        return "floor"
    if name != OURS:
        return f"{best[name] / best[OURS]:.2f} × ours"
    if result.case.target.label == "ours − floor":
        added = result.figure(result.case.target)
        return f"floor {'+' if added >= 0 else '−'} {_amount(abs(added), result.case.unit)}"
    return f"{best[OURS] / best[result.case.floor]:.2f} × floor"


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit != "s":
        return f"{value:,.0f} {unit}"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"


def _limit(result: Result, label: str) -> float | None:
    return next((target.limit for target in result.case.targets if target.label == label), None)


def _bars(axes: Any, bars: Sequence[tuple[str, float, float | None]], title: str, is_met: Any) -> None:
    for place, (_, ratio, limit) in enumerate(bars):
        met = limit is None or is_met(ratio, limit)
        axes.barh(place, ratio, color="tab:gray" if limit is None else "tab:blue" if met else "tab:red", height=0.6)
        axes.text(ratio, place, f" {ratio:.2f}", va="center", fontsize=8)
        if limit is not None:
            axes.plot([limit, limit], [place - 0.4, place + 0.4], color="black", linewidth=2)
    axes.set_yticks(range(len(bars)), [name for name, _, _ in bars], fontsize=8)
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.5, linestyle=":")
    axes.margins(x=0.12)
    axes.set_title(title, fontsize=10)
