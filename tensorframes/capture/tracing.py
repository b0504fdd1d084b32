"""Fetches that are ready to be traced, and the one place where they are.

Every kind of fetch (a function, a graph, another program) becomes a `Fetch`: named inputs and something to call with symbolic
tensors. Tracing that call gives the program, and here its outputs get their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tensorframes.columns import TensorType
from tensorframes.composites import join, part_specs, split, type_of
from tensorframes.errors import ProgramError, TensorFramesError
from tensorframes.programs import Program, freeze
from tensorframes.tensors import eagerly


@dataclass(frozen=True)
class Fetch:
    """A computation that is about to be traced.

    Attributes:
        label: how messages call it.
        inputs: names of the inputs, in order.
        call: takes input name → symbolic tensor, dense, ragged or sparse, gives what the user's function gives.
        bare_name: the name of the output where `call` gives one bare tensor.
        optional: inputs with a default, fed only when asked for.
        declared: the types that the fetch itself declares.
        narrows: whether a declared shape may be narrowed to what is known of the column.
        structure: what a call of the program gives, where it is not for the result to say.
        binary: string outputs that are bytes.
        vector: outputs that become vectors or matrices of Spark ML.
        is_compiled: whether XLA compiles the program.
        is_opaque: whether there are functions in it that TensorFlow's vectorizer cannot look into, since they come from a frozen graph.
    """

    label: str
    inputs: tuple[str, ...]
    call: Callable[[dict[str, Any]], Any]
    bare_name: str = "output"
    optional: frozenset[str] = frozenset()
    declared: Mapping[str, Any] = field(default_factory=dict)
    narrows: bool = False
    structure: str | None = None
    binary: frozenset[str] = frozenset()
    vector: frozenset[str] = frozenset()
    is_compiled: bool = False
    is_opaque: bool = False


def trace(fetch: Fetch, inputs: Mapping[str, TensorType]) -> Program:
    """Trace a fetch over inputs of the given types, in their order.

    Raises:
        ProgramError: the function fails while it is traced, or gives something that is no tensor.
    """
    given: dict[str, TensorType] = {}
    structure: list[str] = []

    def traced(*parts: tf.Tensor) -> list[tf.Tensor]:
        waiting = iter(parts)
        fed = {name: join(kind, [next(waiting) for _ in part_specs(kind)]) for name, kind in inputs.items()}
        kind, outputs = name_outputs(fetch.call(fed), fetch.bare_name, fetch.label)
        structure.append(fetch.structure or kind)
        given.update({name: type_of(tensor) for name, tensor in outputs.items()})
        # An output that is an input, or twice the same tensor, needs a name of its own in the graph.
        return [tf.identity(part) for tensor in outputs.values() for part in split(tensor)]

    specs = [spec for kind in inputs.values() for spec in part_specs(kind)]
    with eagerly():
        try:
            concrete = tf.function(traced, autograph=False).get_concrete_function(*specs)
        except TensorFramesError:
            raise
        except Exception as error:
            raise ProgramError(f"{fetch.label} cannot be traced: {type(error).__name__}: {str(error).strip()}") from error
        return freeze(concrete, inputs, given, structure=structure[0], is_compiled=fetch.is_compiled)


def name_outputs(result: Any, bare_name: str, label: str) -> tuple[str, dict[str, Any]]:
    """Name what a function gave: a dict's keys, a NamedTuple's fields, ``output_0``… of a list, the bare name of one tensor.

    Returns:
        The structure ("bare", "list" or "dict") and the named tensors, in order.

    Raises:
        ProgramError: an output is no dense or ragged tensor, or there is none.
    """
    if isinstance(result, Mapping):
        structure, outputs = "dict", dict(result)
    elif isinstance(result, tuple) and hasattr(result, "_fields"):
        structure, outputs = "dict", dict(zip(result._fields, result, strict=True))
    elif isinstance(result, list | tuple):
        structure, outputs = "list", {f"output_{i}": value for i, value in enumerate(result)}
    else:
        structure, outputs = "bare", {bare_name: result}
    if not outputs:
        raise ProgramError(f"{label} gives no output.")
    return structure, {_text(name, label): _as_output(name, value, label) for name, value in outputs.items()}


def single_output(name: str, result: Any, label: str) -> Any:
    """Return the one tensor that a fetch inside a dict gives, under the dict's own name for it.

    Raises:
        ProgramError: it gives several.
    """
    _, outputs = name_outputs(result, name, label)
    if len(outputs) != 1:
        raise ProgramError(f"fetch {name!r} gives {len(outputs)} outputs ({', '.join(outputs)}), but a fetch inside a dict must give one.")
    return next(iter(outputs.values()))


def _text(name: Any, label: str) -> str:
    if not isinstance(name, str):
        raise ProgramError(f"{label} names an output {name!r}, but names are strings.")
    return name


def _as_output(name: Any, value: Any, label: str) -> Any:
    if isinstance(value, tf.RaggedTensor):
        return value
    if isinstance(value, tf.SparseTensor | tf.IndexedSlices):
        raise ProgramError(f"{label} gives output {name!r} as a {type(value).__name__}, but a dense or ragged tensor is wanted.")
    if value is None or isinstance(value, Mapping | tuple) or (isinstance(value, list) and any(map(tf.is_tensor, value))):
        raise ProgramError(f"{label} gives output {name!r} as a {type(value).__name__}, but a tensor is wanted.")
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise ProgramError(f"{label} gives output {name!r} as a {type(value).__name__}, but a tensor is wanted.") from error
