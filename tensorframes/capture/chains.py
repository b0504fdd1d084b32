"""Chains: fetches one after the other as one, each fed by what the one before it gives."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tensorframes.capture.tracing import Fetch, name_outputs
from tensorframes.composites import conform, type_of
from tensorframes.dtypes import BY_NAME, can_cast
from tensorframes.errors import DTypeError, ProgramError, ShapeError, TensorFramesError


def chain_fetches(steps: Sequence[Fetch]) -> Fetch:
    """Join fetches to one that takes the inputs of the first and gives the outputs of the last.

    One output feeds the one input of the next step whatever their names are; several feed the inputs of their names.
    """
    first, last = steps[0], steps[-1]

    def call(feeds: dict[str, Any]) -> Any:
        result = _call(1, first, feeds)
        for place, (before, step) in enumerate(itertools.pairwise(steps), 2):
            outputs = name_outputs(result, before.bare_name, before.label)[1]
            result = _call(place, step, _feeds(place, step, outputs))
        return result

    return Fetch(
        "the chain",
        first.inputs,
        call,
        last.bare_name,
        optional=first.optional,
        declared=first.declared,
        narrows=first.narrows,
        structure=last.structure,
        binary=last.binary,
        vector=last.vector,
        is_compiled=all(step.is_compiled for step in steps),
        is_opaque=any(step.is_opaque for step in steps),
    )


def _call(place: int, step: Fetch, feeds: dict[str, Any]) -> Any:
    try:
        return step.call(feeds)
    except TensorFramesError:
        raise
    except Exception as error:
        raise ProgramError(f"step {place}, {step.label}, cannot be traced: {type(error).__name__}: {str(error).strip()}") from error


def _feeds(place: int, step: Fetch, outputs: Mapping[str, Any]) -> dict[str, Any]:
    required = [name for name in step.inputs if name not in step.optional]
    by_place = len(outputs) == 1 and len(required) == 1
    given = dict(zip(required, outputs.values(), strict=True)) if by_place else dict(outputs)
    if not given.keys() <= set(step.inputs) or not given.keys() >= set(required):
        wanted = ", ".join(f"{name!r}: …" for name in required)
        raise ProgramError(
            f"step {place}, {step.label}, does not take what step {place - 1} gives.",
            facts={"inputs": list(step.inputs), "outputs": [f"{name}: {type_of(tensor)}" for name, tensor in outputs.items()]},
            hint=f"A step between them can pick and name: lambda {', '.join(outputs)}: {{{wanted}}}.",
        )
    return {name: _as_declared(place, name, tensor, step.declared.get(name)) for name, tensor in given.items()}


def _as_declared(place: int, name: str, tensor: Any, spec: Any) -> Any:
    """Cast a tensor as a column would be that feeds the input."""
    if spec is None:
        return tensor
    held, wanted = type_of(tensor), type_of(spec)
    message = f"input {name!r} of step {place} wants {wanted}, but step {place - 1} gives {held}."
    if wanted.ragged_rank and not held.ragged_rank and tensor.shape.is_compatible_with(spec.shape):
        tensor = tf.RaggedTensor.from_tensor(tensor, ragged_rank=wanted.ragged_rank, row_splits_dtype=spec.row_splits_dtype)
        held = type_of(tensor)
    if (held.ragged_rank, held.is_sparse) != (wanted.ragged_rank, wanted.is_sparse):
        raise ShapeError(message)
    if not tensor.shape.is_compatible_with(spec.shape):
        raise ShapeError(message)
    if held.dtype != wanted.dtype:
        if held.dtype not in BY_NAME or wanted.dtype not in BY_NAME or not can_cast(held.dtype, wanted.dtype):
            raise DTypeError(message, hint="A step between them can cast: lambda x: tf.cast(x, …).")
        tensor = _cast(name, place, tensor, spec.dtype)
    return conform(tensor, spec)


def _cast(name: str, place: int, tensor: Any, dtype: tf.DType) -> Any:
    cast = tf.cast(tensor, dtype)
    if not (tensor.dtype.is_floating and dtype.is_floating and tensor.dtype.size > dtype.size):
        return cast
    before, after = (tf.math.is_finite(value.flat_values if isinstance(value, tf.RaggedTensor) else value) for value in (tensor, cast))
    held = tensor.dtype.name
    message = f"step {place - 1} gives input {name} of step {place} a finite {held} that would be infinite as a {dtype.name}"
    with tf.control_dependencies([tf.debugging.assert_equal(before, after, message)]):
        return tf.identity(cast)
