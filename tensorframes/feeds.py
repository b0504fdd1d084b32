"""Feeds: where each input of a program comes from.

Knows names and columns; touches no data and no TensorFlow. The one law: an input is fed by exactly one column or by exactly one
constant, and which one is decided here, from the names alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorframes.columns import Column, Schema, TensorType
from tensorframes.errors import ColumnError, DTypeError, ProgramError
from tensorframes.shapes import Shape


@dataclass(frozen=True, slots=True)
class Feed:
    """How one column becomes one input.

    Attributes:
        column: the column's name, or the dotted path of a struct's field.
    """

    column: str


@dataclass(frozen=True, slots=True)
class Constant:
    """An input that is the same for every block; a frozen array.

    Attributes:
        type: dtype and shape.
        data: the array's bytes in C order, or for strings a tuple of bytes.
    """

    type: TensorType
    data: bytes | tuple[bytes, ...]

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
            return cls(TensorType("bfloat16", Shape(array.shape)), array.tobytes())
        if array.dtype.kind not in "biufc" or array.dtype.itemsize > 16 or array.dtype.name in ("float128", "longdouble"):
            raise DTypeError(f"the constant for input {name!r} is of dtype {array.dtype}, which no tensor holds.")
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        return cls(TensorType(native.dtype.name, Shape(native.shape)), native.tobytes())


Source = Feed | Constant


def parse_feed_dict(feed_dict: Any) -> dict[str, Source] | list[Source]:
    """Read a ``feed_dict`` in any of its forms.

    Returns:
        A mapping from input name to source, or a list of sources by position.

    Raises:
        ProgramError: it is none of the forms.
    """
    if feed_dict is None:
        return {}
    if isinstance(feed_dict, str | Feed):
        return [_as_source("0", feed_dict)]
    if isinstance(feed_dict, Mapping):
        return {(name := _input_name(key)): _as_source(name, value) for key, value in feed_dict.items()}
    if isinstance(feed_dict, list | tuple) and all(isinstance(item, str | Feed) for item in feed_dict):
        return [_as_source(str(i), item) for i, item in enumerate(feed_dict)]
    raise ProgramError(
        f"feed_dict is a {type(feed_dict).__name__}, but a dict {{input: column}}, a column name or a list of column names is wanted."
    )


def resolve_feeds(inputs: Sequence[str], optional: Iterable[str], feed_dict: Any, schema: Schema) -> dict[str, Source]:
    """Find the source of each input.

    Args:
        inputs: names of the program's inputs, in their order.
        optional: those that have a default: they are fed only if ``feed_dict`` names them.
        feed_dict: as the user gave it.
        schema: the frame's columns.

    Returns:
        Input name → source, in the order of the inputs; optional ones that nobody feeds are left out.

    Raises:
        ColumnError: a column that is not there.
        ProgramError: a feed for an input that is not there.
    """
    given = parse_feed_dict(feed_dict)
    optional = set(optional)
    if isinstance(given, list):
        if len(given) > len(inputs):
            raise ProgramError(
                f"feed_dict feeds {len(given)} inputs by position, but the program has {len(inputs)}.",
                facts={"inputs": list(inputs), "columns": schema.facts},
            )
        given = dict(zip(inputs, given, strict=False))
    for name in given:
        if name not in inputs:
            raise ProgramError(
                f"feed_dict feeds an input {name!r} that the program does not have.",
                facts={"inputs": list(inputs), "columns": schema.facts},
            )
    sources: dict[str, Source] = {}
    for name in inputs:
        if name in given:
            sources[name] = given[name]
        elif name not in optional:
            sources[name] = Feed(name)
    for name, source in sources.items():
        if isinstance(source, Feed):
            check_column(name, source.column, inputs, schema)
        else:
            _check_no_label(name, source, schema)
    return sources


Naming = Callable[[Sequence[str], Any, Schema], Any]


def map_names(inputs: Sequence[str], feed_dict: Any, schema: Schema) -> Any:
    """Maps: an input is fed by the column of its name."""
    return feed_dict


def block_reduce_names(inputs: Sequence[str], feed_dict: Any, schema: Schema) -> Any:
    """Block reduces: ``x_input`` is fed by the column ``x``, and by what ``feed_dict`` says of ``x``."""
    given = parse_feed_dict(feed_dict)
    return given if isinstance(given, list) else _by_stem(inputs, given, schema, ("_input",))


def pair_reduce_names(inputs: Sequence[str], feed_dict: Any, schema: Schema) -> Any:
    """Pair reduces: ``x_1`` and ``x_2`` are fed by the column ``x``; two inputs of any names by the one column there is, or is named."""
    given = parse_feed_dict(feed_dict)
    if isinstance(given, list):
        if len(given) == 1 and len(inputs) == 2:
            return dict.fromkeys(inputs, given[0])
        return given
    free = [name for name in inputs if not isinstance(given.get(name), Constant)]
    if len(free) == 2 and pair_stem(free) is None:
        named = [given[name] for name in free if name in given]
        if len(named) == 1:
            return {**given, **dict.fromkeys(free, named[0])}
        if not named and len(schema) == 1:
            return {**given, **{name: Feed(schema.names[0]) for name in free}}
    return _by_stem(inputs, given, schema, ("_1", "_2"))


def pair_stem(names: Sequence[str]) -> str | None:
    """Return ``x`` for ``x_1`` and ``x_2``, else None."""
    first, second = names
    stem = first.removesuffix("_1")
    return stem if (first, second) == (f"{stem}_1", f"{stem}_2") else None


def _by_stem(inputs: Sequence[str], given: dict[str, Source], schema: Schema, suffixes: Sequence[str]) -> dict[str, Source]:
    """Feed inputs that end in a suffix by what is said of their stem, else by the stem's column, if there is one."""
    sources = dict(given)
    used = set()
    for name in inputs:
        stem = next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), name)
        if stem == name or name in given:
            continue
        if stem in given and stem not in inputs:
            sources[name] = given[stem]
            used.add(stem)
        elif schema.find(stem) is not None:
            sources[name] = Feed(stem)
    return {name: source for name, source in sources.items() if name not in used}


