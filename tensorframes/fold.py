"""The fold: a reduce's Plan → a picklable function that folds the batches of one partition to one row.

Knows blocks and programs; decides nothing. The one law: never more in memory than one block and a bounded number of folded cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tensorframes.blocks.rebatch import join_small, rebatch
from tensorframes.blocks.scalars import align
from tensorframes.columns import plain_schema
from tensorframes.errors import ShapeError, TensorFramesError
from tensorframes.feeds import Constant
from tensorframes.plan import ColumnInput, Plan
from tensorframes.runner import call_program, constant_tensor, decode_block, encode_output
from tensorframes.shapes import Shape
from tensorframes.tensors import eagerly, to_array, to_tensor

Cells = list[np.ndarray]
"""For each output, the cells to be folded, ``[count, *cell]``."""

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
        """Give one row for the consecutive batches of a partition, or none where it is empty."""
        cells = self.partition(batches)
        if cells is not None:
            arrays = [encode_output(column, values, None) for column, values in zip(self.plan.outputs, cells, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=plain_schema(self.plan.outputs))

    def partition(self, batches: Iterable[pa.RecordBatch]) -> Cells | None:
        """Fold a partition, block by block; returns each output's one cell, ``[1, *cell]``, or None where there is no row.

        Raises:
            TensorFramesError: names verb, input, column, row of the block, wanted and held.
        """
        try:
            with eagerly():
                return self._partition(batches)
        except TensorFramesError as error:
            error.verb = error.verb or self.plan.verb
            raise

    def _partition(self, batches: Iterable[pa.RecordBatch]) -> Cells | None:
        held: list[Cells] = []
        for block in rebatch(join_small(batches), self.plan.block_rows):
            held.append(self.fold(self.decode(block), 1))
            if len(held) == _MOST_HELD or (len(held) > 1 and len(held) * _nbytes(held[0]) > _MOST_BYTES):
                held = [self.fold(_stack(held), 2)]
        return self.fold(_stack(held), 2) if len(held) > 1 else held[0] if held else None

    def decode(self, block: pa.RecordBatch) -> Cells:
        """Return the cells of a block's columns, in the order of the outputs."""
        sources = [self.plan.inputs[fold[0]] for fold in self.plan.folds]
        return [decode_block(source, block) for source in sources if isinstance(source, ColumnInput)]

    def fold(self, cells: Cells, step: int) -> Cells:
        """Fold the cells of each output to one; `step` is 1 for the columns' own cells, more for cells that were folded."""
        given = {position: values for (position,), values in zip(self.plan.folds, cells, strict=True)}
        return [values[np.newaxis] for values in self._call(given, [values.shape[1:] for values in cells], step, len(cells[0]))]

    def _call(self, given: dict[int, np.ndarray], shapes: Sequence[tuple[int, ...]], step: int, rows: int) -> Cells:
        """Call the program; each output must have the given shape."""
        sources = enumerate(self.plan.inputs)
        feeds = [constant_tensor(source) if isinstance(source, Constant) else to_tensor(given[i]) for i, source in sources]
        outputs = [to_array(tensor) for tensor in call_program(self.plan, feeds, np.arange(rows), self._row(step))]
        for column, values, wanted in zip(self.plan.outputs, outputs, shapes, strict=True):
            if values.shape != wanted:
                raise ShapeError(
                    f"output {column.name!r} has shape {Shape(values.shape)} in round {step}, but the cells that it is folded from have "
                    f"shape {Shape(wanted)}."
                )
        return outputs

    def _row(self, step: int) -> Callable[[int], str]:
        """Return how messages call a row of what is folded in this round."""
        return ("row {} of the block" if step == 1 else f"cell {{}} of round {step}").format


@dataclass(frozen=True, slots=True)
class PairFold(Fold):
    """Folds a partition by a program that takes two cells and gives one: a tree of neighbours, vectorized.

    Its program takes two blocks of cells, the left and the right ones, and gives as many.
    """

    def fold(self, cells: Cells, step: int) -> Cells:
        """Fold neighbours until one cell is left: as many calls as the count of cells has binary digits."""
        while len(cells[0]) > 1:
            count = len(cells[0])
            given: dict[int, np.ndarray] = {}
            for (left, right), values in zip(self.plan.folds, cells, strict=True):
                given[left], given[right] = align(values[0 : count - 1 : 2]), align(values[1:count:2])
            shapes = [(count // 2, *values.shape[1:]) for values in cells]
            folded = self._call(given, shapes, step, count // 2)
            cells = [_join(values, left) for values, left in zip(folded, (values[count - count % 2 :] for values in cells), strict=True)]
            step += 1
        return cells

    def _row(self, step: int) -> Callable[[int], str]:
        return ("pair {} of the block" if step == 1 else f"pair {{}} of round {step}").format


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
            port = plan.program.input_ports[position]
            cast = None if port.type.dtype == column.dtype else port.type.dtype
            inputs[position] = ColumnInput(port.name, column.name, read, column.cell_shape or Shape(), cast)
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


def _nbytes(cells: Cells) -> int:
    return sum(values.nbytes for values in cells)


def _stack(held: Sequence[Cells]) -> Cells:
    return [concatenate(parts) for parts in zip(*held, strict=True)]


def concatenate(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Join the cells of several blocks.

    Raises:
        ShapeError: they differ in shape.
    """
    if len({values.shape[1:] for values in parts}) > 1:
        shapes = sorted({str(Shape(values.shape[1:])) for values in parts})
        raise ShapeError(f"cells of shapes {shapes[0]} and {shapes[1]} cannot be folded together.")
    return np.concatenate(parts)


def _join(folded: np.ndarray, left: np.ndarray) -> np.ndarray:
    return np.concatenate([folded, left]) if len(left) else folded
