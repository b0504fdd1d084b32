"""What workers hold: memory, and programs that they have loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import tensorflow as tf
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import tensorframes as tfs
from benchmarks.cases import Case, Contestants, Setting, adds
from benchmarks.sessions import cached, fresh_workers, loads, peak_megabytes, rows_of, total

FEWER = 50


def add_three(frame: DataFrame) -> float:
    """Add 3 to each row."""
    return total(tfs.map_blocks(lambda x: {"z": x + 3}, frame), "z") - 3 * frame.count()


def sum_of_blocks(frame: DataFrame) -> float:
    """Sum block by block."""
    return float(tfs.reduce_blocks(lambda x: tf.reduce_sum(x, axis=0), frame))


def sum_of_pairs(frame: DataFrame) -> float:
    """Sum pair by pair."""
    return float(tfs.reduce_rows(lambda a, b: a + b, frame))


def sum_of_keys(frame: DataFrame) -> float:
    """Sum by 1,000 keys, by the general path."""
    keyed = frame.withColumn("k", F.col("x") % 1000)
    return total(tfs.aggregate(lambda x: tf.reduce_sum(x, axis=0) + tf.zeros([], x.dtype), keyed.groupBy("k")), "x")


@contextmanager
def memory(setting: Setting, runs: Sequence[Callable[[DataFrame], float]]) -> Iterator[Contestants]:
    """Run over doubles in one partition, in a worker that has done nothing else."""

    def peak(rows: int) -> float:
        with fresh_workers(setting.spark):
            frame = rows_of(setting.spark, rows, partitions=1).select(F.col("id").cast("double").alias("x"))
            for run in runs:
                assert math.isclose(run(frame), rows * (rows - 1) / 2, rel_tol=1e-9)
            assert max(loads(setting.spark).values()) >= len(runs), "the probe reaches the worker that ran the programs"
            return peak_megabytes(setting.spark)

    yield Contestants(floor=lambda: peak(max(setting.rows // FEWER, 1)), ours=lambda: peak(setting.rows))


@contextmanager
def reuse(setting: Setting) -> Iterator[Contestants]:
    """Call one function twice, with other constants."""

    def plus(x, c):
        return {"z": x + c}

    held: dict[int, int] = {}

    def call(constant: float) -> float:
        return total(tfs.map_blocks(plus, frame, {"c": np.array(constant)}), "z")

    def new_loads(constant: float) -> int:
        """Count the loads that a call causes, in workers that were there before."""
        before = loads(setting.spark)
        call(constant)
        after = loads(setting.spark)
        return sum(after[pid] - before[pid] for pid in before.keys() & after.keys())

    def first() -> int:
        call(1.0)
        held.update(loads(setting.spark))
        return 0

    def digest(constant: float) -> str:
        return tfs.program(plus, frame=frame, feed_dict={"c": np.array(constant)}).digest

    def reads_anew() -> bool:
        shift = 1.0
        shifted = lambda x: {"z": x + shift}  # noqa: E731
        one = total(tfs.map_blocks(shifted, frame), "z")
        shift = 2.0
        return total(tfs.map_blocks(shifted, frame), "z") - one == setting.rows

    with cached(rows_of(setting.spark, setting.rows).select((F.col("id") % 1000).cast("double").alias("x"))) as frame:
        yield Contestants(
            floor=first,
            ours=lambda: new_loads(2.0) + new_loads(3.0),
            checks={
                "workers load programs, and the probe sees it": lambda: max(held.values()) > 0,
                "other constants leave the digest as it is": lambda: digest(1.0) == digest(2.0),
                "other constants change the result": lambda: call(3.0) - call(2.0) == setting.rows,
                "a callable whose closure changed is read anew": reads_anew,
            },
        )


CASES = (
    Case(
        "memory",
        "Spark, x + 3 over one partition: how much more memory does a worker need for 50 times the rows?",
        f"a {FEWER}th of the rows",
        adds(300),
        partial(memory, runs=(add_three,)),
        rows=50_000_000,
        small=500,
        unit="MB",
    ),
    Case(
        "memory-reduces",
        "Spark, sums by all three reduces over one partition: how much more memory does a worker need for 50 times the rows?",
        f"a {FEWER}th of the rows",
        adds(300),
        partial(memory, runs=(sum_of_blocks, sum_of_pairs, sum_of_keys)),
        rows=50_000_000,
        small=500,
        unit="MB",
    ),
    Case(
        "reuse",
        "Spark, x + c with other constants: do workers load the program again?",
        "none",
        adds(0),
        reuse,
        rows=100_000,
        unit="loads",
    ),
)
