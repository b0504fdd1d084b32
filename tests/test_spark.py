import functools
import gc
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
from flavours import check_same_table, plain
from pyspark.sql.functions import pandas_udf
from sessions import CLUSTER, spark_home

import tensorframes as tfs

# --- What can be seen of a job from outside ---


def plan_of(df: Any) -> str:
    return df._jdf.queryExecution().executedPlan().toString()


def python_nodes(df: Any) -> list[str]:
    """The nodes of a plan that call Python, each with its arguments."""
    return [line.strip(" +-:*()0123456789") for line in plan_of(df).splitlines() if re.search(r"(ArrowEvalPython|MapInArrow)\b", line)]


def bytes_sent(df: Any) -> int:
    """Run a plan and return how many bytes it sent to Python workers."""
    df.toArrow()
    waiting, sent = [df._jdf.queryExecution().executedPlan()], 0
    while waiting:
        node = waiting.pop()
        metric = node.metrics().get("pythonDataSent")
        sent += metric.get().value() if metric.isDefined() else 0
        children = node.children()
        waiting += [children.apply(i) for i in range(children.size())]
    return sent


def counting(path: Path, function: Any) -> Any:
    """Make a program that also appends each value of `x` that it sees to a file."""

    def counted(x):
        tf.print(x, output_stream=f"file://{path}", summarize=-1)
        return function(x)

    return counted


def seen(path: Path) -> list[float]:
    return sorted(float(number) for number in re.findall(r"[-\d.e]+", path.read_text())) if path.exists() else []


