"""Images: files → Spark's image schema, and programs that turn either into tensors for a model.

Knows Spark (`files`), TensorFlow's codecs (`pixels`) and the verbs; nothing below knows images. The one law: tensors are in RGB order,
``[height, width, channels]``, whichever way the pixels came; only Spark's image schema is in BGR order.
"""

from __future__ import annotations

import importlib
from typing import Any

# As in the package itself: what is not used loads neither TensorFlow nor Spark.
_ROOMS = {
    "decode": "pixels",
    "to_tensor": "pixels",
    "resize": "pixels",
    "feeds": "pixels",
    "read_images": "files",
    "as_image": "files",
}

__all__ = [*_ROOMS]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_ROOMS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
