"""Blobs: known by their digest, held or in files."""

import functools
import hashlib
import pickle
from pathlib import Path

from tensorframes.blobs import Blob, FilePart, as_blob


def test_equal_bytes_are_equal_blobs():
    blob = as_blob(b"abc")
    assert (blob.digest, blob.nbytes) == (hashlib.sha256(b"abc").hexdigest(), 3)
    assert blob == as_blob(bytes(bytearray(b"abc")))
    assert hash(blob) == hash(as_blob(b"abc"))
    assert blob != as_blob(b"abd")
    assert bytes(as_blob(b"").view()) == b""


def test_a_blob_prints_no_bytes():
    assert repr(as_blob(b"abc")) == f"Blob(digest='{hashlib.sha256(b'abc').hexdigest()}', nbytes=3)"


def test_a_blob_in_a_file_is_read_when_it_is_looked_at(tmp_path: Path):
    held = as_blob(b"cdef")
    path = tmp_path / "held"
    blob = Blob(held.digest, 4, FilePart(functools.partial(str, path), 2))
    assert blob == held
    path.write_bytes(b"abcdefgh")
    assert bytes(blob.view()) == b"cdef"
    assert bytes(pickle.loads(pickle.dumps(blob)).view()) == b"cdef"
    assert blob.view().readonly
