import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tensorflow.core.framework import graph_pb2

from tensorframes.digest import digest_graph

FLOATS = tf.TensorSpec([None], tf.float32)
Built = tuple[Sequence[Any], Sequence[Any], Sequence[Any]]
Traced = tuple[graph_pb2.GraphDef, list[str], list[str], list[str]]


def trace(function: Callable[..., Any], *specs: tf.TensorSpec) -> Traced:
    graph = tf.function(function).get_concrete_function(*(specs or (FLOATS,))).graph
    names = [[tensor.name for tensor in graph.inputs], [tensor.name for tensor in graph.outputs]]
    return graph.as_graph_def(), *names, [op.name for op in graph.control_outputs]


def digest_trace(function: Callable[..., Any], *specs: tf.TensorSpec) -> str:
    return digest_graph(*trace(function, *specs))


def digest_built(graph: tf.Graph, build: Callable[[], Built]) -> str:
    with graph.as_default():
        inputs, outputs, controls = build()
    names = [tensor.name for tensor in inputs], [tensor.name for tensor in outputs], [op.name for op in controls]
    return digest_graph(graph.as_graph_def(), *names)


# --- functions to trace; each makes its inner functions anew, so that nothing is left of the trace before ---


def make_nested(by: float = 3.0, jit_compile: bool | None = None) -> Callable[..., Any]:
    @tf.function(jit_compile=jit_compile)
    def innermost(x):
        return x * by

    @tf.function
    def inner(x):
        return innermost(x) + innermost(x * 2.0)

    return lambda x: inner(x) + 1.0


def make_while(step: float = 1.0) -> Callable[..., Any]:
    def run(x):
        shapes = [tf.TensorShape([]), x.shape]
        return tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a + step), [0, x], shape_invariants=shapes)

    return run


def make_nested_while() -> Callable[..., Any]:
    return lambda x: tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, make_while()(a)[1]), [0, x])


def make_cond(less: float = 1.0) -> Callable[..., Any]:
    return lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: x + 1.0, lambda: x - less)


def make_autograph() -> Callable[..., Any]:
    def run(x):
        total = tf.zeros_like(x)
        for i in tf.range(tf.size(x)):
            if x[i] > 0.0:
                total += x
            else:
                total -= x * 2.0
        return total

    return run


def make_switch_case() -> Callable[..., Any]:
    return lambda x: tf.switch_case(tf.size(x), [lambda: x, lambda: x + 2.0])


def make_custom_gradient() -> Callable[..., Any]:
    @tf.custom_gradient
    def clipped(x):
        return tf.exp(x), lambda upstream: upstream * 2.0

    return clipped


def make_gradient() -> Callable[..., Any]:
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = make_nested()(make_custom_gradient()(make_while()(x)[1]))
        return tape.gradient(y, x)

    return run


def make_map_fn() -> Callable[..., Any]:
    return lambda x: tf.map_fn(lambda cell: cell + 1.0, x)


def make_vectorized_map() -> Callable[..., Any]:
    return lambda x: tf.vectorized_map(lambda cell: tf.while_loop(lambda a: a < 9.0, lambda a: a + 1.0, [cell])[0], x)


def make_dataset() -> Callable[..., Any]:
    return lambda x: tf.data.Dataset.from_tensor_slices(x).map(lambda c: c + 1.0).reduce(0.0, lambda a, b: a + b)


def make_prints(*texts: str) -> Callable[..., Any]:
    def run(x):
        for text in texts or ("a", "b"):
            tf.print(text, x)
        return x

    return run


def make_asserts() -> Callable[..., Any]:
    def run(x):
        tf.debugging.assert_positive(x, "low")
        tf.debugging.assert_less(x, 9.0, "high")
        return tf.reduce_sum(x)

    return run


def make_table(*shared: str) -> Callable[..., Any]:
    def run(x):
        keys = tf.strings.as_string(x)
        dtypes = {"key_dtype": tf.string, "value_dtype": tf.float32}
        tables = [tf.raw_ops.HashTableV2(shared_name=name, **dtypes) for name in shared]
        return [tf.raw_ops.LookupTableFindV2(table_handle=t, keys=keys, default_value=0.0) for t in tables]

    return run


