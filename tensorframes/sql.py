"""SQL: programs as functions of columns, in DataFrame expressions and in ``spark.sql``.

Knows Spark and the verbs' rooms. The one law: a function of columns is `map_blocks` without the frame; all rules are those of its plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (its name in Spark's own documentation)

from tensorframes.capture import as_program
from tensorframes.columns import Column, Schema, TensorType, column_from_field, list_type
from tensorframes.dtypes import BY_NAME, stored_dtype
from tensorframes.errors import DTypeError, ProgramError, ShapeError, raised_by, verb
from tensorframes.feeds import Constant, Feed, Mask
from tensorframes.frames.spark import column_ddl, column_udf
from tensorframes.matching import named_sources
from tensorframes.plan import Plan, plan_map
from tensorframes.programs import Program
from tensorframes.runner import run_blocks
from tensorframes.shapes import Shape


@verb
def udf(fetches: Any, *, feed_dict: Any = None, device: str = "auto") -> ColumnFunction:
    """Make a function of Spark columns from a program on blocks: ``df.select(score("x", "y"))``.

    By shape: inputs ``x: float64[?]``, ``v: float32[?, 100]`` are two columns, a double and an array of floats; one output is a column of
    its type, several are a struct of columns. It computes what `map_blocks` computes, block by block in the workers, and once for each row,
    so that it cannot stand inside an aggregate: select it first, ``df.select(score("x").alias("s")).agg(F.avg("s"))``.

    Args:
        fetches: as for `map_blocks`. There is no frame, so that inputs must declare their types: a model, a signature, a `Program` made by
            ``tfs.program(f, frame=df)``, or a function whose parameters are annotated by ``tf.TensorSpec``.
        feed_dict: what feeds an input: a name for the parameter, ``{"x": "age"}``, options, ``{"x": tfs.feed("age", nulls="skip")}``, or a
            constant. Inputs left out are parameters of their own names.
        device: "auto", "cpu" or "gpu".

    Returns:
        A function that takes columns or their names, by position or by parameter, and gives a column.

    Raises:
        ProgramError: the fetches are no program, or an input has no type.
        DTypeError: a column cannot be what an input or an output is.
        ShapeError: an input or output has no row dimension.

    Example:
        >>> import tensorflow as tf, tensorframes as tfs
        >>> def ratio(x: tf.TensorSpec([None], tf.float64), y: tf.TensorSpec([None], tf.float64)):
        ...     return x / y
        >>> tfs.udf(ratio)
        ratio(x: double, y: double) -> double
    """
    program = as_program(fetches, None, feed_dict)
    given = named_sources(list(program.inputs), feed_dict)
    columns: dict[str, Column] = {}
    for name, kind in program.inputs.items():
        source = given.get(name)
        masked = given.get(name.removesuffix("_mask"))
        if isinstance(source, Constant | Mask) or (source is None and isinstance(masked, Feed) and masked.nulls == "mask"):
            continue
        parameter = name if source is None else source.column
        columns.setdefault(parameter, _parameter(parameter, name, kind, source))
    function = ColumnFunction(program, tuple(columns.values()), given, device)
    function.plan(columns.values())
    return function


@verb
def register_udf(spark: SparkSession, name: str, fetches: Any, *, feed_dict: Any = None, device: str = "auto") -> ColumnFunction:
    """Make a program a function of SQL: ``SELECT score(x, y) FROM t``.

    A temporary SQL function of that name in the session, whose parameters are those of `udf`, with their types: SQL casts what it is given
    (decimal literals, an int for a double), and refuses a wrong number of arguments, and what it cannot cast, when the query is analysed.
    As any function of SQL it may stand inside aggregates and the conditions of joins, and Spark may compute it more than once for a row, as
    for a filter on its result; not if the program draws random numbers.

    Args:
        spark: the session, classic or Connect.
        name: the function's name in SQL; one that it had before is replaced.
        fetches: as for `udf`.
        feed_dict: as for `udf`.
        device: as for `udf`.

    Returns:
        The function of columns, as `udf` gives it.

    Raises:
        TensorFramesError: as `udf`.

    Example:
        >>> import tensorflow as tf, tensorframes as tfs
        >>> from pyspark.sql import SparkSession
        >>> spark = SparkSession.builder.getOrCreate()
        >>> def ratio(x: tf.TensorSpec([None], tf.float64), y: tf.TensorSpec([None], tf.float64)):
        ...     return x / y
        >>> tfs.register_udf(spark, "ratio", ratio)
        ratio(x: double, y: double) -> double
        >>> spark.sql("SELECT ratio(1, 2.5) AS z").first()
        Row(z=0.4)
    """
    function: ColumnFunction = udf(fetches, feed_dict=feed_dict, device=device)
    inner = f"_tensorframes_{name}"
    spark.udf.register(inner, function.column_udf(spark, may_be_repeated=function.program.is_deterministic))
    parameters = [f"{_quoted(column.name)} {column_ddl(column)}" for column in function.parameters]
    arguments = ", ".join(_quoted(column.name) for column in function.parameters)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY FUNCTION {_quoted(name)}({', '.join(parameters)}) RETURNS {function.returns} "
        f"RETURN {_quoted(inner)}({arguments})"
    )
    return function


@dataclass(frozen=True, slots=True)
class ColumnFunction:
    """A program as a function of Spark columns.

    Attributes:
        program: what it computes.
        parameters: the columns that it takes, in order.
        sources: input → what feeds it.
        device: "auto", "cpu" or "gpu".
    """

    program: Program
    parameters: tuple[Column, ...]
    sources: Mapping[str, Any]
    device: str

    def __call__(self, *columns: SparkColumn | str, **named: SparkColumn | str) -> SparkColumn:
        """Return the column that the function gives for these columns, or columns of these names.

        Raises:
            ProgramError: there are more or fewer than it takes, or one of another name.
        """
        names = [column.name for column in self.parameters]
        given = dict(zip(names, columns, strict=False)) | named
        if len(columns) + len(named) != len(names) or given.keys() != set(names):
            held = ", ".join([*(["…"] * len(columns)), *named])
            raise ProgramError(f"{self} is called as ({held}).", hint=f"It takes {len(names)} columns: {', '.join(names)}.", verb="udf")
        # What is meant as another type is widened by Spark's own rules, or refused when the query is analysed.
        typed = [F.coalesce(_as_column(given[column.name]), F.lit(None).cast(column_ddl(column))) for column in self.parameters]
        result: SparkColumn = self.column_udf(SparkSession.active())(*typed)
        return result.alias(self._name)

    def column_udf(self, session: SparkSession, *, may_be_repeated: bool = False) -> Any:
        """Return Spark's own kind of function; `may_be_repeated` as `frames.spark.column_udf` says."""
        plan = self.plan(self.parameters)
        outputs = {column.name: column for column in plan.outputs}
        return column_udf(Planned(self), outputs, len(self.parameters), session, may_be_repeated=may_be_repeated)

    def plan(self, columns: Iterable[Column]) -> Plan:
        """Decide the map over columns that are given for the parameters.

        Raises:
            TensorFramesError: they do not fit.
        """
        schema = Schema(tuple(columns), on_spark=True)
        return plan_map("udf", self.program, schema, self.sources, keep_inputs=False, keep_rows=True, device=self.device)

    @property
    def returns(self) -> str:
        """SQL's text of the type that it gives."""
        outputs = self.plan(self.parameters).outputs
        if len(outputs) == 1:
            return column_ddl(outputs[0])
        return f"struct<{', '.join(f'{_quoted(column.name)}: {column_ddl(column)}' for column in outputs)}>"

    @property
    def _name(self) -> str:
        return next(iter(self.program.outputs)) if len(self.program.outputs) == 1 else "tensorframes"

    def __str__(self) -> str:
        """Print as ``ratio(x: double, y: double) -> double``."""
        return repr(self)

    def __repr__(self) -> str:
        """Print as ``ratio(x: double, y: double) -> double``."""
        parameters = ", ".join(f"{column.name}: {column_ddl(column)}" for column in self.parameters)
        return f"{self._name}({parameters}) -> {self.returns}"


