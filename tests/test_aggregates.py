"""aggregate, on every kind of frame and by every kind of grouping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf
from expectations import ExpectFail, cases, check, check_refused
from flavours import Columns, Flavour, as_table, check_same_table, plain
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorframes as tfs
from tensorframes import combine as combine_room
from tensorframes.ops import aggregates as aggregates_room
from tensorframes.programs import Program
from tensorframes.reductions import known_reductions

NAN, INF = float("nan"), float("inf")


def total(x):
    return {"x": tf.reduce_sum(x, 0)}


def by_chunks(x):
    """The same, but known to no segment operation."""
    return {"x": tf.reduce_sum(x + x, 0) - tf.reduce_sum(x, 0)}


# What is not vectorized warns, once for each program.
slow = pytest.mark.filterwarnings("ignore:aggregate. TensorFlow cannot vectorize:UserWarning")


def lines(*text: str) -> str:
    return "\n".join(text)


# What each library calls a grouping; the others have `by=` only.
GROUPINGS: dict[str, Callable[..., Any]] = {
    "table": lambda frame, keys: frame.group_by(keys),
    "pandas": lambda frame, keys: frame.groupby(keys, dropna=False),
    "polars": lambda frame, keys: frame.group_by(keys),
    "spark": lambda frame, keys: frame.groupBy(*keys),
}


def aggregated(fetches: Any, frame: Flavour, columns: Columns, keys: Sequence[str], feed_dict: Any = None) -> Any:
    """Aggregate by the library's own grouping, or by `by=` where it has none."""
    native = frame.make(columns)
    if frame.name in GROUPINGS:
        return tfs.aggregate(fetches, GROUPINGS[frame.name](native, list(keys)), feed_dict)
    return tfs.aggregate(fetches, native, feed_dict, by=list(keys))


def check_rows(held: pa.Table, wanted: Columns) -> None:
    """Check a result's columns, types and rows, whatever their order."""
    check_same_table(in_order(held), in_order(plain(as_table(wanted))))


def in_order(table: pa.Table) -> pa.Table:
    rows = table.to_pylist()
    return table.take(pa.array(sorted(range(len(rows)), key=lambda row: repr(rows[row])), pa.int64()))


SALES = {"k": ["b", "a", "b", "c", "a", "b", "c", "b"], "n": [1, 1, 2, 1, 1, 2, 2, 1], "x": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]}


@pytest.mark.core
def test_one_key(frame: Flavour) -> None:
    wanted = {"k": ["a", "b", "c"], "x": [18.0, 165.0, 72.0]}
    check_rows(frame.read(aggregated(total, frame, SALES, ["k"])), wanted)


def test_by_names_the_keys(frame: Flavour) -> None:
    check_rows(frame.read(tfs.aggregate(total, frame.make(SALES), by="k")), {"k": ["a", "b", "c"], "x": [18.0, 165.0, 72.0]})
    check_rows(frame.read(tfs.aggregate(total, frame.make(SALES), by=("n",))), {"n": [1, 2], "x": [155.0, 100.0]})


@pytest.mark.core
def test_two_keys_and_several_outputs(frame: Flavour) -> None:
    def fetches(x, most):
        return {"most": tf.reduce_max(most, 0), "x": tf.reduce_sum(x, 0)}

    held = frame.read(aggregated(fetches, frame, SALES, ["n", "k"], {"most": "x"}))
    wanted = {
        "n": [1, 1, 1, 2, 2],
        "k": ["a", "b", "c", "b", "c"],
        "most": [16.0, 128.0, 8.0, 32.0, 64.0],
        "x": [18.0, 129.0, 8.0, 36.0, 64.0],
    }
    check_rows(held, wanted)


def test_the_general_path_gives_the_same(frame: Flavour) -> None:
    check_rows(frame.read(aggregated(by_chunks, frame, SALES, ["k"])), {"k": ["a", "b", "c"], "x": [18.0, 165.0, 72.0]})


@pytest.mark.core
def test_null_is_a_key_of_its_own(frame: Flavour) -> None:
    columns = {"k": ["a", None, "", None, "a"], "i": [0, None, 0, 1, 0], "x": [1.0, 2.0, 4.0, 8.0, 16.0]}
    held = frame.read(aggregated(total, frame, columns, ["k", "i"]))
    check_rows(held, {"k": ["a", None, "", None], "i": [0, None, 0, 1], "x": [17.0, 2.0, 4.0, 8.0]})


def test_one_zero_and_one_nan(frame: Flavour) -> None:
    columns = {"k": [0.0, NAN, -0.0, NAN, 1.0], "x": [1.0, 2.0, 4.0, 8.0, 16.0]}
    held = frame.read(aggregated(by_chunks, frame, columns, ["k"]))
    check_rows(held, {"k": [0.0, NAN, 1.0], "x": [5.0, 10.0, 16.0]})


def test_float_keys_are_grouped_as_spark_groups_them(spark: Any) -> None:
    columns = {"k": [0.0, NAN, -0.0, None, NAN, None, 1.0], "x": [float(2**i) for i in range(7)]}
    df = spark.createDataFrame(as_table(columns)).repartition(3)
    wanted = plain(df.groupBy("k").sum("x").withColumnRenamed("sum(x)", "x").toArrow())
    check_rows(plain(tfs.aggregate(total, df.groupBy("k")).toArrow()), dict(zip(wanted.column_names, wanted.columns, strict=True)))
    check_rows(plain(tfs.aggregate(total, as_table(columns), by="k")), wanted.to_pydict())


