"""Known reductions: programs that TensorFlow has a segment operation for.

Reads graphs, never runs one. The one law: a program is only recognised where it surely is a plain reduction over the rows of one input, so
that the segment operation gives what the program would.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tensorframes.programs import Program

_SEGMENT_OPS = {
    "Sum": tf.math.unsorted_segment_sum,
    "Prod": tf.math.unsorted_segment_prod,
    "Min": tf.math.unsorted_segment_min,
    "Max": tf.math.unsorted_segment_max,
}
_LOGICAL_OPS = {"Any": tf.math.unsorted_segment_max, "All": tf.math.unsorted_segment_min}


def known_reductions(program: Program, folds: tuple[tuple[int, ...], ...]) -> tuple[str, ...] | None:
    """Return the reduction over axis 0 that each output is of its input, or None unless all are known.

    Args:
        program: folds a block to cells.
        folds: for each output the position of the input that it is folded from.

    Returns:
        "Sum", "Prod", "Min", "Max", "Any" or "All" for each output.
    """
    if program.controls:
        return None
    nodes = {node.name: node for node in program.graph_def.node}
    found = []
    for port, (position,) in zip(program.output_ports, folds, strict=True):
        source = program.input_ports[position]
        is_plain = len(source.tensors) == len(port.tensors) == 1 and source.type.dtype != "string"
        kind = _reduction(nodes, port.tensors[0], source.tensors[0]) if is_plain else None
        if kind is None:
            return None
        found.append(kind)
    return tuple(found)


def reduce_segments(kind: str, values: tf.Tensor, segments: tf.Tensor, count: int) -> tf.Tensor:
    """Reduce the rows of each segment, as the program does the rows of a block."""
    if kind in _LOGICAL_OPS:
        return tf.cast(_LOGICAL_OPS[kind](tf.cast(values, tf.int32), segments, count), tf.bool)
    if kind in ("Min", "Max") and values.dtype.is_floating:
        return -_largest(-values, segments, count) if kind == "Min" else _largest(values, segments, count)
    return _SEGMENT_OPS[kind](values, segments, count)


def _largest(values: tf.Tensor, segments: tf.Tensor, count: int) -> tf.Tensor:
    """Return each segment's maximum, NaN where there is one, as tf.reduce_max does; the segment operation knows neither NaN nor -inf."""
    least, nan = (tf.constant(value, values.dtype) for value in (-float("inf"), float("nan")))
    is_nan = tf.math.is_nan(values)
    ranks = tf.math.unsorted_segment_max(tf.where(is_nan, 2, tf.where(values > least, 1, 0)), segments, count)
    largest = tf.math.unsorted_segment_max(tf.where(is_nan, least, values), segments, count)
    return tf.where(ranks == 2, nan, tf.where(ranks == 1, largest, least))


def _reduction(nodes: dict[str, Any], output: str, source: str) -> str | None:
    node = _behind_identities(nodes, output)
    if node is None or node.op not in {*_SEGMENT_OPS, *_LOGICAL_OPS} or node.attr["keep_dims"].b or len(node.input) != 2:
        return None
    reduced, axis = (_behind_identities(nodes, name) for name in node.input)
    if reduced is None or axis is None or f"{reduced.name}:0" != source or axis.op != "Const":
        return None
    return str(node.op) if tf.make_ndarray(axis.attr["value"].tensor).reshape(-1).tolist() == [0] else None


def _behind_identities(nodes: dict[str, Any], tensor: str) -> Any:
    """Return the operation that makes a tensor, passing over identities; None where it is not its first output, or waits for others."""
    while True:
        name, _, index = tensor.partition(":")
        node = nodes.get(name)
        if node is None or index not in ("", "0") or any(wait.startswith("^") for wait in node.input):
            return None
        if node.op != "Identity":
            return node
        tensor = node.input[0]
