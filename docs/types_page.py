"""Writes docs/types.md from the tables in the code: `python docs/types_page.py`. A test holds the page to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from tensorframes.columns import MATRIX, VECTOR, column_from_field
from tensorframes.dtypes import BY_NAME, can_cast, stored_dtype
from tensorframes.errors import DTypeError
from tensorframes.feeds import Feed, feed_type

PAGE = Path(__file__).parent / "types.md"

# Spark's name, Arrow's types, a remark.
_COLUMNS: tuple[tuple[str, Sequence[pa.DataType], str], ...] = (
    ("boolean", [pa.bool_()], ""),
    ("byte", [pa.int8()], ""),
    ("short", [pa.int16()], ""),
    ("int", [pa.int32()], ""),
    ("long", [pa.int64()], "exact, nulls or not"),
    ("", [pa.uint8()], ""),
    ("", [pa.uint16()], ""),
    ("", [pa.uint32()], ""),
    ("", [pa.uint64()], ""),
    ("", [pa.float16()], ""),
    ("float", [pa.float32()], "NaN stays NaN, null stays null"),
    ("double", [pa.float64()], "NaN stays NaN, null stays null"),
    ("string, char, varchar", [pa.string(), pa.large_string(), pa.string_view()], "UTF-8 bytes"),
    ("", [pa.dictionary(pa.int32(), pa.string())], "as what the dictionary holds"),
    ("binary", [pa.binary(), pa.large_binary(), pa.binary(3), pa.binary_view()], "byte for byte"),
    ("date", [pa.date32()], "days since 1970-01-01"),
    ("timestamp", [pa.timestamp("us", "UTC")], "microseconds since 1970-01-01 in UTC"),
    ("timestamp_ntz", [pa.timestamp("us")], "microseconds since 1970-01-01"),
    ("", [pa.timestamp("ns")], "the same; what is no whole number of microseconds is refused"),
    ("array<double>", [pa.list_(pa.float64()), pa.large_list(pa.float64())], "one dimension more for each level, to any depth"),
    ("", [pa.list_(pa.float64(), 3)], "the length is known"),
    ("", [pa.fixed_shape_tensor(pa.float32(), [2, 3])], "the shape is known"),
    ("VectorUDT", [VECTOR], "dense, sparse or mixed; with `sparse=True` a `tf.SparseTensor`"),
    ("MatrixUDT", [MATRIX], "the same"),
    ("decimal(5,2)", [pa.decimal128(5, 2)], 'with `dtype="float64"` the nearest number'),
    ("struct", [pa.struct([("field", pa.int64())])], 'its fields are addressable: `"s.field"`'),
    ("map", [pa.map_(pa.string(), pa.int64())], ""),
    ("interval", [pa.duration("us"), pa.month_day_nano_interval()], ""),
    ("", [pa.date64(), pa.time32("s"), pa.time64("us")], ""),
    ("void", [pa.null()], ""),
)

_TEXT = """# Types

This page is written by `docs/types_page.py` from the tables in `tensorframes/dtypes.py` and `columns.py`.

## What a column becomes

A column's cells are a program's input as they are; nothing is converted through another type on the way. `?` is the number of rows, or a
dimension that the column's type and metadata do not tell. On pandas, NumPy's dtypes, the nullable ones (`Int64`, `boolean`, `string`, …),
the Arrow-backed ones and categories are what Arrow makes of them, except that NaN stays NaN in NumPy's floats (`convert_dtypes()` makes
nulls of them). Dates and timestamps come back as the integers that they are.

{columns}

A map, an interval, a variant and a struct as a whole are refused when the verb is called: the message names the column and its type.

## What an output becomes

Spark lacks some types; what it has holds all their values. Columns of local frames are of the output's own type.

{outputs}

A tensor of rank n + 1 becomes arrays nested n levels deep; an output `[n, 1]` arrays of one element. A `tf.RaggedTensor` becomes arrays
of its rows' lengths. Outputs named in `tfs.program(…, binary=("z",))` become `binary`, those in `vector=("z",)` vectors or matrices of
Spark ML. Where a map reads a `fixed_shape_tensor` column, outputs of numbers whose cells have a known shape are such columns too. Where
rows are skipped (`nulls="skip"`), their outputs are null: pandas gets its nullable dtypes then, so that `Int64` stays exact and a NaN stays
beside a null.

## Casts

A plain function receives each column in the column's own dtype. A program that declares its dtypes (a signature, a placeholder, a model)
receives what it declares, by these casts; all others are refused when the verb is called. A finite value that would become infinite
raises.

{casts}

`tfs.feed(column, dtype=…)` casts to any dtype of numbers or booleans, also to a narrower one. A value that does not fit raises, and the
message names its row: too large, or NaN or a fraction for an integer, or anything but 0 and 1 for a boolean. Text is never read as a
number; `tf.strings.to_number` does that.
"""


def write() -> str:
    """Return the page."""
    return _TEXT.format(columns=_columns(), outputs=_outputs(), casts=_casts())


def _columns() -> str:
    rows = []
    for spark, kinds, remark in _COLUMNS:
        (tensor,) = {_tensor(kind) for kind in kinds}
        rows.append((f"{spark or '–'}", ", ".join(f"`{_spelled(kind)}`" for kind in kinds), tensor, remark))
    return _table(("Spark", "Arrow", "block", ""), rows)


def _tensor(kind: pa.DataType) -> str:
    column = column_from_field(pa.field("column", kind))
    try:
        return f"`{feed_type('input', column, Feed('column'), rowwise=False)}`"
    except DTypeError:
        return "refused"


def _spelled(kind: pa.DataType) -> str:
    if kind in (VECTOR, MATRIX):
        return f"struct<{', '.join(field.name for field in kind)}>"
    if isinstance(kind, pa.FixedShapeTensorType):
        return "fixed_shape_tensor<float, [2, 3]>"
    if pa.types.is_dictionary(kind):
        return "dictionary"
    return str(kind).replace("item: ", "").replace(" ('", " (").replace("', '", ", ").replace("')", ")").replace(" not null", "")


def _outputs() -> str:
    rows = []
    for name, scalar in BY_NAME.items():
        stored = stored_dtype(name, on_spark=True)
        local = stored_dtype(name, on_spark=False)
        rows.append(
            (
                f"`{name}`",
                BY_NAME[stored].spark or "" if stored else "refused",
                f"`{BY_NAME[local].arrow}`" if local else "refused",
                "widened" if stored and stored != name and scalar.arrow is not None else "",
            )
        )
    return _table(("output", "Spark", "Arrow, pandas, polars", ""), rows)


def _casts() -> str:
    names = list(BY_NAME)
    rows = [
        (f"`{held}`", ", ".join(f"`{wanted}`" for wanted in names if wanted != held and can_cast(held, wanted)) or "–") for held in names
    ]
    return _table(("column", "may be fed to"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(write())
