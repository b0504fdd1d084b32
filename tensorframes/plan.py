"""Plans: all that can be decided about a job before there is data.

Program × Schema × feeds → Plan, or the error. Every naming rule and every check that schemas suffice for lives here, once. Touches no
data. The one law: what a plan says, the runner does, without asking again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tensorframes.blobs import as_blob
from tensorframes.blocks.scalars import narrow_values
from tensorframes.columns import AS_ARRAY, MATRIX, VECTOR, VECTOR_NAMES, Column, Schema, TensorType, list_type, split_lists, vector_rank
from tensorframes.device import check_device
from tensorframes.dtypes import BY_NAME, can_cast, is_bytes, stored_dtype
from tensorframes.errors import ColumnError, DTypeError, ProgramError, ShapeError
from tensorframes.feeds import ColumnInput, Constant, Feed, Mask, MaskInput, declared_layout, feed_type, ragged_rank
from tensorframes.matching import resolve_feeds
from tensorframes.programs import Port, Program
from tensorframes.shapes import Shape

_RENAME = "Rename the output by a dict: {{'new_name': fetch}}."
_RENAME_FOLDED = "Give output and input another name, such as '{name}_', and feed the input by feed_dict={{'{name}_': '{name}'}}."
_CAST_HINT = "Cast the column, or feed another one with feed_dict={{{name!r}: …}}."


Input = ColumnInput | MaskInput | Constant


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job does, decided.

    Attributes:
        verb: the public function, for messages.
        program: what is called.
        inputs: one source for each of the program's inputs, in order.
        reads: the columns (or paths into structs) that are read, each once.
        outputs: the columns that come out, in order.
        keep_rows: whether each block must give as many rows as it has.
        block_rows: rows of a block; None: as they come.
        device: "auto", "cpu" or "gpu".
        uneven: of a map over rows whose outputs may differ in shape from row to row: the program that runs rows one by one.
        folds: of a reduce, for each output the positions of the one input (or two) that it is folded from.
    """

    verb: str
    program: Program
    inputs: tuple[Input, ...]
    reads: tuple[tuple[str, ...], ...]
    outputs: tuple[Column, ...]
    keep_rows: bool
    block_rows: int | None
    device: str
    folds: tuple[tuple[int, ...], ...] = ()
    uneven: Program | None = None

    @property
    def constants(self) -> list[str]:
        """Names of the inputs that are the same for every block."""
        return [name for name, source in zip(self.program.inputs, self.inputs, strict=True) if isinstance(source, Constant)]

    @property
    def ragged_folds(self) -> tuple[dict[str, int], dict[str, int]]:
        """Of a reduce of rows or keys, the inputs and the outputs with ragged cells → their ragged rank in the vectorized program."""
        inputs, outputs = {}, {}
        for output, fold in zip(self.program.output_ports, self.folds, strict=True):
            for position in fold:
                source, port = self.inputs[position], self.program.input_ports[position]
                if isinstance(source, ColumnInput) and source.ragged_rank:
                    outputs[output.name] = source.ragged_rank
                    inputs[port.name] = port.type.ragged_rank + 1 if port.type.ragged_rank else source.ragged_rank
        for source in self.inputs:
            if isinstance(source, MaskInput) and self.program.input_ports[source.of].name in inputs:
                inputs[source.name] = inputs[self.program.input_ports[source.of].name]
        return inputs, outputs

    @property
    def skipping(self) -> list[ColumnInput]:
        """The inputs that are not shown rows with a null."""
        return [source for source in self.inputs if isinstance(source, ColumnInput) and source.nulls == "skip"]


