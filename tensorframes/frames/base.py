"""What every frame offers, and what all local frames share.

An adapter is small: its schema, columns appended to its own, columns in place of its own, shapes noted in its metadata, and a task
run once per partition. Knows columns and Arrow; knows no program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorframes.blocks.groups import can_group, group_rows, normalized
from tensorframes.columns import AS_ARRAY, Column, Schema, field_with_metadata, plain_schema
from tensorframes.errors import DTypeError

Path = tuple[str, ...]
Task = Callable[[Iterator[pa.RecordBatch]], bytes]
Folding = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class BlockFunction(Protocol):
    """A picklable function over the consecutive batches of one partition."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give batches of outputs; how rows are divided into batches is free."""

    def blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Divide batches into the blocks that `run` takes."""

    def run(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """Give the outputs of one block."""


class AbstractFrame(ABC):
    """An adapter around a native frame.

    Attributes:
        native: the frame as the user gave it.
        schema: its columns.
    """

    native: Any
    schema: Schema

    @abstractmethod
    def append(self, reads: Sequence[Path], outputs: Sequence[Column], function: BlockFunction) -> Any:
        """Return the native frame with output columns, computed from the columns read, behind its own."""

    @abstractmethod
    def replace(self, reads: Sequence[Path], outputs: Sequence[Column], function: BlockFunction) -> Any:
        """Return a native frame of the output columns only, which may have any number of rows."""

    @abstractmethod
    def with_shapes(self, columns: Sequence[Column]) -> Any:
        """Return the native frame with the shapes of these columns noted in its metadata."""

    @abstractmethod
    def fold(self, reads: Sequence[Path], outputs: Sequence[Column], folding: Folding, refold: Folding | None = None) -> pa.Table:
        """Fold each partition to at most one row and return these rows, in the order of the partitions.

        Args:
            reads: the columns that `folding` takes.
            outputs: the columns of the rows that it gives.
            folding: folds the batches of a partition.
            refold: folds such rows further; given where rows are so large that not many should come here at once.
        """

    @abstractmethod
    def gather(self, reads: Sequence[Path], task: Task, rows: int | None = None) -> list[bytes]:
        """Run a task over each partition (of the first rows only, if their number is given) and return what each gave."""


class AbstractGrouped(ABC):
    """An adapter around a grouping of a frame's rows.

    Attributes:
        frame: the frame.
        keys: the key columns, as they stand in the result.
    """

    frame: AbstractFrame
    keys: tuple[Column, ...]

    @property
    def grouping(self) -> tuple[Column, ...]:
        """The columns by which rows are grouped while they are folded: the keys, or numbers that stand for them."""
        return self.keys

    @abstractmethod
    def aggregate(self, reads: Sequence[Path], outputs: Sequence[Column], combine: Folding, again: Folding) -> Any:
        """Return a native frame of the keys, then the outputs, one row for each group.

        Args:
            reads: the columns that `combine` takes, after the keys.
            outputs: the columns that it gives, after the keys.
            combine: folds the rows of each key, where they are.
            again: folds the rows that `combine` gave further, brought together by key, to one for each.
        """


class AbstractMemoryFrame(AbstractFrame):
    """A local frame whose columns are in memory."""

    def append(self, reads: Sequence[Path], outputs: Sequence[Column], function: BlockFunction) -> Any:
        """Compute the outputs and append them."""
        return self.append_table(self._compute(reads, outputs, function))

    def replace(self, reads: Sequence[Path], outputs: Sequence[Column], function: BlockFunction) -> Any:
        """Compute the outputs and make a frame of them."""
        return self.from_table(self._compute(reads, outputs, function))

    def fold(self, reads: Sequence[Path], outputs: Sequence[Column], folding: Folding, refold: Folding | None = None) -> pa.Table:
        """Fold the one partition that a local frame is."""
        batches = _as_table([self.column(path) for path in reads]).to_batches()
        return pa.Table.from_batches(folding(batches), plain_schema(outputs))

    def gather(self, reads: Sequence[Path], task: Task, rows: int | None = None) -> list[bytes]:
        """Run the task once: a local frame is one partition."""
        columns = [self.column(path) for path in reads]
        return [task(iter(_as_table(columns).slice(0, rows).to_batches()))]

    @abstractmethod
    def column(self, path: Path) -> pa.ChunkedArray:
        """Return a column, or a struct's field."""

    @abstractmethod
    def append_table(self, outputs: pa.Table) -> Any:
        """Return the native frame with these columns behind its own."""

    @abstractmethod
    def from_table(self, outputs: pa.Table) -> Any:
        """Return a native frame of these columns."""

    def with_keys(self, native: Any, names: Sequence[str], keys: Sequence[Path], rows: np.ndarray) -> Any:
        """Return a native frame whose first columns are these rows of this frame's columns, in the very types that they have here."""
        return native

    def _compute(self, reads: Sequence[Path], outputs: Sequence[Column], function: BlockFunction) -> pa.Table:
        source = _as_table([self.column(path) for path in reads])
        return pa.Table.from_batches(function(source.to_batches()), arrow_schema(outputs)).replace_schema_metadata(None)


def first_rows(keys: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """Return the first row of each group that rows with these keys form, in the order in which a combine gives groups."""
    return group_rows([_one_array(key) for key in keys]).first


def check_key(column: Column) -> Column:
    """Return a key column.

    Raises:
        DTypeError: rows cannot be grouped by its type.
    """
    if not can_group(column.arrow) or pa.types.is_null(column.arrow):
        raise DTypeError(f"key {column.name!r} is of type {column.type_name}, by which rows cannot be grouped.")
    return column


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema of some columns, each with its shape in the metadata where it is an array."""
    fields = plain_schema(columns)
    return pa.schema(
        [field_with_metadata(field, column) if column.cell_shape else field for field, column in zip(fields, columns, strict=True)]
    )


def pick(container: pa.Table | pa.RecordBatch, path: Path) -> Any:
    """Return a column of a table or batch, or a struct's field; a null struct's fields are null."""
    return field_of(container.column(container.schema.get_field_index(path[0])), path)


def field_of(column: Any, path: Path) -> Any:
    """Return the field that a path leads to in a column that it begins with, or the column itself."""
    fields = list(path[1:-1] if path[-1] is AS_ARRAY else path[1:])
    return pc.struct_field(column, fields) if fields else column


def positional_names(count: int) -> list[str]:
    """Return names for columns that are known by their place."""
    return [f"_{i}" for i in range(count)]


def shaped_fields(schema: pa.Schema, columns: Sequence[Column]) -> pa.Schema:
    """Return an Arrow schema with the shapes of some of its columns noted in their metadata."""
    known: Mapping[str, Column] = {column.name: column for column in columns}
    fields = [field_with_metadata(field, known[field.name]) if field.name in known else field for field in schema]
    return pa.schema(fields, schema.metadata)


def _as_table(columns: Sequence[pa.ChunkedArray]) -> pa.Table:
    return pa.table(list(columns), names=positional_names(len(columns)))


def _one_array(key: pa.ChunkedArray) -> pa.Array:
    chunks = [normalized(chunk) for chunk in key.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], key.type)
