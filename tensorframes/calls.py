"""Calls: a program on decoded blocks, as it is or compiled.

Knows programs, blocks and what feeds inputs; no Arrow, no columns. The one law: what goes wrong is told by what the user knows: the row,
the inputs, the operation.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import tensorflow as tf

from tensorframes.blocks.inputs import Block, Sparse, take_rows
from tensorframes.blocks.ragged import Ragged
from tensorframes.device import place
from tensorframes.dtypes import BY_NAME
from tensorframes.errors import ProgramError, ShapeError
from tensorframes.feeds import Constant, MaskInput
from tensorframes.graphdefs import draws, types_in
from tensorframes.plan import Input, Plan
from tensorframes.programs import Loaded, load
from tensorframes.tensors import to_array, to_tensor

Fed = Block | Constant
"""What feeds an input: rows, or a constant."""


def call_program(
    plan: Plan, feeds: Sequence[Fed], rows: np.ndarray, named: Callable[[int], str] = "row {} of the block".format
) -> list[Block]:
    """Call a plan's program on the given rows of a block.

    Args:
        plan: whose program.
        feeds: its inputs.
        rows: the rows' numbers.
        named: number → how messages call that row.

    Raises:
        ProgramError: an operation fails; names the first row that fails alone, if there is one.
    """
    if plan.program.is_compiled:
        return call_compiled(plan, feeds, rows, named)
    return _call(plan, feeds, rows, named)


def call_compiled(plan: Plan, feeds: Sequence[Fed], rows: np.ndarray, named: Callable[[int], str]) -> list[Block]:
    """Call a plan's compiled program on a block that is padded to a size that is compiled once, and cut off what the padding gives.

    The first such block of each program in a process is computed without compiler and padding too.

    Raises:
        ProgramError: a row's output depends on the padding, or XLA cannot compile the program.
        ShapeError: an output has not a row for each of the block.
    """
    size = compiled_rows(len(rows), plan.block_rows)
    outputs = _cut_rows(plan, _call(plan, pad_rows(feeds, len(rows), size), rows, named), len(rows), size)
    program = plan.program
    if size > len(rows) and program.digest not in _COMPARED:
        if not draws(program.graph_def):
            plain = replace(program, is_compiled=False, digest=f"{program.digest} without compiler")
            _check_same(plan, outputs, _call(replace(plan, program=plain), feeds, rows, named))
        _COMPARED.add(program.digest)
    return outputs


_COMPARED: set[str] = set()
_FEW = 0.01


def _check_same(plan: Plan, compiled: Sequence[Block], plain: Sequence[Block]) -> None:
    """Raise unless padding leaves outputs as they are, up to rounding, which may tip a few of them."""
    is_coarse = not types_in(plan.program.graph_def).isdisjoint({tf.float16.as_datatype_enum, tf.bfloat16.as_datatype_enum})
    for name, held, wanted in zip(plan.program.outputs, compiled, plain, strict=True):
        if not isinstance(held, np.ndarray) or not isinstance(wanted, np.ndarray) or held.size == 0:
            continue
        if held.shape == wanted.shape:
            if held.dtype.kind in "fc":
                scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
                same = np.isclose(held, wanted, rtol=0.1 if is_coarse else 0.01, atol=1e-6 * float(scale), equal_nan=True)
            else:
                same = held == wanted
            if same[-1].all() and 1 - same.mean() <= _FEW:
                continue
        raise ProgramError(
            f"output {name!r} of the compiled program is not what it is without compiler: its rows depend on those that pad blocks.",
            hint="Make the program without jit_compile.",
        )


def _call(plan: Plan, feeds: Sequence[Fed], rows: np.ndarray, named: Callable[[int], str]) -> list[Block]:
    with place(plan.device) as device:
        loaded = load(plan.program, device)
        try:
            parts = iter(loaded(_tensors(plan, feeds)))
            return [_as_block([to_array(next(parts)) for _ in port.tensors]) for port in plan.program.output_ports]
        except tf.errors.OpError as error:
            lacking = re.search(r"Detected unsupported operations when trying to compile graph .*? on \S+: (\w+)", error.message)
            if lacking:
                raise ProgramError(
                    f"XLA cannot compile the program, since it lacks the operation {lacking[1]}.",
                    hint="Make the program without jit_compile.",
                ) from error
            alone = _first_failing(plan, loaded, feeds, len(rows))
            where = f"a block of {len(rows)} rows" if alone is None else named(int(rows[alone]))
            raise ProgramError(
                f"the program failed on {where}: {type(error).__name__}: {reason(error)}",
                facts={"inputs": [_fed(name, source) for name, source in zip(plan.program.inputs, plan.inputs, strict=True)]},
            ) from error


def compiled_rows(rows: int, block_rows: int | None) -> int:
    """Return how many rows a block has for a compiled program, which XLA compiles anew for each number: the next power of two."""
    size = 1 << (rows - 1).bit_length()
    return size if block_rows is None or rows > block_rows else min(size, block_rows)


def pad_rows(feeds: Sequence[Fed], rows: int, wanted: int) -> list[Fed]:
    """Pad the rows of feeds by repeating the last one, on which a program does what it does anyway."""
    if rows == wanted:
        return list(feeds)
    which = np.minimum(np.arange(wanted), rows - 1)
    return [feed if isinstance(feed, Constant) else take_rows(feed, which) for feed in feeds]


def _cut_rows(plan: Plan, outputs: Sequence[Block], rows: int, padded: int) -> list[Block]:
    """Cut the rows by which a compiled program's block was padded off its outputs.

    Raises:
        ShapeError: an output has not a row for each of the block.
    """
    for name, block in zip(plan.program.outputs, outputs, strict=True):
        if len(block) != padded:
            raise ShapeError(
                f"output {name!r} has {len(block)} rows but the block, padded to a size that is compiled once, has {padded}.",
                hint="Make the program without jit_compile.",
            )
    return [block if rows == padded else take_rows(block, np.arange(rows)) for block in outputs]


def _as_block(parts: list[np.ndarray]) -> Block:
    return parts[0] if len(parts) == 1 else Ragged(parts[0], tuple(parts[1:]))


def _tensors(plan: Plan, feeds: Sequence[Fed]) -> list[tf.Tensor]:
    """Return the plain tensors of a program's inputs."""
    parts: list[tf.Tensor] = []
    for feed, port in zip(feeds, plan.program.input_ports, strict=True):
        if isinstance(feed, Constant):
            parts.append(constant_tensor(feed))
        elif isinstance(feed, Sparse):
            values = to_tensor(feed.values, port.type.dtype)
            parts += [to_tensor(feed.indices), values, to_tensor(np.array(feed.shape, dtype=np.int64))]
        elif isinstance(feed, Ragged):
            parts += [to_tensor(feed.values, port.type.dtype), *map(to_tensor, feed.splits)]
        else:
            parts.append(to_tensor(feed, port.type.dtype))
    return parts