def make_tables_in_functions(*shared: str) -> Callable[..., Any]:
    return lambda x: [tf.function(make_table(name))(x) for name in shared]


SAME = {
    "nested functions": make_nested,
    "compiled nested functions": lambda: make_nested(jit_compile=True),
    "while_loop": make_while,
    "nested while_loop": make_nested_while,
    "cond": make_cond,
    "AutoGraph loop": make_autograph,
    "switch_case": make_switch_case,
    "custom gradient": make_custom_gradient,
    "gradient through functions": make_gradient,
    "map_fn": make_map_fn,
    "vectorized_map": make_vectorized_map,
    "dataset": make_dataset,
    "prints": make_prints,
    "asserts": make_asserts,
}


@pytest.mark.parametrize("make", SAME.values(), ids=SAME)
def test_a_second_trace_has_the_same_digest(make):
    assert digest_trace(make()) == digest_trace(make())


def test_a_second_trace_gives_functions_other_names():
    first, second = (trace(make_while())[0] for _ in range(2))
    names = [{function.signature.name for function in graph.library.function} for graph in (first, second)]
    assert names[0].isdisjoint(names[1])


def test_names_and_unneeded_nodes_do_not_count():
    def named(a):
        tf.add(a, 7.0, name="unneeded")
        return tf.multiply(a, 2.0, name="twice")

    assert digest_trace(named) == digest_trace(lambda b: b * 2.0)


def test_shared_names_count_only_for_what_they_tie_together():
    assert digest_trace(make_table("a", "b")) == digest_trace(make_table("c", "d"))
    assert digest_trace(make_tables_in_functions("a", "b")) == digest_trace(make_tables_in_functions("c", "d"))


def test_the_devices_of_the_tracing_machine_do_not_count():
    graph, *names = trace(make_nested())
    other = graph_pb2.GraphDef.FromString(graph.SerializeToString())
    for node in itertools.chain(other.node, *(function.node_def for function in other.library.function)):
        if "config_proto" in node.attr:
            config = tf.compat.v1.ConfigProto.FromString(node.attr["config_proto"].s)
            config.device_count["GPU"] = 8
            node.attr["config_proto"].s = config.SerializeToString()
    assert graph != other
    assert digest_graph(graph, *names) == digest_graph(other, *names)


# --- the same graph built twice in one graph, as Python code for TensorFlow 1 does ---


def build_sum() -> Built:
    x, y = (tf.compat.v1.placeholder(tf.float32, [None]) for _ in range(2))
    return [x, y], [tf.add(x, y) * 2.0, y - x], []


def build_loop() -> Built:
    """Build a loop of the old control flow: a cycle of nodes in a frame, here with control inputs within it."""
    x = tf.compat.v1.placeholder(tf.float32, [None])

    def body(a):
        # Out of the loop's scope, so that the second time they are named, and sorted, as in build_controls.
        with tf.compat.v1.name_scope(None):
            prints = [tf.raw_ops.Print(input=a + float(i), data=[a]).op for i in range(8)]
        with tf.control_dependencies(prints):
            return a * a

    y = tf.compat.v1.while_loop(lambda a: tf.reduce_sum(a) < 9.0, body, [x])
    return [x], [y, *tf.compat.v1.gradients(y, x)], []


def build_arrays() -> Built:
    x = tf.compat.v1.placeholder(tf.float32, [None])
    y = tf.map_fn(lambda a: a * a, x)
    return [x], [y, *tf.compat.v1.gradients(y, x)], []


def build_stack() -> Built:
    """Build a stack and an array whose names are generated, as a library does that gives them the name of a scope."""
    name = tf.compat.v1.get_default_graph().unique_name("scope")
    stack = tf.raw_ops.StackV2(max_size=1, elem_type=tf.float32, stack_name=name)
    array = tf.raw_ops.TensorArrayV3(size=1, dtype=tf.float32, tensor_array_name=name)
    return [], [tf.raw_ops.TensorArraySizeV3(handle=array[0], flow_in=array[1])], [stack.op]


