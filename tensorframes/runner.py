"""The runner: a Plan → a picklable function over Arrow batches, which runs in the worker.

Knows blocks and programs; decides nothing. The one law: for each block, encode(call(decode(block))).
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from tensorframes.blocks.cells import Cells
from tensorframes.blocks.dense import encode_dense
from tensorframes.blocks.inputs import Block, Sparse, decode_input, decode_uneven, filter_rows, shown_rows, take_rows
from tensorframes.blocks.nulls import spread
from tensorframes.blocks.ragged import Ragged, encode_ragged
from tensorframes.blocks.rebatch import join_small, rebatch
from tensorframes.blocks.vectors import as_vectors, encode_matrices
from tensorframes.columns import Column, list_type, plain_schema, vector_rank
from tensorframes.device import place
from tensorframes.dtypes import BY_NAME
from tensorframes.errors import ProgramError, ShapeError, TensorFramesError
from tensorframes.feeds import ColumnInput, Constant, MaskInput
from tensorframes.plan import Input, Plan
from tensorframes.programs import Loaded, load
from tensorframes.tensors import eagerly, to_array, to_tensor

_MOST_CODES = 2**62

Fed = Block | Constant
"""What feeds an input: rows, or a constant."""


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs a plan over batches of the columns that it reads, in the order of its reads; gives batches of its outputs.

    Attributes:
        plan: what to do.
        rowwise: whether rows may differ in shape; rows of one shape are then run together.
    """

    plan: Plan
    rowwise: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over the consecutive batches of one partition, a block at a time."""
        return map(self.run, self.blocks(join_small(batches) if self._may_join else batches))

    @property
    def _may_join(self) -> bool:
        """Whether small batches may be one block: not where each could have cells of a shape of its own."""
        return self.rowwise or not any(isinstance(source, ColumnInput) and source.is_uneven for source in self.plan.inputs)

    def blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Divide batches into the plan's blocks."""
        return rebatch(batches, self.plan.block_rows)

    def run(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """Run over one block of at least one row.

        Raises:
            TensorFramesError: names verb, input, column, row of the block, wanted and held.
        """
        try:
            with eagerly():
                arrays = self._run_shown(block)
        except TensorFramesError as error:
            error.verb = error.verb or self.plan.verb
            raise
        return pa.RecordBatch.from_arrays(arrays, schema=plain_schema(self.plan.outputs))

    def _run_shown(self, block: pa.RecordBatch) -> list[pa.Array]:
        """Run over the rows that the program is shown; the others get nulls, where rows are kept."""
        is_shown = shown_rows(block, self.plan.skipping)
        if is_shown is None:
            return self._run(block, np.arange(block.num_rows))
        rows = np.flatnonzero(is_shown)
        if len(rows) == 0:
            arrays = [pa.array([], column.arrow) for column in self.plan.outputs]
        else:
            arrays = self._run(filter_rows(block, is_shown), rows)
        if not self.plan.keep_rows:
            return arrays
        return [spread(array, is_shown) for array in arrays]

    def _run(self, block: pa.RecordBatch, numbers: np.ndarray) -> list[pa.Array]:
        """Run over all rows of a block, which have these numbers in the block that messages speak of."""
        if not self.rowwise:
            return self._compute(self.plan, decode_feeds(self.plan, block, numbers), numbers)
        cells = _decode_cells(self.plan, block, numbers)
        groups = _rows_by_shape([cell.shapes for cell in cells if isinstance(cell, Cells)], block.num_rows)
        parts = [self._compute_rows([_gather(cell, rows) for cell in cells], numbers[rows]) for rows in groups]
        if len(parts) == 1:
            return parts[0]
        back = np.empty(block.num_rows, dtype=np.int64)
        back[np.concatenate(groups)] = np.arange(block.num_rows)
        order = pa.array(back)
        return [pa.concat_arrays(list(arrays)).take(order) for arrays in zip(*parts, strict=True)]

    def _compute_rows(self, feeds: list[Fed], rows: np.ndarray) -> list[pa.Array]:
        """Run rows of one shape together, and if their outputs differ in shape, one by one inside TensorFlow."""
        try:
            return self._compute(self.plan, feeds, rows)
        except ProgramError:
            if self.plan.uneven is None:
                raise
            return self._compute(replace(self.plan, program=self.plan.uneven), feeds, rows)

    def _compute(self, plan: Plan, feeds: list[Fed], rows: np.ndarray) -> list[pa.Array]:
        """Call the program on the given rows of a block and encode what it gives."""
        outputs = call_program(plan, feeds, rows)
        if self.plan.keep_rows:
            for column, values in zip(self.plan.outputs, outputs, strict=True):
                check_rows(column.name, len(values), len(rows))
        else:
            check_same_rows(self.plan.outputs, outputs)
        numbers = rows if self.plan.keep_rows else None
        return [encode_output(column, values, numbers) for column, values in zip(self.plan.outputs, outputs, strict=True)]


def run_blocks(plan: Plan) -> Runner:
    """Return the function that runs a plan whose program takes blocks."""
    return Runner(plan)


def run_rows(plan: Plan) -> Runner:
    """Return the function that runs a plan whose program takes any number of rows of one shape."""
    return Runner(plan, rowwise=True)


def call_program(
    plan: Plan, feeds: Sequence[Fed], rows: np.ndarray, named: Callable[[int], str] = "row {} of the block".format
) -> list[Block]:
    """Call a plan's program on the given rows of a block.

    Args:
        plan: whose program.
        feeds: its inputs.
        rows: the rows' numbers.
        named: number → how messages call that row.

    Raises:
        ProgramError: an operation fails; names the first row that fails alone, if there is one.
    """
    loaded = load(plan.program)
    with place(plan.device):
        try:
            parts = iter(loaded(_tensors(plan, feeds)))
            return [_as_block([to_array(next(parts)) for _ in port.tensors]) for port in plan.program.output_ports]
        except tf.errors.OpError as error:
            alone = _first_failing(plan, loaded, feeds, len(rows))
            where = f"a block of {len(rows)} rows" if alone is None else named(int(rows[alone]))
            raise ProgramError(
                f"the program failed on {where}: {type(error).__name__}: {reason(error)}",
                facts={"inputs": [_fed(name, source) for name, source in zip(plan.program.inputs, plan.inputs, strict=True)]},
            ) from error


def _as_block(parts: list[np.ndarray]) -> Block:
    return parts[0] if len(parts) == 1 else Ragged(parts[0], tuple(parts[1:]))


def _tensors(plan: Plan, feeds: Sequence[Fed]) -> list[tf.Tensor]:
    """Return the plain tensors of a program's inputs."""
    parts: list[tf.Tensor] = []
    for feed, port in zip(feeds, plan.program.input_ports, strict=True):
        if isinstance(feed, Constant):
            parts.append(constant_tensor(feed))
        elif isinstance(feed, Sparse):
            values = to_tensor(feed.values, port.type.dtype)
            parts += [to_tensor(feed.indices), values, to_tensor(np.array(feed.shape, dtype=np.int64))]
        elif isinstance(feed, Ragged):
            parts += [to_tensor(feed.values, port.type.dtype), *map(to_tensor, feed.splits)]
        else:
            parts.append(to_tensor(feed, port.type.dtype))
    return parts


def _first_failing(plan: Plan, loaded: Loaded, feeds: Sequence[Fed], rows: int) -> int | None:
    """Return the first row on which the program fails even alone, or None where it is not one row's fault."""

    def fails(start: int, stop: int) -> bool:
        part = np.arange(start, stop)
        try:
            loaded(_tensors(plan, [feed if isinstance(feed, Constant) else take_rows(feed, part) for feed in feeds]))
        except tf.errors.OpError:
            return True
        return False

    first = bisect.bisect_left(range(1, rows + 1), True, key=lambda stop: fails(0, stop))
    return first if first < rows and fails(first, first + 1) else None


def constant_tensor(constant: Constant) -> tf.Tensor:
    """Return a constant as a tensor."""
    shape = constant.type.shape
    assert shape is not None
    if isinstance(constant.data, tuple):
        return tf.constant(list(constant.data), dtype=tf.string, shape=shape)
    values = np.frombuffer(constant.data, dtype=BY_NAME[constant.type.dtype].numpy).reshape(shape)
    return to_tensor(values, constant.type.dtype)


def check_rows(output: str, held: int, wanted: int) -> None:
    """Raise unless an output has a row for each row of the block."""
    if held != wanted:
        raise ShapeError(
            f"output {output!r} has {held} rows but the block has {wanted}.",
            hint="With trim=True an output may have any number of rows.",
        )


def check_same_rows(columns: tuple[Column, ...], outputs: Sequence[Block]) -> None:
    """Raise unless all outputs of a block have the same number of rows."""
    if len({len(values) for values in outputs}) > 1:
        held = [f"{column.name}: {len(values)}" for column, values in zip(columns, outputs, strict=True)]
        raise ShapeError("the outputs of a block have different numbers of rows.", facts={"rows": held})


def decode_feeds(plan: Plan, block: pa.RecordBatch, rows: np.ndarray) -> list[Fed]:
    """Return what feeds each input, where rows have these numbers in the block that messages speak of."""
    return _with_masks(plan, [_decoded(source, block, rows, decode_input) for source in plan.inputs])


def _decode_cells(plan: Plan, block: pa.RecordBatch, rows: np.ndarray) -> list[Cells | Fed]:
    """Decode what rows are gathered from: cells of different shapes, blocks where all are of one, or constants."""
    pairs = [
        _decoded(source, block, rows, decode_uneven if isinstance(source, ColumnInput) and source.is_uneven else decode_input)
        for source in plan.inputs
    ]
    return _with_masks(plan, pairs)


def _decoded(source: Input, block: pa.RecordBatch, rows: np.ndarray, decode: Callable[..., tuple[Any, Any]]) -> tuple[Any, Any]:
    return decode(block.column(source.read), source, rows) if isinstance(source, ColumnInput) else (source, None)


def _with_masks(plan: Plan, pairs: Sequence[tuple[Any, Any]]) -> list[Any]:
    """Put the masks, the second of each pair, where they are wanted."""
    return [pairs[source.of][1] if isinstance(source, MaskInput) else pairs[i][0] for i, source in enumerate(plan.inputs)]


def _rows_by_shape(shapes: list[np.ndarray], rows: int) -> list[np.ndarray]:
    """Return the rows of each combination of shapes."""
    together = np.hstack(shapes) if shapes else np.empty((rows, 0), dtype=np.int64)
    if (together == together[0]).all():
        return [np.arange(rows)]
    codes = _shape_codes(together)
    order = np.argsort(codes, kind="stable")
    ends = np.flatnonzero(np.diff(codes[order]))
    return np.split(order, ends + 1)


def _shape_codes(shapes: np.ndarray) -> np.ndarray:
    """Return one small number for each row's shape: its dimensions as the digits of one number, where that is small enough."""
    least = shapes.min(axis=0)
    spans = np.ptp(shapes, axis=0).astype(object) + 1
    count = math.prod(spans)
    if count > _MOST_CODES:
        _, which = np.unique(shapes, axis=0, return_inverse=True)
        return which.reshape(-1)
    codes = np.zeros(len(shapes), dtype=np.int64)
    for digits, span in zip((shapes - least).T, spans, strict=True):
        codes = codes * span + digits
    return codes.astype(np.uint16) if count <= 2**16 else codes.astype(np.int64)  # NumPy sorts 16 bits by radix, far faster


def _gather(cells: Cells | Fed, rows: np.ndarray) -> Fed:
    if isinstance(cells, Constant):
        return cells
    if isinstance(cells, Cells):
        whole = len(rows) == len(cells.shapes)
        return cells.values.reshape(len(rows), *cells.shapes[0]) if whole else cells.take(rows)
    return cells if len(rows) == len(cells) else take_rows(cells, rows)


def encode_output(column: Column, block: Block, rows: np.ndarray | None) -> pa.Array:
    """Turn an output's block into an Arrow array of its column's type."""
    assert column.dtype is not None
    assert not isinstance(block, Sparse)
    wanted = BY_NAME[column.dtype].numpy
    rank = vector_rank(column.arrow)
    if rank == 1:
        return as_vectors(encode_output(replace(column, arrow=list_type(pa.float64(), 1)), block, rows))
    if rank == 2:
        assert isinstance(block, np.ndarray)
        return encode_matrices(block.astype(wanted, copy=False), column.name)
    if isinstance(block, Ragged):
        return encode_ragged(replace(block, values=block.values.astype(wanted, copy=False)), column.arrow, column.name, rows)
    return encode_dense(block.astype(wanted, copy=False), column.arrow, column.name, rows)


def reason(error: tf.errors.OpError) -> str:
    """Return what the failing operation says, without the traceback that there is none of and without generated names."""
    told = [line for line in error.message.splitlines() if line and not line.startswith(_UNTOLD)]
    return re.sub(r"\s*\[(\[\{\{node [^}]*\}\}\]|Op:[^]]*)\]", "", "\n".join(told)).strip()


_UNTOLD = ("Graph execution error:", "Detected at node", "<stack traces unavailable>")


def _fed(name: str, source: Input) -> str:
    if isinstance(source, MaskInput):
        return f"{name} ← mask"
    return f"{name} ← {'constant ' + str(source.type) if isinstance(source, Constant) else 'column ' + repr(source.column)}"
