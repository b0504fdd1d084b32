"""The runner: a Plan → a picklable function over Arrow batches, which runs in the worker.

Knows blocks and programs; decides nothing. The one law: for each block, encode(call(decode(block))).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tensorframes.blocks.cells import Cells
from tensorframes.blocks.dense import encode_dense
from tensorframes.blocks.inputs import Block, Sparse, decode_input, decode_uneven, filter_rows, shown_rows, take_rows
from tensorframes.blocks.nulls import spread
from tensorframes.blocks.ragged import Ragged, encode_ragged
from tensorframes.blocks.rebatch import join_small, rebatch
from tensorframes.blocks.vectors import as_vectors, encode_matrices
from tensorframes.calls import Fed, call_program
from tensorframes.columns import Column, list_type, plain_schema, vector_rank
from tensorframes.device import reads_ahead
from tensorframes.dtypes import BY_NAME
from tensorframes.errors import ProgramError, ShapeError, raised_by
from tensorframes.feeds import ColumnInput, Constant, MaskInput
from tensorframes.plan import Input, Plan
from tensorframes.prefetch import ahead
from tensorframes.tensors import eagerly

_MOST_CODES = 2**62


@dataclass(frozen=True, slots=True)
class Decoded:
    """A block, ready for the program.

    Attributes:
        feeds: for each input the rows that the program is shown: a block, or cells of different shapes; or a constant.
        is_shown: which rows these are; None: all.
        rows: their numbers in the block.
    """

    feeds: Sequence[Cells | Fed]
    is_shown: np.ndarray | None
    rows: np.ndarray


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
        """Run over the consecutive batches of one partition, a block at a time; the next one is read meanwhile, where that helps."""
        decoded = map(self.decode, self.blocks(join_small(batches) if self._may_join else batches))
        return map(self.compute, ahead(decoded) if reads_ahead(self.plan.device) else decoded)

    @property
    def _may_join(self) -> bool:
        """Whether small batches may be one block: not where each could have cells of a shape of its own."""
        return self.rowwise or not any(isinstance(source, ColumnInput) and source.is_uneven for source in self.plan.inputs)

    def blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Divide batches into the plan's blocks."""
        return rebatch(batches, self.plan.block_rows)

    def run(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """Run over one block of at least one row."""
        return self.compute(self.decode(block))

    def decode(self, block: pa.RecordBatch) -> Decoded:
        """Decode a block of at least one row.

        Raises:
            TensorFramesError: names verb, input, column, row of the block, wanted and held.
        """
        with raised_by(self.plan.verb):
            is_shown = shown_rows(block, self.plan.skipping)
            rows = np.arange(block.num_rows) if is_shown is None else np.flatnonzero(is_shown)
            if len(rows) == 0:
                return Decoded([], is_shown, rows)
            shown = block if is_shown is None else filter_rows(block, is_shown)
            if not self.rowwise:
                check_block_size(self.plan, len(rows))
            return Decoded((_decode_cells if self.rowwise else decode_feeds)(self.plan, shown, rows), is_shown, rows)

    def compute(self, decoded: Decoded) -> pa.RecordBatch:
        """Run over a decoded block; rows that the program is not shown get nulls, where rows are kept.

        Raises:
            TensorFramesError: names verb, output or row of the block, wanted and held.
        """
        with raised_by(self.plan.verb), eagerly():
            if len(decoded.rows) == 0:
                arrays = [pa.array([], column.arrow) for column in self.plan.outputs]
            else:
                arrays = (self._compute_cells if self.rowwise else self._compute_block)(decoded.feeds, decoded.rows)
        if decoded.is_shown is not None and self.plan.keep_rows:
            arrays = [spread(array, decoded.is_shown) for array in arrays]
        return pa.RecordBatch.from_arrays(arrays, schema=plain_schema(self.plan.outputs))

    def _compute_block(self, feeds: Any, rows: np.ndarray) -> list[pa.Array]:
        return self._compute(self.plan, feeds, rows)

    def _compute_cells(self, cells: Sequence[Cells | Fed], numbers: np.ndarray) -> list[pa.Array]:
        """Run rows of one shape together, all shapes one after the other, and put what they give in the rows' order."""
        groups = _rows_by_shape([cell.shapes for cell in cells if isinstance(cell, Cells)], len(numbers))
        parts = [self._compute_rows([_gather(cell, rows) for cell in cells], numbers[rows]) for rows in groups]
        if len(parts) == 1:
            return parts[0]
        back = np.empty(len(numbers), dtype=np.int64)
        back[np.concatenate(groups)] = np.arange(len(numbers))
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


def check_block_size(plan: Plan, rows: int) -> None:
    """Raise if a program takes blocks of another number of rows.

    Raises:
        ShapeError: names the input.
    """
    for port, source in zip(plan.program.input_ports, plan.inputs, strict=True):
        if isinstance(source, ColumnInput) and port.type.shape and port.type.shape[0] not in (None, rows):
            raise ShapeError(f"input {port.name!r} wants blocks of {port.type.shape[0]} rows, but a partition leaves one of {rows}.")


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
