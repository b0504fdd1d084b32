"""Maps of an Arrow table against TensorFlow alone, on tensors that are ready."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

import tensorframes as tfs
from benchmarks.cases import Case, Contestants, Setting, within

ALIGNMENT = 64


def doubles(rows: int, shift: int = 0) -> pa.Array:
    """Make doubles 0, 1, … whose address is so many bytes after a multiple of 64."""
    buffer = pa.allocate_buffer(rows * 8 + shift)
    np.frombuffer(buffer, np.float64, rows, shift)[:] = np.arange(rows)
    return pa.Array.from_buffers(pa.float64(), rows, [None, buffer.slice(shift)])


@contextmanager
def scalars(setting: Setting) -> Iterator[Contestants]:
    """Add 3 to doubles, by a ready program."""
    column = doubles(setting.rows)
    frame, tensor = pa.table({"x": column}), tf.constant(column.to_numpy())
    signature = {"x": tf.TensorSpec([None], tf.float64)}
    compiled = tf.function(lambda x: x + 3, input_signature=[signature["x"]]).get_concrete_function()
    program = tfs.program(lambda x: {"z": x + 3}, signature=signature)
    passed_on = tfs.program(lambda x: {"z": tf.identity(x)}, signature=signature)

    def copies(values: pa.Array) -> int:
        """Count the blocks whose values did not come out at the address where they went in."""
        came_out = tfs.map_blocks(passed_on, pa.table({"x": values})).column("z")
        begin, rows = _address(values), 0
        moved = 0
        for chunk in came_out.chunks:
            moved += _address(chunk) != begin + 8 * rows
            rows += len(chunk)
        return moved

    def is_right() -> bool:
        found = tfs.map_blocks(program, frame)
        return found.column("z").to_numpy().sum() == column.to_numpy().sum() + 3 * len(column) and column[0].as_py() == 0.0

    yield Contestants(
        floor=lambda: compiled(tensor) is None,
        ours=lambda: tfs.map_blocks(program, frame) is None,
        peers={"NumPy": lambda: (column.to_numpy() + 3) is None},
        checks={
            "x + 3 is right, and the input is as it was": is_right,
            "an aligned column is copied neither in nor out": lambda: copies(column) == 0,
            "a column that is not aligned is copied": lambda: copies(doubles(setting.rows, 8)) > 0,
        },
    )


def _address(array: Any) -> int:
    return int(array.buffers()[1].address + 8 * array.offset)


CASES = (
    Case(
        "arrow",
        "Arrow, x + 3 over doubles by a ready program: what does a table cost beside a ready tensor?",
        "compiled tf.function",
        within(1.3),
        scalars,
        rows=10_000_000,
        on_spark=False,
    ),
)
