"""Nested lists taken apart: for each level the length and the validity of every list, then the elements, end to end.

What the decoders of nulls and of ragged cells read. Slices, null lists over any range of children, and fixed-size lists are all one here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tensorframes.blocks.dense import unwrap_list
from tensorframes.blocks.scalars import Numbers
from tensorframes.blocks.vectors import as_lists
from tensorframes.columns import split_lists, vector_rank


@dataclass(frozen=True, slots=True)
class Level:
    """The lists of one level, end to end.

    Attributes:
        lengths: the length of each list, 0 for a null.
        valid: which of them are no null; None: all.
    """

    lengths: np.ndarray
    valid: np.ndarray | None


def plain(array: pa.Array, column: str, numbers: Numbers = None) -> pa.Array:
    """Return cells as lists of scalars that Arrow can gather: vectors and matrices of Spark ML unpacked, views of text copied."""
    if vector_rank(array.type) is not None:
        return as_lists(array, column, numbers)
    return plain_leaves(without_views(array))


def plain_leaves(array: pa.Array) -> pa.Array:
    """Return an array with a validity bitmap that tells all nulls: a dictionary may hold one that the indices do not show."""
    if not pa.types.is_dictionary(array.type):
        return array
    return array.dictionary_decode() if array.dictionary.null_count or pa.types.is_decimal(array.type.value_type) else array


def without_views(array: pa.Array) -> pa.Array:
    """Return an array whose text and bytes are no views, which Arrow cannot gather."""
    leaf, _ = split_lists(array.type)
    is_view = pa.types.is_string_view(leaf) or pa.types.is_binary_view(leaf)
    return array.cast(_without_views(array.type)) if is_view else array


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_without_views(kind.value_type), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(_without_views(kind.value_type))
    return pa.list_(_without_views(kind.value_type)) if pa.types.is_list(kind) else kind


def unnest(array: pa.Array) -> tuple[Level, pa.Array]:
    """Take one list level off; the elements of null lists are left out."""
    lengths, children = unwrap_list(array)
    if isinstance(lengths, int):
        lengths = np.full(len(array), lengths, dtype=np.int64)
    if not array.null_count:
        return Level(lengths, None), plain_leaves(children)
    valid = is_valid(array)
    if (lengths[~valid] > 0).any():
        children = children.filter(pa.array(np.repeat(valid, lengths)))
    return Level(np.where(valid, lengths, 0), valid), plain_leaves(children)


def is_valid(array: pa.Array) -> np.ndarray:
    """Return which cells are no null."""
    valid: np.ndarray = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def has_nulls(array: pa.Array, rank: int) -> bool:
    """Tell whether there is a null among the cells or so many levels inside them; looks at counts only."""
    for _ in range(rank):
        if array.null_count:
            return True
        _, array = unwrap_list(array)
    return bool(plain_leaves(array).null_count)


def has_null_lists(array: pa.Array, rank: int) -> bool:
    """Tell whether a list of one of so many levels is null."""
    return rank > 0 and (array.null_count > 0 or has_null_lists(unwrap_list(array)[1], rank - 1))


def rows_without_null(array: pa.Array, rank: int) -> np.ndarray:
    """Return which rows hold no null, as a cell or inside one."""
    shown = np.ones(len(array), dtype=bool)
    row_of = np.arange(len(array))
    for depth in range(rank + 1):
        if array.null_count:
            shown[row_of[~is_valid(array)]] = False
        if depth < rank:
            level, array = unnest(array)
            row_of = np.repeat(row_of, level.lengths)
    return shown
