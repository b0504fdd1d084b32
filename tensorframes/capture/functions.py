"""Python callables, ``tf.function``s and ``ConcreteFunction``s as fetches."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensorframes.capture.tracing import Fetch
from tensorframes.composites import SPECS, conform
from tensorframes.errors import ProgramError

_CONCRETE = tf.types.experimental.ConcreteFunction
_POLYMORPHIC = tf.types.experimental.PolymorphicFunction


def is_function(fetches: Any) -> bool:
    """Tell whether this room captures it."""
    return isinstance(fetches, _CONCRETE) or callable(fetches)


def as_function_fetch(fetches: Any) -> Fetch:
    """Read the inputs and the declared types of a callable.

    Raises:
        ProgramError: its parameters cannot be matched to inputs by name.
    """
    if isinstance(fetches, _CONCRETE):
        return _concrete(fetches)
    if isinstance(fetches, _POLYMORPHIC):
        if fetches.input_signature is not None:
            concrete = _concrete(fetches.get_concrete_function())
            return Fetch(concrete.label, concrete.inputs, concrete.call, output_name(fetches), declared=concrete.declared)
        return _callable(fetches, fetches.python_function)
    # What tf.function does to a function, but into the graph being traced: a nested function could not be vectorized once it is frozen.
    return _callable(tf.__internal__.autograph.tf_convert(fetches, tf.__internal__.autograph.control_status_ctx()), fetches)


def output_name(function: Any) -> str:
    """Return the name of a function's one bare output: its ``__name__``, or ``output`` where it has no proper one."""
    function = getattr(function, "python_function", function)
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", "output")
    return "output" if name == "<lambda>" else str(name)


def _callable(call: Callable[..., Any], function: Callable[..., Any]) -> Fetch:
    label = _label(function)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise ProgramError(f"{label} tells nothing of its parameters; wrap it in a lambda that names them.") from error
    named = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
    for parameter in named:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise ProgramError(
                f"{label} takes *{parameter.name}, but inputs are matched by name; wrap it in a lambda that names its parameters."
            )
    positional = {p.name: p.default for p in named if p.kind is p.POSITIONAL_ONLY}

    def with_names(feeds: dict[str, tf.Tensor]) -> Any:
        fed = [position for position, name in enumerate(positional) if name in feeds]
        before = list(positional.items())[: max(fed, default=-1) + 1]  # those in between take their defaults
        by_position = [feeds.get(name, default) for name, default in before]
        return call(*by_position, **{name: tensor for name, tensor in feeds.items() if name not in positional})

    return Fetch(
        label,
        tuple(p.name for p in named),
        with_names,
        output_name(function),
        optional=frozenset(p.name for p in named if p.default is not p.empty),
        declared=_annotations(function),
    )


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        annotations = inspect.get_annotations(function, eval_str=True)
    except Exception:  # an annotation that cannot be read, or an object that has none, declares nothing
        return {}
    return {name: spec for name, spec in annotations.items() if isinstance(spec, SPECS) and name != "return"}


def _concrete(function: Any) -> Fetch:
    label = f"the concrete function {function.graph.name!r}"
    declared = {}
    for name, parameter in function.function_type.parameters.items():
        spec = parameter.type_constraint
        if isinstance(spec, SPECS):
            declared[name] = spec
        elif not parameter.optional and type(spec).__name__ != "Literal":  # a Python value that the function was traced for
            raise ProgramError(f"{label} has an input {name!r} of type {spec}, but a tensor is wanted.")
    name = function.graph.name.removeprefix("__inference_")
    bare = "output" if "lambda" in name else name.rstrip("0123456789").rstrip("_") if name != function.graph.name else name

    def call(feeds: dict[str, Any]) -> Any:
        return function(**{name: conform(value, declared[name]) for name, value in feeds.items()})

    return Fetch(label, tuple(declared), call, bare, declared=declared)


def _label(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    return "the lambda" if name == "<lambda>" else f"the function {name!r}"
