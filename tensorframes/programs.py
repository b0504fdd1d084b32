"""Programs: TensorFlow computations as frozen values.

Knows TensorFlow; knows no frames and no columns beyond the names and types of a signature. The one law: a program is bytes, and
equal computations have equal digests, so that a process loads each one once, whoever brings it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from tensorframes.blobs import Blob, as_blob
from tensorframes.columns import TensorType
from tensorframes.composites import join, part_specs, split, type_of
from tensorframes.digest import digest_graph
from tensorframes.errors import ProgramError
from tensorframes.graphdefs import (
    check_compilable,
    check_shippable,
    draws,
    drop_placeholders,
    has_effect,
    import_graph,
    import_packages_of,
    needing_operations,
    register_functions,
    table_types,
)
from tensorframes.tensors import eagerly

LOADED_BYTES = 2**30
LOADED_PROGRAMS = 256


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of a program.

    Attributes:
        name: its name in the signature.
        type: dtype and shape.
        tensors: names in the graph of the plain tensors that it consists of: one, if it is dense.
    """

    name: str
    type: TensorType
    tensors: tuple[str, ...] = field(compare=False)

    def __str__(self) -> str:
        """Print as ``x: float64[?]``."""
        return f"{self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class Capture:
    """A value that the graph reads from outside: a variable's or a captured tensor's.

    Attributes:
        tensor: the placeholder in the graph that stands for it.
        dtype: the value's dtype.
        shape: the value's shape.
        data: the value's bytes in row-major order, of strings a serialised ``TensorProto``; of a lookup table its values.
        is_variable: whether the graph reads it through a variable's handle.
        keys: of a lookup table its keys, in the same form; None for anything else.
        key_dtype: of a lookup table the keys' dtype.
    """

    tensor: str
    dtype: str
    shape: tuple[int, ...]
    data: Blob
    is_variable: bool = False
    keys: Blob | None = None
    key_dtype: str = ""

    @property
    def value(self) -> tuple[Any, ...]:
        """What it holds, whatever graph reads it: equal for equal values of one kind."""
        return self.dtype, self.shape, self.data, self.is_variable, self.keys, self.key_dtype

    @property
    def blobs(self) -> list[Blob]:
        """All its bytes."""
        return [blob for blob in (self.data, self.keys) if blob is not None]


