"""Shipping: a function's large values go to Spark's workers as files, once per node.

Spark sends a function to every task, or broadcasts it to every job anew. Large blobs in it are put into files instead, which Spark's own
distribution of files takes to each node once: ``addFile``, and artifacts on Connect. A file is named after the digests of what it
holds, so that no session distributes one twice, and a worker maps it into memory when it loads what is in it.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import pickle
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import SparkFiles, cloudpickle
from pyspark.sql import SparkSession

from tensorframes.blobs import Blob, FilePart

_SMALLEST = 2**12
_SHARE_OF_OWN_FILE = 8
_ALIGNMENT = 64

Places = dict[Blob, tuple[str, int]]
"""Blob → the file that it is in, and where it begins."""


def shipped(function: Any, session: SparkSession, inline_bytes: int) -> Any:
    """Return a function that can be sent to workers without its large blobs; the same one, if they are not large together.

    Args:
        function: picklable; called in workers.
        session: distributes the files.
        inline_bytes: how many bytes of blobs may stay inside.
    """
    blobs = _blobs_in(function)
    if sum(blob.nbytes for blob in blobs) <= inline_bytes:
        return function
    least = inline_bytes // _SHARE_OF_OWN_FILE
    small = [blob for blob in blobs if blob.nbytes < least]
    files = [[blob] for blob in blobs if blob.nbytes >= least]
    if sum(blob.nbytes for blob in small) > inline_bytes:
        files.append(small)
    places: Places = {}
    for held in files:
        name = _distribute(session, held)
        places |= {blob: (name, offset) for blob, offset in _layout(held)}
    buffer = io.BytesIO()
    _Pickler(buffer, places.get).dump(function)  # type: ignore[no-untyped-call]
    return Shipped(buffer.getvalue())


@dataclass(frozen=True, slots=True)
class Shipped:
    """A function whose large blobs are in files of the session.

    Attributes:
        pickled: the function, less these blobs.
    """

    pickled: bytes

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        return _Unpickler(io.BytesIO(self.pickled)).load()(*args)


class _Pickler(cloudpickle.Pickler):
    """Pickles all but the blobs that have a place elsewhere."""

    def __init__(self, buffer: io.BytesIO, place: Callable[[Blob], tuple[str, int] | None]) -> None:
        super().__init__(buffer)  # type: ignore[no-untyped-call]
        self._place = place

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, Blob):
            return None
        place = self._place(value)
        return None if place is None else (value.digest, value.nbytes, *place)


class _Unpickler(pickle.Unpickler):
    """Finds the blobs that were left out in files of the session."""

    def persistent_load(self, found: Any) -> Blob:
        digest, nbytes, name, offset = found
        return Blob(digest, nbytes, FilePart(functools.partial(SparkFiles.get, name), offset))


def _blobs_in(function: Any) -> list[Blob]:
    """List what a function holds of blobs that are worth a place in a file, each once, in the order of their digests."""
    found: dict[Blob, None] = {}

    def note(blob: Blob) -> tuple[str, int] | None:
        if blob.nbytes < _SMALLEST:
            return None
        found[blob] = None
        return "", 0

    _Pickler(io.BytesIO(), note).dump(function)  # type: ignore[no-untyped-call]
    return sorted(found, key=lambda blob: blob.digest)


def _layout(blobs: Sequence[Blob]) -> Iterator[tuple[Blob, int]]:
    offset = 0
    for blob in blobs:
        yield blob, offset
        offset += -(-blob.nbytes // _ALIGNMENT) * _ALIGNMENT


_distributed: weakref.WeakKeyDictionary[SparkSession, set[str]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _distribute(session: SparkSession, blobs: Sequence[Blob]) -> str:
    """Have a session's workers find blobs in one file; returns its name."""
    digest = hashlib.sha256("".join(blob.digest for blob in blobs).encode()).hexdigest()
    name = f"tensorframes-{digest}"
    with _lock:
        if _is_classic(session):
            context = session.sparkContext
            folder = SparkFiles.getRootDirectory()  # of the driver, removed by Spark at the end of the session
            path = os.path.join(folder, name)
            if not any(os.path.basename(file) == name for file in context.listFiles):
                _write(path, blobs)
                context.addFile(path)
        elif name not in _distributed.setdefault(session, set()):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, name)
                _write(path, blobs)
                session.addArtifacts(path, file=True)
            _distributed[session].add(name)
    return name


def _is_classic(session: SparkSession) -> bool:
    return type(session).__module__ == SparkSession.__module__


def _write(path: str, blobs: Sequence[Blob]) -> None:
    with open(path, "wb") as file:
        for blob, offset in _layout(blobs):
            file.write(bytes(offset - file.tell()))
            file.write(blob.view())
