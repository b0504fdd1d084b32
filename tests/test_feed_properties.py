"""What a feed makes of any column is what plain Python makes of it, on any frame, however its rows are divided."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tensorframes as tfs

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], Any]] = {  # dtype → its Arrow type, its values, and what stands for a null
    "bool": (pa.bool_(), st.booleans(), True),
    "int8": (pa.int8(), st.integers(-(2**7), 2**7 - 1), -3),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1), 2**31 - 1),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1), 2**53 + 1),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1), 2**64 - 1),
    "float32": (pa.float32(), st.floats(width=32), 0.5),
    "float64": (pa.float64(), st.floats(), float("-inf")),
    "string": (pa.string(), st.text(max_size=3), "é"),
}
ZEROS = {"bool": False, "string": "", "float32": 0.0, "float64": 0.0}


def as_table(table: pa.Table) -> pa.Table:
    return table


def as_pandas(table: pa.Table) -> pd.DataFrame:
    """Make objects, which hold nulls beside any values; lists stay lists."""
    return pd.DataFrame({name: pd.Series(column.to_pylist(), dtype=object) for name, column in zip(table.column_names, table, strict=True)})


FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "table": as_table,
    "polars": lambda table: pl.from_arrow(table, rechunk=False),
    "reader": pa.Table.to_reader,
}


def cells_of(frame: Any, name: str) -> list[Any]:
    frame = frame.read_all() if isinstance(frame, pa.RecordBatchReader) else frame
    if isinstance(frame, pd.DataFrame):
        return [plain(cell) for cell in frame[name]]
    return (frame.to_arrow() if isinstance(frame, pl.DataFrame) else frame)[name].to_pylist()


def plain(cell: Any) -> Any:
    """Return a cell of pandas as lists of Python's own values."""
    if isinstance(cell, np.ndarray | list):
        return [plain(value) for value in cell]
    if cell is pd.NA or cell is None:
        return None
    return cell.item() if isinstance(cell, np.generic) else cell


def nested(arrow: pa.DataType, rank: int) -> pa.DataType:
    return nested(pa.list_(arrow), rank - 1) if rank else arrow


def divided(cells: Sequence[Any], arrow: pa.DataType, cuts: Sequence[int], margin: int) -> pa.Table:
    """Make a table of one column x whose chunks are slices of larger arrays."""
    edge = [None] * margin
    whole = pa.array([*edge, *cells, *edge], arrow)
    ends = sorted({0, len(cells), *(min(cut, len(cells)) for cut in cuts)})
    chunks = [whole.slice(margin + start, end - start) for start, end in itertools.pairwise(ends)]
    return pa.table({"x": pa.chunked_array(chunks, arrow)})


def with_nulls(draw: Any, shape: Sequence[int], values: st.SearchStrategy[Any], nulls: st.SearchStrategy[bool]) -> Any:
    """Draw a cell of a shape, with nulls in place of values and of arrays."""
    if draw(nulls):
        return None
    return [with_nulls(draw, shape[1:], values, nulls) for _ in range(shape[0])] if shape else draw(values)


def has_null(cell: Any) -> bool:
    return any(map(has_null, cell)) if isinstance(cell, list) else cell is None


def filled(cell: Any, shape: Sequence[int], value: Any) -> Any:
    """Replace nulls, those of arrays by arrays of the shape."""
    if not shape:
        return value if cell is None else cell
    return [filled(None if cell is None else cell[i], shape[1:], value) for i in range(shape[0])]


def kept(x):
    return {"z": x}


def with_mask(x, x_mask):
    return {"z": x, "m": x_mask}


def same(held: Any, wanted: Any) -> bool:
    return repr(held) == repr(wanted)  # NaN is NaN, 1 is not 1.0, -0.0 is not 0.0


PROGRAMS: dict[Any, Any] = {}


def program(function: Callable[..., Any], dtype: str, shape: Sequence[int | None], rowwise: bool = False) -> Any:
    """Trace once for all examples of a kind."""
    dims = [*([] if rowwise else [None]), *shape]
    key = function.__name__, dtype, tuple(dims)
    if key not in PROGRAMS:
        names = {"x": dtype} if function is kept else {"x": dtype, "x_mask": "bool"}
        PROGRAMS[key] = tfs.program(function, signature={name: tf.TensorSpec(dims, kind) for name, kind in names.items()})
    return PROGRAMS[key]


@st.composite
def columns(draw: Any) -> tuple[str, tuple[int, ...], list[Any]]:
    """Draw a dtype, a shape of rank 0 to 4, and cells of that shape with nulls."""
    dtype = draw(st.sampled_from(sorted(VALUES)))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    nulls = st.integers(0, draw(st.sampled_from([2, 5, 1000]))).map(lambda number: number == 1)
    return dtype, shape, [with_nulls(draw, shape, VALUES[dtype][1], nulls) for _ in range(draw(st.integers(1, 7)))]


