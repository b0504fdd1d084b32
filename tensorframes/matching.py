"""Matching: which source feeds which input, from ``feed_dict`` and the names alone.

Knows the forms of ``feed_dict`` and each verb's naming convention; touches no data. The one law: an input has exactly one source, or the
verb says which one is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tensorframes.blobs import Blob
from tensorframes.columns import Column, Schema
from tensorframes.errors import ColumnError, ProgramError
from tensorframes.feeds import Constant, Feed, Mask

Source = Feed | Constant | Mask


def parse_feed_dict(feed_dict: Any) -> dict[str, Source] | list[Source]:
    """Read a ``feed_dict`` in any of its forms.

    Returns:
        A mapping from input name to source, or a list of sources by position.

    Raises:
        ProgramError: it is none of the forms.
    """
    if feed_dict is None:
        return {}
    if isinstance(feed_dict, str | Feed):
        return [_as_source("0", feed_dict)]
    if isinstance(feed_dict, Mapping):
        return {(name := _input_name(key)): _as_source(name, value) for key, value in feed_dict.items()}
    if isinstance(feed_dict, list | tuple) and all(isinstance(item, str | Feed) for item in feed_dict):
        return [_as_source(str(i), item) for i, item in enumerate(feed_dict)]
    raise ProgramError(
        f"feed_dict is a {type(feed_dict).__name__}, but a dict {{input: column}}, a column name or a list of column names is wanted."
    )


def resolve_feeds(inputs: Sequence[str], optional: Iterable[str], feed_dict: Any, schema: Schema) -> dict[str, Source]:
    """Find the source of each input.

    Args:
        inputs: names of the program's inputs, in their order.
        optional: those that have a default: they are fed only if ``feed_dict`` names them.
        feed_dict: as the user gave it.
        schema: the frame's columns.

    Returns:
        Input name → source, in the order of the inputs; optional ones that nobody feeds are left out.

    Raises:
        ColumnError: a column that is not there.
        ProgramError: a feed for an input that is not there.
    """
    given = named_sources(inputs, feed_dict, {"columns": schema.facts})
    optional = set(optional)
    for name in given:
        if name not in inputs:
            raise ProgramError(
                f"feed_dict feeds an input {name!r} that the program does not have.",
                facts={"inputs": list(inputs), "columns": schema.facts},
            )
    masks = {f"{name}_mask": Mask(name) for name, source in given.items() if isinstance(source, Feed) and source.nulls == "mask"}
    for name, mask in masks.items():
        if name not in inputs:
            raise ProgramError(
                f"the feed of input {mask.of!r} has nulls='mask', but the program has no input {name!r} for the mask.",
                facts={"inputs": list(inputs), "columns": schema.facts},
            )
    sources: dict[str, Source] = {}
    for name in inputs:
        if name in given:
            sources[name] = given[name]
        elif name in masks:
            sources[name] = masks[name]
        elif name not in optional:
            sources[name] = Feed(name)
    for name, source in sources.items():
        if isinstance(source, Feed):
            check_column(name, source.column, inputs, schema)
        elif isinstance(source, Constant):
            _check_no_label(name, source, schema)
    return sources


def named_sources(inputs: Sequence[str], feed_dict: Any, facts: Mapping[str, Sequence[str]] | None = None) -> dict[str, Source]:
    """Return what a ``feed_dict`` says of each input that it speaks of.

    Args:
        inputs: all inputs, in order.
        feed_dict: in any of its forms.
        facts: what a message tells beside the inputs.

    Raises:
        ProgramError: it feeds more inputs by position than there are; others as `parse_feed_dict`.
    """
    given = parse_feed_dict(feed_dict)
    if isinstance(given, dict):
        return given
    if len(given) > len(inputs):
        raise ProgramError(
            f"feed_dict feeds {len(given)} inputs by position, but the program has {len(inputs)}.",
            facts={"inputs": list(inputs), **(facts or {})},
        )
    return _by_position(inputs, given)


def _by_position(inputs: Sequence[str], given: Sequence[Source]) -> dict[str, Source]:
    """Give sources to inputs in their order; the mask of one that was fed so has no place of its own."""
    found: dict[str, Source] = {}
    waiting = list(given)
    for name in inputs:
        of = found.get(name.removesuffix("_mask")) if name.endswith("_mask") else None
        if waiting and not (isinstance(of, Feed) and of.nulls == "mask"):
            found[name] = waiting.pop(0)
    return found


Naming = Callable[[Sequence[str], Any, Schema], Any]


def map_names(inputs: Sequence[str], feed_dict: Any, schema: Schema) -> Any:
    """Maps: an input is fed by the column of its name."""
    return feed_dict


def block_reduce_names(inputs: Sequence[str], feed_dict: Any, schema: Schema) -> Any:
    """Block reduces: ``x_input`` is fed by the column ``x``, and by what ``feed_dict`` says of ``x``."""
    given = parse_feed_dict(feed_dict)
    return given if isinstance(given, list) else _by_stem(inputs, given, schema, ("_input",))


def pair_reduce_names(inputs: Sequence[str], feed_dict: Any, schema: Schema) -> Any:
    """Pair reduces: ``x_1`` and ``x_2`` are fed by the column ``x``; two inputs of any names by the one column there is, or is named."""
    given = parse_feed_dict(feed_dict)
    masks = {f"{name}_mask" for name in inputs}
    if isinstance(given, list):
        pair = [name for name in inputs if name not in masks]
        return dict.fromkeys(pair, given[0]) if len(given) == 1 and len(pair) == 2 else given
    free = [name for name in inputs if name not in masks and not isinstance(given.get(name), Constant)]
    if len(free) == 2 and pair_stem(free) is None:
        named = [given[name] for name in free if name in given]
        if len(named) == 1:
            return {**given, **dict.fromkeys(free, named[0])}
        if not named and len(schema) == 1:
            return {**given, **{name: Feed(schema.names[0]) for name in free}}
    return _by_stem(inputs, given, schema, ("_1", "_2"))


def pair_stem(names: Sequence[str]) -> str | None:
    """Return ``x`` for ``x_1`` and ``x_2``, else None."""
    first, second = names
    stem = first.removesuffix("_1")
    return stem if (first, second) == (f"{stem}_1", f"{stem}_2") else None


def _by_stem(inputs: Sequence[str], given: dict[str, Source], schema: Schema, suffixes: Sequence[str]) -> dict[str, Source]:
    """Feed inputs that end in a suffix by what is said of their stem, else by the stem's column, if there is one."""
    sources = dict(given)
    used = set()
    for name in inputs:
        stem = next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), name)
        if stem == name or name in given:
            continue
        if stem in given and stem not in inputs:
            sources[name] = given[stem]
            used.add(stem)
        elif schema.find(stem) is not None:
            sources[name] = Feed(stem)
    return {name: source for name, source in sources.items() if name not in used}


