"""Iterative algorithms: k-means beside MLlib's, from the same start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.ml.clustering import KMeans
from pyspark.ml.functions import array_to_vector

import tensorframes as tfs
from benchmarks.cases import Case, Contestants, Setting, beats
from benchmarks.sessions import cached
from examples.kmeans import kmeans, synthetic

DIMS, CLUSTERS, ITERATIONS = 100, 10, 10
MLLIB = "MLlib's KMeans"


@contextmanager
def kmeans_case(setting: Setting, on_spark: bool) -> Iterator[Contestants]:
    """Move centers ten times; the answer is how far they end from the origin, together."""
    points = synthetic(setting.rows, DIMS, CLUSTERS)
    table = pa.table({"points": pa.FixedSizeListArray.from_arrays(pa.array(points.reshape(-1)), DIMS).cast(pa.list_(pa.float64()))})
    frame = tfs.append_shape(setting.spark.createDataFrame(table).repartition(2), "points", [None, DIMS])

    def mllib(iterations: int) -> np.ndarray:
        estimator = KMeans(k=CLUSTERS, maxIter=iterations, tol=0.0, initMode="random", seed=1)
        return np.array(estimator.fit(vectors).clusterCenters())

    with cached(frame) as held, cached(frame.select(array_to_vector("points").alias("features"))) as vectors:
        start = mllib(0)
        yield Contestants(
            floor=lambda: kmeans(held, start, 1),
            ours=lambda: float(np.abs(kmeans(held if on_spark else table, start, ITERATIONS)).sum()),
            peers={MLLIB: lambda: float(np.abs(mllib(ITERATIONS)).sum())},
        )


CASES = tuple(
    Case(
        name,
        f"k-means, {DIMS} dimensions, {CLUSTERS} clusters, {ITERATIONS} iterations, on {where}: how does it compare with MLlib's?",
        "one iteration on Spark",
        beats(MLLIB, factor),
        partial(kmeans_case, on_spark=on_spark),
        rows=100_000,
        small=200,
    )
    for name, where, on_spark, factor in (("kmeans", "Spark", True, 1), ("kmeans-local", "an Arrow table", False, 5))
)
