"""Rebatch: where blocks begin and end.

Blocks never span partitions. Without a wish, batches are taken as they come and only cut where they are too large for one call;
with one, they are cut and joined to exactly that many rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tensorframes.columns import is_list

BLOCK_BYTES = 16 * 2**20
JOIN_BYTES = 2**20
"""A call costs about as much as the work on some ten kilobytes: smaller batches are joined to about this many bytes."""
_ROW_STEP = 64  # slices of aligned buffers at multiples of 64 rows stay aligned, whatever the item's size


def rebatch(batches: Iterable[pa.RecordBatch], block_rows: int | None = None) -> Iterator[pa.RecordBatch]:
    """Cut and join batches to blocks; empty ones are dropped.

    Args:
        batches: consecutive batches of one partition.
        block_rows: rows of each block but the last; None: at most about 16 MiB a block.

    Yields:
        The blocks, sharing the batches' memory unless rows of several had to be joined.
    """
    if block_rows is not None:
        yield from _join_rows(batches, block_rows)
        return
    for batch in batches:
        yield from _cut(batch, _rows_within(batch, BLOCK_BYTES))


def join_small(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches that follow each other to about 1 MiB; large ones are passed on as they are."""
    waiting: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        size = batch.nbytes
        if waiting and held + size > JOIN_BYTES:
            yield _concat(waiting)
            waiting, held = [], 0
        if batch.num_rows:
            waiting.append(batch)
            held += size
    if waiting:
        yield _concat(waiting)


def join_within(batches: Iterable[pa.RecordBatch], rows: int, nbytes: int) -> Iterator[pa.RecordBatch]:
    """Cut and join batches to blocks of so many rows, or fewer where these would be more than so many bytes; empty ones are dropped."""
    waiting: list[pa.RecordBatch] = []
    held_rows = held = 0
    for batch in batches:
        for part in _cut(batch, min(rows, _rows_within(batch, nbytes))):
            if waiting and (held_rows + part.num_rows > rows or held + part.nbytes > nbytes):
                yield _concat(waiting)
                waiting, held_rows, held = [], 0, 0
            waiting.append(part)
            held_rows, held = held_rows + part.num_rows, held + part.nbytes
    if waiting:
        yield _concat(waiting)


def _rows_within(batch: pa.RecordBatch, nbytes: int) -> int:
    per_row = batch.nbytes / max(batch.num_rows, 1)
    rows = int(nbytes / per_row) if per_row else batch.num_rows
    return max(rows // _ROW_STEP * _ROW_STEP, _ROW_STEP)


def _cut(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, rows):
        yield batch if batch.num_rows <= rows else batch.slice(start, rows)


def _join_rows(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    missing = rows
    for batch in batches:
        while batch.num_rows >= missing:
            yield _concat([*waiting, batch.slice(0, missing)])
            batch = batch.slice(missing)
            waiting, missing = [], rows
        if batch.num_rows:
            waiting.append(batch)
            missing -= batch.num_rows
    if waiting:
        yield _concat(waiting)


def _concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    if any(_has_dictionary(field.type) for field in batches[0].schema):
        batches = [_without_dictionaries(batch) for batch in batches]  # together they may have more values than their indices can count
    return pa.concat_batches(batches)


def _without_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [column.cast(_decoded(column.type)) if _has_dictionary(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _has_dictionary(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) or (is_list(kind) and _has_dictionary(kind.value_type))


def _decoded(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return pa.list_(_decoded(kind.value_type)) if is_list(kind) else kind
