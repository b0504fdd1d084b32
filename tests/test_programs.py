"""Programs as values: called, pickled, digested, and loaded once."""

import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from expectations import ExpectFail, cases, check, check_refused

import tensorframes as tfs
from tensorframes import programs as programs_room
from tensorframes.blobs import Blob
from tensorframes.errors import ProgramError
from tensorframes.programs import CACHE, Capture, GraphFunction, Program, ProgramCache, load

DOUBLES = tf.TensorSpec([None], tf.float64)
X = np.array([1.0, 2.0, 3.0])


def subtract() -> Program:
    return tfs.program(lambda x, y: {"z": x - y}, signature={"x": DOUBLES, "y": DOUBLES})


def added(number: float) -> Program:
    """Make a program that no other test makes."""
    return tfs.program(lambda x: x + number, signature={"x": DOUBLES})


# --- values ---


def test_print_and_parts():
    signature = {"x": tf.TensorSpec([None, 100], tf.float64), "k": tf.TensorSpec(None, tf.string)}
    program = tfs.program(lambda x, k: {"z": tf.reduce_sum(x, 1), "k": k}, signature=signature)
    assert repr(program) == "Program(x: float64[?, 100], k: string[...]) -> (z: float64[?], k: string[...])"
    assert {name: str(kind) for name, kind in program.inputs.items()} == {"x": "float64[?, 100]", "k": "string[...]"}
    assert program.outputs["z"].shape == (None,)
    assert len(program.digest) == 64
    assert program.nbytes == program.graph.nbytes > 0


def test_a_program_is_frozen_comparable_and_hashable():
    program, again = subtract(), subtract()
    assert program == again
    assert hash(program) == hash(again)
    assert program != tfs.program(lambda a, b: {"z": a - b}, signature={"a": DOUBLES, "b": DOUBLES})  # other names
    assert program != tfs.program(lambda x, y: {"z": y - x}, signature={"x": DOUBLES, "y": DOUBLES})
    with pytest.raises(AttributeError, match="digest"):
        program.digest = ""


def test_names_are_no_part_of_the_digest_but_types_are():
    program = subtract()
    assert program.digest == tfs.program(lambda a, b: {"c": a - b}, signature={"a": DOUBLES, "b": DOUBLES}).digest
    floats = tf.TensorSpec([None], tf.float32)
    assert program.digest != tfs.program(lambda x, y: {"z": x - y}, signature={"x": floats, "y": floats}).digest


def test_values_of_variables_are_part_of_the_digest():
    digests = set()
    for value in ([1.0], [2.0], [[1.0]], [1.0]):
        variable = tf.Variable(value, dtype=tf.float64)
        digests.add(tfs.program(lambda x, variable=variable: x * variable, signature={"x": DOUBLES}).digest)
    assert len(digests) == 3


def test_binary_outputs():
    program = tfs.program(lambda x: {"a": x, "b": x}, signature={"x": tf.TensorSpec([None], tf.string)}, binary=("a",))
    assert program.binary == {"a"}
    assert tfs.program(program, binary=("b",)).binary == {"a", "b"}
    message = "program: binary= names outputs that the program does not have: ['c'].\n  outputs: a, b"
    check_refused(lambda: tfs.program(program, binary=("c",)), ProgramError, message)
    assert tfs.map_blocks(program, pa.table({"x": ["y"]})).schema.field("a").type == pa.binary()


# --- calls ---


@pytest.mark.parametrize(
    "call",
    [
        lambda program: program(X, 1.0 + X),
        lambda program: program(X, y=1.0 + X),
        lambda program: program(y=1.0 + X, x=X),
        lambda program: program(tf.constant(X), (1.0 + X).tolist()),
    ],
    ids=["by position", "mixed", "by name", "tensors and lists"],
)
def test_calls(call):
    given = call(subtract())
    assert list(given) == ["z"]
    assert given["z"].numpy().tolist() == [-1.0, -1.0, -1.0]


def test_a_call_mirrors_the_fetches():
    bare = tfs.program(lambda x: x, signature={"x": DOUBLES})(X)
    assert isinstance(bare, tf.Tensor)
    assert isinstance(tfs.program(lambda x: [x], signature={"x": DOUBLES})(X), list)
    assert isinstance(tfs.program({"a": lambda x: x}, signature={"x": DOUBLES})(X), dict)


WRONG = "Program(x: float64[?], y: float64[?]) -> (z: float64[?]) is called with {}, but it wants ['x', 'y']."