def test_a_structs_field_as_key_and_as_value() -> None:
    rows = [{"k": 1, "x": 1.0}, {"k": 2, "x": 2.0}, {"k": 1, "x": 4.0}, None]
    table = pa.table({"s": rows})
    held = tfs.aggregate(total, table.slice(0, 3), {"x": "s.x"}, by="s.k")
    check_rows(held, {"s.k": [1, 2], "x": [5.0, 2.0]})
    held = tfs.aggregate(total, pl.from_arrow(table.slice(0, 3)), {"x": "s.x"}, by=["s.k"])
    assert held.sort("s.k").rows() == [(1, 5.0), (2, 2.0)]
    held = tfs.aggregate(lambda n: {"n": tf.reduce_sum(n, 0)}, pa.table({"s": rows, "n": [1, 2, 4, 8]}), by="s.k")
    check_rows(held, {"s.k": [1, 2, None], "n": [5, 2, 8]})


def test_a_struct_as_key(frame: Flavour) -> None:
    columns = {"s": [{"a": 1, "b": "u"}, {"a": 1, "b": "v"}, {"a": 1, "b": "u"}], "x": [1.0, 2.0, 4.0]}
    if frame.name == "pandas":  # cannot group by dicts itself
        held = frame.read(tfs.aggregate(total, frame.make(columns), by="s"))
    else:
        held = frame.read(aggregated(total, frame, columns, ["s"]))
    check_rows(held, {"s": [{"a": 1, "b": "u"}, {"a": 1, "b": "v"}], "x": [5.0, 2.0]})


# --- Cells ---

CELLS = {
    "k": [1, 2, 1, 1],
    "v": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]],
    "m": [[[1.0, 2.0], [3.0, 4.0]], [[0.0, 1.0], [1.0, 0.0]], [[5.0, 5.0], [5.0, 5.0]], [[1.0, 1.0], [1.0, 1.0]]],
    "s": ["a", "b", "c", "é"],
    "b": [b"\xff", b"\0", b"", b"z"],
}


@pytest.mark.core
def test_vectors_and_matrices(frame: Flavour) -> None:
    def fetches(v, m):
        return {"v": tf.reduce_max(v, 0), "m": tf.reduce_sum(2 * m, 0) / 2}

    held = frame.read(aggregated(fetches, frame, CELLS, ["k"]))
    wanted = {"k": [1, 2], "v": [[7.0, 8.0], [3.0, 4.0]], "m": [[[7.0, 8.0], [9.0, 10.0]], [[0.0, 1.0], [1.0, 0.0]]]}
    check_rows(held, wanted)


@slow
def test_strings_and_binary(frame: Flavour) -> None:
    def longest(s, b):  # no join, for Spark's shuffle keeps no order
        return {
            "s": tf.gather(s, tf.argmax(tf.strings.length(s, unit="UTF8_CHAR"), 0)),
            "b": tf.gather(b, tf.argmax(tf.strings.length(b), 0)),
        }

    columns = {"k": [1, 2, 1], "s": ["a", "b", "éé"], "b": [b"\xff\0", b"\0", b""]}
    held = frame.read(aggregated(longest, frame, columns, ["k"]))
    check_rows(held, {"k": [1, 2], "s": ["éé", "b"], "b": [b"\xff\0", b"\0"]})


@slow
def test_rows_are_folded_in_their_order_on_local_frames() -> None:
    columns = {"k": [1, 2, 1] * 20, "s": [f"{i}," for i in range(60)]}
    held = tfs.aggregate(lambda s: {"s": tf.strings.reduce_join(s, 0)}, as_table(columns), by="k")
    wanted = {k: "".join(s for key, s in zip(columns["k"], columns["s"], strict=True) if key == k) for k in (1, 2)}
    assert held.to_pydict() == {"k": [1, 2], "s": [wanted[1], wanted[2]]}


@pytest.mark.parametrize("fetches", [total, by_chunks], ids=["known", "general"])
def test_cells_of_no_element(fetches: Any) -> None:
    table = pa.table({"k": [1, 2, 1], "x": pa.array([[], [], []], pa.list_(pa.float64()))})
    assert tfs.aggregate(fetches, table, by="k").to_pydict() == {"k": [1, 2], "x": [[], []]}


# --- Schemas ---


def test_the_schema_has_the_keys_then_the_outputs_with_their_shapes(frame: Flavour) -> None:
    known = tfs.append_shape(frame.make(CELLS), "v", [None, 2])

    def fetches(v, k2):
        return {"v": tf.reduce_sum(v, 0), "k2": tf.reduce_sum(k2, 0)}

    held = tfs.aggregate(fetches, known, {"k2": "k"}, by=["s", "k"])
    schema = tfs.schema(held)
    assert schema.names == ["s", "k", "v", "k2"]
    assert [str(column.block) for column in schema] == ["string[?]", "int64[?]", "float64[?, 2]", "int64[?]"]


def test_an_empty_frame_gives_an_empty_frame(frame: Flavour) -> None:
    columns = {"k": pa.array([], pa.int64()), "x": pa.array([], pa.float64())}
    for fetches in (total, by_chunks):
        held = frame.read(aggregated(fetches, frame, columns, ["k"]))
        check_rows(held, columns)


# --- Spark ---


@pytest.mark.core
def test_expressions_as_keys_on_spark(spark: Any) -> None:
    df = spark.createDataFrame(as_table({"i": list(range(8)), "x": [float(2**i) for i in range(8)]}))
    grouped = df.groupBy((df.i % 2).alias("odd"), df.i > 5)
    held = plain(tfs.aggregate(total, grouped).toArrow())
    check_rows(held, {"odd": [0, 1, 0, 1], "(i > 5)": [False, False, True, True], "x": [21.0, 42.0, 64.0, 128.0]})
    assert tfs.aggregate(total, df, by=[df.i]).columns == ["i", "x"]


