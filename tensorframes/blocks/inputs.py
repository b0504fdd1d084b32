"""Inputs: a column's Arrow array → the block that feeds an input, in the form that its feed asks for.

The one place where the forms (dense, ragged, sparse; cells of different shapes) meet; each has a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tensorframes.blocks.cells import Cells, decode_cells
from tensorframes.blocks.nested import has_null_lists, has_nulls, is_valid, plain, rows_without_null, unnest, without_views
from tensorframes.blocks.nulls import decode_filled
from tensorframes.blocks.ragged import Ragged, concatenate_ragged, decode_block, decode_ragged
from tensorframes.blocks.scalars import decode_values, even_rows, take_aligned
from tensorframes.blocks.vectors import as_coordinates
from tensorframes.columns import list_type, split_lists, vector_rank
from tensorframes.errors import NullError, ShapeError
from tensorframes.feeds import ColumnInput


@dataclass(frozen=True, slots=True)
class Sparse:
    """Rows of which only some entries are stored.

    Attributes:
        indices: row and place of each entry, ``int64[entries, 1 + rank]``, in row-major order.
        values: the entries.
        shape: the block's shape.
    """

    indices: np.ndarray
    values: np.ndarray
    shape: tuple[int, ...]

    def __len__(self) -> int:
        """Count the rows."""
        return self.shape[0]

    def take(self, rows: np.ndarray) -> Sparse:
        """Gather rows, in any order."""
        begins = np.searchsorted(self.indices[:, 0], rows, side="left")
        lengths = np.searchsorted(self.indices[:, 0], rows, side="right") - begins
        where = np.arange(lengths.sum()) + np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
        indices = self.indices[where]
        indices[:, 0] = np.repeat(np.arange(len(rows)), lengths)
        return Sparse(indices, take_aligned(self.values, where), (len(rows), *self.shape[1:]))


Block = np.ndarray | Ragged | Sparse
"""Rows of an input or an output, in any form."""


def take_rows(block: Block, rows: np.ndarray) -> Block:
    """Gather rows of a block, in any order."""
    return take_aligned(block, rows) if isinstance(block, np.ndarray) else block.take(rows)


def map_values(block: Block, function: Callable[[np.ndarray], np.ndarray]) -> Block:
    """Return a block with other values in the same places."""
    return function(block) if isinstance(block, np.ndarray) else replace(block, values=function(block.values))


def as_column(array: pa.Array, source: ColumnInput, arrow: pa.DataType) -> pa.Array:
    """Return cells, nulls and all, in the type of the column that is folded from them; their values are known to fit."""
    array = plain(array, source.column)
    leaf, shape = split_lists(array.type)
    if pa.types.is_timestamp(leaf):
        array = array.cast(list_type(pa.timestamp("us", leaf.tz), len(shape)))
    return array.cast(arrow, safe=False)


def block_bytes(block: Block) -> int:
    """Return the bytes of a block's values."""
    return block.nbytes if isinstance(block, np.ndarray) else block.values.nbytes


def filter_rows(block: pa.RecordBatch, is_shown: np.ndarray) -> pa.RecordBatch:
    """Return the rows of a batch that are shown to a program."""
    columns = [without_views(column) for column in block.columns]
    return pa.RecordBatch.from_arrays(columns, block.schema.names).filter(pa.array(is_shown))


def take_chunks(block: Block, rows: np.ndarray) -> Block:
    """Gather chunks of rows, ``[chunks, size]``, as a block whose rows are chunks."""
    if isinstance(block, np.ndarray):
        return take_aligned(block, rows)
    assert isinstance(block, Ragged)
    taken = block.take(rows.reshape(-1))
    return Ragged(taken.values, (np.arange(len(rows) + 1) * rows.shape[1], *taken.splits))


def shown_rows(block: pa.RecordBatch, sources: Sequence[ColumnInput]) -> np.ndarray | None:
    """Return which rows of a batch are shown to a program of which these inputs skip nulls; None: all."""
    columns = [(block.column(source.read), source) for source in sources]
    arrays = [
        (array, 0) if vector_rank(array.type) is not None else (plain(array, source.column), len(source.cell_shape))
        for array, source in columns
    ]
    if not any(has_nulls(array, rank) for array, rank in arrays):
        return None
    is_shown: np.ndarray = np.logical_and.reduce([rows_without_null(array, rank) for array, rank in arrays])
    return is_shown


