"""Programs as stages of Spark ML's pipelines: transformed, copied, saved, loaded in another process, tuned."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from expectations import ExpectFail, cases, check_refused, check_same
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.linalg import DenseVector, VectorUDT
from pyspark.ml.tuning import CrossValidator, CrossValidatorModel, ParamGridBuilder
from pyspark.ml.util import DefaultParamsWriter
from pyspark.sql import types as T  # noqa: N812

import tensorframes as tfs
from tensorframes.ml import TensorTransformer, files, storage
from tensorframes.ml.storage import HadoopStorage, TableStorage

DOUBLES = tf.TensorSpec([None], tf.float64)
PAIRS = tf.TensorSpec([None, 2], tf.float64)


def subtract(x: DOUBLES, y: DOUBLES):
    return {"less": x - y, "more": x + y}


def turned() -> tfs.Program:
    """Give a program whose output is a vector."""
    return tfs.program(lambda v: {"turned": v @ [[0.0, 1.0], [-1.0, 0.0]]}, signature={"v": PAIRS}, vector="turned")


@pytest.fixture(scope="module")
def df(spark: Any) -> Any:
    return spark.createDataFrame([(1.0, 2.0, [1.0, 2.0]), (3.0, 5.0, [3.0, 4.0])], "x double, y double, v array<double>").coalesce(1)


def values(frame: Any, column: str) -> list[Any]:
    return [row[column] for row in frame.collect()]


# --- transform ---


@pytest.mark.core
@pytest.mark.spark
def test_inputs_come_by_name_by_position_or_by_dict(df: Any) -> None:
    stage = TensorTransformer(program=subtract)
    assert stage.transform(df).columns == ["x", "y", "v", "less", "more"]
    assert values(stage.transform(df), "less") == [-1.0, -2.0]
    assert values(TensorTransformer(program=subtract, inputCols=["y", "x"]).transform(df), "less") == [1.0, 2.0]
    assert values(TensorTransformer(program=subtract, inputCols=["y"]).transform(df), "less") == [0.0, 0.0], "the rest by name"
    assert values(TensorTransformer(program=subtract, feedDict={"y": "x"}).transform(df), "less") == [0.0, 0.0]
    inside = df.selectExpr("struct(x, y) as pair", "x as y")
    assert values(TensorTransformer(program=subtract, feedDict={"x": "pair.y"}).transform(inside), "less") == [1.0, 2.0]


@pytest.mark.spark
def test_outputs_are_named_by_the_stage_and_keep_what_they_are(df: Any) -> None:
    stage = TensorTransformer(program=subtract, outputCols=["a", "b"])
    assert values(stage.transform(df), "a") == [-1.0, -2.0]
    assert values(stage.transform(df), "b") == [3.0, 8.0]
    assert stage.transform(df).columns == ["x", "y", "v", "a", "b"]
    renamed = TensorTransformer(program=turned(), outputCols=["w"]).transform(df)
    assert renamed.schema["w"].dataType == VectorUDT()
    assert values(renamed, "w") == [DenseVector([-2.0, 1.0]), DenseVector([-4.0, 3.0])]
    swapped = tfs.program(
        lambda x: {"a": tf.as_string(x), "b": tf.as_string(x)}, signature={"x": tf.TensorSpec([None], tf.float64)}, binary="a"
    )
    names = TensorTransformer(program=swapped, outputCols=["b", "a"]).transform(df)
    assert [(field.name, field.dataType.simpleString()) for field in names.schema[3:]] == [("b", "binary"), ("a", "string")]


@pytest.mark.spark
def test_rows_of_a_block(df: Any) -> None:
    count = tfs.program(lambda x: {"rows": tf.fill(tf.shape(x), tf.size(x))}, signature={"x": DOUBLES})
    stage = TensorTransformer(program=count, blockRows=1, device="cpu")
    assert values(stage.transform(df), "rows") == [1, 1]
    assert values(stage.transform(df, {stage.blockRows: 2}), "rows") == [2, 2]
    assert stage.getBlockRows() == 1
    assert values(stage.setBlockRows(None).transform(df), "rows") == [2, 2]


@pytest.mark.spark
def test_a_model_that_changes_later_changes_nothing(df: Any, tmp_path: Path) -> None:
    dense = keras.layers.Dense(1, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((2,), name="v"), dense], name="score")
    stage = TensorTransformer(program=model)
    model.save(tmp_path / "score.keras")
    of_file = TensorTransformer(program=tmp_path / "score.keras", outputCols=["score"])
    (tmp_path / "score.keras").unlink()
    dense.set_weights([np.full([2, 1], 10.0), np.zeros(1)])
    assert values(stage.transform(df), "score") == values(of_file.transform(df), "score") == [[3.0], [7.0]]
    assert values(stage.setProgram(model).transform(df), "score") == [[30.0], [70.0]]


# --- Params ---


@pytest.mark.spark
def test_params_are_set_got_explained_and_copied(df: Any) -> None:
    stage = TensorTransformer()
    assert stage.program is None
    assert stage.explainParams().splitlines() == [
        "blockRows: rows of a block; None: as they come. (default: None)",
        "device: where the program runs: auto, cpu or gpu. (default: auto)",
        "feedDict: input -> column or feed, instead of inputCols. (undefined)",
        "inputCols: input column names. (undefined)",
        "outputCols: output column names. (undefined)",
    ]
    assert stage.setParams(program=subtract, inputCols=["y", "x"], blockRows=7) is stage
    assert stage.setParams(outputCols=["a", "b"], device="cpu") is stage
    assert (stage.getInputCols(), stage.getOutputCols(), stage.getBlockRows(), stage.getDevice()) == (["y", "x"], ["a", "b"], 7, "cpu")
    assert repr(stage.program) == "Program(x: float64[?], y: float64[?]) -> (less: float64[?], more: float64[?])"
    assert "blockRows: rows of a block; None: as they come. (default: None, current: 7)" in stage.explainParams()
    copied = stage.copy({stage.inputCols: ["x", "y"], stage.blockRows: None})
    assert (copied.uid, copied.program, copied.getInputCols(), copied.getBlockRows()) == (stage.uid, stage.program, ["x", "y"], None)
    assert (stage.getInputCols(), stage.getBlockRows()) == (["y", "x"], 7)
    assert values(copied.transform(df), "a") == [-1.0, -2.0]
    copied.setProgram(turned())
    assert list(stage.program.outputs) == ["less", "more"]
    assert stage.setInputCols(None).setFeedDict({"x": "y"}).getFeedDict() == {"x": "y"}
    assert not stage.isSet(stage.inputCols)
    assert stage.setOutputCols(["c", "d"]).setDevice("auto").setBlockRows(3).getOutputCols() == ["c", "d"]


@cases(
    ExpectFail(
        {"inputCols": "x"},
        TypeError,
        'Invalid param value given for param "inputCols". Could not convert x to list of strings',
        "one name",
    ),
    ExpectFail(
        {"feedDict": {"x": 1.0}},
        TypeError,
        "Invalid param value given for param \"feedDict\". Could not convert {'x': 1.0} to dict of strings to columns or feeds",
        "a constant",
    ),
    ExpectFail(
        {"feedDict": ["x"]},
        TypeError,
        "Invalid param value given for param \"feedDict\". Could not convert ['x'] to dict of strings to columns or feeds",
        "a list",
    ),
    ExpectFail({"blockRows": 1.5}, TypeError, 'Invalid param value given for param "blockRows". Could not convert 1.5 to int', "rows"),
    ExpectFail(
        {"program": lambda x: x},
        tfs.ProgramError,
        "TensorTransformer: the lambda says nothing of the type of input 'x'.\n"
        "  Pass a frame, or signature={'x': tf.TensorSpec(shape, dtype)}, to tfs.program.",
        "no types",
    ),
    ExpectFail(
        {"program": 3},
        tfs.ProgramError,
        "TensorTransformer: the fetches are a int; wanted is a function, a tf.function, a ConcreteFunction, a v1 tensor or its name, a "
        "Keras model, a Program or its file, or a dict or list of these.",
        "no program",
    ),
)
def test_arguments_that_are_refused(case: ExpectFail) -> None:
    check_refused(lambda: TensorTransformer(**case.input), case.error, case.message)


COLUMNS = "x: float64[?], y: float64[?], v: float64[?, ?]"


@pytest.mark.spark
@cases(
    ExpectFail({}, tfs.ProgramError, "TensorTransformer: the stage stage has no program.\n  Give it one: setProgram(…).", "no program"),
    ExpectFail(
        {"program": subtract, "inputCols": ["x"], "feedDict": {"y": "x"}},
        tfs.ProgramError,
        "TensorTransformer: inputCols and feedDict are both set, but one of them is wanted.\n  Unset the other: setFeedDict(None).",
        "both",
    ),
    ExpectFail(
        {"program": subtract, "inputCols": ["x", "y", "x"]},
        tfs.ProgramError,
        "TensorTransformer: inputCols names 3 columns for 2 inputs.\n  names:  x, y, x\n  inputs: x, y",
        "too many columns",
    ),
    ExpectFail(
        {"program": subtract, "feedDict": {"q": "x"}},
        tfs.ProgramError,
        "TensorTransformer: feedDict feeds an input 'q' that the program does not have.\n  inputs: x, y",
        "another input",
    ),
    ExpectFail(
        {"program": subtract, "outputCols": ["a"]},
        tfs.ProgramError,
        "TensorTransformer: outputCols has 1 names for 2 outputs.\n  names:   a\n  outputs: less, more",
        "too few names",
    ),
    ExpectFail(
        {"program": subtract, "outputCols": ["a", "a"]},
        tfs.ProgramError,
        "TensorTransformer: outputCols names 'a' more than once.\n  names: a, a",
        "one name twice",
    ),
    ExpectFail(
        {"program": subtract, "inputCols": ["x", "q"]},
        tfs.ColumnError,
        "TensorTransformer: input 'y' wants a column 'q', but the frame has none of that name.\n"
        f"  inputs:  x, y\n  columns: {COLUMNS}\n"
        "  Feed it from another column: setInputCols([…]) or setFeedDict({'y': …}).",
        "no such column",
    ),
    ExpectFail(
        {"program": subtract, "outputCols": ["a", "V"]},
        tfs.ColumnError,
        "TensorTransformer: output 'V' has the name of a column.\n"
        f"  outputs: a, V\n  columns: {COLUMNS}\n"
        "  Name the outputs: setOutputCols([…]).",
        "a column's name",
    ),
    ExpectFail(
        {"program": subtract, "inputCols": ["v"]},
        tfs.ShapeError,
        "map_blocks: input 'x' wants float64[?] but column 'v' holds float64[?, ?].\n"
        f"  inputs:  x: float64[?], y: float64[?]\n  columns: {COLUMNS}\n"
        "  The program takes one row; map_rows maps it over rows.",
        "another shape",
    ),
    ExpectFail(
        {"program": subtract, "device": "tpu"},
        tfs.ProgramError,
        "map_blocks: device is 'tpu', but one of 'auto', 'cpu', 'gpu' is wanted.",
        "a device",
    ),
    ExpectFail(
        {"program": subtract, "blockRows": 0},
        tfs.ProgramError,
        "map_blocks: block_rows is 0, but a positive integer or None is wanted.",
        "no rows",
    ),
)
def test_stages_that_are_refused_before_anything_runs(case: ExpectFail, df: Any) -> None:
    stage = TensorTransformer(**case.input)._resetUid("stage")
    check_refused(lambda: stage.transform(df), case.error, case.message)
    check_refused(lambda: stage.transformSchema(df.schema), case.error, case.message)


@pytest.mark.spark
@pytest.mark.classic
def test_the_schema_is_known_without_a_job(df: Any, spark: Any) -> None:
    spark.sparkContext.setJobGroup("schema", "")
    for stage in (TensorTransformer(program=subtract), TensorTransformer(program=turned(), outputCols=["w"], inputCols=["v"])):
        made = stage.transform(df).schema
        check_same(stage.transformSchema(df.schema), made)
        assert [field.metadata for field in stage.transformSchema(df.schema)] == [field.metadata for field in made]
    vectors = T.StructType([T.StructField("v", VectorUDT())])
    assert stage.transformSchema(vectors)["w"].dataType == VectorUDT()
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("schema")) == []
    spark.sparkContext.setJobGroup("", "")


# --- files ---

LOAD = """
import json, sys
from pyspark.ml import PipelineModel
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
model = PipelineModel.load(sys.argv[1])
frame = spark.createDataFrame([(0.5, 2.0), (3.0, -1.0)], "a double, b double")
print(json.dumps([[row.turned.tolist(), row.prediction] for row in model.transform(frame).collect()]))
spark.stop()
"""


@pytest.fixture(scope="module")
def points(spark: Any) -> Any:
    """Give 30 labelled points: the label is 1 where b > 0."""
    rng = np.random.default_rng(0)
    rows = [(float(a), float(b), float(b > 0)) for a, b in rng.normal(size=[30, 2])]
    return spark.createDataFrame(rows, "a double, b double, label double").coalesce(1).cache()


def stages() -> list[Any]:
    assembler = VectorAssembler(inputCols=["a", "b"], outputCol="v")
    return [assembler, TensorTransformer(program=turned()), LogisticRegression(featuresCol="turned", maxIter=5)]


@pytest.mark.spark
def test_a_stage_comes_back_as_it_was(df: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "a stage")
    program = tfs.program(
        lambda y, x: {"b": tf.as_string(y), "a": tf.stack([x, y], 1)}, signature={"y": DOUBLES, "x": DOUBLES}, binary="b", vector="a"
    )
    stage = TensorTransformer(program=program, inputCols=["x", "y"], outputCols=["text", "pair"], blockRows=5, device="cpu")
    stage.save(path)
    assert sorted(os.listdir(path)) == ["metadata", "program"]
    loaded = TensorTransformer.load(path)
    assert (loaded.uid, loaded.explainParams()) == (stage.uid, stage.explainParams())
    assert (loaded.program.inputs, loaded.program.outputs) == (program.inputs, program.outputs)
    assert (list(loaded.program.inputs), list(loaded.program.outputs)) == (["y", "x"], ["b", "a"])
    assert (loaded.program.binary, loaded.program.vector) == ({"b"}, {"a"})
    check_same(loaded.transform(df).schema, stage.transform(df).schema)
    assert loaded.transform(df).collect() == stage.transform(df).collect()
    assert loaded.copy().setParams(blockRows=6).getBlockRows() == 6


@pytest.mark.spark
def test_feeds_are_params_that_come_back(spark: Any, tmp_path: Path) -> None:
    def f(x: DOUBLES, t: tf.TensorSpec([None, None], tf.int64), s: tf.TensorSpec([None], tf.string), s_mask: tf.TensorSpec([None], bool)):
        return {"z": x + tf.reduce_sum(tf.cast(t, tf.float64), axis=1), "text": tf.where(s_mask, s, "none")}

    lacking = spark.createDataFrame([(1, [1, 2], "a"), (None, [3], None), (3, None, "c")], "x int, t array<long>, s string").coalesce(1)
    feeds = {"x": tfs.feed("x", nulls=0.5, dtype="float64"), "t": tfs.feed("t", nulls="skip", pad=0), "s": tfs.feed("s", nulls="mask")}
    stage = TensorTransformer(program=f, feedDict=feeds)
    wanted = [(4.0, "a"), (3.5, "none"), (None, None)]
    assert [(row.z, row.text) for row in stage.transform(lacking).collect()] == wanted
    assert stage.copy().getFeedDict() == feeds
    stage.save(tmp_path / "stage")
    loaded = TensorTransformer.load(tmp_path / "stage")
    assert loaded.getFeedDict() == feeds
    assert [(row.z, row.text) for row in loaded.transform(lacking).collect()] == wanted
    words = {"s": tfs.feed("s", nulls=b"\xff"), "x": "x", "t": tfs.feed("t", pad=3)}
    stage.setFeedDict(words).write().overwrite().save(tmp_path / "stage")
    assert TensorTransformer.load(tmp_path / "stage").getFeedDict() == words


@pytest.mark.spark
def test_a_compiled_program_comes_back_compiled(df: Any, tmp_path: Path) -> None:
    program = tfs.program(lambda x: {"z": 2 * x}, signature={"x": DOUBLES}, jit_compile=True)
    TensorTransformer(program=program).save(str(tmp_path / "stage"))
    loaded = TensorTransformer.load(str(tmp_path / "stage"))
    assert loaded.program.is_compiled
    assert values(loaded.transform(df), "z") == [2.0, 6.0]


@pytest.mark.spark
def test_paths_and_what_is_not_set(df: Any, tmp_path: Path) -> None:
    stage = TensorTransformer(program=subtract, feedDict={"x": "y"})
    stage.setBlockRows(None).write().save(f"file:{tmp_path}/uri")
    loaded = TensorTransformer.read().load(f"file://{tmp_path}/uri")
    assert (loaded.getFeedDict(), loaded.getBlockRows(), loaded.isSet(loaded.inputCols)) == ({"x": "y"}, None, False)
    stage.write().save(tmp_path / "path")
    assert values(TensorTransformer.read().load(tmp_path / "path").transform(df), "less") == [0.0, 0.0]


@pytest.mark.spark
@pytest.mark.classic
def test_another_file_system(df: Any, spark: Any, tmp_path: Path) -> None:
    configuration = spark._jsc.hadoopConfiguration()
    configuration.set("fs.viewfs.mounttable.stages.link./data", tmp_path.as_uri())
    stage = TensorTransformer(program=subtract)
    for _ in range(2):
        stage.write().overwrite().save("viewfs://stages/data/stage")
    loaded = TensorTransformer.load("viewfs://stages/data/stage")
    assert values(loaded.transform(df), "more") == [3.0, 8.0]
    assert sorted(os.listdir(tmp_path / "stage")) == ["metadata", "program"]


@pytest.mark.spark
def test_a_stage_is_replaced_only_if_asked(df: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "stage")
    TensorTransformer(program=subtract).save(path)
    again = TensorTransformer(program=turned())
    message = f"save: there is something at {path!r} already.\n  Replace it: write().overwrite().save(path)."
    check_refused(lambda: again.save(path), tfs.ProgramError, message)
    ragged = tfs.program(lambda x: {"z": x.row_lengths()}, signature={"x": tf.RaggedTensorSpec([None, None], tf.int64)})
    message = "save: 'x' is ragged int64[?, ?], but a SavedModel's signature has dense tensors only."
    check_refused(lambda: TensorTransformer(program=ragged).write().overwrite().save(path), tfs.ProgramError, message)
    assert list(TensorTransformer.load(path).program.outputs) == ["less", "more"], "what cannot be written replaces nothing"
    again.write().overwrite().save(path)
    assert list(TensorTransformer.load(path).program.outputs) == ["turned"]


def newer(path: Path, spark: Any) -> None:
    stage = TensorTransformer(program=subtract)
    DefaultParamsWriter.saveMetadata(stage, str(path), spark, extraMetadata={"tensorframesFormat": 2})


def other(path: Path, spark: Any) -> None:
    VectorAssembler(inputCols=["a"], outputCol="v").save(str(path))


def without_format(path: Path, spark: Any) -> None:
    DefaultParamsWriter.saveMetadata(TensorTransformer(), str(path), spark)


def without_program(path: Path, spark: Any) -> None:
    DefaultParamsWriter.saveMetadata(TensorTransformer(), str(path), spark, extraMetadata={"tensorframesFormat": 1})


@pytest.mark.spark
@cases(
    ExpectFail(lambda path, spark: None, tfs.ProgramError, "load: there is no TensorTransformer at {path!r}.", "nothing"),
    ExpectFail(
        newer,
        tfs.ProgramError,
        "load: {path!r} was written by a newer version of TensorFrames (format 2; this one reads up to 1).",
        "a newer format",
    ),
    ExpectFail(
        other,
        tfs.ProgramError,
        "load: there is no TensorTransformer at {path!r}, but a org.apache.spark.ml.feature.VectorAssembler.",
        "another stage",
    ),
    ExpectFail(
        without_format,
        tfs.ProgramError,
        "load: the TensorTransformer at {path!r} is damaged: its metadata has no format number.",
        "no format",
    ),
    ExpectFail(
        without_program,
        tfs.ProgramError,
        "load: the TensorTransformer at {path!r} is damaged: '{path}/program' is missing.",
        "no program",
    ),
)
def test_what_cannot_be_loaded(case: ExpectFail, spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "stage")
    write: Callable[[Path, Any], None] = case.input
    write(Path(path), spark)
    check_refused(lambda: TensorTransformer.load(path), case.error, case.message.replace("{path!r}", repr(path)).replace("{path}", path))


@pytest.mark.spark
def test_what_cannot_be_saved(spark: Any, tmp_path: Path) -> None:
    stage = TensorTransformer()._resetUid("stage")
    check_refused(lambda: stage.save("x"), tfs.ProgramError, "save: the stage stage has no program.\n  Give it one: setProgram(…).")


LAYOUTS = {"directory": HadoopStorage, "table": TableStorage}


@pytest.mark.spark
@pytest.mark.classic
@pytest.mark.parametrize("reads", LAYOUTS)
@pytest.mark.parametrize("writes", LAYOUTS)
def test_sessions_of_both_kinds_read_what_either_wrote(
    writes: str, reads: str, df: Any, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables are all that Connect reads and writes; a classic session can do the same."""
    monkeypatch.setattr(storage, "_PART_BYTES", 1000)
    monkeypatch.setattr(files, "storage", LAYOUTS[writes])
    path = f"{tmp_path}/a stage"
    TensorTransformer(program=turned()).save(path)
    TensorTransformer(program=subtract).write().overwrite().save(path)
    program = Path(path, "program")
    assert (program / "saved_model.pb").exists() is (writes == "directory")
    if writes == "directory":
        assert list(tfs.load_program(program).outputs) == ["less", "more"]
    monkeypatch.setattr(files, "storage", LAYOUTS[reads])
    assert values(TensorTransformer.load(path).transform(df), "more") == [3.0, 8.0]
    message = f"save: there is something at {path!r} already.\n  Replace it: write().overwrite().save(path)."
    check_refused(lambda: TensorTransformer(program=subtract).save(path), tfs.ProgramError, message)
    check_refused(lambda: TensorTransformer.load(f"{path}s"), tfs.ProgramError, f"load: there is no TensorTransformer at {path + 's'!r}.")