def test_spark_runs_nothing_before_the_result_is_read(spark: Any) -> None:
    df = spark.range(3).selectExpr("id as k", "raise_error('read') as x").selectExpr("k", "cast(x as double) as x")
    assert tfs.aggregate(total, df.groupBy("k")).columns == ["k", "x"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("rollup", "Rollup"), ("cube", "Cube"), ("pivot", "Pivot"), ("sets", "GroupingSets")],
)
def test_what_is_no_group_by_is_refused_on_spark(kind: str, name: str, spark: Any) -> None:
    df = spark.range(3).selectExpr("id as k", "cast(id as double) as x")
    grouped = {
        "rollup": lambda: df.rollup("k"),
        "cube": lambda: df.cube("k"),
        "pivot": lambda: df.groupBy("k").pivot("x", [1.0]),
        "sets": lambda: df.groupingSets([[df.k], []], df.k),
    }[kind]()
    with pytest.raises(tfs.FrameError) as caught:
        tfs.aggregate(total, grouped)
    assert str(caught.value).startswith(f"aggregate: a grouping of type {name}")
    assert str(caught.value).endswith(" is no groupBy.")


def test_a_grouping_without_keys_is_refused(spark: Any) -> None:
    message = "aggregate: the grouping has no key.\n  reduce_blocks folds a whole frame."
    columns = {"x": [1.0]}
    for grouped in (
        spark.range(3).selectExpr("cast(id as double) as x").groupBy(),
        pa.table(columns).group_by([]),
        pl.DataFrame(columns).group_by(),
    ):
        check_refused(lambda grouped=grouped: tfs.aggregate(total, grouped), tfs.FrameError, message)


def test_a_session_that_ignores_case_refuses_an_output_like_a_key(spark: Any) -> None:
    df = spark.range(3).selectExpr("id as k", "cast(id as double) as x")
    message = lines(
        "aggregate: output 'K' has the name of a column.",
        "  outputs: K",
        "  columns: k: int64[?]",
        "  Give output and input another name, such as 'K_', and feed the input by feed_dict={'K_': 'K'}.",
    )
    fetches = {"K": lambda K: tf.reduce_sum(K, 0)}  # noqa: N803
    check_refused(lambda: tfs.aggregate(fetches, df.groupBy("k"), {"K": "x"}), tfs.ColumnError, message)


# --- pandas ---

PANDAS = pd.DataFrame(
    {
        "k": ["b", "a", None, "b"],
        "c": pd.Categorical(["u", "v", "u", "u"], categories=["w", "v", "u"]),
        "g": pd.Categorical([3, 1, 3, 3], categories=[1, 2, 3]),
        "size": [1, 2, 1, 2],
        "x": [1.0, 2.0, 4.0, 8.0],
    }
)


@pytest.mark.parametrize("fetches", [total, by_chunks], ids=["known", "general"])
@pytest.mark.parametrize(
    ("by", "options"),
    [
        ("k", {}),
        ("k", {"dropna": False}),
        ("k", {"sort": False}),
        ("k", {"dropna": False, "sort": False}),
        ("k", {"as_index": False}),
        (["k", "size"], {"as_index": False, "dropna": False}),
        (["size", "k"], {"sort": False}),
        ("size", {"as_index": False}),
        ("c", {"observed": True}),
        ("c", {"observed": False}),
        ("c", {"observed": False, "sort": False}),
        (["c", "size"], {"observed": False}),
        (["g", "c"], {"observed": False, "sort": False}),
        (["g", "c"], {"observed": True}),
    ],
    ids=str,
)
def test_pandas_groups_as_it_is_told(by: Any, options: dict[str, Any], fetches: Any) -> None:
    held = tfs.aggregate(fetches, PANDAS.groupby(by, **options))
    wanted = PANDAS.groupby(by, **{**options, "as_index": True})["x"].agg(lambda x: x.sum() if len(x) else NAN)
    wanted = wanted.dropna().index.to_frame(index=False).assign(x=wanted.dropna().to_numpy())  # groups without rows are left out
    pd.testing.assert_frame_equal(held, wanted)
    assert held.index.equals(pd.RangeIndex(len(wanted)))


def test_pandas_keys_that_are_no_columns() -> None:
    held = tfs.aggregate(total, PANDAS.groupby(lambda row: row % 2))
    pd.testing.assert_frame_equal(held, pd.DataFrame({"key": [0, 1], "x": [5.0, 10.0]}))
    held = tfs.aggregate(total, PANDAS.groupby([PANDAS["k"].str.upper(), lambda row: row < 2]))
    pd.testing.assert_frame_equal(held, pd.DataFrame({"k": ["A", "B", "B"], "key_1": [True, False, True], "x": [2.0, 8.0, 1.0]}))
    held = tfs.aggregate(total, PANDAS.set_index("size").groupby(level="size"))
    pd.testing.assert_frame_equal(held, pd.DataFrame({"size": [1, 2], "x": [5.0, 10.0]}))
    days = pd.DataFrame({"t": pd.to_datetime(["2020-01-01", "2020-01-03", "2020-01-03"]), "x": [1.0, 2.0, 4.0]})
    held = tfs.aggregate(total, days.groupby(pd.Grouper(key="t", freq="D")))
    pd.testing.assert_frame_equal(
        held, pd.DataFrame({"t": pd.to_datetime(["2020-01-01", "2020-01-03"]), "x": [1.0, 6.0]}), check_dtype=False
    )


