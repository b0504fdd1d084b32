"""Tensors of v1-style graphs as fetches, with the values that their variables have.

The graph is taken from the tensors, not from the default graph, and stays as it was: what is read of it is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tensorframes.capture.tracing import Fetch
from tensorframes.errors import ProgramError
from tensorframes.graphdefs import check_shippable, has_old_loops, import_graph, register_functions
from tensorframes.programs import capture_value, make_table
from tensorframes.tensors import eagerly

_VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
_PLACEHOLDERS = ("Placeholder", "PlaceholderWithDefault")
_TABLES = ("HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2", "MutableHashTableOfTensorsV2")


def is_graph_tensor(fetch: Any) -> bool:
    """Tell whether a fetch is a symbolic tensor, or text that may name one."""
    return isinstance(fetch, str) or (isinstance(fetch, tf.Tensor) and not hasattr(fetch, "numpy"))


def names_tensor(fetch: Any) -> bool:
    """Tell whether a text names a tensor of the default graph."""
    if not isinstance(fetch, str):
        return False
    try:
        tf.compat.v1.get_default_graph().get_tensor_by_name(fetch if ":" in fetch else f"{fetch}:0")
    except (KeyError, ValueError):
        return False
    return True


def find_tensor(fetch: Any) -> tf.Tensor:
    """Return a tensor itself, or the one of that name (``"z"`` or ``"z:0"``) in the default graph.

    Raises:
        ProgramError: the default graph has no such tensor.
    """
    if not isinstance(fetch, str):
        return fetch
    graph = tf.compat.v1.get_default_graph()
    try:
        return graph.get_tensor_by_name(fetch if ":" in fetch else f"{fetch}:0")
    except (KeyError, ValueError) as error:
        raise ProgramError(
            f"the default graph has no tensor named {fetch!r}, and there is no program in a file of that name.",
            facts={"tensors": [tensor.name for op in graph.get_operations() for tensor in op.outputs]},
        ) from error


def output_name(tensor: tf.Tensor) -> str:
    """Return the column's name for a fetched tensor: ``z:0`` → ``z``, ``top_k:1`` → ``top_k_1``."""
    op, _, index = tensor.name.rpartition(":")
    return op if index == "0" else f"{op}_{index}"


def as_graph_fetch(
    tensors: dict[str, tf.Tensor], structure: str, session: Any, initial_variables: bool, *, may_extend: bool = False
) -> Fetch:
    """Read the subgraph that some tensors depend on, with its placeholders as inputs and its variables as values.

    Args:
        tensors: output name → tensor, all of one graph.
        structure: what a call of the program gives: "bare", "list" or "dict".
        session: holds the values of the variables; None: the default session of this graph, if there is one.
        initial_variables: whether variables that have no value are initialised; their values stay ours.
        may_extend: whether the graph is ours, so that operations may be added that read its variables and lookup tables.

    Raises:
        ProgramError: tensors of several graphs, a variable without a value, or an operation that cannot leave the process.
    """
    graphs = {id(tensor.graph): tensor.graph for tensor in tensors.values()}
    if len(graphs) > 1:
        raise ProgramError(f"the fetches belong to {len(graphs)} graphs, but one is wanted.", facts={"fetches": list(tensors)})
    (graph,) = graphs.values()
    graph_def = _subgraph(graph.as_graph_def(), [tensor.op.name for tensor in tensors.values()])
    check_shippable(graph_def)
    if may_extend:
        _add_reads(graph, [node.name for node in graph_def.node if node.op == "VarHandleOp"])
    tables = {node.name: node for node in graph_def.node if node.op in _TABLES}
    if tables and not may_extend:
        raise ProgramError(f"the fetches read a lookup table (operation {next(iter(tables))!r}), which cannot be taken out of a v1 graph.")
    entries = {name: _entries(graph, node, session) for name, node in tables.items()}
    values = _read_variables(graph, [node.name for node in graph_def.node if node.op in _VARIABLES], session, initial_variables)
    inputs = [node for node in graph_def.node if node.op in _PLACEHOLDERS]
    for node in graph_def.node:
        if node.op == "VarHandleOp" or node.name in tables:
            _become_placeholder(node)
    call = _GraphCall(graph_def, {node.name for node in inputs}, tensors, values, entries)
    return Fetch(
        "the graph",
        tuple(node.name for node in inputs),
        call,
        optional=frozenset(node.name for node in inputs if node.op == "PlaceholderWithDefault"),
        declared={node.name: _spec(node) for node in inputs},
        narrows=True,
        structure=structure,
        is_opaque=bool(graph_def.library.function) or has_old_loops(graph_def),
    )


