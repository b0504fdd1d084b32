"""Which device a process uses: decided without a GPU, with logical CPU devices of TensorFlow in place of GPUs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tensorflow as tf
from expectations import Expect, ExpectFail, cases, check

import tensorframes as tfs
from tensorframes import device
from tensorframes.device import Worker, choose_gpus, place

TABLE = pa.table({"x": [1.0, 2.0]})
HOST = platform.node()


# --- Which GPUs a process takes ---


@cases(
    Expect((0, (), 0), [], "none there"),
    Expect((0, ("0",), 0), [], "one assigned, none there"),
    Expect((4, ("2",), 0), [2], "the one assigned"),
    Expect((4, ("3", "1"), 0), [3, 1], "the two assigned, in their order"),
    Expect((4, ("7", "1"), 0), [1], "one that is not there is left out"),
    Expect((4, (), 0), [0], "the first process"),
    Expect((4, (), 3), [3], "the fourth process"),
    Expect((4, (), 6), [2], "more processes than GPUs"),
)
def test_gpus_are_taken_by_address_or_by_slot(case, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    check(lambda given: choose_gpus(*given), case)


@cases(
    Expect(("2,5", ("5",)), [1], "by the host's number"),
    Expect(("2,5", ("1",)), [], "a number that is hidden"),
    Expect(("GPU-1f, GPU-2e", ("GPU-2e",)), [1], "by their identities"),
    Expect(("", ("1",)), [1], "nothing is said"),
)
def test_addresses_are_those_of_the_host(case, monkeypatch):
    visible, addresses = case.input
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert choose_gpus(2, addresses, 0) == case.output


# --- Where there is none ---


def test_auto_and_cpu_leave_it_to_tensorflow_where_there_is_no_gpu():
    for name in ("auto", "cpu"):
        with place(name) as chosen:
            assert chosen == ""
            assert tf.constant(1.0).device.endswith("CPU:0")


def without_gpu(verb: str, given: str = "") -> str:
    return f"{verb}: device='gpu', but TensorFlow sees no GPU on host {HOST!r}{given}."


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="there is a GPU")
@cases(
    ExpectFail(lambda: tfs.map_blocks(lambda x: x + 1, TABLE, device="gpu"), tfs.ProgramError, without_gpu("map_blocks"), "map_blocks"),
    ExpectFail(lambda: tfs.map_rows(lambda x: x + 1, TABLE, device="gpu"), tfs.ProgramError, without_gpu("map_rows"), "map_rows"),
    ExpectFail(
        lambda: tfs.reduce_blocks(lambda x: tf.reduce_sum(x, 0), TABLE, device="gpu"),
        tfs.ProgramError,
        without_gpu("reduce_blocks"),
        "reduce_blocks",
    ),
    ExpectFail(
        lambda: tfs.aggregate(lambda x: tf.reduce_sum(x, 0), TABLE.append_column("k", [[1, 1]]), by="k", device="gpu"),
        tfs.ProgramError,
        without_gpu("aggregate"),
        "aggregate",
    ),
    ExpectFail(
        lambda: tfs.map_blocks(lambda x: x + 1, TABLE, device="tpu"),
        tfs.ProgramError,
        "map_blocks: device is 'tpu', but one of 'auto', 'cpu', 'gpu' is wanted.",
        "an unknown one",
    ),
)
def test_a_gpu_that_is_not_there_is_an_error(case):
    check(lambda call: call(), case)


def test_the_error_says_what_the_task_was_given(monkeypatch):
    monkeypatch.setattr(device, "_worker", Worker(0, (), ("7", "9"), 1))
    with pytest.raises(tfs.ProgramError) as caught, place("gpu"):
        pass
    assert str(caught.value) == f"device='gpu', but TensorFlow sees no GPU on host {HOST!r} (the task was given '7', '9')."


@pytest.mark.parametrize(
    ("worker", "asked", "reads"),
    [
        (None, "auto", False),
        (Worker(0, (), (), 1), "auto", False),
        (Worker(0, (), (), 2), "auto", True),
        (Worker(0, ("3",), ("3",), 1), "auto", True),
        (Worker(0, ("3",), ("3",), 1), "gpu", True),
        (Worker(0, ("3",), ("3",), 1), "cpu", False),
    ],
)
def test_the_next_block_is_read_meanwhile_where_a_core_is_idle(worker, asked, reads, monkeypatch):
    monkeypatch.setattr(device, "_worker", worker)
    assert device.reads_ahead(asked) is reads


def test_blocks_are_decoded_in_another_thread_where_they_are_read_ahead(monkeypatch):
    import threading

    from tensorframes import runner

    threads = []

    def noting(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return decode(*given)

    decode = runner.decode_feeds
    monkeypatch.setattr(runner, "decode_feeds", noting)
    for cores, elsewhere in ((1, 0), (2, 2)):
        threads.clear()
        monkeypatch.setattr(device, "_worker", Worker(0, (), (), cores))
        assert tfs.map_blocks(lambda x: {"z": x + 1}, TABLE, block_rows=1)["z"].to_pylist() == [2.0, 3.0]
        assert len(threads) == 2
        assert sum(thread is not threading.current_thread() for thread in threads) == elsewhere
    folded = tfs.reduce_blocks(lambda x: tf.reduce_sum(x, 0), TABLE, block_rows=1)
    grouped = tfs.aggregate(lambda x: tf.reduce_sum(x, 0), TABLE.append_column("k", [[1, 1]]), by="k")
    assert (folded, grouped["x"].to_pylist()) == (3.0, [3.0])


# --- In a fresh process, since TensorFlow is configured once ---


def run_fresh(code: str, **environment: str) -> dict[str, Any]:
    """Run code in a process of its own, which prints one value as JSON in its last line."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path, **environment}
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