def build_cond() -> Built:
    x = tf.compat.v1.placeholder(tf.float32, [None])
    return [x], [tf.compat.v1.cond(tf.reduce_sum(x) < 9.0, lambda: x + 1.0, lambda: x)], []


def build_table() -> Built:
    x = tf.compat.v1.placeholder(tf.int64, [None])
    rows = tf.lookup.KeyValueTensorInitializer([1, 2], [3.0, 4.0], tf.int64, tf.float32)
    table = tf.lookup.StaticHashTable(rows, 0.0)
    return [x], [table.lookup(x)], [table._init_op]


def build_controls() -> Built:
    """Let one node wait for twelve, whose names sort one way as Print_9, Print_10 and another as Print_21, Print_22."""
    x = tf.compat.v1.placeholder(tf.float32, [None])
    prints = [tf.raw_ops.Print(input=x + float(i), data=[x]).op for i in range(12)]
    with tf.control_dependencies(prints):
        return [x], [tf.identity(x)], prints[:6]


BUILT = {
    "sum": build_sum,
    "loop": build_loop,
    "cond": build_cond,
    "arrays": build_arrays,
    "stack": build_stack,
    "controls": build_controls,
    "table": build_table,
}


@pytest.mark.parametrize("build", BUILT.values(), ids=BUILT)
def test_building_again_in_the_same_graph_gives_the_same_digest(build):
    graph = tf.Graph()
    tf.compat.v1.disable_control_flow_v2()
    try:
        assert digest_built(graph, build) == digest_built(graph, build)
    finally:
        tf.compat.v1.enable_control_flow_v2()


# --- different computations ---


def shared_random(x):
    a = tf.random.uniform([])
    return x + (a - a)


def two_randoms(x):
    return x + (tf.random.uniform([]) - tf.random.uniform([]))


def make_three_randoms(first: int, second: int, third: int) -> Callable[..., Any]:
    def run(x):
        randoms = [tf.random.uniform([]) for _ in range(2)]
        return x + ((randoms[first] - randoms[second]) - randoms[third])

    return run


def on_device(x):
    with tf.device("/CPU:0"):
        return x + 1.0


def with_array(values: Any) -> Callable[..., Any]:
    return lambda x: x + tf.constant(values, tf.float32)


def make_with_optimizer(**options: bool) -> Callable[..., Any]:
    def run(x):
        tf.config.optimizer.set_experimental_options(options)
        try:
            return make_nested()(x)
        finally:
            tf.config.optimizer.set_experimental_options(dict.fromkeys(options, False))

    return run


BIG = np.arange(1000)
DIFFERENT = {
    "constant": (lambda x: x + 1.0, lambda x: x + 2.0),
    "large constant": (with_array(BIG), with_array(BIG[::-1].copy())),
    "shape of a constant": (with_array(np.ones([1, 6])), with_array(np.ones([6, 1]))),
    "op": (lambda x: x + 1.0, lambda x: x - 1.0),
    "dtype": (lambda x: tf.cast(x, tf.int32), lambda x: tf.cast(x, tf.int64)),
    "attribute": (lambda x: tf.reduce_sum(x, 0), lambda x: tf.reduce_sum(x, 0, keepdims=True)),
    "device": (lambda x: x + 1.0, on_device),
    "swapped operands": (lambda x: x - x * x, lambda x: x * x - x),
    "output port": (lambda x: tf.unique_with_counts(x)[1], lambda x: tf.unique_with_counts(x)[2]),
    "order of outputs": (lambda x: (x + 1.0, x + 2.0), lambda x: (x + 2.0, x + 1.0)),
    "one output more": (lambda x: x + 1.0, lambda x: (x + 1.0, x + 1.0)),
    "shared or repeated random": (shared_random, two_randoms),
    "which random is repeated": (make_three_randoms(0, 0, 1), make_three_randoms(0, 1, 0)),
    "order of side effects": (make_prints("a", "b"), make_prints("b", "a")),
    "missing side effect": (make_prints("a"), make_prints("a", "a")),
    "body of a nested function": (make_nested(3.0), make_nested(4.0)),
    "body of a loop": (make_while(1.0), make_while(2.0)),
    "branch of a cond": (make_cond(1.0), make_cond(2.0)),
    "jit_compile": (make_nested(), make_nested(jit_compile=True)),
    "rewriting of the graph": (make_nested(), make_with_optimizer(auto_mixed_precision=True)),
    "one table or two": (make_table("a", "a"), make_table("a", "b")),
    "named table or not": (make_table("a", "b"), make_table("", "")),
    "one table or two, in functions": (make_tables_in_functions("a", "a"), make_tables_in_functions("a", "b")),
    "python function": (
        lambda x: tf.numpy_function(np.sin, [x], tf.float32),
        lambda x: tf.numpy_function(np.cos, [x], tf.float32),
    ),
}