CUTS = st.lists(st.integers(0, 7), max_size=3)


@settings(deadline=None, max_examples=80)
@given(
    columns(),
    st.sampled_from(["skip", "value", "mask"]),
    st.sampled_from(sorted(FRAMES)),
    CUTS,
    st.integers(0, 2),
    st.sampled_from([None, 1, 3]),
    st.booleans(),
)
@example(("int64", (), [2**63 - 1, None]), "skip", "polars", [], 0, None, False)
@example(("float64", (2,), [None, [1.0, None]]), "mask", "table", [1], 1, None, True)
def test_an_identity_gives_what_plain_python_says(
    column: tuple[str, tuple[int, ...], list[Any]],
    policy: str,
    kind: str,
    cuts: list[int],
    margin: int,
    block_rows: int | None,
    rowwise: bool,
) -> None:
    dtype, shape, cells = column
    arrow, _, value = VALUES[dtype]
    frame = FRAMES[kind](divided(cells, nested(arrow, len(shape)), cuts, margin))
    feed = tfs.feed("x", nulls=value if policy == "value" else policy)
    # The size of a null array is declared, for a block may hold nothing else.
    fetches = program(with_mask if policy == "mask" else kept, dtype, shape, rowwise)
    held = (tfs.map_rows if rowwise else tfs.map_blocks)(fetches, frame, {"x": feed}, block_rows=block_rows)
    held = held.read_all() if isinstance(held, pa.RecordBatchReader) else held
    if policy == "skip":
        assert same(cells_of(held, "z"), [None if has_null(cell) else cell for cell in cells])
    else:
        stands = value if policy == "value" else ZEROS.get(dtype, 0)
        assert same(cells_of(held, "z"), [filled(cell, shape, stands) for cell in cells])
    if policy == "mask":
        assert same(cells_of(held, "m"), [present(cell, shape) for cell in cells])


def present(cell: Any, shape: Sequence[int]) -> Any:
    if not shape:
        return cell is not None
    return [present(None if cell is None else cell[i], shape[1:]) for i in range(shape[0])]


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(["int64", "string", "bool"]),
    st.integers(0, 2),
    st.sampled_from(["skip", "value", "mask"]),
    st.data(),
)
def test_objects_of_pandas_are_fed_as_arrow_is(dtype: str, rank: int, policy: str, data: st.DataObject) -> None:
    arrow, values, value = VALUES[dtype]
    shape = (2,) * rank
    cells = [with_nulls(data.draw, shape, values, st.integers(0, 4).map(lambda number: number == 1)) for _ in range(4)]
    cells.append(filled(None, shape, value))  # so that pandas tells the type
    table = divided(cells, nested(arrow, rank), [], 0)
    fetches, feed = (
        program(with_mask if policy == "mask" else kept, dtype, shape),
        tfs.feed("x", nulls=value if policy == "value" else policy),
    )
    held, wanted = (tfs.map_blocks(fetches, native, {"x": feed}) for native in (as_pandas(table), table))
    for name in fetches.outputs:
        assert same(cells_of(held, name), cells_of(wanted, name))


def ragged_cells(rank: int, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(ragged_cells(rank - 1, values), max_size=3) if rank else values


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(["bool", "int64", "float32", "string"]),
    st.integers(1, 3),
    st.data(),
    st.sampled_from(sorted(FRAMES)),
    CUTS,
    st.integers(0, 2),
    st.sampled_from([None, 1, 3]),
)
def test_ragged_cells_come_back_as_they_went_in(
    dtype: str, rank: int, data: st.DataObject, kind: str, cuts: list[int], margin: int, block_rows: int | None
) -> None:
    arrow, values, _ = VALUES[dtype]
    cells = data.draw(st.lists(ragged_cells(rank, values), min_size=1, max_size=6))
    key = "ragged", dtype, rank
    if key not in PROGRAMS:
        PROGRAMS[key] = tfs.program(kept, signature={"x": tf.RaggedTensorSpec([None] * (rank + 1), dtype)})
    frame = FRAMES[kind](divided(cells, nested(arrow, rank), cuts, margin))
    held = tfs.map_blocks(PROGRAMS[key], frame, {"x": tfs.feed("x", ragged=True)}, block_rows=block_rows)
    assert same(cells_of(held, "z"), cells)


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(["bool", "int64", "float64", "string"]),
    st.integers(1, 2),
    st.data(),
    st.sampled_from(sorted(FRAMES)),
    CUTS,
    st.integers(0, 2),
    st.booleans(),
)
def test_padding_is_numpys(dtype: str, rank: int, data: st.DataObject, kind: str, cuts: list[int], margin: int, is_declared: bool) -> None:
    arrow, values, pad = VALUES[dtype]
    cells = data.draw(st.lists(ragged_cells(rank, values), min_size=1, max_size=6))
    # Padded to the longest of the block, which is the table, for its batches are small; or to a declared size.
    sizes = (
        [4] * rank if is_declared else [max((size for cell in cells for size in lengths(cell, depth)), default=0) for depth in range(rank)]
    )
    frame = FRAMES[kind](divided(cells, nested(arrow, rank), cuts if is_declared else [], margin))
    fetches = program(kept, dtype, [4] * rank if is_declared else [None] * rank)
    held = tfs.map_blocks(fetches, frame, {"x": tfs.feed("x", pad=pad)})
    assert same(cells_of(held, "z"), [padded(cell, sizes, pad).tolist() for cell in cells])


