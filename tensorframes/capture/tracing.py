"""Fetches that are ready to be traced, and the one place where they are.

Every kind of fetch (a function, a graph, another program) becomes a `Fetch`: named inputs and something to call with symbolic
tensors. Tracing that call gives the program, and here its outputs get their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tensorframes.errors import ProgramError, TensorFramesError
from tensorframes.programs import Program, freeze
from tensorframes.tensors import eagerly


@dataclass(frozen=True)
class Fetch:
    """A computation that is about to be traced.

    Attributes:
        label: how messages call it.
        inputs: names of the inputs, in order.
        call: takes input name → symbolic tensor, gives what the user's function gives.
        bare_name: the name of the output where `call` gives one bare tensor.
        optional: inputs with a default, fed only when asked for.
        declared: the types that the fetch itself declares.
        narrows: whether a declared shape may be narrowed to what is known of the column.
        structure: what a call of the program gives, where it is not for the result to say.
        is_opaque: whether there are functions in it that TensorFlow's vectorizer cannot look into, since they come from a frozen graph.
    """

    label: str
    inputs: tuple[str, ...]
    call: Callable[[dict[str, tf.Tensor]], Any]
    bare_name: str = "output"
    optional: frozenset[str] = frozenset()
    declared: Mapping[str, tf.TensorSpec] = field(default_factory=dict)
    narrows: bool = False
    structure: str | None = None
    is_opaque: bool = False


def trace(fetch: Fetch, specs: Mapping[str, tf.TensorSpec], binary: Sequence[str] = ()) -> Program:
    """Trace a fetch over inputs of the given types, in their order.

    Raises:
        ProgramError: the function fails while it is traced, or gives something that is no tensor.
    """
    names: list[str] = []
    structure: list[str] = []

    def traced(*inputs: tf.Tensor) -> list[tf.Tensor]:
        result = fetch.call(dict(zip(specs, inputs, strict=True)))
        kind, outputs = name_outputs(result, fetch.bare_name, fetch.label)
        structure.append(fetch.structure or kind)
        names.extend(outputs)
        # An output that is an input, or twice the same tensor, needs a name of its own in the graph.
        return [tf.identity(tensor) for tensor in outputs.values()]

    with eagerly():
        try:
            concrete = tf.function(traced, autograph=False).get_concrete_function(*specs.values())
        except TensorFramesError:
            raise
        except Exception as error:
            raise ProgramError(f"{fetch.label} cannot be traced: {type(error).__name__}: {str(error).strip()}") from error
        unknown = sorted(set(binary) - set(names))
        if unknown:
            raise ProgramError(f"binary= names outputs that the program does not have: {unknown}.", facts={"outputs": names})
        return freeze(concrete, list(specs), names, structure=structure[0], binary=binary)


def name_outputs(result: Any, bare_name: str, label: str) -> tuple[str, dict[str, tf.Tensor]]:
    """Name what a function gave: a dict's keys, a NamedTuple's fields, ``output_0``… of a list, the bare name of one tensor.

    Returns:
        The structure ("bare", "list" or "dict") and the named tensors, in order.

    Raises:
        ProgramError: an output is no dense tensor, or there is none.
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
    return structure, {_text(name, label): _dense(name, value, label) for name, value in outputs.items()}


def single_output(name: str, result: Any, label: str) -> tf.Tensor:
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


def _dense(name: Any, value: Any, label: str) -> tf.Tensor:
    if isinstance(value, tf.SparseTensor | tf.RaggedTensor | tf.IndexedSlices):
        raise ProgramError(f"{label} gives output {name!r} as a {type(value).__name__}, but a dense tensor is wanted.")
    if value is None or isinstance(value, Mapping | tuple):
        raise ProgramError(f"{label} gives output {name!r} as a {type(value).__name__}, but a tensor is wanted.")
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise ProgramError(f"{label} gives output {name!r} as a {type(value).__name__}, but a tensor is wanted.") from error
