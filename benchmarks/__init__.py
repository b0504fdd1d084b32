"""Benchmarks: every number beside its floor and its peers, as ratios measured in turn in one run.

``python -m benchmarks [CASE …]``, or ``./dev bench``. A case (`cases.Case`) is a value that says which question it answers; `race` runs its
contestants in turn; `report` prints, writes and draws what came out. The law: a number is only compared with one measured in the
same run, with the same sink, after the same warm-up.
"""