def _first_failing(plan: Plan, loaded: Loaded, feeds: Sequence[Fed], rows: int) -> int | None:
    """Return the first row on which the program fails even alone, or None where it is not one row's fault."""

    def fails(start: int, stop: int) -> bool:
        part = np.arange(start, stop)
        try:
            loaded(_tensors(plan, [feed if isinstance(feed, Constant) else take_rows(feed, part) for feed in feeds]))
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
    values = np.frombuffer(constant.data.view(), dtype=BY_NAME[constant.type.dtype].numpy).reshape(shape)
    return to_tensor(values, constant.type.dtype)


def reason(error: tf.errors.OpError) -> str:
    """Return what the failing operation says, without the traceback that there is none of and without generated names."""
    told = [line for line in error.message.splitlines() if line and not line.startswith(_UNTOLD)]
    return re.sub(r"\s*\[(\[\{\{node [^}]*\}\}\]|Op:[^]]*)\]", "", "\n".join(told)).strip()


_UNTOLD = ("Graph execution error:", "Detected at node", "<stack traces unavailable>")


def _fed(name: str, source: Input) -> str:
    if isinstance(source, MaskInput):
        return f"{name} ← mask"
    return f"{name} ← {'constant ' + str(source.type) if isinstance(source, Constant) else 'column ' + repr(source.column)}"
