"""Spark's worker module of the tests that need GPUs where there are none: logical CPU devices of TensorFlow's stand in for them.

Its name begins as Spark wants it. A worker finds as many GPUs as the environment says, and what it makes visible is a second logical CPU
device.
"""

import os
import sys
from typing import Any

from pyspark.worker import main as worker_main


class StandIn:
    """What TensorFlow tells of a physical GPU, and what was asked of it."""

    device_type = "GPU"

    def __init__(self, number: int) -> None:
        self.name = f"/physical_device:GPU:{number}"
        self.grows = False


visible: list[str] = []


def stand_in(count: int) -> None:
    """Make TensorFlow find GPUs in this process."""
    import tensorflow as tf

    from tensorframes import device

    gpus = [StandIn(number) for number in range(count)]
    found, logical = tf.config.list_physical_devices, tf.config.LogicalDeviceConfiguration

    def show(devices: list[StandIn], kind: str) -> None:
        assert kind == "GPU"
        visible[:] = [held.name for held in devices]
        tf.config.set_logical_device_configuration(found("CPU")[0], [logical() for _ in range(1 + len(devices))])

    def grow(gpu: StandIn, grows: bool) -> None:
        gpu.grows = grows
        visible.append(f"{gpu.name} grows")

    tf.config.list_physical_devices = lambda kind=None: gpus if kind == "GPU" else found(kind)
    tf.config.set_visible_devices = show
    tf.config.experimental.set_memory_growth = grow
    device.GPU = "/CPU:1"


def main(infile: Any, outfile: Any) -> None:
    """Run a worker that finds GPUs as soon as it uses TensorFlow."""
    if "tensorframes.device" not in sys.modules:
        stand_in(int(os.environ["STAND_IN_GPUS"]))
    worker_main(infile, outfile)
