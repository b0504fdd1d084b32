"""GraphDefs: serialised graphs, put into the graph that is being traced, and what can be told by reading them.

Knows TensorFlow's graphs; no programs, no columns. The one law: a graph is only read, or copied under names of its own.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context  # there is no public way to register a FunctionDef

from tensorframes.errors import ProgramError


def import_graph(graph: Any, feeds: Mapping[str, tf.Tensor], wanted: Sequence[str]) -> list[Any]:
    """Put a graph into the graph being traced.

    Args:
        graph: the GraphDef.
        feeds: tensor name in the graph → what stands for it.
        wanted: names of the tensors and operations to be returned.
    """
    tracing = tf.compat.v1.get_default_graph()
    if hasattr(tracing, "capture"):  # a function inside the function that is being traced, which reads a tensor of the latter
        feeds = {name: value if getattr(value, "graph", None) is tracing else tracing.capture(value) for name, value in feeds.items()}

    def put(*values: tf.Tensor) -> list[Any]:
        return list(tf.graph_util.import_graph_def(graph, dict(zip(feeds, values, strict=True)), list(wanted), name=""))

    if not has_old_loops(graph):
        return put(*feeds.values())
    # In a tf.function, outputs would be made to wait for what is inside such a loop, which is an error; in a v1 function they are not.
    specs = [tf.TensorSpec(value.shape, value.dtype) for value in feeds.values()]
    return list(tf.compat.v1.wrap_function(put, specs)(*feeds.values()))


def drop_placeholders(graph: Any, fed: Collection[str]) -> set[str]:
    """Drop the placeholders that something stands for, which a compiler takes for operations that it lacks; returns those that are read.

    Args:
        graph: the GraphDef, which is changed.
        fed: names of the tensors that something stands for.
    """
    read = {name if ":" in name else f"{name}:0" for node in graph.node for name in node.input}
    dropped = {node.name for node in graph.node if node.op == "Placeholder" and f"{node.name}:0" in fed}
    kept = [node for node in graph.node if node.name not in dropped]
    del graph.node[:]
    graph.node.extend(kept)
    places, waits = {f"loc:@{name}".encode() for name in dropped}, {f"^{name}" for name in dropped}
    for node in graph.node:  # what is there from the start is waited for by nobody, and nobody's place is beside it
        inputs = [name for name in node.input if name not in waits]
        if len(inputs) < len(node.input):
            del node.input[:]
            node.input.extend(inputs)
        beside = [place for place in node.attr["_class"].list.s if place not in places] if "_class" in node.attr else []
        if beside:
            node.attr["_class"].list.s[:] = beside
        elif "_class" in node.attr:
            del node.attr["_class"]
    return read.intersection(fed)


def has_old_loops(graph: Any) -> bool:
    """Tell whether a graph has loops of the control flow that came before functions."""
    return any(node.op == "Enter" for node in graph.node)


_REGISTERED = itertools.count()


def register_functions(graph: Any, owner: Any) -> Any:
    """Make a graph's nested functions known to this process, under names that no other graph's have, as long as `owner` lives.

    Importing a GraphDef alone does not do it: the functions inside would not be found when it runs. Their generated names, such as
    ``__inference_f_12``, mean another function in another process, so that they are replaced.

    Returns:
        The same graph, changed in place.
    """
    suffix = f"_{next(_REGISTERED)}"
    names = {function.signature.name: function.signature.name + suffix for function in graph.library.function}
    for node in (node for body in (graph.node, *(function.node_def for function in graph.library.function)) for node in body):
        node.op = names.get(node.op, node.op)
        for attr in node.attr.values():
            for called in (attr.func, *attr.list.func) if attr.HasField("func") else attr.list.func:
                called.name = names.get(called.name, called.name)
    for function in graph.library.function:
        function.signature.name = names[function.signature.name]
        context.context().add_function_def(function)
    weakref.finalize(owner, _unregister, list(names.values())).atexit = False
    return graph


def _unregister(names: Sequence[str]) -> None:
    for name in names:
        context.context().remove_function(name)


# What TensorFlow orders as if it had a side effect, but that nobody misses where its result is not wanted.
_EFFECTLESS = re.compile(
    r"LookupTable(Find|Size|Export)V2|ReadVariableOp|ResourceGather(Nd)?|VarHandleOp|VarIsInitializedOp|NoOp|(Stateless)?(Random|TruncatedNormal|Multinomial|Parameterized)\w*"
)


def has_effect(node: Any, library: Any) -> bool:
    """Tell whether an operation, or one in a function that it calls, has a side effect."""
    called = [attr.func.name for attr in node.attr.values() if attr.HasField("func")]
    called += [function.name for attr in node.attr.values() for function in attr.list.func]
    if not called:
        return not _EFFECTLESS.fullmatch(node.op)
    bodies = {function.signature.name: function for function in library.function}
    return any(
        has_effect(inner, library)
        for name in called
        for inner in bodies[name].node_def
        if inner.name in bodies[name].control_ret.values() or inner.name in bodies[name].signature.control_output
    )


_BOUND_TO_PROCESS = {
    "PyFunc": "a Python function",
    "PyFuncStateless": "a Python function",
    "EagerPyFunc": "a Python function",
    "IteratorGetNext": "a dataset's iterator",
}


# Which package registers operations that TensorFlow itself lacks: its name to install, its name to import.
_PACKAGES = (
    (
        re.compile(
            r"TFText>|(Fast)?(Wordpiece|BertNormalize)|Sentencepiece|(Regex|SplitMerge|StateBased|Whitespace|UnicodeScript)\w*(Split|Tokenize)"
            r"|(CaseFold|NormalizeUTF8|OffsetsFrom|Rouge|Ngrams|MaxSpanningTree|ConstrainedSequence)"
        ),
        "tensorflow-text",
        "tensorflow_text",
    ),
    (re.compile(r"SimpleML"), "tensorflow-decision-forests", "tensorflow_decision_forests"),
    (re.compile(r"IO>"), "tensorflow-io", "tensorflow_io"),
    (re.compile(r"Addons>"), "tensorflow-addons", "tensorflow_addons"),
)


def import_packages_of(graph: Any) -> None:
    """Import the packages that register a graph's operations, where they are known and installed: a worker has not imported them."""
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    for operation in {node.op for body in bodies for node in body}:
        package = _package_of(operation)
        if package is not None and importlib.util.find_spec(package[1]) is not None:
            importlib.import_module(package[1])


