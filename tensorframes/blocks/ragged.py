"""Ragged blocks: rows of different lengths, as flat values and row_splits, which are Arrow's offsets.

Decode and encode side by side; neither has a Python loop over rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tensorframes.blocks.dense import decode_dense, encode_dense, null_error
from tensorframes.blocks.nested import has_nulls, unnest
from tensorframes.blocks.nulls import decode_filled
from tensorframes.blocks.scalars import Elements, Numbers, decode_values, even_rows, take_aligned
from tensorframes.columns import split_lists
from tensorframes.errors import ShapeError
from tensorframes.feeds import ColumnInput
from tensorframes.shapes import Shape

_MOST_ELEMENTS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of different lengths.

    Attributes:
        values: the flat values, ``[elements, *uniform inner dimensions]``.
        splits: row_splits of each ragged dimension, outermost first: where each row begins in the next level, and where the last one ends.
    """

    values: np.ndarray
    splits: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.splits[0]) - 1

    def take(self, rows: np.ndarray) -> Ragged:
        """Gather rows, in any order."""
        splits = []
        for split in self.splits:
            lengths = np.diff(split)[rows]
            ends = np.cumsum(lengths)
            splits.append(np.concatenate([[0], ends]))
            rows = np.arange(lengths.sum()) + np.repeat(split[:-1][rows] - (ends - lengths), lengths)
        return Ragged(take_aligned(self.values, rows), tuple(splits))


def concatenate_ragged(parts: Sequence[Ragged]) -> Ragged:
    """Put the rows of several blocks one after the other."""
    splits = []
    for level in zip(*(part.splits for part in parts), strict=True):
        begins = np.cumsum([0, *(split[-1] for split in level)])
        splits.append(np.concatenate([[0], *(split[1:] + begin for split, begin in zip(level, begins, strict=False))]))
    return Ragged(np.concatenate([part.values for part in parts]), tuple(splits))


def decode_ragged(array: pa.Array, source: ColumnInput, rows: np.ndarray | None = None) -> tuple[Ragged, Ragged]:
    """Turn an Arrow array of nested lists into a ragged block.

    Args:
        array: the column's cells, as plain lists.
        source: says how many dimensions are ragged and what stands for a null; a null array is an empty one then.
        rows: the rows' numbers in their block, for messages; None: all rows, in order.

    Returns:
        The block, and where a value was present.

    Raises:
        NullError: there is a null and nothing stands for it.
        ShapeError: lists of a dimension that is not ragged differ in length.
        DTypeError: a value does not fit.
    """
    numbers = np.arange(len(array)) if rows is None else rows
    splits = []
    for depth in range(source.ragged_rank):
        level, array = unnest(array)
        if level.valid is not None and source.fill is None:
            first = int(np.argmin(level.valid))
            count = int((~level.valid).sum())
            raise null_error(count, first, source.column, even_rows(1, Elements(numbers, depth)), depth == 0)
        splits.append(np.concatenate([[0], np.cumsum(level.lengths, dtype=np.int64)]))
        numbers = np.repeat(numbers, level.lengths)
    inner = replace(source, cell_shape=Shape(source.cell_shape[source.ragged_rank :]))
    values, is_present = decode_block(array, inner, Elements(numbers, source.ragged_rank))
    return Ragged(values, tuple(splits)), Ragged(is_present, tuple(splits))


def decode_block(array: pa.Array, source: ColumnInput, numbers: Numbers = None) -> tuple[np.ndarray, np.ndarray]:
    """Turn an Arrow array into a dense block, and where values were present, as `decode_filled` does; sharing memory where it can be."""
    if source.pad is None and (source.fill is None or not has_nulls(array, len(source.cell_shape))):
        values = decode_dense(
            array, source.column, source.cell_shape, lambda leaves, row_of: decode_values(leaves, source, row_of), numbers
        )
        return values, np.broadcast_to(True, values.shape)
    return decode_filled(array, source, numbers)


def encode_ragged(block: Ragged, arrow: pa.DataType, output: str, rows: np.ndarray | None = None) -> pa.Array:
    """Turn a ragged block into an Arrow array of the given type; the inverse of `decode_ragged`.

    Args:
        block: the block.
        arrow: the column's type: lists to the depth of the block's rank.
        output: the output's name, for messages.
        rows: the rows' numbers in their block, for messages; None: all rows, in order.

    Raises:
        ShapeError: more elements than Arrow's 32-bit list offsets can count.
        DTypeError: bytes for a string column that are not UTF-8.
    """
    leaf, inner = split_lists(arrow)
    assert len(inner) == len(block.splits) + block.values.ndim - 1
    if max(math.prod(block.values.shape), *(split[-1] for split in block.splits)) > _MOST_ELEMENTS:
        raise ShapeError(
            f"output {output!r} has {block.values.size} elements in one block, more than an array column's 32-bit offsets can count.",
            hint="Pass a smaller block_rows.",
        )
    numbers = np.arange(len(block)) if rows is None else rows
    for split in block.splits:
        numbers = np.repeat(numbers, np.diff(split))
    kind = leaf
    for _ in range(block.values.ndim - 1):
        kind = pa.list_(kind)
    array = encode_dense(block.values, kind, output, numbers)
    for split in reversed(block.splits):
        array = pa.ListArray.from_arrays(pa.array(split.astype(np.int32)), array)
    return array if array.type == arrow else array.cast(arrow)