@pytest.mark.parametrize(("first", "second"), DIFFERENT.values(), ids=DIFFERENT)
def test_another_computation_has_another_digest(first, second):
    assert digest_trace(first) != digest_trace(second)


def test_dtype_shape_and_order_of_inputs_count():
    def digests():
        for a, b in itertools.product(
            [
                FLOATS,
                tf.TensorSpec([None], tf.float64),
                tf.TensorSpec([3], tf.float32),
                tf.TensorSpec(None, tf.float32),
            ],
            repeat=2,
        ):
            yield digest_trace(lambda x, y: tf.cast(x, tf.int32) - tf.cast(y, tf.int32), a, b)

    assert len(set(digests())) == 16
    graph, inputs, outputs, _ = trace(lambda x, y: x - y, FLOATS, FLOATS)
    assert digest_graph(graph, inputs, outputs) != digest_graph(graph, inputs[::-1], outputs)
    assert digest_graph(graph, inputs, outputs) != digest_graph(graph, inputs[:1], outputs)


def test_an_input_that_nothing_needs_counts():
    assert digest_trace(lambda x: x) != digest_trace(lambda x, y: x, FLOATS, FLOATS)


def test_the_order_of_controls_does_not_count_but_each_of_them_does():
    graph = tf.Graph()
    with graph.as_default():
        inputs, outputs, prints = build_controls()
    definition = graph.as_graph_def()
    fixed = definition, [inputs[0].name], [inputs[0].name]
    names = [op.name for op in prints]
    assert digest_graph(*fixed, names) == digest_graph(*fixed, names[::-1])
    assert len({digest_graph(*fixed, names[:n]) for n in range(7)}) == 7
    assert outputs[0].name not in fixed


def test_a_control_dependency_counts():
    graph, inputs, outputs, controls = trace(make_prints("a", "b"))
    loose = graph_pb2.GraphDef.FromString(graph.SerializeToString())
    second = [node for node in loose.node if node.op == "PrintV2"][1]
    second.input.remove("^PrintV2")
    assert digest_graph(graph, inputs, outputs, controls) != digest_graph(loose, inputs, outputs, controls)


def test_any_tensor_can_be_fed():
    graph, inputs, outputs, _ = trace(lambda x: tf.add(*tf.unique(tf.cast(x + 1.0, tf.int32), name="found")))
    feeds = inputs, ["found:0"], ["found:1"], ["found:0", "found:1"]
    assert len({digest_graph(graph, each, outputs) for each in feeds}) == 4


def test_what_a_fed_placeholder_would_have_held_does_not_count():
    def digest(default: str, feeds: list[str]) -> str:
        graph = graph_pb2.GraphDef()
        graph.node.add(name="default", op=default)
        graph.node.add(name="x", op="PlaceholderWithDefault", input=["default"])
        graph.node.add(name="y", op="Neg", input=["x", "^x"])
        return digest_graph(graph, feeds, ["y:0"])

    assert digest("A", ["x:0"]) == digest("B", ["x:0"])
    assert digest("A", []) != digest("B", [])


def test_a_missing_node_is_named():
    graph, inputs, _, _ = trace(lambda x: x)
    for names in ((inputs, ["y:0"]), (["y:0"], inputs), (inputs, inputs, ["y"]), (inputs, inputs, ["x", "y"])):
        with pytest.raises(ValueError, match=r"^the graph holds no node 'y'$"):
            digest_graph(graph, *names)


# --- graphs written by hand ---


