"""NumPy arrays ↔ eager tensors, sharing memory.

The only place where blocks become tensors. Knows NumPy and TensorFlow; no Arrow, no columns. The one law: a tensor is only ever made
over memory whose address is a multiple of 64, because TensorFlow's kernels abort the process on anything else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context  # the only way to run eagerly where a program has disabled eager execution

from tensorframes.blocks.scalars import align


def eagerly() -> Any:
    """Return a context in which this thread runs eagerly, also inside a v1 graph or after ``disable_v2_behavior``."""
    return context.eager_mode()


def to_tensor(values: np.ndarray, dtype: str | None = None) -> tf.Tensor:
    """Make a tensor over an array's memory (numbers, booleans), or of its bytes (object arrays).

    With the dtype "bfloat16" the array holds the numbers' bits as uint16, or the numbers as float32.

    The array must not be written to while the tensor lives.
    """
    if dtype == "bfloat16":
        return tf.cast(to_tensor(values), dtype) if values.dtype == np.float32 else tf.bitcast(to_tensor(values), dtype)
    if values.dtype == object:
        return tf.constant(values, dtype=tf.string, shape=values.shape)
    if values.size == 0:
        return tf.zeros(values.shape, values.dtype)
    flat = align(np.ascontiguousarray(values)).reshape(-1)
    owner = flat if flat.flags.writeable else np.asarray(_Writeable(flat))  # NumPy exports no read-only memory
    tensor = tf.experimental.dlpack.from_dlpack(owner.__dlpack__())
    return tensor if values.ndim == 1 else tf.reshape(tensor, values.shape)


class _Writeable:
    """An array's memory, said to be writeable; nobody writes to it."""

    def __init__(self, values: np.ndarray) -> None:
        interface = values.__array_interface__
        self.owner, self.__array_interface__ = values, {**interface, "data": (interface["data"][0], False)}


def to_array(tensor: tf.Tensor) -> np.ndarray:
    """View a tensor's memory as an array; strings become an object array of bytes, bfloat16 is widened to float32."""
    if tensor.dtype == tf.string:
        cells: np.ndarray = np.asarray(tensor.numpy(), dtype=object).reshape(tensor.shape)
        return cells
    if tensor.dtype == tf.bfloat16:
        tensor = tf.cast(tensor, tf.float32)
    if not tensor.device.endswith("CPU:0"):
        tensor = tensor.cpu()
    view: np.ndarray = np.asarray(memoryview(tensor))
    return view
