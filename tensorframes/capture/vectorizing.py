"""A row's program → a block's: all rows of one shape in one call.

TensorFlow's own vectorizer does it (``tf.vectorized_map``); where it cannot, ``tf.map_fn`` runs the rows one by one inside TensorFlow.
"""

from __future__ import annotations

import functools
import itertools
import re
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tensorframes.capture import as_fetch
from tensorframes.capture.tracing import Fetch, name_outputs, trace
from tensorframes.columns import TensorType
from tensorframes.composites import spec_of
from tensorframes.errors import ProgramError, format_message
from tensorframes.programs import Program
from tensorframes.shapes import Shape

_KEPT = 64
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class Vectorized:
    """A row's program over blocks.

    Attributes:
        program: computes all rows of a block together, if they are of one shape.
        uneven: the same row by row inside TensorFlow, with ragged outputs, where outputs may differ in shape from row to row; else None.
        obstacle: what could not be vectorized, if something could not: `program` then runs row by row too.
    """

    program: Program
    uneven: Program | None = None
    obstacle: str | None = None


_Key = tuple[str, tuple[str, ...], tuple[str, ...], str, tuple[Any, ...]]
_NOTHING_RAGGED: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {})
_MADE: OrderedDict[_Key, Vectorized] = OrderedDict()


def vectorize(
    fetches: Any,
    program: Program,
    constants: Collection[str],
    *,
    session: Any = None,
    initial_variables: bool = True,
    keeps_shape: bool = False,
    ragged: tuple[Mapping[str, int], Mapping[str, int]] = _NOTHING_RAGGED,
    warn_as: str | None = None,
) -> Vectorized:
    """Return the program that computes on blocks what `program` computes on rows.

    Args:
        fetches: what `program` was captured from; functions in it are still alive, which the vectorizer needs to look inside them.
        program: the row's program.
        constants: inputs that are the same for all rows.
        session: as for `as_program`.
        initial_variables: as for `as_program`.
        keeps_shape: whether rows of one shape give outputs of one shape, as the cells of a reduce do.
        ragged: inputs, and outputs, whose rows may differ in shape within a block, with the ragged rank of the block.
        warn_as: the verb that warns, once for each program, where rows have to be computed one by one.

    Returns:
        Programs with the same names, whose other inputs and whose outputs have one more dimension in front.
    """
    # Names and structure are no part of the digest.
    form = frozenset(constants), *(frozenset(ranks.items()) for ranks in ragged), keeps_shape
    key = program.digest, tuple(program.inputs), tuple(program.outputs), program.structure, form
    made = _MADE.get(key)
    if made is None:
        made = _vectorize(_unnamed_fetch(fetches, session, initial_variables), program, constants, keeps_shape, ragged)
        if made.obstacle is not None and warn_as is not None:
            slow = f"TensorFlow cannot vectorize {made.obstacle}, so that the program is called for one chunk of rows after the other."
            warnings.warn(format_message(slow, verb=warn_as), stacklevel=4)
        with _LOCK:
            _MADE[key] = made
            while len(_MADE) > _KEPT:
                _MADE.popitem(last=False)
    return made


def _unnamed_fetch(fetches: Any, session: Any, initial_variables: bool) -> Fetch:
    """Capture fetches anew; outputs are known by their places here, so that bare ones get any names."""
    count = itertools.count()
    return as_fetch(fetches, session, initial_variables, lambda fetch: replace(fetch, bare_name=f"bare output {next(count)}"))