class _GraphCall:
    """Puts a copy of a v1 graph into the graph being traced."""

    def __init__(
        self,
        graph_def: Any,
        inputs: set[str],
        tensors: dict[str, tf.Tensor],
        values: dict[str, Any],
        entries: dict[str, tuple[Any, Any]],
    ) -> None:
        self.graph_def, self.inputs = register_functions(graph_def, self), inputs
        self.names = {name: tensor.name for name, tensor in tensors.items()}
        self.shapes = [tensor.shape for tensor in tensors.values()]
        handles = {node.name for node in graph_def.node if node.op == "Placeholder" and node.name not in inputs}
        with eagerly():
            self.variables = {
                name: tf.Variable(value, trainable=False) if name in handles else tf.constant(value) for name, value in values.items()
            }
            self.variables |= {name: make_table(tf.constant(keys), tf.constant(held)) for name, (keys, held) in entries.items()}

    def __call__(self, feeds: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        input_map = {f"{name}:0": capture_value(value) for name, value in self.variables.items()}
        input_map |= {f"{name}:0": tensor for name, tensor in feeds.items()}
        found = import_graph(self.graph_def, input_map, list(self.names.values()))
        for tensor, shape in zip(found, self.shapes, strict=True):
            tensor.set_shape(shape)  # what the user told TensorFlow, or an old-style loop hides, is not in the GraphDef
        return dict(zip(self.names, found, strict=True))


def _subgraph(graph_def: Any, roots: Sequence[str]) -> Any:
    """Return the part of a graph that some operations depend on."""
    nodes = {node.name: node for node in graph_def.node}
    wanted, waiting = set(roots), list(roots)
    while waiting:
        for name in nodes[waiting.pop()].input:
            op = name.removeprefix("^").partition(":")[0]
            if op not in wanted:
                wanted.add(op)
                waiting.append(op)
    part = tf.compat.v1.GraphDef(versions=graph_def.versions)
    part.node.extend(node for node in graph_def.node if node.name in wanted)
    part.library.function.extend(_called(part.node, {function.signature.name: function for function in graph_def.library.function}))
    part.library.gradient.extend(graph_def.library.gradient)
    return part


def _called(nodes: Iterable[Any], functions: Mapping[str, Any]) -> list[Any]:
    """Return the functions that some nodes call, and those that these call."""
    found: dict[str, Any] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        attrs = node.attr.values()
        names = [node.op, *(attr.func.name for attr in attrs if attr.HasField("func"))]
        names += [function.name for attr in attrs for function in attr.list.func]
        for name in names:
            if name in functions and name not in found:
                found[name] = functions[name]
                waiting.extend(functions[name].node_def)
    return list(found.values())


def _add_reads(graph: Any, names: Iterable[str]) -> None:
    """Add to our own graph operations that read its variables, where it has none that stands by itself."""
    with graph.as_default(), tf.control_dependencies(None):
        for name in names:
            handle = graph.get_operation_by_name(name)
            tf.raw_ops.ReadVariableOp(resource=handle.outputs[0], dtype=handle.get_attr("dtype"))


def _entries(graph: Any, node: Any, session: Any) -> tuple[Any, Any]:
    """Return the keys and values of a lookup table of our own graph."""
    with graph.as_default():
        handle = graph.get_operation_by_name(node.name).outputs[0]
        types = [node.attr[key].type for key in ("key_dtype", "value_dtype")]
        keys, values = session.run(tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=types[0], Tvalues=types[1]))
    return keys, values


def _read_variables(graph: Any, names: Sequence[str], session: Any, initial_variables: bool) -> dict[str, Any]:
    if not names:
        return {}
    if session is not None and not hasattr(session, "graph"):
        raise ProgramError(f"session is of type {type(session).__name__}, but a tf.compat.v1.Session is wanted.")
    if session is not None and session.graph is not graph:
        raise ProgramError("session is one of another graph than that of the fetches.")
    session = session or tf.compat.v1.get_default_session()
    if session is not None and session.graph is not graph:
        session = None
    values: dict[str, Any] = {}
    if session is not None:
        values = _values(graph, names, session)
    missing = [name for name in names if name not in values]
    if missing and initial_variables:
        with tf.compat.v1.Session(graph=graph, config=tf.compat.v1.ConfigProto(device_count={"GPU": 0})) as scratch:
            _initialize(graph, missing, scratch)
            values |= _values(graph, missing, scratch)
        missing = [name for name in names if name not in values]
    if missing:
        raise ProgramError(
            "the fetches read variables that have no value.",
            facts={"variables": missing},
            hint=None if initial_variables else "Pass their session to tfs.program(…, session=…), or initial_variables=True.",
        )
    return {name: values[name] for name in names}


def _values(graph: Any, names: Sequence[str], session: Any) -> dict[str, Any]:
    """Return the values of those variables that have one."""
    values = {}
    for name in names:
        try:
            values[name] = session.run(_read(graph, name))
        except tf.errors.FailedPreconditionError:  # what TensorFlow says of a variable without a value
            continue
        except RuntimeError as error:
            raise ProgramError(f"the values of the variables cannot be read from the session: {error}") from error
    return values


def _read(graph: Any, name: str) -> tf.Tensor:
    """Return a tensor of the graph that is the variable's value."""
    op = graph.get_operation_by_name(name)
    if op.type != "VarHandleOp":
        return op.outputs[0]
    reads = [reader for reader in op.outputs[0].consumers() if reader.type == "ReadVariableOp" and not reader.control_inputs]
    if not reads:
        raise ProgramError(f"the fetches read a variable {name!r} whose value the graph never reads by itself.")
    return reads[0].outputs[0]


def _initialize(graph: Any, names: Sequence[str], session: Any) -> None:
    """Initialise the named variables, or all of the graph's where these depend on others."""
    keys = tf.compat.v1.GraphKeys
    variables = {id(v): v for key in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES) for v in graph.get_collection(key)}.values()
    wanted = [variable.initializer for variable in variables if variable.op.name in names]
    try:
        try:
            session.run(wanted)
        except tf.errors.FailedPreconditionError:
            session.run([variable.initializer for variable in variables])
    except tf.errors.OpError as error:
        raise ProgramError(f"the initialisers of the graph's variables fail: {error.message.strip()}") from error


def _become_placeholder(node: Any) -> None:
    """Turn a variable's handle into an input of the same name, through which its value comes."""
    node.op = "Placeholder"
    for key in list(node.attr):
        del node.attr[key]
    node.attr["dtype"].type = tf.resource.as_datatype_enum


def _spec(node: Any) -> tf.TensorSpec:
    return tf.TensorSpec(tf.TensorShape(node.attr["shape"].shape), tf.as_dtype(node.attr["dtype"].type), node.name)