ON_STAND_INS = """
import json, os, tempfile
import numpy as np, pyarrow as pa, tensorflow as tf
from pyspark_gpu_stand_in import stand_in, visible
stand_in(4)
import tensorframes as tfs
from tensorframes import device, programs
from tensorframes.device import Share, configure_worker, place

weights = np.arange(6.0).reshape(2, 3)
configure_worker(Share(cores=3, gpus=("2", "0"), gpu_tasks=1))
configure_worker(Share(cores=1, gpus=("1",), gpu_tasks=2))  # a later task changes nothing of it
found = {
    "visible": list(visible),
    "threads": [tf.config.threading.get_intra_op_parallelism_threads(), tf.config.threading.get_inter_op_parallelism_threads()],
    "worker": [device._worker.gpus, device._worker.assigned, device._worker.cores],
    "order": os.environ["CUDA_DEVICE_ORDER"],
}
with tf.device("/CPU:0"):
    held = tf.Variable(weights)
program = tfs.program(lambda v: {"z": tf.matmul(v, held)}, signature={"v": tf.TensorSpec([None, 2], tf.float64)})
table = pa.table({"v": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]})

def locks():
    return sorted(name.partition("worker")[0].split("-", 2)[2] for name in os.listdir(tempfile.gettempdir()) if name.endswith(".lock"))

for name in ("auto", "gpu", "cpu"):
    with place(name) as chosen:
        found[name] = [chosen, tf.zeros([]).device[-5:], locks()]
        with place(name) as again:
            assert again == chosen
        found[name].append(locks())
    found[name].append(locks())
    found[f"map {name}"] = tfs.map_blocks(program, table, device=name)["z"].to_pylist()
found["weights"] = sorted(value.device[-5:] for (_, key), value in programs._VALUES.items())
found["loads"] = programs.CACHE.loads
found["reduce"] = float(tfs.reduce_blocks(lambda v: tf.reduce_sum(v, axis=0), table, device="gpu").sum())
keyed = table.append_column("k", pa.array([1, 2, 1]))
found["aggregate"] = tfs.aggregate(lambda v: tf.reduce_sum(v, axis=0), keyed, by="k", device="gpu")["v"].to_pylist()
found["rows"] = tfs.map_rows(lambda v: {"s": tf.strings.as_string(tf.reduce_sum(v))}, table, device="gpu")["s"].to_pylist()
print(json.dumps(found))
"""