@dataclass(frozen=True, slots=True)
class Planned:
    """The function in the worker, where the types of what it is called with are known.

    Attributes:
        function: what is called.
    """

    function: ColumnFunction

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Plan for the types of the first batch, which all have, and run."""
        waiting = iter(batches)
        first = next(waiting, None)
        if first is None:
            return
        names = [column.name for column in self.function.parameters]
        fields = [pa.field(name, column.type) for name, column in zip(names, first.columns, strict=True)]
        with raised_by("udf"):
            plan = self.function.plan(map(column_from_field, fields))
        places = [names.index(path[0]) for path in plan.reads]
        yield from run_blocks(plan)(batch.select(places) for batch in itertools.chain([first], waiting))


def _parameter(parameter: str, name: str, kind: TensorType, source: Feed | None) -> Column:
    """Return the column that an input is meant to be fed with."""
    wanted = kind.dtype if source is None or source.dtype is None else source.dtype
    dtype = stored_dtype(wanted, on_spark=True)
    if dtype is None or kind.is_sparse:
        raise DTypeError(f"input {name!r} is {kind}, which no column of Spark's holds.")
    if kind.shape is None or not len(kind.shape):
        raise ShapeError(
            f"input {name!r} is {kind}, without a row dimension.",
            hint="A function of columns computes blocks: declare [None, …].",
        )
    cell = Shape(kind.shape[1:])
    return Column(parameter, list_type(BY_NAME[dtype].arrow, len(cell)), True, dtype, cell)


def _as_column(column: SparkColumn | str) -> SparkColumn:
    return F.col(column) if isinstance(column, str) else column


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
