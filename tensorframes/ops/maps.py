"""map_blocks and map_rows: a program over a frame, block by block or row by row.

The way of a block: the frame's adapter reads the columns that the program wants as Arrow batches (on Spark: in a worker process);
`Runner` decodes them to tensors over the same memory, calls the loaded program, and encodes what it gives as Arrow columns, which the
adapter puts behind the frame's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tensorframes.capture import as_program
from tensorframes.capture.vectorizing import vectorize
from tensorframes.errors import verb
from tensorframes.frames import wrap
from tensorframes.plan import plan_map
from tensorframes.runner import run_blocks, run_rows


@verb
def map_blocks(
    fetches: Any,
    frame: Any,
    feed_dict: Any = None,
    trim: bool = False,
    *,
    block_rows: int | None = None,
    device: str = "auto",
    initial_variables: bool = True,
) -> Any:
    """Call a program on blocks of rows and append what it gives as columns.

    By shape: columns ``x: float64[?]``, ``v: float32[?, 100]`` → outputs ``z: float64[?]``, ``w: float32[?, 3, 3]``, where ``?`` is the
    rows of a block. Lazy where the frame is lazy: Spark, ``RecordBatchReader``, ``Dataset``.

    Args:
        fetches: a function of blocks, a ``tf.function``, ``ConcreteFunction``, v1 tensor or its name, `Program`, or a list or dict.
        frame: the frame.
        feed_dict: where inputs come from, when not from the columns of their names: ``{"input": "column"}``, ``{"input": array}`` for a
            constant, or column names by position.
        trim: keep the outputs only; a block may then give any number of rows, the same for all outputs.
        block_rows: rows of a block, the last of a partition excepted; None: as the frame's batches come, at most about 16 MiB.
        device: "auto", "cpu" or "gpu".
        initial_variables: initialise variables of a v1 graph that have no value in the default session.

    Returns:
        A frame of the same kind: its columns, then the outputs in the order of the fetches. A Dataset gives a ``RecordBatchReader``,
        an object that is only an Arrow stream a ``pyarrow.Table``.

    Raises:
        ColumnError: a column is missing, or an output has a column's name.
        DTypeError: a column's dtype is not what the program declares, or an output's has no column type.
        ShapeError: the same of shapes; a block whose cells differ in shape; an output without a row for each row.
        NullError: a column that the program reads holds a null.
        ProgramError: the fetches are no program, or the program fails.
        FrameError: the frame is none.

    Example:
        >>> import pandas as pd, tensorframes as tfs
        >>> tfs.map_blocks(lambda x: {"z": x + 3}, pd.DataFrame({"x": [1.0, 2.0]}))
             x    z
        0  1.0  4.0
        1  2.0  5.0
    """
    source = wrap(frame)
    program = as_program(fetches, source.schema, feed_dict, initial_variables=initial_variables)
    plan = plan_map("map_blocks", program, source.schema, feed_dict, keep_inputs=not trim, block_rows=block_rows, device=device)
    return (source.replace if trim else source.append)(plan.reads, plan.outputs, run_blocks(plan))


@verb
def map_rows(
    fetches: Any,
    frame: Any,
    feed_dict: Any = None,
    *,
    block_rows: int | None = None,
    device: str = "auto",
    initial_variables: bool = True,
) -> Any:
    """Call a program once per row, in meaning, and append what it gives as columns.

    By shape: columns ``x: float64[?]``, ``v: float32[?, ?]`` → the program sees ``x: float64[]``, ``v: float32[?]`` → outputs
    ``z: float64[]`` become ``z: float64[?]``. Rows may differ in shape. In fact rows of one shape are computed together
    (``tf.vectorized_map``), and one by one inside TensorFlow (``tf.map_fn``) where it cannot vectorize.
    A block of rows whose outputs differ in size takes one call per row. Lazy where the frame is lazy.

    Args:
        fetches: as for `map_blocks`, of cells.
        frame: the frame.
        feed_dict: as for `map_blocks`.
        block_rows: how many rows are looked at together; None: as the frame's batches come.
        device: "auto", "cpu" or "gpu".
        initial_variables: as for `map_blocks`.

    Returns:
        A frame of the same kind, as for `map_blocks`.

    Raises:
        TensorFramesError: as `map_blocks`; a cell that is not rectangular is a ShapeError.

    Example:
        >>> import pandas as pd, tensorflow as tf, tensorframes as tfs
        >>> tfs.map_rows(lambda v: {"total": tf.reduce_sum(v)}, pd.DataFrame({"v": [[1.0, 2.0], [3.0]]}))
                    v  total
        0  [1.0, 2.0]    3.0
        1       [3.0]    3.0
    """
    source = wrap(frame)
    program = as_program(fetches, source.schema, feed_dict, rowwise=True, initial_variables=initial_variables)
    plan = plan_map("map_rows", program, source.schema, feed_dict, rowwise=True, block_rows=block_rows, device=device)
    made = vectorize(fetches, program, plan.constants, initial_variables=initial_variables)
    plan = replace(plan, program=made.program, uneven=made.uneven)
    return source.append(plan.reads, plan.outputs, run_rows(plan))
