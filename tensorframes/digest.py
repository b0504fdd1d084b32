"""Name what a graph computes: one digest for the same computation, however often it is traced.

TensorFlow numbers the names of nodes and functions anew in every trace (``add_1``, ``while_body_45``), so the bytes of
a GraphDef differ from trace to trace although the computation does not. The digest walks the graph from its results
and hashes structure only.

This room knows nothing of columns, frames or sessions, and never runs a graph.

The law: equal digests mean equal computations up to the names of nodes, functions, loop frames and shared resources;
tracing the same function again gives the same digest. State that lives outside the graph (the value of a variable, the
rows of a table that nothing in the graph fills) is no part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tensorflow.core.framework import attr_value_pb2, function_pb2, graph_pb2, node_def_pb2, tensor_pb2
from tensorflow.core.protobuf import config_pb2

__all__ = ["digest_graph"]

# Attributes that begin with "_" are notes of one part of TensorFlow to another: shapes already inferred, the user's
# name of an argument, colocation by node name (_class), the registered name of a gradient (_gradient_op_type). They do
# not change the values computed. These do change what is compiled, and with it the rounding. (_XlaScope, which goes
# with _XlaCompile, is a generated name and only groups nodes.)
_KEPT_PRIVATE = frozenset({"_XlaMustCompile", "_XlaCompile"})

# Attributes that hold generated names which nothing computed depends on, with the beginnings of the ops they are
# dropped from ("" is every op, and functions): an op of the user's may use the same word for something real.
_DROPPED = {
    # Pair a function with its gradient; the forward pass that the digest describes does not follow them.
    "forward_function_name": "",
    "backward_function_name": "",
    # Keras draws a UUID here for each layer, to mark functions that compute the same on different devices.
    "api_implements": "",
    # The resource is named by shared_name; this only goes into messages.
    "debug_name": "VarHandleOp",
    # The runtime appends a counter to both, so that two of them never meet.
    "stack_name": "Stack",
    "tensor_array_name": "TensorArray",
}

# Attributes whose text may be generated, but where equal text ties nodes together: each distinct text is replaced by
# the number of its first appearance. Beginnings of ops as above.
_NUMBERED = {
    # Which variable, table or queue. See _shared_key for the container.
    "shared_name": ("",),
    # Which loop of the old control flow an Enter belongs to.
    "frame_name": ("Enter", "RefEnter"),
    # Which temporary variable is destroyed.
    "var_name": ("TemporaryVariable", "DestroyTemporaryVariable"),
    # Which call to gradients() a gradient array belongs to ("gradients", "gradients_1").
    "source": ("TensorArrayGrad",),
}

# Everything else is hashed as it stands, on purpose also: `container` (chosen by the user, never generated),
# `executor_type`, `output_shapes` of loops and branches (the same in each trace), and `token` of PyFunc, which changes
# with each trace but is all that tells one Python function from another.

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_FED_WHOLE = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})


def digest_graph(
    graph: graph_pb2.GraphDef,
    inputs: Sequence[str],
    outputs: Sequence[str],
    controls: Sequence[str] = (),
) -> str:
    """Return the digest of the computation from the inputs to the outputs.

    Takes one pass over the nodes that the outputs and controls need, and one over the bytes of their constants. Where
    two control inputs of one node are alike in all that they need, their order in the GraphDef decides; TensorFlow
    writes nodes in the order of their creation, so that it is the same in each trace.

    Args:
        graph: The graph, with the functions it calls in its library.
        inputs: Names of the tensors that are fed ("x:0"), in the order of the signature.
        outputs: Names of the tensors that are fetched ("add:0"), in order.
        controls: Names of the ops that run for their side effects; their order does not matter.

    Returns:
        A SHA-256 digest, in hexadecimal.

    Raises:
        ValueError: If the graph lacks a node that is named.

    Example:
        >>> import tensorflow as tf
        >>> double = tf.function(lambda x: x + x).get_concrete_function(tf.TensorSpec([None], tf.float32))
        >>> again = tf.function(lambda x: x + x).get_concrete_function(tf.TensorSpec([None], tf.float32))
        >>> graphs = [function.graph.as_graph_def() for function in (double, again)]
        >>> digest_graph(graphs[0], ["x:0"], ["Identity:0"]) == digest_graph(graphs[1], ["x:0"], ["Identity:0"])
        True
    """
    library = _Library(graph.library)
    nodes = {node.name: node for node in graph.node}
    body = _Body(nodes, _fed(nodes, inputs), library)
    library.prepare(body.needed(outputs, controls))
    signature = _hash(*(_input_type(_node(nodes, tensor)) for tensor in inputs))
    digest, _ = body.digest(outputs, controls)
    return _hash(signature, digest, library.recursive_digest()).hex()


# A shared thing that a node names: (kind, container, text, whether the text was given or is the node's own name).
_Key = tuple[str, str, str, bool]


@dataclass(frozen=True, slots=True)
class _Digested:
    """What a node or a function is apart from its name and inputs, and the shared things it names, in order."""

    digest: bytes
    keys: tuple[_Key, ...]


class _Record:
    """A hash under way. Each piece is preceded by its length, so that no two lists of pieces look alike."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.keys: list[_Key] = []

    def write(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._hash.update(len(piece).to_bytes(8, "little"))
            self._hash.update(piece)

    def done(self) -> _Digested:
        return _Digested(self._hash.digest(), tuple(self.keys))


def _hash(*pieces: bytes) -> bytes:
    record = _Record()
    record.write(*pieces)
    return record.done().digest


def _node(nodes: Mapping[str, node_def_pb2.NodeDef], edge: str) -> node_def_pb2.NodeDef:
    name = edge.partition(":")[0]
    if name not in nodes:
        raise ValueError(f"the graph holds no node {name!r}")
    return nodes[name]


def _fed(nodes: Mapping[str, node_def_pb2.NodeDef], inputs: Sequence[str]) -> dict[str, int]:
    """Map each fed tensor to its position; for a placeholder its bare name too, which is how control edges name it."""
    fed: dict[str, int] = {}
    for position, tensor in enumerate(inputs):
        name, _, port = tensor.partition(":")
        fed.setdefault(f"{name}:{port or 0}", position)
        if _node(nodes, name).op in _FED_WHOLE:
            fed.setdefault(name, position)
    return fed


def _input_type(node: node_def_pb2.NodeDef) -> bytes:
    """Digest dtype and shape of a placeholder; another node that is fed has none of its own."""
    return _hash(*(_serialize(node.attr[key]) if key in node.attr else b"" for key in ("dtype", "shape")))


def _serialize(message: attr_value_pb2.AttrValue) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


class _Library:
    """The functions that a graph may call, each digested once, callees first."""

    def __init__(self, library: function_pb2.FunctionDefLibrary) -> None:
        self._functions = {function.signature.name: function for function in library.function}
        self._gradients = {gradient.function_name: gradient.gradient_func for gradient in library.gradient}
        self._digested: dict[str, _Digested] = {}
        self._recursive: dict[str, int] = {}

    def prepare(self, nodes: Iterable[node_def_pb2.NodeDef]) -> None:
        """Digest all functions that these nodes reach, without recursing: functions may be nested deep."""
        if not self._functions:
            return
        opened: set[str] = set()
        stack = list(self._callees(nodes))[::-1]
        while stack:
            name = stack[-1]
            if name not in opened:
                opened.add(name)
                callees = self._callees(self._functions[name].node_def)
                stack.extend([callee for callee in callees if callee not in opened][::-1])
            else:
                stack.pop()
                if name not in self._digested:
                    self._digested[name] = self._digest(self._functions[name])

    def recursive_digest(self) -> bytes:
        """Digest the functions that call themselves: elsewhere only their numbers stand for them."""
        return _hash(*(self._digested[name].digest for name in self._recursive))

    def port(self, node: node_def_pb2.NodeDef | None, port: str) -> str:
        """Put an output's position in place of its name where it is a function that gives it a name."""
        name, colon, index = port.partition(":")
        if node is None or not colon or node.op not in self._functions:
            return port
        results = [result.name for result in self._functions[node.op].signature.output_arg]
        return f"{results.index(name)}:{index}"

    def digest_node(self, node: node_def_pb2.NodeDef) -> _Digested:
        """Digest a node by itself: op, device and attributes."""
        record = _Record()
        if node.op in self._functions:
            self._write_function(record, node.op)
        else:
            record.write(b"op", node.op.encode())
        record.write(node.device.encode())
        self._write_attrs(record, node.attr, node)
        for name in self._gradients_of(node):
            self._write_function(record, name)
        return record.done()

    def _callees(self, nodes: Iterable[node_def_pb2.NodeDef]) -> Iterator[str]:
        for node in nodes:
            names = [node.op]
            for value in node.attr.values():
                names.extend(_functions_in(value))
            names.extend(self._gradients_of(node))
            yield from (name for name in names if name in self._functions)

    def _gradients_of(self, node: node_def_pb2.NodeDef) -> list[str]:
        """Name the functions that the library declares as gradients of those this node differentiates."""
        if node.op != "SymbolicGradient":
            return []
        names = [name for key in sorted(node.attr) for name in _functions_in(node.attr[key])]
        return [self._gradients[name] for name in names if name in self._gradients]

    def _digest(self, function: function_pb2.FunctionDef) -> _Digested:
        signature = function.signature
        arguments = {argument.name: position for position, argument in enumerate(signature.input_arg)}
        body = _Body({node.name: node for node in function.node_def}, arguments, self)
        outputs = [function.ret[result.name] for result in signature.output_arg]
        digest, keys = body.digest(outputs, [function.control_ret[name] for name in signature.control_output])
        record = _Record()
        self._write_signature(record, function)
        record.write(digest)
        return _Digested(record.done().digest, keys)

    def _write_signature(self, record: _Record, function: function_pb2.FunctionDef) -> None:
        signature = function.signature
        for arguments in (signature.input_arg, signature.output_arg):
            # Types only: names are generated, and handle_data holds shapes already inferred.
            types = [(a.type, a.type_attr, a.number_attr, a.type_list_attr, a.is_ref) for a in arguments]
            record.write(repr(types).encode())
        record.write(repr(signature.is_stateful).encode(), *map(_serialize, signature.attr))
        self._write_attrs(record, function.attr)
        for position in sorted(function.arg_attr):
            record.write(str(position).encode())
            self._write_attrs(record, function.arg_attr[position].attr)

    def _write_function(self, record: _Record, name: str) -> None:
        if name in self._digested:
            called = self._digested[name]
            record.write(b"function", called.digest)
            record.keys.extend(called.keys)
        elif name in self._functions:
            # Its own body is being digested: it calls itself. recursive_digest says what the number stands for.
            number = self._recursive.setdefault(name, len(self._recursive))
            record.write(b"recursive", str(number).encode())
        else:
            record.write(b"external", name.encode())

    def _write_attrs(
        self,
        record: _Record,
        attrs: Mapping[str, attr_value_pb2.AttrValue],
        node: node_def_pb2.NodeDef | None = None,
    ) -> None:
        op = node.op if node is not None else ""
        kept = sorted(key for key in attrs if _keeps(key, op))
        record.write(str(len(kept)).encode())
        for key in kept:
            value = attrs[key]
            record.write(key.encode())
            if node is not None and op.startswith(_NUMBERED.get(key, ())):
                record.write(b"given" if value.s else b"own")
                record.keys.append(_shared_key(key, node))
            elif key == "config_proto" and op in _CALLS:
                record.write(_rewrites(value.s))
            else:
                self._write_value(record, value)

    def _write_value(self, record: _Record, value: attr_value_pb2.AttrValue) -> None:
        kind = value.WhichOneof("value")
        if kind == "tensor" and value.tensor.tensor_content:
            # By far the most bytes of a graph; serialising the whole message would copy them once more.
            head = tensor_pb2.TensorProto(dtype=value.tensor.dtype, tensor_shape=value.tensor.tensor_shape)
            record.write(b"tensor", _serialize(head), value.tensor.tensor_content)
        elif kind == "func":
            self._write_call(record, value.func)
        elif kind == "list" and value.list.func:
            record.write(b"functions", str(len(value.list.func)).encode())
            for called in value.list.func:
                self._write_call(record, called)
        else:
            record.write(b"value", _serialize(value))

    def _write_call(self, record: _Record, called: attr_value_pb2.NameAttrList) -> None:
        self._write_function(record, called.name)
        self._write_attrs(record, called.attr)


def _keeps(key: str, op: str) -> bool:
    if key.startswith("_"):
        return key in _KEPT_PRIVATE
    return key not in _DROPPED or not op.startswith(_DROPPED[key])


def _functions_in(value: attr_value_pb2.AttrValue) -> Iterator[str]:
    """Name the functions that an attribute names, those in the attributes of its functions included."""
    called = [value.func] if value.HasField("func") else value.list.func if value.HasField("list") else ()
    for function in called:
        yield function.name
        for inner in function.attr.values():
            yield from _functions_in(inner)


def _shared_key(key: str, node: node_def_pb2.NodeDef) -> _Key:
    """Say which shared thing a node names; without a name of its own a resource goes by the node's."""
    text = node.attr[key].s.decode(errors="surrogateescape")
    container = ""
    if key == "shared_name" and "container" in node.attr:
        container = node.attr["container"].s.decode(errors="surrogateescape")
    return key, container, text or node.name, bool(text)


@lru_cache(maxsize=16)
def _rewrites(config: bytes) -> bytes:
    """Keep of a ConfigProto how graphs are rewritten (mixed precision, say); the rest counts this machine's devices."""
    return _serialize(config_pb2.ConfigProto.FromString(config).graph_options)


class _Body:
    """The nodes of a graph or a function, numbered in the order of one walk from its results.

    The walk is depth first: a node, then its inputs in order, then its control inputs in the order of `_sorted`.
    """

    def __init__(self, nodes: Mapping[str, node_def_pb2.NodeDef], fed: Mapping[str, int], library: _Library) -> None:
        self._nodes = nodes
        self._fed = fed
        self._library = library
        self._positions = {name: position for position, name in enumerate(nodes)}
        self._links: dict[str, tuple[list[tuple[str, str]], list[str]]] = {}
        self._local: dict[str, _Digested] = {}
        self._trees: dict[str, bytes] = {}
        self._numbers: dict[str, int] = {}

    def needed(self, outputs: Sequence[str], controls: Sequence[str]) -> list[node_def_pb2.NodeDef]:
        """List the nodes that the outputs and controls need, in the order of the graph."""
        found: set[str] = set()
        stack = self._unfed(outputs, controls)
        while stack:
            name = stack.pop()
            if name not in found:
                found.add(name)
                stack.extend(self._sources(name))
        return [node for name, node in self._nodes.items() if name in found]

    def digest(self, outputs: Sequence[str], controls: Sequence[str]) -> tuple[bytes, tuple[_Key, ...]]:
        """Digest the body, and list the shared things it names, in the order of first appearance."""
        self._number(self._unfed(outputs, ()))
        self._number(self._sorted(self._unfed((), controls)))
        keys: dict[tuple[str, str, str], int] = {}
        given: dict[_Key, None] = {}
        record = _Record()
        for name in self._numbers:
            inputs, after = self._link(name)
            local = self._digest_node(name)
            names = [keys.setdefault(key[:3], len(keys)) for key in local.keys]
            given.update((key, None) for key in local.keys if key[3] and key[0] == "shared_name")
            edges = [self._end(*edge) for edge in inputs]
            record.write(local.digest, repr((edges, self._ends(after), names)).encode())
        # The controls need no list: each is numbered, and whatever is numbered runs.
        record.write(repr([self._end(*self._split(edge)) for edge in outputs]).encode())
        return record.done().digest, tuple(given)

    def _split(self, edge: str) -> tuple[str, str]:
        """Split "node", "node:port" (graphs) or "node:output:index" (functions) into node and port."""
        name, _, port = edge.partition(":")
        return name, self._library.port(self._nodes.get(name), port or "0")

    def _position(self, name: str, port: str) -> int | None:
        """Say which input a tensor is, if any; a function's argument is one as a whole, whatever the port."""
        return self._fed.get(f"{name}:{port}", self._fed.get(name))

    def _unfed(self, edges: Sequence[str], controls: Sequence[str]) -> list[str]:
        pairs = map(self._split, edges)
        names = [name for name, port in pairs if self._position(name, port) is None]
        return names + [name for name in controls if name not in self._fed]

    def _link(self, name: str) -> tuple[list[tuple[str, str]], list[str]]:
        """Give a node's inputs, in order, and its control inputs."""
        if name not in self._links:
            edges = _node(self._nodes, name).input
            inputs = [self._split(edge) for edge in edges if not edge.startswith("^")]
            self._links[name] = inputs, [edge[1:] for edge in edges if edge.startswith("^")]
        return self._links[name]

    def _sources(self, name: str) -> list[str]:
        inputs, after = self._link(name)
        sources = [source for source, port in inputs if self._position(source, port) is None]
        return sources + [source for source in after if source not in self._fed]

    def _digest_node(self, name: str) -> _Digested:
        if name not in self._local:
            self._local[name] = self._library.digest_node(_node(self._nodes, name))
        return self._local[name]

    def _number(self, roots: Sequence[str]) -> None:
        stack = list(roots)[::-1]
        while stack:
            name = stack.pop()
            if name in self._numbers:
                continue
            self._numbers[name] = len(self._numbers)
            inputs, after = self._link(name)
            sources = [source for source, port in inputs if self._position(source, port) is None]
            sources.extend(self._sorted([source for source in after if source not in self._fed]))
            stack.extend(sources[::-1])

    def _sorted(self, names: Sequence[str]) -> list[str]:
        """Order control inputs, which TensorFlow sorts by name, by what they need, then by their place."""
        if len(names) < 2:
            return list(names)
        return sorted(names, key=lambda name: (self._tree(name), self._positions[name]))

    def _tree(self, root: str) -> bytes:
        """Digest a node together with all that it needs, blind to which parts are shared."""
        opened: set[str] = set()
        stack = [root]
        while stack:
            name = stack[-1]
            if name not in self._trees and name not in opened:
                opened.add(name)
                if not self._ends_tree(name):
                    stack.extend(source for source in self._sources(name) if source not in opened)
            else:
                stack.pop()
                if name not in self._trees:
                    self._trees[name] = self._digest_tree(name)
        return self._trees[root]

    def _ends_tree(self, name: str) -> bool:
        # Loops of the old control flow close through NextIteration; cut there, a tree does not depend on its root.
        return bool(_node(self._nodes, name).op == "NextIteration")

    def _digest_tree(self, name: str) -> bytes:
        inputs, after = self._link(name)
        record = _Record()
        record.write(self._digest_node(name).digest)
        if not self._ends_tree(name):
            for source, port in inputs:
                position = self._position(source, port)
                # What is still open closes a loop that no NextIteration cuts: not a graph TensorFlow would run.
                end = self._trees.get(source, b"loop") if position is None else str(position).encode()
                record.write(end, port.encode())
            record.write(b"after", *sorted(self._trees.get(source, b"") for source in after))
        return record.done().digest

    def _end(self, name: str, port: str) -> tuple[str, int, str]:
        position = self._position(name, port)
        return ("node", self._numbers[name], port) if position is None else ("input", position, port)

    def _ends(self, controls: Sequence[str]) -> list[tuple[str, int]]:
        ends = {("input", self._fed[name]) if name in self._fed else ("node", self._numbers[name]) for name in controls}
        return sorted(ends)