def check_column(name: str, column: str, inputs: Sequence[str], schema: Schema) -> Column:
    """Return the column that feeds an input, or raise naming both sides."""
    found = schema.find(column)
    if found is None:
        fix = "Feed it from another column" if column == name else "Name one of the columns"
        raise ColumnError(
            f"input {name!r} wants a column {column!r}, but the frame has none of that name.",
            facts={"inputs": list(inputs), "columns": schema.facts},
            hint=f"{fix} with feed_dict={{{name!r}: …}}." if len(schema) else None,
        )
    return found[1]


def _check_no_label(name: str, constant: Constant, schema: Schema) -> None:
    """Refuse a whole number that is a column's name, as pandas has them: it could be meant as either."""
    if constant.type.shape == () and constant.type.dtype == "int64" and isinstance(constant.data, Blob):
        label = str(np.frombuffer(constant.data.view(), dtype=np.int64)[0])
        if schema.find(label) is not None:
            raise ProgramError(
                f"feed_dict feeds input {name!r} with {label}, which is a number and the name of a column.",
                hint=f"Write {label!r} for the column, or another type of number, such as np.int32({label}), for the constant.",
            )


def _input_name(key: Any) -> str:
    name = key if isinstance(key, str) else getattr(key, "name", None)
    if not isinstance(name, str):
        raise ProgramError(f"feed_dict has a key of type {type(key).__name__}, but input names or placeholders are wanted.")
    return name.removesuffix(":0")


def _as_source(name: str, value: Any) -> Source:
    if isinstance(value, Feed | Constant):
        return value
    return Feed(value) if isinstance(value, str) else Constant.of(name, value)