def test_pandas_without_a_row_that_has_a_key() -> None:
    for frame in (PANDAS.assign(k=None), PANDAS.iloc[:0]):
        held = tfs.aggregate(total, frame.groupby("k"))
        assert held.columns.tolist() == ["k", "x"]
        assert len(held) == 0


def test_a_pandas_frame_and_its_grouping_are_not_changed() -> None:
    frame = PANDAS.copy()
    grouped = frame.groupby("k", as_index=False)
    tfs.aggregate(total, grouped)
    pd.testing.assert_frame_equal(frame, PANDAS)
    assert grouped.as_index is False
    assert grouped.sum(numeric_only=True).columns.tolist() == ["k", "size", "x"]


def test_pandas_keys_by_name_keep_their_dtypes() -> None:
    moments = pd.to_datetime(["2020-01-01", "2021-01-01", "2020-01-01"])
    keys = pd.DataFrame(
        {
            "category": pd.Categorical(["v", "u", "v"], categories=["u", "v", "w"], ordered=True),
            "Int64": pd.array([2**60 + 1, None, 2**60 + 1], "Int64"),
            "Float64": pd.array([1.5, None, 1.5], "Float64"),
            "boolean": pd.array([True, None, True], "boolean"),
            "string": pd.array(["a", None, "a"], "string"),
            "arrow": pd.array([1, None, 1], pd.ArrowDtype(pa.int64())),
            "zoned": moments.tz_localize("Europe/Paris"),
            "plain": moments,
            "object": pd.Series(["a", None, "a"], dtype=object),
        }
    )
    held = tfs.aggregate(total, keys.assign(x=[1.0, 2.0, 4.0]), by=list(keys.columns))
    pd.testing.assert_frame_equal(held, keys[:2].assign(x=[5.0, 2.0]))


def test_polars_keys_by_name_keep_their_types() -> None:
    keys = pl.DataFrame(
        {"enum": ["v", "u", "v"], "category": ["v", "u", "v"], "i": [1, None, 1]},
        schema={"enum": pl.Enum(["u", "v", "w"]), "category": pl.Categorical, "i": pl.Int8},
    )
    held = tfs.aggregate(total, keys.with_columns(x=pl.Series([1.0, 2.0, 4.0])), by=keys.columns)
    assert held.equals(keys[:2].with_columns(x=pl.Series([5.0, 2.0])))
    assert held.schema == {**keys.schema, "x": pl.Float64()}


def test_dictionaries_stay_dictionaries_of_32_bit_indices() -> None:
    kinds = [pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.int64()), pa.dictionary(pa.int8(), pa.float64())]
    for kind in kinds:
        cells = ["b", "a", "b"] if kind.value_type == pa.string() else [2, 1, 2]
        key = pa.array(cells, kind.value_type).dictionary_encode().cast(kind)
        held = tfs.aggregate(total, pa.table({"k": key, "x": [1.0, 2.0, 4.0]}), by="k")
        assert held.schema.field("k").type == pa.dictionary(pa.int32(), kind.value_type)
        assert held.to_pydict() == {"k": cells[:2], "x": [5.0, 2.0]}


def test_chunks_with_dictionaries_that_are_small_each_are_grouped_together() -> None:
    def chunk(start: int) -> pa.Array:
        return pa.array([f"{i}" for i in range(start, start + 100)]).cast(pa.dictionary(pa.int8(), pa.string()))

    held = tfs.aggregate(total, pa.table({"k": pa.chunked_array([chunk(0), chunk(100), chunk(50)]), "x": [1.0] * 300}), by="k")
    assert dict(zip(*held.to_pydict().values(), strict=True)) == {f"{i}": 2.0 if 50 <= i < 150 else 1.0 for i in range(200)}


# --- polars ---


def test_expressions_as_keys_in_polars() -> None:
    frame = pl.DataFrame({"i": [0, 1, 2, 3], "x": [1.0, 2.0, 4.0, 8.0]})
    held = tfs.aggregate(total, frame.group_by(pl.col("i") % 2, big=pl.col("x") > 3))
    assert held.columns == ["i", "big", "x"]
    assert sorted(held.rows()) == [(0, False, 1.0), (0, True, 4.0), (1, False, 2.0), (1, True, 8.0)]
    assert tfs.aggregate(total, frame.group_by(pl.lit("all").alias("k"))).rows() == [("all", 15.0)]
    kept = frame.with_columns(c=pl.Series(["b", "a", "b", None], dtype=pl.Categorical)).group_by("c", maintain_order=True)
    assert tfs.aggregate(total, kept).rows() == [("b", 5.0), ("a", 2.0), (None, 8.0)]


# --- What is refused ---

TABLE = pa.table({"k": [1, 2, 1], "l": [[1], [2], [3]], "x": [1.0, 2.0, 4.0]})
NO_GROUPING = "is no grouping; wanted is what df.groupBy, pdf.groupby, table.group_by or polars' group_by gives, or a frame with by=[…]."
NO_FRAME = (
    "is no frame; wanted is a Spark, pandas or polars DataFrame, a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, or an object "
    "with __arrow_c_stream__."
)
FACTS = "  columns: k: int64[?], l: int64[?, ?], x: float64[?]"


