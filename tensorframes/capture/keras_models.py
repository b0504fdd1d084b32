"""Keras models as fetches: any model that is built, in inference mode.

Keras is looked at only if the user has imported it. Weights are variables, preprocessing layers' vocabularies are lookup tables: both
travel as values, as everything that a program reads.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tensorframes.capture.tracing import Fetch
from tensorframes.errors import ProgramError

_PACKAGES = ("keras", "tf_keras")


def is_keras_model(fetches: Any) -> bool:
    """Tell whether this room captures it: a model or a layer of Keras."""
    return any(isinstance(fetches, package.layers.Layer) for package in _packages())


def _packages() -> list[Any]:
    packages = [sys.modules[name] for name in _PACKAGES if name in sys.modules]
    return [package for package in packages if hasattr(package, "layers")]


def as_keras_fetch(model: Any) -> Fetch:
    """Read the names and types of a model's inputs, and how it is called.

    Raises:
        ProgramError: the model has not been built, or its inputs cannot be named.
    """
    label = f"the Keras model {model.name!r}"
    if not model.built:
        raise ProgramError(f"{label} is not built, so that it has no weights.", hint="Call it once, or give it an Input.")
    given = getattr(model, "inputs", None)
    if not given:
        return _subclassed(model, label)
    try:
        structure = model.input
    except AttributeError:  # a Sequential model that was never called
        structure = given
    if isinstance(structure, Mapping):
        declared = {str(name): _spec(tensor) for name, tensor in structure.items()}

        def call(feeds: dict[str, Any]) -> Any:
            return _named(model, model(feeds, training=False))
    else:
        declared = {tensor.name: _spec(tensor) for tensor in given}
        # Without an Input a Sequential model has the rows of its first call, which mean nothing.
        if any(isinstance(model, package.Sequential) for package in _packages()):
            declared = {name: _any_rows(spec) for name, spec in declared.items()}

        def call(feeds: dict[str, Any]) -> Any:
            values = [feeds[name] for name in declared]
            return _named(model, model(values if len(values) > 1 else values[0], training=False))

    if len(declared) < len(given):
        raise ProgramError(f"{label} has several inputs of one name.", facts={"inputs": [tensor.name for tensor in given]})
    return Fetch(label, tuple(declared), call, model.name, declared=declared, narrows=True)


def _any_rows(spec: Any) -> Any:
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype) if isinstance(spec, tf.TensorSpec) and spec.shape.rank else spec


def _subclassed(model: Any, label: str) -> Fetch:
    """Read a model that says nothing of its inputs but by the parameters of its ``call``."""
    parameters = [p for p in inspect.signature(model.call).parameters.values() if p.name not in ("training", "mask")]
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise ProgramError(f"{label} takes any arguments, so that its inputs have no names; call it in a function that names them.")

    def call(feeds: dict[str, Any]) -> Any:
        return _named(model, model(**feeds, training=False))

    optional = frozenset(p.name for p in parameters if p.default is not p.empty)
    return Fetch(label, tuple(p.name for p in parameters), call, model.name, optional=optional)


def _named(model: Any, result: Any) -> Any:
    """Name several outputs as the model does; one is named after the model, a dict's are its keys."""
    if isinstance(result, Mapping) or not isinstance(result, Sequence) or hasattr(result, "_fields"):
        return result
    names = getattr(model, "output_names", None) or []
    if len(result) == 1:
        return result[0]
    return dict(zip(names, result, strict=True)) if len(names) == len(result) == len(set(names)) else list(result)


def _spec(tensor: Any) -> Any:
    """Return TensorFlow's spec of a symbolic input."""
    if getattr(tensor, "sparse", False):
        return tf.SparseTensorSpec(tensor.shape, tensor.dtype)
    if getattr(tensor, "ragged", False):
        return tf.RaggedTensorSpec(tensor.shape, tensor.dtype)
    return tf.TensorSpec(tensor.shape, tensor.dtype)
