"""A row's program → a block's: all rows of one shape in one call.

TensorFlow's own vectorizer does it (``tf.vectorized_map``); where it cannot, ``tf.map_fn`` runs the rows one by one inside TensorFlow.
"""

from __future__ import annotations

import functools
import re
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tensorframes.capture import as_fetch
from tensorframes.capture.tracing import Fetch, name_outputs, trace
from tensorframes.errors import ProgramError, format_message
from tensorframes.programs import Program

_KEPT = 64
_LOCK = threading.Lock()
_MADE: OrderedDict[tuple[str, tuple[str, ...], tuple[str, ...], frozenset[str], str], Program] = OrderedDict()


def vectorize(
    fetches: Any,
    program: Program,
    constants: Collection[str],
    *,
    session: Any = None,
    initial_variables: bool = True,
    warn_as: str | None = None,
) -> Program:
    """Return the program that computes on blocks what `program` computes on rows.

    Args:
        fetches: what `program` was captured from; functions in it are still alive, which the vectorizer needs to look inside them.
        program: the row's program.
        constants: inputs that are the same for all rows.
        session: as for `as_program`.
        initial_variables: as for `as_program`.
        warn_as: the verb that warns, once for each program, where rows have to be computed one by one.

    Returns:
        A program with the same names, whose other inputs and whose outputs have one more dimension in front.
    """
    # Names and structure are no part of the digest.
    key = program.digest, tuple(program.inputs), tuple(program.outputs), frozenset(constants), program.structure
    made = _MADE.get(key)
    if made is None:
        made, obstacle = _vectorize(as_fetch(fetches, session, initial_variables), program, constants)
        if obstacle is not None and warn_as is not None:
            slow = f"TensorFlow cannot vectorize {obstacle}, so that the program is called for one chunk of rows after the other."
            warnings.warn(format_message(slow, verb=warn_as), stacklevel=4)
        with _LOCK:
            _MADE[key] = made
            while len(_MADE) > _KEPT:
                _MADE.popitem(last=False)
    return made


def _vectorize(fetch: Fetch, program: Program, constants: Collection[str]) -> tuple[Program, str | None]:
    """Vectorize a program; returns also what could not be vectorized, if something could not."""
    specs = {
        name: tf.TensorSpec(kind.shape if name in constants or kind.shape is None else (None, *kind.shape), kind.dtype)
        for name, kind in program.inputs.items()
    }
    signature = [tf.TensorSpec(kind.shape, kind.dtype) for kind in program.outputs.values()]

    def over_rows(map_rows: Callable[..., Any]) -> Program:
        def call(feeds: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            held = {name: tensor for name, tensor in feeds.items() if name in constants}
            rows = {name: tensor for name, tensor in feeds.items() if name not in constants}

            def one(row: dict[str, tf.Tensor]) -> list[tf.Tensor]:
                return list(name_outputs(fetch.call({**row, **held}), fetch.bare_name, fetch.label)[1].values())

            def alone() -> list[tf.Tensor]:
                return [tensor[tf.newaxis] for tensor in one({name: tensor[0] for name, tensor in rows.items()})]

            # The vectorizer's tf.squeeze would squeeze the rows away where there is one row only.
            count = tf.shape(next(iter(rows.values())))[0]
            outputs = tf.cond(tf.equal(count, 1), alone, lambda: [*map_rows(one, rows)])
            return dict(zip(program.outputs, outputs, strict=True))

        return replace(trace(replace(fetch, call=call), specs), structure=program.structure)

    def one_by_one(row: Callable[..., Any], rows: dict[str, tf.Tensor]) -> Any:
        return tf.map_fn(row, rows, fn_output_signature=signature)

    # The vectorizer converts what outputs depend on; asserts and prints of all rows but the first would be lost.
    if fetch.is_opaque:
        return over_rows(one_by_one), "the functions inside a frozen graph"
    if program.controls:
        return over_rows(one_by_one), f"operation {program.controls[0]!r}, whose side effect each row has"
    try:
        # Without its own loops for single operations, which fail in the job where an operation's result differs in shape from row to row.
        return over_rows(functools.partial(tf.vectorized_map, fallback_to_while_loop=False)), None
    except ProgramError as error:  # the row's program itself was traced before, so it is the vectorizer that failed
        named = re.search(r"No pfor vectorization defined for (\w+)", str(error))
        return over_rows(one_by_one), f"operation {named[1]}" if named else "the program"