def _vectorize(
    fetch: Fetch,
    program: Program,
    constants: Collection[str],
    keeps_shape: bool,
    ragged: tuple[Mapping[str, int], Mapping[str, int]],
) -> Vectorized:
    given = {name: kind if name in constants else _over_rows(kind, ragged[0].get(name)) for name, kind in program.inputs.items()}
    ragged_ranks = {name: ragged[1].get(name, 0 if keeps_shape else uneven_rank(kind)) for name, kind in program.outputs.items()}

    def over_rows(map_rows: Callable[..., Any], is_compiled: bool = fetch.is_compiled) -> Program:
        def call(feeds: dict[str, Any]) -> dict[str, Any]:
            held = {name: tensor for name, tensor in feeds.items() if name in constants}
            rows = {name: tensor for name, tensor in feeds.items() if name not in constants}

            def one(row: dict[str, Any]) -> list[Any]:
                return list(name_outputs(fetch.call({**row, **held}), fetch.bare_name, fetch.label)[1].values())

            return dict(zip(program.outputs, map_rows(one, rows), strict=True))

        return replace(trace(replace(fetch, call=call, is_compiled=is_compiled), given), structure=program.structure)

    def together(one: Callable[..., Any], rows: dict[str, Any]) -> Any:
        def alone() -> list[tf.Tensor]:
            return [tensor[tf.newaxis] for tensor in one({name: tensor[0] for name, tensor in rows.items()})]

        # Without its own loops for single operations, which fail in the job where an operation's result differs in shape from row to row.
        vectorized = functools.partial(tf.vectorized_map, one, rows, fallback_to_while_loop=False)
        # The vectorizer's tf.squeeze would squeeze the rows away where there is one row only.
        count = tf.shape(next(iter(rows.values())))[0]
        return tf.cond(tf.equal(count, 1), alone, lambda: [*vectorized()])

    def one_by_one(one: Callable[..., Any], rows: dict[str, Any]) -> Any:
        signature = [_row_spec(kind, ragged_ranks[name]) for name, kind in program.outputs.items()]

        def row(given: dict[str, Any]) -> list[Any]:
            return [_as_ragged(value, rank) for value, rank in zip(one(given), ragged_ranks.values(), strict=True)]

        return tf.map_fn(row, rows, fn_output_signature=signature)

    may_compile = fetch.is_compiled and not any(ragged_ranks.values())  # XLA has no ragged outputs
    obstacle = _obstacle(fetch, program, constants, {**ragged[0], **ragged[1]})
    if obstacle is None:
        try:
            fast = over_rows(together)
            return Vectorized(fast, over_rows(one_by_one, may_compile) if any(ragged_ranks.values()) else None)
        except ProgramError as error:  # the row's program itself was traced before, so it is the vectorizer that failed
            named = re.search(r"No pfor vectorization defined for (\w+)", str(error))
            obstacle = f"operation {named[1]}" if named else "the program"
    return Vectorized(over_rows(one_by_one, may_compile), obstacle=obstacle)


def _obstacle(fetch: Fetch, program: Program, constants: Collection[str], ragged: Collection[str]) -> str | None:
    """Say what TensorFlow's vectorizer cannot take, as far as it is known before it is tried."""
    if fetch.is_opaque:
        return "the functions inside a frozen graph"
    # The vectorizer converts what outputs depend on; asserts and prints of all rows but the first would be lost.
    if program.controls:
        return f"operation {program.controls[0]!r}, whose side effect each row has"
    if _grows_arrays(program):
        return "a TensorArray of dynamic size"
    rows: Mapping[str, TensorType] = {name: kind for name, kind in program.inputs.items() if name not in constants}
    ports = {**rows, **program.outputs}
    composite = [name for name, kind in ports.items() if kind.ragged_rank or kind.is_sparse or name in ragged]
    return f"{composite[0]!r}, whose rows are ragged or sparse" if composite else None


def _grows_arrays(program: Program) -> bool:
    """Tell whether a graph writes behind the end of a list of tensors, which the vectorizer takes for an error."""
    graph = program.graph_def
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    return any(node.attr["resize_if_index_out_of_bounds"].b for body in bodies for node in body if node.op == "TensorListSetItem")


def _over_rows(kind: TensorType, rank: int | None) -> TensorType:
    """Return the type of a block whose rows are of this type, with that ragged rank where it is given."""
    if rank is None:
        rank = kind.ragged_rank + (kind.ragged_rank > 0)
    if kind.shape is None:
        return replace(kind, ragged_rank=rank)
    return replace(kind, shape=Shape((None, *(None for _ in kind.shape[:rank]), *kind.shape[rank:])), ragged_rank=rank)


def uneven_rank(kind: TensorType) -> int:
    """Return how many dimensions of a row's output may differ from row to row: all up to the last unknown one."""
    unknown = [position for position, dim in enumerate(kind.shape or (), 1) if dim is None]
    return max([*unknown, kind.ragged_rank + 1 if kind.ragged_rank else 0])


def _row_spec(kind: TensorType, rank: int) -> Any:
    """Return the spec of a row's output whose first so many dimensions differ from row to row, so that the block's is ragged."""
    if not rank:
        return spec_of(kind)
    assert kind.shape is not None
    return tf.RaggedTensorSpec([*(None for _ in kind.shape[:rank]), *kind.shape[rank:]], kind.dtype, rank - 1)


def _as_ragged(value: Any, rank: int) -> Any:
    if rank < 2 or (isinstance(value, tf.RaggedTensor) and value.ragged_rank == rank - 1):
        return value
    if isinstance(value, tf.RaggedTensor):
        return value.with_values(_as_ragged(value.values, rank - 1))
    return tf.RaggedTensor.from_tensor(value, ragged_rank=rank - 1)
