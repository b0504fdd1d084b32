"""Keras models on Spark: a dense network over many rows, and a further job with workers that have loaded it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

import tensorframes as tfs
from benchmarks.cases import Case, Contestants, Setting, adds, beats, within
from benchmarks.sessions import cached, loads, total, total_of_ends
from benchmarks.spark_maps import FLOATS, WIDTH, by_arrow_udf, vectors

HIDDEN = 256
BLOCK = 10_000


def network() -> keras.Model:
    """Make a dense network whose weights are random, and the same each time: features [?, 100] → score [?, 1]."""
    layers = [
        keras.layers.Dense(units, activation, kernel_initializer=keras.initializers.GlorotUniform(seed=units + place))
        for place, (units, activation) in enumerate([(HIDDEN, "relu"), (HIDDEN, "relu"), (1, "linear")])
    ]
    return keras.Sequential([keras.Input((WIDTH,), name="features"), *layers], name="score")


def features(setting: Setting) -> DataFrame:
    """Make a column ``features`` of float arrays."""
    return vectors(setting.spark, setting.rows).withColumnRenamed("v", "features")


def hop(frame: DataFrame) -> float:
    """Send the features to workers and back."""
    same = by_arrow_udf(lambda array: array, FLOATS)
    return total_of_ends(frame.select(same("features").alias("z")), "z")


def score(frame: DataFrame, fetches: Any) -> float:
    """Sum the scores of all rows."""
    return total(tfs.map_blocks(fetches, frame), F.element_at("score", 1))


def one_thread() -> None:
    """Make TensorFlow compute with one thread in this process, as it does in a Spark worker."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


@cache
def ready(rows: int) -> tuple[Callable[[tf.Tensor], tf.Tensor], list[np.ndarray]]:
    """Compile the network, and make blocks of random features."""
    values = np.random.default_rng(0).random((rows, WIDTH), np.float32)
    call = tf.function(network()).get_concrete_function(tf.TensorSpec([None, WIDTH], tf.float32))
    return call, [values[begin : begin + BLOCK] for begin in range(0, rows, BLOCK)]


def compute(rows: int) -> float:
    """Compute the network over blocks that are in this process already, and sum the scores."""
    call, blocks = ready(rows)
    return float(sum(call(tf.constant(block)).numpy().sum(dtype=float) for block in blocks))


@contextmanager
def dense_case(setting: Setting) -> Iterator[Contestants]:
    """Score rows. The floor is the hop and then, in a process without Spark and with one thread, what each of the tasks has to compute."""
    model = network()
    config, weights = model.get_config(), model.get_weights()

    def predictor() -> Callable[[np.ndarray], np.ndarray]:
        held = keras.Sequential.from_config(config)
        held.set_weights(weights)
        call = tf.function(held, reduce_retracing=True)
        return lambda block: call(tf.constant(block)).numpy()[:, 0]

    share = -(-setting.rows // setting.spark.sparkContext.defaultParallelism)
    predicted = predict_batch_udf(predictor, return_type=T.FloatType(), batch_size=BLOCK, input_tensor_shapes=[[WIDTH]])
    with cached(features(setting)) as frame, ProcessPoolExecutor(1, get_context("spawn"), one_thread) as process:
        yield Contestants(
            floor=lambda: (hop(frame), process.submit(compute, share).result()),
            ours=lambda: score(frame, model),
            peers={"predict_batch_udf": lambda: total(frame.select(predicted("features").alias("z")), "z")},
        )


@contextmanager
def second_job_case(setting: Setting) -> Iterator[Contestants]:
    """Score a few rows by the same model again: it is captured anew by each job, and loaded by none but the first."""
    model = network()
    program = tfs.program(model)
    held: list[dict[int, int]] = []

    def new_loads() -> int:
        """Count the loads that further jobs cause, in workers that were there before."""
        held.append(loads(setting.spark))
        score(frame, model)
        score(frame, program)
        held.append(loads(setting.spark))
        return sum(held[-1][pid] - held[-2][pid] for pid in held[-2].keys() & held[-1].keys())

    with cached(features(setting).coalesce(2)) as frame:
        yield Contestants(
            floor=lambda: hop(frame),
            ours=lambda: score(frame, model),
            peers={"a ready program": lambda: score(frame, program)},
            checks={
                "a further job loads nothing": lambda: new_loads() == 0,
                "workers have loaded the model, and the probe sees it": lambda: max(held[0].values()) > 0,
            },
        )


CASES = (
    Case(
        "dense-network",
        f"Spark, a Keras network {WIDTH} → {HIDDEN} → {HIDDEN} → 1: what does it cost over the hop and the computation alone?",
        "identity arrow_udf, then a task's share of the computation",
        within(1.15),
        dense_case,
        rows=1_000_000,
        also=(beats("predict_batch_udf", 1.5),),
    ),
    Case(
        "second-job",
        "Spark, the same network over few rows, with workers that hold it: what does a further job cost?",
        "identity arrow_udf",
        adds(0.1),
        second_job_case,
        rows=1000,
    ),
)
