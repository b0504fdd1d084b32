"""Programs in files: SavedModels, Keras' own files, frozen graphs.

A file is read when the verb is called, on the driver; what comes of it is a program like any other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tensorframes.capture.graphs import as_graph_fetch, output_name
from tensorframes.capture.keras_models import as_keras_fetch
from tensorframes.capture.tracing import Fetch
from tensorframes.composites import conform
from tensorframes.errors import ProgramError
from tensorframes.graphdefs import needing_operations
from tensorframes.programs import read_columns
from tensorframes.tensors import eagerly

DEFAULT_SIGNATURE = "serving_default"
_KERAS = (".keras", ".h5", ".hdf5")
_GRAPH = ".pb"


def is_program_file(fetches: Any) -> bool:
    """Tell whether it is a path, or text that is the path of something that this room reads."""
    if isinstance(fetches, os.PathLike):
        return True
    if not isinstance(fetches, str):
        return False
    # Names of tensors have slashes in them too, but none in front.
    return os.path.isdir(fetches) or os.path.isabs(fetches) or os.path.splitext(fetches)[1] in (*_KERAS, _GRAPH)


def as_file_fetch(
    path: str | os.PathLike[str],
    signature: str | None = None,
    *,
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool = True,
    outputs: Sequence[str] = (),
) -> Fetch:
    """Read a program's file.

    Args:
        path: a SavedModel's directory, a ``.keras`` or ``.h5`` file, or a frozen graph's ``.pb``.
        signature: the signature of a SavedModel; None: "serving_default", or the only one.
        custom_objects: what a Keras file names that Keras does not know.
        safe_mode: whether a ``.keras`` file that holds Python code is refused.
        outputs: tensors of a frozen graph; none: those that nothing in it reads.

    Raises:
        ProgramError: there is no such file, it cannot be read, or it has no such signature.
    """
    path = os.fspath(path)
    suffix = os.path.splitext(path)[1]
    if not os.path.exists(path):
        raise ProgramError(f"there is no program at {path!r}.")
    kind = "SavedModel" if os.path.isdir(path) else "Keras file" if suffix in _KERAS else "frozen graph"
    options = {
        "signature": (signature, "SavedModel"),
        "custom_objects": (custom_objects, "Keras file"),
        "outputs": (outputs, "frozen graph"),
    }
    for name, (value, of) in {**options, "safe_mode": (not safe_mode, "Keras file")}.items():
        if value and of != kind:
            raise ProgramError(f"{path!r} is a {kind}, but {name}= is an option of a {of}.")
    if os.path.isdir(path):
        return _saved_model(path, signature)
    if suffix in _KERAS:
        return _keras_file(path, custom_objects, safe_mode)
    if suffix == _GRAPH:
        return _frozen_graph(path, outputs)
    raise ProgramError(f"{path!r} is no SavedModel's directory and no {', '.join(_KERAS)} or {_GRAPH} file.")


def _saved_model(path: str, signature: str | None) -> Fetch:
    if not tf.saved_model.contains_saved_model(path):
        raise ProgramError(f"the directory {path!r} holds no SavedModel.")
    with eagerly(), needing_operations(f"the SavedModel {path!r}"):
        try:
            loaded = tf.saved_model.load(path)
        except (AttributeError, ValueError, KeyError, tf.errors.OpError) as error:
            if "Op type not registered" in str(error):
                raise
            return _saved_graph(path, signature, error)  # Keras 2 wrote what only the older loader reads
    name = _choose(path, signature, [key for key in loaded.signatures if not key.startswith("__")])
    function = loaded.signatures[name]
    specs = function.structured_input_signature[1]
    columns = read_columns(path) if name == DEFAULT_SIGNATURE else {}
    declared = {key: specs[key] for key in _in_order(specs, columns.get("inputs"))}
    outputs = _in_order(function.structured_outputs, columns.get("outputs"))

    def call(feeds: dict[str, Any], kept: Any = loaded) -> Any:  # its variables live as long as what was loaded
        given = function(**{key: conform(value, declared[key]) for key, value in feeds.items()})
        return {key: given[key] for key in outputs}

    return Fetch(
        f"signature {name!r} of {path!r}",
        tuple(declared),
        call,
        declared=declared,
        narrows=True,
        structure=columns.get("structure"),
        binary=frozenset(columns.get("binary", ())),
        vector=frozenset(columns.get("vector", ())),
    )


def _in_order(names: Iterable[str], known: Sequence[str] | None) -> list[str]:
    """Return a signature's names in the order that is known, or else by name (``output_2`` before ``output_10``): a signature has none."""
    if known is not None and set(known) == set(names):
        return list(known)
    return sorted(
        names, key=lambda name: [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", name)]
    )


def _saved_graph(path: str, signature: str | None, cause: Exception) -> Fetch:
    """Read a SavedModel by the loader of TensorFlow 1."""
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph, config=tf.compat.v1.ConfigProto(device_count={"GPU": 0})) as session:
        try:
            meta = tf.compat.v1.saved_model.load(session, [tf.saved_model.SERVING], path)
        except Exception as error:
            raise ProgramError(f"the SavedModel {path!r} cannot be loaded: {cause}") from error
        name = _choose(path, signature, [key for key in meta.signature_def if not key.startswith("__")])
        chosen = meta.signature_def[name]
        tensors = {key: graph.get_tensor_by_name(chosen.outputs[key].name) for key in _in_order(chosen.outputs, None)}
        fetch = as_graph_fetch(tensors, "dict", session, False, may_extend=True)
    named = {key: chosen.inputs[key].name.partition(":")[0] for key in _in_order(chosen.inputs, None)}
    nodes = {key: node for key, node in named.items() if node in fetch.inputs}

    def call(feeds: dict[str, Any]) -> Any:
        return fetch.call({nodes[key]: value for key, value in feeds.items()})

    declared = {key: fetch.declared[node] for key, node in nodes.items()}
    return Fetch(f"signature {name!r} of {path!r}", tuple(nodes), call, declared=declared, narrows=True, is_opaque=fetch.is_opaque)