def check_column(name: str, column: str, inputs: Sequence[str], schema: Schema) -> Column:
    """Return the column that feeds an input, or raise naming both sides."""
    found = schema.find(column)
    if found is None:
        fix = "Feed it from another column" if column == name else "Name one of the columns"
        raise ColumnError(
            f"input {name!r} wants a column {column!r}, but the frame has none of that name.",
            facts={"inputs": list(inputs), "columns": schema.facts},
            hint=f"{fix} with feed_dict={{{name!r}: …}}." if len(schema) else None,
        )
    return found[1]


def _check_no_label(name: str, constant: Constant, schema: Schema) -> None:
    """Refuse a whole number that is a column's name, as pandas has them: it could be meant as either."""
    if constant.type.shape == () and constant.type.dtype == "int64" and isinstance(constant.data, bytes):
        label = str(np.frombuffer(constant.data, dtype=np.int64)[0])
        if schema.find(label) is not None:
            raise ProgramError(
                f"feed_dict feeds input {name!r} with {label}, which is a number and the name of a column.",
                hint=f"Write {label!r} for the column, or another type of number, such as np.int32({label}), for the constant.",
            )


def _input_name(key: Any) -> str:
    name = key if isinstance(key, str) else getattr(key, "name", None)
    if not isinstance(name, str):
        raise ProgramError(f"feed_dict has a key of type {type(key).__name__}, but input names or placeholders are wanted.")
    return name.removesuffix(":0")


def _as_source(name: str, value: Any) -> Source:
    if isinstance(value, Feed | Constant):
        return value
    return Feed(value) if isinstance(value, str) else Constant.of(name, value)


def _as_bytes(name: str, cell: Any) -> bytes:
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, str):
        return cell.encode()
    raise DTypeError(f"the constant for input {name!r} holds a {type(cell).__name__}, which no tensor holds.")


def feed_type(name: str, column: Column, *, rowwise: bool) -> TensorType:
    """Return the type that a column has as an input: a block's, or one cell's.

    Raises:
        DTypeError: no tensor holds the column's type.
    """
    if column.dtype is None or column.cell_shape is None:
        hint = None
        if column.fields:
            hint = f"Feed one of its fields with feed_dict={{{name!r}: {column.name + '.' + column.fields[0].name!r}}}."
        raise DTypeError(f"input {name!r} reads column {column.name!r}, whose type {column.type_name} no tensor holds.", hint=hint)
    return TensorType(column.dtype, column.cell_shape if rowwise else Shape((None, *column.cell_shape)))