def chain(length: int) -> graph_pb2.GraphDef:
    graph = graph_pb2.GraphDef()
    graph.node.add(name="n0", op="Placeholder")
    for i in range(1, length):
        waits = [f"^n{i - 3}", f"^n{i - 2}"] if i > 3 else []
        graph.node.add(name=f"n{i}", op="Neg", input=[f"n{i - 1}", *waits])
    return graph


def test_a_deep_chain_needs_no_deep_stack():
    graph = chain(20_000)
    assert digest_graph(graph, ["n0:0"], ["n19999:0"]) != digest_graph(graph, ["n0:0"], ["n19998:0"])


def library(**calls: list[str]) -> graph_pb2.GraphDef:
    """Write a graph that calls f; each function negates its argument (g twice), then calls by name those listed."""
    graph = graph_pb2.GraphDef()
    graph.node.add(name="x", op="Placeholder")
    graph.node.add(name="y", op="f", input=["x"])
    for name, callees in calls.items():
        function = graph.library.function.add()
        function.signature.name = name
        function.signature.input_arg.add(name=f"{name}_in", type=1)
        function.signature.output_arg.add(name=f"{name}_out", type=1)
        last = f"{name}_in"
        for i in range(2 if name.startswith("g") else 1):
            function.node_def.add(name=f"neg{i}", op="Neg", input=[last])
            last = f"neg{i}:y:0"
        for i, callee in enumerate(callees):
            function.node_def.add(name=f"call{i}", op=callee, input=[last])
            last = f"call{i}:{callee}_out:0"
        function.ret[f"{name}_out"] = last
    return graph


def test_functions_called_by_name_count_by_their_bodies():
    def digest(**calls: list[str]) -> str:
        return digest_graph(library(**calls), ["x:0"], ["y:0"])

    assert digest(f=["h"], h=[]) == digest(f=["i"], i=[]) == digest(f=["i"], i=[], unneeded=["unneeded"])
    assert digest(f=["h"], h=[]) != digest(f=["g"], g=[])


def test_recursive_functions_end():
    calls = [
        {"f": ["f"]},
        {"f": ["f", "f"]},
        {"f": ["g"], "g": ["f"]},
        {"f": ["g"], "g": ["g"]},
        {"f": ["g"], "g": ["f", "g"]},
        {"f": ["g"], "g": ["h"], "h": ["f"]},
        {"f": ["g"], "g": ["h"], "h": ["g"]},
    ]
    assert len({digest_graph(library(**each), ["x:0"], ["y:0"]) for each in calls}) == len(calls)
    first, second = library(f=["g"], g=["h", "f"], h=["g"]), library(f=["g2"], g2=["a", "f"], a=["g2"])
    assert digest_graph(first, ["x:0"], ["y:0"]) == digest_graph(second, ["x:0"], ["y:0"])


def test_deeply_nested_functions_need_no_deep_stack():
    names = ["f", *(f"h{i}" for i in range(3000))]
    calls = {name: [after] for name, after in itertools.pairwise(names)}
    first = digest_graph(library(**calls, h2999=[]), ["x:0"], ["y:0"])
    assert first != digest_graph(library(**calls, h2999=["g"], g=[]), ["x:0"], ["y:0"])


# --- random graphs: equal digests exactly where one graph can be laid over the other ---

# A node: its op, the nodes it takes (all before it), and those it waits for.
Node = tuple[str, list[int], list[int]]


@st.composite
def dags(draw: st.DrawFn) -> list[Node]:
    nodes: list[Node] = [("Placeholder", [], [])]
    for i in range(draw(st.integers(1, 6))):
        before = st.integers(0, i)
        op, count = draw(st.sampled_from([("Random", 0), ("Neg", 1), ("Sub", 2)]))
        inputs = [draw(before) for _ in range(count)]
        nodes.append((op, inputs, draw(st.lists(before, max_size=2, unique=True))))
    return nodes


def written(nodes: list[Node], names: Sequence[int], order: Sequence[int]) -> graph_pb2.GraphDef:
    graph = graph_pb2.GraphDef()
    for i in order:
        op, inputs, controls = nodes[i]
        node = graph.node.add(name=f"n{names[i]}", op=op, input=[f"n{names[j]}" for j in inputs])
        # As TensorFlow does: sorted by name.
        node.input.extend(sorted(f"^n{names[j]}" for j in controls))
    return graph


