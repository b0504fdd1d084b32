"""A reduce depends neither on the kind of frame nor on where its batches, partitions and blocks begin and end."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorframes as tfs


@dataclass(frozen=True)
class Reducer:
    """An associative and commutative reducer: of a block, of a pair, of a pair in NumPy; and the cells that it is tried on.

    Attributes:
        block: folds a block to a cell.
        pair: folds two cells to one.
        oracle: the same in NumPy.
        draw: rows, and shape of a cell where it is free → cells.
    """

    block: Callable[[Any], Any]
    pair: Callable[[Any, Any], Any]
    oracle: Callable[[np.ndarray, np.ndarray], np.ndarray]
    draw: Callable[[np.random.Generator, int, tuple[int, ...]], np.ndarray]


def rotations(rng: np.random.Generator, rows: int, shape: tuple[int, ...]) -> np.ndarray:
    """Draw matrices [[a, -b], [b, a]], of which all commute."""
    a, b = rng.normal(size=(2, rows))
    return np.stack([np.stack([a, -b], axis=1), np.stack([b, a], axis=1)], axis=1)


def product(x: Any) -> Any:
    return tf.foldl(tf.matmul, x[1:], initializer=x[0])


REDUCERS = {
    "sum": Reducer(
        lambda x: tf.reduce_sum(x, 0), lambda a, b: a + b, np.add, lambda rng, rows, shape: rng.integers(-99, 99, size=(rows, *shape))
    ),
    "max": Reducer(
        lambda x: tf.reduce_max(x, 0), tf.maximum, np.maximum, lambda rng, rows, shape: rng.normal(size=(rows, *shape)).astype("float32")
    ),
    "matrix product": Reducer(product, tf.matmul, np.matmul, rotations),
    "log-sum-exp": Reducer(
        lambda x: tf.reduce_logsumexp(x, 0),
        lambda a, b: tf.reduce_logsumexp(tf.stack([a, b]), 0),
        np.logaddexp,
        lambda rng, rows, shape: rng.normal(size=(rows, *shape)) * 100,
    ),
    "a*b + a + b": Reducer(
        lambda x: tf.reduce_prod(1 + x, 0) - 1,
        lambda a, b: a * b + a + b,
        lambda a, b: a * b + a + b,
        lambda rng, rows, shape: rng.uniform(-1, 1, size=(rows, *shape)),
    ),
    "xor": Reducer(
        lambda x: tf.reduce_sum(tf.cast(x, tf.int32), 0) % 2 == 1,
        tf.math.logical_xor,
        np.logical_xor,
        lambda rng, rows, shape: rng.random(size=(rows, *shape)) < 0.5,
    ),
}


def as_chunks(table: pa.Table, cuts: list[int]) -> pa.Table:
    """Cut a table into chunks, some of them without rows."""
    ends = sorted(min(cut, table.num_rows) for cut in cuts)
    pieces = [table.slice(start, end - start) for start, end in zip([0, *ends], [*ends, table.num_rows], strict=True)]
    return pa.Table.from_batches([piece.combine_chunks().to_batches()[0] for piece in pieces if piece.num_rows], table.schema)


def as_pandas(table: pa.Table) -> pd.DataFrame:
    return pd.DataFrame({name: as_series(column) for name, column in zip(table.column_names, table.columns, strict=True)})


def as_series(column: pa.ChunkedArray) -> pd.Series:
    leaf = column.type
    while pa.types.is_list(leaf):
        leaf = leaf.value_type
    if leaf == column.type:
        return pd.Series(column.to_numpy())
    return pd.Series([np.array(cell, leaf.to_pandas_dtype()) for cell in column.to_pylist()])


FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "pandas": as_pandas,
    "polars": lambda table: pl.from_arrow(table, rechunk=False),
    "reader": pa.Table.to_reader,
}


def as_cells(values: np.ndarray) -> pa.Array:
    """Make an array of lists, of unknown lengths."""
    if values.ndim == 1:
        return pa.array(values)
    arrow = pa.from_numpy_dtype(values.dtype)
    for _ in values.shape[1:]:
        arrow = pa.list_(arrow)
    return pa.array(values.tolist(), arrow)


def check_close(held: Any, wanted: np.ndarray) -> None:
    assert np.asarray(held).dtype == wanted.dtype
    assert np.shape(held) == wanted.shape
    np.testing.assert_allclose(held, wanted, rtol=2e-9, atol=2e-9 if wanted.dtype.kind == "f" else 0)


def check_reduces(reducer: Reducer, make: Callable[[], Any], keys: np.ndarray, values: np.ndarray, block_rows: int | None) -> None:
    """Check all three verbs on fresh frames of keys ``k`` and values ``x``."""
    wanted = functools.reduce(reducer.oracle, values)
    check_close(tfs.reduce_blocks(lambda x: reducer.block(x), make(), block_rows=block_rows), wanted)
    check_close(tfs.reduce_rows(lambda a, b: reducer.pair(a, b), make(), "x", block_rows=block_rows), wanted)
    grouped = tfs.aggregate(lambda x: reducer.block(x), make(), by="k", block_rows=block_rows)
    found = {row["k"]: row["x"] for row in rows_of(grouped)}
    assert found.keys() == set(keys.tolist())
    for key, held in found.items():
        check_close(np.array(held, values.dtype), functools.reduce(reducer.oracle, values[keys == key]))


def rows_of(frame: Any) -> list[dict[str, Any]]:
    if isinstance(frame, pd.DataFrame):
        return frame.to_dict("records")
    if isinstance(frame, pl.DataFrame):
        return frame.to_dicts()
    return frame.read_all().to_pylist() if isinstance(frame, pa.RecordBatchReader) else frame.to_pylist()


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(REDUCERS)),
    st.sampled_from(sorted(FRAMES)),
    st.integers(1, 60),
    st.sampled_from([(), (2,), (2, 3)]),
    st.lists(st.integers(0, 60), max_size=6),
    st.sampled_from([None, 1, 2, 3, 7, 64]),
    st.integers(1, 9),
    st.integers(0, 2**32 - 1),
)
def test_a_reduce_is_a_plain_fold(
    name: str, frame: str, rows: int, shape: tuple[int, ...], cuts: list[int], block_rows: int | None, count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = REDUCERS[name].draw(rng, rows, shape)
    keys = rng.integers(count, size=rows)
    table = as_chunks(pa.table({"k": keys, "x": as_cells(values)}), cuts)
    check_reduces(REDUCERS[name], lambda: FRAMES[frame](table), keys, values, block_rows)


@pytest.mark.parametrize("partitions", [1, 5])
def test_a_reduce_on_spark_is_a_plain_fold_in_any_partitions(partitions: int, spark: Any) -> None:
    rng = np.random.default_rng(partitions)
    rows = 23
    keys = rng.integers(4, size=rows)
    values = {f"c{i}": reducer.draw(rng, rows, (2,) if i % 2 else ()) for i, reducer in enumerate(REDUCERS.values())}
    reducers = dict(zip(values, REDUCERS.values(), strict=True))
    table = pa.table({"k": keys, **{name: as_cells(cells) for name, cells in values.items()}})
    df = spark.createDataFrame(table).repartition(partitions)

    blocks = {name: as_block(name, reducer) for name, reducer in reducers.items()}
    whole = {name: functools.reduce(reducer.oracle, values[name]) for name, reducer in reducers.items()}
    held = tfs.reduce_blocks(blocks, df)
    pairs = tfs.reduce_rows({name: as_pair(name, reducer) for name, reducer in reducers.items()}, df)
    for name, wanted in whole.items():
        check_close(held[name], wanted)
        check_close(pairs[name], wanted)
    found = tfs.aggregate(blocks, df.groupBy("k")).toArrow().to_pylist()
    assert sorted(row["k"] for row in found) == sorted(set(keys.tolist()))
    for row in found:
        for name, reducer in reducers.items():
            check_close(np.array(row[name], values[name].dtype), functools.reduce(reducer.oracle, values[name][keys == row["k"]]))


def as_block(name: str, reducer: Reducer) -> Any:
    """Give the reducer's input the name of its column."""
    return with_parameters(reducer.block, [name])


def as_pair(name: str, reducer: Reducer) -> Any:
    return with_parameters(reducer.pair, [f"{name}_1", f"{name}_2"])


def with_parameters(function: Callable[..., Any], names: list[str]) -> Any:
    return eval(f"lambda {', '.join(names)}: function({', '.join(names)})", {"function": function})
