"""A row's program → a block's: all rows of one shape in one call.

TensorFlow's own vectorizer does it (``tf.vectorized_map``); where it cannot, ``tf.map_fn`` runs the rows one by one inside TensorFlow.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tensorframes.capture import as_fetch
from tensorframes.capture.tracing import Fetch, name_outputs, trace
from tensorframes.errors import ProgramError
from tensorframes.programs import Program

_KEPT = 64
_LOCK = threading.Lock()
_MADE: OrderedDict[tuple[str, tuple[str, ...], tuple[str, ...], frozenset[str], str], Program] = OrderedDict()


def vectorize(
    fetches: Any, program: Program, constants: Collection[str], *, session: Any = None, initial_variables: bool = True
) -> Program:
    """Return the program that computes on blocks what `program` computes on rows.

    Args:
        fetches: what `program` was captured from; functions in it are still alive, which the vectorizer needs to look inside them.
        program: the row's program.
        constants: inputs that are the same for all rows.
        session: as for `as_program`.
        initial_variables: as for `as_program`.

    Returns:
        A program with the same names, whose other inputs and whose outputs have one more dimension in front.
    """
    # Names and structure are no part of the digest.
    key = program.digest, tuple(program.inputs), tuple(program.outputs), frozenset(constants), program.structure
    made = _MADE.get(key)
    if made is None:
        made = _vectorize(as_fetch(fetches, session, initial_variables), program, constants)
        with _LOCK:
            _MADE[key] = made
            while len(_MADE) > _KEPT:
                _MADE.popitem(last=False)
    return made


def _vectorize(fetch: Fetch, program: Program, constants: Collection[str]) -> Program:
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
    if fetch.is_opaque or program.controls:
        return over_rows(one_by_one)
    try:
        # Without its own loops for single operations, which fail in the job where an operation's result differs in shape from row to row.
        return over_rows(functools.partial(tf.vectorized_map, fallback_to_while_loop=False))
    except ProgramError:  # the row's program itself was traced before, so it is the vectorizer that failed
        return over_rows(one_by_one)
