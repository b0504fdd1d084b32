"""Turns: how many processes of a host do something at a time, and which of them a process is.

Knows nothing of what they do. The one law: what a process holds is free as soon as it is dead, however it died.
"""

from __future__ import annotations

import errno
import os
import platform
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def turn(name: str) -> Iterator[None]:
    """Wait until no other process of this user on this host is in the turn of that name, and keep others out of it.

    A lock on a file, which the system gives up when the process that holds it dies. The file is removed by whoever had it last; a
    waiter that finds its file removed takes the next one.
    """
    import fcntl  # here, since Windows has none

    path = os.path.join(tempfile.gettempdir(), f"tensorframes-{os.getuid()}-{name}.lock")
    while True:
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            if _is_file(path, held):
                break
        except BaseException:
            os.close(held)
            raise
        os.close(held)
    try:
        yield
    finally:
        if _is_file(path, held):
            os.unlink(path)
        os.close(held)


def _is_file(path: str, held: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(held))
    except FileNotFoundError:
        return False


_slots: list[socket.socket] = []


def take_slot() -> int:
    """Return the least number that no other worker process of this user on this host has, and hold it as long as this process lives.

    A number is the name of a socket in Linux' abstract namespace, which leaves no file behind and is free when the process is gone.
    """
    if platform.system() != "Linux":
        return os.getpid()
    slot = 0
    while True:
        held = socket.socket(socket.AF_UNIX)
        try:
            held.bind(f"\0tensorframes-{os.getuid()}-worker-{slot}")
        except OSError as error:
            held.close()
            if error.errno != errno.EADDRINUSE:
                raise
            slot += 1
            continue
        _slots.append(held)
        return slot
