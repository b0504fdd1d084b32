"""program, chain and load_program: fetches as a value that verbs take."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorframes.capture import as_fetch, as_program
from tensorframes.capture.chains import chain_fetches
from tensorframes.capture.saved_models import as_file_fetch, is_program_file
from tensorframes.errors import ProgramError, verb
from tensorframes.frames import wrap
from tensorframes.programs import Program


@verb
def program(
    fetches: Any,
    *,
    frame: Any = None,
    feed_dict: Any = None,
    signature: str | Mapping[str, Any] | None = None,
    session: Any = None,
    jit_compile: bool = False,
    binary: str | Sequence[str] = (),
    vector: str | Sequence[str] = (),
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool = True,
    outputs: Sequence[str] = (),
) -> Program:
    """Capture fetches as a program: a frozen, picklable value that every verb takes.

    By shape: with ``frame=``, inputs get the block type of their columns, ``x: float64[?]``; with ``signature=``, what that says, cells
    for `map_rows` included.

    Args:
        fetches: as for `map_blocks`, Keras models and files among them.
        frame: types the inputs of a function by its columns.
        feed_dict: which columns, when not those of the inputs' names. Only what a feed makes of their types enters the program; which
            columns, nulls and padding are said again to the verb.
        signature: input name → ``tf.TensorSpec`` (or ``tf.RaggedTensorSpec``, ``tf.SparseTensorSpec``), which wins over the frame; or the
            name of a SavedModel's signature.
        session: the v1 session that holds the values of a v1 graph's variables.
        jit_compile: compile the computation with XLA.
        binary: string outputs that are bytes and become binary columns.
        vector: outputs of numbers, cells ``[n]`` or ``[r, c]``, that become dense vectors or matrices of Spark ML, so that its stages can
            follow: ``VectorUDT`` and ``MatrixUDT`` columns on Spark, structs of their layout on local frames.
        custom_objects: the classes and functions that a Keras file names and Keras does not know.
        safe_mode: whether a ``.keras`` file that holds Python code is refused.
        outputs: tensors of a frozen graph, such as ``["z"]``; none: those that nothing in it reads.

    Raises:
        ProgramError: the fetches are no program, or an input has no type.
        ColumnError: the frame has no column for an input.

    Example:
        >>> import tensorflow as tf, tensorframes as tfs
        >>> program = tfs.program(lambda x: {"z": 2 * x}, signature={"x": tf.TensorSpec([None, 3], tf.float32)})
        >>> program, program.outputs["z"].shape
        (Program(x: float32[?, 3]) -> (z: float32[?, 3]), Shape([None, 3]))
    """
    schema = None if frame is None else wrap(frame).schema
    binary, vector = ((names,) if isinstance(names, str) else tuple(names) for names in (binary, vector))
    types: Any = signature
    if is_program_file(fetches):
        named, types = (signature, None) if isinstance(signature, str) else (None, signature)
        fetches = as_file_fetch(fetches, named, custom_objects=custom_objects, safe_mode=safe_mode, outputs=outputs)
    return as_program(fetches, schema, feed_dict, session=session, signature=types, jit_compile=jit_compile, binary=binary, vector=vector)


_program: Callable[..., Program] = inspect.unwrap(program)  # for others, whose errors bear their own names


@verb
def chain(*steps: Any, **options: Any) -> Program:
    """Join fetches to one program, each fed by what the one before it gives: decoding, scaling, a model, what is made of its scores.

    By shape: the inputs of the first step → the outputs of the last, ``content: string[?]`` → ``scores: float32[?, 10]``. All steps become
    one graph: what lies between them is never a column.

    Args:
        steps: fetches as for `map_blocks`. One output feeds the one input of the next step, whatever their names; several feed the inputs
            of their names. What a step declares is cast to as for a column: widening, integers to floats, float64 to float32.
        options: as for `program`; a frame, feed_dict or signature types the inputs of the first step.

    Raises:
        ProgramError: a step is no fetch, cannot be traced, or does not take what the one before it gives.
        DTypeError: a step declares a dtype to which it is not cast.
        ShapeError: a step declares another shape.

    Example:
        >>> import tensorflow as tf, tensorframes as tfs
        >>> double = tfs.program(lambda x: {"twice": 2 * x}, signature={"x": tf.TensorSpec([None], tf.float64)})
        >>> tfs.chain(double, lambda y: {"more": y + 1})
        Program(x: float64[?]) -> (more: float64[?])
    """
    if not steps:
        raise ProgramError("there are no steps.")
    return _program(chain_fetches([as_fetch(step, options.get("session"), True) for step in steps]), **_known(options))


def _known(options: Mapping[str, Any]) -> Mapping[str, Any]:
    known = [name for name in inspect.signature(program).parameters if name != "fetches"]
    for name in options:
        if name not in known:
            raise ProgramError(f"there is no option {name!r}.", facts={"options": known})
    return options


@verb
def load_program(path: str | os.PathLike[str], **options: Any) -> Program:
    """Read a program from a file: a SavedModel's directory, a ``.keras`` or ``.h5`` file, or a frozen ``.pb`` graph.

    By shape: inputs and outputs are those that the signature, the model or the graph declares, ``features: float32[?, 4]`` → ``score:
    float32[?]``.

    Args:
        path: the directory or file.
        options: as for `program`: frame, feed_dict, signature, jit_compile, binary, vector; and, of the files that have them, signature (a
            SavedModel's, by name), custom_objects and safe_mode (Keras files), outputs (frozen graphs).

    Raises:
        ProgramError: there is no such file, it cannot be read, or it has no such signature.

    Example:
        >>> import tempfile, tensorflow as tf, tensorframes as tfs
        >>> with tempfile.TemporaryDirectory() as path:
        ...     tfs.program(lambda x: {"z": -x}, signature={"x": tf.TensorSpec([None], tf.int64)}).save(path)
        ...     tfs.load_program(path)
        Program(x: int64[?]) -> (z: int64[?])
    """
    _known(options)
    fetch = as_file_fetch(
        path,
        options.get("signature") if isinstance(options.get("signature"), str) else None,
        custom_objects=options.pop("custom_objects", None),
        safe_mode=options.pop("safe_mode", True),
        outputs=options.pop("outputs", ()),
    )
    if isinstance(options.get("signature"), str):
        options.pop("signature")
    return _program(fetch, **options)
