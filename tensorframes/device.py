"""Devices: where a process runs its programs, and how many processes run theirs there at a time.

Knows TensorFlow's devices; no program, no frame. The one law: a program runs where the plan says or the job fails, naming the host.

A worker process takes GPUs once, before TensorFlow's first operation: those whose addresses its first task was given, else one of the
host's, each process the next; it keeps them, since TensorFlow cannot give one back, and sees no other.
"""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import tensorflow as tf
from tensorflow.python.eager import context

from tensorframes.errors import ProgramError
from tensorframes.turns import take_slot, turn

DEVICES = ("auto", "cpu", "gpu")
GPU = "/GPU:0"
"""The first of the GPUs that this process sees: where programs are placed."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a task has of its host.

    Attributes:
        cores: how many threads compute.
        gpus: the addresses of its GPUs; none where nobody assigned any.
        gpu_tasks: how many tasks run on one GPU at a time.
    """

    cores: int = 1
    gpus: tuple[str, ...] = ()
    gpu_tasks: int = 1


@dataclass(frozen=True, slots=True)
class Worker:
    """What a worker process has taken, once and for all.

    Attributes:
        slot: its number among the worker processes of this host.
        gpus: the host's numbers of the GPUs that it sees, which all processes of the host know them by.
        assigned: the addresses that its first task was given.
        cores: how many threads compute.
    """

    slot: int
    gpus: tuple[str, ...]
    assigned: tuple[str, ...]
    cores: int


_worker: Worker | None = None
_gpu_tasks = 1
_held_by = threading.local()


def reads_ahead(device: str) -> bool:
    """Tell whether a program on the device leaves a worker a core to read and decode with: it runs on a GPU, or the task has several."""
    return _worker is not None and (_worker.cores > 1 or (device != "cpu" and bool(_worker.gpus)))


def check_device(device: str) -> None:
    """Raise unless the device is one that can be asked for."""
    if device not in DEVICES:
        raise ProgramError(f"device is {device!r}, but one of {', '.join(map(repr, DEVICES))} is wanted.")


@contextmanager
def place(device: str) -> Iterator[str]:
    """Run programs on the device in this context; on a worker's GPU in its turn.

    May be entered again by the thread that is in it.

    Args:
        device: "cpu"; "gpu"; or "auto": the GPU, if there is one. In a process that is no worker, "auto" leaves the choice to TensorFlow.

    Yields:
        The device's name where a choice was made, "" where there is none: what is loaded under one name lies on one device.

    Raises:
        ProgramError: "gpu" on a host where TensorFlow sees none.
    """
    has_gpu = any(found.name.endswith(GPU[1:]) for found in tf.config.list_logical_devices())
    if device == "gpu" and not has_gpu:
        given = f" (the task was given {', '.join(map(repr, _worker.assigned))})" if _worker and _worker.assigned else ""
        raise ProgramError(f"device='gpu', but TensorFlow sees no GPU on host {platform.node()!r}{given}.")
    if not has_gpu or (device == "auto" and _worker is None):
        yield ""
        return
    with ExitStack() as stack:
        if device == "cpu":
            stack.enter_context(tf.device("/CPU:0"))
            yield "/CPU:0"
        else:
            if _worker is not None and not getattr(_held_by, "turn", False):
                stack.enter_context(_turns(_worker))
            stack.enter_context(tf.device(GPU))
            yield GPU


@contextmanager
def _turns(worker: Worker) -> Iterator[None]:
    """Hold the worker's GPUs, in the order of their names, so that no two processes wait for each other."""
    with ExitStack() as stack:
        for gpu in sorted(worker.gpus):
            stack.enter_context(turn(f"gpu-{gpu}-{worker.slot % _gpu_tasks}"))
        _held_by.turn = True
        try:
            yield
        finally:
            _held_by.turn = False


def configure_worker(share: Share) -> None:
    """Give this process what its task has of the host; called by a Spark worker at the start of every task.

    Threads, visible GPUs and memory growth are set before TensorFlow's first operation, by the first task; a process in which
    TensorFlow has started already is left as it is. TensorFlow would otherwise start a thread for each core in every worker, while Spark
    runs a task for each core already, and take all memory of all GPUs.
    """
    global _worker, _gpu_tasks
    _gpu_tasks = share.gpu_tasks
    if _worker is not None:
        return
    slot = take_slot()
    if context.context()._initialized:  # there is no public way to ask
        seen = [device.name.rpartition(":")[2] for device in tf.config.get_visible_devices("GPU")]
        _worker = Worker(slot, tuple(map(_host_number, seen)), share.gpus, share.cores)
        return
    if "TF_NUM_INTRAOP_THREADS" not in os.environ:
        tf.config.threading.set_intra_op_parallelism_threads(share.cores)
    if "TF_NUM_INTEROP_THREADS" not in os.environ:
        tf.config.threading.set_inter_op_parallelism_threads(share.cores)
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the order of the tools that find addresses
    gpus = tf.config.list_physical_devices("GPU")
    taken = [gpus[position] for position in choose_gpus(len(gpus), share.gpus, slot)]
    if gpus:
        tf.config.set_visible_devices(taken, "GPU")
    for gpu in taken:
        tf.config.experimental.set_memory_growth(gpu, True)
    _worker = Worker(slot, tuple(_host_number(gpu.name.rpartition(":")[2]) for gpu in taken), share.gpus, share.cores)


def choose_gpus(count: int, addresses: Sequence[str], slot: int) -> list[int]:
    """Return the positions of the GPUs that a process takes, of so many that TensorFlow finds.

    Args:
        count: how many there are.
        addresses: what Spark assigned; a number of the host's, or whatever ``CUDA_VISIBLE_DEVICES`` calls it. One that is not there is
            left out.
        slot: the process's number, which decides where nothing is assigned.
    """
    if not addresses:
        return [slot % count] if count else []
    names = [_host_number(str(position)) for position in range(count)]
    return [names.index(address) for address in addresses if address in names]


def _host_number(position: str) -> str:
    """Return what the host calls the GPU that CUDA finds at a position: ``CUDA_VISIBLE_DEVICES`` may hide and reorder them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in visible.split(",")] if visible else []
    return names[int(position)] if int(position) < len(names) else position
