"""Frames: adapters that make every kind of table look the same to the verbs.

Knows columns; knows no program. The one law: each library is imported only where its own frames are, and only if the user has done so.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tensorframes.errors import FrameError
from tensorframes.frames.arrow import StreamFrame, wrap_arrow
from tensorframes.frames.base import AbstractFrame

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
    for library in _LIBRARIES:
        if library in sys.modules and any(base.__module__.partition(".")[0] == library for base in type(native).__mro__):
            room = _ROOMS.get(library, library)
            found: AbstractFrame | None = getattr(importlib.import_module(f"tensorframes.frames.{room}"), f"wrap_{room}")(native)
            if found is not None:
                return found
    if hasattr(native, "__arrow_c_stream__"):
        return StreamFrame(native)
    raise FrameError(
        f"a {type(native).__module__}.{type(native).__qualname__} is no frame; wanted is a Spark, pandas or polars DataFrame, a pyarrow "
        "Table, RecordBatch, RecordBatchReader or Dataset, or an object with __arrow_c_stream__."
    )
