"""Other ways to the same map: Spark Connect, a function of columns, a saved pipeline. None should cost more than `map_blocks`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import tensorflow as tf
from pyspark.ml import Pipeline, PipelineModel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import tensorframes as tfs
from benchmarks.cases import Case, Contestants, Setting, within
from benchmarks.sessions import cached, total, total_of_ends
from benchmarks.spark_maps import WIDTH, vectors
from tensorframes.ml import TensorTransformer

_held: dict[str, Any] = {}


def frames(spark: SparkSession, rows: int, tasks: int) -> tuple[DataFrame, DataFrame]:
    """Make a frame of doubles, and one of a tenth of the rows with float arrays, both cached."""
    scalars = spark.range(0, rows, 1, tasks).select((F.col("id") % 1000).cast("double").alias("x")).cache()
    ramp = F.transform(F.sequence(F.lit(0), F.lit(WIDTH - 1)), lambda i: (F.col("id") % 1000 + i / WIDTH).cast("float"))
    arrays = spark.range(0, rows // 10, 1, tasks).select(ramp.alias("v")).cache()
    scalars.count(), arrays.count()
    return scalars, arrays


def maps(scalars: DataFrame, arrays: DataFrame) -> float:
    """Map both."""
    added = total(tfs.map_blocks(lambda x: {"z": x + 3}, scalars), "z")
    doubled = total_of_ends(tfs.map_blocks(lambda v: {"w": 2 * v}, arrays), "w")
    return added + doubled + total_of_ends(tfs.map_rows(lambda v: {"w": 2 * v}, arrays), "w")


def start_connect(rows: int, tasks: int) -> None:
    """Start a session on Connect in this process, which has no other, and make the frames there."""
    builder = SparkSession.builder.remote(f"local[{tasks}]").config("spark.driver.memory", "4g")
    _held["session"] = builder.config("spark.sql.shuffle.partitions", tasks).config("spark.log.level", "ERROR").getOrCreate()
    _held["frames"] = frames(_held["session"], rows, tasks)


def map_on_connect() -> float:
    """Map the frames on Connect."""
    return maps(*_held["frames"])


def stop_connect() -> None:
    """Stop the session, and its server."""
    _held["session"].stop()


@contextmanager
def connect_case(setting: Setting) -> Iterator[Contestants]:
    """Map on Connect, whose client is a process of its own beside a server of its own; idle while the other one works."""
    tasks = setting.spark.sparkContext.defaultParallelism
    here = frames(setting.spark, setting.rows, tasks)
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        process.submit(start_connect, setting.rows, tasks).result()
        try:
            yield Contestants(floor=lambda: maps(*here), ours=lambda: process.submit(map_on_connect).result())
        finally:
            process.submit(stop_connect).result()
            for frame in here:
                frame.unpersist(blocking=True)


def doubled() -> tfs.Program:
    """Make the program of both other cases."""
    return tfs.program(lambda v: {"w": 2 * v}, signature={"v": tf.TensorSpec([None, None], tf.float32)})


@contextmanager
def udf_case(setting: Setting) -> Iterator[Contestants]:
    """Double float arrays by a function of columns."""
    program = doubled()
    with cached(vectors(setting.spark, setting.rows)) as frame:
        yield Contestants(
            floor=lambda: total_of_ends(tfs.map_blocks(program, frame), "w"),
            ours=lambda: total_of_ends(frame.select(tfs.udf(program)("v").alias("w")), "w"),
        )


@contextmanager
def pipeline_case(setting: Setting) -> Iterator[Contestants]:
    """Double float arrays by a stage that was saved and loaded."""
    program = doubled()
    with tempfile.TemporaryDirectory() as folder, cached(vectors(setting.spark, setting.rows)) as frame:
        Pipeline(stages=[TensorTransformer(program=program)]).fit(frame).save(f"{folder}/model")
        model = PipelineModel.load(f"{folder}/model")
        yield Contestants(
            floor=lambda: total_of_ends(tfs.map_blocks(program, frame), "w"),
            ours=lambda: total_of_ends(model.transform(frame), "w"),
        )


CASES = (
    Case(
        "connect",
        "Spark Connect, map_blocks over doubles and arrays, map_rows over arrays: what does it cost over a classic session?",
        "a classic session",
        within(1.1),
        connect_case,
        rows=2_000_000,
    ),
    Case(
        "udf",
        f"Spark, 2 * v over array<float>[{WIDTH}] by tfs.udf: is it map_blocks?",
        "map_blocks",
        within(1.1),
        udf_case,
        rows=200_000,
    ),
    Case(
        "pipeline",
        f"Spark, 2 * v over array<float>[{WIDTH}] by a pipeline that was saved and loaded: is it map_blocks?",
        "map_blocks",
        within(1.1),
        pipeline_case,
        rows=200_000,
    ),
)