def overlay(first: list[Node], second: list[Node], pairs: list[tuple[int, int]], over: dict[int, int]) -> bool:
    """Say whether the pairs of nodes, and all they need, match one to one; tries every order of control inputs."""
    if not pairs:
        return True
    (a, b), rest = pairs[0], pairs[1:]
    if a in over or b in over.values():
        return over.get(a) == b and overlay(first, second, rest, over)
    (op, inputs, controls), (other_op, other_inputs, others) = first[a], second[b]
    if op != other_op or len(controls) != len(others):
        return False
    return any(
        overlay(
            first,
            second,
            [*zip(inputs, other_inputs, strict=True), *zip(controls, p, strict=True), *rest],
            {**over, a: b},
        )
        for p in itertools.permutations(others)
    )


def same(first: list[Node], second: list[Node]) -> bool:
    return overlay(first, second, [(len(first) - 1, len(second) - 1)], {})


def digest_plain(nodes: list[Node]) -> str:
    return digest_dag(nodes, range(len(nodes)), range(len(nodes)))


def digest_dag(nodes: list[Node], names: Sequence[int], order: Sequence[int]) -> str:
    graph = written(nodes, names, order)
    return digest_graph(graph, [f"n{names[0]}:0"], [f"n{names[-1]}:0"])


def test_overlay_tells_graphs_apart():
    x: Node = ("Placeholder", [], [])
    random: Node = ("Random", [], [])
    assert same([x, random, ("Neg", [1], [])], [x, random, random, ("Neg", [2], [])])
    assert not same([x, random, ("Sub", [1, 1], [])], [x, random, random, ("Sub", [1, 2], [])])
    assert not same([x, random, ("Sub", [0, 1], [])], [x, random, ("Sub", [1, 0], [])])
    assert not same([x, ("Neg", [0], [])], [x, ("Neg", [0], [0])])
    assert same([x, random, ("Neg", [0], [0, 1])], [x, random, ("Neg", [0], [1, 0])])


@given(dags(), st.data())
def test_renamed_nodes_have_the_same_digest(nodes, data):
    count = range(len(nodes))
    names = data.draw(st.permutations(count))
    assert digest_plain(nodes) == digest_dag(nodes, names, count)


def test_renamed_control_inputs_that_look_alike_have_the_same_digest():
    nodes: list[Node] = [
        ("Placeholder", [], []),
        ("Random", [], []),
        ("Random", [], []),
        ("Neg", [1], []),
        ("Neg", [2], []),
        ("Neg", [0], [3, 4]),
        ("Sub", [1, 2], []),
        ("Sub", [5, 6], []),
    ]
    assert digest_plain(nodes) == digest_dag(nodes, range(8)[::-1], range(8))


@given(dags(), st.data())
def test_nodes_in_another_order_have_the_same_digest(nodes, data):
    bare = [(op, inputs, controls[:1]) for op, inputs, controls in nodes]
    names, order = (data.draw(st.permutations(range(len(nodes)))) for _ in range(2))
    assert digest_plain(bare) == digest_dag(bare, names, order)


def check_law(first: list[Node], second: list[Node]) -> None:
    equal, laid_over = digest_plain(first) == digest_plain(second), same(first, second)
    assert laid_over or not equal
    # Between control inputs that look alike the order of the nodes decides, and the overlay knows no order.
    if all(len(controls) < 2 for _, _, controls in first):
        assert equal or not laid_over


@given(dags(), dags())
def test_digests_are_equal_where_structures_are(first, second):
    check_law(first, second)


@given(dags(), st.data())
def test_a_changed_node_shows_unless_the_structure_is_the_same(nodes, data):
    i = data.draw(st.sampled_from(range(1, len(nodes))))
    op, inputs, _ = nodes[i]
    changed = [*nodes]
    if inputs:
        at = data.draw(st.sampled_from(range(len(inputs))))
        inputs = [*inputs[:at], data.draw(st.integers(0, i - 1)), *inputs[at + 1 :]]
    changed[i] = op, inputs, data.draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True))
    check_law(nodes, changed)
