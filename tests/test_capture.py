"""Capture: every door gives the same program, and leaves the user's graph as it was."""

import collections
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from expectations import Expect, ExpectFail, cases, check, check_refused

import tensorframes as tfs
from tensorframes.errors import ProgramError

v1 = tf.compat.v1

DOUBLES = tf.TensorSpec([None], tf.float64)
SIGNATURE = {"x": DOUBLES, "y": DOUBLES}
TABLE = pa.table({"x": [1.0, 2.0, 3.0], "y": [4.0, 5.0, 6.0]})
X, Y = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])


@pytest.fixture(params=["v2", "v1"])
def control_flow(request: pytest.FixtureRequest) -> Iterator[str]:
    """Build loops and branches in both of TensorFlow's ways."""
    if request.param == "v1":
        v1.disable_control_flow_v2()
    yield request.param
    v1.enable_control_flow_v2()


class Frozen:
    """Checks that a graph, and what is current, stay as they were."""

    def __init__(self, graph: tf.Graph) -> None:
        self.graph, self.before = graph, self.state(graph)

    @staticmethod
    def state(graph: tf.Graph) -> tuple[Any, ...]:
        collections = {key: len(held) for key in graph.get_all_collection_keys() if (held := graph.get_collection(key))}
        return graph.version, len(graph.get_operations()), graph.finalized, collections, v1.get_default_session(), v1.get_default_graph()

    def check(self) -> None:
        assert self.state(self.graph) == self.before


# --- doors ---


def weighted(x, y):
    return 2.0 * x + y


def in_graph() -> tf.Tensor:
    with tf.Graph().as_default():
        x, y = (v1.placeholder(tf.float64, [None], name) for name in ("x", "y"))
        return tf.identity(2.0 * x + y, name="weighted")


def by_name(fetches: Any) -> tfs.Program:
    with in_graph().graph.as_default():
        return tfs.program(fetches)


class Weighted:
    def __call__(self, x, y):
        return 2.0 * x + y

    def weighted(self, x, y):
        return 2.0 * x + y


def typed(x: DOUBLES, y: DOUBLES):
    return 2.0 * x + y


def partly(factor, x, y):
    return factor * x + y


def calling(program: tfs.Program) -> tfs.Program:
    return tfs.program(lambda x, y: program(x, y), signature=SIGNATURE)


DOORS: dict[str, tuple[Callable[[], tfs.Program], str]] = {
    "function": (lambda: tfs.program(weighted, signature=SIGNATURE), "weighted"),
    "function of a frame": (lambda: tfs.program(weighted, frame=TABLE), "weighted"),
    "lambda": (lambda: tfs.program(lambda x, y: 2.0 * x + y, signature=SIGNATURE), "output"),
    "annotations": (lambda: tfs.program(typed), "typed"),
    "positional-only": (lambda: tfs.program(lambda x, /, y: 2.0 * x + y, signature=SIGNATURE), "output"),
    "keyword-only": (lambda: tfs.program(lambda *, x, y: 2.0 * x + y, signature=SIGNATURE), "output"),
    "partial": (lambda: tfs.program(functools.partial(partly, 2.0), signature=SIGNATURE), "partly"),
    "object": (lambda: tfs.program(Weighted(), signature=SIGNATURE), "output"),
    "method": (lambda: tfs.program(Weighted().weighted, signature=SIGNATURE), "weighted"),
    "tf.function": (lambda: tfs.program(tf.function(weighted), signature=SIGNATURE), "weighted"),
    "tf.function of a frame": (lambda: tfs.program(tf.function(weighted), frame=TABLE), "weighted"),
    "tf.function with a signature": (lambda: tfs.program(tf.function(weighted, input_signature=[DOUBLES, DOUBLES])), "weighted"),
    "ConcreteFunction": (lambda: tfs.program(tf.function(weighted).get_concrete_function(DOUBLES, DOUBLES)), "weighted"),
    "v1 tensor": (lambda: tfs.program(in_graph()), "weighted"),
    "list of v1 tensors": (lambda: tfs.program([in_graph()]), "weighted"),
    "name": (lambda: by_name("weighted"), "weighted"),
    "name of a tensor": (lambda: by_name("weighted:0"), "weighted"),
    "list of names": (lambda: by_name(["weighted"]), "weighted"),
    "Program": (lambda: tfs.program(tfs.program(weighted, signature=SIGNATURE)), "weighted"),
    "dict of a function": (lambda: tfs.program({"z": weighted}, signature=SIGNATURE), "z"),
    "dict of a lambda": (lambda: tfs.program({"z": lambda x, y: 2.0 * x + y}, signature=SIGNATURE), "z"),
    "dict of a tf.function": (lambda: tfs.program({"z": tf.function(weighted)}, signature=SIGNATURE), "z"),
    "dict of a ConcreteFunction": (lambda: tfs.program({"z": tf.function(weighted).get_concrete_function(DOUBLES, DOUBLES)}), "z"),
    "dict of a v1 tensor": (lambda: tfs.program({"z": in_graph()}), "z"),
    "dict of a name": (lambda: by_name({"z": "weighted"}), "z"),
    "dict of a Program": (lambda: tfs.program({"z": tfs.program(weighted, signature=SIGNATURE)}), "z"),
    "list of a function": (lambda: tfs.program([weighted], signature=SIGNATURE), "weighted"),
    "function that calls a Program": (lambda: calling(tfs.program(weighted, signature=SIGNATURE)), "output"),
}


