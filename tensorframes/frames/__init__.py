"""Frames: adapters that make every kind of table look the same to the verbs.

Knows columns; knows no program. The one law: each library is imported only where its own frames are, and only if the user has done so.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from tensorframes.errors import ColumnError, FrameError
from tensorframes.frames.arrow import StreamFrame, group_columns, wrap_arrow, wrap_grouped_arrow
from tensorframes.frames.base import AbstractFrame, AbstractGrouped

_LIBRARIES = ("pyspark", "pandas", "polars")
_ROOMS = {"pyspark": "spark"}


def wrap(native: Any) -> AbstractFrame:
    """Return the adapter of a frame.

    Args:
        native: a Spark, pandas or polars DataFrame, a ``pyarrow`` Table, RecordBatch, RecordBatchReader or Dataset, or any object with
            ``__arrow_c_stream__``, which is read into a table.

    Raises:
        FrameError: it is none of these.
    """
    frame = wrap_arrow(native)
    if frame is not None:
        return frame
    found: AbstractFrame | None = _ask_libraries("wrap", native)
    if found is not None:
        return found
    if hasattr(native, "__arrow_c_stream__") and not isinstance(native, type):
        return StreamFrame(native)
    raise FrameError(
        f"a {type(native).__module__}.{type(native).__qualname__} is no frame; wanted is a Spark, pandas or polars DataFrame, a pyarrow "
        "Table, RecordBatch, RecordBatchReader or Dataset, or an object with __arrow_c_stream__."
    )


def wrap_grouped(native: Any, by: str | Sequence[Any] | None = None) -> AbstractGrouped:
    """Return the adapter of a grouping.

    Args:
        native: what the frame's own library gives for a grouping; or, with `by`, a frame.
        by: names of key columns; on Spark, column expressions too.

    Raises:
        FrameError: it is neither, or has no key.
        ColumnError: there is no such column, or one is named twice.
        DTypeError: rows cannot be grouped by a key's type.
    """
    if by is None:
        found: AbstractGrouped | None = wrap_grouped_arrow(native) or _ask_libraries("wrap_grouped", native)
        if found is not None:
            if not found.keys:
                raise FrameError("the grouping has no key.", hint="reduce_blocks folds a whole frame.")
            return found
        raise FrameError(
            f"a {type(native).__module__}.{type(native).__qualname__} is no grouping; wanted is what df.groupBy, pdf.groupby, "
            "table.group_by or polars' group_by gives, or a frame with by=[…]."
        )
    keys: list[Any] = list(by) if isinstance(by, list | tuple) else [by]
    if not keys:
        raise FrameError("by= names no key.")
    frame = wrap(native)
    for key in keys:
        if isinstance(key, str):
            frame.schema.resolve(key)
            if keys.count(key) > 1:
                raise ColumnError(f"by= names column {key!r} {keys.count(key)} times.")
    if frame.schema.on_spark:
        return wrap_grouped(native.groupBy(*keys))
    return group_columns(frame, keys)


def _ask_libraries(prefix: str, native: Any) -> Any:
    """Ask the adapters of those libraries that the object comes from."""
    for library in _LIBRARIES:
        if library in sys.modules and any(base.__module__.partition(".")[0] == library for base in type(native).__mro__):
            room = _ROOMS.get(library, library)
            found = getattr(importlib.import_module(f"tensorframes.frames.{room}"), f"{prefix}_{room}")(native)
            if found is not None:
                return found
    return None
