"""Large programs and constants go to workers by files: in one process, on executors with GPUs that are stood in for, and on Connect."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pyspark import SparkFiles
from sessions import spark_home
from test_spark import loads, new_loads

import tensorframes as tfs
from tensorframes.frames.spark_files import Shipped, shipped

pytestmark = pytest.mark.classic  # each in the session of the tests, or in one of its own

LIMIT = 100_000
WEIGHTS = np.random.default_rng(0).random((100, 500))  # 400 kB


@pytest.fixture
def small_limit(spark: Any) -> Iterator[Any]:
    """Let tasks hold 100 kB."""
    spark.conf.set("tensorframes.shipping.bytes", str(LIMIT))
    yield spark
    spark.conf.unset("tensorframes.shipping.bytes")


def files(spark: Any) -> set[str]:
    """Name the files that the session has distributed for us."""
    return {name for name in map(os.path.basename, spark.sparkContext.listFiles) if name.startswith("tensorframes-")}


def points(spark: Any, rows: int = 10) -> Any:
    return spark.range(0, rows, 1, 2).selectExpr("id % 2 as k", "transform(sequence(0, 99), i -> cast(id + i as double)) as v")


def test_every_verb_takes_a_program_that_is_larger_than_tasks_may_be(small_limit: Any) -> None:
    weights = tf.Variable(WEIGHTS)
    df = points(small_limit)
    v = np.array([row.v for row in df.collect()])
    before = files(small_limit)
    blocks = tfs.map_blocks(lambda v: {"z": tf.matmul(v, weights)}, df)
    np.testing.assert_allclose([row.z for row in blocks.collect()], v @ WEIGHTS)
    (first,) = files(small_limit) - before
    assert os.path.getsize(SparkFiles.get(first)) == WEIGHTS.nbytes
    trimmed = tfs.map_blocks(lambda v: {"z": tf.matmul(v, weights)}, df, trim=True)
    np.testing.assert_allclose([row.z for row in trimmed.collect()], v @ WEIGHTS)
    rows = tfs.map_rows(lambda v: {"z": tf.linalg.matvec(weights, v, transpose_a=True)}, df)
    np.testing.assert_allclose([row.z for row in rows.collect()], v @ WEIGHTS)

    def folded(v: tf.Tensor) -> tf.Tensor:
        return tf.reduce_max(tf.matmul(v, tf.matmul(weights, weights, transpose_b=True)) * 0 + v, axis=0)

    assert tfs.reduce_blocks(folded, df).tolist() == v.max(axis=0).tolist()
    larger = tfs.reduce_rows(lambda v_1, v_2: {"v": tf.maximum(v_1, v_2) + 0 * tf.reduce_sum(weights)}, df)
    assert larger["v"].tolist() == v.max(axis=0).tolist()
    keyed = {row.k: row.v for row in tfs.aggregate(folded, df.groupBy("k")).collect()}
    assert keyed == {0: v[8].tolist(), 1: v[9].tolist()}
    large = [name for name in files(small_limit) - before if os.path.getsize(SparkFiles.get(name)) >= WEIGHTS.nbytes]
    assert large == [first], "one file for the same weights, whatever reads them"


def test_a_program_is_not_distributed_or_loaded_again(small_limit: Any) -> None:
    weights = tf.Variable(WEIGHTS * 3)
    df = points(small_limit)

    def run() -> float:
        return float(tfs.map_blocks(lambda v: {"z": tf.reduce_sum(tf.matmul(v, weights), axis=1)}, df).agg({"z": "sum"}).first()[0])

    first = run()
    held, distributed = loads(small_limit), files(small_limit)
    assert [run(), run()] == [first, first]
    assert files(small_limit) == distributed
    assert sum(new_loads(small_limit, held)) <= len(held) - 1, "a worker that had not been used may load it"


def test_large_constants_go_by_files_too(small_limit: Any) -> None:
    df = points(small_limit)
    before = files(small_limit)
    given = tfs.map_blocks(lambda v, w: {"z": tf.reduce_sum(tf.matmul(v, w), axis=1)}, df, {"w": WEIGHTS * 5})
    v = np.array([row.v for row in df.collect()])
    np.testing.assert_allclose([row.z for row in given.collect()], (v @ (WEIGHTS * 5)).sum(axis=1))
    assert len(files(small_limit) - before) == 1


def test_many_small_values_share_a_file_and_few_stay_inside(small_limit: Any) -> None:
    program = tfs.program(lambda x: {"z": x + 1}, signature={"x": tf.TensorSpec([None], tf.float64)})
    assert shipped(program, small_limit, LIMIT) is program
    values = [tf.Variable(np.full(1250, i / 7)) for i in range(30)]  # 10 kB each
    program = tfs.program(lambda x: {"z": x + tf.add_n([value[0] for value in values])}, signature={"x": tf.TensorSpec([None], tf.float64)})
    before = files(small_limit)
    light = shipped(program, small_limit, LIMIT)
    assert isinstance(light, Shipped)
    assert len(pickle.dumps(light)) < LIMIT
    sizes = sorted(os.path.getsize(SparkFiles.get(name)) for name in files(small_limit) - before)
    assert sizes[-1] >= 29 * 10_000
    assert len(sizes) <= 2, "the values in one, and the graph, which is as large as an eighth of the limit"
    large = tf.Variable(np.full(12_500, 0.5))  # one file for what is large, the rest is small enough again
    program = tfs.program(lambda x: {"z": x + large[0] + values[0][0]}, signature={"x": tf.TensorSpec([None], tf.float64)})
    before = files(small_limit)
    light = shipped(program, small_limit, LIMIT)
    (name,) = files(small_limit) - before
    assert os.path.getsize(SparkFiles.get(name)) == 100_000
    assert 10_000 < len(pickle.dumps(light)) < LIMIT


def test_a_setting_that_is_no_number_is_refused(spark: Any) -> None:
    spark.conf.set("tensorframes.shipping.bytes", "lots")
    try:
        with pytest.raises(tfs.ProgramError) as caught:
            tfs.map_blocks(lambda v: {"z": v}, points(spark))
    finally:
        spark.conf.unset("tensorframes.shipping.bytes")
    assert (
        str(caught.value) == "map_blocks: the setting tensorframes.shipping.bytes is 'lots', but an integer from 1 to 2147483647 is wanted."
    )


# --- Sessions of their own ---

JOBS = """
import json, os, sys
import numpy as np, pyarrow as pa, tensorflow as tf
import tensorframes as tfs

