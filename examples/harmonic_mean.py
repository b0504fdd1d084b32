"""The harmonic mean of each group: a map, an aggregate, a map.

    python examples/harmonic_mean.py

The harmonic mean of n numbers is n / Σ 1/x. It is no reduction by itself, but made of two sums.
"""

from __future__ import annotations

import os
import sys

import tensorflow as tf
from pyspark.sql import DataFrame, SparkSession

import tensorframes as tfs


def invert(x):
    """Give for each row what is summed: x [?] → inverse [?], count [?]."""
    return {"inverse": 1.0 / x, "count": tf.ones_like(x)}


def add(inverse, count):
    """Sum both over the rows: inverse [?], count [?] → inverse [], count []."""
    return {"inverse": tf.reduce_sum(inverse, axis=0), "count": tf.reduce_sum(count, axis=0)}


def harmonic_mean(df: DataFrame, key: str) -> DataFrame:
    """Return the key and the harmonic mean of the column x in each of its groups."""
    sums = tfs.aggregate(add, tfs.map_blocks(invert, df).groupBy(key))
    means = tfs.map_blocks(lambda inverse, count: {"harmonic_mean": count / inverse}, sums)
    return means.select(key, "harmonic_mean")


def main() -> DataFrame:
    """Show the harmonic means of the speeds on some trips."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").appName("harmonic mean").getOrCreate()
    trips = [("there and back", 60.0), ("there and back", 20.0), ("uphill", 4.0), ("uphill", 6.0), ("uphill", 12.0)]
    means = harmonic_mean(spark.createDataFrame(trips, "trip string, x double"), "trip").orderBy("trip")
    means.show()
    return means


if __name__ == "__main__":
    main()