@pytest.mark.parametrize(("door", "name"), DOORS.values(), ids=DOORS)
def test_every_door_gives_the_same(door, name):
    captured = door()
    assert repr(captured) == f"Program(x: float64[?], y: float64[?]) -> ({name}: float64[?])"
    (value,) = tf.nest.flatten(captured(X, Y))
    assert value.numpy().tolist() == [6.0, 9.0, 12.0]
    assert captured.digest == door().digest
    assert tfs.map_blocks(captured, TABLE).column(name).to_pylist() == [6.0, 9.0, 12.0]


# --- names of outputs ---

Pair = collections.namedtuple("Pair", ["first", "second"])


def named_a(x):
    return {"a": x}


@cases(
    Expect(lambda x: x, (["output"], "bare"), "a lambda"),
    Expect(lambda x: {"a": x, "b": x}, (["a", "b"], "dict"), "a dict"),
    Expect(lambda x: Pair(x, x), (["first", "second"], "dict"), "a NamedTuple"),
    Expect(lambda x: (x, x), (["output_0", "output_1"], "list"), "a tuple"),
    Expect(lambda x: [x], (["output_0"], "list"), "a list"),
    Expect(lambda x: 1.0, (["output"], "bare"), "a number"),
    Expect(lambda x: {"a": [1.0, 2.0]}, (["a"], "dict"), "a list of numbers in a dict"),
    Expect(tf.nn.relu, (["relu"], "bare"), "TensorFlow's own"),
    Expect([named_a, lambda x: x], (["a", "output"], "list"), "a list of functions"),
    ExpectFail(lambda x: None, ProgramError, "program: the lambda gives output 'output' as a NoneType, but a tensor is wanted.", "None"),
    ExpectFail(lambda x: {}, ProgramError, "program: the lambda gives no output.", "nothing"),
    ExpectFail(lambda x: [], ProgramError, "program: the lambda gives no output.", "an empty list"),
    ExpectFail(lambda x: {1: x}, ProgramError, "program: the lambda names an output 1, but names are strings.", "a number as a name"),
    ExpectFail(
        lambda x: {"a": {"b": x}},
        ProgramError,
        "program: the lambda gives output 'a' as a dict, but a tensor is wanted.",
        "a dict in a dict",
    ),
    ExpectFail(
        lambda x: {"a": tf.sparse.from_dense(x)},
        ProgramError,
        "program: the lambda gives output 'a' as a SparseTensor, but a dense or ragged tensor is wanted.",
        "a sparse tensor",
    ),
    ExpectFail(
        [named_a, named_a],
        ProgramError,
        "program: the fetches name several outputs 'a'.\n  Name them by a dict: {'name': fetch, …}.",
        "one name twice",
    ),
    ExpectFail(
        {"z": lambda x: (x, x)},
        ProgramError,
        "program: fetch 'z' gives 2 outputs (output_0, output_1), but a fetch inside a dict must give one.",
        "two outputs in a dict",
    ),
)
def test_names_of_outputs(case):
    def names(fetches: Any) -> tuple[list[str], str]:
        name = "features" if fetches is tf.nn.relu else "x"
        captured = tfs.program(fetches, signature={name: DOUBLES})
        return list(captured.outputs), captured.structure

    check(names, case)


