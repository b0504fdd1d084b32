"""The combine: an aggregate's Plan → a picklable function that folds the rows of each key, all keys at once.

Runs twice: on the rows where they are, and on what that gave after it has been brought together by key. Never a call per key: rows are
sorted by key and cut into chunks of eight, all full chunks are folded in one vectorized call and the remainders in one call for each of
their lengths, and the results are folded again until one is left for each key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tensorframes.blocks.groups import Groups, group_rows, normalized, restored
from tensorframes.blocks.rebatch import rebatch
from tensorframes.blocks.scalars import take_aligned
from tensorframes.columns import Column, plain_schema
from tensorframes.device import place
from tensorframes.errors import ShapeError, TensorFramesError
from tensorframes.feeds import Constant
from tensorframes.fold import Cells, Fold, concatenate, refold
from tensorframes.plan import ColumnInput, Plan
from tensorframes.reductions import reduce_segments
from tensorframes.runner import call_program, constant_tensor, decode_block, encode_output
from tensorframes.shapes import Shape
from tensorframes.tensors import eagerly, to_array, to_tensor

CHUNK = 8
_BLOCK_ROWS = 2**17
_WORTH_COMBINING = 0.5
_BATCH_ROWS = 2**16


@dataclass(frozen=True, slots=True)
class Combine:
    """Folds the rows of each key. Takes batches of the keys, then the columns that the plan reads; gives batches of keys, then outputs.

    Attributes:
        plan: what to do; its program takes a batch of chunks of rows.
        keys: the key columns.
        known: the reduction that each output is, where all are known to TensorFlow's segment operations.
        is_last: whether each key must be given once; the first time, combining stops where it does not make the rows fewer.
    """

    plan: Plan
    keys: tuple[Column, ...]
    known: tuple[str, ...] | None
    is_last: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over the consecutive batches of one partition.

        Raises:
            TensorFramesError: names verb, input, column, row of the block, wanted and held.
        """
        try:
            yield from self._run(batches)
        except TensorFramesError as error:
            error.verb = error.verb or self.plan.verb
            raise

    def _run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: list[tuple[list[pa.Array], Cells]] = []
        rows, bound, combines = 0, 2 * _BLOCK_ROWS, True
        for block in rebatch(batches, _BLOCK_ROWS):
            keys, cells = self._decode(block)
            if not combines:
                yield from self._encode(keys, cells)
                continue
            part = self._combine(keys, cells)
            if not self.is_last and len(part[0][0]) > _WORTH_COMBINING * block.num_rows:
                combines = False
                for ready in [*held, part]:
                    yield from self._encode(*ready)
                held = []
                continue
            held.append(part)
            rows += len(part[0][0])
            if rows > bound:
                held = [self._merge(held)]
                rows = len(held[0][0][0])
                bound = max(bound, 2 * rows)
        if held:
            yield from self._encode(*(self._merge(held) if len(held) > 1 else held[0]))

    def _decode(self, block: pa.RecordBatch) -> tuple[list[pa.Array], Cells]:
        keys = [normalized(key) for key in block.columns[: len(self.keys)]]
        values = pa.RecordBatch.from_arrays(block.columns[len(self.keys) :], block.schema.names[len(self.keys) :])
        sources = [self.plan.inputs[position] for (position,) in self.plan.folds]
        return keys, [decode_block(source, values) for source in sources if isinstance(source, ColumnInput)]

    def _encode(self, keys: Sequence[pa.Array], cells: Cells) -> Iterator[pa.RecordBatch]:
        schema = plain_schema([*self.keys, *self.plan.outputs])
        keys = [restored(key, column.arrow) for key, column in zip(keys, self.keys, strict=True)]
        for start in range(0, len(keys[0]), _BATCH_ROWS):
            part = slice(start, start + _BATCH_ROWS)
            values = [encode_output(column, cell[part], None) for column, cell in zip(self.plan.outputs, cells, strict=True)]
            yield pa.RecordBatch.from_arrays([*(key.slice(start, _BATCH_ROWS) for key in keys), *values], schema=schema)

    def _merge(self, held: Sequence[tuple[list[pa.Array], Cells]]) -> tuple[list[pa.Array], Cells]:
        keys = [pa.concat_arrays(list(parts)) for parts in zip(*(keys for keys, _ in held), strict=True)]
        cells = [concatenate(parts) for parts in zip(*(cells for _, cells in held), strict=True)]
        return self._combine(keys, cells)

    def _combine(self, keys: Sequence[pa.Array], cells: Cells) -> tuple[list[pa.Array], Cells]:
        groups = group_rows(keys)
        with eagerly(), place(self.plan.device):
            return groups.keys, self._by_segments(groups, cells) if self.known else self._by_chunks(groups, cells)

    def _by_segments(self, groups: Groups, cells: Cells) -> Cells:
        assert self.known is not None
        segments = to_tensor(groups.codes)
        pairs = zip(self.known, cells, strict=True)
        return [to_array(reduce_segments(kind, to_tensor(values), segments, groups.count)) for kind, values in pairs]

    def _by_chunks(self, groups: Groups, cells: Cells) -> Cells:
        narrow = groups.codes.astype(np.uint16) if groups.count <= 2**16 else groups.codes  # NumPy sorts 16 bits by radix
        order = np.argsort(narrow, kind="stable")
        cells = [take_aligned(values, order) for values in cells]
        counts = np.bincount(groups.codes, minlength=groups.count)
        step = 1
        while step == 1 or counts.max(initial=0) > 1:
            cells, counts = self._round(cells, counts, step, groups.keys)
            step += 1
        return cells

    def _round(self, cells: Cells, counts: np.ndarray, step: int, keys: Sequence[pa.Array]) -> tuple[Cells, np.ndarray]:
        """Fold each group's rows, which lie side by side, chunk by chunk; returns the folded rows and how many each group has."""
        starts = np.cumsum(counts) - counts
        full, rest = counts // CHUNK, counts % CHUNK
        left = full + (rest > 0)
        places = np.cumsum(left) - left  # where each group's folded rows begin
        folded: list[np.ndarray] = [np.empty((int(left.sum()), *values.shape[1:]), values.dtype) for values in cells]
        chunk = np.arange(int(full.sum())) - np.repeat(np.cumsum(full) - full, full)  # the number of each full chunk in its group
        of_full = np.repeat(np.arange(len(counts)), full)
        jobs = [(CHUNK, of_full, starts[of_full] + CHUNK * chunk, places[of_full] + chunk)]
        for size in range(1, CHUNK):
            groups = np.flatnonzero(rest == size)
            jobs.append((size, groups, starts[groups] + CHUNK * full[groups], places[groups] + full[groups]))
        for size, groups, begins, ends in jobs:
            if len(begins) == 0:
                continue
            rows = begins[:, None] + np.arange(size)
            given = [take_aligned(values, rows) for values in cells]
            done = given if size == 1 and step > 1 else self._fold(given, step, groups, keys)
            for target, values in zip(folded, done, strict=True):
                target[ends] = values.reshape(len(ends), *target.shape[1:])
        return folded, left

    def _fold(self, chunks: Cells, step: int, groups: np.ndarray, keys: Sequence[pa.Array]) -> Cells:
        """Fold chunks of equal size, ``[chunks, size, *cell]`` → ``[chunks, *cell]``, in one call; `groups` says whose each chunk is."""
        given = {position: values for (position,), values in zip(self.plan.folds, chunks, strict=True)}
        sources = enumerate(self.plan.inputs)
        feeds = [constant_tensor(source) if isinstance(source, Constant) else to_tensor(given[i]) for i, source in sources]
        outputs = [to_array(tensor) for tensor in call_program(self.plan, feeds, groups, lambda group: self._rows_of(keys, group))]
        for column, values, chunk in zip(self.plan.outputs, outputs, chunks, strict=True):
            if values.shape[1:] != chunk.shape[2:]:
                raise ShapeError(
                    f"output {column.name!r} has shape {Shape(values.shape[1:])} in round {step}, but the cells that it is folded from "
                    f"have shape {Shape(chunk.shape[2:])}."
                )
        return outputs

    def _rows_of(self, keys: Sequence[pa.Array], group: int) -> str:
        """Return how messages call some rows of a key."""
        held = (f"{column.name} = {key[group].as_py()!r}" for column, key in zip(self.keys, keys, strict=True))
        return f"rows of the key {', '.join(held)}"


def run_combine(plan: Plan, keys: Sequence[Column], known: tuple[str, ...] | None) -> tuple[Combine, Combine]:
    """Return the function that combines rows where they are, and the one that combines what it gave, brought together by key."""
    first = Combine(plan, tuple(keys), known)
    return first, replace(first, plan=refold(Fold(plan)).plan, is_last=True)