@cases(
    ExpectFail(((), {}), ProgramError, WRONG.format("0 positional and [] named inputs"), "nothing"),
    ExpectFail(((X,), {}), ProgramError, WRONG.format("1 positional and [] named inputs"), "too few"),
    ExpectFail(((X, X, X), {}), ProgramError, WRONG.format("3 positional and [] named inputs"), "too many"),
    ExpectFail(((X,), {"x": X}), ProgramError, WRONG.format("1 positional and ['x'] named inputs"), "one twice"),
    ExpectFail(((X,), {"z": X}), ProgramError, WRONG.format("1 positional and ['z'] named inputs"), "another name"),
    ExpectFail(((X, X), {"z": X}), ProgramError, WRONG.format("2 positional and ['z'] named inputs"), "one more"),
)
def test_wrong_calls(case):
    program = subtract()
    check(lambda given: program(*given[0], **given[1]), case)


def test_a_program_is_called_where_a_graph_is_current():
    program = subtract()
    with tf.Graph().as_default() as graph:
        assert program(X, X)["z"].numpy().tolist() == [0.0, 0.0, 0.0]
        assert graph.get_operations() == []


def test_a_program_is_called_inside_a_function():
    variable = tf.Variable([3.0], dtype=tf.float64)
    program = tfs.program(lambda x: {"z": x * variable}, signature={"x": DOUBLES})
    outer = tf.function(lambda x: program(x)["z"] + program(x=[1.0])["z"])
    assert outer(tf.constant(X)).numpy().tolist() == [6.0, 9.0, 12.0]
    again = tfs.program(lambda x: program(x)["z"] + 1.0, signature={"x": DOUBLES})
    assert again(X).numpy().tolist() == [4.0, 7.0, 10.0]


# --- other processes ---

CALL = """
import pickle, sys
import numpy as np
for program in pickle.load(sys.stdin.buffer):
    print(program.digest, program(np.array([1, 2, 3]))["z"].numpy().tolist())
"""


HELD = tf.Variable([10], dtype=tf.int64)


def nested(x):
    inner = tf.function(lambda y: tf.function(lambda z: z + HELD)(y) * 2)
    looped = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, inner(y)), [tf.constant(0), x])[1]
    return tf.map_fn(lambda cell: tf.cond(cell > 0, lambda: cell, lambda: -cell), looped)


def test_a_pickled_program_computes_the_same_in_a_fresh_process():
    spec = {"x": tf.TensorSpec([None], tf.int64)}
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.int64, [None], "x")
        from_graph = tfs.program({"z": tf.function(lambda a: a + 1)(x)})
    made = [tfs.program({"z": nested}, signature=spec), from_graph, tfs.program({"z": lambda x: x * 2}, signature=spec)]
    wanted = [f"{program.digest} {program(np.array([1, 2, 3]))['z'].numpy().tolist()}" for program in made]
    run = subprocess.run([sys.executable, "-c", CALL], input=pickle.dumps(made), capture_output=True, check=True)
    assert run.stdout.decode().splitlines() == wanted
    assert wanted[0].endswith("[148, 156, 164]")


@pytest.mark.parametrize("through", [pickle, cloudpickle], ids=lambda module: module.__name__)
def test_a_pickled_program_is_the_same_value(through):
    program = tfs.program({"z": nested}, signature={"x": tf.TensorSpec([None], tf.int64)})
    again = through.loads(through.dumps(program))
    assert again == program
    assert (again.digest, again.graph, again.captures, again.controls, again.structure) == (
        *(program.digest, program.graph, program.captures, program.controls, program.structure),
    )


def test_tracing_again_gives_the_same_digest():
    def make() -> Program:
        return tfs.program({"z": lambda x: nested(x)}, signature={"x": tf.TensorSpec([None], tf.int64)})

    assert len({make().digest for _ in range(3)}) == 1


# --- the cache ---


def test_a_program_is_loaded_once():
    program, again = added(1.25), added(1.25)
    before = CACHE.loads
    for each in (program, again, pickle.loads(pickle.dumps(program))):
        each(X)
    assert CACHE.loads == before + 1
    assert load(program) is load(again)
    assert CACHE.loads == before + 1


def test_other_constants_of_a_verb_load_nothing():
    table = pa.table({"x": X})

    def shifted(x, by):
        return x + by * 1.125

    assert tfs.map_blocks(shifted, table, {"by": 1.0}).column("shifted").to_pylist() == [2.125, 3.125, 4.125]
    before = CACHE.loads
    assert tfs.map_blocks(shifted, table, {"by": 2.0}).column("shifted").to_pylist() == [3.25, 4.25, 5.25]
    assert CACHE.loads == before


