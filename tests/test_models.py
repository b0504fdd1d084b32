"""Keras models, SavedModels, Keras' files and frozen graphs as fetches; lookup tables; Program.save."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from expectations import ExpectFail, cases, check, check_refused
from tensorflow.core.protobuf import saved_model_pb2

import tensorframes as tfs
from tensorframes import calls, graphdefs
from tensorframes.programs import load

TABLE = pa.table(
    {
        "features": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]],
        "a": pa.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], pa.list_(pa.float32())),
        "b": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32())),
        "word": ["a", "zz", "b"],
    }
)
FEATURES = np.array(TABLE["features"].to_pylist())


@keras.saving.register_keras_serializable("tests")
class Shift(keras.layers.Layer):
    """A custom layer."""

    def build(self, shape):
        self.shift = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, inputs):
        return inputs + self.shift


class Doubler(keras.Model):
    """A subclassed model with an input of its own name."""

    def __init__(self):
        super().__init__(name="doubler")
        self.shift = Shift()

    def call(self, x, training=False):
        return 3.0 * x if training else 2.0 * self.shift(x)


def sequential() -> Any:
    layers = [keras.layers.Input((3,)), Shift(), keras.layers.Dense(2), keras.layers.BatchNormalization(), keras.layers.Dropout(0.9)]
    return keras.Sequential(layers, name="net")


def two_by_two(as_dict: bool) -> Any:
    a, b = keras.Input((3,), name="a"), keras.Input((2,), name="b", dtype="int32")
    one = keras.layers.Dense(1, name="one")(a)
    two = keras.layers.Dense(1, name="two")(keras.ops.concatenate([a, keras.ops.cast(b, "float32")], axis=1))
    return keras.Model({"a": a, "b": b}, {"s": one, "t": two}) if as_dict else keras.Model([a, b], [one, two])


def lookup() -> Any:
    word = keras.Input((), dtype="string", name="word")
    return keras.Model(word, keras.layers.StringLookup(vocabulary=["a", "b"])(word), name="index")


def column(table: pa.Table, name: str) -> np.ndarray:
    return np.array(table[name].to_pylist())


# --- Keras ---


def test_a_model_is_fed_by_position_and_gives_a_column_of_its_name() -> None:
    model = sequential()
    held = column(tfs.map_blocks(model, TABLE, "features"), "net")
    np.testing.assert_allclose(held, model(FEATURES, training=False), rtol=1e-6)


def test_a_model_on_spark(spark: Any) -> None:
    model, index = sequential(), lookup()
    df = spark.createDataFrame(TABLE.to_pandas()[["word", "features"]].assign(features=TABLE["features"].to_pylist()))
    rows = tfs.map_blocks(index, tfs.map_blocks(model, df, "features")).collect()
    assert [row["index"] for row in rows] == [1, 0, 2]
    np.testing.assert_allclose([row.net for row in rows], model(FEATURES, training=False), rtol=1e-6)


@pytest.mark.parametrize("as_dict", [True, False], ids=["by dict", "by list"])
def test_several_inputs_and_outputs(as_dict: bool) -> None:
    model = two_by_two(as_dict)
    given = [np.array(TABLE[name].to_pylist(), kind) for name, kind in (("a", "float32"), ("b", "int32"))]
    wanted = model({"a": given[0], "b": given[1]} if as_dict else given)
    held = tfs.map_blocks(model, TABLE)
    assert held.column_names[4:] == (["s", "t"] if as_dict else ["one", "two"])
    for name, value in zip(held.column_names[4:], wanted.values() if as_dict else wanted, strict=True):
        np.testing.assert_allclose(column(held, name), value, rtol=1e-6)


def test_a_subclassed_model_is_fed_by_the_parameters_of_its_call() -> None:
    model = Doubler()
    model(tf.zeros([1, 3]))
    assert tfs.map_blocks(model, TABLE, {"x": "a"})["doubler"].to_pylist()[0] == [4.0, 6.0, 8.0]
    assert tfs.map_blocks({"z": model}, TABLE, "a")["z"].to_pylist()[2] == [16.0, 18.0, 20.0]


def test_a_model_inside_a_function() -> None:
    model = sequential()
    wanted = np.asarray(model(FEATURES, training=False)).sum(axis=1)
    for function in (
        lambda features: {"z": tf.reduce_sum(model(features), 1)},
        tf.function(lambda features: {"z": tf.reduce_sum(model(features), 1)}),
    ):
        np.testing.assert_allclose(column(tfs.map_blocks(function, TABLE), "z"), wanted, rtol=1e-6)


def test_lookup_tables_travel_as_values() -> None:
    model = lookup()
    assert tfs.map_blocks(model, TABLE)["index"].to_pylist() == [1, 0, 2]
    layer = keras.layers.TextVectorization()
    layer.adapt(["a b", "b"])
    assert tfs.map_blocks(lambda word: {"z": layer(word)}, TABLE)["z"].to_pylist() == [[3], [1], [2]]
    assert tfs.map_rows(lambda word: {"z": layer(word[None])[0]}, TABLE)["z"].to_pylist() == [[3], [1], [2]]
    program = tfs.program(model)
    assert program.digest == tfs.program(lookup()).digest
    assert pickle.loads(pickle.dumps(program))(["b", "x"]).numpy().tolist() == [2, 0]
    other = keras.layers.StringLookup(vocabulary=["b", "a"])
    assert tfs.program(lambda word: other(word), frame=TABLE).digest != tfs.program(lambda word: model(word), frame=TABLE).digest


@cases(
    ExpectFail(
        lambda: tfs.map_blocks(Doubler(), TABLE, "a"),
        tfs.ProgramError,
        "map_blocks: the Keras model 'doubler' is not built, so that it has no weights.\n  Call it once, or give it an Input.",
        "a model that is not built",
    ),
    ExpectFail(
        lambda: tfs.map_blocks(sequential(), TABLE, "word"),
        tfs.DTypeError,
        "map_blocks: input 'INPUT' wants float32[?, 3] but column 'word' holds string[?].\n"
        "  inputs:  INPUT: float32[?, 3]\n"
        "  columns: features: float64[?, ?], a: float32[?, ?], b: int32[?, ?], word: string[?]\n"
        "  Cast the column, or feed another one with feed_dict={'INPUT': …}.",
        "a column of another type",
    ),
    ExpectFail(
        lambda: tfs.load_program("/nowhere/model"), tfs.ProgramError, "load_program: there is no program at '/nowhere/model'.", "no file"
    ),
)
def test_models_that_are_refused(case: ExpectFail) -> None:
    def call(make: Any) -> Any:
        try:
            return make()
        except tfs.TensorFramesError as error:  # Keras numbers the names of its inputs
            name = error.summary.partition("input '")[2].partition("'")[0]
            text = str(error).replace(name, "INPUT") if name.startswith("keras_tensor") else str(error)
            raise type(error)(text) from error

    check(call, case)


# --- Files ---


def test_files_of_keras(tmp_path: Path) -> None:
    model = sequential()
    wanted = np.asarray(model(FEATURES, training=False))
    for name in ("net.keras", "net.h5"):
        model.save(tmp_path / name)
        for fetches in (str(tmp_path / name), tmp_path / name, tfs.load_program(tmp_path / name)):
            np.testing.assert_allclose(column(tfs.map_blocks(fetches, TABLE, "features"), "net"), wanted, rtol=1e-6)


def test_custom_objects_and_safe_mode(tmp_path: Path) -> None:
    class Unregistered(keras.layers.Layer):
        def call(self, inputs):
            return 2 * inputs

    keras.Sequential([keras.layers.Input((3,)), Unregistered()], name="net").save(tmp_path / "custom.keras")
    program = tfs.load_program(tmp_path / "custom.keras", custom_objects={"Unregistered": Unregistered})
    assert tfs.map_blocks(program, TABLE, "features")["net"].to_pylist()[0] == [2.0, 4.0, 6.0]
    with pytest.raises(tfs.ProgramError, match=r"(?s)^load_program: Keras cannot load .*Unregistered"):
        tfs.load_program(tmp_path / "custom.keras")
    keras.Sequential([keras.layers.Input((3,)), keras.layers.Lambda(lambda x: x + 1)], name="net").save(tmp_path / "code.keras")
    with pytest.raises(tfs.ProgramError, match=r"(?s)^load_program: Keras cannot load .*safe_mode"):
        tfs.load_program(tmp_path / "code.keras")
    program = tfs.load_program(tmp_path / "code.keras", safe_mode=False)
    assert tfs.map_blocks(program, TABLE, "features")["net"].to_pylist()[0] == [2.0, 3.0, 4.0]


def exported(model: Any, path: Path) -> Path:
    model.export(path, verbose=False)
    return path


@pytest.mark.parametrize("older", [False, True], ids=["as it is", "by the loader of TensorFlow 1"])
def test_saved_models(older: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, words = exported(two_by_two(False), tmp_path / "net"), exported(lookup(), tmp_path / "words")
    wanted = tf.saved_model.load(net).signatures["serving_default"](
        a=tf.constant(TABLE["a"].to_pylist()), b=tf.constant(TABLE["b"].to_pylist(), tf.int32)
    )
    if older:  # as it refuses what Keras 2 wrote with an optimizer

        def refuse(path: Any) -> Any:
            raise AttributeError("'_UserObject' object has no attribute 'add_slot'")

        monkeypatch.setattr(tf.saved_model, "load", refuse)
    held = tfs.map_blocks(net, TABLE)
    for name, value in wanted.items():
        np.testing.assert_allclose(column(held, name), value, rtol=1e-6)
    assert tfs.map_blocks(str(words), TABLE)["output_0"].to_pylist() == [1, 0, 2]


def test_a_signature_is_chosen_by_name(tmp_path: Path) -> None:
    module = tf.Module()
    module.double = tf.function(lambda x: {"z": 2 * x}, input_signature=[tf.TensorSpec([None], tf.float64, "x")])
    module.negate = tf.function(lambda x: {"z": -x}, input_signature=[tf.TensorSpec([], tf.float64, "x")])
    tf.saved_model.save(module, tmp_path, {"double": module.double, "negate": module.negate})
    frame = pa.table({"x": [1.0, 2.0]})
    assert tfs.map_blocks(tfs.load_program(tmp_path, signature="double"), frame)["z"].to_pylist() == [2.0, 4.0]
    assert tfs.map_rows(tfs.load_program(tmp_path, signature="negate"), frame)["z"].to_pylist() == [-1.0, -2.0]
    for wanted, said in (("triple", "no signature 'triple'"), (None, "no signature 'serving_default'")):
        message = f"load_program: the SavedModel {str(tmp_path)!r} has {said}.\n  signatures: double, negate"
        check_refused(lambda wanted=wanted: tfs.load_program(tmp_path, signature=wanted), tfs.ProgramError, message)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_saved_model_of_tensorflow_1(tmp_path: Path) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        x = v1.placeholder(tf.float32, [None], "x")
        y = tf.multiply(x, v1.get_variable("w", initializer=2.5), name="y")
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(tmp_path / "v1"), inputs={"given": x}, outputs={"found": y})
    assert tfs.map_blocks(tmp_path / "v1", pa.table({"given": pa.array([1, 2], pa.float32())}))["found"].to_pylist() == [2.5, 5.0]


def test_a_frozen_graph(tmp_path: Path) -> None:
    path = tmp_path / "graph.pb"
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float64, [None], "x")
        half = tf.divide(x, 2.0, name="half")
        tf.add(half, 1.0, name="z")
        path.write_bytes(graph.as_graph_def().SerializeToString())
    frame = pa.table({"x": [2.0, 4.0]})
    assert tfs.map_blocks(path, frame)["z"].to_pylist() == [2.0, 3.0]
    program = tfs.load_program(path, outputs=["half", "z:0"])
    assert repr(program) == "Program(x: float64[?]) -> (half: float64[?], z: float64[?])"
    path.write_bytes(b"no graph")
    with pytest.raises(tfs.ProgramError, match=r"^map_blocks: .* holds no frozen graph"):
        tfs.map_blocks(path, frame)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    weight = tf.Variable([[2.0], [3.0]], dtype=tf.float64)
    program = tfs.program(
        lambda v, s: {"z": v @ weight + tf.constant([[1.0]], tf.float64), "s": tf.strings.upper(s)},
        signature={"v": tf.TensorSpec([None, 2], tf.float64), "s": tf.TensorSpec([None], tf.string)},
    )
    program.save(tmp_path / "linear")
    again = tfs.load_program(tmp_path / "linear")
    assert (again.inputs, again.outputs) == (program.inputs, program.outputs)
    found = again(v=[[1.0, 1.0]], s=["é"])
    assert (found["z"].numpy().tolist(), found["s"].numpy().tolist()) == ([[6.0]], ["é".encode()])
    served = tf.saved_model.load(tmp_path / "linear").signatures["serving_default"]
    assert served(v=tf.constant([[1.0, 1.0]], tf.float64), s=tf.constant(["a"]))["z"].numpy().tolist() == [[6.0]]
    tfs.program(lookup()).save(tmp_path / "words")
    assert tfs.map_blocks(tmp_path / "words", TABLE)["index"].to_pylist() == [1, 0, 2]
    ragged = tfs.program(lambda x: {"z": x}, signature={"x": tf.RaggedTensorSpec([None, None], tf.int64)})
    message = "save: 'x' is ragged int64[?, ?], but a SavedModel's signature has dense tensors only."
    check_refused(lambda: ragged.save(tmp_path / "ragged"), tfs.ProgramError, message)


def test_a_name_in_the_default_graph_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "z").mkdir()
    with tf.Graph().as_default():
        x = tfs.block(pa.table({"x": [1.0]}), "x")
        tf.add(x, 1.0, name="z")
        assert tfs.map_blocks("z", pa.table({"x": [1.0]}))["z"].to_pylist() == [2.0]


# --- XLA ---


NUMBERS = pa.table({"x": [float(i) for i in range(7)], "k": [1, 1, 2, 2, 1, 1, 2], "v": [[float(i), 1.0] for i in range(7)]})


def compiled(function: Any, **options: Any) -> tfs.Program:
    return tfs.program(function, frame=NUMBERS, jit_compile=True, **options)


def test_compiled_by_xla() -> None:
    program = tfs.program(lambda a: {"z": 2 * a}, frame=TABLE, jit_compile=True)
    assert tfs.map_blocks(program, TABLE)["z"].to_pylist()[0] == [2.0, 4.0, 6.0]
    assert program.digest != tfs.program(lambda a: {"z": 2 * a}, frame=TABLE).digest
    assert program(np.ones((1, 3), np.float32))["z"].numpy().tolist() == [[2.0, 2.0, 2.0]]


@pytest.mark.parametrize(("block_rows", "sizes"), [(None, {1, 2, 4, 8}), (6, {1, 2, 4, 6}), (4, {1, 2, 4})])
def test_blocks_are_padded_to_few_sizes_for_xla(block_rows: int | None, sizes: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()

    def loaded(program: tfs.Program, device: str = "") -> Any:
        held = load(program, device)

        def call(tensors: Sequence[tf.Tensor]) -> Any:
            seen.update(len(tensor) for tensor in tensors if program.is_compiled)
            return held(tensors)

        return call

    monkeypatch.setattr(calls, "load", loaded)
    program = compiled(lambda x, v: {"z": x + v[:, 1], "w": v * 2})
    assert program.is_compiled
    for rows in range(1, 8):
        given = tfs.map_blocks(program, NUMBERS.slice(7 - rows), block_rows=block_rows)
        assert given["z"].to_pylist() == [float(i + 1) for i in range(7 - rows, 7)]
        assert given["w"].to_pylist() == [[2.0 * i, 2.0] for i in range(7 - rows, 7)]
    assert seen == sizes


@pytest.mark.parametrize("rows", range(1, 8))
def test_compiled_rows_and_folds_do_what_others_do(rows: int) -> None:
    table = NUMBERS.slice(0, rows)
    cell = {"v": tf.TensorSpec([2], tf.float64)}
    total = tfs.program(lambda v: {"s": tf.reduce_sum(v)}, signature=cell, jit_compile=True)
    assert tfs.map_rows(total, table)["s"].to_pylist() == [i + 1.0 for i in range(rows)]
    pairs = {name: tf.TensorSpec([], tf.float64) for name in ("x_1", "x_2")}
    larger = tfs.program(lambda x_1, x_2: {"x": tf.maximum(x_1, x_2)}, signature=pairs, jit_compile=True)
    assert tfs.reduce_rows(larger, table) == {"x": rows - 1.0}
    spread = compiled(lambda x: {"x": tf.reduce_max(x, axis=0) + 0 * tf.reduce_min(x, axis=0)})
    keys = table["k"].to_pylist()
    given = tfs.aggregate(spread, table, by="k")
    assert dict(zip(given["k"].to_pylist(), given["x"].to_pylist(), strict=True)) == {
        key: max(float(i) for i in range(rows) if keys[i] == key) for key in set(keys)
    }


def test_a_compiled_program_keeps_its_skipped_rows_and_masks() -> None:
    table = pa.table({"x": [1.0, None, 3.0, None, 5.0]})
    program = tfs.program(lambda x: {"z": x + 1}, frame=table, jit_compile=True)
    assert tfs.map_blocks(program, table, tfs.feed("x", nulls="skip"))["z"].to_pylist() == [2.0, None, 4.0, None, 6.0]
    masked = tfs.program(
        lambda x, x_mask: {"z": tf.where(x_mask, x, -1.0)}, frame=table, feed_dict={"x": tfs.feed("x", nulls="mask")}, jit_compile=True
    )
    assert tfs.map_blocks(masked, table, {"x": tfs.feed("x", nulls="mask")})["z"].to_pylist() == [1.0, -1.0, 3.0, -1.0, 5.0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - tf.reduce_mean(x),
        lambda x: tf.reverse(x, [0]),
        lambda x: tf.argsort(x, direction="DESCENDING"),
        lambda x: tf.fill(tf.shape(x), tf.shape(x)[0]),
        lambda x: tf.concat([x[1:], x[:1]], 0),
    ],
    ids=["a mean", "a reversal", "an order", "a count", "a neighbour"],
)
def test_a_compiled_program_that_looks_across_rows_is_refused(function: Any) -> None:
    plain = tfs.program(lambda x: {"z": function(x)}, frame=NUMBERS)
    fast = tfs.program(plain, jit_compile=True)
    check_refused(
        lambda: tfs.map_blocks(fast, NUMBERS),
        tfs.ProgramError,
        "map_blocks: output 'z' of the compiled program is not what it is without compiler: its rows depend on those that pad blocks.\n"
        "  Make the program without jit_compile.",
    )
    whole = pa.concat_tables([NUMBERS, NUMBERS.slice(0, 1)]).combine_chunks()  # eight rows, which nothing pads
    assert tfs.map_blocks(fast, whole)["z"].to_pylist() == pytest.approx(tfs.map_blocks(plain, whole)["z"].to_pylist())


def test_what_is_compared_once_is_not_compared_again_and_what_is_random_never(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    check = calls._check_same

    def noting(*given: Any) -> None:
        compared.append(given[0].program.digest)
        check(*given)

    monkeypatch.setattr(calls, "_check_same", noting)
    program = compiled(lambda x: {"z": x * 1.5 + 11})
    for _ in range(2):
        assert tfs.map_blocks(program, NUMBERS)["z"].to_pylist() == [i * 1.5 + 11 for i in range(7)]
    assert compared == [program.digest]
    drawn = compiled(lambda x: {"z": x + tf.random.uniform(tf.shape(x), dtype=tf.float64)})
    assert all(0 <= z - i < 1 for i, z in enumerate(tfs.map_blocks(drawn, NUMBERS)["z"].to_pylist()))
    assert compared == [program.digest]


def test_only_what_is_compiled_whole_is_compiled() -> None:
    fast = compiled(lambda x: {"s": x * 2})
    table = pa.table({"x": [1.0, 2.0, 3.0]})
    given = tfs.map_blocks([fast, lambda x: {"share": x / tf.reduce_sum(x)}], table)
    assert given["s"].to_pylist() == [2.0, 4.0, 6.0]
    assert given["share"].to_pylist() == pytest.approx([1 / 6, 1 / 3, 1 / 2])


def test_rows_whose_outputs_have_an_unknown_size_are_not_compiled() -> None:
    table = pa.table({"n": [1, 0, 3]})
    program = tfs.program(lambda n: {"z": tf.range(n)}, signature={"n": tf.TensorSpec([], tf.int64)}, jit_compile=True)
    assert tfs.map_rows(program, table)["z"].to_pylist() == [[0], [], [0, 1, 2]]


def test_a_compiled_program_renamed_by_a_dict_is_compiled() -> None:
    program = compiled(lambda x: {"z": x + 1})
    renamed = tfs.program({"q": program}, frame=NUMBERS)
    assert renamed.is_compiled
    assert tfs.map_blocks(renamed, NUMBERS)["q"].to_pylist() == [i + 1.0 for i in range(7)]


@cases(
    ExpectFail(
        lambda: tfs.reduce_blocks(compiled(lambda x: {"x": tf.reduce_sum(x, axis=0)}), NUMBERS),
        tfs.ShapeError,
        "reduce_blocks: output 'x' is float64[], without a row for each row of the block, but a compiled program is called on padded "
        "blocks, whose last rows are cut off its outputs.\n"
        "  inputs:  x: float64[?]\n"
        "  outputs: x: float64[]\n"
        "  Make the program without jit_compile.",
        "a block's sum",
    ),
    ExpectFail(
        lambda: tfs.map_blocks(compiled(lambda x: {"z": tf.reduce_sum(x, keepdims=True)}), NUMBERS, trim=True),
        tfs.ShapeError,
        "map_blocks: output 'z' is float64[1], without a row for each row of the block, but a compiled program is called on padded "
        "blocks, whose last rows are cut off its outputs.\n"
        "  outputs: z: float64[1]\n"
        "  Make the program without jit_compile.",
        "one row for each block",
    ),
    ExpectFail(
        lambda: tfs.map_blocks(compiled(lambda x: {"z": tf.concat([x, x], 0)}), NUMBERS, trim=True),
        tfs.ShapeError,
        "map_blocks: output 'z' has 16 rows but the block, padded to a size that is compiled once, has 8.\n"
        "  Make the program without jit_compile.",
        "two rows for each",
    ),
)
def test_compiled_programs_without_rows_are_refused(case: ExpectFail) -> None:
    check_refused(case.input, case.error, case.message)


@cases(
    ExpectFail(
        lambda: compiled(lambda x: {"z": tf.strings.as_string(x)}),
        tfs.ProgramError,
        "program: the program is to be compiled, but XLA has no strings.\n  Make the program without jit_compile.",
        "strings",
    ),
    ExpectFail(
        lambda: compiled(lambda x: {"z": tf.debugging.check_numerics(x, "bad")}),
        tfs.ProgramError,
        "program: the program is to be compiled, but XLA leaves out what operation 'CheckNumerics' of type CheckNumerics checks or "
        "prints.\n"
        "  Make the program without jit_compile.",
        "a check",
    ),
    ExpectFail(
        lambda: tfs.map_blocks(compiled(lambda v: {"z": v.row_lengths()}, feed_dict={"v": tfs.feed("v", ragged=True)}), NUMBERS),
        tfs.ProgramError,
        "map_blocks: input 'v' of a compiled program is ragged float64[?, ?], but XLA compiles anew for every shape.\n"
        "  Feed it padded, or make the program without jit_compile.",
        "ragged rows",
    ),
    ExpectFail(
        lambda: tfs.program(lambda x: x, frame=NUMBERS, jit_compile="no"),
        tfs.ProgramError,
        "program: jit_compile is 'no', but True or False is wanted.",
        "no answer",
    ),
    ExpectFail(
        lambda: tfs.map_blocks(compiled(lambda x: {"z": tf.random.poisson([], x)}), NUMBERS),
        tfs.ProgramError,
        "map_blocks: XLA cannot compile the program, since it lacks the operation RandomPoissonV2.\n"
        "  Make the program without jit_compile.",
        "an operation that XLA lacks",
    ),
)
def test_what_xla_cannot_do_is_refused(case: ExpectFail) -> None:
    check_refused(case.input, case.error, case.message)


# --- Operations that TensorFlow lacks ---


def write_with_operation(operation: str, path: Path) -> None:
    """Write a SavedModel, and a frozen graph beside it, whose one operation nobody has registered."""
    module = tf.Module()
    module.serve = tf.function(lambda x: {"y": tf.strings.length(x)}, input_signature=[tf.TensorSpec([None], tf.string, "x")])
    tf.saved_model.save(module, str(path), {"serving_default": module.serve})
    file = path / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for function in saved.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            node.op = operation if node.op == "StringLength" else node.op
    file.write_bytes(saved.SerializeToString())
    graph = tf.compat.v1.GraphDef()
    placeholder = graph.node.add(name="x", op="Placeholder")
    placeholder.attr["dtype"].type = tf.string.as_datatype_enum
    graph.node.add(name="y", op=operation, input=["x"])
    (path / "graph.pb").write_bytes(graph.SerializeToString())


@pytest.mark.parametrize(
    ("operation", "package", "module"),
    [
        ("WordpieceTokenizeWithOffsets", "tensorflow-text", "tensorflow_text"),
        ("SentencepieceOp", "tensorflow-text", "tensorflow_text"),
        ("SimpleMLInferenceOpWithHandle", "tensorflow-decision-forests", "tensorflow_decision_forests"),
        ("MyOwnOperation", None, None),
    ],
)
def test_an_operation_that_is_not_registered_is_named(operation: str, package: str | None, module: str | None, tmp_path: Path) -> None:
    path = tmp_path / "model"
    write_with_operation(operation, path)
    hint = f"\n  The package {package} usually has it: install it on every node, and import {module} before the call." if package else ""
    for file, kind in ((path, "SavedModel"), (path / "graph.pb", "frozen graph")):
        check_refused(
            lambda file=file: tfs.load_program(file),
            tfs.ProgramError,
            f"load_program: the {kind} {str(file)!r} needs the operation {operation!r}, which is not registered in this process.{hint}",
        )


def test_packages_that_register_operations_are_imported_where_a_program_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "registers_lengths.py").write_text("imported = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(graphdefs, "_PACKAGES", ((re.compile("StringLower"), "lengths", "registers_lengths"),))
    program = tfs.program(lambda word: {"z": tf.strings.lower(word)}, frame=TABLE)
    assert "registers_lengths" not in sys.modules
    assert tfs.map_blocks(program, TABLE)["z"].to_pylist() == ["a", "zz", "b"]
    assert sys.modules.pop("registers_lengths").imported


# --- The order of a SavedModel's columns ---


IN_OTHER_PROCESSES = """
import sys, tensorframes as tfs
for path in sys.argv[1:]:
    print(tfs.load_program(path))
