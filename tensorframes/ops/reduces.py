"""reduce_blocks and reduce_rows: a frame → one value for each output.

Each partition is folded where it is, block by block, to one row; these rows are folded once more on the driver (and before that by a few
tasks, where they are large).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tensorframes.blocks.inputs import decode_input
from tensorframes.capture import as_program
from tensorframes.capture.vectorizing import vectorize
from tensorframes.columns import split_lists
from tensorframes.dtypes import is_text
from tensorframes.errors import EmptyFrameError, ShapeError, verb
from tensorframes.feeds import ColumnInput
from tensorframes.fold import Fold, cell_bytes, fold_sources, refold, run_fold, run_pair_fold
from tensorframes.frames import wrap
from tensorframes.frames.base import AbstractFrame
from tensorframes.matching import block_reduce_names, pair_reduce_names
from tensorframes.plan import Plan, plan_reduce
from tensorframes.programs import pack
from tensorframes.shapes import Shape

LARGE_ROW = 64 * 2**10
"""Bytes of a folded row from which on rows are folded on the cluster once more before they come to the driver."""


@verb
def reduce_blocks(
    fetches: Any,
    frame: Any,
    feed_dict: Any = None,
    *,
    block_rows: int | None = None,
    device: str = "auto",
    initial_variables: bool = True,
) -> Any:
    """Fold a frame to one value by a program that folds a block to one cell.

    By shape: column ``x: float64[?, 2]`` → the program's input ``x`` (or ``x_input``): ``float64[?, 2]`` → its output ``x: float64[2]``.
    The program is applied to blocks, then to the stacked results, until one is left: it must be associative and commutative up to
    rounding.

    Args:
        fetches: as for `map_blocks`. One bare output of a function of one column is named after its parameter.
        frame: the frame; it is read at once.
        feed_dict: as for `map_blocks`; what it says of ``x`` holds for an input ``x_input``.
        block_rows: rows of a block; None: as the frame's batches come.
        device: "auto", "cpu" or "gpu".
        initial_variables: as for `map_blocks`.

    Returns:
        NumPy values in the structure of the fetches: one value, a list or a dict. A value is a NumPy scalar for rank 0, else an array.

    Raises:
        EmptyFrameError: the frame has no row.
        ProgramError: an output without its input, an input without its output; the program fails.
        DTypeError: an output's dtype is not its input's; others as for `map_blocks`.
        ShapeError: an output's shape is not that of its input's cells; others as for `map_blocks`.

    Example:
        >>> import pandas as pd, tensorflow as tf, tensorframes as tfs
        >>> frame = pd.DataFrame({"x": [1.0, 2.0, 4.0], "y": [3, 5, 1]})
        >>> float(tfs.reduce_blocks(lambda x: tf.reduce_sum(x, axis=0), frame))
        7.0
        >>> found = tfs.reduce_blocks(lambda x, y: {"x": tf.reduce_min(x, 0), "y": tf.reduce_max(y, 0)}, frame)
        >>> float(found["x"]), int(found["y"])
        (1.0, 5)
    """
    source = wrap(frame)
    program = as_program(
        fetches,
        source.schema,
        feed_dict,
        initial_variables=initial_variables,
        naming=block_reduce_names,
        bare_by_input="_input",
    )
    named = block_reduce_names(list(program.inputs), feed_dict, source.schema)
    plan = plan_reduce("reduce_blocks", program, source.schema, named, block_rows=block_rows, device=device)
    return _reduce(source, run_fold(plan))


@verb
def reduce_rows(
    fetches: Any,
    frame: Any,
    feed_dict: Any = None,
    *,
    block_rows: int | None = None,
    device: str = "auto",
    initial_variables: bool = True,
) -> Any:
    """Fold a frame to one value by a program that folds two cells to one.

    By shape: column ``x: float64[?, 2]`` → the program's inputs ``x_1`` and ``x_2``: ``float64[2]`` → its output ``x: float64[2]``.
    It must be associative and commutative up to rounding. Neighbours are folded as a tree, all pairs of a round in one call.

    Args:
        fetches: as for `map_rows`; or a function of two parameters of any names, when ``feed_dict`` names one column or the frame has one.
        frame: the frame; it is read at once.
        feed_dict: as for `map_blocks`; what it says of ``x`` holds for ``x_1`` and ``x_2``, and one column by position is both.
        block_rows: rows of a block; None: as the frame's batches come.
        device: "auto", "cpu" or "gpu".
        initial_variables: as for `map_blocks`.

    Returns:
        NumPy values in the structure of the fetches, as from `reduce_blocks`.

    Raises:
        TensorFramesError: as `reduce_blocks`.

    Example:
        >>> import pandas as pd, tensorframes as tfs
        >>> float(tfs.reduce_rows(lambda a, b: a + b, pd.DataFrame({"x": [1.0, 2.0, 4.0]})))
        7.0
    """
    source = wrap(frame)
    program = as_program(fetches, source.schema, feed_dict, rowwise=True, initial_variables=initial_variables, naming=pair_reduce_names)
    named = pair_reduce_names(list(program.inputs), feed_dict, source.schema)
    plan = plan_reduce("reduce_rows", program, source.schema, named, pairwise=True, block_rows=block_rows, device=device)
    made = vectorize(
        fetches,
        program,
        plan.constants,
        initial_variables=initial_variables,
        keeps_shape=True,
        ragged=plan.ragged_folds,
        warn_as="reduce_rows",
    )
    return _reduce(source, run_pair_fold(replace(plan, program=made.program)))


def _reduce(source: AbstractFrame, fold: Fold) -> Any:
    plan, again = fold.plan, refold(fold)
    size = cell_bytes(plan)
    rows = source.fold(plan.reads, plan.outputs, fold, again if size is None or size > LARGE_ROW else None)
    here = replace(again, plan=replace(again.plan, device="auto"))  # the driver need not have the workers' devices
    folded = next(here(rows.to_batches()), None)
    if folded is None:
        names = dict.fromkeys(repr(source.column) for source in plan.skipping)
        skipped = f" without a null in {' or '.join(names)}" if names else ""
        raise EmptyFrameError(f"the frame has no row to fold{skipped}.")
    cells = [_cell(here.plan, position, folded.column(position)) for position in range(folded.num_columns)]
    return pack(plan.program.structure, plan.program.outputs, [_value(plan, i, cell) for i, cell in enumerate(cells)])


def _cell(plan: Plan, position: int, row: pa.Array) -> Any:
    """Return the one cell of a row; a ragged one that is not rectangular as an array of arrays."""
    source = fold_sources(plan, plan.folds[position])[0]
    narrowed = None if source.narrowed == "bfloat16" else source.narrowed  # NumPy has none
    plain = replace(source, narrowed=narrowed, pad=None, ragged_rank=0, is_sparse=False)
    return _nested(row, plain)


def _nested(array: pa.Array, source: ColumnInput) -> Any:
    try:
        cells, _ = decode_input(array, source)
        assert isinstance(cells, np.ndarray)
        return cells[0]
    except ShapeError:
        inner = replace(source, cell_shape=Shape(source.cell_shape[1:]))
        cells = np.empty(len(array[0]), dtype=object)
        for position in range(len(cells)):
            cells[position] = _nested(array.flatten().slice(position, 1), inner)
        return cells


def _value(plan: Plan, position: int, cell: Any) -> Any:
    """Return a cell as NumPy has it: text of string columns, a scalar of rank 0."""
    values = np.empty((), dtype=object) if isinstance(cell, bytes) else np.asarray(cell)
    if isinstance(cell, bytes):
        values[()] = cell
    if values.dtype == object and is_text(split_lists(plan.outputs[position].arrow)[0]):
        texts = [text.decode() for text in values.reshape(-1).tolist()]
        values = np.array([*texts, None], dtype=object)[:-1].reshape(values.shape)
    return values.copy() if values.ndim else values[()]
