"""Turns between real processes, which may die in one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tensorframes.turns import take_slot, turn

HOLDER = """
import sys
from tensorframes.turns import take_slot, turn
if sys.argv[1] == "slot":
    print(take_slot(), flush=True)
    sys.stdin.read()
else:
    with turn(sys.argv[1]):
        print("in", flush=True)
        sys.stdin.read()
print("out", flush=True)
"""

COUNTER = """
import sys
from pathlib import Path
from tensorframes.turns import turn
path = Path(sys.argv[2])
for _ in range(200):
    with turn(sys.argv[1]):
        path.write_text(str(int(path.read_text()) + 1))  # two at a time would lose some
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let this process and its children have a folder of their own for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@contextmanager
def holder(name: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process that is in a turn, or has a slot, until its input ends or it is killed."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def let_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def test_one_process_at_a_time_and_no_file_is_left_behind(tmp_path: Path, temporary: Path) -> None:
    count = tmp_path / "count"
    count.write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", COUNTER, "gpu-0", str(count)]) for _ in range(4)]
    assert [process.wait(120) for process in processes] == [0] * 4
    assert count.read_text() == "800"
    assert list(temporary.iterdir()) == []


def test_a_turn_of_another_name_is_free() -> None:
    with holder("gpu-0") as process, turn("gpu-1"):
        assert said(process) == "in"


def test_the_next_one_waits_until_the_last_one_is_out() -> None:
    with holder("gpu-0") as first:
        assert said(first) == "in"
        with holder("gpu-0") as second:
            let_go(first)
            assert said(first) == "out"
            assert said(second) == "in"
            let_go(second)
            assert said(second) == "out"


def test_a_holder_that_is_killed_blocks_nobody(temporary: Path) -> None:
    with holder("gpu-0") as process:
        assert said(process) == "in"
        process.kill()
        process.wait()
        assert len(list(temporary.iterdir())) == 1
        with turn("gpu-0"):
            pass
    assert list(temporary.iterdir()) == [], "who comes next tidies up"


def test_a_turn_is_over_when_what_was_done_in_it_fails(temporary: Path) -> None:
    with pytest.raises(ZeroDivisionError), turn("gpu-0"):
        1 / 0  # noqa: B018
    with turn("gpu-0"):
        pass
    assert list(temporary.iterdir()) == []


def test_a_file_that_others_removed_is_not_removed_twice(temporary: Path) -> None:
    with turn("gpu-0"):
        (held,) = temporary.iterdir()
        held.unlink()
        held.write_text("another's")
    assert held.read_text() == "another's"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process's number stands for its slot")
def test_processes_have_slots_of_their_own_that_are_free_when_they_are_dead(temporary: Path) -> None:
    with holder("slot") as one, holder("slot") as two:
        first, second = int(said(one)), int(said(two))
        mine = take_slot()
        assert len({first, second, mine}) == 3
        one.kill()
        one.wait()
        with holder("slot") as three:
            assert int(said(three)) <= max(first, second, mine)
            assert list(temporary.iterdir()) == []