def plan_map(
    verb: str,
    program: Program,
    schema: Schema,
    feed_dict: Any,
    *,
    rowwise: bool = False,
    keep_inputs: bool = True,
    keep_rows: bool | None = None,
    block_rows: int | None = None,
    device: str = "auto",
) -> Plan:
    """Decide a map.

    Args:
        verb: the public function.
        program: takes and gives blocks, or rows.
        schema: the frame's columns.
        feed_dict: where inputs come from.
        rowwise: whether the program takes one row.
        keep_inputs: whether the frame's columns stay beside the outputs, which then need other names.
        keep_rows: whether the outputs need as many rows as a block has; None: where the frame's columns stay.
        block_rows: rows of a block.
        device: where to run.

    Raises:
        ColumnError: a column is missing, or an output's name is taken.
        DTypeError: an input's or output's dtype does not fit.
        ShapeError: an input's or output's shape does not fit.
        ProgramError: the program reads no column, or an option is wrong.
    """
    check_block_rows(block_rows)
    check_device(device)
    _check_compiled(program)
    keep_rows = keep_inputs if keep_rows is None else keep_rows
    inputs, reads = _plan_inputs(program, schema, feed_dict, rowwise=rowwise, block_rows=block_rows)
    outputs = tuple(
        _plan_output(
            port,
            program,
            schema,
            rowwise=rowwise,
            fixed_rows=block_rows if keep_rows else None,
            keep_rows=keep_rows,
        )
        for port in program.output_ports
    )
    if any(isinstance(source, ColumnInput) and isinstance(schema[source.column].arrow, pa.FixedShapeTensorType) for source in inputs):
        outputs = tuple(map(_as_tensor_column, outputs))
    _check_names([port.name for port in program.output_ports], schema, keep_inputs)
    return Plan(verb, program, inputs, reads, outputs, keep_rows, block_rows, device)


def plan_reduce(
    verb: str,
    program: Program,
    schema: Schema,
    feed_dict: Any,
    *,
    pairwise: bool = False,
    keys: Sequence[Column] = (),
    block_rows: int | None = None,
    device: str = "auto",
) -> Plan:
    """Decide a reduce.

    Args:
        verb: the public function.
        program: folds a block to a cell, or two cells to one.
        schema: the frame's columns.
        feed_dict: where inputs come from, by the reduce's naming convention.
        pairwise: whether the program takes two cells.
        keys: the key columns that will stand before the outputs.
        block_rows: rows of a block.
        device: where to run.

    Raises:
        ColumnError: a column is missing, or an output has a key's name.
        DTypeError: an input's dtype does not fit, or an output's is not its input's.
        ShapeError: the same of shapes.
        ProgramError: an output without its input, or an input without an output.
    """
    check_block_rows(block_rows)
    check_device(device)
    _check_compiled(program)
    if program.is_compiled and not pairwise and not keys:
        raise _no_rows(program.output_ports[0], _signature(program))
    inputs, reads = _plan_inputs(program, schema, feed_dict, rowwise=pairwise, pairwise=pairwise, is_folded=True, block_rows=None)
    free = [position for position, source in enumerate(inputs) if isinstance(source, ColumnInput)]
    folds = _pair_folds(program, free) if pairwise else _block_folds(program, free)
    for port, fold in zip(program.output_ports, folds, strict=True):
        for position in fold:
            _check_fold(port, program.input_ports[position], pairwise)
        _check_one_column([inputs[position] for position in fold], program)
    outputs = tuple(_folded_column(port, inputs[fold[0]], program, schema) for port, fold in zip(program.output_ports, folds, strict=True))
    taken = Schema(tuple(keys), folds_case=schema.folds_case and bool(keys))
    _check_names([port.name for port in program.output_ports], taken, True, _RENAME_FOLDED)
    return Plan(verb, program, inputs, reads, outputs, False, block_rows, device, folds)


def _plan_inputs(
    program: Program,
    schema: Schema,
    feed_dict: Any,
    *,
    rowwise: bool,
    block_rows: int | None,
    pairwise: bool = False,
    is_folded: bool = False,
) -> tuple[tuple[Input, ...], tuple[tuple[str, ...], ...]]:
    """Match each input to its source; returns them, in order, and the columns that are read."""
    sources = resolve_feeds(list(program.inputs), (), feed_dict, schema)
    reads: dict[tuple[str, ...], int] = {}
    inputs: list[Input] = []
    for port in program.input_ports:
        source = sources[port.name]
        if isinstance(source, Constant):
            inputs.append(fit_constant(port, source))
        elif isinstance(source, Mask):
            inputs.append(MaskInput(port.name, list(program.inputs).index(source.of)))
        else:
            inputs.append(
                _plan_input(
                    port, source, program, schema, reads, rowwise=rowwise, pairwise=pairwise, is_folded=is_folded, block_rows=block_rows
                )
            )
    for port, masking in zip(program.input_ports, inputs, strict=True):
        if isinstance(masking, MaskInput):
            _check_mask(port, program.input_ports[masking.of])
    if not reads:
        raise ProgramError(
            "the program reads no column, so that it has no rows to work on.",
            facts={"inputs": [str(port) for port in program.input_ports], "columns": schema.facts},
        )
    return tuple(inputs), tuple(reads)