def test_names_of_v1_outputs():
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float64, [None], "x")
        top = tf.math.top_k(x, 2, name="top")
        scoped = tf.identity(x, name="scope/z")
        assert list(tfs.program([top.values, top.indices]).outputs) == ["top", "top_1"]
        assert list(tfs.program([scoped, "top:1"]).outputs) == ["scope/z", "top_1"]
        assert list(tfs.program({"a": top.values, "b": top.values, "c": x}).outputs) == ["a", "b", "c"]
        message = "program: the fetches name several outputs 'top'.\n  Name them by a dict: {'name': fetch, …}."
        check_refused(lambda: tfs.program([top.values, "top"]), ProgramError, message)


# --- what is no program ---

WANTED = (
    "; wanted is a function, a tf.function, a ConcreteFunction, a v1 tensor or its name, a Keras model, a Program or its file, or a dict "
    "or list of these."
)


@cases(
    ExpectFail(5, ProgramError, f"program: the fetches are a int{WANTED}", "a number"),
    ExpectFail(None, ProgramError, f"program: the fetches are a NoneType{WANTED}", "None"),
    ExpectFail(dict, ProgramError, f"program: the fetches are a type{WANTED}", "a class"),
    ExpectFail([], ProgramError, f"program: the fetches are a list{WANTED}", "an empty list"),
    ExpectFail({}, ProgramError, "program: the fetches are an empty dict.", "an empty dict"),
    ExpectFail(
        tf.constant(1), ProgramError, f"program: the fetches are an eager tensor, which is a value and no computation{WANTED}", "a value"
    ),
    ExpectFail(
        "nothing",
        ProgramError,
        "program: the default graph has no tensor named 'nothing', and there is no program in a file of that name.\n  tensors: x:0",
        "an unknown name",
    ),
    ExpectFail(
        lambda *a: a[0],
        ProgramError,
        "program: the lambda takes *a, but inputs are matched by name; wrap it in a lambda that names its parameters.",
        "any number of parameters",
    ),
    ExpectFail(
        lambda x, y: x,
        ProgramError,
        "program: the lambda says nothing of the type of input 'y'.\n"
        "  Pass a frame, or signature={'y': tf.TensorSpec(shape, dtype)}, to tfs.program.",
        "an untyped input",
    ),
    ExpectFail(
        lambda a: a, ProgramError, "program: signature names an input 'x' that the program does not have.\n  inputs: a", "another input"
    ),
    ExpectFail(
        lambda x: tf.numpy_function(np.sin, [x], tf.float64),
        ProgramError,
        "program: the program calls a Python function (operation 'PyFunc' of type PyFunc), which cannot leave the process that made it.",
        "numpy_function",
    ),
    ExpectFail(
        lambda x: tf.cond(x[0] > 0, lambda: tf.py_function(np.sin, [x], tf.float64), lambda: x),
        ProgramError,
        "program: the program calls a Python function (operation 'cond/EagerPyFunc' of type EagerPyFunc), "
        "which cannot leave the process that made it.",
        "py_function in a branch",
    ),
)
def test_what_is_no_program(case):
    with tf.Graph().as_default():  # without it, the names of another test's might be listed
        v1.placeholder(tf.float64, [None], "x")
        check(lambda fetches: tfs.program(fetches, signature={"x": DOUBLES}), case)


@cases(
    ExpectFail(
        {"signature": {"x": 1}}, ProgramError, "program: signature gives input 'x' a int, but a tf.TensorSpec is wanted.", "a number"
    ),
    ExpectFail(
        {"signature": "serving_default"},
        ProgramError,
        "program: signature is a str, but a dict {input: tf.TensorSpec} is wanted.",
        "a name, for a function",
    ),
    ExpectFail(
        {"signature": {"x": DOUBLES}, "binary": ("z",)},
        ProgramError,
        "program: binary= names outputs that the program does not have: ['z'].\n  outputs: output",
        "binary of nothing",
    ),
)
def test_wrong_options(case):
    check(lambda options: tfs.program(lambda x: x, **options), case)


def test_numpy_and_failures_in_a_function_give_tensorflow_s_own_message():
    for call in (np.sin, lambda x: tf.ensure_shape(x, [3, 3])):
        with pytest.raises(ProgramError, match=r"^program: the lambda cannot be traced: \w+: in user code:\n(.|\n)*(numpy|rank)"):
            tfs.program(lambda x, call=call: call(x), signature={"x": DOUBLES})


def test_lookup_tables_travel_but_for_those_of_v1_graphs():
    def make_table() -> tf.lookup.StaticHashTable:
        return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), 0)

    table = make_table()
    program = tfs.program(lambda x: table.lookup(x), signature={"x": tf.TensorSpec([None], tf.int32)})
    assert program([1, 3]).numpy().tolist() == [2, 0]
    with tf.Graph().as_default():
        z = make_table().lookup(v1.placeholder(tf.int32, [None]))
    message = "program: the fetches read a lookup table (operation 'hash_table'), which cannot be taken out of a v1 graph."
    check_refused(lambda: tfs.program(z), ProgramError, message)