"""


def test_a_saved_program_keeps_its_order_and_others_have_that_of_names(tmp_path: Path) -> None:
    spec = tf.TensorSpec([None], tf.float64)
    names = "ebdac"
    program = tfs.program(
        lambda e, b, d, a, c: {"z": e - b, "y": d + a + c, "x": tf.strings.as_string(a)},
        signature=dict.fromkeys(names, spec),
        binary="x",
    )
    program.save(tmp_path / "ours")
    module = tf.Module()
    module.serve = tf.function(
        lambda **inputs: {f"output_{i}": sum(inputs.values()) + i for i in (10, 2, 1)}, autograph=False
    ).get_concrete_function(**{name: tf.TensorSpec([None], tf.float64, name) for name in names})
    tf.saved_model.save(module, str(tmp_path / "other"), {"serving_default": module.serve})
    run = [sys.executable, "-c", IN_OTHER_PROCESSES, str(tmp_path / "ours"), str(tmp_path / "other")]
    inputs = ", ".join(f"{name}: float64[?]" for name in sorted(names))
    wanted = [repr(program), f"Program({inputs}) -> (output_1: float64[?], output_2: float64[?], output_10: float64[?])"]
    for seed in "12":  # protobuf's maps and Python's sets have another order in every process
        printed = subprocess.run(run, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}).stdout
        assert printed.splitlines() == wanted
    again = tfs.load_program(tmp_path / "ours")
    assert again.binary == {"x"}


def test_what_was_written_beside_another_saved_model_is_not_believed(tmp_path: Path) -> None:
    spec = tf.TensorSpec([None], tf.float64)
    path = tmp_path / "model"
    tfs.program(lambda b, a: b - a, signature={"b": spec, "a": spec}).save(path)
    assert list(tfs.load_program(path).inputs) == ["b", "a"]
    module = tf.Module()
    other = tf.function(lambda b, a: {"p": b - a, "q": a}).get_concrete_function(
        b=tf.TensorSpec([None], tf.float64, "b"), a=tf.TensorSpec([None], tf.float64, "a")
    )
    module.serve = other
    tf.saved_model.save(module, str(path), {"serving_default": other})
    program = tfs.load_program(path)
    assert (list(program.inputs), list(program.outputs), program.structure) == (["a", "b"], ["p", "q"], "dict")


def test_a_damaged_file_beside_a_saved_model_is_named(tmp_path: Path) -> None:
    program = tfs.program(lambda x: x + 1, signature={"x": tf.TensorSpec([None], tf.float64)})
    program.save(tmp_path)
    extra = tmp_path / "assets.extra" / "tensorframes.json"
    for content, reason in (("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),):
        extra.write_text(content)
        check_refused(
            lambda: tfs.load_program(tmp_path),
            tfs.ProgramError,
            f"load_program: the file {str(extra)!r} is damaged: {reason}.\n  Save the program again.",
        )
    for content in ("[]", "3", "null", '{"inputs": 3}'):
        extra.write_text(content)
        assert tfs.load_program(tmp_path).structure == "dict"


def test_names_that_a_signature_cannot_have(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float64, [None], "scope/x")
        program = tfs.program({"a b": x * 2})
    with pytest.raises(tfs.ProgramError) as caught:
        program.save(tmp_path / "model")
    assert str(caught.value).startswith(
        f"save: Program(scope/x: float64[?]) -> (a b: float64[?]) cannot be written to '{tmp_path}/model': "
    )
    assert str(caught.value).endswith("\n  A signature's names are Python's: letters, digits and underscores, no digit first.")


def test_what_outputs_become_survives_a_new_name_and_a_new_capture() -> None:
    table = pa.table({"b": pa.array([b"\xff", b"q"])})
    program = tfs.program(lambda b: {"q": b}, frame=table, binary="q")
    assert tfs.map_blocks({"r": program}, table)["r"].to_pylist() == [b"\xff", b"q"]
    assert tfs.map_blocks([program], table)["q"].to_pylist() == [b"\xff", b"q"]
    vector = tfs.program(lambda v: {"w": v}, frame=tfs.append_shape(NUMBERS, "v", [None, 2]), vector="w")
    assert tfs.program(vector, jit_compile=True).vector == {"w"}
    bare = tfs.program(lambda x: x + 1, frame=NUMBERS)
    assert tfs.program(bare, jit_compile=True).structure == bare.structure == "bare"


def test_blocks_of_a_fixed_size_have_that_size() -> None:
    program = tfs.program(lambda x: {"z": x - tf.reduce_sum(x) / x.shape[0]}, signature={"x": tf.TensorSpec([3], tf.float64)})
    assert tfs.map_blocks(program, NUMBERS.slice(0, 6), block_rows=3)["z"].to_pylist() == [-1.0, 0.0, 1.0] * 2
    check_refused(
        lambda: tfs.map_blocks(program, NUMBERS, block_rows=3),
        tfs.ShapeError,
        "map_blocks: input 'x' wants blocks of 3 rows, but a partition leaves one of 1.",
    )


def test_a_list_of_tensors_is_no_tensor() -> None:
    check_refused(
        lambda: tfs.map_blocks(lambda x: {"a": [x, x * 10]}, NUMBERS),
        tfs.ProgramError,
        "map_blocks: the lambda gives output 'a' as a list, but a tensor is wanted.",
    )


def test_a_saved_program_gives_the_structure_that_it_gave(tmp_path: Path) -> None:
    program = tfs.program(lambda x: x + 1, signature={"x": tf.TensorSpec([None], tf.float64)})
    program.save(tmp_path / "bare")
    assert tfs.load_program(tmp_path / "bare")(np.array([1.0])).numpy().tolist() == [2.0]


def test_a_sequential_model_that_was_called_once_takes_any_number_of_rows(tmp_path: Path) -> None:
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")], name="called")
    model(np.zeros((1, 3), np.float32))
    model.save(tmp_path / "called.keras")
    for fetches in (model, tmp_path / "called.keras"):
        assert tfs.map_blocks(fetches, TABLE, "a")["called"].to_pylist() == [[sum(row)] for row in TABLE["a"].to_pylist()]


@cases(
    ExpectFail(
        lambda: tfs.map_blocks("/nowhere/net.keras", TABLE),
        tfs.ProgramError,
        "map_blocks: there is no program at '/nowhere/net.keras'.",
        "absolute",
    ),
    ExpectFail(lambda: tfs.map_blocks("net.h5", TABLE), tfs.ProgramError, "map_blocks: there is no program at 'net.h5'.", "by its suffix"),
    ExpectFail(
        lambda: tfs.load_program("net.h5", tags="serve"),
        tfs.ProgramError,
        "load_program: there is no option 'tags'.\n"
        "  options: frame, feed_dict, signature, session, jit_compile, binary, vector, custom_objects, safe_mode, outputs",
        "an option that is none",
    ),
)
def test_files_that_are_not_there(case: ExpectFail) -> None:
    check(lambda call: call(), case)


def test_an_option_of_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    tfs.program(lambda x: {"z": x}, signature={"x": tf.TensorSpec([None], tf.int64)}).save(tmp_path / "saved")
    message = f"load_program: {str(tmp_path / 'saved')!r} is a SavedModel, but outputs= is an option of a frozen graph."
    check_refused(lambda: tfs.load_program(tmp_path / "saved", outputs=["z"]), tfs.ProgramError, message)
    sequential().save(tmp_path / "net.keras")
    message = f"load_program: {str(tmp_path / 'net.keras')!r} is a Keras file, but signature= is an option of a SavedModel."
    check_refused(lambda: tfs.load_program(tmp_path / "net.keras", signature="serve"), tfs.ProgramError, message)
