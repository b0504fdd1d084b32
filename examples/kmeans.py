"""k-means: an iterative algorithm whose state is a constant of the program, beside MLlib's.

    python examples/kmeans.py [--digits] [--rows 100000] [--dims 100] [--clusters 10] [--iterations 10]

Every iteration is one map over blocks (nearest centers, and the sums of the points of each cluster) and one reduce. The centers are
constants: with other centers the program is the same, so that nothing is loaded again after the first iteration.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

import tensorframes as tfs


def partial_sums(points, centers):
    """Sum the points of a block by their nearest center: points [?, d], centers [k, d] → sums [1, k, d], counts [1, k]."""
    clusters = centers.shape[0]  # known, so that the sums of a block have a known shape
    # |p - c|² = |p|² - 2 p·c + |c|², and |p|² is the same for all centers.
    distances = tf.reduce_sum(centers**2, axis=1) - 2.0 * tf.matmul(points, centers, transpose_b=True)
    nearest = tf.argmin(distances, axis=1)
    sums = tf.math.unsorted_segment_sum(points, nearest, clusters)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(points[:, 0]), nearest, clusters)
    return {"sums": sums[tf.newaxis], "counts": counts[tf.newaxis]}


def add(sums, counts):
    """Add partial sums: sums [?, k, d], counts [?, k] → sums [k, d], counts [k]."""
    return {"sums": tf.reduce_sum(sums, axis=0), "counts": tf.reduce_sum(counts, axis=0)}


def kmeans(frame: Any, centers: np.ndarray, iterations: int) -> np.ndarray:
    """Move centers to the means of their nearest points, a number of times.

    Args:
        frame: any frame with a column ``points`` of arrays.
        centers: where to start, ``[k, d]``.
        iterations: how often; it ends early when no center moves.

    Returns:
        The centers, ``[k, d]``. A center without points stays where it is.
    """
    for _ in range(iterations):
        partial = tfs.map_blocks(partial_sums, frame, {"centers": centers}, trim=True)
        total = tfs.reduce_blocks(add, partial)
        counts = total["counts"][:, np.newaxis]
        moved = np.where(counts > 0, total["sums"] / np.maximum(counts, 1), centers)
        if np.allclose(moved, centers, rtol=0, atol=1e-12):
            return moved
        centers = moved
    return centers


def synthetic(rows: int, dims: int, clusters: int, seed: int = 0) -> np.ndarray:
    """Draw points around some centers."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(clusters, dims))[rng.integers(clusters, size=rows)] * 5 + rng.normal(size=(rows, dims))


def digits() -> np.ndarray:
    """Return the 1,797 handwritten digits that scikit-learn carries, ``[1797, 64]``."""
    from sklearn.datasets import load_digits

    return load_digits().data


def main(argv: list[str]) -> None:
    """Time k-means on an Arrow table and on Spark beside MLlib's, from the same start."""
    import pyarrow as pa
    from pyspark.ml.clustering import KMeans
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dims", type=int, default=100)
    parser.add_argument("--clusters", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--digits", action="store_true", help="real digits instead of synthetic points")
    options = parser.parse_args(argv)

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").appName("k-means").config("spark.driver.memory", "4g").getOrCreate()
    points = digits() if options.digits else synthetic(options.rows, options.dims, options.clusters)
    dims = points.shape[1]
    cells = pa.FixedSizeListArray.from_arrays(pa.array(points.reshape(-1)), dims)
    table = pa.table({"points": cells.cast(pa.list_(pa.float64()))})
    df = tfs.append_shape(spark.createDataFrame(table).repartition(2), "points", [None, dims]).cache()
    vectors = df.select(array_to_vector("points").alias("features")).cache()
    df.count(), vectors.count()

    def mllib(iterations: int) -> np.ndarray:
        estimator = KMeans(k=options.clusters, maxIter=iterations, tol=0.0, initMode="random", seed=1)
        return np.array(estimator.fit(vectors).clusterCenters())

    start = mllib(0)
    contestants = {
        "MLlib": lambda: mllib(options.iterations),
        "TensorFrames on Spark": lambda: kmeans(df, start, options.iterations),
        "TensorFrames on an Arrow table": lambda: kmeans(table, start, options.iterations),
    }
    found = {}
    for name, run in contestants.items():
        run()  # the first time starts workers and loads the program
        began = time.perf_counter()
        found[name] = run()
        print(f"{name}: {time.perf_counter() - began:.2f} s")
    for name, centers in found.items():
        print(f"{name}: centers differ from MLlib's by at most {np.abs(centers - found['MLlib']).max():.1e}")


if __name__ == "__main__":
    main(sys.argv[1:])