@pytest.mark.spark
def test_files_are_read_as_they_were_written(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_PART_BYTES", 1000)
    contents = {
        "saved_model.pb": b"model",
        "variables/variables.data": bytes(range(256)) * 10,
        "variables/exact": bytes(1000),
        "assets/empty": b"",
        "assets/saved_model.pb": b"within",
        "assets/a b+é%20.txt": b"name",
    }
    for name, content in contents.items():
        (tmp_path / "written" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "written" / name).write_bytes(content)
    tables = TableStorage(spark)
    tables.write(str(tmp_path / "written"), str(tmp_path / "table"))
    for found in (storage.table_files(spark, str(tmp_path / "table")), tables.directory(str(tmp_path / "written"))):
        with found as folder:
            held = {str(file.relative_to(folder)): file.read_bytes() for file in Path(folder).rglob("*") if file.is_file()}
        assert held == contents


@pytest.mark.spark
@pytest.mark.classic
@pytest.mark.slow
def test_a_pipeline_is_saved_and_loaded_in_another_process(points: Any, spark: Any, tmp_path: Path) -> None:
    model = Pipeline(stages=stages()).fit(points)
    made = model.transform(points)
    assert made.schema["turned"].dataType == VectorUDT()
    predicted = values(made, "prediction")
    model.write().overwrite().save(str(tmp_path / "model"))
    assert not [path for path in tmp_path.rglob("*") if b"cloudpickle" in (path.read_bytes() if path.is_file() else b"")]
    assert values(PipelineModel.load(str(tmp_path / "model")).transform(points), "prediction") == predicted
    ran = subprocess.run([sys.executable, "-c", LOAD, str(tmp_path / "model")], capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == [[[-2.0, 0.5], 1.0], [[1.0, 3.0], 0.0]]


@pytest.mark.spark
def test_a_pipeline_that_is_not_fitted_is_saved_and_loaded(tmp_path: Path) -> None:
    pipeline = Pipeline(stages=stages())
    pipeline.save(str(tmp_path / "pipeline"))
    loaded = Pipeline.load(str(tmp_path / "pipeline")).getStages()
    assert [stage.uid for stage in loaded] == [stage.uid for stage in pipeline.getStages()]
    assert loaded[1].program.outputs == turned().outputs


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed running multiprocessing pool:ResourceWarning")  # it is PySpark's
def test_a_cross_validator_tunes_what_follows_and_the_stage_itself(points: Any, tmp_path: Path) -> None:
    assembler, stage, regression = stages()
    grid = ParamGridBuilder().addGrid(regression.regParam, [0.0, 0.1]).addGrid(stage.blockRows, [None]).build()
    validator = CrossValidator(
        estimator=Pipeline(stages=[assembler, stage, regression]),
        estimatorParamMaps=grid,
        evaluator=BinaryClassificationEvaluator(),
        numFolds=2,
        seed=1,
    )
    found = validator.fit(points)
    gc.collect()  # here, where the pool of threads may stay open
    assert len(found.avgMetrics) == 2
    assert min(found.avgMetrics) > 0.9
    made = values(found.transform(points), "prediction")
    assert sum(held == wanted for held, wanted in zip(made, values(points, "label"), strict=True)) >= 27
    found.save(str(tmp_path / "tuned"))
    assert values(CrossValidatorModel.load(str(tmp_path / "tuned")).transform(points), "prediction") == made
