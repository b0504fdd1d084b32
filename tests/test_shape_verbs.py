"""schema, print_schema, analyze and append_shape, on every kind of local frame."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from expectations import Expect, ExpectFail, cases, check, check_refused

import tensorframes as tfs
from tensorframes.errors import ColumnError, FrameError, ShapeError


def batched(table: pa.Table) -> pa.Table:
    """Cut a table to batches of two rows, so that what is found must be merged."""
    return pa.Table.from_batches(table.to_batches(max_chunksize=2), table.schema)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]


class Stream:
    """An object that is nothing but an Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "table": batched,
    "batch": one_batch,
    "dataset": lambda table: ds.dataset(batched(table)),
    "stream": lambda table: Stream(batched(table)),
    "pandas": lambda table: table.to_pandas(),
    "polars": pl.from_arrow,
}
kinds = pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)

TABLE = pa.table(
    {
        "x": [1.0, 2.0, 3.0],
        "y": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        "z": [[1], [], [2, 3]],
        "m": pa.array([[[1], [2]], [[3], [4]], [[5, 6], [7, 8]]], pa.list_(pa.list_(pa.int32()))),
    }
)


def block(frame: Any, name: str) -> str:
    return str(tfs.schema(frame)[name].block)


# --- print_schema ---


def printed(frame: Any, capsys: pytest.CaptureFixture[str]) -> str:
    assert tfs.print_schema(frame) is None
    return capsys.readouterr().out


Y = pa.field("y", pa.list_(pa.float64()), nullable=False)


def test_print_schema(capsys):
    fields = [Y, pa.field("n", pa.int64()), pa.field("t", pa.string())]
    table = tfs.append_shape(pa.table({"y": [[1.0, 2.0]], "n": [1], "t": ["a"]}, schema=pa.schema(fields)), "y", [None, 2])
    assert printed(table, capsys) == (
        "root\n |-- y: array (nullable = false) double[?,2]\n |-- n: long (nullable = true) long[?]\n"
        " |-- t: string (nullable = true) string[?]\n"
    )


def test_print_schema_of_a_struct(capsys):
    table = pa.table({"s": pa.array([{"f": 1.0}])})
    assert printed(table, capsys) == "root\n |-- s: struct (nullable = true) <no tensor>\n"


def test_print_schema_as_the_contract_spells_it(capsys):
    table = pa.table({"y": [[1.0, 2.0]], "s": pa.array([{}], pa.struct([]))}, schema=pa.schema([Y, ("s", pa.struct([]))]))
    assert printed(tfs.append_shape(table, "y", [None, 2]), capsys) == (
        "root\n |-- y: array (nullable = false) double[?,2]\n |-- s: struct (nullable = true) <no tensor>\n"
    )


@kinds
def test_what_is_printed_is_the_schema(make, capsys):
    frame = make(TABLE)
    assert printed(frame, capsys) == f"{tfs.schema(frame)!r}\n"
    nullable = str(make in (FRAMES["table"], FRAMES["batch"], FRAMES["dataset"], FRAMES["stream"])).lower()
    assert repr(tfs.schema(frame)) == (
        f"root\n |-- x: double (nullable = {nullable}) double[?]\n |-- y: array (nullable = {nullable}) double[?,?]\n"
        f" |-- z: array (nullable = {nullable}) long[?,?]\n |-- m: array (nullable = {nullable}) int[?,?,?]"
    )


@pytest.mark.parametrize("verb", ["schema", "print_schema", "analyze"])
def test_what_is_no_frame_is_refused(verb):
    message = (
        f"{verb}: a builtins.dict is no frame; wanted is a Spark, pandas or polars DataFrame, a pyarrow Table, RecordBatch, "
        "RecordBatchReader or Dataset, or an object with __arrow_c_stream__."
    )
    check_refused(lambda: getattr(tfs, verb)({"x": [1]}), FrameError, message)


# --- analyze ---


@pytest.mark.core
@kinds
def test_analyze_notes_the_dimensions_that_all_cells_share(make):
    found = tfs.analyze(make(TABLE))
    assert [block(found, name) for name in "xyzm"] == ["float64[?]", "float64[?, 2]", "int64[?, ?]", "int32[?, 2, ?]"]
    assert isinstance(found, pa.Table if make is FRAMES["stream"] else type(make(TABLE)))