def _package_of(operation: str) -> tuple[str, str] | None:
    return next(((package, module) for pattern, package, module in _PACKAGES if pattern.match(operation)), None)


@contextmanager
def needing_operations(label: str) -> Iterator[None]:
    """Raise what TensorFlow says of an operation that it lacks as an error that names the operation, and the package that usually has it.

    Raises:
        ProgramError: TensorFlow lacks an operation.
    """
    try:
        yield
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        missing = re.search(r"Op type not registered '([^']+)'", str(error))
        if missing is None:
            raise
        package = _package_of(missing[1])
        raise ProgramError(
            f"{label} needs the operation {missing[1]!r}, which is not registered in this process.",
            hint=package and f"The package {package[0]} usually has it: install it on every node, and import {package[1]} before the call.",
        ) from error


_WRITES = re.compile(r"Assign\w*|(Resource)?(StridedSliceAssign|(Sparse)?Apply\w+|Scatter(Nd)?(Add|Sub|Mul|Div|Min|Max|Update))")


def check_shippable(graph: Any) -> None:
    """Raise if a graph holds an operation that only works in the process that built it, or that changes a variable.

    Raises:
        ProgramError: names the operation.
    """
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    for node in (node for body in bodies for node in body):
        if node.op in _BOUND_TO_PROCESS:
            raise ProgramError(
                f"the program calls {_BOUND_TO_PROCESS[node.op]} (operation {node.name!r} of type {node.op}), "
                "which cannot leave the process that made it."
            )
        if _WRITES.fullmatch(node.op):
            raise ProgramError(f"the program assigns a variable (operation {node.name!r}), but each worker would change its own.")


_CHECKS = ("Assert", "CheckNumerics", "CheckNumericsV2", "Print", "PrintV2")


def check_compilable(graph: Any) -> None:
    """Raise if a graph holds an operation that XLA leaves out, or strings, which it lacks.

    Raises:
        ProgramError: names what it is.
    """
    nodes = [node for body in (graph.node, *(function.node_def for function in graph.library.function)) for node in body]
    for node in nodes:
        if node.op in _CHECKS:
            raise ProgramError(
                f"the program is to be compiled, but XLA leaves out what operation {node.name!r} of type {node.op} checks or prints.",
                hint="Make the program without jit_compile.",
            )
    if tf.string.as_datatype_enum in types_in(graph):
        raise ProgramError("the program is to be compiled, but XLA has no strings.", hint="Make the program without jit_compile.")


def types_in(graph: Any) -> set[int]:
    """Return the numbers of the dtypes that a graph's operations have."""
    nodes = [node for body in (graph.node, *(function.node_def for function in graph.library.function)) for node in body]
    return {kind for node in nodes for attr in node.attr.values() for kind in (attr.type, *attr.list.type)}


def draws(graph: Any) -> bool:
    """Tell whether a graph holds an operation that draws random numbers."""
    bodies = (graph.node, *(function.node_def for function in graph.library.function))
    return any("Random" in node.op or "TruncatedNormal" in node.op or "Multinomial" in node.op for body in bodies for node in body)


def table_types(graph: Any) -> set[tuple[int, int]]:
    """Return the types of keys and values of the lookup tables that a graph reads."""
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    finds = (node for body in bodies for node in body if node.op.startswith("LookupTable"))
    return {(node.attr["Tin"].type, node.attr["Tout"].type) for node in finds if node.attr["Tin"].type}