@cases(
    ExpectFail((TABLE, None), tfs.FrameError, f"aggregate: a pyarrow.lib.Table {NO_GROUPING}", "a frame without by="),
    ExpectFail((3, None), tfs.FrameError, f"aggregate: a builtins.int {NO_GROUPING}", "anything else"),
    ExpectFail((3, "k"), tfs.FrameError, f"aggregate: a builtins.int {NO_FRAME}", "anything else with by="),
    ExpectFail((TABLE.group_by("k"), "k"), tfs.FrameError, f"aggregate: a pyarrow.lib.TableGroupBy {NO_FRAME}", "a grouping with by="),
    ExpectFail(
        (PANDAS.groupby("k")["x"], None),
        tfs.FrameError,
        f"aggregate: a pandas.core.groupby.generic.SeriesGroupBy {NO_GROUPING}",
        "a grouped series",
    ),
    ExpectFail(
        (pl.DataFrame({"x": [1.0]}).lazy().group_by("x"), None),
        tfs.FrameError,
        f"aggregate: a polars.lazyframe.group_by.LazyGroupBy {NO_GROUPING}",
        "a lazy grouping",
    ),
    ExpectFail((TABLE, []), tfs.FrameError, "aggregate: by= names no key.", "no key"),
    ExpectFail((TABLE, "q"), tfs.ColumnError, lines("aggregate: the frame has no column 'q'.", FACTS), "no such column"),
    ExpectFail((TABLE, ["k", "q"]), tfs.ColumnError, lines("aggregate: the frame has no column 'q'.", FACTS), "no such column among keys"),
    ExpectFail((TABLE, 3), tfs.ColumnError, lines("aggregate: the frame has no column 3.", FACTS), "no name"),
    ExpectFail((TABLE, "l"), tfs.DTypeError, "aggregate: key 'l' is of type array, by which rows cannot be grouped.", "an array"),
    ExpectFail(
        (TABLE.append_column("e", pa.nulls(3)), "e"),
        tfs.DTypeError,
        "aggregate: key 'e' is of type null, by which rows cannot be grouped.",
        "nulls of no type",
    ),
    ExpectFail((TABLE, ["k", "k"]), tfs.ColumnError, "aggregate: by= names column 'k' 2 times.", "a key twice"),
    ExpectFail(
        (TABLE, "x"),
        tfs.ColumnError,
        lines(
            "aggregate: output 'x' has the name of a column.",
            "  outputs: x",
            "  columns: x: float64[?]",
            "  Give output and input another name, such as 'x_', and feed the input by feed_dict={'x_': 'x'}.",
        ),
        "a key named like an output",
    ),
)
def test_refusals(case: ExpectFail) -> None:
    check(lambda given: tfs.aggregate(total, given[0], by=given[1]), case)


@slow
@cases(
    ExpectFail(
        lambda x: {"y": tf.reduce_sum(x, 0)},
        tfs.ProgramError,
        lines(
            "aggregate: output 'y' has no input to be folded from: 'y' or 'y_input' is wanted.",
            "  inputs:  x: float64[?]",
            "  outputs: y: float64[]",
            "  Give the function a parameter 'y' and say what feeds it: feed_dict={'y': …}.",
        ),
        "an output without its input",
    ),
    ExpectFail(
        lambda x: {"x": tf.cast(tf.reduce_sum(x, 0), tf.int64)},
        tfs.DTypeError,
        "aggregate: output 'x' is int64[] but a cell of its input 'x' is float64[].",
        "another dtype",
    ),
    ExpectFail(
        lambda l: {"l": tf.concat([l[0], l[0]], 0)},  # noqa: E741
        tfs.ShapeError,
        "aggregate: output 'l' has shape [2] in round 1, but the cells that it is folded from have shape [1].",
        "a shape that grows",
    ),
    ExpectFail(
        lambda x: {"x": tf.debugging.check_numerics(tf.reduce_sum(x / (x - 2.0), 0), "bad")},
        tfs.ProgramError,
        lines(
            "aggregate: the program failed on rows of the key k = 2: InvalidArgumentError: bad : Tensor had Inf values",
            "  inputs: x ← column 'x'",
        ),
        "an operation that fails",
    ),
)
def test_programs_that_are_refused_or_fail(case: ExpectFail) -> None:
    check(lambda fetches: tfs.aggregate(fetches, TABLE, by="k"), case)


def test_nulls_are_refused() -> None:
    table = pa.table({"k": [1, 2, 1], "x": [1.0, None, 4.0]})
    message = (
        "aggregate: column 'x' holds 1 null, at row 1 of the block, where no null may be; nulls= of tfs.feed says what becomes of them."
    )
    for fetches in (total, by_chunks):
        check_refused(lambda fetches=fetches: tfs.aggregate(fetches, table, by="k"), tfs.NullError, message)


def test_a_device_that_is_not_there_is_refused() -> None:
    if tf.config.list_logical_devices("GPU"):
        held = tfs.aggregate(total, TABLE, by="k", device="gpu")
        assert held.to_pydict() == {"k": [1, 2], "x": [5.0, 2.0]}
        return
    for fetches in (total, by_chunks):
        with pytest.raises(tfs.ProgramError, match=r"^aggregate: device='gpu', but TensorFlow sees no GPU on host "):
            tfs.aggregate(fetches, TABLE, by="k", device="gpu")


# --- Known reductions ---


def traced(function: Any, dtype: str = "float64", shape: Sequence[int | None] = (None, 3)) -> Program:
    return tfs.program(function, signature={"x": tf.TensorSpec(shape, dtype)})


