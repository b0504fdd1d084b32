"""Programs as functions of columns, in expressions and in SQL; and maps of streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from expectations import ExpectFail, cases, check_refused
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812
from test_spark import loads, new_loads

import tensorframes as tfs

DOUBLES = tf.TensorSpec([None], tf.float64)


def ratio(x: DOUBLES, y: DOUBLES):
    return x / y


def both(v: tf.TensorSpec([None, 2], tf.float32), scale=1.0):
    return {"total": tf.reduce_sum(v, axis=1) * scale, "v": v * 2}


@pytest.fixture
def df(spark: Any) -> Any:
    made = spark.range(1, 5, 1, 2).selectExpr(
        "id",
        "cast(id as double) as x",
        "cast(id as int) as i",
        "array(cast(id as float), 2F) as v",
        "if(id > 2, cast(id as double), null) as gap",
    )
    made.createOrReplaceTempView("rows")
    return made


def values(frame: Any, column: str = "z") -> list[Any]:
    return [row[column] for row in frame.orderBy("id").collect()]


# --- Functions of columns ---


@pytest.mark.spark
def test_columns_by_place_and_by_name_and_expressions(df: Any) -> None:
    function = tfs.udf(ratio)
    assert repr(function) == str(function) == "ratio(x: double, y: double) -> double"
    assert values(df.select("id", function("x", "x").alias("z"))) == [1.0] * 4
    assert values(df.select("id", function(y=F.col("x") * 2, x="x").alias("z"))) == [0.5] * 4
    assert df.select(function("x", "x")).columns == ["ratio"]


@pytest.mark.spark
def test_what_is_given_as_another_type_is_widened(df: Any) -> None:
    function = tfs.udf(ratio)
    assert values(df.select("id", function("id", "i").alias("z"))) == [1.0] * 4
    assert values(df.select("id", function(F.lit(1).cast("decimal(5,2)"), F.lit(2.0).cast("float")).alias("z"))) == [0.5] * 4
    narrow = tfs.udf(both)
    assert values(df.select("id", narrow(F.array("x", "id"))["total"].alias("z"))) == [2.0, 4.0, 6.0, 8.0]


@pytest.mark.spark
def test_several_outputs_are_a_struct_and_constants_are_no_parameters(df: Any) -> None:
    function = tfs.udf(both, feed_dict={"scale": np.float32(10)})
    assert repr(function) == "tensorframes(v: array<float>) -> struct<`total`: float, `v`: array<float>>"
    made = df.select("id", function("v").alias("z"))
    assert values(made.select("id", "z.total"), "total") == [30.0, 40.0, 50.0, 60.0]
    assert values(made.select("id", F.col("z.v")), "v") == [[2.0 * i, 4.0] for i in range(1, 5)]


@pytest.mark.spark
def test_feeds_name_parameters_and_say_what_becomes_of_nulls(df: Any) -> None:
    def plus(x: DOUBLES):
        return x + 1

    def seen(x: DOUBLES, x_mask: tf.TensorSpec([None], tf.bool)):
        return tf.where(x_mask, x, -1.0)

    skip = tfs.udf(plus, feed_dict={"x": tfs.feed("age", nulls="skip")})
    assert repr(skip) == "plus(age: double) -> double"
    assert values(df.select("id", skip(age="gap").alias("z"))) == [None, None, 4.0, 5.0]
    mask = tfs.udf(seen, feed_dict={"x": tfs.feed("x", nulls="mask")})
    assert values(df.select("id", mask("gap").alias("z"))) == [-1.0, -1.0, 3.0, 4.0]

    def shown(x: DOUBLES, x_mask: tf.TensorSpec([None], tf.bool), y: DOUBLES):
        return tf.where(x_mask, x, y)

    placed = tfs.udf(shown, feed_dict=[tfs.feed("a", nulls="mask"), "b"])  # a mask has no place of its own
    assert repr(placed) == "shown(a: double, b: double) -> double"
    assert values(df.select("id", placed("gap", "id").alias("z"))) == [1.0, 2.0, 3.0, 4.0]
    twice = tfs.udf(ratio, feed_dict={"x": "a", "y": "a"})
    assert values(df.select("id", twice("x").alias("z"))) == [1.0] * 4


@pytest.mark.spark
def test_models_and_programs_of_a_frame(df: Any) -> None:
    model = keras.Sequential([keras.Input((2,), name="v"), keras.layers.Dense(1, kernel_initializer="ones")], name="score")
    assert repr(tfs.udf(model)) == "score(v: array<float>) -> array<float>"
    assert values(df.select("id", tfs.udf(model)("v").alias("z"))) == [[3.0], [4.0], [5.0], [6.0]]
    program = tfs.program(lambda x, v: {"z": tf.cast(x, tf.float32) + v[:, 1]}, frame=df)
    assert values(df.select("id", tfs.udf(program)("x", "v").alias("z"))) == [3.0, 4.0, 5.0, 6.0]
    text = tfs.program(lambda s: tf.strings.upper(s), signature={"s": tf.TensorSpec([None], tf.string)})
    assert values(df.select("id", tfs.udf(text)(F.lit("é a")).alias("z"))) == ["é A"] * 4


@pytest.mark.spark
def test_a_filter_on_the_result_computes_it_once_and_a_program_is_loaded_once(df: Any, spark: Any) -> None:
    function = tfs.udf(tfs.program(lambda x: x * 1.0625 + 17, signature={"x": DOUBLES}))
    made = df.select("id", function("x").alias("z"))
    values(made)
    held = loads(spark)
    assert values(made.filter("z > 19.1")) == [19.125, 20.1875, 21.25]
    assert sum(new_loads(spark, held)) <= len(held) - 1


@pytest.mark.core
@pytest.mark.spark
def test_it_gives_what_map_blocks_gives(df: Any) -> None:
    program = tfs.program(both, frame=df)
    mapped = tfs.map_blocks(program, df, trim=True)
    called = df.select(tfs.udf(program)("v").alias("z")).select("z.*")
    assert called.schema.simpleString() == mapped.schema.simpleString()
    assert sorted(called.collect()) == sorted(mapped.collect())


def declared(shape: Any, dtype: Any = tf.float64) -> Callable[[], Any]:
    return lambda: tfs.udf(tfs.program(lambda x: {"z": x}, signature={"x": tf.TensorSpec(shape, dtype)}))


@pytest.mark.spark
@cases(
    ExpectFail(
        lambda: tfs.udf(lambda x: x + 1),
        tfs.ProgramError,
        "udf: the lambda says nothing of the type of input 'x'.\n"
        "  Pass a frame, or signature={'x': tf.TensorSpec(shape, dtype)}, to tfs.program.",
        "no types",
    ),
    ExpectFail(
        declared([]),
        tfs.ShapeError,
        "udf: input 'x' is float64[], without a row dimension.\n  A function of columns computes blocks: declare [None, …].",
        "a cell",
    ),
    ExpectFail(
        declared([None], tf.complex64), tfs.DTypeError, "udf: input 'x' is complex64[?], which no column of Spark's holds.", "complex"
    ),
    ExpectFail(
        lambda: tfs.udf(tfs.program(lambda x: {"z": tf.reduce_sum(x)}, signature={"x": DOUBLES})),
        tfs.ShapeError,
        "udf: output 'z' is float64[], which has no row dimension.\n"
        "  outputs: z: float64[]\n"
        "  reduce_blocks folds a frame to one value; with trim=True an output may have any number of rows, such as [1].",
        "no rows",
    ),
    ExpectFail(
        lambda: tfs.udf(ratio)("x"),
        tfs.ProgramError,
        "udf: ratio(x: double, y: double) -> double is called as (…).\n  It takes 2 columns: x, y.",
        "too few",
    ),
    ExpectFail(
        lambda: tfs.udf(ratio)("x", z="y"),
        tfs.ProgramError,
        "udf: ratio(x: double, y: double) -> double is called as (…, z).\n  It takes 2 columns: x, y.",
        "another name",
    ),
    ExpectFail(
        lambda: tfs.udf(ratio, feed_dict=["a", "b", "c"]),
        tfs.ProgramError,
        "udf: feed_dict feeds 3 inputs by position, but the program has 2.\n  inputs: x, y",
        "more names than inputs",
    ),
    ExpectFail(
        lambda: tfs.udf(ratio, device="tpu"),
        tfs.ProgramError,
        "udf: device is 'tpu', but one of 'auto', 'cpu', 'gpu' is wanted.",
        "a device",
    ),
)
def test_functions_that_are_refused(case: ExpectFail) -> None:
    check_refused(case.input, case.error, case.message)


@pytest.mark.spark
@pytest.mark.parametrize("column", ["v", "id > 1", "current_date()", "struct(x)"])
def test_a_type_that_does_not_fit_is_refused_when_the_query_is_analysed(column: str, df: Any) -> None:
    with pytest.raises(AnalysisException, match=r"^\[DATATYPE_MISMATCH\.DATA_DIFF_TYPES\]"):
        df.select(tfs.udf(ratio)("x", F.expr(column))).schema  # noqa: B018  (Connect analyses a query when it is asked for)


@pytest.mark.spark
def test_what_spark_widens_too_far_is_refused_by_our_rules(df: Any) -> None:
    def whole(n: tf.TensorSpec([None], tf.int32)):
        return n + 1

    assert values(df.select("id", tfs.udf(whole)("i").alias("z"))) == [2, 3, 4, 5]
    with pytest.raises(Exception, match=r"DTypeError: udf: input 'n' wants int32\[\?\] but column 'n' holds int64\[\?\]\.") as caught:
        df.select(tfs.udf(whole)("id")).collect()
    assert "  columns: n: int64[?]" in str(caught.value)


# --- SQL ---


@pytest.mark.core
@pytest.mark.spark
def test_in_sql(df: Any, spark: Any) -> None:
    function = tfs.register_udf(spark, "ratio", ratio)
    assert repr(function) == "ratio(x: double, y: double) -> double"
    assert spark.sql("SELECT ratio(1, 2.5) AS z").first().z == 0.4  # an int and a decimal
    assert values(spark.sql("SELECT id, ratio(x, id) AS z FROM rows WHERE ratio(x, 2) > 1")) == [1.0, 1.0]
    assert values(df.select("id", F.call_function("ratio", "x", F.lit(2)).alias("z"))) == [0.5, 1.0, 1.5, 2.0]
    tfs.register_udf(spark, "odd name", both)
    row = spark.sql("SELECT `odd name`(v).total AS total, `odd name`(array(1, 2)) AS z FROM rows ORDER BY id").first()
    assert (row.total, row.z.asDict()) == (3.0, {"total": 3.0, "v": [2.0, 4.0]})
    tfs.register_udf(spark, "ratio", tfs.program(lambda x, y: y / x, signature={"x": DOUBLES, "y": DOUBLES}))
    assert spark.sql("SELECT ratio(1, 4) AS z").first().z == 4.0, "one that is there is replaced"


@pytest.mark.spark
def test_a_function_of_sql_stands_in_aggregates_and_joins(df: Any, spark: Any) -> None:
    tfs.register_udf(spark, "ratio", ratio)
    assert spark.sql("SELECT avg(ratio(x, 2)) AS a FROM rows").first().a == 1.25
    grouped = spark.sql("SELECT id % 2 AS k, max(ratio(x, 2)) AS m FROM rows GROUP BY id % 2 HAVING max(ratio(x, 2)) > 1.5")
    assert len(grouped.collect()) == 1
    assert spark.sql("SELECT count(*) AS n FROM rows a JOIN rows b ON ratio(a.x, 2) = ratio(b.x, 2)").first().n == 4
    tfs.register_udf(spark, "noise", tfs.program(lambda x: x + tf.random.uniform(tf.shape(x), dtype=x.dtype), signature={"x": DOUBLES}))
    noisy = spark.sql("SELECT n FROM (SELECT noise(x) AS n FROM rows) WHERE n > 0 AND n = n")
    assert len(noisy.collect()) == 4
    with pytest.raises(AnalysisException):
        spark.sql("SELECT sum(noise(x)) FROM rows").collect()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("ratio(x)", "WRONG_NUM_ARGS"),
        ("ratio(x, x, x)", "WRONG_NUM_ARGS"),
        ("ratio(x, v)", "DATATYPE_MISMATCH"),
        ("ratio(x, current_date())", "DATATYPE_MISMATCH"),
    ],
)
def test_a_wrong_call_in_sql_is_refused_when_the_query_is_analysed(call: str, kind: str, df: Any, spark: Any) -> None:
    tfs.register_udf(spark, "ratio", ratio)
    with pytest.raises(AnalysisException, match=rf"^\[{kind}"):
        spark.sql(f"SELECT {call} FROM rows").schema  # noqa: B018


# --- Streams ---


@pytest.fixture
def stream(spark: Any, tmp_path: Path) -> Any:
    """Read files as a stream, one a micro-batch."""
    for part in range(3):
        rows = spark.range(part * 10, part * 10 + 10, 1, 1).selectExpr("id", "cast(id as double) as x", "array(cast(id as double)) as v")
        rows.write.parquet(str(tmp_path / "in" / str(part)))
    reader = spark.readStream.schema("id long, x double, v array<double>").option("recursiveFileLookup", "true")
    return reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))


def run(made: Any, name: str) -> Any:
    """Run a stream over all that is there."""
    query = made.writeStream.format("memory").queryName(name).outputMode("append").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert len(query.recentProgress) >= 3, "several micro-batches"
    return made.sparkSession.table(name)


@pytest.mark.core
@pytest.mark.spark
def test_maps_of_a_stream_load_their_programs_once(stream: Any, spark: Any) -> None:
    made = tfs.map_rows(lambda z: {"w": z * 2}, tfs.map_blocks(lambda x: {"z": x + 1.25}, stream))
    held = loads(spark)
    rows = run(made, "mapped")
    assert values(rows, "w") == [2 * (i + 1.25) for i in range(30)]
    assert all(count <= 2 for count in new_loads(spark, held)), "three micro-batches, two programs"
    trimmed = tfs.map_blocks(lambda x: {"largest": tf.reduce_max(x, keepdims=True)}, stream, trim=True)
    assert max(row.largest for row in run(trimmed, "trimmed").collect()) == 29.0
    called = stream.select("id", tfs.udf(ratio)("x", F.lit(2)).alias("z"))
    assert values(run(called, "called")) == [i / 2 for i in range(30)]


@pytest.mark.spark
def test_the_rate_source(spark: Any) -> None:
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).option("numPartitions", 2).load()
    made = tfs.map_blocks(lambda value: {"z": value * 2}, rate)
    assert made.isStreaming
    query = made.writeStream.format("memory").queryName("rate").outputMode("append").trigger(once=True).start()
    assert query.awaitTermination(120)
    assert sorted(row.z for row in spark.table("rate").collect()) == [0, 2, 4, 6, 8]


HINT = "Call it on one batch after the other: df.writeStream.foreachBatch(lambda batch, number: …)."
STREAM = f"the frame is a stream, which has no end.\n  {HINT}"


@pytest.mark.spark
def test_what_needs_all_rows_of_a_stream_is_refused(stream: Any) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "reduce_blocks": lambda: tfs.reduce_blocks(lambda x: tf.reduce_sum(x, axis=0), stream),
        "reduce_rows": lambda: tfs.reduce_rows(lambda x_1, x_2: {"x": x_1 + x_2}, stream),
        "aggregate": lambda: tfs.aggregate(lambda x: tf.reduce_sum(x, axis=0), stream.groupBy("id")),
        "analyze": lambda: tfs.analyze(stream),
    }
    for name, call in calls.items():
        check_refused(call, tfs.FrameError, f"{name}: {STREAM}")


@pytest.mark.classic  # elsewhere the function runs in another process
@pytest.mark.spark
def test_each_batch_of_a_stream_can_be_folded(stream: Any) -> None:
    sums: list[float] = []

    def fold(batch: Any, number: int) -> None:
        sums.append(float(tfs.reduce_blocks(lambda x: tf.reduce_sum(x, axis=0), batch)))

    query = stream.writeStream.foreachBatch(fold).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sum(sums) == sum(range(30))
    assert len(sums) == 3