def sized(digest: str, nbytes: int) -> Program:
    return Program((), (), digest, graph=Blob(digest, nbytes, b""))


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count what is loaded, and load nothing."""
    loaded: list[str] = []

    def fake(program: Program, device: str) -> Any:
        loaded.append(program.digest)
        return lambda feeds: [program.digest]

    monkeypatch.setattr(programs_room, "_load", fake)
    return loaded


def test_the_least_recently_used_go_when_there_are_too_many_bytes(loads):
    cache = ProgramCache(limit=100)
    for digest in "abac":  # b is the least recently used when c comes
        cache.get(sized(digest, 40))
    assert loads == ["a", "b", "c"]
    for digest in "ac":
        cache.get(sized(digest, 40))
    assert loads == ["a", "b", "c"]
    cache.get(sized("b", 40))
    assert loads == ["a", "b", "c", "b"]
    assert cache.loads == 4


def test_a_program_larger_than_the_cache_is_held_alone(loads):
    cache = ProgramCache(limit=100)
    for digest, nbytes in (("small", 10), ("large", 1000), ("large", 1000), ("small", 10)):
        assert cache.get(sized(digest, nbytes))([]) == [digest]
    assert loads == ["small", "large", "small"]


def test_what_two_programs_read_counts_once(loads):
    cache, weights = ProgramCache(limit=100), Blob("weights", 80, b"")
    for digest in "abab":
        cache.get(replace(sized(digest, 5), captures=(Capture("w:0", "uint8", (80,), weights),)))
    assert loads == ["a", "b"]


def test_a_program_is_loaded_once_for_each_device(loads):
    cache = ProgramCache()
    for device in ("", "/GPU:0", "", "/GPU:0"):
        cache.get(sized("a", 5), device)
    assert loads == ["a", "a"]


def test_operations_that_wait_for_an_input_or_lie_beside_it():
    def beside(x):
        with tf.control_dependencies([tf.debugging.assert_less(x, tf.constant(10.0, tf.float64))]):
            checked = tf.identity(x)
        with tf.compat.v1.colocate_with(x), tf.control_dependencies([x]):
            return {"z": checked + tf.constant(1.0, tf.float64), "rows": tf.RaggedTensor.from_row_lengths(x, [1, 2]).values}

    program = pickle.loads(pickle.dumps(tfs.program(beside, signature={"x": DOUBLES})))
    given = program(X)
    assert (given["z"].numpy().tolist(), given["rows"].numpy().tolist()) == ([2.0, 3.0, 4.0], [1.0, 2.0, 3.0])


def test_programs_share_the_variables_that_they_read():
    weights = tf.Variable([1.5, 2.5, 4.5])
    spec = {"x": tf.TensorSpec([None, 3], tf.float32)}
    programs = [
        tfs.program(f, signature=spec) for f in (lambda x: {"z": x + weights}, lambda x: {"z": x * weights}, lambda x: {"z": x - 1})
    ]
    held = [GraphFunction(program).values for program in programs]
    assert [len(values) for values in held] == [1, 1, 0]
    assert held[0][0] is held[1][0]
    assert held[0][0] is not GraphFunction(programs[0], "/CPU:0").values[0]
    weights.assign([0.0, 0.0, 0.0])  # the user's own is another one
    assert programs[0](np.zeros((1, 3), np.float32))["z"].numpy().tolist() == [[1.5, 2.5, 4.5]]


@pytest.mark.parametrize(
    "value",
    [
        tf.constant([[1, 2], [3, 4]], tf.bfloat16),
        tf.constant([1.5, float("nan")], tf.float16),
        tf.constant([1 + 2j], tf.complex64),
        tf.constant([2**63 + 1], tf.uint64),
        tf.constant([True, False]),
        tf.constant(["é", b"\x00\xff\x00", ""]),
        tf.zeros([0, 3], tf.int8),
        tf.constant(7, tf.int32),
    ],
    ids=lambda value: f"{value.dtype.name} {value.shape}",
)
def test_captured_values_of_every_kind_are_read_back(value):
    variable = tf.Variable(value)
    program = pickle.loads(pickle.dumps(tfs.program(lambda: {"z": variable.read_value()}, signature={})))
    given = program()["z"]
    assert (given.dtype, given.shape) == (value.dtype, value.shape)
    assert given.numpy().tobytes() == value.numpy().tobytes() if value.dtype != tf.string else (given.numpy() == value.numpy()).all()


def test_threads_that_come_together_load_once(monkeypatch):
    cache, loaded, started = ProgramCache(), [], threading.Event()

    def slow(program: Program, device: str) -> Any:
        loaded.append(program.digest)
        started.wait(10)  # until the others have come to ask
        return lambda feeds: []

    monkeypatch.setattr(programs_room, "_load", slow)
    given: list[Any] = []
    threads = [threading.Thread(target=lambda: given.append(cache.get(sized("a", 1)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    started.set()
    for thread in threads:
        thread.join()
    assert loaded == ["a"]
    assert len(set(map(id, given))) == 1


def test_threads_call_verbs_at_once():
    table = pa.table({"x": np.arange(1000.0)})
    results: dict[int, Any] = {}

    def work(number: int) -> None:
        results[number] = [
            tfs.map_blocks(lambda x: {"z": x * float(number)}, table, block_rows=100).column("z").to_numpy(),
            tfs.map_rows(lambda x: {"z": x * float(number)}, table).column("z").to_numpy(),
        ]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        for column in results[number]:
            assert column.tolist() == (np.arange(1000.0) * number).tolist()