def _choose(path: str, signature: str | None, names: Sequence[str]) -> str:
    chosen = signature or (DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in names or len(names) != 1 else names[0])
    if chosen not in names:
        wanted = f"no signature {chosen!r}" if names else "no signature"
        raise ProgramError(f"the SavedModel {path!r} has {wanted}.", facts={"signatures": sorted(names)})
    return chosen


def _keras_file(path: str, custom_objects: Mapping[str, Any] | None, safe_mode: bool) -> Fetch:
    import keras  # only for those who bring a file of Keras'

    with eagerly():
        try:
            model = keras.saving.load_model(path, custom_objects=custom_objects, compile=False, safe_mode=safe_mode)
        except Exception as error:  # Keras raises whatever its layers do
            raise ProgramError(
                f"Keras cannot load {path!r}: {type(error).__name__}: {str(error).strip()}",
                hint="Options for Keras: tfs.load_program(path, custom_objects={…}, safe_mode=False).",
            ) from error
    return as_keras_fetch(model)


def _frozen_graph(path: str, outputs: Sequence[str]) -> Fetch:
    graph_def = tf.compat.v1.GraphDef()
    with open(path, "rb") as file:
        try:
            graph_def.ParseFromString(file.read())
        except Exception as error:  # protobuf's own, of which there are two implementations
            raise ProgramError(f"{path!r} holds no frozen graph: {error}") from error
    with tf.Graph().as_default() as graph, needing_operations(f"the frozen graph {path!r}"):
        tf.graph_util.import_graph_def(graph_def, name="")
    names = list(outputs) or _ends(graph_def)
    if not names:
        raise ProgramError(f"the frozen graph {path!r} has no output.")
    try:
        tensors = [graph.get_tensor_by_name(name if ":" in name else f"{name}:0") for name in names]
    except (KeyError, ValueError) as error:
        raise ProgramError(
            f"the frozen graph {path!r} lacks an output that is named: {error}", facts={"outputs": _ends(graph_def)}
        ) from error
    return as_graph_fetch({output_name(tensor): tensor for tensor in tensors}, "dict", None, False)


def _ends(graph_def: Any) -> list[str]:
    """Name the operations whose results nothing in the graph reads."""
    read = {name.removeprefix("^").partition(":")[0] for node in graph_def.node for name in node.input}
    return [node.name for node in graph_def.node if node.name not in read and node.op not in ("NoOp", "Const", "Placeholder", "Assert")]
