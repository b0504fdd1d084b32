"""Run benchmarks: ``python -m benchmarks [CASE …] [--rows N] [--json FILE] [--plot FILE.png] [--repeat 5]``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from benchmarks.catalog import CASES
from benchmarks.race import race
from benchmarks.report import as_json, draw, machine, questions, table
from benchmarks.sessions import session


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases asked for and report; the exit status tells whether all targets are met."""
    options = _parser().parse_args(arguments)
    cases = [case for case in CASES if not options.names or case.name in options.names]
    results = []
    with session(options.cores) if any(case.on_spark for case in cases) else nullcontext() as spark:
        for case in cases:
            print(f"{case.name} …", file=sys.stderr, flush=True)
            results.append(race(case, spark, options.rows, options.repeat))
            if options.json:
                Path(options.json).write_text(as_json(results) + "\n", encoding="utf-8")
    facts = machine()
    print(f"{facts['cores']} cores, {facts['platform']}\n{', '.join(f'{k} {v}' for k, v in facts['versions'].items())}\n")
    print(questions(results), table(results), sep="\n\n")
    if options.plot:
        draw(results, options.plot)
    return 0 if all(result.is_met for result in results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure every case beside its floor and its peers.")
    parser.add_argument("names", nargs="*", metavar="CASE", choices=[[], *(case.name for case in CASES)], help=_names())
    parser.add_argument("--rows", type=int, metavar="N", help="rows of every case, instead of its own number")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="rounds at least (5)")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), metavar="N", help="cores that Spark uses (all)")
    parser.add_argument("--json", metavar="FILE", help="write all that was measured")
    parser.add_argument("--plot", metavar="FILE.png", help="draw bars of the ratios")
    return parser


def _names() -> str:
    return "which cases (all): " + ", ".join(case.name for case in CASES)


if __name__ == "__main__":
    sys.exit(main())