@kinds
def test_analyze_of_some_columns_and_some_rows(make):
    found = tfs.analyze(make(TABLE), columns=["z"])
    assert [block(found, name) for name in "yz"] == ["float64[?, ?]", "int64[?, ?]"]
    found = tfs.analyze(make(TABLE), columns=["z", "y"], sample=2)
    assert [block(found, name) for name in "yzm"] == ["float64[?, 2]", "int64[?, ?]", "int32[?, ?, ?]"]


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in FRAMES.items() if name != "polars"])
def test_a_sample_that_later_rows_contradict_is_believed(make):
    assert block(tfs.analyze(make(TABLE), sample=1), "z") == "int64[?, 1]"


def test_a_sample_that_later_rows_contradict_is_refused_by_polars_whose_types_hold_for_all_rows():
    message = "analyze: column 'z' is said to have cells of shape [1], but holds others: not all elements have the specified width 1."
    check_refused(lambda: tfs.analyze(FRAMES["polars"](TABLE), sample=1), ShapeError, message)


@kinds
def test_what_is_found_is_used_and_carried_on(make):
    found = tfs.analyze(make(TABLE))
    assert tfs.program(lambda y: y, frame=found).inputs["y"].shape == (None, 2)
    mapped = tfs.map_blocks(lambda y: {"w": 2.0 * y}, found)
    mapped = mapped.read_all() if isinstance(mapped, pa.RecordBatchReader) else mapped
    assert [block(mapped, name) for name in "yw"] == ["float64[?, 2]", "float64[?, 2]"]


@kinds
def test_the_frame_that_was_given_stays_as_it_was(make):
    frame = make(TABLE)
    before = copy.deepcopy(frame.attrs) if isinstance(frame, pd.DataFrame) else None
    tfs.append_shape(tfs.analyze(frame), "z", [None, None])
    assert block(frame, "y") == "float64[?, ?]"
    assert before is None or frame.attrs == before


@kinds
def test_nulls_are_passed_over(make):
    table = pa.table({"y": [[1.0, 2.0], None, [3.0, 4.0], None], "w": pa.array([None] * 4, pa.list_(pa.int8()))})
    found = tfs.analyze(make(table), columns=["y"])
    assert block(found, "y") == "float64[?, 2]"
    hidden = pa.ListArray.from_arrays(pa.array([0, 3, 5], pa.int32()), pa.array(range(5)), mask=pa.array([True, False]))
    assert block(tfs.analyze(pa.table({"h": hidden})), "h") == "int64[?, 2]"
    assert block(tfs.analyze(table), "w") == "int8[?, ?]"


def test_a_frame_without_arrays_comes_back_as_it_is():
    table = pa.table({"x": [1.0]})
    assert tfs.analyze(table) is table
    assert block(tfs.analyze(TABLE.slice(0, 0)), "y") == "float64[?, ?]"


def test_known_dimensions_are_kept():
    known = tfs.append_shape(TABLE.slice(0, 0), "y", [None, 2])
    assert block(tfs.analyze(known), "y") == "float64[?, 2]"
    assert block(tfs.analyze(pa.table({"y": pa.array([[1, 2]], pa.list_(pa.int8(), 2))})), "y") == "int8[?, 2]"


def test_known_dimensions_survive_selecting_renaming_of_others_and_parquet(tmp_path):
    found = tfs.analyze(TABLE)
    pq.write_table(found, tmp_path / "frame.parquet")
    for again in (found.select(["y"]), found.slice(1), pq.read_table(tmp_path / "frame.parquet"), ds.dataset(tmp_path / "frame.parquet")):
        assert block(again, "y") == "float64[?, 2]"
    frame = tfs.analyze(TABLE.to_pandas())
    assert block(frame[["y"]], "y") == block(frame[frame.x > 1], "y") == "float64[?, 2]"
    assert block(tfs.analyze(pl.from_arrow(TABLE)).filter(pl.col("x") > 1).rename({"y": "w"}), "w") == "float64[?, 2]"


SCHEMA = "\n  columns: x: float64[?], y: float64[?, ?], z: int64[?, ?], m: int32[?, ?, ?]"


@cases(
    ExpectFail({"columns": ["q"]}, ColumnError, "analyze: the frame has no column 'q'." + SCHEMA, "a missing column"),
    Expect({"columns": ["x"]}, TABLE, "a scalar"),
    Expect({"columns": []}, TABLE, "no columns"),
)
def test_columns_of_analyze(case):
    check(lambda options: tfs.analyze(TABLE, **options), case)


