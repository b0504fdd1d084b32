"""The Spark session of the benchmarks, what is cached in it, and probes into its Python workers."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812


@contextmanager
def session(cores: int) -> Iterator[SparkSession]:
    """Start a session of so many cores; Spark's own defaults otherwise."""
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("benchmarks")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def cached(frame: DataFrame) -> Iterator[DataFrame]:
    """Hold a frame in memory, so that what made it is not measured."""
    held = frame.cache()
    held.count()
    try:
        yield held
    finally:
        held.unpersist(blocking=True)


def rows_of(spark: SparkSession, rows: int, partitions: int | None = None) -> DataFrame:
    """Return ids 0, 1, … in a partition for each core."""
    return spark.range(0, rows, 1, partitions or spark.sparkContext.defaultParallelism)


def total(frame: DataFrame, column: Any) -> float:
    """Sum a column: the sink of every contestant. Python columns are computed whole, whatever the sum reads of them."""
    return float(frame.agg(F.sum(column)).first()[0])


def total_of_ends(frame: DataFrame, column: str) -> float:
    """Sum the first and last elements of arrays."""
    return total(frame, F.element_at(column, 1) + F.element_at(column, -1))


@contextmanager
def fresh_workers(spark: SparkSession) -> Iterator[None]:
    """Run functions that are made here in Python workers that nothing else has used: workers are shared by equal environments only."""
    environment = spark.sparkContext.environment
    environment["BENCHMARK_WORKERS"] = uuid.uuid4().hex
    try:
        yield
    finally:
        del environment["BENCHMARK_WORKERS"]


def peak_megabytes(spark: SparkSession) -> float:
    """Return the largest peak of resident memory among the workers at hand, in MB (10^6 bytes)."""

    def peak() -> int:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))

    return max(found for _, found in probe(spark, peak)) * 1024 / 1e6


def loads(spark: SparkSession) -> dict[int, int]:
    """Return how many programs each worker has loaded since it began, by process id."""

    def count() -> int:
        from tensorframes.programs import CACHE

        return CACHE.loads

    return dict(probe(spark, count))


def probe(spark: SparkSession, measure: Any) -> list[tuple[int, int]]:
    """Run a function in each worker at hand and return process ids and what it gave."""
    cores = spark.sparkContext.defaultParallelism

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        for _ in batches:
            time.sleep(0.2)  # so that one worker does not take all partitions
        yield pa.record_batch({"pid": pa.array([os.getpid()], pa.int64()), "found": pa.array([measure()], pa.int64())})

    return [tuple(row) for row in rows_of(spark, cores).mapInArrow(run, "pid long, found long").collect()]
