"""ML: programs as stages of Spark ML's pipelines.

Knows Spark ML and the verbs; knows no blocks, plans or workers. The one law: a stage is `map_blocks` with its arguments as Params; what
it computes is a `Program`, captured when it is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.ml.base import Transformer
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasInputCols, HasOutputCols
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tensorframes.capture import as_program
from tensorframes.columns import Schema
from tensorframes.errors import ColumnError, ProgramError, raised_by
from tensorframes.feeds import Feed
from tensorframes.frames import wrap
from tensorframes.ml.files import StageReader, StageWriter, read_feed
from tensorframes.ops.maps import map_blocks
from tensorframes.programs import Program

_NAME = "TensorTransformer"


def _to_feeds(value: Any) -> dict[str, str | Feed]:
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        feeds = {name: read_feed(source) if isinstance(source, Mapping) else source for name, source in value.items()}
        if all(isinstance(source, str | Feed) for source in feeds.values()):
            return feeds
    raise TypeError(f"Could not convert {value} to dict of strings to columns or feeds")


def _to_rows(value: Any) -> int | None:
    return None if value is None else TypeConverters.toInt(value)


class TensorTransformer(Transformer, HasInputCols, HasOutputCols, MLReadable["TensorTransformer"], MLWritable):
    """A stage of a Spark ML pipeline that runs a program by `map_blocks`.

    By shape: columns ``x: float64[?]``, ``v: float32[?, 100]`` → outputs ``z: float64[?]``, ``w: float32[?, 10]``; outputs that the program
    names in ``vector=`` are vectors, which other stages take.

    Saved, it is Spark's own metadata beside a SavedModel; nothing is pickled. Wherever a Param is set, None means that it is not set.

    Args:
        program: whatever `tensorframes.program` captures without a frame: a model, a path, a `Program`, an annotated function. It is
            captured at once, so that a later change of the model changes nothing.
        inputCols: the columns of the program's inputs, by position. Inputs that get none take the column of their name.
        feedDict: the same by name, input → column, or ``tfs.feed(column, …)`` that says more, instead of `inputCols`.
        outputCols: names for the outputs, in their order; without it they have the program's.
        blockRows: rows of a block; None: as they come.
        device: "auto", "cpu" or "gpu".

    Raises:
        ProgramError: `program` is none, or has an input without a type.
        TypeError: a Param of another type.

    Example:
        >>> import tensorflow as tf, tensorframes as tfs
        >>> from pyspark.sql import SparkSession
        >>> from tensorframes.ml import TensorTransformer
        >>> spark = SparkSession.builder.getOrCreate()
        >>> def double(x: tf.TensorSpec([None], tf.float64)):
        ...     return 2 * x
        >>> stage = TensorTransformer(program=double, inputCols=["id"], outputCols=["twice"])
        >>> stage.transform(spark.range(1, 3)).collect()
        [Row(id=1, twice=2.0), Row(id=2, twice=4.0)]
    """

    feedDict: Param[dict[str, str | Feed]] = Param(
        Params._dummy(), "feedDict", "input -> column or feed, instead of inputCols.", typeConverter=_to_feeds
    )
    blockRows: Param[int | None] = Param(Params._dummy(), "blockRows", "rows of a block; None: as they come.", typeConverter=_to_rows)
    device: Param[str] = Param(
        Params._dummy(), "device", "where the program runs: auto, cpu or gpu.", typeConverter=TypeConverters.toString
    )

    def __init__(
        self,
        *,
        program: Any = None,
        inputCols: list[str] | None = None,
        feedDict: Mapping[str, str | Feed] | None = None,
        outputCols: list[str] | None = None,
        blockRows: int | None = None,
        device: str = "auto",
    ) -> None:
        super().__init__()
        self._program: Program | None = None
        self._setDefault(blockRows=None, device="auto")
        where = None if device == "auto" else device
        self.setParams(program=program, inputCols=inputCols, feedDict=feedDict, outputCols=outputCols, blockRows=blockRows, device=where)

    @property
    def program(self) -> Program | None:
        """What it computes; None before it is set."""
        return self._program

    def setProgram(self, value: Any) -> TensorTransformer:
        """Capture a program.

        Raises:
            ProgramError: it is none, or has an input without a type.
        """
        with raised_by(_NAME):
            self._program = as_program(value, None)
        return self

    def setParams(
        self,
        *,
        program: Any = None,
        inputCols: list[str] | None = None,
        feedDict: Mapping[str, str | Feed] | None = None,
        outputCols: list[str] | None = None,
        blockRows: int | None = None,
        device: str | None = None,
    ) -> TensorTransformer:
        """Set what is given, as the constructor takes it; what is not given stays.

        Raises:
            ProgramError: the program is none, or has an input without a type.
            TypeError: a Param of another type.
        """
        params = {"inputCols": inputCols, "feedDict": feedDict, "outputCols": outputCols, "blockRows": blockRows, "device": device}
        self._set(**{name: value for name, value in params.items() if value is not None})
        return self if program is None else self.setProgram(program)

    def setInputCols(self, value: list[str] | None) -> TensorTransformer:
        """Set the columns of the inputs, by position."""
        return self._set(inputCols=value)

    def setFeedDict(self, value: Mapping[str, str | Feed] | None) -> TensorTransformer:
        """Set the columns of the inputs, or their feeds, by name."""
        return self._set(feedDict=value)

    def setOutputCols(self, value: list[str] | None) -> TensorTransformer:
        """Set the names of the outputs."""
        return self._set(outputCols=value)

    def setBlockRows(self, value: int | None) -> TensorTransformer:
        """Set how many rows a block has."""
        return self._set(blockRows=value)

    def setDevice(self, value: str | None) -> TensorTransformer:
        """Set where the program runs."""
        return self._set(device=value)

    def getFeedDict(self) -> dict[str, str | Feed]:
        """Return the columns of the inputs, or their feeds, by name."""
        return self.getOrDefault(self.feedDict)

    def getBlockRows(self) -> int | None:
        """Return how many rows a block has; None: as they come."""
        return self.getOrDefault(self.blockRows)

    def getDevice(self) -> str:
        """Return where the program runs."""
        return self.getOrDefault(self.device)

    def transformSchema(self, schema: StructType) -> StructType:
        """Return the schema of what `transform` gives for a frame of this schema, by the active session; nothing runs.

        Raises:
            TensorFramesError: as `transform`.
        """
        return self._transform(SparkSession.active().createDataFrame([], schema)).schema

    def write(self) -> StageWriter:
        """Return what saves it."""
        return StageWriter(self)

    @classmethod
    def read(cls) -> StageReader:
        """Return what loads it."""
        return StageReader(cls)

    def _set(self, **kwargs: Any) -> TensorTransformer:
        for name in [name for name, value in kwargs.items() if value is None]:
            self.clear(self.getParam(name))
            del kwargs[name]
        return super()._set(**kwargs)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        with raised_by(_NAME):
            program = self._renamed()
            feeds = self._feeds(program)
            _check_columns(program, feeds, wrap(dataset).schema)
        found: DataFrame = map_blocks(program, dataset, feeds, block_rows=self.getBlockRows(), device=self.getDevice())
        return found

    def _renamed(self) -> Program:
        """Return the program with the outputs' names of the stage."""
        if self._program is None:
            raise ProgramError(f"the stage {self.uid} has no program.", hint="Give it one: setProgram(…).")
        program = self._program
        if not self.isSet(self.outputCols):
            return program
        wanted, held = self.getOutputCols(), list(program.outputs)
        if len(wanted) != len(held):
            raise ProgramError(f"outputCols has {len(wanted)} names for {len(held)} outputs.", facts={"names": wanted, "outputs": held})
        twice = [name for i, name in enumerate(wanted) if name in wanted[:i]]
        if twice:
            raise ProgramError(f"outputCols names {twice[0]!r} more than once.", facts={"names": wanted})
        names = dict(zip(held, wanted, strict=True))
        return replace(
            program,
            output_ports=tuple(replace(port, name=names[port.name]) for port in program.output_ports),
            binary=frozenset(names[name] for name in program.binary),
            vector=frozenset(names[name] for name in program.vector),
        )

    def _feeds(self, program: Program) -> Mapping[str, str | Feed]:
        """Return input → column for the inputs that the stage names columns for."""
        inputs = list(program.inputs)
        if self.isSet(self.inputCols) and self.isSet(self.feedDict):
            raise ProgramError(
                "inputCols and feedDict are both set, but one of them is wanted.", hint="Unset the other: setFeedDict(None)."
            )
        if self.isSet(self.feedDict):
            feeds = self.getFeedDict()
            unknown = [name for name in feeds if name not in inputs]
            if unknown:
                raise ProgramError(f"feedDict feeds an input {unknown[0]!r} that the program does not have.", facts={"inputs": inputs})
            return feeds
        columns = self.getInputCols() if self.isSet(self.inputCols) else []
        if len(columns) > len(inputs):
            raise ProgramError(
                f"inputCols names {len(columns)} columns for {len(inputs)} inputs.", facts={"names": columns, "inputs": inputs}
            )
        return dict(zip(inputs, columns, strict=False))


def _check_columns(program: Program, feeds: Mapping[str, str | Feed], schema: Schema) -> None:
    """Raise unless each input has its column and each output a name of its own."""
    sources = {name: feeds.get(name, name) for name in program.inputs}
    masks = {f"{name}_mask" for name, source in sources.items() if isinstance(source, Feed) and source.nulls == "mask"}
    for name, source in sources.items():
        column = source.column if isinstance(source, Feed) else source
        if schema.find(column) is None and (name in feeds or name not in masks):
            raise ColumnError(
                f"input {name!r} wants a column {column!r}, but the frame has none of that name.",
                facts={"inputs": list(program.inputs), "columns": schema.facts},
                hint=f"Feed it from another column: setInputCols([…]) or setFeedDict({{{name!r}: …}}).",
            )
    for name in program.outputs:
        if schema.taken(name) is not None:
            raise ColumnError(
                f"output {name!r} has the name of a column.",
                facts={"outputs": list(program.outputs), "columns": schema.facts},
                hint="Name the outputs: setOutputCols([…]).",
            )
