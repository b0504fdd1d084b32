"""Capture: whatever the user fetches → a `Program`.

Knows TensorFlow and the kinds of fetches; knows no data. The one law: every door leads to the same tracing, so that all
doors give the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tensorframes.capture.functions import as_function_fetch, is_function
from tensorframes.capture.graphs import as_graph_fetch, find_tensor, is_graph_tensor, names_tensor, output_name
from tensorframes.capture.keras_models import as_keras_fetch, is_keras_model
from tensorframes.capture.saved_models import as_file_fetch, is_program_file
from tensorframes.capture.tracing import Fetch, name_outputs, single_output, trace
from tensorframes.columns import Schema, TensorType
from tensorframes.composites import SPECS, spec_of, split, type_of
from tensorframes.errors import ProgramError
from tensorframes.feeds import Constant, Mask, declared_layout, feed_type
from tensorframes.matching import Naming, map_names, named_sources, parse_feed_dict, resolve_feeds
from tensorframes.programs import GraphFunction, Program


def as_program(
    fetches: Any,
    schema: Schema | None,
    feed_dict: Any = None,
    *,
    rowwise: bool = False,
    initial_variables: bool = True,
    session: Any = None,
    signature: Mapping[str, Any] | None = None,
    jit_compile: bool = False,
    binary: Sequence[str] = (),
    vector: Sequence[str] = (),
    naming: Naming = map_names,
    bare_by_input: str | None = None,
) -> Program:
    """Turn any kind of fetches into a program.

    Args:
        fetches: a callable, ``tf.function``, ``ConcreteFunction``, v1 tensor or its name, a list of these tensors, a `Program`, or a
            dict of any of these that give one output.
        schema: the frame's columns, which type the inputs of a plain callable; None: `signature` does.
        feed_dict: where inputs come from, as the verbs take it.
        rowwise: whether inputs are cells or blocks.
        initial_variables: whether v1 variables that have no value are initialised.
        session: the v1 session that holds the values of v1 variables.
        signature: input name → type.
        jit_compile: compile the computation with XLA.
        binary: string outputs that are bytes.
        vector: outputs that become vectors or matrices of Spark ML.
        naming: the verb's convention for what feeds an input.
        bare_by_input: name one bare output after the one input that a column feeds, less this suffix.

    Raises:
        ProgramError: the fetches are none of these, or cannot be traced.
        ColumnError: an input has no column.
        DTypeError: no tensor holds a column's type.
    """
    if isinstance(fetches, Program) and not jit_compile:
        return _with_columns(fetches, binary, vector)
    if not isinstance(jit_compile, bool):
        raise ProgramError(f"jit_compile is {jit_compile!r}, but True or False is wanted.")
    if signature is not None and not isinstance(signature, Mapping):
        raise ProgramError(f"signature is a {type(signature).__name__}, but a dict {{input: tf.TensorSpec}} is wanted.")

    def named(fetch: Fetch) -> Fetch:
        columns = _column_inputs(fetch, feed_dict)
        if bare_by_input is None or len(columns) != 1:
            return fetch
        return replace(fetch, bare_name=columns[0].removesuffix(bare_by_input))

    fetch = as_fetch(fetches, session, initial_variables, named)
    required = [name for name in fetch.inputs if name not in fetch.optional]
    feeds = feed_dict if schema is None else naming(required, feed_dict, schema)
    if jit_compile:
        fetch = replace(fetch, is_compiled=True)
    made = trace(fetch, _specs(fetch, schema, feeds, signature or {}, rowwise))
    return _with_columns(made, fetch.binary.union(binary), fetch.vector.union(vector))


def _column_inputs(fetch: Fetch, feed_dict: Any) -> list[str]:
    """Return the inputs of a fetch that columns feed, as far as names tell."""
    given = parse_feed_dict(feed_dict)
    named = given if isinstance(given, dict) else dict(zip(fetch.inputs, given, strict=False))
    masks = {f"{name}_mask" for name in fetch.inputs}
    wanted = [name for name in fetch.inputs if name not in masks and (name in named or name not in fetch.optional)]
    return [name for name in wanted if not isinstance(named.get(name), Constant)]


def as_fetch(fetches: Any, session: Any, initial_variables: bool, named: Callable[[Fetch], Fetch] = lambda fetch: fetch) -> Fetch:
    """Find the door for some fetches; `named` says how one bare output of each is called.

    Raises:
        ProgramError: there is none.
    """
    if isinstance(fetches, Fetch):
        return fetches
    if isinstance(fetches, Program):
        return _program_fetch(fetches)
    if is_program_file(fetches) and not names_tensor(fetches):
        return named(as_file_fetch(fetches))
    if is_keras_model(fetches):
        return named(as_keras_fetch(fetches))
    if is_graph_tensor(fetches):
        tensor = find_tensor(fetches)
        return as_graph_fetch({output_name(tensor): tensor}, "bare", session, initial_variables)
    if isinstance(fetches, Mapping):
        return _dict_fetch(fetches, session, initial_variables)
    if isinstance(fetches, list | tuple) and fetches and all(map(is_graph_tensor, fetches)):
        tensors = [find_tensor(fetch) for fetch in fetches]
        _check_distinct([output_name(tensor) for tensor in tensors])
        return as_graph_fetch({output_name(tensor): tensor for tensor in tensors}, "list", session, initial_variables)
    if isinstance(fetches, list | tuple) and fetches:
        return _list_fetch([as_fetch(fetch, session, initial_variables, named) for fetch in fetches])
    if is_function(fetches) and not isinstance(fetches, type):
        return named(as_function_fetch(fetches))
    kind = "an eager tensor, which is a value and no computation" if isinstance(fetches, tf.Tensor) else f"a {type(fetches).__name__}"
    raise ProgramError(
        f"the fetches are {kind}; wanted is a function, a tf.function, a ConcreteFunction, a v1 tensor or its name, a Keras model, "
        "a Program or its file, or a dict or list of these."
    )


def _specs(fetch: Fetch, schema: Schema | None, feed_dict: Any, signature: Mapping[str, Any], rowwise: bool) -> dict[str, TensorType]:
    """Find the type of each input: the signature's, the fetch's own, or the column's or constant's that feeds it."""
    for name, spec in signature.items():
        if name not in fetch.inputs:
            raise ProgramError(
                f"signature names an input {name!r} that the program does not have.",
                facts={"inputs": list(fetch.inputs)},
            )
        if not isinstance(spec, SPECS):
            raise ProgramError(f"signature gives input {name!r} a {type(spec).__name__}, but a tf.TensorSpec is wanted.")
    declared: dict[str, TensorType] = {name: type_of(spec) for name, spec in {**fetch.declared, **signature}.items()}
    if schema is None:
        fed = named_sources(fetch.inputs, feed_dict)
        declared = {**{name: source.type for name, source in fed.items() if isinstance(source, Constant)}, **declared}
        wanted = [name for name in fetch.inputs if name in signature or name in fed or name not in fetch.optional]
        for name in wanted:
            if name not in declared:
                raise ProgramError(
                    f"{fetch.label} says nothing of the type of input {name!r}.",
                    hint=f"Pass a frame, or signature={{{name!r}: tf.TensorSpec(shape, dtype)}}, to tfs.program.",
                )
        return {name: declared[name] for name in wanted}
    sources = resolve_feeds(fetch.inputs, fetch.optional, feed_dict, schema)
    types: dict[str, TensorType] = {}
    for name, source in sources.items():
        if isinstance(source, Mask):
            continue
        kind = declared.get(name)
        if kind is None or (fetch.narrows and name not in signature):
            if isinstance(source, Constant):
                held = source.type
            else:
                feed = source if kind is None else declared_layout(source, kind)
                held = feed_type(name, schema[source.column], feed, rowwise=rowwise)
            kind = _narrow(kind, held)
        types[name] = kind
    for name, source in sources.items():
        if isinstance(source, Mask):
            types[name] = declared.get(name) or replace(types[source.of], dtype="bool")
    return {name: types[name] for name in sources}


def _narrow(declared: TensorType | None, held: TensorType) -> TensorType:
    if declared is None:
        return held
    if declared.shape is None:
        return replace(declared, shape=held.shape)
    if held.shape is not None and declared.shape.accepts(held.shape):
        return replace(declared, shape=declared.shape.narrow(held.shape))
    return declared


def _program_fetch(program: Program) -> Fetch:
    function = GraphFunction(program)

    def call(feeds: dict[str, Any]) -> dict[str, Any]:
        parts = function(*(part for name in program.inputs for part in split(feeds[name])))
        return dict(zip(program.outputs, program.join_outputs(parts), strict=True))

    declared = {name: spec_of(kind) for name, kind in program.inputs.items()}
    return Fetch(
        str(program),
        tuple(program.inputs),
        call,
        declared=declared,
        structure=program.structure,
        binary=program.binary,
        vector=program.vector,
        is_compiled=program.is_compiled,
        is_opaque=function.has_functions,
    )


def _dict_fetch(fetches: Mapping[str, Any], session: Any, initial_variables: bool) -> Fetch:
    """Join fetches that give one output each; v1 tensors of one graph are read together, so that they share what is random."""
    if not fetches:
        raise ProgramError("the fetches are an empty dict.")
    tensors = {name: find_tensor(fetch) for name, fetch in fetches.items() if is_graph_tensor(fetch)}
    if len(tensors) == len(fetches):
        return as_graph_fetch(tensors, "dict", session, initial_variables)
    parts = {name: as_fetch(fetch, session, initial_variables) for name, fetch in fetches.items()}

    def call(feeds: dict[str, Any]) -> dict[str, Any]:
        return {name: single_output(name, part.call(_only(feeds, part)), part.label) for name, part in parts.items()}

    joined = _join(list(parts.values()), call, "dict")
    binary = frozenset(name for name, part in parts.items() if part.binary)  # each gives one output
    return replace(joined, binary=binary, vector=frozenset(name for name, part in parts.items() if part.vector))


def _list_fetch(parts: Sequence[Fetch]) -> Fetch:
    """Join fetches, each with the names that it gives its own outputs."""

    def call(feeds: dict[str, Any]) -> dict[str, Any]:
        named = [name_outputs(part.call(_only(feeds, part)), part.bare_name, part.label)[1] for part in parts]
        _check_distinct([name for outputs in named for name in outputs])
        return {name: tensor for outputs in named for name, tensor in outputs.items()}

    return _join(parts, call, "list")


def _join(parts: Sequence[Fetch], call: Any, structure: str) -> Fetch:
    inputs = tuple(dict.fromkeys(name for part in parts for name in part.inputs))
    declared: dict[str, Any] = {}
    for part in parts:
        for name, spec in part.declared.items():
            held = declared.setdefault(name, spec)
            if type(held) is not type(spec) or held.dtype != spec.dtype or not held.shape.is_compatible_with(spec.shape):
                raise ProgramError(f"the fetches declare input {name!r} as {held} and as {spec}.")
            if isinstance(spec, tf.TensorSpec):
                declared[name] = tf.TensorSpec(held.shape.merge_with(spec.shape), held.dtype)
    required = {name for part in parts for name in part.inputs if name not in part.optional}
    return Fetch(
        "the fetches",
        inputs,
        call,
        optional=frozenset(set(inputs) - required),
        declared=declared,
        narrows=any(part.narrows for part in parts),
        structure=structure,
        binary=frozenset[str]().union(*(part.binary for part in parts)),
        vector=frozenset[str]().union(*(part.vector for part in parts)),
        is_compiled=all(part.is_compiled for part in parts),
        is_opaque=any(part.is_opaque for part in parts),
    )


def _only(feeds: dict[str, Any], part: Fetch) -> dict[str, Any]:
    return {name: tensor for name, tensor in feeds.items() if name in part.inputs}


def _check_distinct(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ProgramError(f"the fetches name several outputs {twice[0]!r}.", hint="Name them by a dict: {'name': fetch, …}.")


def _with_columns(program: Program, binary: Iterable[str], vector: Iterable[str]) -> Program:
    """Return the program with what is said of the columns that its outputs become."""
    for option, names in (("binary", binary), ("vector", vector)):
        unknown = sorted(set(names) - program.outputs.keys())
        if unknown:
            raise ProgramError(
                f"{option}= names outputs that the program does not have: {unknown}.",
                facts={"outputs": list(program.outputs)},
            )
    return replace(program, binary=program.binary | frozenset(binary), vector=program.vector | frozenset(vector))