def test_a_captured_resource_that_is_neither_variable_nor_table_is_refused():
    barrier = tf.raw_ops.StackV2(max_size=1, elem_type=tf.int64)
    with pytest.raises(ProgramError, match=r"^program: the program reads a resource '.*' that is neither a variable nor a lookup table\.$"):
        tfs.program(lambda x: tf.raw_ops.StackPushV2(handle=barrier, elem=x), signature={"x": tf.TensorSpec([None], tf.int64)})


# --- signatures ---


def test_a_signature_wins_over_the_frame_and_annotations():
    for fetches in (typed, weighted):
        floats = {"x": tf.TensorSpec([None], tf.float32), "y": tf.TensorSpec([None], tf.float32)}
        assert tfs.program(fetches, frame=TABLE, signature=floats).inputs["x"].dtype == "float32"


def test_defaults_are_kept_unless_they_are_fed():
    def scaled(x, factor=2.0):
        return x * factor

    assert list(tfs.program(scaled, frame=TABLE).inputs) == ["x"]
    assert tfs.map_blocks(scaled, TABLE, {"factor": 3.0}).column("scaled").to_pylist() == [3.0, 6.0, 9.0]
    assert tfs.map_blocks(scaled, TABLE, {"factor": "y"}).column("scaled").to_pylist() == [4.0, 10.0, 18.0]
    with tf.Graph().as_default():
        z = tf.multiply(v1.placeholder(tf.float64, [None], "x"), v1.placeholder_with_default(tf.constant(2.0, tf.float64), [], "d"), "z")
    assert list(tfs.program(z).inputs) == ["x"]
    assert tfs.map_blocks(z, TABLE).column("z").to_pylist() == [2.0, 4.0, 6.0]
    assert tfs.map_blocks(z, TABLE, {"d": 3.0}).column("z").to_pylist() == [3.0, 6.0, 9.0]


def test_postponed_annotations_are_read():
    scope: dict[str, Any] = {"DOUBLES": DOUBLES}
    exec("from __future__ import annotations\ndef f(x: DOUBLES, y: Unknown = 1): return x\ndef g(x: DOUBLES): return x", scope)
    assert repr(tfs.program(scope["g"])) == "Program(x: float64[?]) -> (g: float64[?])"
    assert list(tfs.program(scope["f"], signature={"x": DOUBLES}).inputs) == ["x"]


# --- what functions close over ---


def test_variables_are_taken_with_the_value_they_have():
    variable = tf.Variable([2.0], dtype=tf.float64)
    nested = tf.function(lambda x: x * variable)
    plain = {"plain": lambda x: x * variable, "function": nested, "nested": lambda x: nested(x)}
    programs = {name: tfs.program(call, signature={"x": DOUBLES}) for name, call in plain.items()}
    variable.assign([5.0])
    for name, call in plain.items():
        again = tfs.program(call, signature={"x": DOUBLES})
        assert programs[name](X).numpy().tolist() == [2.0, 4.0, 6.0]
        assert again(X).numpy().tolist() == [5.0, 10.0, 15.0]
        assert again.digest != programs[name].digest


def test_closures_are_what_they_are_at_the_call():
    factor = 2.0

    def scaled(x):
        return x * factor

    assert tfs.map_blocks(scaled, TABLE).column("scaled").to_pylist() == [2.0, 4.0, 6.0]
    factor = 3.0
    assert tfs.map_blocks(scaled, TABLE).column("scaled").to_pylist() == [3.0, 6.0, 9.0]


@pytest.mark.parametrize("value", [[1.5], ["é"], [True], [2**62 + 1]], ids=str)
def test_captured_tensors(value):
    held = tf.constant(value)
    captured = tfs.program(lambda x: {"z": held, "x": x}, signature={"x": DOUBLES})
    assert captured(X)["z"].numpy().tolist() == tf.constant(value).numpy().tolist()