def lengths(cell: Any, depth: int) -> list[int]:
    return [len(cell)] if depth == 0 else [size for inner in cell for size in lengths(inner, depth - 1)]


def padded(cell: Any, sizes: Sequence[int], pad: Any) -> Any:
    if not sizes:
        return cell
    whole = np.full(sizes, pad, dtype=object)
    for place, inner in enumerate(cell):
        whole[place] = padded(inner, sizes[1:], pad)
    return whole


REDUCED = {
    "skip": ((), {"nulls": "skip"}),
    "value": ((), {"nulls": 7}),
    "arrays skipped": ((2,), {"nulls": "skip"}),
    "arrays replaced": ((2,), {"nulls": 7}),
    "padded": (None, {"pad": 0, "nulls": 0}),
    "cast": ((), {"nulls": "skip", "dtype": "int32"}),
}


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(sorted(REDUCED)), st.data(), CUTS, st.sampled_from([None, 1, 2, 3]), st.sampled_from(sorted(FRAMES)))
def test_reduces_do_not_depend_on_the_division_into_blocks(
    name: str, data: st.DataObject, cuts: list[int], block_rows: int | None, kind: str
) -> None:
    shape, options = REDUCED[name]
    cells, keys = [], []
    for _ in range(data.draw(st.integers(1, 7))):
        length = data.draw(st.integers(0, 3)) if shape is None else None
        cells.append(
            with_nulls(data.draw, (length,) if shape is None else shape, st.integers(-99, 99), st.integers(0, 4).map(lambda n: n == 1))
        )
        keys.append(data.draw(st.integers(0, 2)))
    width = 1 if shape is None or shape else 0
    table = divided(cells, nested(pa.int64(), width), cuts, 1).add_column(0, "k", [keys])
    feed = {"x": tfs.feed("x", **options)}
    dims, dtype = [3] if shape is None else [*shape], options.get("dtype", "int64")
    wanted = {
        key: folded([cell for other, cell in zip(keys, cells, strict=True) if key in (other, None)], dims, options) for key in [None, *keys]
    }
    for verb, fetches in ((tfs.reduce_blocks, summed(dtype, dims)), (tfs.reduce_rows, added(dtype, dims))):
        try:
            held = verb(fetches, FRAMES[kind](table), feed, block_rows=block_rows)["x"]
        except tfs.EmptyFrameError:
            held = None
        assert (None if held is None else held.tolist()) == wanted[None]
    grouped = tfs.aggregate(summed(dtype, dims), FRAMES[kind](table), feed, by="k")
    grouped = grouped.read_all() if isinstance(grouped, pa.RecordBatchReader) else grouped
    assert dict(zip(cells_of(grouped, "k"), cells_of(grouped, "x"), strict=True)) == {key: wanted[key] for key in keys}


def folded(cells: Sequence[Any], dims: Sequence[int], options: dict[str, Any]) -> Any:
    """Sum cells, nulls left out or replaced; None where none is left."""
    if options["nulls"] == "skip":
        cells = [cell for cell in cells if not has_null(cell)]
    else:
        longer = [None if cell is None else [*cell, *[0] * (3 - len(cell))] if "pad" in options else cell for cell in cells]
        cells = [filled(cell, dims, options["nulls"]) for cell in longer]
    return np.sum(np.array(cells, dtype=np.int64), axis=0).tolist() if cells else None


def summed(dtype: str, dims: Sequence[int]) -> Any:
    key = "sum", dtype, tuple(dims)
    if key not in PROGRAMS:
        PROGRAMS[key] = tfs.program(lambda x: {"x": tf.reduce_sum(x, 0)}, signature={"x": tf.TensorSpec([None, *dims], dtype)})
    return PROGRAMS[key]


def added(dtype: str, dims: Sequence[int]) -> Any:
    key = "add", dtype, tuple(dims)
    if key not in PROGRAMS:
        PROGRAMS[key] = tfs.program(
            lambda x_1, x_2: {"x": x_1 + x_2}, signature={name: tf.TensorSpec(dims, dtype) for name in ("x_1", "x_2")}
        )
    return PROGRAMS[key]
