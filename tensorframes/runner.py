"""The runner: a Plan → a picklable function over Arrow batches, which runs in the worker.

Knows blocks and programs; decides nothing. The one law: for each block, encode(call(decode(block))).
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import tensorflow as tf

from tensorframes.blocks.cells import Cells, decode_cells
from tensorframes.blocks.dense import decode_dense, encode_dense
from tensorframes.blocks.rebatch import join_small, rebatch
from tensorframes.blocks.scalars import cast_values, even_rows
from tensorframes.columns import Column, plain_schema
from tensorframes.device import place
from tensorframes.dtypes import BY_NAME
from tensorframes.errors import ProgramError, ShapeError, TensorFramesError
from tensorframes.feeds import Constant
from tensorframes.plan import ColumnInput, Plan
from tensorframes.programs import Loaded, load
from tensorframes.tensors import eagerly, to_array, to_tensor

_MOST_CODES = 2**62


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs a plan over batches of the columns that it reads, in the order of its reads; gives batches of its outputs.

    Attributes:
        plan: what to do.
        rowwise: whether rows may differ in shape; rows of one shape are then run together.
    """

    plan: Plan
    rowwise: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run over the consecutive batches of one partition, a block at a time."""
        return map(self.run, self.blocks(join_small(batches) if self._may_join else batches))

    @property
    def _may_join(self) -> bool:
        """Whether small batches may be one block: not where each could have cells of a shape of its own."""
        return self.rowwise or not any(isinstance(source, ColumnInput) and None in source.cell_shape for source in self.plan.inputs)

    def blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Divide batches into the plan's blocks."""
        return rebatch(batches, self.plan.block_rows)

    def run(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """Run over one block of at least one row.

        Raises:
            TensorFramesError: names verb, input, column, row of the block, wanted and held.
        """
        try:
            with eagerly():
                arrays = self._run_rows(block) if self.rowwise else self._run_block(block)
        except TensorFramesError as error:
            error.verb = error.verb or self.plan.verb
            raise
        return pa.RecordBatch.from_arrays(arrays, schema=plain_schema(self.plan.outputs))

    def _run_block(self, block: pa.RecordBatch) -> list[pa.Array]:
        return self._compute([_feed(source, block) for source in self.plan.inputs], np.arange(block.num_rows))

    def _run_rows(self, block: pa.RecordBatch) -> list[pa.Array]:
        cells = [_decode_cells(source, block) for source in self.plan.inputs]
        groups = _rows_by_shape([cell.shapes for cell in cells if isinstance(cell, Cells)], block.num_rows)
        parts = [
            self._compute([_gather(cell, source, rows) for cell, source in zip(cells, self.plan.inputs, strict=True)], rows)
            for rows in groups
        ]
        if len(parts) == 1:
            return parts[0]
        back = np.empty(block.num_rows, dtype=np.int64)
        back[np.concatenate(groups)] = np.arange(block.num_rows)
        order = pa.array(back)
        return [pa.concat_arrays(list(arrays)).take(order) for arrays in zip(*parts, strict=True)]

    def _compute(self, feeds: list[tf.Tensor], rows: np.ndarray) -> list[pa.Array]:
        """Call the program on the given rows of a block and encode what it gives."""
        try:
            outputs = [to_array(tensor) for tensor in call_program(self.plan, feeds, rows)]
        except ProgramError:
            if len(rows) == 1 or not self._rows_may_grow:
                raise
            return self._one_by_one(feeds, rows)
        if self.plan.keep_rows:
            for column, values in zip(self.plan.outputs, outputs, strict=True):
                check_rows(column.name, len(values), len(rows))
        else:
            check_same_rows(self.plan.outputs, outputs)
        numbers = rows if self.plan.keep_rows else None
        return [encode_output(column, values, numbers) for column, values in zip(self.plan.outputs, outputs, strict=True)]

    @property
    def _rows_may_grow(self) -> bool:
        """Whether rows of one shape may give outputs of several, which no one call can hold."""
        return self.rowwise and any(None in (column.cell_shape or ()) for column in self.plan.outputs)

    def _one_by_one(self, feeds: list[tf.Tensor], rows: np.ndarray) -> list[pa.Array]:
        pairs = list(zip(feeds, self.plan.inputs, strict=True))
        parts = [
            self._compute([feed if isinstance(source, Constant) else feed[i : i + 1] for feed, source in pairs], rows[i : i + 1])
            for i in range(len(rows))
        ]
        return [pa.concat_arrays(list(arrays)) for arrays in zip(*parts, strict=True)]


def run_blocks(plan: Plan) -> Runner:
    """Return the function that runs a plan whose program takes blocks."""
    return Runner(plan)


def run_rows(plan: Plan) -> Runner:
    """Return the function that runs a plan whose program takes any number of rows of one shape."""
    return Runner(plan, rowwise=True)


def call_program(
    plan: Plan, feeds: list[tf.Tensor], rows: np.ndarray, named: Callable[[int], str] = "row {} of the block".format
) -> list[tf.Tensor]:
    """Call a plan's program on the given rows of a block.

    Args:
        plan: whose program.
        feeds: its inputs.
        rows: the rows' numbers.
        named: number → how messages call that row.

    Raises:
        ProgramError: an operation fails; names the first row that fails alone, if there is one.
    """
    loaded = load(plan.program)
    with place(plan.device):
        try:
            return loaded(feeds)
        except tf.errors.OpError as error:
            alone = _first_failing(plan, loaded, feeds, len(rows))
            where = f"a block of {len(rows)} rows" if alone is None else named(int(rows[alone]))
            raise ProgramError(
                f"the program failed on {where}: {type(error).__name__}: {reason(error)}",
                facts={"inputs": [_fed(name, source) for name, source in zip(plan.program.inputs, plan.inputs, strict=True)]},
            ) from error


def _first_failing(plan: Plan, loaded: Loaded, feeds: list[tf.Tensor], rows: int) -> int | None:
    """Return the first row on which the program fails even alone, or None where it is not one row's fault."""

    def fails(start: int, stop: int) -> bool:
        pairs = zip(feeds, plan.inputs, strict=True)
        try:
            loaded([feed if isinstance(source, Constant) else feed[start:stop] for feed, source in pairs])
        except tf.errors.OpError:
            return True
        return False

    first = bisect.bisect_left(range(1, rows + 1), True, key=lambda stop: fails(0, stop))
    return first if first < rows and fails(first, first + 1) else None


def constant_tensor(constant: Constant) -> tf.Tensor:
    """Return a constant as a tensor."""
    shape = constant.type.shape
    assert shape is not None
    if isinstance(constant.data, tuple):
        return tf.constant(list(constant.data), dtype=tf.string, shape=shape)
    if constant.type.dtype == "bfloat16":
        return tf.bitcast(to_tensor(np.frombuffer(constant.data, dtype=np.uint16).reshape(shape)), tf.bfloat16)
    return to_tensor(np.frombuffer(constant.data, dtype=BY_NAME[constant.type.dtype].numpy).reshape(shape))


def check_rows(output: str, held: int, wanted: int) -> None:
    """Raise unless an output has a row for each row of the block."""
    if held != wanted:
        raise ShapeError(
            f"output {output!r} has {held} rows but the block has {wanted}.",
            hint="With trim=True an output may have any number of rows.",
        )


def check_same_rows(columns: tuple[Column, ...], outputs: list[np.ndarray]) -> None:
    """Raise unless all outputs of a block have the same number of rows."""
    if len({len(values) for values in outputs}) > 1:
        held = [f"{column.name}: {len(values)}" for column, values in zip(columns, outputs, strict=True)]
        raise ShapeError("the outputs of a block have different numbers of rows.", facts={"rows": held})


def _feed(source: ColumnInput | Constant, block: pa.RecordBatch) -> tf.Tensor:
    return constant_tensor(source) if isinstance(source, Constant) else to_tensor(decode_block(source, block))


def decode_block(source: ColumnInput, block: pa.RecordBatch) -> np.ndarray:
    """Return the dense block that a column feeds, in the dtype that the program wants."""
    values = decode_dense(block.column(source.read), source.column, source.cell_shape)
    if source.cast is None:
        return values
    return cast_values(values, source.cast, source.name, source.column, even_rows(math.prod(values.shape[1:])))


def _decode_cells(source: ColumnInput | Constant, block: pa.RecordBatch) -> Cells | np.ndarray | tf.Tensor:
    """Decode what rows of different shapes are gathered from: cells, a dense block where the shape is known, or a constant."""
    if isinstance(source, Constant):
        return constant_tensor(source)
    if None in source.cell_shape:
        return decode_cells(block.column(source.read), source.column, source.cell_shape, source.cast, source.name)
    return decode_block(source, block)


def _rows_by_shape(shapes: list[np.ndarray], rows: int) -> list[np.ndarray]:
    """Return the rows of each combination of shapes."""
    together = np.hstack(shapes) if shapes else np.empty((rows, 0), dtype=np.int64)
    if (together == together[0]).all():
        return [np.arange(rows)]
    codes = _shape_codes(together)
    order = np.argsort(codes, kind="stable")
    ends = np.flatnonzero(np.diff(codes[order]))
    return np.split(order, ends + 1)


def _shape_codes(shapes: np.ndarray) -> np.ndarray:
    """Return one small number for each row's shape: its dimensions as the digits of one number, where that is small enough."""
    least = shapes.min(axis=0)
    spans = np.ptp(shapes, axis=0).astype(object) + 1
    count = math.prod(spans)
    if count > _MOST_CODES:
        _, which = np.unique(shapes, axis=0, return_inverse=True)
        return which.reshape(-1)
    codes = np.zeros(len(shapes), dtype=np.int64)
    for digits, span in zip((shapes - least).T, spans, strict=True):
        codes = codes * span + digits
    return codes.astype(np.uint16) if count <= 2**16 else codes.astype(np.int64)  # NumPy sorts 16 bits by radix, far faster


def _gather(cells: Cells | np.ndarray | tf.Tensor, source: ColumnInput | Constant, rows: np.ndarray) -> tf.Tensor:
    if isinstance(source, Constant):
        return cells
    if isinstance(cells, Cells):
        whole = len(rows) == len(cells.shapes)
        return to_tensor(cells.values.reshape(len(rows), *cells.shapes[0]) if whole else cells.take(rows))
    return to_tensor(cells if len(rows) == len(cells) else cells[rows])


def encode_output(column: Column, values: np.ndarray, rows: np.ndarray | None) -> pa.Array:
    """Turn an output's block into an Arrow array of its column's type."""
    assert column.dtype is not None
    wanted = BY_NAME[column.dtype].numpy
    return encode_dense(values if values.dtype == wanted else values.astype(wanted), column.arrow, column.name, rows)


def reason(error: tf.errors.OpError) -> str:
    """Return what the failing operation says, without the traceback that there is none of and without generated names."""
    told = [line for line in error.message.splitlines() if line and not line.startswith(_UNTOLD)]
    return re.sub(r"\s*\[(\[\{\{node [^}]*\}\}\]|Op:[^]]*)\]", "", "\n".join(told)).strip()


_UNTOLD = ("Graph execution error:", "Detected at node", "<stack traces unavailable>")


def _fed(name: str, source: ColumnInput | Constant) -> str:
    return f"{name} ← {'constant ' + str(source.type) if isinstance(source, Constant) else 'column ' + repr(source.column)}"
