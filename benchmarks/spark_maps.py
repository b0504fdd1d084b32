"""Maps on Spark against the same hop with nothing to do, and against what a user would write by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf, pandas_udf

import tensorframes as tfs
from benchmarks.cases import Case, Contestants, Setting, beats, within
from benchmarks.sessions import cached, rows_of, total, total_of_ends

WIDTH = 100
BLOB = 4096
FLOATS = T.ArrayType(T.FloatType())


def by_arrow_udf(function: Callable[[pa.Array], pa.Array], kind: T.DataType) -> Any:
    """Make a column function of one over arrays."""

    def apply(arrays: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return map(function, arrays)

    return arrow_udf(apply, kind)


def by_pandas_udf(function: Callable[[pd.Series], pd.Series], kind: T.DataType) -> Any:
    """Make a column function of one over pandas Series."""

    def apply(values: pd.Series) -> pd.Series:
        return function(values)

    return pandas_udf(apply, kind)


def vectors(spark: Any, rows: int) -> DataFrame:
    """Make a column ``v`` of float arrays."""
    ramp = F.sequence(F.lit(0), F.lit(WIDTH - 1))
    cells = F.transform(ramp, lambda i: (F.col("id") % 1000 + i / WIDTH).cast("float"))
    return rows_of(spark, rows).select(cells.alias("v"))


@contextmanager
def scalars_case(setting: Setting) -> Iterator[Contestants]:
    """Add 3 to doubles."""

    def add_by_map(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"z": pc.add(batch.column(0), 3.0)})

    same = by_arrow_udf(lambda array: array, T.DoubleType())
    added = by_arrow_udf(lambda array: pc.add(array, 3.0), T.DoubleType())
    by_pandas = by_pandas_udf(lambda x: x + 3, T.DoubleType())
    with cached(rows_of(setting.spark, setting.rows).select((F.col("id") % 1000).cast("double").alias("x"))) as frame:
        yield Contestants(
            floor=lambda: total(frame.select(same("x").alias("z")), "z"),
            ours=lambda: total(tfs.map_blocks(lambda x: {"z": x + 3}, frame), "z"),
            peers={
                "arrow_udf by hand": lambda: total(frame.select(added("x").alias("z")), "z"),
                "mapInArrow by hand": lambda: total(frame.mapInArrow(add_by_map, "z double"), "z"),
                "pandas_udf": lambda: total(frame.select(by_pandas("x").alias("z")), "z"),
            },
        )


@contextmanager
def vectors_case(setting: Setting) -> Iterator[Contestants]:
    """Double float arrays."""

    def double(array: pa.ListArray) -> pa.Array:
        return pa.ListArray.from_arrays(array.offsets, pa.array(array.values.to_numpy() * np.float32(2)))

    def double_by_map(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"w": double(batch.column(0))})

    def predictor() -> Callable[[np.ndarray], np.ndarray]:
        return lambda block: block * np.float32(2)

    same, doubled = by_arrow_udf(lambda array: array, FLOATS), by_arrow_udf(double, FLOATS)
    by_pandas = by_pandas_udf(lambda cells: cells * np.float32(2), FLOATS)
    predicted = predict_batch_udf(predictor, return_type=FLOATS, batch_size=10_000, input_tensor_shapes=[[WIDTH]])
    with cached(vectors(setting.spark, setting.rows)) as frame:
        yield Contestants(
            floor=lambda: total_of_ends(frame.select(same("v").alias("w")), "w"),
            ours=lambda: total_of_ends(tfs.map_blocks(lambda v: {"w": 2 * v}, frame), "w"),
            peers={
                "arrow_udf by hand": lambda: total_of_ends(frame.select(doubled("v").alias("w")), "w"),
                "mapInArrow by hand": lambda: total_of_ends(frame.mapInArrow(double_by_map, "w array<float>"), "w"),
                "pandas_udf": lambda: total_of_ends(frame.select(by_pandas("v").alias("w")), "w"),
                "predict_batch_udf": lambda: total_of_ends(frame.select(predicted("v").alias("w")), "w"),
            },
        )


@contextmanager
def unread_case(setting: Setting) -> Iterator[Contestants]:
    """Double float arrays beside a binary column that nobody reads."""

    def double_by_map(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            cells = batch.column("v")
            doubled = pa.ListArray.from_arrays(cells.offsets, pa.array(cells.values.to_numpy() * np.float32(2)))
            yield pa.record_batch([*batch.columns, doubled], names=[*batch.schema.names, "w"])

    kinds = "v array<float>, blob binary, w array<float>"
    bare = vectors(setting.spark, setting.rows)
    blob = F.rpad(F.monotonically_increasing_id().cast("string"), BLOB, "x").cast("binary")
    with cached(bare) as narrow, cached(bare.withColumn("blob", blob)) as wide:
        yield Contestants(
            floor=lambda: total_of_ends(tfs.map_blocks(lambda v: {"w": 2 * v}, narrow), "w"),
            ours=lambda: total_of_ends(tfs.map_blocks(lambda v: {"w": 2 * v}, wide), "w"),
            peers={"mapInArrow by hand": lambda: total_of_ends(wide.mapInArrow(double_by_map, kinds), "w")},
        )


CASES = (
    Case(
        "scalars",
        "Spark, x + 3 over doubles: what does a program cost over the hop to a worker and back?",
        "identity arrow_udf",
        within(1.25),
        scalars_case,
        rows=10_000_000,
    ),
    Case(
        "vectors",
        f"Spark, 2 * v over array<float>[{WIDTH}]: how do we compare with Spark's own inference function, and with code by hand?",
        "identity arrow_udf",
        beats("predict_batch_udf", 3),
        vectors_case,
        rows=200_000,
    ),
    Case(
        "unread",
        f"Spark, 2 * v beside a column of {BLOB:,} bytes that nobody reads: does it cost anything?",
        "without the column",
        within(1.2),
        unread_case,
        rows=100_000,
    ),
)
