"""Spark: classic and Connect ``DataFrame``s.

Only public interfaces that both have: no JVM handle, no SparkContext. Maps that keep the rows are one iterator ``arrow_udf`` over the
columns read, so that unread columns stay in the JVM, nobody's outputs are not computed, and a filter on an output does not compute it
twice. Maps that change the rows are ``mapInArrow``.
"""

from __future__ import annotations

import functools
import gc
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark import TaskContext
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import MatrixUDT, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (its name in Spark's own documentation)
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type

from tensorframes.columns import AS_ARRAY, Column, Schema, column_from_field, metadata_of, split_lists, vector_rank
from tensorframes.dtypes import BY_NAME, is_bytes
from tensorframes.errors import DTypeError, FrameError
from tensorframes.frames.base import AbstractFrame, AbstractGrouped, BlockFunction, Folding, Path, Task, check_key, positional_names
from tensorframes.frames.spark_files import shipped
from tensorframes.settings import Settings, read_settings
from tensorframes.shapes import Shape

_REFOLDING_TASKS = 8


def wrap_spark(native: Any) -> SparkFrame | None:
    """Return the adapter of a Spark DataFrame, or None if it is none."""
    return SparkFrame(native) if isinstance(native, DataFrame) else None


class SparkFrame(AbstractFrame):
    """A ``pyspark.sql.DataFrame``, classic or Connect."""

    def __init__(self, native: DataFrame) -> None:
        """Read the schema; nothing runs."""
        self.native = native
        folds_case = native.sparkSession.conf.get("spark.sql.caseSensitive") != "true"
        self.schema = Schema(tuple(map(_column, native.schema)), on_spark=True, folds_case=folds_case)

    def append(self, reads: Sequence[Path], outputs: Sequence[Column], function: BlockFunction) -> Any:
        """Compute all outputs in one call; several come in one struct, which is then taken apart."""
        names = positional_names(len(outputs))
        call = column_udf(function, dict(zip(names, outputs, strict=True)), len(reads), self.native.sparkSession)(*map(_path_column, reads))
        if len(outputs) == 1:
            return self.native.select("*", call.alias(outputs[0].name, metadata=_metadata(outputs[0])))
        packed = _unused("tensorframes", self.native.columns)
        widened = self.native.select("*", call.alias(packed))
        taken = [
            F.col(packed).getField(name).alias(column.name, metadata=_metadata(column)) for name, column in zip(names, outputs, strict=True)
        ]
        return widened.select("*", *taken).drop(packed)

    def replace(self, reads: Sequence[Path], outputs: Sequence[Column], function: BlockFunction) -> Any:
        """Compute the outputs from the columns read."""
        schema = T.StructType([T.StructField(c.name, _spark_type(c), True, _metadata(c)) for c in outputs])
        return self._read(reads).mapInArrow(self.batch_function(function, schema), schema)

    def with_shapes(self, columns: Sequence[Column]) -> Any:
        """Note the shapes in the columns' metadata; what else it says is kept."""
        known = {column.name: column for column in columns}
        return self.native.select(
            *(
                _path_column((field.name,)).alias(field.name, metadata={**field.metadata, **_metadata(known[field.name])})
                if field.name in known
                else _path_column((field.name,))
                for field in self.native.schema
            )
        )

    def fold(self, reads: Sequence[Path], outputs: Sequence[Column], folding: Folding, refold: Folding | None = None) -> pa.Table:
        """Fold each partition in a worker; large rows are folded again by a few tasks before they come here."""
        self.check_ends()
        schema = T.StructType([T.StructField(column.name, _spark_type(column)) for column in outputs])
        rows = self._read(reads).mapInArrow(self.batch_function(folding, schema), schema)
        if refold is not None:
            rows = rows.repartition(_REFOLDING_TASKS).mapInArrow(self.batch_function(refold, schema), schema)
        return rows.toArrow()

    def gather(self, reads: Sequence[Path], task: Task, rows: int | None = None) -> list[bytes]:
        """Run the task in every partition and collect what each gave."""
        self.check_ends()
        frame = self._read(reads)
        collected = (frame if rows is None else frame.limit(rows)).mapInArrow(_task_function(task), "found binary").collect()
        return [bytes(row.found) for row in collected]

    def batch_function(self, function: Folding, schema: T.StructType) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return the worker function of ``mapInArrow``, which gives batches of the schema."""
        session = self.native.sparkSession
        settings = session_settings(session)
        return _batch_function(shipped(function, session, settings.shipped_bytes), settings, _arrow_types(schema))

    def check_ends(self) -> None:
        """Raise if the frame is a stream, which what needs all rows waits for without end.

        Raises:
            FrameError: it is one.
        """
        if self.native.isStreaming:
            raise FrameError(
                "the frame is a stream, which has no end.",
                hint="Call it on one batch after the other: df.writeStream.foreachBatch(lambda batch, number: …).",
            )

    def _read(self, reads: Sequence[Path]) -> DataFrame:
        names = positional_names(len(reads))
        columns = (_path_column(path).alias(name) for path, name in zip(reads, names, strict=True))
        read: DataFrame = self.native.select(*columns)
        return read


class SparkGrouped(AbstractGrouped):
    """A Spark ``GroupedData``, classic or Connect, by columns or expressions."""

    def __init__(self, native: Any) -> None:
        """Read the keys' names and types; nothing runs."""
        self._frame = SparkFrame(native._df)
        self._frame.check_ends()
        self._fields = native.count().schema.fields[:-1]
        self._expressions = _key_expressions(native)
        self.frame = self._frame
        self.keys = tuple(_check_key(field) for field in self._fields)

    def aggregate(self, reads: Sequence[Path], outputs: Sequence[Column], combine: Folding, again: Folding) -> Any:
        """Combine in each partition, shuffle what that gave by key, combine again."""
        names = [f"_key_{i}" for i in range(len(self._fields))]
        keys = [_one_zero(key, field).alias(name) for key, field, name in zip(self._expressions, self._fields, names, strict=True)]
        fields = [T.StructField(name, field.dataType) for field, name in zip(self._fields, names, strict=True)]
        values = [T.StructField(name, _spark_type(c)) for c, name in zip(outputs, positional_names(len(outputs)), strict=True)]
        schema = T.StructType([*fields, *values])
        read = self._frame.native.select(*keys, *(_path_column(path).alias(f"_{i}") for i, path in enumerate(reads)))
        first = read.mapInArrow(self._frame.batch_function(combine, schema), schema)
        folded = first.repartition(*names).mapInArrow(self._frame.batch_function(again, schema), schema)
        return folded.select(
            *(F.col(name).alias(column.name) for name, column in zip(names, self.keys, strict=True)),
            *(F.col(field.name).alias(column.name, metadata=_metadata(column)) for field, column in zip(values, outputs, strict=True)),
        )


def _check_key(field: T.StructField) -> Column:
    if isinstance(field.dataType, T.StringType) and field.dataType.collation != "UTF8_BINARY":
        raise DTypeError(
            f"key {field.name!r} is of type {field.dataType.simpleString()}, whose values are equal by other rules than bytes are.",
            hint="Group by F.collate(key, 'UTF8_BINARY'), or by what makes equal keys equal, such as F.lower(key).",
        )
    return check_key(_column(field))


def wrap_grouped_spark(native: Any) -> AbstractGrouped | None:
    """Return the adapter of a Spark grouping, or None if it is none."""
    return SparkGrouped(native) if type(native).__name__ == "GroupedData" and hasattr(native, "_df") else None


def _key_expressions(grouped: Any) -> list[Any]:
    """Return the grouping's expressions as columns.

    Raises:
        FrameError: it is a rollup, a cube, grouping sets or a pivot.
    """
    if hasattr(grouped, "_grouping_cols"):  # Connect
        if grouped._group_type != "groupby":
            kind = "".join(map(str.capitalize, grouped._group_type.split("_")))
            raise FrameError(f"a grouping of type {kind} is no groupBy.")
        return list(grouped._grouping_cols)
    text = grouped._jgd.toString()
    if not text.endswith("type: GroupBy]"):
        raise FrameError(f"a grouping of type {text.rpartition('type: ')[2].rstrip(']')} is no groupBy.")
    session = grouped._df.sparkSession
    expressions = grouped._jgd.groupingExprs()
    as_column = session._jvm.org.apache.spark.sql.classic.ExpressionUtils.column
    return [ClassicColumn(as_column(expressions.apply(i))) for i in range(expressions.size())]


def _one_zero(key: Any, field: T.StructField) -> Any:
    """Give -0.0 the hash of 0.0, so that both meet."""
    return key + F.lit(0.0).cast(field.dataType) if isinstance(field.dataType, T.FloatType | T.DoubleType) else key


def session_settings(session: SparkSession) -> Settings:
    """Return what is set in a session.

    Raises:
        ProgramError: it cannot be meant.
    """
    return read_settings(session.conf.getAll.get)  # in one call, each of which takes a while on Connect


def column_udf(
    function: Folding, outputs: Mapping[str, Column], count: int, session: SparkSession, *, may_be_repeated: bool = False
) -> Any:
    """Return a function of columns that computes the outputs in workers, in one call: one as it is, several in a struct.

    Args:
        function: takes batches of the columns, which are named by their places.
        outputs: name → column; the names are those of the struct's fields.
        count: how many columns it takes.
        session: distributes what is large.
        may_be_repeated: whether Spark may compute a call more often than it is written, as it does where a filter stands on a result; a
            function for which it may not cannot stand inside aggregates and the conditions of joins.
    """
    struct = T.StructType([T.StructField(name, _spark_type(column)) for name, column in outputs.items()])
    return struct_udf(function, struct, count, session, may_be_repeated=may_be_repeated)


def struct_udf(function: Folding, struct: T.StructType, count: int, session: SparkSession, *, may_be_repeated: bool = False) -> Any:
    """Return a function of columns as `column_udf` does, whose outputs are of Spark's types."""
    settings = session_settings(session)
    run = _column_function(shipped(function, session, settings.shipped_bytes), settings, _arrow_type(struct), count)
    returned = struct if len(struct) > 1 else struct.fields[0].dataType
    made: Any = arrow_udf(run, returned)  # type: ignore[call-overload]  # knows no structs
    # asNondeterministic keeps Spark from copying the call into a filter or a later projection, which would run it twice.
    return made if may_be_repeated else made.asNondeterministic()


def listed_paths(files: DataFrame) -> list[str]:
    """Return the paths that a file source lists, as its column ``path`` spells them; empty files too, which it does not read."""
    return [re.sub("^file:/+", "file:/", unquote(uri)) for uri in files.inputFiles()]


def column_ddl(column: Column) -> str:
    """Return the SQL text of the type that a column has in Spark."""
    text: str = _spark_type(column).simpleString()
    return text


def _column_function(function: Folding, settings: Settings, struct: pa.StructType, count: int) -> Callable[..., Iterator[pa.Array]]:
    """Return the worker function of an iterator ``arrow_udf``, which gives one column or a struct of several.

    Its annotations tell Spark whether arrays come bare or in tuples.
    """
    wanted = list(struct)
    names = positional_names(count)

    def apply(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        _configure_worker(settings)
        for outputs in function(pa.RecordBatch.from_arrays(list(batch), names) for batch in batches):
            arrays = [array.cast(field.type) for array, field in zip(outputs.columns, wanted, strict=True)]
            yield arrays[0] if len(arrays) == 1 else pa.StructArray.from_arrays(arrays, fields=wanted)

    def apply_one(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return apply((array,) for array in batches)

    return apply_one if count == 1 else apply


def _batch_function(
    function: Folding, settings: Settings, types: Sequence[pa.Field]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _configure_worker(settings)
        for outputs in function(batches):
            arrays = [array.cast(field.type) for array, field in zip(outputs.columns, types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(types))

    return apply


def _configure_worker(settings: Settings) -> None:
    from tensorframes.device import Share, configure_worker  # here, so that the driver loads no TensorFlow for a frame's schema

    task = TaskContext.get()
    assert task is not None
    gpu = task.resources().get("gpu")
    configure_worker(Share(settings.threads or task.cpus(), tuple(gpu.addresses) if gpu else (), settings.gpu_concurrency))
    _set_modules_aside()


@functools.cache
def _set_modules_aside() -> None:
    """Take all objects that this process holds now, TensorFlow's modules above all, out of the garbage collector's sight, once.

    PySpark's daemon collects garbage after every task, and would look at all of them each time, which takes longer than a small task.
    """
    gc.collect()
    gc.freeze()


def _task_function(task: Task) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([task(iter(batches))], type=pa.binary())], names=["found"])

    return apply


def _column(field: T.StructField) -> Column:
    """Read a column; types that Arrow cannot hold, and user-defined ones, mean no tensor."""
    kind = field.dataType.typeName()
    is_vector = isinstance(field.dataType, VectorUDT | MatrixUDT)
    if isinstance(field.dataType, T.UserDefinedType | T.VariantType) and not is_vector:
        return Column(field.name, pa.null(), field.nullable, native_type=kind)
    try:
        arrow = pa.field(field.name, to_arrow_type(field.dataType, timezone="UTC"), field.nullable)
    except Exception:  # PySpark raises its own error for each type it cannot convert, and these are no tensors
        return Column(field.name, pa.null(), field.nullable, native_type=kind)
    column = column_from_field(arrow.with_metadata({"SPARK::metadata::json": json.dumps(field.metadata)}))
    if isinstance(field.dataType, T.DecimalType):
        kind = field.dataType.simpleString()
    if is_vector:
        size = field.metadata.get("ml_attr", {}).get("num_attrs")  # which stages of Spark ML note of the vectors that they make
        is_new = isinstance(field.dataType, VectorUDT) and isinstance(size, int) and column.cell_shape == (None,)
        return column.with_cell_shape(Shape([size])) if is_new else column
    if isinstance(field.dataType, T.StructType):
        fields = tuple(map(_column, field.dataType.fields))
        return Column(field.name, column.arrow, field.nullable, fields=fields, native_type=kind)
    return Column(field.name, column.arrow, field.nullable, column.dtype, column.cell_shape, native_type=kind)


_SPARK_TYPES = {
    "boolean": T.BooleanType(),
    "byte": T.ByteType(),
    "short": T.ShortType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
}


def _spark_type(column: Column) -> T.DataType:
    assert column.dtype is not None
    rank = vector_rank(column.arrow)
    if rank is not None:
        return VectorUDT() if rank == 1 else MatrixUDT()
    leaf, shape = split_lists(column.arrow)
    name = BY_NAME[column.dtype].spark
    assert name is not None
    kind: T.DataType = T.BinaryType() if is_bytes(leaf) else _SPARK_TYPES[name]
    for _ in shape:
        kind = T.ArrayType(kind)
    return kind


def _arrow_types(schema: T.StructType) -> list[pa.Field]:
    return [pa.field(field.name, _arrow_type(field.dataType)) for field in schema]


def _arrow_type(kind: T.DataType) -> pa.DataType:
    return to_arrow_type(kind, timezone="UTC")


def _metadata(column: Column) -> dict[str, Any]:
    if not column.cell_shape:
        return {}
    size = column.cell_shape[0]
    known = {"ml_attr": {"num_attrs": size}} if vector_rank(column.arrow) == 1 and size is not None else {}
    return {**metadata_of(column), **known}


def _path_column(path: Path) -> Any:
    if path[-1] is AS_ARRAY:  # in the JVM, which sends arrays four times as fast as vectors
        vector = _path_column(path[:-1])
        return F.when(vector.isNotNull(), vector_to_array(vector))
    return F.col(".".join("`" + name.replace("`", "``") + "`" for name in path))


def _unused(name: str, taken: Sequence[str]) -> str:
    lowered = {other.lower() for other in taken}
    while name.lower() in lowered:
        name += "_"
    return name