def test_a_cell_that_contradicts_what_is_known_is_refused():
    wrong = tfs.append_shape(TABLE, "z", [None, 2])
    message = "analyze: column 'z' is said to have 2 elements at level 1, but its cells hold 0 to 2."
    check_refused(lambda: tfs.analyze(wrong), ShapeError, message)


def test_a_column_that_is_no_tensor_is_refused():
    table = pa.table({"s": pa.array([{"f": [1]}])})
    for name, kind in (("s", "struct"), ("s.f", "array")):
        message = f"analyze: column {name!r} holds {kind}, which has no shape to be found."
        check_refused(lambda name=name: tfs.analyze(table, columns=[name]), ColumnError, message)


def test_a_reader_is_not_used_up():
    reader = batched(TABLE).to_reader()
    message = "analyze: a RecordBatchReader can be read once only, so that a scan would use it up.\n  Read it into a table first."
    check_refused(lambda: tfs.analyze(reader), FrameError, message)
    assert block(reader, "y") == "float64[?, ?]"
    known = tfs.append_shape(reader, "y", [None, 2])
    assert isinstance(known, pa.RecordBatchReader)
    assert block(known, "y") == "float64[?, 2]"
    assert known.read_all().num_rows == 3


# --- append_shape ---


@pytest.mark.core
@kinds
def test_append_shape(make):
    frame = make(TABLE)
    for shape in ([None, 2], (-1, 2), np.array([-1, 2])):
        assert block(tfs.append_shape(frame, "y", shape), "y") == "float64[?, 2]"
    known = tfs.append_shape(tfs.append_shape(frame, "m", [None, 2, None]), "y", [None, 2])
    assert [block(known, name) for name in "ymz"] == ["float64[?, 2]", "int32[?, 2, ?]", "int64[?, ?]"]
    assert block(tfs.append_shape(frame, tfs.schema(frame)["y"], [None, 2]), "y") == "float64[?, 2]"
    assert block(tfs.append_shape(frame, "x", [None]), "x") == "float64[?]"


def test_append_shape_takes_the_frame_s_own_columns():
    for frame, column in ((TABLE.to_pandas(), "y"), (pl.from_arrow(TABLE), "y")):
        assert block(tfs.append_shape(frame, frame[column], [None, 2]), "y") == "float64[?, 2]"


def no_dimension(given: str, dim: str) -> str:
    return f"append_shape: column 'y' wants a shape like [None, 2], but {given} is given: {dim} is no dimension."


def like(given: str) -> str:
    return f"append_shape: column 'y' wants a shape like [?, ?] but {given} is given."


@cases(
    ExpectFail(("q", [None]), ColumnError, "append_shape: the frame has no column 'q'." + SCHEMA, "a missing column"),
    ExpectFail((3, [None]), ColumnError, "append_shape: a int names no column.", "a number"),
    ExpectFail(("y", []), ShapeError, like("[]"), "no rows"),
    ExpectFail(("y", [None]), ShapeError, like("[?]"), "too few dimensions"),
    ExpectFail(("y", [None, 2, 2]), ShapeError, like("[?, 2, 2]"), "too many dimensions"),
    ExpectFail(("y", [3, 2]), ShapeError, like("[3, 2]"), "a number of rows"),
    ExpectFail(("y", [None, -2]), ShapeError, no_dimension("[None, -2]", "-2"), "a negative dimension"),
    ExpectFail(("y", [None, 2.5]), ShapeError, no_dimension("[None, 2.5]", "2.5"), "a fraction"),
    ExpectFail(("y", [None, True]), ShapeError, no_dimension("[None, True]", "True"), "a boolean"),
    ExpectFail(("y", "ab"), ShapeError, no_dimension("'ab'", "'a'"), "text"),
)
def test_wrong_shapes(case):
    check(lambda given: tfs.append_shape(TABLE, *given), case)


def test_another_known_dimension_is_refused():
    message = "append_shape: column 'y' wants a shape like [?, 2] but [?, 3] is given."
    check_refused(lambda: tfs.append_shape(tfs.analyze(TABLE), "y", [None, 3]), ShapeError, message)


def test_a_struct_has_no_shape():
    table = pa.table({"s": pa.array([{"f": [1]}])})
    message = "append_shape: column 's' holds struct, which has no shape to be noted."
    check_refused(lambda: tfs.append_shape(table, "s", [None]), ColumnError, message)
