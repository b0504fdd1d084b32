"""Reduces on Spark against the same columns sent to workers that only count them, and against what a user would write by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import tensorflow as tf
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import tensorframes as tfs
from benchmarks.cases import Case, Contestants, Setting, beats, within
from benchmarks.sessions import cached, rows_of, total


def count_in_workers(frame: DataFrame) -> float:
    """Send all columns to the workers, which count the rows: the floor of every reduce."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": pa.array([sum(batch.num_rows for batch in batches)], pa.int64())})

    return float(sum(row.n for row in frame.mapInArrow(count, "n long").collect()))


def add(x):
    """Sum a block; TensorFlow has a segment operation for it."""
    return {"x": tf.reduce_sum(x, axis=0)}


def add_in_general(x):
    """Sum a block by a program that is not recognised as a sum."""
    return {"x": tf.reduce_sum(x, axis=0) + tf.zeros([], x.dtype)}


def doubles(setting: Setting) -> DataFrame:
    """Make a column ``x`` of small whole numbers, whose sum is exact in any order."""
    return rows_of(setting.spark, setting.rows).select((F.col("id") % 1000).cast("double").alias("x"))


def keyed(setting: Setting, keys: int) -> DataFrame:
    """Make a key of that many values, spread evenly and in no order, and a column ``x``."""
    key = F.pmod(F.xxhash64("id"), F.lit(keys)).alias("k")
    return rows_of(setting.spark, setting.rows).select(key, (F.col("id") % 1000).cast("double").alias("x"))


@contextmanager
def blocks_case(setting: Setting) -> Iterator[Contestants]:
    """Sum doubles block by block."""
    with cached(doubles(setting)) as frame:
        yield Contestants(
            floor=lambda: count_in_workers(frame),
            ours=lambda: float(tfs.reduce_blocks(add, frame)["x"]),
            peers={"Spark's sum": lambda: total(frame, "x")},
        )


@contextmanager
def rows_case(setting: Setting) -> Iterator[Contestants]:
    """Sum doubles pair by pair."""
    with cached(doubles(setting)) as frame:
        yield Contestants(
            floor=lambda: count_in_workers(frame),
            ours=lambda: float(tfs.reduce_rows(lambda x_1, x_2: {"x": x_1 + x_2}, frame)["x"]),
            peers={"Spark's sum": lambda: total(frame, "x")},
        )


@contextmanager
def keys_case(setting: Setting, keys: int, program: Callable[..., Mapping[str, tf.Tensor]]) -> Iterator[Contestants]:
    """Sum doubles for each key."""
    with cached(keyed(setting, keys)) as frame:
        yield Contestants(
            floor=lambda: count_in_workers(frame),
            ours=lambda: total(tfs.aggregate(program, frame.groupBy("k")), "x"),
            peers={"Spark's sum": lambda: total(frame.groupBy("k").agg(F.sum("x").alias("x")), "x")},
        )


@contextmanager
def groups_case(setting: Setting) -> Iterator[Contestants]:
    """Sum doubles for each of many keys, beside one Python call for each key; each runs twice, the second time by the clock."""

    def by_arrow(table: pa.Table) -> pa.Table:
        return pa.table({"k": table.column("k")[:1], "x": pa.array([np.sum(table.column("x").to_numpy())])})

    def by_pandas(group: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"k": group["k"].iloc[:1], "x": [group["x"].sum()]})

    def clocked(run: Callable[[], float]) -> Callable[[], float]:
        def clock() -> float:
            total(frame.limit(1), "x")
            begin = time.perf_counter()
            run()
            return time.perf_counter() - begin

        return clock

    with cached(keyed(setting, max(setting.rows // 10, 1))) as frame:
        total(tfs.aggregate(add_in_general, frame.groupBy("k")), "x")  # workers start and load the program
        yield Contestants(
            floor=clocked(lambda: count_in_workers(frame)),
            ours=clocked(lambda: total(tfs.aggregate(add_in_general, frame.groupBy("k")), "x")),
            peers={
                "applyInArrow": clocked(lambda: total(frame.groupBy("k").applyInArrow(by_arrow, "k long, x double"), "x")),
                "applyInPandas": clocked(lambda: total(frame.groupBy("k").applyInPandas(by_pandas, "k long, x double"), "x")),
            },
        )


COUNTED = "columns counted in workers"

CASES = (
    Case(
        "reduce-blocks",
        "Spark, sum of doubles by reduce_blocks: what does it cost over the hop?",
        COUNTED,
        within(1.3),
        blocks_case,
        rows=10_000_000,
    ),
    Case(
        "reduce-rows",
        "Spark, sum of doubles by reduce_rows: what does a tree of pairs cost?",
        COUNTED,
        within(1.6),
        rows_case,
        rows=10_000_000,
    ),
    Case(
        "aggregate-1k",
        "Spark, sum for each of 1,000 keys, by TensorFlow's segment operation?",
        COUNTED,
        within(2),
        partial(keys_case, keys=1000, program=add),
        rows=10_000_000,
    ),
    Case(
        "aggregate-1k-general",
        "Spark, sum for each of 1,000 keys, by the general path?",
        COUNTED,
        within(2),
        partial(keys_case, keys=1000, program=add_in_general),
        rows=10_000_000,
    ),
    Case(
        "aggregate-1m",
        "Spark, sum for each of 1,000,000 keys, by TensorFlow's segment operation?",
        COUNTED,
        within(4),
        partial(keys_case, keys=1_000_000, program=add),
        rows=10_000_000,
    ),
    Case(
        "aggregate-1m-general",
        "Spark, sum for each of 1,000,000 keys, by the general path?",
        COUNTED,
        within(4),
        partial(keys_case, keys=1_000_000, program=add_in_general),
        rows=10_000_000,
    ),
    Case(
        "aggregate-groups",
        "Spark, a tenth as many keys as rows, by the general path: how does it compare with a Python call for each key?",
        COUNTED,
        beats("applyInArrow", 10),
        groups_case,
        rows=1_000_000,
        unit="s once",
    ),
)