@tf.function
def collatz(x):
    steps = tf.zeros_like(x)
    while tf.reduce_any(x > 1):
        steps += tf.cast(x > 1, x.dtype)
        x = tf.where(x <= 1, x, tf.where(x % 2 == 0, x // 2, 3 * x + 1))
    return steps


FLOWS = {
    "while": (collatz, [0, 1, 7]),
    "cond": (lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x + 1, lambda: x - 1), [2, 3, 4]),
    "if": (lambda x: x + 1 if tf.reduce_sum(x) > 0 else x - 1, [2, 3, 4]),
    "map_fn": (lambda x: tf.map_fn(lambda cell: cell * 2, x), [2, 4, 6]),
    "switch": (lambda x: tf.switch_case(tf.size(x) - 2, [lambda: x, lambda: -x]), [-1, -2, -3]),
    "nested": (lambda x: tf.function(lambda y: tf.function(lambda z: z + 1)(y) * 2)(x), [4, 6, 8]),
}


@pytest.mark.parametrize(("function", "wanted"), FLOWS.values(), ids=FLOWS)
def test_control_flow_in_functions(function, wanted):
    spec = {"x": tf.TensorSpec([None], tf.int64)}
    captured = tfs.program({"z": function}, signature=spec)
    assert captured(np.array([1, 2, 3]))["z"].numpy().tolist() == wanted
    assert captured.digest == tfs.program({"z": function}, signature=spec).digest


# --- v1 graphs ---


def test_v1_loops_and_branches(control_flow):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float64, [None], "x")
        branch = tf.identity(v1.cond(tf.reduce_sum(x) > 0, lambda: x + 1, lambda: x - 1), name="branch")
    frozen = Frozen(graph)
    assert tfs.map_blocks(branch, TABLE).column("branch").to_pylist() == [2.0, 3.0, 4.0]
    frozen.check()


@pytest.fixture
def loop() -> tf.Tensor:
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float64, [None], "x")
        return tf.identity(v1.while_loop(lambda a: tf.reduce_sum(a) < 20, lambda a: a * 2, [x]), name="loop")


def test_v1_loops(loop):
    assert tfs.map_blocks(loop, TABLE).column("loop").to_pylist() == [4.0, 8.0, 12.0]


def test_old_v1_loops_have_the_shape_that_they_had(control_flow, loop):
    assert str(tfs.program(loop)) == "Program(x: float64[?]) -> (loop: float64[?])"


def test_old_v1_loops():
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default():
            x = v1.placeholder(tf.float64, [None], "x")
            old = tf.identity(v1.while_loop(lambda a: tf.reduce_sum(a) < 20, lambda a: a * 2, [x]), name="loop")
    finally:
        v1.enable_control_flow_v2()
    assert tfs.map_blocks(old, TABLE).column("loop").to_pylist() == [4.0, 8.0, 12.0]


def test_functions_inside_v1_graphs():
    with tf.Graph().as_default() as graph:
        z = tf.identity(tf.function(lambda a: tf.function(lambda b: b + 1)(a) * 2)(v1.placeholder(tf.float64, [None], "x")), name="z")
    frozen = Frozen(graph)
    assert tfs.map_blocks(z, TABLE).column("z").to_pylist() == [4.0, 6.0, 8.0]
    frozen.check()


