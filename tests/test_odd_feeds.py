"""Feeds on odd columns: what trying to break them showed."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf
from expectations import Expect, ExpectFail, cases, check

import tensorframes as tfs
from tensorframes.columns import VECTOR


def kept(x):
    return {"z": x}


def total(x):
    return {"x": tf.reduce_sum(x, 0)}


@tf.function(input_signature=[tf.TensorSpec([None], tf.complex64)])
def real(x):
    return {"z": tf.math.real(x)}


def sums(x):
    return {"z": tf.ensure_shape(tf.sparse.reduce_sum(x, axis=1), [None])}


def table(cells: Any, kind: Any = None) -> pa.Table:
    return pa.table({"x": cells if isinstance(cells, pa.Array | pa.ChunkedArray) else pa.array(cells, kind)})


def mapped(cells: Any, kind: Any = None, verb: Any = tfs.map_blocks, fetches: Any = kept, **options: Any) -> Any:
    return verb(fetches, table(cells, kind), {"x": tfs.feed("x", **options)})["z"].to_pylist()


def decimals(text: str, kind: Any = pa.decimal128(38, 25)) -> pa.Array:  # noqa: B008
    return pa.array([Decimal(text)], kind)


def misfit(dtype: str, value: str) -> str:
    return f"map_blocks: input 'x' wants {dtype} but column 'x' holds {value} in row 0 of the block, which {dtype} cannot hold."


def small_dictionaries(prefix: str) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), pa.array([f"{prefix}{i}" for i in range(100)]))


def in_lists(array: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(len(array) + 1), pa.int32()), array)


NULL_IN_DICTIONARY = pa.ListArray.from_arrays(
    [0, 2, 3], pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["a", None]))
)
TENSORS = pa.ExtensionArray.from_storage(
    pa.fixed_shape_tensor(pa.float64(), [2, 3]), pa.array([[1.0] * 6, None], pa.list_(pa.float64(), 6))
)
WIDE = [{"type": 0, "size": 2**18, "indices": [1], "values": [5.0]}, None] * 4500
DENSE = {"type": 1, "size": None, "indices": None, "values": [1.0, 2.0, 3.0]}
BROKEN = {"type": 0, "size": 3, "indices": [5], "values": [5.0]}
TRIPLES = pa.list_(pa.list_(pa.int64(), 3))
UNKNOWN_LENGTH = (
    "column 'x' holds a null array in row {} of the block, whose length, when it is padded in a reduce, would depend on the block.\n"
    "  Skip such rows with nulls='skip', or note the shape: tfs.append_shape(frame, 'x', [None, …])."
)


@cases(
    ExpectFail(
        lambda: mapped(decimals("1e39", pa.decimal256(45, 0)), dtype="float32"),
        tfs.DTypeError,
        misfit("float32", "1" + "0" * 39),
        "a decimal too large for a float",
    ),
    ExpectFail(
        lambda: mapped(decimals("1.0000000000000000000001"), dtype="bool"),
        tfs.DTypeError,
        misfit("bool", "1.0000000000000000000001000"),
        "a decimal that is nearly 1, as a boolean",
    ),
    Expect(lambda: mapped(decimals("1"), dtype="bool"), [True], "a decimal as a boolean"),
    Expect(
        lambda: mapped(pa.array([Decimal("1.5"), None]).dictionary_encode(), dtype="float64", nulls="skip"),
        [1.5, None],
        "dictionary of decimals",
    ),
    ExpectFail(
        lambda: tfs.map_blocks(real, table([1e300, 1.0])),
        tfs.DTypeError,
        misfit("complex64", "1e+300"),
        "a double too large for a declared complex",
    ),
    ExpectFail(
        lambda: mapped([2**62], pa.timestamp("s")),
        tfs.DTypeError,
        f"map_blocks: column 'x' holds {2**62} s since 1970 in row 0 of the block, which lies beyond 64-bit microseconds.",
        "a second beyond all microseconds",
    ),
    Expect(lambda: mapped(["a", None], pa.string_view(), nulls="?"), ["a", "?"], "views of text"),
    Expect(lambda: mapped(["a", None], pa.string_view(), nulls="skip"), ["a", None], "views of text, skipped"),
    Expect(
        lambda: mapped([["a", None], None], pa.list_(pa.string_view()), tfs.map_rows, nulls="?", ragged=True),
        [["a", "?"], []],
        "lists of views",
    ),
    Expect(
        lambda: tfs.map_blocks(
            lambda s, x: {"z": s},
            pa.table({"s": pa.array(["a", "b"], pa.string_view()), "x": [1, None]}),
            {"x": tfs.feed("x", nulls="skip")},
        )["z"].to_pylist(),
        ["a", None],
        "views of text beside skipped rows",
    ),
    Expect(lambda: mapped(NULL_IN_DICTIONARY, verb=tfs.map_rows, nulls="?"), [["a", "?"], ["a"]], "a null in a dictionary, by rows"),
    Expect(
        lambda: mapped(pa.array([[[1, 2, 3]], None, []], TRIPLES), verb=tfs.map_rows, ragged=True, nulls=0),
        [[[1, 2, 3]], [], []],
        "a null ragged cell of a known inner size, by rows",
    ),
    Expect(lambda: mapped(TENSORS, ragged=True, nulls=9), [[[1.0] * 3] * 2, []], "a null tensor, ragged"),
    Expect(lambda: mapped(TENSORS, verb=tfs.map_rows, ragged=True, nulls=9), [[[1.0] * 3] * 2, []], "a null tensor, ragged, by rows"),
    Expect(
        lambda: len(mapped(pa.chunked_array([in_lists(small_dictionaries("a")), in_lists(small_dictionaries("b"))]), verb=tfs.map_rows)),
        200,
        "chunks of lists of dictionaries that are small each",
    ),
    Expect(
        lambda: mapped(WIDE, VECTOR, fetches=sums, sparse=True, nulls="skip")[:3], [5.0, None, 5.0], "wide sparse vectors, nulls skipped"
    ),
    Expect(lambda: mapped(WIDE, VECTOR, fetches=sums, sparse=True, nulls=0)[:3], [5.0, 0.0, 5.0], "wide sparse vectors, nulls as zeros"),
    ExpectFail(
        lambda: tfs.map_blocks(
            lambda x, y: {"z": x},
            pa.table({"x": pa.array([DENSE, DENSE, DENSE, BROKEN], VECTOR), "y": [None, None, 1.0, 2.0]}),
            {"y": tfs.feed("y", nulls="skip")},
        ),
        tfs.ShapeError,
        "map_blocks: column 'x' holds a sparse vector of size 3 with index 5 in row 3 of the block.",
        "the row of a malformed vector behind skipped ones",
    ),
    ExpectFail(
        lambda: tfs.reduce_blocks(total, table([[1, 2], None, [3, 4]]), tfs.feed("x", pad=0, nulls=10)),
        tfs.NullError,
        "reduce_blocks: " + UNKNOWN_LENGTH.format(1),
        "a null array that is padded in a reduce",
    ),
    ExpectFail(
        lambda: tfs.aggregate(total, table([None, [1]]).append_column("k", pa.array([1, 1])), tfs.feed("x", pad=0, nulls=10), by="k"),
        tfs.NullError,
        "aggregate: " + UNKNOWN_LENGTH.format(0),
        "a null array that is padded in an aggregate",
    ),
    Expect(
        lambda: tfs.reduce_blocks(
            total, tfs.append_shape(table([[1, 2], None, [3, 4]]), "x", [None, 2]), tfs.feed("x", pad=0, nulls=10), block_rows=1
        )["x"].tolist(),
        [14, 16],
        "a null array of a known size, padded in a reduce",
    ),
)
def test_arrow(case: Expect | ExpectFail) -> None:
    check(lambda call: call(), case)


@pytest.mark.parametrize(
    "cells",
    [[np.array([[2**53 + 1]]), np.array([[0.5]])], [np.array([[1]]), np.array([["b"]])], [np.array([[True]]), np.array([[2]])]],
    ids=["integer and float", "number and text", "boolean and integer"],
)
def test_pandas_cells_of_several_dtypes_are_no_tensor(cells: list[np.ndarray]) -> None:
    message = "map_blocks: input 'x' reads column 'x', whose type object no tensor holds."
    check(lambda _: tfs.map_blocks(kept, pd.DataFrame({"x": cells})), ExpectFail(None, tfs.DTypeError, message, ""))


def test_null_and_nan_stay_apart_in_half_precision_on_pandas() -> None:
    frame = pd.DataFrame({"x": pd.array([0, 1, None], "Float32")})
    held = tfs.map_blocks(lambda x: {"z": tf.cast(x * 0 / x, tf.float16)}, frame, tfs.feed("x", nulls="skip"))["z"]
    assert held.dtype == pd.Float32Dtype()
    assert np.isnan(held[0])
    assert held[1] == 0.0
    assert held[2] is pd.NA


def test_null_cells_of_several_dimensions_on_polars() -> None:
    frame = pl.DataFrame({"x": [1.0, None]})
    held = tfs.map_blocks(lambda x: {"z": tf.reshape(tf.repeat(x, 12), [-1, 2, 3, 2])}, frame, tfs.feed("x", nulls="skip"))
    assert held.schema["z"] == pl.Array(pl.Float64, (2, 3, 2))
    assert held["z"].to_list() == [[[[1.0] * 2] * 3] * 2, None]


@cases(
    ExpectFail(
        lambda: mapped([[1]], pad=True),
        tfs.DTypeError,
        "map_blocks: input 'x' is int64, of which pad=True is none.",
        "a boolean to pad numbers",
    ),
    ExpectFail(
        lambda: tfs.feed("x", nulls="skipp"),
        tfs.ProgramError,
        "feed: the feed of column 'x' has nulls='skipp'; 'skip' is the policy.\n"
        "  If this text is to stand for each null, give it as bytes: nulls=b'skipp'.",
        "a policy with a slip",
    ),
    Expect(
        lambda: tfs.map_blocks(
            lambda a, a_mask, b: {"z": tf.where(a_mask, a, b)}, pa.table({"x": [1, None], "y": [3, 4]}), [tfs.feed("x", nulls="mask"), "y"]
        )["z"].to_pylist(),
        [1, 4],
        "by position, a mask has no place of its own",
    ),
)
def test_options(case: Expect | ExpectFail) -> None:
    check(lambda call: call(), case)
