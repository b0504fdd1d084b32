"""program and feed: the values that verbs take beside plain functions and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tensorframes.capture import as_program
from tensorframes.errors import verb
from tensorframes.frames import wrap
from tensorframes.programs import Program


@verb
def program(
    fetches: Any,
    *,
    frame: Any = None,
    feed_dict: Any = None,
    signature: Mapping[str, tf.TensorSpec] | None = None,
    session: Any = None,
    binary: str | Sequence[str] = (),
    vector: str | Sequence[str] = (),
) -> Program:
    """Capture fetches as a program: a frozen, picklable value that every verb takes.

    By shape: with ``frame=``, inputs get the block type of their columns, ``x: float64[?]``; with ``signature=``, what that says, cells
    for `map_rows` included.

    Args:
        fetches: as for `map_blocks`.
        frame: types the inputs of a function by its columns.
        feed_dict: which columns, when not those of the inputs' names.
        signature: input name → ``tf.TensorSpec``; wins over the frame.
        session: the v1 session that holds the values of a v1 graph's variables.
        binary: string outputs that are bytes and become binary columns.
        vector: outputs of numbers, cells ``[n]`` or ``[r, c]``, that become dense vectors or matrices of Spark ML, so that its stages can
            follow: ``VectorUDT`` and ``MatrixUDT`` columns on Spark, structs of their layout on local frames.

    Raises:
        ProgramError: the fetches are no program, or an input has no type.
        ColumnError: the frame has no column for an input.

    Example:
        >>> import tensorflow as tf, tensorframes as tfs
        >>> program = tfs.program(lambda x: {"z": 2 * x}, signature={"x": tf.TensorSpec([None, 3], tf.float32)})
        >>> program, program.outputs["z"].shape
        (Program(x: float32[?, 3]) -> (z: float32[?, 3]), Shape([None, 3]))
    """
    schema = None if frame is None else wrap(frame).schema
    binary, vector = ((names,) if isinstance(names, str) else tuple(names) for names in (binary, vector))
    return as_program(fetches, schema, feed_dict, session=session, signature=signature, binary=binary, vector=vector)
