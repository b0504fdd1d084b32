"""Devices: where a worker process runs its programs.

Knows TensorFlow's devices. The one law: a program runs where the plan says or the job fails, naming the host.
"""

from __future__ import annotations

import platform
from contextlib import AbstractContextManager, nullcontext

import tensorflow as tf
from tensorflow.python.eager import context

from tensorframes.errors import ProgramError

DEVICES = ("auto", "cpu", "gpu")


def check_device(device: str) -> None:
    """Raise unless the device is one that can be asked for."""
    if device not in DEVICES:
        raise ProgramError(f"device is {device!r}, but one of {', '.join(map(repr, DEVICES))} is wanted.")


def place(device: str) -> AbstractContextManager[None]:
    """Return the context in which programs run on the device: "auto" leaves the choice to TensorFlow.

    Raises:
        ProgramError: "gpu" on a host where TensorFlow sees none.
    """
    if device == "auto":
        return nullcontext()
    if device == "gpu" and not tf.config.list_logical_devices("GPU"):
        raise ProgramError(f"device='gpu', but TensorFlow sees no GPU on host {platform.node()!r}.")
    placement: AbstractContextManager[None] = tf.device("/CPU:0" if device == "cpu" else "/GPU:0")
    return placement


_configured = False


def configure_worker() -> None:
    """Give TensorFlow the cores of one task; called by a Spark worker before its first operation, once per process.

    TensorFlow would otherwise start a thread for each core in every worker, while Spark already runs a task for each core. A process
    in which TensorFlow has started already is left as it is.
    """
    global _configured
    if _configured:
        return
    _configured = True
    if not context.context()._initialized:  # there is no public way to ask
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
