"""TensorFrames: a tensor bridge between DataFrames and TensorFlow.

The shop window: a lazy table from each public name to its room. Importing it loads neither TensorFlow nor any frame library.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_ROOMS = {
    "map_blocks": "ops.maps",
    "map_rows": "ops.maps",
    "reduce_blocks": "ops.reduces",
    "reduce_rows": "ops.reduces",
    "aggregate": "ops.aggregates",
    "analyze": "ops.shapes",
    "append_shape": "ops.shapes",
    "print_schema": "ops.shapes",
    "schema": "ops.shapes",
    "block": "ops.placeholders",
    "row": "ops.placeholders",
    "udf": "sql",
    "register_udf": "sql",
    "Feed": "feeds",
    "feed": "feeds",
    "chain": "ops.programs",
    "load_program": "ops.programs",
    "program": "ops.programs",
    "Program": "programs",
    "Column": "columns",
    "Schema": "columns",
    "TensorType": "columns",
    "Shape": "shapes",
    "TensorFramesError": "errors",
    "ColumnError": "errors",
    "DTypeError": "errors",
    "ShapeError": "errors",
    "NullError": "errors",
    "ProgramError": "errors",
    "EmptyFrameError": "errors",
    "FrameError": "errors",
}

_PACKAGES = ("images", "ml")  # names that stand for themselves

__all__ = ["__version__", *_PACKAGES, *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_ROOMS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
