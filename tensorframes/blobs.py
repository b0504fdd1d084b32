"""Blobs: immutable bytes, known by their digest, which are held here or lie in a file that travels beside them.

Knows no program and no frame: a program consists of blobs, and a frame whose rows are computed elsewhere may put large ones into files.
The one law: equal bytes have equal digests, so that nothing is sent or loaded twice.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes of a file, which is opened when they are read.

    Attributes:
        locate: gives the file's path, where the bytes are read.
        offset: where they begin.
    """

    locate: Callable[[], str]
    offset: int = 0

    def view(self, nbytes: int) -> memoryview:
        """Map so many bytes of the file into memory; processes of one host that read the same file share it."""
        with open(self.locate(), "rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[self.offset : self.offset + nbytes]


@dataclass(frozen=True, slots=True)
class Blob:
    """Immutable bytes; equal to all of the same digest.

    Attributes:
        digest: their SHA-256.
        nbytes: how many there are.
        source: the bytes, or where they lie.
    """

    digest: str
    nbytes: int
    source: bytes | FilePart = field(repr=False, compare=False)

    def view(self) -> memoryview:
        """Return the bytes, from their file if need be."""
        return memoryview(self.source) if isinstance(self.source, bytes) else self.source.view(self.nbytes)


def as_blob(data: bytes) -> Blob:
    """Return bytes as a blob."""
    return Blob(hashlib.sha256(data).hexdigest(), len(data), data)