@dataclass(frozen=True, slots=True)
class Program:
    """A TensorFlow computation with named inputs and named outputs: frozen, picklable, comparable by what it computes.

    Made by `tensorframes.program` and by every verb. Called with tensors or arrays, by position or by name, it computes in this
    process and gives tensors in the structure of its fetches.

    Attributes:
        input_ports: the inputs, in order.
        output_ports: the outputs, in order.
        digest: SHA-256 of the computation; no generated name enters it.
        binary: string outputs that are bytes, not text.
        vector: outputs that become vectors or matrices of Spark ML.
        structure: what a call gives: "bare" for one tensor, else "list" or "dict".
        is_compiled: whether XLA compiles it, anew for each shape of its inputs.
        graph: the serialised GraphDef.
        captures: values of variables and captured tensors.
        controls: operations that must run for their side effects.

    Example:
        >>> import tensorflow as tf, tensorframes as tfs
        >>> tfs.program(lambda x: {"z": x + 3}, signature={"x": tf.TensorSpec([None], tf.float64)})
        Program(x: float64[?]) -> (z: float64[?])
    """

    input_ports: tuple[Port, ...]
    output_ports: tuple[Port, ...]
    digest: str
    binary: frozenset[str] = frozenset()
    vector: frozenset[str] = frozenset()
    structure: str = "dict"
    is_compiled: bool = False
    graph: Blob = field(repr=False, compare=False, default_factory=lambda: as_blob(b""))
    captures: tuple[Capture, ...] = field(repr=False, compare=False, default=())
    controls: tuple[str, ...] = field(repr=False, compare=False, default=())

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Input name → dtype and shape."""
        return {port.name: port.type for port in self.input_ports}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Output name → dtype and shape."""
        return {port.name: port.type for port in self.output_ports}

    @property
    def graph_def(self) -> Any:
        """The graph, read anew."""
        return tf.compat.v1.GraphDef.FromString(bytes(self.graph.view()))

    @property
    def is_deterministic(self) -> bool:
        """Whether it gives the same for the same, and does nothing else: it draws no random numbers, and prints nothing."""
        return not self.controls and not draws(self.graph_def)

    @property
    def nbytes(self) -> int:
        """Bytes of the graph and of all captured values."""
        return sum(blob.nbytes for blob in self.blobs)

    @property
    def blobs(self) -> list[Blob]:
        """The graph and all captured values."""
        return [self.graph, *(blob for capture in self.captures for blob in capture.blobs)]

    def __repr__(self) -> str:
        """Print as ``Program(x: float64[?, 100]) -> (z: float64[?])``."""
        return f"Program({', '.join(map(str, self.input_ports))}) -> ({', '.join(map(str, self.output_ports))})"

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute in this process, or in a function that is being traced.

        Args:
            args: tensors or arrays, in the order of the inputs.
            kwargs: the same by name.

        Returns:
            One tensor where the fetches were one, else a list or a dict of them.

        Raises:
            ProgramError: an input is missing, unknown, or given twice.
        """
        given = dict(zip(self.inputs, args, strict=False))
        if len(args) > len(self.input_ports) or given.keys() & kwargs.keys() or {*given, *kwargs} != self.inputs.keys():
            raise ProgramError(
                f"{self} is called with {len(args)} positional and {sorted(kwargs)} named inputs, but it wants {list(self.inputs)}."
            )
        given |= kwargs
        if any(map(tf.is_symbolic_tensor, given.values())):  # it is called by a function that is being traced
            with tf.init_scope():
                loaded = load(self)
            symbolic = [_as_tensor(given[port.name], port.type) for port in self.input_ports]
            return self._pack(loaded([part for value in symbolic for part in split(value)]))
        with eagerly():
            feeds = [_as_input(given[port.name], port) for port in self.input_ports]
            return self._pack(load(self)([part for value in feeds for part in split(value)]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program as a SavedModel with one signature, "serving_default", which TensorFlow Serving loads too.

        What a signature cannot say (the order of inputs and outputs, which ones are bytes or vectors) is written beside it, for
        `load_program`. Whether XLA compiles it is not: ``load_program(path, jit_compile=True)`` says it again.

        Args:
            path: a directory, which is made.

        Raises:
            ProgramError: an input or output is ragged or sparse, which a signature cannot have, or has a name that it cannot have; or
                nothing can be written there.

        Example:
            >>> import tempfile, tensorflow as tf, tensorframes as tfs
            >>> program = tfs.program(lambda x: {"z": x + 3}, signature={"x": tf.TensorSpec([None], tf.float64)})
            >>> with tempfile.TemporaryDirectory() as path:
            ...     program.save(path)
            ...     tfs.load_program(path)
            Program(x: float64[?]) -> (z: float64[?])
        """
        for port in (*self.input_ports, *self.output_ports):
            if len(port.tensors) > 1:
                raise ProgramError(f"{port.name!r} is {port.type}, but a SavedModel's signature has dense tensors only.", verb="save")
        with eagerly(), _saving(self, path):
            module = tf.Module()
            module.function = GraphFunction(self)
            module.values = module.function.values  # tracked, so that they are written

            def serve(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
                return dict(zip(self.outputs, module.function(*(inputs[name] for name in self.inputs)), strict=True))

            specs = {port.name: tf.TensorSpec(port.type.shape, port.type.dtype, name=port.name) for port in self.input_ports}
            module.serve = tf.function(serve, autograph=False).get_concrete_function(**specs)
            tf.saved_model.save(module, os.fspath(path), signatures={"serving_default": module.serve})
        extra = os.path.join(path, _COLUMNS)
        os.makedirs(os.path.dirname(extra), exist_ok=True)
        columns = {
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "structure": self.structure,
            "binary": sorted(self.binary),
            "vector": sorted(self.vector),
            "of": _digest_of_saved(path),
        }
        with open(extra, "w", encoding="utf-8") as file:
            json.dump(columns, file)

    def _pack(self, parts: Sequence[tf.Tensor]) -> Any:
        return pack(self.structure, self.outputs, self.join_outputs(parts))

    def join_outputs(self, parts: Sequence[tf.Tensor]) -> list[Any]:
        """Return the outputs that consist of these plain tensors."""
        ends = list(itertools.accumulate(len(port.tensors) for port in self.output_ports))
        starts = [0, *ends]
        return [join(port.type, parts[start:end]) for port, start, end in zip(self.output_ports, starts, ends, strict=False)]


_COLUMNS = "assets.extra/tensorframes.json"  # the folder that a SavedModel has for what users add


def read_columns(path: str) -> dict[str, Any]:
    """Return what `Program.save` wrote beside a SavedModel's signature; nothing, where it did not write the SavedModel."""
    extra = os.path.join(path, _COLUMNS)
    if not os.path.exists(extra):
        return {}
    try:
        with open(extra, encoding="utf-8") as file:
            columns = json.load(file)
    except ValueError as error:
        raise ProgramError(f"the file {extra!r} is damaged: {error}.", hint="Save the program again.") from error
    is_ours = isinstance(columns, dict) and columns.get("of") == _digest_of_saved(path)
    return columns if is_ours else {}  # it was written beside another SavedModel, which has been overwritten


def _digest_of_saved(path: str | os.PathLike[str]) -> str:
    with open(os.path.join(path, "saved_model.pb"), "rb") as file:
        return as_blob(file.read()).digest


@contextmanager
def _saving(program: Program, path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise whatever TensorFlow says of names or paths that it cannot write as an error that names both sides."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, OSError, tf.errors.OpError) as error:
        raise ProgramError(
            f"{program} cannot be written to {os.fspath(path)!r}: {type(error).__name__}: {error}",
            hint=None
            if isinstance(error, OSError | tf.errors.OpError)
            else "A signature's names are Python's: letters, digits and underscores, no digit first.",
            verb="save",
        ) from error


def _as_tensor(value: Any, kind: TensorType) -> Any:
    if not kind.ragged_rank and not kind.is_sparse:
        return tf.convert_to_tensor(value, kind.dtype)
    wanted = tf.RaggedTensor if kind.ragged_rank else tf.SparseTensor
    if not isinstance(value, wanted):
        raise TypeError(f"no tf.{wanted.__name__}")
    return value


def _as_input(value: Any, port: Port) -> Any:
    try:
        tensor = _as_tensor(value, port.type)
    except (TypeError, ValueError) as error:
        raise ProgramError(f"input {port.name!r} wants {port.type}, but {type(value).__name__} is given: {error}") from error
    held = type_of(tensor)
    fits = port.type.shape is None or (held.shape is not None and port.type.shape.accepts(held.shape))
    if not fits or (held.dtype, held.ragged_rank) != (port.type.dtype, port.type.ragged_rank):
        raise ProgramError(f"input {port.name!r} wants {port.type}, but {held} is given.")
    return tensor


Loaded = Callable[[Sequence[tf.Tensor]], list[tf.Tensor]]


def pack(structure: str, names: Iterable[str], values: Sequence[Any]) -> Any:
    """Arrange outputs as the fetches were: one bare value, a list or a dict."""
    if structure == "bare":
        return values[0]
    return list(values) if structure == "list" else dict(zip(names, values, strict=True))


class ProgramCache:
    """The programs that this process has loaded, by digest; the least recently used go when there are too many, or too many bytes.

    Attributes:
        loads: how many programs have been loaded since the process began.
    """

    def __init__(self, limit: int = LOADED_BYTES, count: int = LOADED_PROGRAMS) -> None:
        """Start empty; `limit` is in bytes of program, `count` in programs."""
        self.loads = 0
        self._limit, self._count = limit, count
        self._held: OrderedDict[tuple[str, str], tuple[Loaded, dict[Blob, int]]] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, program: Program, device: str = "") -> Loaded:
        """Return the program as loaded on a device, loading it if this process does not hold it there."""
        key = program.digest, device
        with self._lock:
            if key not in self._held:
                self._held[key] = _load(program, device), {blob: blob.nbytes for blob in program.blobs}
                self.loads += 1
                while len(self._held) > 1 and self._is_full():
                    self._held.popitem(last=False)
            self._held.move_to_end(key)
            return self._held[key][0]

    def _is_full(self) -> bool:
        sizes = {(device, blob): size for (_, device), (_, blobs) in self._held.items() for blob, size in blobs.items()}
        return len(self._held) > self._count or sum(sizes.values()) > self._limit


CACHE = ProgramCache()


def load(program: Program, device: str = "") -> Loaded:
    """Return the program as a function of the plain tensors of its inputs, in their order, loaded once per process.

    Args:
        program: the program.
        device: where TensorFlow places what is made now, as `device.place` gives it: there lie its variables.
    """
    return CACHE.get(program, device)


def _load(program: Program, device: str) -> Loaded:
    with eagerly(), needing_operations("the program"):
        specs = [spec for port in program.input_ports for spec in part_specs(port.type)]
        function = GraphFunction(program, device)
        traced = tf.function(function, input_signature=specs, autograph=False, jit_compile=program.is_compiled or None)
        concrete = traced.get_concrete_function()

    def run(feeds: Sequence[tf.Tensor], kept: Any = function) -> list[tf.Tensor]:  # its variables live as long as the function
        outputs: list[tf.Tensor] = concrete(*feeds)
        return outputs

    return run


class GraphFunction:
    """A Python function that puts a program's graph into the graph being traced.

    Attributes:
        values: the variables, tables and tensors that the graph reads.
        has_functions: whether there are functions inside the graph, as loops, conditions and nested ``tf.function``s make them.
    """

    def __init__(self, program: Program, device: str = "") -> None:
        """Make the variables, or find those that another program has on the device; they live as long as this object."""
        self._program = program
        graph = program.graph_def
        import_packages_of(graph)
        self._graph = register_functions(graph, self)
        self.values = [_shared_value(capture, device) for capture in program.captures]
        self.has_functions = bool(self._graph.library.function)
        fed = [name for port in program.input_ports for name in port.tensors]
        self._read = drop_placeholders(self._graph, {*fed, *(capture.tensor for capture in program.captures)})

    def __call__(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """Take the plain tensors of the inputs, give those of the outputs, in order, after the program's side effects."""
        program = self._program
        feeds = dict(zip((name for port in program.input_ports for name in port.tensors), inputs, strict=True))
        feeds |= {capture.tensor: capture_value(value) for capture, value in zip(program.captures, self.values, strict=True)}
        outputs = [name for port in program.output_ports for name in port.tensors]
        read = {name: tensor for name, tensor in feeds.items() if name in self._read}
        found = import_graph(self._graph, read, [*outputs, *program.controls])
        count = len(outputs)
        with tf.control_dependencies(found[count:]):
            return [tf.identity(tensor) for tensor in found[:count]]


def capture_value(value: Any) -> tf.Tensor:
    """Return a variable's or table's handle, or an eager tensor, as one of the graph being traced, which notes where it came from."""
    tracing = tf.compat.v1.get_default_graph()
    if isinstance(value, tf.lookup.experimental.MutableHashTable):
        return tracing.capture(value.resource_handle)
    if not isinstance(value, tf.Variable):
        return tracing.capture(value)
    tracing.watch_variable(value)
    return tracing.capture(value.handle)


def freeze(
    concrete: Any,
    inputs: Mapping[str, TensorType],
    outputs: Mapping[str, TensorType],
    *,
    structure: str = "dict",
    is_compiled: bool = False,
) -> Program:
    """Freeze a ConcreteFunction that takes and gives the plain tensors of the named inputs and outputs.

    Args:
        concrete: the function.
        inputs: input name → type, in the order in which it takes their tensors.
        outputs: output name → type, likewise.
        structure: what a call of the program gives.
        is_compiled: whether XLA compiles the program.

    Raises:
        ProgramError: the function reads something that cannot leave this process, such as a lookup table or a Python function.
    """
    graph = concrete.graph
    graph_def = graph.as_graph_def()
    check_shippable(graph_def)
    if is_compiled:
        check_compilable(graph_def)
    input_ports, output_ports = _ports(inputs, concrete.inputs), _ports(outputs, concrete.outputs)
    inside = [tensor.name for tensor in concrete.inputs[sum(len(port.tensors) for port in input_ports) :]]
    types = table_types(graph_def)
    captures = tuple(_freeze_capture(name, value, graph, types) for name, value in zip(inside, concrete.captured_inputs, strict=True))
    controls = tuple(op.name for op in graph.control_outputs if has_effect(op.node_def, graph_def.library))
    given, wanted = [tensor.name for tensor in concrete.inputs], [tensor.name for tensor in concrete.outputs]
    digest = hashlib.sha256(digest_graph(graph_def, given, wanted, controls).encode())
    for capture in captures:
        digest.update(repr(capture.value).encode())
    if is_compiled:
        digest.update(b"compiled")
    return Program(
        input_ports,
        output_ports,
        digest.hexdigest(),
        structure=structure,
        is_compiled=is_compiled,
        graph=as_blob(graph_def.SerializeToString()),
        captures=captures,
        controls=controls,
    )


def _ports(types: Mapping[str, TensorType], tensors: Sequence[tf.Tensor]) -> tuple[Port, ...]:
    waiting = iter(tensors)
    return tuple(Port(name, kind, tuple(next(waiting).name for _ in part_specs(kind))) for name, kind in types.items())


def _freeze_table(name: str, handle: Any, table_types: Iterable[tuple[int, int]]) -> Capture | None:
    """Freeze a lookup table, its entries in the order of their keys; None where the handle is no table's."""
    for keys_type, values_type in sorted(table_types):
        try:
            keys, values = tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=keys_type, Tvalues=values_type)
        except tf.errors.OpError:  # no table, or one of other types
            continue
        order = sorted(range(len(keys)), key=keys.numpy().tolist().__getitem__)
        held = [_content(part.numpy()[order], part.dtype) for part in (values, keys)]
        return Capture(name, values.dtype.name, tuple(values.shape), held[0], keys=held[1], key_dtype=keys.dtype.name)
    return None


def _freeze_capture(name: str, value: Any, graph: Any, table_types: Iterable[tuple[int, int]]) -> Capture:
    if value.dtype == tf.variant:
        raise ProgramError(f"the program reads a captured {name!r} that is no tensor, such as a dataset; make it inside the function.")
    if value.dtype != tf.resource:
        array, is_variable = value.numpy(), False
    else:
        variables = [variable for variable in graph.variables if variable.handle is value]
        if not variables:
            table = _freeze_table(name, value, table_types)
            if table is None:
                raise ProgramError(f"the program reads a resource {name!r} that is neither a variable nor a lookup table.")
            return table
        array, is_variable = variables[0].numpy(), True
    kind = tf.as_dtype((variables[0] if is_variable else value).dtype)
    return Capture(name, kind.name, np.shape(array), _content(array, kind), is_variable)


def _content(array: Any, dtype: tf.DType) -> Blob:
    if dtype == tf.string:
        return as_blob(tf.make_tensor_proto(array, dtype).SerializeToString())
    return as_blob(np.asarray(array, dtype.as_numpy_dtype).tobytes())


def _restored(content: Blob, dtype: str, shape: tuple[int, ...]) -> tf.Tensor:
    kind = tf.as_dtype(dtype)
    if kind == tf.string:
        return tf.constant(tf.make_ndarray(tensor_pb2.TensorProto.FromString(bytes(content.view()))), kind, shape)
    return tf.constant(np.frombuffer(content.view(), kind.as_numpy_dtype).reshape(shape), kind)


def make_table(keys: tf.Tensor, values: tf.Tensor) -> Any:
    """Make a lookup table; what a key that it lacks gives is said where it is read."""
    with tf.device("CPU:0"):
        table = tf.lookup.experimental.MutableHashTable(keys.dtype, values.dtype, tf.zeros(values.shape[1:], values.dtype))
        table.insert(keys, values)
    return table


_VALUES: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
_VALUES_LOCK = threading.Lock()


def _shared_value(capture: Capture, device: str) -> Any:
    """Return the variable, table or tensor that a capture stands for: one in this process for all programs that read it, none writes."""
    key = device, capture.value
    with _VALUES_LOCK:
        value = _VALUES.get(key)
        if value is None:
            value = _VALUES[key] = _restore_capture(capture)
        return value


def _restore_capture(capture: Capture) -> Any:
    value = _restored(capture.data, capture.dtype, capture.shape)
    if capture.keys is not None:
        return make_table(_restored(capture.keys, capture.key_dtype, capture.shape[:1]), value)
    return tf.Variable(value, dtype=capture.dtype, trainable=False) if capture.is_variable else value