def report(batches):
    for _ in batches:
        pass
    import os, sys, time
    from pyspark import TaskContext
    time.sleep(0.3)  # so that one worker does not take all tasks
    device, programs = sys.modules.get("tensorframes.device"), sys.modules.get("tensorframes.programs")
    stand_in = sys.modules.get("pyspark_gpu_stand_in")
    worker = device and device._worker
    yield pa.record_batch({"found": [json.dumps({
        "pid": os.getpid(), "loads": programs and programs.CACHE.loads, "gpus": worker and worker.gpus,
        "cores": worker and worker.cores, "weights": [v.device[-5:] for v in programs._VALUES.values()] if programs else [],
        "visible": stand_in and stand_in.visible,
    })]})

def jobs(spark, device):
    spark.conf.set("tensorframes.shipping.bytes", "100000")
    weights = tf.Variable(np.random.default_rng(0).random((100, 500)))
    df = spark.range(0, 40, 1, 4).selectExpr("id % 2 as k", "transform(sequence(0, 99), i -> cast(id + i as double)) as v")
    found = {}
    for name in ("first", "second"):
        z = tfs.map_blocks(lambda v: {"z": tf.matmul(v, weights)}, df, device=device).toArrow()
        v = np.array(z.column("v").to_pylist())
        found[name] = bool(np.allclose(v @ weights.numpy(), np.array(z.column("z").to_pylist())))
    rows = tfs.map_rows(lambda v: {"z": tf.linalg.matvec(weights, v, transpose_a=True)}, df, device=device).toArrow()
    found["rows"] = bool(np.allclose(v @ weights.numpy(), np.array(rows.column("z").to_pylist())))
    largest = tfs.reduce_blocks(lambda v: tf.reduce_max(v, axis=0) + 0 * tf.reduce_sum(weights), df, device=device)
    found["reduce"] = largest.tolist() == v.max(axis=0).tolist()
    keyed = tfs.aggregate(lambda v: tf.reduce_max(v, axis=0) + 0 * tf.reduce_sum(weights), df.groupBy("k"), device=device)
    found["aggregate"] = sorted((row.k, row.v[0]) for row in keyed.collect()) == [(0, 38.0), (1, 39.0)]
    found["workers"] = [json.loads(row.found) for row in spark.range(0, 8, 1, 8).mapInArrow(report, "found string").collect()]
    return found
