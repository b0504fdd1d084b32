"""All cases, in the order in which they run."""

from __future__ import annotations

from benchmarks import arrow, doors, feeds, iterations, models, pictures, reduces, rows, spark_maps, workers
from benchmarks.cases import Case

CASES: tuple[Case, ...] = (
    *spark_maps.CASES,
    *rows.CASES,
    *arrow.CASES,
    *workers.CASES,
    *reduces.CASES,
    *iterations.CASES,
    *feeds.CASES,
    *models.CASES,
    *pictures.CASES,
    *doors.CASES,
)
