"""The fold: a reduce's Plan → a picklable function that folds the batches of one partition to one row.

Knows blocks and programs; decides nothing. The one law: never more in memory than one block and a bounded number of folded cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tensorframes.blocks.inputs import (
    Block,
    as_column,
    as_sparse,
    concatenate_blocks,
    decode_input,
    filter_rows,
    map_values,
    shown_rows,
    take_rows,
)
from tensorframes.blocks.nulls import pad_alike
from tensorframes.blocks.ragged import Ragged
from tensorframes.blocks.rebatch import join_small, rebatch
from tensorframes.blocks.scalars import from_bfloat16
from tensorframes.calls import Fed, call_program
from tensorframes.columns import plain_schema
from tensorframes.device import reads_ahead
from tensorframes.errors import ShapeError, raised_by
from tensorframes.feeds import ColumnInput, Constant, MaskInput
from tensorframes.plan import Plan
from tensorframes.prefetch import ahead
from tensorframes.runner import encode_output
from tensorframes.shapes import Shape
from tensorframes.tensors import eagerly

Cells = list[Block]
"""For each output, the cells to be folded."""

Masks = list[Block | None]
"""For each output, where its cells' values were present, if a program wants to know; None: everywhere."""


@dataclass(frozen=True, slots=True)
class DecodedCells:
    """A block, ready to be folded.

    Attributes:
        shown: the rows that the program is shown.
        pairs: for each output its cells, and their mask if the program wants it.
        rows: the rows' numbers in the block.
    """

    shown: pa.RecordBatch
    pairs: list[tuple[Block, Block | None]]
    rows: np.ndarray


_MOST_HELD = 64
_MOST_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Fold:
    """Folds a partition by a program that takes a block and gives a cell.

    Attributes:
        plan: what to do.
    """

    plan: Plan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give one row for the consecutive batches of a partition, or none where it has no row to be folded.

        Raises:
            TensorFramesError: names verb, input, column, row of the block, wanted and held.
        """
        with raised_by(self.plan.verb), eagerly():
            row = self._partition(batches)
        if row is not None:
            yield row

    def _partition(self, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch | None:
        again, held, size = refold(self), list[tuple[Cells, pa.RecordBatch]](), 0
        decoded = map(self._decode, rebatch(join_small(batches), self.plan.block_rows))
        for block in ahead(decoded) if reads_ahead(self.plan.device) else decoded:
            if block is None:
                continue
            folded = self._block(block, 1)
            held.append(folded)
            size += folded[1].nbytes
            if len(held) == _MOST_HELD or (len(held) > 1 and size > _MOST_BYTES):
                held = [again._rows(held)]
                size = held[0][1].nbytes
        if not held:
            return None
        return (again._rows(held) if len(held) > 1 else held[0])[1]

    def _rows(self, held: Sequence[tuple[Cells, pa.RecordBatch]]) -> tuple[Cells, pa.RecordBatch]:
        """Fold the rows that blocks were folded to."""
        for sources, cells in zip(self._sources, zip(*(cells for cells, _ in held), strict=True), strict=True):
            check_one_shape(sources[0], cells)
        rows = pa.concat_batches([row for _, row in held])
        decoded = self._decode(pa.RecordBatch.from_arrays(rows.columns, names=[f"_{i}" for i in range(rows.num_columns)]))
        assert decoded is not None
        return self._block(decoded, 2)

    def _decode(self, block: pa.RecordBatch) -> DecodedCells | None:
        """Decode a block; None where no row is shown to the program."""
        is_shown = shown_rows(block, self.plan.skipping)
        rows = np.arange(block.num_rows) if is_shown is None else np.flatnonzero(is_shown)
        if len(rows) == 0:
            return None
        shown = block if is_shown is None else filter_rows(block, is_shown)
        return DecodedCells(shown, [decode_cells(self.plan, sources[0], shown, rows) for sources in self._sources], rows)

    def _block(self, block: DecodedCells, step: int) -> tuple[Cells, pa.RecordBatch]:
        """Fold a decoded block to one row."""
        cells, masks = self.fold([values for values, _ in block.pairs], [mask for _, mask in block.pairs], step, block.rows)
        arrays = [
            encode_output(column, values, None) if mask is None else as_column(block.shown.column(source.read), source, column.arrow)
            for column, values, mask, (source, *_) in zip(self.plan.outputs, cells, masks, self._sources, strict=True)
        ]
        return cells, pa.RecordBatch.from_arrays(arrays, schema=plain_schema(self.plan.outputs))

    @property
    def _sources(self) -> list[list[ColumnInput]]:
        """For each output the inputs that it is folded from."""
        return [fold_sources(self.plan, fold) for fold in self.plan.folds]

    def fold(self, cells: Cells, masks: Masks, step: int, rows: np.ndarray) -> tuple[Cells, Masks]:
        """Fold the cells of each output to one, a block of one row; `step` is 1 for the columns' own cells, more for folded ones."""
        given = {position: pair for (position,), *pair in zip(self.plan.folds, cells, masks, strict=True)}
        named = ("row {} of the block" if step == 1 else f"cell {{}} of round {step}").format
        outputs = [_one_row(values) for values in self._call(given, rows if step == 1 else np.arange(len(cells[0])), named)]
        for (source, *_), column, held, folded in zip(self._sources, self.plan.outputs, outputs, cells, strict=True):
            check_shape(source, column.name, held, folded, step)
        return outputs, [None for _ in outputs]

    def _call(self, given: Mapping[int, Sequence[Any]], rows: np.ndarray, named: Callable[[int], str]) -> list[Block]:
        """Call the program; `given` has the cells and the mask for each input that a column feeds."""
        return call_program(self.plan, feeds_of(self.plan, given), rows, named)