"""

CLUSTER = (
    JOBS
    + """
from pyspark.sql import SparkSession
script = sys.argv[1]
builder = SparkSession.builder.master("local-cluster[1,2,1024]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
for kind in ("worker", "executor"):
    builder = builder.config(f"spark.{kind}.resource.gpu.amount", 2).config(f"spark.{kind}.resource.gpu.discoveryScript", script)
builder = builder.config("spark.task.resource.gpu.amount", 1).config("spark.python.worker.module", "pyspark_gpu_stand_in")
builder = builder.config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"]).config("spark.executorEnv.STAND_IN_GPUS", 6)
spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
found = jobs(spark, "gpu")
spark.stop()
print(json.dumps(found))
"""
)

CONNECT = (
    JOBS
    + """
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
found = jobs(spark, "auto")
print(json.dumps(found), flush=True)
spark.stop()
"""
)


def run_session(code: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """Run code that starts a session of its own, whose files all lie in a folder, and prints one JSON value."""
    temporary = folder / "temporary"
    temporary.mkdir()
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home(folder)),
        "SPARK_LOCAL_DIRS": str(temporary),
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "CUDA_VISIBLE_DEVICES": "",
        "SPARK_TESTING": "1",  # lets a server of Connect take any port
        "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={temporary}",
    }
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(next(line for line in reversed(run.stdout.splitlines()) if line.startswith("{")))
    left = [str(path.relative_to(temporary)) for path in temporary.rglob("*tensorframes*")]
    assert left == [], "nothing is left behind in temporary folders"
    return found


@pytest.mark.spark
def test_executors_read_a_large_program_once_and_run_it_on_their_tasks_gpus(tmp_path: Path) -> None:
    script = tmp_path / "find-gpus"
    script.write_text("""#!/bin/sh\necho '{"name": "gpu", "addresses": ["3", "5"]}'\n""")
    script.chmod(0o755)
    found = run_session(CLUSTER, tmp_path, str(script))
    workers = {held["pid"]: held for held in found.pop("workers")}
    assert found == dict.fromkeys(found, True)
    used = [held for held in workers.values() if held["gpus"]]
    assert sorted(held["gpus"] for held in used) == [["3"], ["5"]]
    for held in used:
        (number,) = held["gpus"]
        assert held["visible"] == [f"/physical_device:GPU:{number}", f"/physical_device:GPU:{number} grows"]
        assert held["weights"] == ["CPU:1"], "one copy for all programs, on the device that stands in for the GPU"
        assert held["loads"] <= 5, "one for each verb's program"
        assert held["cores"] == 1


@pytest.mark.spark
def test_large_programs_go_as_artifacts_on_connect(tmp_path: Path) -> None:
    found = run_session(CONNECT, tmp_path)
    workers = {held["pid"]: held for held in found.pop("workers")}
    assert found == dict.fromkeys(found, True)
    assert [held["weights"] for held in workers.values() if held["loads"]] == [["CPU:0"]] * sum(bool(w["loads"]) for w in workers.values())
    assert any(held["loads"] for held in workers.values())
