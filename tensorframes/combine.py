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

from tensorframes.blocks.groups import group_rows, normalized, restored
from tensorframes.blocks.inputs import Block, block_bytes, filter_rows, shown_rows, take_chunks, take_rows
from tensorframes.blocks.nulls import spread
from tensorframes.blocks.rebatch import join_within
from tensorframes.calls import call_program
from tensorframes.columns import Column, plain_schema
from tensorframes.device import place, reads_ahead
from tensorframes.errors import raised_by
from tensorframes.feeds import ColumnInput, MaskInput
from tensorframes.fold import Cells, Fold, Masks, check_shape, concatenate, decode_cells, feeds_of, fold_sources, refold
from tensorframes.plan import Plan
from tensorframes.prefetch import ahead
from tensorframes.reductions import reduce_segments
from tensorframes.runner import encode_output
from tensorframes.tensors import eagerly, to_array, to_tensor

CHUNK = 8


@dataclass(frozen=True, slots=True)
class Rows:
    """Keys, and the cells that belong to them.

    Attributes:
        keys: for each key column its values.
        cells: for each output its cells: one for each row that has cells.
        masks: for each output where its values were present, as for a fold.
        has_cells: which rows have cells: not those that the program is not shown; None: all.
    """

    keys: list[pa.Array]
    cells: Cells
    masks: Masks
    has_cells: np.ndarray | None

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.keys[0])

    @property
    def nbytes(self) -> int:
        """Bytes of keys and cells, pointers to text counted as such."""
        return int(sum(key.nbytes for key in self.keys)) + sum(block_bytes(cells) for cells in self.cells)


