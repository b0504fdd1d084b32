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
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

import tensorframes as tfs
from benchmarks.cases import Case, Contestants, Setting, adds, beats, within
from benchmarks.sessions import cached, loads, total, total_of_ends
from benchmarks.spark_maps import FLOATS, WIDTH, by_arrow_udf, vectors

HIDDEN = 256
PEER = "predict_batch_udf"  # as its documentation writes it: model.predict
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

    def held() -> keras.Model:
        made = keras.Sequential.from_config(config)
        made.set_weights(weights)
        return made

    def by_predict() -> Callable[[np.ndarray], np.ndarray]:
        made = held()
        return lambda block: made.predict(block, verbose=0)[:, 0]

    def by_function() -> Callable[[np.ndarray], np.ndarray]:
        call = tf.function(held(), reduce_retracing=True)
        return lambda block: call(tf.constant(block)).numpy()[:, 0]

    def predicted(make: Callable[[], Callable[[np.ndarray], np.ndarray]]) -> Callable[[], float]:
        udf = predict_batch_udf(make, return_type=T.FloatType(), batch_size=BLOCK, input_tensor_shapes=[[WIDTH]])
        return lambda: total(frame.select(udf("features").alias("z")), "z")

    share = -(-setting.rows // setting.spark.sparkContext.defaultParallelism)
    with cached(features(setting)) as frame, ProcessPoolExecutor(1, get_context("spawn"), one_thread) as process:
        yield Contestants(
            floor=lambda: (hop(frame), process.submit(compute, share).result()),
            ours=lambda: score(frame, model),
            peers={PEER: predicted(by_predict), "predict_batch_udf, tf.function": predicted(by_function)},
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


@contextmanager
def large_model_case(setting: Setting) -> Iterator[Contestants]:
    """Add many weights to a few rows; what is measured is the longest message that Spark is given for a job."""
    width = 1000
    weights = [tf.Variable(tf.random.stateless_normal([width, width], [0, i])) for i in range(max(setting.rows // width**2, 1))]
    megabytes = sum(4 * width**2 for _ in weights) / 1e6
    rows = [row.features for row in features(setting).limit(20).collect()]
    frame = setting.spark.createDataFrame([(row,) for row in rows], "features array<float>").repartition(2)
    lengths: list[int] = []

    def noting(self: Any, value: Any) -> bytes:
        message: bytes = dumps(self, value)
        lengths.append(len(message))
        return message

    def added(features):
        return {"score": tf.add_n([tf.reduce_sum(features @ held[:WIDTH], axis=1) for held in weights])}

    def job() -> float:
        lengths.clear()
        scored = total(tfs.map_blocks(added, frame), "score")
        wanted = sum(float(tf.reduce_sum(tf.constant(rows) @ held[:WIDTH])) for held in weights)
        assert np.isclose(scored, wanted, rtol=1e-2, atol=1.0)
        return max(lengths) / 1e6

    def loaded_once() -> bool:
        after = loads(setting.spark)
        return {after[pid] - before[pid] for pid in before.keys() & after.keys()} <= {0, 1}

    dumps = CloudPickleSerializer.dumps
    limit = setting.spark.conf.get("tensorframes.shipping.bytes", None)
    setting.spark.conf.set("tensorframes.shipping.bytes", str(min(8 * 2**20, int(megabytes * 1e6) // 2)))
    CloudPickleSerializer.dumps = noting  # type: ignore[method-assign]
    try:
        before = loads(setting.spark)
        job()
        yield Contestants(
            floor=lambda: 0.0,
            ours=job,
            checks={
                f"the model has {megabytes:.0f} MB, and each worker has loaded it once, in three jobs": loaded_once,
            },
        )
    finally:
        CloudPickleSerializer.dumps = dumps  # type: ignore[method-assign]
        if limit is None:
            setting.spark.conf.unset("tensorframes.shipping.bytes")
        else:
            setting.spark.conf.set("tensorframes.shipping.bytes", limit)


CASES = (
    Case(
        "dense-network",
        f"Spark, a Keras network {WIDTH} → {HIDDEN} → {HIDDEN} → 1: what does it cost over the hop and the computation alone?",
        "identity arrow_udf, then a task's share of the computation",
        within(1.15),
        dense_case,
        rows=1_000_000,
        also=(beats(PEER, 1.5),),
    ),
    Case(
        "large-model",
        "Spark, a model of so many float32 weights: how long is the longest message that a job's tasks get?",
        "none",
        adds(16),
        large_model_case,
        rows=250_000_000,
        small=1_000_000,
        unit="MB",
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
