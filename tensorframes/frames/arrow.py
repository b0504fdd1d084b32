"""Arrow: tables, record batches, readers, datasets, and whatever exports an Arrow stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from tensorframes.columns import Column, Schema, column_from_field, plain_schema
from tensorframes.errors import FrameError
from tensorframes.frames.base import (
    AbstractFrame,
    AbstractGrouped,
    AbstractMemoryFrame,
    BlockFunction,
    Folding,
    Path,
    Task,
    arrow_schema,
    check_key,
    first_rows,
    pick,
    positional_names,
    shaped_fields,
)


def wrap_arrow(native: Any) -> AbstractFrame | None:
    """Return the adapter of an Arrow object, or None if it is none."""
    if isinstance(native, pa.Table):
        return TableFrame(native)
    if isinstance(native, pa.RecordBatch):
        return RecordBatchFrame(native)
    if isinstance(native, pa.RecordBatchReader):
        return ReaderFrame(native)
    if isinstance(native, ds.Dataset):
        return DatasetFrame(native)
    return None


class TableFrame(AbstractMemoryFrame):
    """A ``pyarrow.Table``."""

    def __init__(self, native: pa.Table) -> None:
        """Read the schema."""
        self.native, self.schema = native, schema_from_arrow(native.schema)

    def column(self, path: Path) -> pa.ChunkedArray:
        """Return a column, sharing its chunks."""
        return pick(self.native, path)

    def append_table(self, outputs: pa.Table) -> Any:
        """Append the columns."""
        table = self.native
        for field, column in zip(outputs.schema, outputs.columns, strict=True):
            table = table.append_column(field, column)
        return table

    def from_table(self, outputs: pa.Table) -> Any:
        """Return the table itself."""
        return outputs

    def with_shapes(self, columns: Sequence[Column]) -> Any:
        """Note the shapes in the fields' metadata."""
        return self.native.cast(shaped_fields(self.native.schema, columns))


class RecordBatchFrame(TableFrame):
    """A ``pyarrow.RecordBatch``."""

    def __init__(self, native: pa.RecordBatch) -> None:
        """Read the schema."""
        self._batch = native
        super().__init__(pa.Table.from_batches([native]))

    def append_table(self, outputs: pa.Table) -> Any:
        """Append the columns, each in one chunk."""
        return _one_batch(super().append_table(outputs))

    def from_table(self, outputs: pa.Table) -> Any:
        """Return the columns, each in one chunk."""
        return _one_batch(outputs)

    def with_shapes(self, columns: Sequence[Column]) -> Any:
        """Note the shapes in the fields' metadata."""
        return self._batch.cast(shaped_fields(self._batch.schema, columns))


class StreamFrame(TableFrame):
    """Any object with ``__arrow_c_stream__``: read into a table."""

    def __init__(self, native: Any) -> None:
        """Read the stream."""
        try:
            table = pa.table(native)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise FrameError(
                f"the Arrow stream of a {type(native).__module__}.{type(native).__qualname__} is no table: {error}."
            ) from error
        super().__init__(table)


class AbstractStreamedFrame(AbstractFrame):
    """A frame that is read a batch at a time; maps of it are readers, in bounded memory."""

    @property
    @abstractmethod
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema."""

    @abstractmethod
    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read batches of at least the named columns."""

    def append(self, reads: Sequence[Path], outputs: Sequence[Column], function: BlockFunction) -> Any:
        """Return a reader of the frame's columns and the outputs."""
        schema = pa.schema([*self.arrow_schema, *arrow_schema(outputs)], self.arrow_schema.metadata)

        def run(block: pa.RecordBatch) -> list[pa.Array]:
            return [*block.columns, *function.run(_select(block, reads)).columns]

        return self._reader(schema, self.arrow_schema.names, function, run)

    def replace(self, reads: Sequence[Path], outputs: Sequence[Column], function: BlockFunction) -> Any:
        """Return a reader of the outputs."""

        def run(block: pa.RecordBatch) -> list[pa.Array]:
            return list(function.run(_select(block, reads)).columns)

        return self._reader(arrow_schema(outputs), [path[0] for path in reads], function, run)

    def fold(self, reads: Sequence[Path], outputs: Sequence[Column], folding: Folding, refold: Folding | None = None) -> pa.Table:
        """Fold the one partition that a local frame is, as it is read."""
        names = [path[0] for path in reads]
        return pa.Table.from_batches(folding(_select(batch, reads) for batch in self.batches(names)), plain_schema(outputs))

    def _reader(
        self,
        schema: pa.Schema,
        names: Sequence[str],
        function: BlockFunction,
        run: Callable[[pa.RecordBatch], list[pa.Array]],
    ) -> pa.RecordBatchReader:
        def generate() -> Iterator[pa.RecordBatch]:
            for block in function.blocks(self.batches(names)):
                yield pa.RecordBatch.from_arrays(run(block), schema=schema)

        return pa.RecordBatchReader.from_batches(schema, generate())