def loads(spark: Any) -> dict[int, int]:
    """How many programs each worker has loaded: idle ones are taken in turn, so that many small tasks see them all."""

    def report(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # in here, so that it is shipped by value
        for _ in batches:
            pass
        programs = sys.modules.get("tensorframes.programs")
        yield pa.record_batch({"pid": [os.getpid()], "loads": [programs.CACHE.loads if programs else 0]})

    rows = spark.range(0, 24, 1, 24).mapInArrow(report, "pid long, loads long").collect()
    return {row.pid: row.loads for row in rows}


def new_loads(spark: Any, before: dict[int, int]) -> list[int]:
    return [count - before.get(pid, 0) for pid, count in loads(spark).items()]


def numbers(spark: Any, rows: int = 10, partitions: int = 2) -> Any:
    return spark.range(0, rows, 1, partitions).selectExpr("id", "cast(id as double) as x")


# --- Names ---


@pytest.mark.parametrize("name", ["a.b", "x y", "é", "a`b", "x.y z", "日本"])
@pytest.mark.parametrize("verb", [tfs.map_blocks, tfs.map_rows])
def test_columns_may_have_any_name(name: str, verb: Any, spark: Any) -> None:
    df = spark.createDataFrame(pa.table({name: [1.0, 2.0], "k": [1, 2]}))
    held = plain(verb({f"2 {name}": lambda x: 2 * x}, df, {"x": name}).toArrow())
    check_same_table(held, pa.table({name: [1.0, 2.0], "k": [1, 2], f"2 {name}": [2.0, 4.0]}))


def test_trim_and_shapes_of_columns_of_any_name(spark: Any) -> None:
    df = tfs.append_shape(spark.createDataFrame(pa.table({"a.b": [[1.0], [2.0]], "x y": [1.0, 2.0]})), "a.b", [None, 1])
    assert tfs.schema(df)["a.b"].cell_shape == (1,)
    held = tfs.map_blocks(lambda a, b: {"é.z": a[:, 0] + b}, df, {"a": "a.b", "b": "x y"}, trim=True)
    assert held.toArrow().to_pydict() == {"é.z": [2.0, 4.0]}


def test_a_case_sensitive_session_tells_columns_apart(spark: Any) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        df = spark.createDataFrame(pa.table({"A": [1.0, 2.0], "a": [10.0, 20.0]}))
        held = tfs.map_blocks({"z": lambda a: a, "Z": lambda A: A}, df).toArrow()  # noqa: N803
    finally:
        spark.conf.set("spark.sql.caseSensitive", "false")
    assert held.to_pydict() == {"A": [1.0, 2.0], "a": [10.0, 20.0], "z": [10.0, 20.0], "Z": [1.0, 2.0]}


def test_a_session_that_ignores_case_refuses_outputs_that_differ_in_case(spark: Any) -> None:
    df = numbers(spark)
    with pytest.raises(tfs.ColumnError) as caught:
        tfs.map_blocks(lambda x: {"X": x}, df)
    assert str(caught.value) == (
        "map_blocks: output 'X' has the name of a column.\n"
        "  outputs: X\n"
        "  columns: id: int64[?], x: float64[?]\n"
        "  Rename the output by a dict: {'new_name': fetch}."
    )
    with pytest.raises(tfs.ColumnError) as caught:
        tfs.map_blocks(lambda x: {"z": x, "Z": x}, df)
    assert str(caught.value) == ("map_blocks: outputs 'z' and 'Z' would be one column: the session ignores case.\n  outputs: z, Z")


# --- What is shipped, and how often it is computed ---


@pytest.fixture
def wide(spark: Any) -> Any:
    return numbers(spark).selectExpr(
        "*",
        "repeat('s', 4096) as s",
        "map('k', repeat('m', 4096)) as m",
        "named_struct('a', repeat('a', 4096), 'b', x) as p",
        "cast(repeat('b', 4096) as binary) as b",
    )


@pytest.mark.parametrize("options", [{}, {"trim": True}], ids=["keeps rows", "trim"])
@pytest.mark.classic  # reads the JVM's plan
def test_only_the_columns_that_are_read_are_shipped(options: dict[str, Any], spark: Any, wide: Any) -> None:
    narrow = bytes_sent(tfs.map_blocks(lambda x: {"z": x + 3}, numbers(spark), **options))
    held = tfs.map_blocks(lambda x: {"z": x + 3}, wide, **options)
    assert len(python_nodes(held)) == 1
    assert 0 < narrow <= bytes_sent(held) <= narrow + 100
    field = tfs.map_blocks(lambda x: {"z": x + 3}, wide, {"x": "p.b"}, **options)
    assert bytes_sent(field) <= narrow + 100
    text = tfs.map_blocks(lambda s: {"z": tf.strings.length(s)}, wide, **options)
    assert bytes_sent(text) > 10 * 4096  # the measure sees what is shipped


def test_unread_columns_pass_through_untouched(wide: Any) -> None:
    held = tfs.map_rows(lambda x: {"z": x + 3}, wide)
    assert held.columns == ["id", "x", "s", "m", "p", "b", "z"]
    assert held.select(wide.columns).collect() == wide.collect()
    assert held.schema.fields[: len(wide.columns)] == wide.schema.fields


@pytest.mark.core
@pytest.mark.parametrize("verb", [tfs.map_blocks, tfs.map_rows])
@pytest.mark.classic  # reads the JVM's plan
def test_a_filter_on_an_output_computes_it_once_per_row(verb: Any, spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "seen"
    mapped = verb(counting(path, lambda x: {"z": x + 3, "y": 2 * x}), numbers(spark))
    held = mapped.filter("z > 5 and y < 12").withColumn("w", mapped.z + mapped.y).filter("w > 0")
    assert len(python_nodes(held)) == 1
    assert sorted(row.id for row in held.collect()) == [3, 4, 5]
    if verb is tfs.map_blocks:  # the vectorizer prints once for many rows
        assert seen(path) == [float(i) for i in range(10)]


@pytest.mark.classic  # reads the JVM's plan
def test_outputs_that_nobody_reads_are_not_computed(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "seen"
    mapped = tfs.map_blocks(counting(path, lambda x: {"z": x + 3}), numbers(spark))
    assert python_nodes(mapped.select("id")) == []
    assert mapped.select("id", "x").filter("x > 3").count() == 6
    assert mapped.count() == 10
    assert seen(path) == []
    assert mapped.agg({"z": "sum"}).collect()[0][0] == 75.0
    assert seen(path) == [float(i) for i in range(10)]


# --- Partitions and batches ---


@pytest.mark.core
@pytest.mark.parametrize("verb", [tfs.map_blocks, tfs.map_rows])
def test_few_rows_in_many_partitions(verb: Any, spark: Any) -> None:
    df = numbers(spark, 3, 8)
    assert sorted(map(tuple, verb(lambda x: {"z": x + 3}, df).collect())) == [(0, 0.0, 3.0), (1, 1.0, 4.0), (2, 2.0, 5.0)]


def test_trim_of_few_rows_in_many_partitions(spark: Any) -> None:
    held = tfs.map_blocks(
        lambda x: {"z": tf.boolean_mask(x, x > 0), "one": tf.ones_like(tf.boolean_mask(x, x > 0))}, numbers(spark, 3, 8), trim=True
    )
    assert sorted(map(tuple, held.collect())) == [(1.0, 1.0), (2.0, 1.0)]


@pytest.mark.core
@pytest.mark.parametrize("batch_rows", [1, 3, 10001])
def test_batches_of_any_size_give_the_same(batch_rows: int, spark: Any) -> None:
    rows = [{"id": i, "x": float(i), "v": [float(i)] * 200, "s": "é" * (i % 7)} for i in range(20)]
    df = spark.createDataFrame(pa.Table.from_pylist(rows)).repartition(3, "id")
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(setting)
    spark.conf.set(setting, batch_rows)
    try:
        mapped = tfs.map_blocks(lambda x, v, s: {"z": x + tf.reduce_sum(v, 1), "w": 2 * v, "t": s + "!"}, df)
        held = tfs.map_rows(lambda v, w: {"y": tf.reduce_sum(w - v)}, mapped).toArrow().sort_by("id")
    finally:
        spark.conf.set(setting, before)
    assert held["z"].to_pylist() == [201.0 * i for i in range(20)]
    assert held["w"].to_pylist() == [[2.0 * i] * 200 for i in range(20)]
    assert held["t"].to_pylist() == [row["s"] + "!" for row in rows]
    assert held["y"].to_pylist() == [200.0 * i for i in range(20)]


def test_block_rows_joins_batches(spark: Any) -> None:
    df = numbers(spark, 10, 1)
    held = tfs.map_blocks(lambda x: {"n": tf.fill([tf.size(x)], tf.size(x))}, df, block_rows=4).toArrow()
    assert held["n"].to_pylist() == [4] * 8 + [2] * 2
    assert held["id"].to_pylist() == list(range(10))


def test_partitions_may_differ_in_the_shape_of_their_cells(spark: Any) -> None:
    parts = [spark.createDataFrame(pa.table({"m": [[[float(side)] * side] * side] * 2})) for side in (32, 64)]
    df = parts[0].union(parts[1])
    for verb in (tfs.map_blocks, tfs.map_rows):
        cells = verb(lambda m: {"z": m + 1}, df).toArrow()["z"].to_pylist()
        assert sorted((len(cell), len(cell[0]), cell[-1][-1]) for cell in cells) == [(32, 32, 33.0)] * 2 + [(64, 64, 65.0)] * 2


@pytest.mark.core
def test_outputs_stay_beside_their_rows_through_cache_repartition_and_join(spark: Any) -> None:
    df = numbers(spark, 30, 3)
    mapped = tfs.map_blocks(lambda x: {"z": 2 * x}, df).cache()
    try:
        joined = mapped.repartition(4).select("id", "z").join(df.repartition(5, "x"), "id")
        twice = tfs.map_rows(lambda z, x: {"d": z - 2 * x, "y": x}, joined)
        rows = twice.collect()
    finally:
        mapped.unpersist()
    assert sorted((row.id, row.z, row.d, row.y) for row in rows) == [(i, 2.0 * i, 0.0, float(i)) for i in range(30)]


# --- Programs in workers ---


@pytest.mark.core
def test_other_constants_load_nothing(spark: Any) -> None:
    before = loads(spark)
    for by in (2.0, 3.0, 4.0, 5.0, 6.0):
        held = tfs.map_blocks(lambda x, by: {"z": x * by + 0.5}, numbers(spark, 10, 4), {"by": by}).toArrow().sort_by("id")
        assert held["z"].to_pylist() == [i * by + 0.5 for i in range(10)]
    assert set(new_loads(spark, before)) <= {0, 1}
    assert sum(new_loads(spark, before)) >= 1


def test_each_of_four_programs_in_a_query_is_loaded_once_per_worker(spark: Any) -> None:
    before, df = loads(spark), numbers(spark, 20, 1)  # one task, which takes a worker for each program
    for step in range(4):
        df = tfs.map_blocks({f"y{step}": functools.partial(lambda x, by: x * by, by=float(step) + 0.25)}, df)
    for _ in range(3):
        held = df.toArrow().sort_by("id")
        assert [held[f"y{step}"].to_pylist() for step in range(4)] == [[i * (step + 0.25) for i in range(20)] for step in range(4)]
    assert max(new_loads(spark, before)) <= 4
    assert sum(new_loads(spark, before)) >= 4


def test_one_program_twice_in_a_query_is_loaded_once_per_worker(spark: Any) -> None:
    before = loads(spark)

    def program(x):
        return x * 0.375

    held = tfs.map_blocks({"y": program}, tfs.map_blocks({"z": program}, numbers(spark, 10, 1))).toArrow()
    assert held["y"].to_pylist() == held["z"].to_pylist()
    assert set(new_loads(spark, before)) <= {0, 1}
    assert sum(new_loads(spark, before)) >= 1


def test_a_closure_that_changed_is_used_as_it_is_now(spark: Any) -> None:
    state, held = {"by": 0.0}, []

    def scaled(x):
        return {"z": x * state["by"]}

    for by in (2.0, 3.0, 2.0):
        state["by"] = by
        held.append(tfs.map_blocks(scaled, numbers(spark, 3)).toArrow().sort_by("id")["z"].to_pylist())
    assert held == [[0.0, 2.0, 4.0], [0.0, 3.0, 6.0], [0.0, 2.0, 4.0]]


# --- Schemas ---


def test_outputs_know_their_shapes_and_types(spark: Any) -> None:
    df = tfs.map_blocks(lambda x: {"v": tf.stack([x, x], 1), "b": x > 1, "u": tf.cast(x, tf.uint8)}, numbers(spark))
    assert [(field.name, field.dataType.simpleString()) for field in df.schema.fields[2:]] == [
        ("v", "array<double>"),
        ("b", "boolean"),
        ("u", "smallint"),
    ]
    assert tfs.schema(df)["v"].cell_shape == (2,)
    assert df.schema["v"].metadata == {"tensorframes.shape": [-1, 2], "tensorframes.dtype": "double"}


def test_metadata_survives_select_filter_alias_and_parquet(spark: Any, tmp_path: Path) -> None:
    df = spark.createDataFrame(pa.table({"id": [0, 1], "v": [[1.0, 2.0], [3.0, 4.0]], "note": ["a", "b"]}))
    known = tfs.map_rows(lambda v: {"w": tf.stack([v, v, v])}, tfs.append_shape(df, "v", [None, 2]))
    known.select("v", "w", "id").write.parquet(str(tmp_path / "frame"))
    for held in (
        known.select("w", "v"),
        known.filter("id > 0"),
        known.alias("other").select("other.v", "other.w"),
        known.orderBy("id").limit(1).drop("note"),
        spark.read.parquet(str(tmp_path / "frame")),
    ):
        assert tfs.schema(held)["v"].cell_shape == (2,)
        assert tfs.schema(held)["w"].cell_shape == (3, 2)
    renamed = known.select(known.v.alias("renamed"))
    assert tfs.schema(renamed)["renamed"].cell_shape == (2,)
    with pytest.raises(tfs.ShapeError):
        tfs.map_blocks(tf.function(lambda v: v, input_signature=[tf.TensorSpec([None, 3], tf.float64)]), known)


def test_workers_set_modules_aside_so_that_small_tasks_are_short(spark: Any) -> None:
    def frozen(numbers: pd.Series) -> pd.Series:
        return numbers * 0 + gc.get_freeze_count()

    tasks = spark.range(0, 8, 1, 8)
    tfs.map_blocks(lambda id: {"z": id}, tasks).collect()
    counts = [row[0] for row in tasks.select(pandas_udf(frozen, "long")("id")).collect()]
    assert min(counts) > 100_000, "TensorFlow's modules hold that many objects"


def test_verbs_leave_the_session_as_it_was(spark: Any) -> None:
    before, views = dict(spark.conf.getAll), spark.catalog.listTables()
    tfs.map_blocks(lambda x: {"z": x}, numbers(spark)).collect()
    assert dict(spark.conf.getAll) == before
    assert spark.catalog.listTables() == views


# --- A worker that dies, in a session of its own that tries again; TensorFlow runs on the driver before there are workers ---

KILLED = """
    import json, os, resource, sys
    import tensorflow as tf

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # writing a worker's memory down would take long
    assert tf.reduce_sum(tf.ones([100, 100]) @ tf.ones([100, 100])).numpy() == 1e6
    import tensorframes as tfs
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")

    def dying(marker):
        # Gives 0.0, but kills the process the first time that a row is 70 or more.
        def zero(x):
            def die():
                with tf.control_dependencies([tf.io.write_file(marker, "died")]):
                    with tf.control_dependencies([tf.raw_ops.Abort(error_msg="killed by the test")]):
                        return tf.constant(0.0, tf.float64)

            wanted = tf.reduce_any(x >= 70) & (tf.size(tf.io.matching_files(marker)) == 0)
            return tf.cond(wanted, die, lambda: tf.constant(0.0, tf.float64))
        return zero

    zeros = {name: dying(os.path.join(sys.argv[2], name)) for name in ("map", "reduce", "aggregate")}
    df = spark.range(0, 100, 1, 2).selectExpr("cast(id as double) as x", "id % 2 as k")
    rows = tfs.map_blocks(lambda x: {"z": x + 3 + zeros["map"](x)}, df, block_rows=5).collect()
    total = tfs.reduce_blocks(lambda x: tf.reduce_sum(x) + zeros["reduce"](x), df)
    keyed = tfs.aggregate(lambda x: tf.reduce_sum(x) + zeros["aggregate"](x), df.groupBy("k")).collect()
    print(json.dumps([sorted([row.x, row.z] for row in rows), float(total), sorted([row.k, row.x] for row in keyed)]))
"""


@pytest.mark.spark
@pytest.mark.classic
def test_tasks_whose_workers_are_killed_on_a_cluster_are_tried_again(tmp_path: Path) -> None:
    environment = {**os.environ, "SPARK_HOME": str(spark_home(tmp_path))}
    command = [sys.executable, "-c", textwrap.dedent(KILLED), CLUSTER, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert [(tmp_path / name).read_text() for name in ("map", "reduce", "aggregate")] == ["died"] * 3
    mapped = [[float(i), i + 3.0] for i in range(100)]
    assert json.loads(ran.stdout.splitlines()[-1]) == [mapped, 4950.0, [[0, 2450.0], [1, 2500.0]]]