_BLOCK_ROWS = 2**17
_WORTH_COMBINING = 0.5
_BATCH_ROWS = 2**16
_BLOCK_BYTES = 16 * 2**20


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
        with raised_by(self.plan.verb):
            yield from self._run(batches)

    def _run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: list[Rows] = []
        size, bound, combines = 0, 2 * _BLOCK_BYTES, True
        blocks = map(self._decode, join_within(batches, _BLOCK_ROWS, _BLOCK_BYTES))
        for decoded in ahead(blocks) if reads_ahead(self.plan.device) else blocks:
            if not combines:
                yield from self._encode(decoded)
                continue
            part = self._combine(decoded)
            if not self.is_last and not self.has_masks and len(part) > _WORTH_COMBINING * len(decoded):
                combines = False
                for ready in [*held, part]:
                    yield from self._encode(ready)
                held = []
                continue
            held.append(part)
            size += part.nbytes
            if size > bound:
                held = [self._merge(held)]
                size = held[0].nbytes
                bound = max(bound, 2 * size)
        if held:
            yield from self._encode(self._merge(held) if len(held) > 1 else held[0])

    @property
    def has_masks(self) -> bool:
        """Whether the program wants masks: each row must go through it once, since folded cells are all present."""
        return any(isinstance(source, MaskInput) for source in self.plan.inputs)

    @property
    def _sources(self) -> list[ColumnInput]:
        """For each output the input that it is folded from."""
        return [fold_sources(self.plan, fold)[0] for fold in self.plan.folds]

    def _decode(self, block: pa.RecordBatch) -> Rows:
        keys = [normalized(key) for key in block.columns[: len(self.keys)]]
        values = pa.RecordBatch.from_arrays(block.columns[len(self.keys) :], block.schema.names[len(self.keys) :])
        is_shown = shown_rows(values, self.plan.skipping)
        rows = np.arange(len(values))
        if is_shown is not None:
            rows, values = rows[is_shown], filter_rows(values, is_shown)
        pairs = [decode_cells(self.plan, source, values, rows) for source in self._sources]
        return Rows(keys, [cells for cells, _ in pairs], [mask for _, mask in pairs], is_shown)

    def _encode(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        schema = plain_schema([*self.keys, *self.plan.outputs])
        keys = [restored(key, column.arrow) for key, column in zip(rows.keys, self.keys, strict=True)]
        has_cells = np.ones(len(rows), dtype=bool) if rows.has_cells is None else rows.has_cells
        ends = np.cumsum(has_cells)
        for start in range(0, len(rows), _BATCH_ROWS):
            part = slice(start, start + _BATCH_ROWS)
            held = np.arange(ends[start] - has_cells[start], ends[part][-1])
            values = [
                encode_output(column, take_rows(cells, held), None) for column, cells in zip(self.plan.outputs, rows.cells, strict=True)
            ]
            if not has_cells[part].all():
                values = [spread(array, has_cells[part]) for array in values]
            yield pa.RecordBatch.from_arrays([*(key.slice(start, _BATCH_ROWS) for key in keys), *values], schema=schema)

    def _merge(self, held: Sequence[Rows]) -> Rows:
        keys = [pa.concat_arrays(list(parts)) for parts in zip(*(rows.keys for rows in held), strict=True)]
        cells = [concatenate(source, parts) for source, *parts in zip(self._sources, *(rows.cells for rows in held), strict=True)]
        flags = [np.ones(len(rows), dtype=bool) if rows.has_cells is None else rows.has_cells for rows in held]
        is_whole = all(rows.has_cells is None for rows in held)
        return self._combine(Rows(keys, cells, [None for _ in cells], None if is_whole else np.concatenate(flags)))

    def _combine(self, rows: Rows) -> Rows:
        """Fold the rows of each key to one; a key none of whose rows has cells keeps none."""
        groups = group_rows(rows.keys)
        codes, has_cells = groups.codes, rows.has_cells
        if has_cells is not None:
            codes = codes[has_cells]
            has_cells = np.zeros(groups.count, dtype=bool)
            has_cells[codes] = True
            codes = (np.cumsum(has_cells) - 1)[codes]
        whose = np.arange(groups.count) if has_cells is None else np.flatnonzero(has_cells)
        if len(whose) == 0:
            return Rows(groups.keys, rows.cells, rows.masks, has_cells)
        with eagerly(), place(self.plan.device):
            if self.known:
                cells = self._by_segments(codes, len(whose), rows.cells)
            else:
                cells = self._by_chunks(
                    codes, rows, [key.take(pa.array(whose)) for key in groups.keys] if rows.has_cells is not None else groups.keys
                )
        return Rows(groups.keys, cells, [None for _ in cells], has_cells)

    def _by_segments(self, codes: np.ndarray, count: int, cells: Cells) -> Cells:
        assert self.known is not None
        segments = to_tensor(codes)
        ports = [self.plan.program.input_ports[position] for (position,) in self.plan.folds]
        tensors = [to_tensor(np.asarray(values), port.type.dtype) for values, port in zip(cells, ports, strict=True)]
        return [to_array(reduce_segments(kind, tensor, segments, count)) for kind, tensor in zip(self.known, tensors, strict=True)]

    def _by_chunks(self, codes: np.ndarray, rows: Rows, keys: Sequence[pa.Array]) -> Cells:
        count = len(keys[0])
        narrow = codes.astype(np.uint16) if count <= 2**16 else codes  # NumPy sorts 16 bits by radix
        order = np.argsort(narrow, kind="stable")
        cells = [take_rows(values, order) for values in rows.cells]
        masks = [None if mask is None else take_rows(mask, order) for mask in rows.masks]
        counts = np.bincount(codes, minlength=count)
        step = 1
        while step == 1 or counts.max(initial=0) > 1:
            cells, counts = self._round(cells, masks, counts, step, keys)
            masks = [None for _ in cells]
            step += 1
        return cells

    def _round(self, cells: Cells, masks: Masks, counts: np.ndarray, step: int, keys: Sequence[pa.Array]) -> tuple[Cells, np.ndarray]:
        """Fold each group's rows, which lie side by side, chunk by chunk; returns the folded rows and how many each group has."""
        starts = np.cumsum(counts) - counts
        full, rest = counts // CHUNK, counts % CHUNK
        left = full + (rest > 0)
        places = np.cumsum(left) - left  # where each group's folded rows begin
        parts: list[tuple[np.ndarray, Cells]] = []
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
            if size == 1 and step > 1:
                done = [take_rows(values, begins) for values in cells]
            else:
                given = {
                    position: [None if part is None else take_chunks(part, rows) for part in pair]
                    for (position,), *pair in zip(self.plan.folds, cells, masks, strict=True)
                }
                done = call_program(self.plan, feeds_of(self.plan, given), groups, lambda group: self._rows_of(keys, group))
                for source, column, held, values in zip(self._sources, self.plan.outputs, done, cells, strict=True):
                    check_shape(source, column.name, held, values, step)
            parts.append((ends, done))
        order = np.concatenate([ends for ends, _ in parts])
        done_by_output = zip(*(done for _, done in parts), strict=True)
        return [_placed(source, blocks, order) for source, blocks in zip(self._sources, done_by_output, strict=True)], left

    def _rows_of(self, keys: Sequence[pa.Array], group: int) -> str:
        """Return how messages call some rows of a key."""
        held = (f"{column.name} = {key[group].as_py()!r}" for column, key in zip(self.keys, keys, strict=True))
        return f"rows of the key {', '.join(held)}"


def _placed(source: ColumnInput, blocks: Sequence[Block], order: np.ndarray) -> Block:
    """Join the rows of some blocks, each row at its place."""
    dense = [block for block in blocks if isinstance(block, np.ndarray)]
    if len(dense) < len(blocks) or source.pad is not None:
        return take_rows(concatenate(source, blocks), np.argsort(order))
    placed = np.empty((len(order), *dense[0].shape[1:]), dense[0].dtype)
    start = 0
    for block in dense:
        placed[order[start : start + len(block)]] = block
        start += len(block)
    return placed


def run_combine(plan: Plan, keys: Sequence[Column], known: tuple[str, ...] | None) -> tuple[Combine, Combine]:
    """Return the function that combines rows where they are, and the one that combines what it gave, brought together by key."""
    first = Combine(plan, tuple(keys), known)
    return first, replace(first, plan=refold(Fold(plan)).plan, is_last=True)