class ReaderFrame(AbstractStreamedFrame):
    """A ``pyarrow.RecordBatchReader``, which can be read once."""

    def __init__(self, native: pa.RecordBatchReader) -> None:
        """Read the schema; no batch is read."""
        self.native, self.schema = native, schema_from_arrow(native.schema)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The reader's schema."""
        return self.native.schema

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read the reader to its end."""
        return iter(self.native)

    def with_shapes(self, columns: Sequence[Column]) -> Any:
        """Return a reader whose fields carry the shapes."""
        schema = shaped_fields(self.native.schema, columns)
        return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in self.native))

    def gather(self, reads: Sequence[Path], task: Task, rows: int | None = None) -> list[bytes]:
        """Refuse: reading it would use it up."""
        raise FrameError(
            "a RecordBatchReader can be read once only, so that a scan would use it up.",
            hint="Read it into a table first.",
        )


class DatasetFrame(AbstractStreamedFrame):
    """A ``pyarrow.dataset.Dataset``."""

    def __init__(self, native: ds.Dataset) -> None:
        """Read the schema."""
        self.native, self.schema = native, schema_from_arrow(native.schema)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The dataset's schema."""
        return self.native.schema

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Scan the named columns, a few batches ahead."""
        batches: Iterator[pa.RecordBatch] = self.native.to_batches(
            columns=list(dict.fromkeys(names)), batch_readahead=2, fragment_readahead=1
        )
        return batches

    def with_shapes(self, columns: Sequence[Column]) -> Any:
        """Return the dataset with a schema that carries the shapes."""
        return self.native.replace_schema(shaped_fields(self.native.schema, columns))

    def gather(self, reads: Sequence[Path], task: Task, rows: int | None = None) -> list[bytes]:
        """Run the task over one scan."""
        names = [path[0] for path in reads]
        found = (_select(batch, reads) for batch in self.batches(names))
        return [task(found if rows is None else _head(found, rows))]


class ArrowGrouped(AbstractGrouped):
    """Columns of a local frame as keys."""

    def __init__(self, frame: AbstractFrame, keys: Sequence[Path], columns: Sequence[Column]) -> None:
        """Keep the frame and the paths to its keys."""
        self.frame, self.keys, self._paths = frame, tuple(map(_with_wide_indices, columns)), tuple(keys)

    def aggregate(self, reads: Sequence[Path], outputs: Sequence[Column], combine: Folding, again: Folding) -> Any:
        """Fold the one partition that a local frame is."""
        rows = self.frame.fold([*self._paths, *reads], [*self.keys, *outputs], lambda batches: again(combine(batches)))
        table = rows.cast(arrow_schema([*self.keys, *outputs]))
        if isinstance(self.frame, AbstractMemoryFrame):
            first = first_rows([self.frame.column(path) for path in self._paths])
            return self.frame.with_keys(self.frame.from_table(table), [column.name for column in self.keys], self._paths, first)
        return table.to_reader()


def _with_wide_indices(key: Column) -> Column:
    """Let a dictionary hold all values of all its chunks."""
    if not pa.types.is_dictionary(key.arrow):
        return key
    return replace(key, arrow=pa.dictionary(pa.int32(), key.arrow.value_type, key.arrow.ordered))


def group_columns(frame: AbstractFrame, by: Sequence[str]) -> AbstractGrouped:
    """Group a local frame by some of its columns, or structs' fields.

    Raises:
        ColumnError: there is no such column.
        DTypeError: rows cannot be grouped by its type.
    """
    found = [frame.schema.resolve(name) for name in by]
    return ArrowGrouped(frame, [path for path, _ in found], [check_key(column) for _, column in found])


def wrap_grouped_arrow(native: Any) -> AbstractGrouped | None:
    """Return the adapter of a ``pyarrow.TableGroupBy``, or None if it is none."""
    if not isinstance(native, pa.TableGroupBy):
        return None
    return group_columns(TableFrame(native._table), [native.keys] if isinstance(native.keys, str) else native.keys)


def schema_from_arrow(schema: pa.Schema) -> Schema:
    """Read the columns of an Arrow schema."""
    return Schema(tuple(map(column_from_field, schema)))


def _select(block: pa.RecordBatch, reads: Sequence[Path]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pick(block, path) for path in reads], positional_names(len(reads)))


def _head(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, rows)
        rows -= batch.num_rows
        if rows <= 0:
            return


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    arrays = [_one_array(column) for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
