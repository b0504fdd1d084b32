"""A row's program → a block's: all rows of one shape in one call.

TensorFlow's own vectorizer does it (``tf.vectorized_map``); where it cannot, ``tf.map_fn`` runs the rows one by one inside TensorFlow.
"""

from __future__ import annotations

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
_MADE: OrderedDict[tuple[str, tuple[str, ...]], Program] = OrderedDict()


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
    key = program.digest, tuple(name for name in program.inputs if name in constants)
    if key not in _MADE:
        _MADE[key] = _vectorize(as_fetch(fetches, session, initial_variables), program, constants)
        while len(_MADE) > _KEPT:
            _MADE.popitem(last=False)
    return _MADE[key]


def _vectorize(fetch: Fetch, program: Program, constants: Collection[str]) -> Program:
    specs = {
        name: tf.TensorSpec(kind.shape if name in constants or kind.shape is None else (None, *kind.shape), kind.dtype)
        for name, kind in program.inputs.items()
    }

    def with_rows(map_rows: Callable[..., Any]) -> Program:
        def call(feeds: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            held = {name: tensor for name, tensor in feeds.items() if name in constants}
            rows = {name: tensor for name, tensor in feeds.items() if name not in constants}

            def one(row: dict[str, tf.Tensor]) -> list[tf.Tensor]:
                return list(name_outputs(fetch.call({**row, **held}), fetch.bare_name, fetch.label)[1].values())

            return dict(zip(program.outputs, map_rows(one, rows), strict=True))

        return trace(replace(fetch, call=call), specs)

    signature = [tf.TensorSpec(kind.shape, kind.dtype) for kind in program.outputs.values()]
    try:
        return with_rows(tf.vectorized_map)
    except ProgramError:  # the row's program itself was traced before, so it is the vectorizer that failed
        return with_rows(lambda one, rows: tf.map_fn(one, rows, fn_output_signature=signature))
