"""block and row: v1 placeholders that have the type of a frame's column."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tensorframes.errors import ProgramError, verb
from tensorframes.feeds import Feed, feed_type
from tensorframes.frames import wrap


@verb
def block(frame: Any, col_name: str, tf_name: str | None = None) -> tf.Tensor:
    """Make a placeholder for blocks of a column in the current v1 graph.

    By shape: column ``y`` with cells ``float64[2]`` → placeholder ``y:0``, ``float64[?, 2]``.

    Args:
        frame: the frame.
        col_name: the column, or the dotted path of a struct's field.
        tf_name: the placeholder's name, by which it is matched to a column; None: the column's.

    Raises:
        ColumnError: there is no such column.
        DTypeError: no tensor holds it.
        ProgramError: there is no current v1 graph, or the name is none that TensorFlow takes or is taken.

    Example:
        >>> import pyarrow as pa, tensorflow as tf, tensorframes as tfs
        >>> table = pa.table({"x": [1.0, 2.0]})
        >>> with tf.Graph().as_default():
        ...     z = tf.add(tfs.block(table, "x"), 3, name="z")
        >>> tfs.map_blocks(z, table).column("z").to_pylist()
        [4.0, 5.0]
    """
    return _placeholder(frame, col_name, tf_name, rowwise=False)


@verb
def row(frame: Any, col_name: str, tf_name: str | None = None) -> tf.Tensor:
    """Make a placeholder for cells of a column in the current v1 graph.

    By shape: column ``y`` with cells ``float64[2]`` → placeholder ``y:0``, ``float64[2]``.

    Args:
        frame: the frame.
        col_name: as for `block`.
        tf_name: as for `block`.

    Raises:
        TensorFramesError: as `block`.

    Example:
        >>> import pyarrow as pa, tensorflow as tf, tensorframes as tfs
        >>> table = pa.table({"x": [1.0, 2.0]})
        >>> with tf.Graph().as_default():
        ...     z = tf.add(tfs.row(table, "x"), 3, name="z")
        >>> tfs.map_rows(z, table).column("z").to_pylist()
        [4.0, 5.0]
    """
    return _placeholder(frame, col_name, tf_name, rowwise=True)


def _placeholder(frame: Any, col_name: str, tf_name: str | None, *, rowwise: bool) -> tf.Tensor:
    name = col_name if tf_name is None else tf_name
    kind = feed_type(name, wrap(frame).schema[col_name], Feed(col_name), rowwise=rowwise)
    if tf.executing_eagerly():
        raise ProgramError(
            "there is no current v1 graph to hold a placeholder.",
            hint="Call it inside `with tf.Graph().as_default():`.",
        )
    taken = {op.name for op in tf.compat.v1.get_default_graph().get_operations()}
    if name in taken:
        raise ProgramError(
            f"the current graph has an operation {name!r} already.",
            hint="Pass another tf_name, and feed_dict to the verb.",
        )
    try:
        return tf.compat.v1.placeholder(kind.dtype, kind.shape, name)
    except ValueError as error:
        raise ProgramError(
            f"{name!r} is no name that TensorFlow takes for an operation.",
            hint="Pass another tf_name, and feed_dict to the verb.",
        ) from error