@pytest.mark.parametrize(
    ("function", "dtype", "kind"),
    [
        (lambda x: {"x": tf.reduce_sum(x, 0)}, "float64", "Sum"),
        (lambda x: {"x": tf.reduce_sum(x, [0])}, "int32", "Sum"),
        (lambda x: {"x": tf.reduce_prod(x, axis=0)}, "float32", "Prod"),
        (lambda x: {"x": tf.reduce_min(x, axis=0)}, "int64", "Min"),
        (lambda x: {"x": tf.reduce_max(x, axis=0)}, "float64", "Max"),
        (lambda x: {"x": tf.reduce_any(x, axis=0)}, "bool", "Any"),
        (lambda x: {"x": tf.reduce_all(x, axis=0)}, "bool", "All"),
        (lambda x: {"x": tf.identity(tf.reduce_sum(tf.identity(x), 0))}, "float64", "Sum"),
    ],
)
def test_plain_reductions_over_the_rows_are_known(function: Any, dtype: str, kind: str) -> None:
    assert known_reductions(traced(function, dtype), ((0,),)) == (kind,)


def with_control(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, tf.constant(9.0, tf.float64))]):
        return {"x": tf.reduce_sum(x, 0)}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: {"x": tf.reduce_sum(x, 1)},
        lambda x: {"x": tf.reduce_sum(x, [0, 1])},
        lambda x: {"x": tf.reduce_sum(x, -1)},
        lambda x: {"x": tf.reduce_sum(x, 0, keepdims=True)},
        lambda x: {"x": tf.reduce_mean(x, 0)},
        lambda x: {"x": tf.reduce_sum(x * x, 0)},
        lambda x: {"x": 2 * tf.reduce_sum(x, 0)},
        lambda x: {"x": tf.reduce_logsumexp(x, 0)},
        lambda x: {"x": tf.reduce_sum(x, tf.cast(x[0, 0], tf.int32))},
        lambda x: {"x": x[0]},
        with_control,
    ],
    ids=["axis 1", "two axes", "axis -1", "keepdims", "mean", "squares", "twice", "log", "an axis of the data", "first", "controls"],
)
def test_other_programs_are_not_known(function: Any) -> None:
    assert known_reductions(traced(function), ((0,),)) is None


def test_all_outputs_must_be_known_and_of_their_own_inputs() -> None:
    specs = {"x": tf.TensorSpec([None], tf.float64), "y": tf.TensorSpec([None], tf.float64)}

    def kinds(function: Any) -> Any:
        return known_reductions(tfs.program(function, signature=specs), ((0,), (1,)))

    assert kinds(lambda x, y: {"x": tf.reduce_sum(x, 0), "y": tf.reduce_max(y, 0)}) == ("Sum", "Max")
    assert kinds(lambda x, y: {"x": tf.reduce_sum(x, 0), "y": tf.reduce_mean(y, 0)}) is None
    assert kinds(lambda x, y: {"x": tf.reduce_sum(y, 0), "y": tf.reduce_sum(x, 0)}) is None
    assert kinds(lambda x, y: {"x": tf.reduce_sum(x + y, 0), "y": tf.reduce_sum(y, 0)}) is None


SEGMENTS = {"sum": tf.reduce_sum, "prod": tf.reduce_prod, "min": tf.reduce_min, "max": tf.reduce_max}
VALUES = {
    "float64": st.sampled_from([0.0, -0.0, 1.0, -2.0, 0.5, 3.0, NAN, INF, -INF]),
    "float32": st.sampled_from([0.0, 1.0, -2.0, 0.5, NAN, INF, -INF]),
    "float16": st.sampled_from([0.0, 1.0, -2.0, 0.5, NAN, INF, -INF]),
    "int64": st.sampled_from([0, 1, -3, 2**62, -(2**63)]),
    "int32": st.integers(-5, 5),
    "uint8": st.integers(0, 255),
    "uint64": st.sampled_from([0, 1, 2**64 - 1]),
}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_known_reductions_give_what_the_general_path_gives(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*SEGMENTS, "any", "all"]))
    dtype = "bool" if kind in ("any", "all") else data.draw(st.sampled_from(sorted(VALUES)))
    reduce = SEGMENTS.get(kind) or {"any": tf.reduce_any, "all": tf.reduce_all}[kind]
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), VALUES.get(dtype, st.booleans())), min_size=1, max_size=30))
    values = pa.array(np.array([value for _, value in rows], dtype))
    if data.draw(st.booleans()):
        values = pa.FixedSizeListArray.from_arrays(pa.concat_arrays([values, values]), 2)
    table = pa.table({"k": [key for key, _ in rows], "x": values})
    held = tfs.aggregate(lambda x: {"x": reduce(x, 0)}, table, by="k")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aggregates_room, "known_reductions", lambda *_: None)
        wanted = tfs.aggregate(lambda x: {"x": reduce(x, 0)}, table, by="k")
    assert held.schema == wanted.schema
    assert held["k"] == wanted["k"]
    np.testing.assert_array_equal(np.array(held["x"].to_pylist()), np.array(wanted["x"].to_pylist()))  # all sums and products are exact


# --- Many blocks, many keys ---


