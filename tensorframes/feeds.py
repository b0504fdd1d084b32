"""Feeds: what an input of a program comes from, and in which form.

Knows columns and their types; touches no data and no TensorFlow. The one law: what a feed makes of a column is decided here, from types and
options alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from tensorframes.blobs import Blob, as_blob
from tensorframes.columns import Column, TensorType
from tensorframes.dtypes import BY_NAME
from tensorframes.errors import DTypeError, ProgramError, ShapeError, verb
from tensorframes.shapes import Shape


@dataclass(frozen=True, slots=True)
class Feed:
    """How one column becomes one input; made by `feed`, which says what the options mean.

    Attributes:
        column: the column's name, or the dotted path of a struct's field.
        nulls: "error", "skip", "mask" or "value".
        value: what stands for a null, where `nulls` is "value".
        ragged: whether the input is a ``tf.RaggedTensor``.
        pad: what shorter cells are filled up with; None: nothing.
        sparse: whether the input is a ``tf.SparseTensor``.
        dtype: the dtype that is asked for.
    """

    column: str
    nulls: str = "error"
    value: Any = None
    ragged: bool = False
    pad: Any = None
    sparse: bool = False
    dtype: str | None = None


_POLICIES = ("error", "skip", "mask")


@verb
def feed(column: str, *, nulls: Any = "error", ragged: bool = False, pad: Any = None, sparse: bool = False, dtype: Any = None) -> Feed:
    """Say how one column becomes one input: a value of ``feed_dict``, for every verb.

    By shape: cells ``int64[?]`` → ``int64[?, n]`` where all agree; ``ragged=True`` → ``ragged int64[?, ?]``; ``pad=0`` → ``int64[?, n]``
    with the longest cell's ``n``, or the one that the program declares; ``sparse=True`` → ``sparse int64[?, n]``.

    Args:
        column: the column's name, or the dotted path of a struct's field.
        nulls: "error": a null raises. "skip": rows with a null here, as a cell or inside one, are not shown to the program; a map gives
            them null outputs (with trim=True none), a reduce leaves them out. "mask": nulls become zeros, and the program receives
            one more input, ``<input>_mask``: bool, of the input's shape, true where a value was present. Anything else is the value
            that stands for each null, also inside arrays; a null array becomes one of the block's shape, and is empty in a ragged input.
            Text that is one of the three words is given as bytes.
        ragged: the input is a ``tf.RaggedTensor``. Dimensions that are known (`append_shape`) and have no unknown one behind them
            stay uniform.
        pad: shorter cells are filled up with this value, to the longest of the block or to the size that the program declares.
        sparse: the input is a ``tf.SparseTensor``: of vectors and matrices the entries that they store, of arrays those that are not 0.
        dtype: cast to this dtype: "float32", ``tf.float32``, ``np.float32``. Decimals need one. Narrowing is allowed but checked: a
            value that does not fit (too large, NaN or a fraction for an integer) raises; a float is rounded to the nearest one, a
            decimal to half precision by way of float64.

    Raises:
        ProgramError: options that do not go together.
        DTypeError: `dtype` is none, or `nulls` or `pad` is no scalar.

    Example:
        >>> import pyarrow as pa, tensorflow as tf, tensorframes as tfs
        >>> table = pa.table({"x": [1, None, 3], "t": [[1], [2, 3], []]})
        >>> tfs.map_blocks(lambda x: {"z": x + 1}, table, {"x": tfs.feed("x", nulls="skip")})["z"].to_pylist()
        [2, None, 4]
        >>> tfs.map_blocks(lambda t: {"n": tf.reduce_sum(t, axis=1)}, table, {"t": tfs.feed("t", ragged=True)})["n"].to_pylist()
        [1, 5, 0]
    """
    if not isinstance(column, str):
        raise ProgramError(f"a feed names a column, but a {type(column).__name__} is given.")
    given = {"ragged=True": ragged is True, "pad=": pad is not None, "sparse=True": sparse is True}
    chosen = [name for name, is_chosen in given.items() if is_chosen]
    if len(chosen) > 1:
        raise ProgramError(f"the feed of column {column!r} has {chosen[0]} and {chosen[1]}, but an input is one or the other.")
    if sparse and isinstance(nulls, str) and nulls == "mask":
        raise ProgramError(f"the feed of column {column!r} has sparse=True and nulls='mask', but a mask is dense.")
    meant = get_close_matches(nulls.lower(), _POLICIES, cutoff=0.75) if isinstance(nulls, str) and nulls not in _POLICIES else []
    if meant:
        raise ProgramError(
            f"the feed of column {column!r} has nulls={nulls!r}; {meant[0]!r} is the policy.",
            hint=f"If this text is to stand for each null, give it as bytes: nulls={nulls.encode()!r}.",
        )
    policy = nulls if isinstance(nulls, str) and nulls in _POLICIES else "value"
    value = _scalar(column, "nulls", nulls) if policy == "value" else None
    padding = None if pad is None else _scalar(column, "pad", pad)
    return Feed(column, policy, value, bool(ragged), padding, bool(sparse), None if dtype is None else _dtype(column, dtype))


def _scalar(column: str, option: str, value: Any) -> Any:
    """Return a plain Python number, boolean or bytes."""
    plain = value.item() if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0) else value
    if isinstance(plain, str):
        return plain.encode()
    if isinstance(plain, bool | int | float | complex | bytes):
        return plain
    raise DTypeError(f"the feed of column {column!r} has {option}={value!r}, but a number, a boolean, a text or bytes are wanted.")


def _dtype(column: str, dtype: Any) -> str:
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype)
    if name not in BY_NAME:
        try:
            name = np.dtype(dtype).name
        except TypeError:
            name = None
    if name not in BY_NAME:
        raise DTypeError(f"the feed of column {column!r} has dtype={dtype!r}, but a dtype of TensorFlow's is wanted.")
    return str(name)


@dataclass(frozen=True, slots=True)
class Mask:
    """An input that says where another one's values were present.

    Attributes:
        of: the other input.
    """

    of: str


@dataclass(frozen=True, slots=True)
class ColumnInput:
    """An input that a column feeds, all decided: what a worker reads of the column's cells.

    Attributes:
        name: the input's name.
        column: the column's name, for messages.
        read: which of the plan's reads it is.
        cell_shape: what is known of a cell's shape, from the column and from the program.
        cast: the dtype that the program declares, where it would receive another.
        narrowed: the dtype that the feed asks for, where the column's is another.
        nulls: "error", "skip", "mask" or "value".
        fill: what stands for a null.
        pad: what shorter cells are filled up with; None: nothing.
        knows_nulls: whether a null array has a shape: not where it is padded in a reduce, in each block to another length.
        is_ragged: whether cells may have any lengths, so that a null array is an empty one.
        ragged_rank: how many of a cell's dimensions are ragged in a block.
        is_sparse: whether the input is sparse.
    """

    name: str
    column: str
    read: int
    cell_shape: Shape
    cast: str | None = None
    narrowed: str | None = None
    nulls: str = "error"
    fill: Any = None
    pad: Any = None
    knows_nulls: bool = True
    is_ragged: bool = False
    ragged_rank: int = 0
    is_sparse: bool = False

    @property
    def is_uneven(self) -> bool:
        """Whether each cell may have a shape of its own, although the input is dense."""
        return None in self.cell_shape and self.ragged_rank == 0 and self.pad is None and not self.is_sparse


@dataclass(frozen=True, slots=True)
class MaskInput:
    """An input that says where another one's values were present.

    Attributes:
        name: the input's name.
        of: the position of the other input.
    """

    name: str
    of: int


@dataclass(frozen=True, slots=True)
class Constant:
    """An input that is the same for every block; a frozen array.

    Attributes:
        type: dtype and shape.
        data: the array's bytes in row-major order, or for strings a tuple of bytes.
    """

    type: TensorType
    data: Blob | tuple[bytes, ...]

    @classmethod
    def of(cls, name: str, value: Any) -> Constant:
        """Freeze whatever NumPy understands.

        Raises:
            DTypeError: NumPy makes no array of numbers, booleans or strings of it.
        """
        if isinstance(value, np.ma.MaskedArray):
            raise DTypeError(f"the constant for input {name!r} is a masked array, whose mask would be lost.")
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, NotImplementedError) as error:
            raise DTypeError(f"the constant for input {name!r} is no array: {error}.") from error
        if array.dtype.kind in "US" and not isinstance(value, np.ndarray):
            array = np.asarray(value, dtype=object)  # NumPy's own strings lose zero bytes at the end
        if array.dtype.kind in "USO":
            cells = [_as_bytes(name, cell) for cell in array.ravel().tolist()]
            return cls(TensorType("string", Shape(array.shape)), tuple(cells))
        if array.dtype.name == "bfloat16":
            return cls(TensorType("bfloat16", Shape(array.shape)), as_blob(array.tobytes()))
        if array.dtype.kind not in "biufc" or array.dtype.itemsize > 16 or array.dtype.name in ("float128", "longdouble"):
            raise DTypeError(f"the constant for input {name!r} is of dtype {array.dtype}, which no tensor holds.")
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        return cls(TensorType(native.dtype.name, Shape(native.shape)), as_blob(native.tobytes()))


def _as_bytes(name: str, cell: Any) -> bytes:
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, str):
        return cell.encode()
    raise DTypeError(f"the constant for input {name!r} holds a {type(cell).__name__}, which no tensor holds.")


def feed_type(name: str, column: Column, feed: Feed, *, rowwise: bool) -> TensorType:
    """Return the type that a column has as an input: a block's, or one cell's.

    Raises:
        DTypeError: no tensor holds the column's type, or it cannot be cast as the feed asks.
        ShapeError: a scalar is to be ragged or padded, or what is to be sparse is no vector or matrix.
    """
    if column.cell_shape is None or not _can_narrow(column, feed.dtype):
        raise _no_tensor(name, column, feed)
    dtype, shape = feed.dtype or column.dtype, column.cell_shape
    assert dtype is not None
    if feed.pad is not None and not shape:
        raise ShapeError(f"input {name!r} is to be padded, but the cells of column {column.name!r} are scalars.")
    if feed.sparse:
        if not shape or dtype == "string":
            raise ShapeError(f"input {name!r} is to be sparse, but column {column.name!r} holds {column.block}.")
        return TensorType(dtype, shape if rowwise else Shape((None, *shape)), is_sparse=True)
    if feed.ragged:
        rank = ragged_rank(shape)
        if rank == 0:
            raise ShapeError(f"input {name!r} is to be ragged, but the cells of column {column.name!r} are scalars.")
        shape = Shape((*(None for _ in range(rank)), *shape[rank:]))
        return TensorType(dtype, shape, rank - 1) if rowwise else TensorType(dtype, Shape((None, *shape)), rank)
    return TensorType(dtype, shape if rowwise else Shape((None, *shape)))


def declared_layout(feed: Feed, declared: TensorType) -> Feed:
    """Return the feed of an input that a program declares: ragged or sparse if that is, without being told so."""
    if feed.sparse or feed.ragged or feed.pad is not None:
        return feed
    return replace(feed, sparse=declared.is_sparse, ragged=declared.ragged_rank > 0)


def ragged_rank(cell_shape: Shape) -> int:
    """Return how many of a cell's dimensions are ragged when it is to be so: all up to the last unknown one, at least the first."""
    unknown = [position for position, dim in enumerate(cell_shape, 1) if dim is None]
    return max([*unknown, min(len(cell_shape), 1)])


def _can_narrow(column: Column, dtype: str | None) -> bool:
    if dtype is None:
        return column.dtype is not None
    held = column.dtype or ("float64" if column.is_decimal else None)
    return held is not None and (held == dtype or "string" not in (held, dtype))


def _no_tensor(name: str, column: Column, feed: Feed) -> DTypeError:
    if column.dtype is not None or (column.is_decimal and feed.dtype is not None):
        held = column.dtype or column.type_name
        return DTypeError(f"input {name!r} is to be {feed.dtype}, but column {column.name!r} holds {held}, which is not cast.")
    hint = None
    if column.is_decimal and feed.dtype is None:
        hint = f"Say which number it becomes: feed_dict={{{name!r}: tfs.feed({column.name!r}, dtype='float64')}}."
    elif column.fields:
        hint = f"Feed one of its fields with feed_dict={{{name!r}: {column.name + '.' + column.fields[0].name!r}}}."
    return DTypeError(f"input {name!r} reads column {column.name!r}, whose type {column.type_name} no tensor holds.", hint=hint)
