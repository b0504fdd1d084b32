"""aggregate: a grouped frame → one row for each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tensorframes.capture import as_program
from tensorframes.capture.vectorizing import vectorize
from tensorframes.combine import run_combine
from tensorframes.errors import verb
from tensorframes.frames import wrap_grouped
from tensorframes.matching import block_reduce_names
from tensorframes.plan import plan_reduce
from tensorframes.reductions import known_reductions


@verb
def aggregate(
    fetches: Any,
    grouped: Any,
    feed_dict: Any = None,
    *,
    by: str | Sequence[Any] | None = None,
    block_rows: int | None = None,
    device: str = "auto",
    initial_variables: bool = True,
) -> Any:
    """Fold the rows of each key by a program that folds a block to one cell.

    By shape, for each key: column ``x: float64[?, 2]`` → the program's input ``x`` (or ``x_input``): ``float64[?, 2]`` → its output
    ``x: float64[2]``. The rules are those of `reduce_blocks`. All keys are folded at once: rows are sorted by key and cut into chunks, all
    chunks of one length are one vectorized call, and again until one row is left for each key. A plain sum, product, minimum, maximum,
    any or all over the rows runs as TensorFlow's segment operation. Lazy on Spark; a reader or dataset is read at once.

    Args:
        fetches: as for `reduce_blocks`.
        grouped: ``df.groupBy("k")`` of Spark, with expressions as keys too, ``pdf.groupby("k")``, ``table.group_by("k")``, polars'
            ``group_by``; or a frame, with `by`.
        feed_dict: as for `reduce_blocks`.
        by: names of the key columns of a frame.
        block_rows: not of influence on the result; how many rows are folded in one go is chosen.
        device: "auto", "cpu" or "gpu".
        initial_variables: as for `map_blocks`.

    Returns:
        A frame of the same kind: the keys, then the outputs. Null is a key of its own, all NaNs are one, and -0.0 is 0.0, as in Spark;
        pandas' groupings drop nulls and sort as they are told. The order is else not promised.

    Raises:
        FrameError: it is no grouping, or a rollup, cube or pivot.
        DTypeError: rows cannot be grouped by a key's type; others as for `reduce_blocks`.
        TensorFramesError: as `reduce_blocks`.

    Example:
        >>> import pandas as pd, tensorflow as tf, tensorframes as tfs
        >>> frame = pd.DataFrame({"k": ["a", "b", "a"], "x": [1.0, 2.0, 4.0]})
        >>> tfs.aggregate(lambda x: {"x": tf.reduce_sum(x, axis=0)}, frame.groupby("k"))
           k    x
        0  a  5.0
        1  b  2.0
    """
    source = wrap_grouped(grouped, by)
    schema = source.frame.schema
    program = as_program(fetches, schema, feed_dict, initial_variables=initial_variables, naming=block_reduce_names, bare_by_input="_input")
    named = block_reduce_names(list(program.inputs), feed_dict, schema)
    plan = plan_reduce("aggregate", program, schema, named, keys=source.keys, block_rows=block_rows, device=device)
    known = known_reductions(program, plan.folds)
    if known is None:
        made = vectorize(
            fetches,
            program,
            plan.constants,
            initial_variables=initial_variables,
            keeps_shape=True,
            ragged=plan.ragged_folds,
            warn_as="aggregate",
        )
        plan = replace(plan, program=made.program)
    return source.aggregate(plan.reads, plan.outputs, *run_combine(plan, source.grouping, known))