@pytest.mark.parametrize("fetches", [total, by_chunks], ids=["known", "general"])
@pytest.mark.parametrize("keys", [1, 3, 40, 200], ids=lambda keys: f"{keys} keys")
def test_many_blocks_give_the_same(keys: int, fetches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(keys)
    columns = {"k": rng.integers(keys, size=200), "x": rng.integers(-9, 9, size=200).astype("float64")}
    wanted = pd.DataFrame(columns).groupby("k", sort=False, as_index=False)["x"].sum()
    monkeypatch.setattr(combine_room, "_BLOCK_ROWS", 16)
    monkeypatch.setattr(combine_room, "_BATCH_ROWS", 7)
    held = tfs.aggregate(fetches, as_table(columns), by="k")
    check_rows(held, {"k": wanted["k"].tolist(), "x": wanted["x"].tolist()})


def test_where_keys_are_nearly_unique_the_first_side_stops_combining(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combine_room, "_BLOCK_ROWS", 16)
    combine, sides = combine_room.Combine._combine, []
    monkeypatch.setattr(combine_room.Combine, "_combine", lambda self, *args: sides.append(self.is_last) or combine(self, *args))
    unique = pa.table({"k": [*range(90), *range(10)], "x": [float(i) for i in range(100)]})
    held = tfs.aggregate(total, unique, by="k")
    check_rows(held, {"k": list(range(90)), "x": [float(i) if i >= 10 else 2.0 * i + 90 for i in range(90)]})
    assert sides.count(False) == 1  # the first block showed that it is not worth it
    sides.clear()
    few = pa.table({"k": [i % 3 for i in range(100)], "x": [1.0] * 100})
    check_rows(tfs.aggregate(total, few, by="k"), {"k": [0, 1, 2], "x": [34.0, 33.0, 33.0]})
    assert sides.count(False) > 1


def test_blocks_of_large_cells_have_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    call, sizes = combine_room.call_program, []
    monkeypatch.setattr(combine_room, "call_program", lambda plan, feeds, *args: sizes.append(feeds[0].nbytes) or call(plan, feeds, *args))
    batches = [pa.record_batch({"k": pa.array([0] * 50), "x": pa.array(np.ones((50, 20000)).tolist())}) for _ in range(3)]
    monkeypatch.setattr(combine_room, "_BLOCK_BYTES", 2**21)
    held = tfs.aggregate(by_chunks, pa.Table.from_batches(batches), by="k")
    assert held["x"][0].as_py() == [150.0] * 20000
    assert max(sizes) <= 50 * 20000 * 8  # one batch: few rows are not cut, but not joined either


def test_folded_rows_are_merged_before_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combine_room, "_BLOCK_ROWS", 16)
    monkeypatch.setattr(combine_room, "_BLOCK_BYTES", 256)
    merge, merged = combine_room.Combine._merge, []
    monkeypatch.setattr(combine_room.Combine, "_merge", lambda self, held: merged.append(len(held)) or merge(self, held))
    table = pa.table({"k": [i % 3 for i in range(1000)], "x": [1.0] * 1000})
    check_rows(tfs.aggregate(by_chunks, table, by="k"), {"k": [0, 1, 2], "x": [334.0, 333.0, 333.0]})
    assert max(merged) <= 2 * 256 / (3 * 16) + 1  # no more bytes than two blocks have, of three rows a block


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_groups_of_any_sizes_are_folded_to_one_row_each(sizes: list[int], random: Any) -> None:
    keys = [key for key, size in enumerate(sizes) for _ in range(size)]
    random.shuffle(keys)
    values = [float(random.randrange(100)) for _ in keys]
    held = tfs.aggregate(by_chunks, pa.table({"k": keys, "x": values}), by="k")
    wanted = {key: sum(value for k, value in zip(keys, values, strict=True) if k == key) for key in keys}
    check_rows(held, {"k": list(wanted), "x": list(wanted.values())})


def test_the_calls_grow_with_the_logarithm_of_the_rows_not_with_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    call, calls = combine_room.call_program, []
    monkeypatch.setattr(combine_room, "call_program", lambda *args: calls.append(1) or call(*args))
    for keys in (10, 1000):
        calls.clear()
        rng = np.random.default_rng(keys)
        table = pa.table({"k": rng.integers(keys, size=8000), "x": np.ones(8000)})
        held = tfs.aggregate(by_chunks, table, by="k")
        assert sum(held["x"].to_pylist()) == 8000
        assert len(calls) <= 8 * 5  # two sides, of at most eight sizes a round


# --- Reducers that TensorFlow cannot vectorize ---


def largest_distinct(x):
    return {"x": tf.reduce_max(tf.unique(x)[0])}


@slow
def test_a_reducer_that_cannot_be_vectorized_works(frame: Flavour) -> None:
    check_rows(frame.read(aggregated(largest_distinct, frame, SALES, ["k"])), {"k": ["a", "b", "c"], "x": [16.0, 128.0, 64.0]})


def test_a_reducer_that_cannot_be_vectorized_gives_one_warning_that_names_the_operation() -> None:
    def smallest_distinct(x):
        return {"x": tf.reduce_min(tf.unique(x)[0])}

    with pytest.warns(UserWarning, match=r"^aggregate: TensorFlow cannot vectorize operation Unique\b") as caught:
        tfs.aggregate(smallest_distinct, as_table(SALES), by="k")
    assert len(caught) == 1
    tfs.aggregate(smallest_distinct, as_table(SALES), by="k")  # a second one would be an error


# --- v1 graphs, programs, constants ---


def test_v1_graphs_programs_and_constants() -> None:
    with tf.Graph().as_default():
        native = as_table(SALES)
        x_input = tfs.block(native, "x", "x_input")
        x = tf.reduce_sum(x_input, 0, name="x")
    wanted = {"k": ["a", "b", "c"], "x": [18.0, 165.0, 72.0]}
    check_rows(tfs.aggregate(x, native, by="k"), wanted)
    check_rows(tfs.aggregate([x], native, by="k"), wanted)
    check_rows(tfs.aggregate(x, native.rename_columns(["k", "n", "y"]), {x_input: "y"}, by="k"), wanted)
    check_rows(tfs.aggregate(traced(by_chunks, shape=[None]), native, by="k"), wanted)
    check_rows(tfs.aggregate(lambda x: tf.reduce_sum(x, 0), native, by="k"), wanted)
    check_rows(tfs.aggregate(lambda x, c: {"x": tf.reduce_sum(x, 0) + c[0]}, native, {"c": [0.0, 1.0]}, by="k"), wanted)