def _check_mask(port: Port, of: Port) -> None:
    """Raise unless an input can take the mask of another one."""
    wanted, held = port.type, replace(of.type, dtype="bool")
    fits = wanted.shape is None or held.shape is None or wanted.shape.accepts(held.shape)
    if not fits or (wanted.dtype, wanted.ragged_rank) != ("bool", held.ragged_rank):
        raise DTypeError(f"input {port.name!r} wants {wanted} but the mask of input {of.name!r} is {held}.")


def _block_folds(program: Program, free: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Find for each output ``x`` the input ``x`` or ``x_input``."""
    names = list(program.inputs)
    folds = []
    for output in program.outputs:
        found = [position for position in free if names[position] in (output, f"{output}_input")]
        if not found:
            raise ProgramError(
                f"output {output!r} has no input to be folded from: {output!r} or {output + '_input'!r} is wanted.",
                facts=_signature(program),
                hint=f"Give the function a parameter {output!r} and say what feeds it: feed_dict={{{output!r}: …}}.",
            )
        folds.append((found[0],))
    _check_all_used(free, folds, program)
    return tuple(folds)


def _pair_folds(program: Program, free: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Find for each output ``x`` the inputs ``x_1`` and ``x_2``, or the two inputs that there are."""
    names = list(program.inputs)
    folds = []
    for output in program.outputs:
        pair = [names.index(name) for name in (f"{output}_1", f"{output}_2") if name in names and names.index(name) in free]
        if len(pair) != 2 and len(program.outputs) == 1 and len(free) == 2:
            pair = list(free)
        if len(pair) != 2:
            raise ProgramError(
                f"output {output!r} has no two inputs to be folded from: {output + '_1'!r} and {output + '_2'!r} are wanted.",
                facts=_signature(program),
            )
        folds.append(tuple(pair))
    _check_all_used(free, folds, program)
    return tuple(folds)


def _check_all_used(free: Sequence[int], folds: Sequence[tuple[int, ...]], program: Program) -> None:
    used = {position for fold in folds for position in fold}
    for position in free:
        if position not in used:
            raise ProgramError(
                f"input {program.input_ports[position].name!r} has no output that is folded from it.", facts=_signature(program)
            )


def _check_fold(output: Port, source: Port, pairwise: bool) -> None:
    """Raise unless an output is a cell of its input."""
    wanted, held = source.type, output.type
    cell = wanted.shape if pairwise or wanted.shape is None else Shape(wanted.shape[1:])
    sentence = f"output {output.name!r} is {held} but a cell of its input {source.name!r} is {TensorType(wanted.dtype, cell)}."
    if held.dtype != wanted.dtype:
        raise DTypeError(sentence)
    if cell is not None and held.shape is not None and not cell.accepts(held.shape):
        raise ShapeError(sentence)


def _check_one_column(sources: Sequence[Input], program: Program) -> None:
    """Raise unless the inputs that an output is folded from read one column."""
    left, right = sources[0], sources[-1]
    assert isinstance(left, ColumnInput)
    assert isinstance(right, ColumnInput)
    if left.read != right.read:
        raise ProgramError(
            f"inputs {left.name!r} and {right.name!r} are folded with each other, but are fed by the columns {left.column!r} and "
            f"{right.column!r}.",
            facts=_signature(program),
        )
    if replace(left, name=right.name) != right:
        raise ProgramError(f"inputs {left.name!r} and {right.name!r} are folded with each other, but their feeds differ.")


def _folded_column(port: Port, source: Input, program: Program, schema: Schema) -> Column:
    """Return the column of an output that is folded from a column's cells."""
    assert isinstance(source, ColumnInput)
    shape = source.cell_shape if port.type.shape is None else source.cell_shape.narrow(port.type.shape)
    cell = replace(port, type=TensorType(port.type.dtype, shape))
    if is_bytes(split_lists(schema[source.column].arrow)[0]):
        program = replace(program, binary=program.binary | {port.name})
    return _plan_output(cell, program, schema, rowwise=True, fixed_rows=None, keep_rows=False)


def _signature(program: Program) -> dict[str, list[str]]:
    return {"inputs": [str(port) for port in program.input_ports], "outputs": [str(port) for port in program.output_ports]}


def check_block_rows(block_rows: int | None) -> None:
    """Raise unless `block_rows` is None or a positive integer."""
    if block_rows is not None and (isinstance(block_rows, bool) or not isinstance(block_rows, int | np.integer) or block_rows < 1):
        raise ProgramError(f"block_rows is {block_rows!r}, but a positive integer or None is wanted.")


def fit_constant(port: Port, constant: Constant) -> Constant:
    """Cast a constant to what its input declares; any cast that keeps each value, and those that columns get, are allowed.

    Raises:
        DTypeError: a value does not fit.
        ShapeError: the shape does not fit.
    """
    if port.type.shape is not None and not port.type.shape.accepts(constant.type.shape or ()):
        raise ShapeError(f"input {port.name!r} wants {port.type} but the constant for it is {constant.type}.")
    if port.type.dtype == constant.type.dtype:
        return constant
    refusal = DTypeError(f"input {port.name!r} wants {port.type} but the constant for it is {constant.type}.")
    if "string" in (port.type.dtype, constant.type.dtype) or port.type.dtype not in BY_NAME or isinstance(constant.data, tuple):
        raise refusal
    values = np.frombuffer(constant.data.view(), dtype=BY_NAME[constant.type.dtype].numpy).reshape(constant.type.shape or ())
    with np.errstate(all="ignore"):
        cast = values.astype(BY_NAME[port.type.dtype].numpy)
    exact = values.dtype.kind in "biu" and cast.dtype.kind in "biu" and np.array_equal(cast, values)
    if not exact and not (can_cast(constant.type.dtype, port.type.dtype) and np.array_equal(np.isfinite(cast), np.isfinite(values))):
        raise refusal
    return Constant(TensorType(port.type.dtype, constant.type.shape), as_blob(cast.tobytes()))


def _plan_input(
    port: Port,
    feed: Feed,
    program: Program,
    schema: Schema,
    reads: dict[tuple[str, ...], int],
    *,
    rowwise: bool,
    pairwise: bool,
    is_folded: bool,
    block_rows: int | None,
) -> ColumnInput:
    path, column = schema.resolve(feed.column)
    feed = declared_layout(feed, port.type)
    held = feed_type(port.name, column, feed, rowwise=rowwise)
    assert held.shape is not None
    assert column.cell_shape is not None
    facts = _both_sides(program, schema)
    sentence = f"input {port.name!r} wants {port.type} but column {feed.column!r} holds {held}."
    if port.type.dtype not in BY_NAME or not can_cast(held.dtype, port.type.dtype):
        raise DTypeError(sentence, facts=facts, hint=_CAST_HINT.format(name=port.name))
    if (bool(port.type.ragged_rank), port.type.is_sparse) != (bool(held.ragged_rank), held.is_sparse):
        declared = "ragged" if port.type.ragged_rank else "sparse" if port.type.is_sparse else "dense"
        raise ShapeError(sentence, facts=facts, hint=f"The program declares a {declared} input; leave out what asks for another one.")
    known = column.cell_shape
    if port.type.shape is not None:
        rows = port.type.shape[:1]
        if not port.type.shape.accepts(held.shape):
            raise ShapeError(sentence, facts=facts, hint=_other_verb(port.type.shape, held.shape, rowwise))
        if not rowwise and rows[0] is not None and rows[0] != block_rows:
            raise ShapeError(
                f"input {port.name!r} wants blocks of {rows[0]} rows, but blocks may have any number.",
                facts=facts,
                hint=f"Pass block_rows={rows[0]} if their number divides by {rows[0]} in every partition.",
            )
        known = (held.shape if rowwise else Shape(held.shape[1:])).narrow(port.type.shape if rowwise else port.type.shape[1:])
    if feed.ragged:
        rank = ragged_rank(known)
        known = Shape((*(None for _ in range(rank)), *known[rank:]))
    if vector_rank(column.arrow) == 1 and not port.type.is_sparse:
        path = (*path, AS_ARRAY)
    return ColumnInput(
        port.name,
        feed.column,
        reads.setdefault(path, len(reads)),
        known,
        cast=None if held.dtype == port.type.dtype else port.type.dtype,
        narrowed=feed.dtype if feed.dtype != column.dtype else None,
        nulls=feed.nulls,
        fill=_fitting(port.name, "nulls", _zero(port.type.dtype) if feed.nulls == "mask" else feed.value, port.type.dtype),
        pad=_fitting(port.name, "pad", feed.pad, port.type.dtype),
        is_ragged=feed.ragged,
        knows_nulls=not is_folded or feed.pad is None or None not in known,
        ragged_rank=_ragged_rank(port, feed, known, rowwise=rowwise, pairwise=pairwise),
        is_sparse=port.type.is_sparse,
    )


def _ragged_rank(port: Port, feed: Feed, cell_shape: Shape, *, rowwise: bool, pairwise: bool) -> int:
    """Return how many of a cell's dimensions are ragged in a block; one row of a ragged vector is a dense vector."""
    if pairwise and feed.ragged:
        return ragged_rank(cell_shape)
    return port.type.ragged_rank + (rowwise and port.type.ragged_rank > 0)


def _zero(dtype: str) -> Any:
    return b"" if dtype == "string" else 0


def _fitting(name: str, option: str, value: Any, dtype: str) -> Any:
    """Return what stands for a null or fills cells up, in the input's dtype.

    Raises:
        DTypeError: it does not fit.
    """
    if value is None or (isinstance(value, bytes) and dtype == "string"):
        return value
    policies = "; the policies are 'error', 'skip' and 'mask'" if option == "nulls" and isinstance(value, bytes) else ""
    refusal = DTypeError(f"input {name!r} is {dtype}, of which {option}={value!r} is none{policies}.")
    if isinstance(value, bytes) or dtype == "string" or (isinstance(value, bool) and dtype != "bool"):
        raise refusal
    if isinstance(value, int) and abs(value) >= 2**63 and BY_NAME[dtype].numpy.kind in "fc" and abs(value) < 2**1023:
        value = float(value)
    try:
        _, lost = narrow_values(np.asarray(value), dtype)
    except TypeError as error:
        raise refusal from error
    if lost.any():
        raise refusal
    return value


def _plan_output(port: Port, program: Program, schema: Schema, *, rowwise: bool, fixed_rows: int | None, keep_rows: bool) -> Column:
    facts = {"outputs": [str(output) for output in program.output_ports]}
    dtype = stored_dtype(port.type.dtype, on_spark=schema.on_spark)
    if dtype is None:
        raise DTypeError(
            f"output {port.name!r} is {port.type}, which no column holds.",
            facts=facts,
            hint=_dtype_hint(port.type.dtype),
        )
    shape = port.type.shape
    if shape is None:
        raise ShapeError(
            f"output {port.name!r} has an unknown rank, but a column has one.",
            facts=facts,
            hint="Give it one with tf.ensure_shape.",
        )
    if not rowwise:
        if not shape:
            raise ShapeError(
                f"output {port.name!r} is {port.type}, which has no row dimension.",
                facts=facts,
                hint="reduce_blocks folds a frame to one value; with trim=True an output may have any number of rows, such as [1].",
            )
        if keep_rows and shape[0] is not None and shape[0] != fixed_rows:
            raise ShapeError(
                f"output {port.name!r} is {port.type}: {shape[0]} rows for every block, but one for each of its rows is wanted.",
                facts=facts,
                hint="With trim=True an output may have any number of rows.",
            )
        if program.is_compiled and not keep_rows and shape[0] is not None:
            raise _no_rows(port, facts)
        shape = Shape(shape[1:])
    if port.name in program.vector:
        return _vector_column(port, shape)
    leaf = pa.binary() if port.name in program.binary else BY_NAME[dtype].arrow
    if port.name in program.binary and dtype != "string":
        raise DTypeError(f"binary= names output {port.name!r}, which is {port.type} and no string.", facts=facts)
    return Column(port.name, list_type(leaf, len(shape)), True, dtype, shape)


def _check_compiled(program: Program) -> None:
    """Raise if a program is compiled whose inputs or outputs are not dense: each block would be of another shape, and compiled anew."""
    for kind, ports in (("input", program.input_ports), ("output", program.output_ports)):
        for port in ports:
            if program.is_compiled and (port.type.ragged_rank or port.type.is_sparse):
                raise ProgramError(
                    f"{kind} {port.name!r} of a compiled program is {port.type}, but XLA compiles anew for every shape.",
                    hint="Feed it padded, or make the program without jit_compile.",
                )


def _no_rows(port: Port, facts: dict[str, list[str]]) -> ShapeError:
    return ShapeError(
        f"output {port.name!r} is {port.type}, without a row for each row of the block, but a compiled program is called on padded blocks, "
        "whose last rows are cut off its outputs.",
        facts=facts,
        hint="Make the program without jit_compile.",
    )


def _as_tensor_column(column: Column) -> Column:
    """Return an output's column as one of Arrow's fixed-shape tensors, as what is read is, where its cells are such."""
    leaf, _ = split_lists(column.arrow)
    if not column.cell_shape or None in column.cell_shape or column.dtype in ("string", "bool") or vector_rank(column.arrow):
        return column
    return replace(column, arrow=pa.fixed_shape_tensor(leaf, list(column.cell_shape)))


def _vector_column(port: Port, cell_shape: Shape) -> Column:
    """Return the column of vectors or matrices that an output becomes."""
    if len(cell_shape) not in VECTOR_NAMES or port.type.ragged_rank:
        raise ShapeError(f"vector= names output {port.name!r}, which is {port.type}, but dense cells of one or two dimensions are wanted.")
    number = BY_NAME[port.type.dtype].numpy
    if number.kind not in "iuf" or (number.kind in "iu" and number.itemsize > 4):
        raise DTypeError(f"vector= names output {port.name!r}, which is {port.type}, but numbers that float64 holds are wanted.")
    rank = len(cell_shape)
    return Column(port.name, (VECTOR, MATRIX)[rank - 1], True, "float64", cell_shape, native_type=VECTOR_NAMES[rank])


def _check_names(names: Sequence[str], schema: Schema, keep_inputs: bool, hint: str = _RENAME) -> None:
    for position, name in enumerate(names):
        taken = schema.taken(name) if keep_inputs else None
        if taken is not None:
            raise ColumnError(
                f"output {name!r} has the name of a column.",
                facts={"outputs": list(names), "columns": schema.facts},
                hint=hint.format(name=name),
            )
        earlier = Schema(tuple(Column(other, pa.null()) for other in names[:position]), folds_case=schema.folds_case).taken(name)
        if earlier is not None:
            raise ColumnError(
                f"outputs {earlier!r} and {name!r} would be one column: the session ignores case.",
                facts={"outputs": list(names)},
            )


def _both_sides(program: Program, schema: Schema) -> dict[str, list[str]]:
    return {"inputs": [str(port) for port in program.input_ports], "columns": schema.facts}


def _other_verb(wanted: Shape, held: Shape, rowwise: bool) -> str | None:
    if not rowwise and wanted.accepts(held[1:]):
        return "The program takes one row; map_rows maps it over rows."
    if rowwise and wanted.accepts((None, *held)):
        return "The program takes a block; map_blocks maps it over blocks."
    return None


def _dtype_hint(dtype: str) -> str | None:
    if dtype.startswith("complex"):
        return "Return its tf.math.real and tf.math.imag parts."
    return "Return tf.cast(…, tf.int64) or tf.cast(…, tf.float64) of it." if dtype == "uint64" else None