def test_a_worker_uses_the_gpus_of_its_first_task_and_no_other(tmp_path: Path) -> None:
    found = run_fresh(ON_STAND_INS, TMPDIR=str(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert found["visible"] == [
        "/physical_device:GPU:2",
        "/physical_device:GPU:0",
        "/physical_device:GPU:2 grows",
        "/physical_device:GPU:0 grows",
    ]
    assert found["threads"] == [3, 3]
    assert found["worker"] == [["2", "0"], ["2", "0"], 3]
    assert found["order"] == "PCI_BUS_ID"
    for name in ("auto", "gpu"):
        chosen, where, held, nested, after = found[name]
        assert (chosen, where) == ("/CPU:1", "CPU:1")
        assert [lock.rpartition("-")[0] for lock in held] == ["gpu-0", "gpu-2"]
        assert nested == held
        assert after == []
    assert found["cpu"] == ["/CPU:0", "CPU:0", [], [], []]
    for name in ("auto", "gpu", "cpu"):
        assert found[f"map {name}"] == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [3.0, 5.0, 7.0]]
    assert found["weights"] == ["CPU:0", "CPU:1"], "once on each device"
    assert found["loads"] == 2
    assert found["reduce"] == 4.0
    assert found["aggregate"] == [[2.0, 1.0], [0.0, 1.0]]
    assert found["rows"] == ["1.000000", "1.000000", "2.000000"]


WITHOUT_ADDRESSES = """
import json
from pyspark_gpu_stand_in import stand_in, visible
stand_in(2)
from tensorframes import device
device.configure_worker(device.Share())
print(json.dumps({"slot": device._worker.slot, "visible": visible, "gpus": device._worker.gpus}))
"""


def test_without_addresses_the_slot_decides() -> None:
    found = run_fresh(WITHOUT_ADDRESSES, CUDA_VISIBLE_DEVICES="4,6")
    number = found["slot"] % 2
    assert found["visible"] == [f"/physical_device:GPU:{number}", f"/physical_device:GPU:{number} grows"]
    assert found["gpus"] == ["46"[number]]


STARTED_ALREADY = """
import json
import tensorflow as tf
tf.zeros([])
from tensorframes import device
device.configure_worker(device.Share(cores=3, gpus=("0",)))
print(json.dumps({"threads": tf.config.threading.get_intra_op_parallelism_threads(), "gpus": device._worker.gpus}))
"""


def test_a_process_in_which_tensorflow_has_started_is_left_as_it_is() -> None:
    assert run_fresh(STARTED_ALREADY) == {"threads": 0, "gpus": []}


THREADS_SET = """
import json
import tensorflow as tf
from tensorframes import device
device.configure_worker(device.Share(cores=3))
print(json.dumps({"threads": tf.config.threading.get_intra_op_parallelism_threads()}))
"""


def test_threads_that_the_environment_sets_stay() -> None:
    assert run_fresh(THREADS_SET, TF_NUM_INTRAOP_THREADS="2") == {"threads": 0}


# --- On a real one ---


@pytest.mark.gpu
@pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="there is no GPU")
@pytest.mark.parametrize("asked", ["auto", "gpu"])
def test_on_a_gpu(asked: str) -> None:
    weights = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    program = tfs.program(lambda v: {"z": tf.matmul(v, weights)}, signature={"v": tf.TensorSpec([None, 2], tf.float32)})
    table = pa.table({"v": pa.array([[1.0, 0.0], [1.0, 1.0]], pa.list_(pa.float32()))})
    assert tfs.map_blocks(program, table, device=asked)["z"].to_pylist() == [[1.0, 2.0], [4.0, 6.0]]
    with place(asked):
        assert "GPU" in tf.zeros([]).device