# --- What trying odd inputs showed ---


def test_categories_of_zoned_timestamps_are_keys() -> None:
    key = pd.Categorical(pd.to_datetime(["2021-01-01", "2020-01-01", "2021-01-01"]).tz_localize("Europe/Paris"))
    held = tfs.aggregate(total, pd.DataFrame({"k": key, "x": [1.0, 2.0, 4.0]}), by="k")
    pd.testing.assert_frame_equal(held, pd.DataFrame({"k": key[:2], "x": [5.0, 2.0]}))


@pytest.mark.parametrize("group", [lambda frame: {"by": "k", "grouped": frame}, lambda frame: {"grouped": frame.group_by("k")}])
def test_polars_keys_keep_their_types(group: Any) -> None:
    frame = pl.DataFrame({"k": pl.Series(["u", "v", "u"], dtype=pl.Enum(["v", "u"])), "x": [1.0, 2.0, 4.0]})
    held = tfs.aggregate(total, **group(frame)).sort("k")
    assert held.schema == frame.schema
    assert held.rows() == [("v", 2.0), ("u", 5.0)]


OBJECTS = pl.DataFrame({"x": [1.0, 2.0], "o": pl.Series([object(), "s"], dtype=pl.Object)})


@cases(
    ExpectFail(
        lambda: tfs.aggregate(total, OBJECTS.group_by("x").having(pl.len() > 1)),
        tfs.FrameError,
        "aggregate: a grouping with having() is no plain group_by.\n  Filter the result.",
        "having",
    ),
    ExpectFail(
        lambda: tfs.aggregate(total, OBJECTS, by="o"),
        tfs.DTypeError,
        "aggregate: key 'o' is of type object, by which rows cannot be grouped.",
        "objects",
    ),
    ExpectFail(
        lambda: tfs.aggregate(total, OBJECTS.select("x").group_by("nope")),
        tfs.ColumnError,
        lines(
            'aggregate: the grouping names a column that the frame does not have: unable to find column "nope"; valid columns: ["x"].',
            "  columns: x: float64[?]",
        ),
        "no such column",
    ),
    ExpectFail(
        lambda: tfs.aggregate(total, pd.DataFrame({"k": pd.cut([1, 2, 3], 2), "x": [1.0, 2.0, 3.0]}), by="k"),
        tfs.DTypeError,
        "aggregate: key 'k' is of type dictionary<values=extension<pandas.interval<ArrowIntervalType>>, indices=int8, ordered=1>, by which "
        "rows cannot be grouped.",
        "categories of intervals",
    ),
)
def test_groupings_that_cannot_be_honoured(case: ExpectFail) -> None:
    check(lambda call: call(), case)


def test_strings_that_are_equal_by_other_rules_are_refused_as_keys_on_spark(spark: Any) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    df = spark.createDataFrame([("a", 1.0), ("A", 2.0)], "s string, x double")
    message = lines(
        "aggregate: key 'k' is of type string collate UTF8_LCASE, whose values are equal by other rules than bytes are.",
        "  Group by F.collate(key, 'UTF8_BINARY'), or by what makes equal keys equal, such as F.lower(key).",
    )
    check_refused(lambda: tfs.aggregate(total, df.groupBy(F.collate("s", "UTF8_LCASE").alias("k"))), tfs.DTypeError, message)


@slow
def test_programs_with_a_constant() -> None:
    program = tfs.program(lambda x, c: {"x": tf.maximum(tf.reduce_max(x, 0), c)}, frame=TABLE, feed_dict={"c": 1.5})
    check_rows(tfs.aggregate(program, TABLE, {"c": 3.0}, by="k"), {"k": [1, 2], "x": [4.0, 3.0]})
    assert tfs.reduce_blocks(program, TABLE, {"c": 3.0})["x"] == 4.0


@pytest.mark.filterwarnings("error")
def test_reading_a_variable_is_no_side_effect() -> None:
    least = tf.Variable(3.0, dtype=tf.float64)
    held = tfs.aggregate(lambda x: {"x": tf.maximum(tf.reduce_max(x, 0), least)}, TABLE, by="k")
    check_rows(held, {"k": [1, 2], "x": [4.0, 3.0]})
    held = tfs.aggregate(tf.function(lambda x: {"x": tf.maximum(tf.reduce_max(x, 0), least)}), TABLE, by="k")
    check_rows(held, {"k": [1, 2], "x": [4.0, 3.0]})


@slow
def test_arrays_of_dynamic_size() -> None:
    def largest(x):
        array = tf.TensorArray(x.dtype, size=0, dynamic_size=True)
        return {"x": array.write(0, tf.reduce_max(x)).stack()[0]}

    check_rows(tfs.aggregate(largest, TABLE, by="k"), {"k": [1, 2], "x": [4.0, 2.0]})


def test_functions_in_a_list_are_named_after_their_parameters() -> None:
    frame = pa.table({"k": [1, 2, 1], "x": [1.0, 2.0, 4.0], "y": [3, 5, 7]})
    fetches = [lambda x: tf.reduce_sum(x, 0), lambda y: tf.reduce_max(y + 0, 0)]
    assert tfs.reduce_blocks(fetches, frame) == [7.0, 7]
    check_rows(tfs.aggregate(fetches, frame, by="k"), {"k": [1, 2], "x": [5.0, 2.0], "y": [7, 5]})
