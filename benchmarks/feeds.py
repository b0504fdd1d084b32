"""Feeds: what nulls, ragged rows and vectors cost over the same bytes without them, on Spark; and strings in one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
from pyspark.ml.functions import array_to_vector
from pyspark.sql import functions as F  # noqa: N812

import tensorframes as tfs
from benchmarks.cases import Case, Contestants, Setting, within
from benchmarks.sessions import cached, rows_of, total, total_of_ends

LENGTH = 100


def add_three(x):
    """Add 3 to each value."""
    return {"z": x + 3}


def sum_of_each(v):
    """Sum each row."""
    return {"z": tf.reduce_sum(v, axis=1)}


@contextmanager
def nulls_case(setting: Setting) -> Iterator[Contestants]:
    """Add 3 to doubles of which a tenth are null; the floor has zeros instead."""
    value = (F.col("id") % 1000).cast("double")
    is_null = F.pmod(F.xxhash64("id"), F.lit(10)) == 0
    rows = rows_of(setting.spark, setting.rows)
    whole = rows.select(F.when(~is_null, value).otherwise(0.0).alias("x"))
    with cached(whole) as whole, cached(rows.select(F.when(~is_null, value).alias("x"))) as holes:
        yield Contestants(
            floor=lambda: total(tfs.map_blocks(add_three, whole), "z"),
            ours=lambda: total(tfs.map_blocks(add_three, holes, {"x": tfs.feed("x", nulls="skip")}), "z"),
            peers={"Spark's +": lambda: total(holes.select((F.col("x") + 3).alias("z")), "z")},
        )


@contextmanager
def ragged_case(setting: Setting) -> Iterator[Contestants]:
    """Add 3 to rows of 50 to 149 doubles; the floor does to as many rows of 100, dense."""
    rows = rows_of(setting.spark, setting.rows)
    length = (F.pmod(F.xxhash64("id"), F.lit(LENGTH)) + LENGTH // 2).cast("int")

    def numbers(count):
        return F.transform(F.sequence(F.lit(1), count), lambda i: i.cast("double")).alias("v")

    with cached(rows.select(numbers(F.lit(LENGTH)))) as dense, cached(rows.select(numbers(length))) as ragged:
        yield Contestants(
            floor=lambda: total_of_ends(tfs.map_blocks(lambda v: {"z": v + 3}, dense), "z"),
            ours=lambda: total_of_ends(tfs.map_blocks(lambda v: {"z": v + 3}, ragged, {"v": tfs.feed("v", ragged=True)}), "z"),
            peers={"Spark's transform": lambda: total_of_ends(ragged.select(F.transform("v", lambda x: x + 3).alias("z")), "z")},
        )


@contextmanager
def vectors_case(setting: Setting) -> Iterator[Contestants]:
    """Sum dense vectors of 100; the floor sums the same as arrays."""
    numbers = F.transform(F.sequence(F.lit(1), F.lit(LENGTH)), lambda i: (i + F.col("id")).cast("double"))
    arrays = rows_of(setting.spark, setting.rows).select(numbers.alias("v"))
    with cached(arrays) as arrays, cached(arrays.select(array_to_vector("v").alias("v"))) as vectors:
        yield Contestants(
            floor=lambda: total(tfs.map_blocks(sum_of_each, arrays), "z"),
            ours=lambda: total(tfs.map_blocks(sum_of_each, vectors), "z"),
        )


@contextmanager
def strings_case(setting: Setting) -> Iterator[Contestants]:
    """Take short strings to a tensor and back, in one process; the floor goes by way of Python strings instead of tensors."""
    table = pa.table({"s": pa.array(np.arange(setting.rows)).cast(pa.string())})

    def bytes_of(column: pa.ChunkedArray) -> float:
        return float(pc.sum(pc.binary_length(column)).as_py())

    yield Contestants(
        floor=lambda: pa.array(table["s"].to_numpy(), pa.string()),
        ours=lambda: bytes_of(tfs.map_blocks(lambda s: {"z": s}, table)["z"]),
        peers={"Python lists": lambda: bytes_of(pa.chunked_array([pa.array(table["s"].to_pylist())]))},
    )


CASES = (
    Case(
        "nulls-skip",
        "Spark, x + 3, a tenth of the rows null and skipped: what do nulls cost?",
        "the same without nulls",
        within(1.5),
        nulls_case,
        rows=10_000_000,
    ),
    Case(
        "ragged",
        "Spark, x + 3 on ragged rows, in and out: what do they cost over dense ones of as many bytes?",
        "dense rows",
        within(1.5),
        ragged_case,
        rows=200_000,
    ),
    Case(
        "vectors-udt",
        "Spark, sums of DenseVectors: what do they cost over arrays?",
        "array<double>",
        within(1.3),
        vectors_case,
        rows=200_000,
    ),
    Case(
        "strings",
        "5M short strings to a tensor and back, in one process: at 2M a second they would take 2.5 s",
        "by way of NumPy objects",
        within(4),
        strings_case,
        rows=5_000_000,
        on_spark=False,
    ),
)