@dataclass(frozen=True, slots=True)
class PairFold(Fold):
    """Folds a partition by a program that takes two cells and gives one: a tree of neighbours, vectorized.

    Its program takes two blocks of cells, the left and the right ones, and gives as many.
    """

    def fold(self, cells: Cells, masks: Masks, step: int, rows: np.ndarray) -> tuple[Cells, Masks]:
        """Fold neighbours until one cell is left: as many calls as the count of cells has binary digits.

        A mask is left where the one cell was never folded.
        """
        if len(cells[0]) > 1:
            cells = self._fold(cells, masks, step)
            masks = [None for _ in cells]
        return cells, masks

    def _fold(self, cells: Cells, masks: Masks, step: int) -> Cells:
        while len(cells[0]) > 1:
            count = len(cells[0])
            left, right, rest = np.arange(0, count - 1, 2), np.arange(1, count, 2), np.arange(count - count % 2, count)
            given = {}
            for positions, *pair in zip(self.plan.folds, cells, masks, strict=True):
                for position, side in zip(positions, (left, right), strict=True):
                    given[position] = [None if part is None else take_rows(part, side) for part in pair]
            named = ("pair {} of the block" if step == 1 else f"pair {{}} of round {step}").format
            folded = self._call(given, np.arange(count // 2), named)
            for (source, *_), column, held, values in zip(self._sources, self.plan.outputs, folded, cells, strict=True):
                check_shape(source, column.name, held, values, step)
            masks = [_join_masks(mask, held, rest) for mask, held in zip(masks, folded, strict=True)]
            cells = [
                concatenate(source, [held, take_rows(values, rest)]) if len(rest) else held
                for (source, *_), held, values in zip(self._sources, folded, cells, strict=True)
            ]
            step += 1
        return cells


def _join_masks(mask: Block | None, folded: Block, rest: np.ndarray) -> Block | None:
    """Return the mask of folded cells, which are all present, and of one that was left over."""
    return None if mask is None else concatenate_blocks([_all_true(folded), take_rows(mask, rest)]) if len(rest) else _all_true(folded)


def _all_true(block: Block) -> Block:
    if isinstance(block, Ragged):
        return replace(block, values=np.ones(block.values.shape, dtype=bool))
    assert isinstance(block, np.ndarray)
    return np.ones(block.shape, dtype=bool)


def _one_row(cell: Block) -> Block:
    """Return a cell as a block of one row."""
    if isinstance(cell, np.ndarray):
        return cell[np.newaxis]
    assert isinstance(cell, Ragged)
    return Ragged(cell.values, (np.array([0, len(cell)]), *cell.splits))


def fold_sources(plan: Plan, fold: tuple[int, ...]) -> list[ColumnInput]:
    """Return the inputs that an output is folded from."""
    return [source for source in (plan.inputs[position] for position in fold) if isinstance(source, ColumnInput)]


def decode_cells(plan: Plan, source: ColumnInput, block: pa.RecordBatch, rows: np.ndarray) -> tuple[Block, Block | None]:
    """Return the cells of the column that an output is folded from, as outputs are: sparse ones as dense, bfloat16 as float32.

    With them comes their mask, if the program wants it.
    """
    cells, mask = decode_input(block.column(source.read), replace(source, is_sparse=False), rows)
    if source.narrowed == "bfloat16" and source.cast is None:
        cells = map_values(cells, from_bfloat16)
    is_masked = any(isinstance(other, MaskInput) and plan.inputs[other.of] == source for other in plan.inputs)
    return cells, mask if is_masked else None


def feeds_of(plan: Plan, given: Mapping[int, Sequence[Any]]) -> list[Fed]:
    """Return what feeds each input, given the cells and the mask (None: all are present) for each one that a column feeds."""
    feeds: list[Fed] = []
    for position, source in enumerate(plan.inputs):
        if isinstance(source, Constant):
            feeds.append(source)
        elif isinstance(source, MaskInput):
            cells, mask = given[source.of]
            feeds.append(_all_true(cells) if mask is None else mask)
        else:
            cells = given[position][0]
            feeds.append(as_sparse(cells) if source.is_sparse and isinstance(cells, np.ndarray) else cells)
    return feeds


def check_shape(source: ColumnInput, output: str, held: Block, folded: Block, step: int) -> None:
    """Raise unless cells that a program gave have the shape of those that it took; ragged and padded ones may grow."""
    if source.ragged_rank or source.pad is not None or not isinstance(held, np.ndarray) or not isinstance(folded, np.ndarray):
        return
    if held.shape[1:] != folded.shape[1:]:
        raise ShapeError(
            f"output {output!r} has shape {Shape(held.shape[1:])} in round {step}, but the cells that it is folded from have shape "
            f"{Shape(folded.shape[1:])}."
        )


def check_one_shape(source: ColumnInput, parts: Sequence[Block]) -> None:
    """Raise unless cells may be folded together: of one shape, unless they are ragged or padded.

    Raises:
        ShapeError: names two shapes.
    """
    shapes = sorted({str(Shape(values.shape[1:])) for values in parts if isinstance(values, np.ndarray)})
    if len(shapes) > 1 and source.pad is None and not source.ragged_rank:
        raise ShapeError(
            f"column {source.column!r} has cells of shapes {shapes[0]} and {shapes[1]}, which are not folded together.",
            hint=f"Feed them padded or ragged: tfs.feed({source.column!r}, pad=0), or ragged=True.",
        )


def concatenate(source: ColumnInput, parts: Sequence[Block]) -> Block:
    """Join the cells of several blocks; padded ones are padded to the largest.

    Raises:
        ShapeError: they differ in shape and are neither ragged nor padded.
    """
    parts = [part for part in parts if len(part)] or parts[:1]  # a block without cells has none of another shape
    check_one_shape(source, parts)
    dense = [values for values in parts if isinstance(values, np.ndarray)]
    if source.pad is not None and len({values.shape[1:] for values in dense}) > 1:
        return np.concatenate(pad_alike(dense, source.pad, source.cast or source.narrowed))
    return concatenate_blocks(parts)


def run_fold(plan: Plan) -> Fold:
    """Return the function that folds by a program of blocks."""
    return Fold(plan)


def run_pair_fold(plan: Plan) -> Fold:
    """Return the function that folds by a program of pairs, vectorized."""
    return PairFold(plan)


def refold(fold: Fold) -> Fold:
    """Return the function that folds the rows that `fold` gave."""
    plan = fold.plan
    inputs = list(plan.inputs)
    for read, (positions, column) in enumerate(zip(plan.folds, plan.outputs, strict=True)):
        for position in positions:
            source, wanted = inputs[position], plan.program.input_ports[position].type.dtype
            assert isinstance(source, ColumnInput)
            inputs[position] = replace(
                source,
                read=read,
                cell_shape=column.cell_shape or Shape(),
                cast=None,
                knows_nulls=True,
                narrowed=None if wanted == column.dtype else wanted,  # what the frame stores in a wider type
            )
    reads = tuple((column.name,) for column in plan.outputs)
    return replace(fold, plan=replace(plan, inputs=tuple(inputs), reads=reads, block_rows=None))


def cell_bytes(plan: Plan) -> int | None:
    """Return the bytes of one folded row, or None where a dimension is unknown or there are strings."""
    total = 0
    for column in plan.outputs:
        if column.cell_shape is None or None in column.cell_shape or column.dtype == "string":
            return None
        total += 8 * math.prod(dim or 0 for dim in column.cell_shape)
    return total
