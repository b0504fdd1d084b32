"""Chains: several fetches as one program."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from expectations import ExpectFail, cases, check_refused

import tensorframes as tfs

DOUBLES = tf.TensorSpec([None], tf.float64)
TABLE = pa.table({"x": [1.0, 2.0, 3.0], "y": [10.0, 20.0, 30.0], "k": [1, 2, 3], "s": ["a", "b", "c"]})


def shift(x: DOUBLES):
    return x + 1


def both(x: DOUBLES, y: DOUBLES):
    return {"a": x + y, "b": x - y}


@tf.autograph.experimental.do_not_convert
def fails(z: tf.Tensor) -> tf.Tensor:
    raise ArithmeticError("no such number")


def test_one_output_feeds_the_one_input_whatever_their_names() -> None:
    program = tfs.chain(shift, lambda z: {"twice": 2 * z}, lambda anything, extra=5.0: {"out": anything + extra})
    assert str(program) == "Program(x: float64[?]) -> (out: float64[?])"
    assert tfs.map_blocks(program, TABLE)["out"].to_pylist() == [9.0, 11.0, 13.0]


def test_several_outputs_feed_the_inputs_of_their_names() -> None:
    program = tfs.chain(both, lambda b, a: {"product": a * b, "b": b})
    assert str(program) == "Program(x: float64[?], y: float64[?]) -> (product: float64[?], b: float64[?])"
    assert program(np.array([3.0]), np.array([1.0]))["product"].numpy().tolist() == [8.0]
    one_of_two = tfs.chain(shift, lambda extra, x=None: {"z": extra})
    assert one_of_two(np.array([3.0]))["z"].numpy().tolist() == [4.0]


def test_the_last_step_names_the_outputs_and_says_what_they_are() -> None:
    assert tfs.chain(shift, shift)([1.0]).numpy().tolist() == [3.0]
    assert list(tfs.chain(shift, shift).outputs) == ["shift"]
    assert [value.numpy().tolist() for value in tfs.chain(shift, lambda x: [x, -x])([1.0])] == [[2.0], [-2.0]]
    as_bytes = tfs.program(lambda x: {"text": tf.as_string(x)}, signature={"x": DOUBLES}, binary="text")
    assert tfs.map_blocks(tfs.chain(shift, as_bytes), TABLE)["text"].type == pa.binary()
    assert tfs.map_blocks(tfs.chain(shift, lambda x: {"text": tf.as_string(x)}, binary="text"), TABLE)["text"].type == pa.binary()


def test_every_kind_of_fetch_is_a_step(tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,), name="pair"), keras.layers.Dense(3)], name="dense")
    model.export(tmp_path / "saved", verbose=False)
    model.save(tmp_path / "model.keras")

    def pair(x: DOUBLES, y: DOUBLES):
        return tf.stack([x, y], axis=1)

    @tf.function
    def total(scores):
        return tf.reduce_sum(scores, axis=1)

    wanted = model.predict(np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]), verbose=0).sum(axis=1)
    for step in (model, tmp_path / "saved", str(tmp_path / "model.keras"), tfs.program(model), {"renamed": model}):
        program = tfs.chain(pair, step, total)  # doubles are cast to the model's floats
        assert str(program) == "Program(x: float64[?], y: float64[?]) -> (total: float32[?])"
        np.testing.assert_allclose(tfs.map_blocks(program, TABLE)["total"].to_numpy(), wanted, rtol=1e-5)


def test_a_frame_types_the_first_step() -> None:
    program = tfs.chain(lambda k: 2 * k, lambda z: {"z": z + 1}, frame=TABLE)
    assert str(program) == "Program(k: int64[?]) -> (z: int64[?])"
    renamed = tfs.chain(lambda v: 2 * v, lambda z: {"z": z + 1}, frame=TABLE, feed_dict={"v": "k"})
    assert tfs.map_blocks(renamed, TABLE, {"v": "k"})["z"].to_pylist() == [3, 5, 7]


def test_ragged_and_dense_steps() -> None:
    words = tfs.program(lambda s: tf.strings.split(s, "-"), signature={"s": tf.TensorSpec([None], tf.string)})
    program = tfs.chain(words, lambda parts: {"n": parts.row_lengths()})
    assert tfs.map_blocks(program, pa.table({"s": ["a-b", "", "c"]}))["n"].to_pylist() == [2, 1, 1]
    sizes = tfs.program(lambda r: {"sizes": r.row_lengths()}, signature={"r": tf.RaggedTensorSpec([None, None], tf.float64)})
    dense = tfs.chain(lambda x: tf.stack([x, x], axis=1), sizes, signature={"x": DOUBLES})  # uniform rows are ragged ones too
    assert tfs.map_blocks(dense, TABLE)["sizes"].to_pylist() == [2, 2, 2]


def test_a_double_that_no_float_holds_is_refused_when_it_is_cast() -> None:
    program = tfs.chain(shift, tfs.program(lambda x: {"z": x}, signature={"x": tf.TensorSpec([None], tf.float32)}))
    held = tfs.map_blocks(program, pa.table({"x": [0.1, float("inf"), float("nan")]}))["z"].to_pylist()
    assert held[:2] == [float(np.float32(1.1)), float("inf")]
    assert np.isnan(held[2])
    with pytest.raises(tfs.ProgramError) as caught:
        tfs.map_blocks(program, pa.table({"x": [1.0, 1e300]}))
    assert "step 1 gives input x of step 2 a finite float64 that would be infinite as a float32" in str(caught.value)


def test_a_chain_is_a_program_that_is_saved(tmp_path: Path) -> None:
    program = tfs.chain(both, lambda a, b: {"z": a * b})
    program.save(tmp_path / "chain")
    assert tfs.load_program(tmp_path / "chain")([3.0], [1.0])["z"].numpy().tolist() == [8.0]


FLOATS = tfs.program(lambda v: {"z": v}, signature={"v": tf.TensorSpec([None, 2], tf.float32)})
INTS = tfs.program(lambda v: {"z": v}, signature={"v": tf.TensorSpec([None], tf.int32)})

REFUSED = [
    ExpectFail((), tfs.ProgramError, "chain: there are no steps.", id="nothing"),
    ExpectFail(
        (shift, 3),
        tfs.ProgramError,
        "chain: the fetches are a int; wanted is a function, a tf.function, a ConcreteFunction, a v1 tensor or its name, a Keras model, "
        "a Program or its file, or a dict or list of these.",
        id="no fetch",
    ),
    ExpectFail(
        (lambda x: x, shift),
        tfs.ProgramError,
        "chain: the chain says nothing of the type of input 'x'.\n"
        "  Pass a frame, or signature={'x': tf.TensorSpec(shape, dtype)}, to tfs.program.",
        id="no type",
    ),
    ExpectFail(
        (both, shift),
        tfs.ProgramError,
        "chain: step 2, the function 'shift', does not take what step 1 gives.\n"
        "  inputs:  x\n"
        "  outputs: a: float64[?], b: float64[?]\n"
        "  A step between them can pick and name: lambda a, b: {'x': …}.",
        id="other names",
    ),
    ExpectFail(
        (shift, shift, both),
        tfs.ProgramError,
        "chain: step 3, the function 'both', does not take what step 2 gives.\n"
        "  inputs:  x, y\n"
        "  outputs: shift: float64[?]\n"
        "  A step between them can pick and name: lambda shift: {'x': …, 'y': …}.",
        id="too few",
    ),
    ExpectFail(
        (shift, FLOATS),
        tfs.ShapeError,
        "chain: input 'v' of step 2 wants float32[?, 2], but step 1 gives float64[?].",
        id="another shape",
    ),
    ExpectFail(
        (shift, INTS),
        tfs.DTypeError,
        "chain: input 'v' of step 2 wants int32[?], but step 1 gives float64[?].\n  A step between them can cast: lambda x: tf.cast(x, …).",
        id="another dtype",
    ),
    ExpectFail(
        (shift, fails),
        tfs.ProgramError,
        "chain: step 2, the function 'fails', cannot be traced: ArithmeticError: no such number",
        id="a step that fails",
    ),
]


@cases(*REFUSED)
def test_what_cannot_be_a_chain(case: ExpectFail) -> None:
    check_refused(lambda: tfs.chain(*case.input), case.error, case.message)


def test_an_option_that_program_does_not_have() -> None:
    check_refused(
        lambda: tfs.chain(shift, rows=3),
        tfs.ProgramError,
        "chain: there is no option 'rows'.\n"
        "  options: frame, feed_dict, signature, session, jit_compile, binary, vector, custom_objects, safe_mode, outputs",
    )