@pytest.fixture(params=["resource", "ref"])
def trained(request: pytest.FixtureRequest) -> tuple[tf.Tensor, Any, Any]:
    """Make z = x * w with w initialised to 2, the operation that trains w to 5, and the initialiser."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float64, [None], "x")
        w = v1.get_variable("w", initializer=tf.constant([2.0], tf.float64), use_resource=request.param == "resource")
        z = tf.multiply(x, w, name="z")
        train = v1.assign(w, [5.0]).op
        initialise = v1.global_variables_initializer()
    graph.finalize()
    return z, train, initialise


INITIAL, TRAINED = [2.0, 4.0, 6.0], [5.0, 10.0, 15.0]
NO_VALUE = (
    "map_blocks: the fetches read variables that have no value.\n  variables: w\n"
    "  Pass their session to tfs.program(…, session=…), or initial_variables=True."
)


def test_variables_never_initialised(trained):
    z, _, _ = trained
    frozen = Frozen(z.graph)
    assert tfs.map_blocks(z, TABLE).column("z").to_pylist() == INITIAL
    check_refused(lambda: tfs.map_blocks(z, TABLE, initial_variables=False), ProgramError, NO_VALUE)
    with v1.Session(graph=z.graph) as session:
        inside = Frozen(z.graph)
        assert tfs.map_blocks(z, TABLE).column("z").to_pylist() == INITIAL
        check_refused(lambda: tfs.map_blocks(z, TABLE, initial_variables=False), ProgramError, NO_VALUE)
        inside.check()
        with pytest.raises(tf.errors.FailedPreconditionError):
            session.run(z, {"x:0": [1.0]})  # the user's variable has no value still
    frozen.check()


def test_variables_trained_in_the_default_session(trained):
    z, train, initialise = trained
    with v1.Session(graph=z.graph) as session:
        session.run(initialise)
        session.run(train)
        frozen = Frozen(z.graph)
        for initial in (True, False):
            assert tfs.map_blocks(z, TABLE, initial_variables=initial).column("z").to_pylist() == TRAINED
        frozen.check()
        assert session.run(z, {"x:0": [1.0]}).tolist() == [5.0]


def test_variables_trained_in_a_session_that_is_passed(trained):
    z, train, initialise = trained
    frozen = Frozen(z.graph)
    with v1.Session(graph=z.graph) as session:
        session.run(initialise)
        session.run(train)
        passed = session
        with tf.Graph().as_default(), v1.Session():  # another one is current
            assert tfs.program(z, session=passed)(X).numpy().tolist() == TRAINED
            assert tfs.program(z)(X).numpy().tolist() == INITIAL
            with z.graph.as_default():
                assert tfs.program({"a": "z"}, session=passed)(X)["a"].numpy().tolist() == TRAINED
    frozen.check()


def test_a_frozen_program_keeps_the_value_that_it_was_given(trained):
    z, train, initialise = trained
    with v1.Session(graph=z.graph) as session:
        session.run(initialise)
        before = tfs.program(z)
        session.run(train)
        after = tfs.program(z)
    assert (before(X).numpy().tolist(), after(X).numpy().tolist()) == (INITIAL, TRAINED)
    assert before.digest != after.digest


def test_initialisers_that_fail_are_named():
    with tf.Graph().as_default():
        start = v1.placeholder(tf.float64, [], "start")
        z = v1.placeholder(tf.float64, [None], "x") + v1.Variable(start, use_resource=True)
    with pytest.raises(ProgramError, match=r"^program: the initialisers of the graph's variables fail: (.|\n)*'start'"):
        tfs.program(z)


def test_fetches_that_change_a_variable_are_refused():
    with tf.Graph().as_default():
        change = v1.assign(v1.get_variable("w", [], use_resource=False), 1.0)
    message = "program: the program assigns a variable (operation 'Assign'), but each worker would change its own."
    check_refused(lambda: tfs.program(change), ProgramError, message)


def test_functions_that_change_a_variable_are_refused():
    count = tf.Variable(0.0)

    def counting(x):
        count.assign_add(1.0)
        return {"z": x}

    message = "program: the program assigns a variable (operation 'AssignAddVariableOp'), but each worker would change its own."
    check_refused(lambda: tfs.program(counting, frame=TABLE), ProgramError, message)
    assert count.numpy() == 0


def test_fetches_of_two_graphs_are_refused():
    message = "program: the fetches belong to 2 graphs, but one is wanted.\n  fetches: a, b"
    check_refused(lambda: tfs.program({"a": in_graph(), "b": in_graph()}), ProgramError, message)


def test_v1_tensors_beside_functions():
    captured = tfs.program({"a": in_graph(), "b": lambda x: x + 1}, frame=TABLE)
    assert {name: value.numpy().tolist() for name, value in captured(X, Y).items()} == {"a": [6.0, 9.0, 12.0], "b": [2.0, 3.0, 4.0]}


def test_only_the_placeholders_that_are_needed_are_inputs():
    with tf.Graph().as_default():
        x, _ = (v1.placeholder(tf.float64, [None], name) for name in ("x", "unneeded"))
        tf.py_function(np.sin, [x], tf.float64)
        assert list(tfs.program(x + 1).inputs) == ["x"]


def test_what_is_random_is_drawn_once_for_all_fetches_of_one_graph():
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float64, [None], "x")
        drawn = x + tf.random.uniform([], dtype=tf.float64)
        captured = tfs.program({"a": drawn, "b": drawn * 1.0})
    values = captured(X)
    assert values["a"].numpy().tolist() == values["b"].numpy().tolist()


# --- rows ---


def test_row_programs_that_differ_only_in_names_are_not_mixed_up():
    table = pa.table({"x": [1.0, 2.0]})
    assert tfs.map_rows(lambda k, x: {"a": k - x}, table, {"k": 10.0}).column("a").to_pylist() == [9.0, 8.0]
    assert tfs.map_rows(lambda x, k: {"b": x - k}, table, {"k": 10.0}).column("b").to_pylist() == [-9.0, -8.0]
