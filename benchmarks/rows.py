"""map_rows: what a function of one row costs beside the same function of a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from pyspark.sql import functions as F  # noqa: N812

import tensorframes as tfs
from benchmarks.cases import Case, Contestants, Setting, within
from benchmarks.sessions import cached, rows_of, total

WIDTH = 100
LONGEST = 20


def of_row(v: tf.Tensor) -> dict[str, tf.Tensor]:
    """Give a number for a row: the largest of its softmax, times its sum."""
    return {"z": tf.reduce_max(tf.nn.softmax(v)) * tf.reduce_sum(v)}


def of_block(v: tf.Tensor) -> dict[str, tf.Tensor]:
    """Give the same for each row of a block."""
    return {"z": tf.reduce_max(tf.nn.softmax(v), axis=1) * tf.reduce_sum(v, axis=1)}


def table(lengths: np.ndarray) -> pa.Table:
    """Make a column ``v`` of double arrays of these lengths."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values = np.random.default_rng(0).normal(size=offsets[-1])
    return pa.table({"v": pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))})


def ragged_lengths(rows: int) -> np.ndarray:
    """Return lengths 1 … 20, each equally often, in no order."""
    return np.random.default_rng(1).permutation(np.arange(rows) % LONGEST + 1)


@contextmanager
def on_arrow(setting: Setting) -> Iterator[Contestants]:
    """Rows of one length in an Arrow table."""
    frame = table(np.full(setting.rows, WIDTH))
    yield Contestants(floor=lambda: _local(tfs.map_blocks(of_block, frame)), ours=lambda: _local(tfs.map_rows(of_row, frame)))


@contextmanager
def ragged_on_arrow(setting: Setting) -> Iterator[Contestants]:
    """Rows of many lengths in an Arrow table."""
    even, ragged = table(np.full(setting.rows, LONGEST // 2)), table(ragged_lengths(setting.rows))
    yield Contestants(floor=lambda: _local(tfs.map_rows(of_row, even)), ours=lambda: _local(tfs.map_rows(of_row, ragged)))


@contextmanager
def on_spark(setting: Setting) -> Iterator[Contestants]:
    """Rows of one length in a Spark DataFrame."""
    with cached(_spark_frame(setting, lambda _: F.lit(WIDTH))) as frame:
        yield Contestants(floor=lambda: total(tfs.map_blocks(of_block, frame), "z"), ours=lambda: total(tfs.map_rows(of_row, frame), "z"))


@contextmanager
def ragged_on_spark(setting: Setting) -> Iterator[Contestants]:
    """Rows of many lengths in a Spark DataFrame."""
    with (
        cached(_spark_frame(setting, lambda _: F.lit(LONGEST // 2))) as even,
        cached(_spark_frame(setting, lambda row: (F.xxhash64(row) % LONGEST + LONGEST) % LONGEST + 1)) as ragged,
    ):
        yield Contestants(floor=lambda: total(tfs.map_rows(of_row, even), "z"), ours=lambda: total(tfs.map_rows(of_row, ragged), "z"))


def _local(frame: pa.Table) -> None:
    assert frame.column_names == ["v", "z"]


def _spark_frame(setting: Setting, length: Callable[[Any], Any]) -> Any:
    indices = F.sequence(F.lit(1).cast("long"), length(F.col("id")).cast("long"))
    return rows_of(setting.spark, setting.rows).select(F.transform(indices, lambda i: F.sin(F.col("id") + i)).alias("v"))


CASES = (
    Case(
        "rows-arrow",
        f"Arrow, a number per row of [{WIDTH}] doubles: what does a function of rows cost beside one of blocks?",
        "map_blocks",
        within(1.5),
        on_arrow,
        rows=100_000,
        on_spark=False,
    ),
    Case("rows-spark", "The same on Spark.", "map_blocks", within(1.5), on_spark, rows=100_000),
    Case(
        "ragged-arrow",
        f"Arrow, map_rows over rows of lengths 1 … {LONGEST}: what do different lengths cost?",
        f"rows of length {LONGEST // 2}",
        within(3),
        ragged_on_arrow,
        rows=100_000,
        on_spark=False,
    ),
    Case("ragged-spark", "The same on Spark.", f"rows of length {LONGEST // 2}", within(3), ragged_on_spark, rows=500_000),
)