def decode_input(array: pa.Array, source: ColumnInput, rows: np.ndarray | None = None) -> tuple[Block, Block]:
    """Turn a column's cells into the block that feeds an input.

    Args:
        array: the cells.
        source: what the input wants.
        rows: the rows' numbers in their block, for messages; None: all rows, in order.

    Returns:
        The block, and where a value was present, in the same form (of a sparse block: nothing).

    Raises:
        NullError: there is a null and nothing stands for it.
        ShapeError: a cell does not have the shape that is wanted.
        DTypeError: a value does not fit.
    """
    if source.is_sparse:
        sparse = _decode_sparse(array, source, rows)
        return sparse, sparse
    array = plain(array, source.column, rows)
    return decode_ragged(array, source, rows) if source.ragged_rank else decode_block(array, source, rows)


def decode_uneven(array: pa.Array, source: ColumnInput, rows: np.ndarray | None = None) -> tuple[Cells, Cells]:
    """Turn cells that may differ in shape into cells, and where a value was present.

    Raises:
        NullError: there is a null and nothing stands for it, or a null array where the others differ in shape.
        ShapeError: a cell is not rectangular, or not of the known shape.
        DTypeError: a value does not fit.
    """
    array, rank = plain(array, source.column, rows), len(source.cell_shape)
    if source.is_ragged:
        level, elements = unnest(array)
        if level.valid is not None and source.fill is not None:
            array = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(level.lengths)]), pa.int32()), elements)
    if source.fill is None or not has_null_lists(array, rank):
        return decode_cells(array, source, rows)
    try:
        values, is_present = decode_filled(array, source, rows)
    except ShapeError as error:
        raise NullError(
            f"column {source.column!r} holds nulls beside cells of different shapes, so that nothing tells the shape of a null: "
            f"{error.summary}",
            hint="Pass pad= to tfs.feed, or feed the column with ragged=True.",
        ) from error
    return _as_cells(values), _as_cells(is_present)


def _as_cells(values: np.ndarray) -> Cells:
    rows, shape = len(values), values.shape[1:]
    size = int(np.prod(shape))
    return Cells(values.reshape(-1), np.tile(np.array(shape, dtype=np.int64), (rows, 1)), np.arange(rows) * size)


def as_sparse(values: np.ndarray) -> Sparse:
    """Return the entries of a dense block that are not 0."""
    places = np.nonzero(values)
    return Sparse(np.stack(places, axis=1), values[places], values.shape)


def _decode_sparse(array: pa.Array, source: ColumnInput, rows: np.ndarray | None) -> Sparse:
    rank = len(source.cell_shape)
    if vector_rank(array.type) is None or (array.null_count and source.fill != 0):
        return as_sparse(decode_block(plain(array, source.column, rows), source, rows)[0])
    found = as_coordinates(array, source.column, rows)
    valid = is_valid(array)  # a null is a row without entries
    shape = []
    for level, wanted in enumerate(source.cell_shape):
        sizes = found.shapes[:, level]
        size = wanted if wanted is not None else int(sizes[valid][0]) if valid.any() else 0
        differs = valid & (sizes != size)
        if differs.any():
            row = int(np.argmax(differs))
            raise ShapeError(
                f"column {source.column!r} wants {size} elements at level {level + 1} but row {row if rows is None else int(rows[row])} of "
                f"the block holds {sizes[row]}."
            )
        shape.append(size)
    row_of = even_rows(1, rows)
    values = decode_values(pa.array(found.values), source, lambda entry: row_of(int(found.rows[entry])))
    assert found.places.shape[1] == rank
    return Sparse(np.column_stack([found.rows, found.places]), values, (len(array), *shape))


def concatenate_blocks(parts: Sequence[Block]) -> Block:
    """Put the rows of dense or ragged blocks, of equal cells, one after the other."""
    if isinstance(parts[0], Ragged):
        return concatenate_ragged([part for part in parts if isinstance(part, Ragged)])
    return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])
