"""Columns and schemas as frozen values, and their codec to and from Arrow fields and column metadata.

Knows Arrow types; knows no frame library and no TensorFlow. The one law: what a column means as a tensor is decided here, from its
Arrow type and its metadata, and never from its data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from tensorframes.dtypes import BY_NAME, dtype_of_arrow, is_bytes
from tensorframes.errors import ColumnError
from tensorframes.shapes import Shape

SHAPE_KEY = "tensorframes.shape"
DTYPE_KEY = "tensorframes.dtype"
_SPARK_KEY = b"SPARK::metadata::json"


def _list_of(element: pa.DataType) -> pa.DataType:
    """Return the type of a list as Spark spells one without nulls."""
    return pa.list_(pa.field("element", element, nullable=False))


VECTOR = pa.struct(
    [
        pa.field("type", pa.int8(), nullable=False),
        pa.field("size", pa.int32()),
        pa.field("indices", _list_of(pa.int32())),
        pa.field("values", _list_of(pa.float64())),
    ]
)
MATRIX = pa.struct(
    [
        pa.field("type", pa.int8(), nullable=False),
        pa.field("numRows", pa.int32(), nullable=False),
        pa.field("numCols", pa.int32(), nullable=False),
        pa.field("colPtrs", _list_of(pa.int32())),
        pa.field("rowIndices", _list_of(pa.int32())),
        pa.field("values", _list_of(pa.float64())),
        pa.field("isTransposed", pa.bool_(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dtype and a shape; the shape is None where even the rank is unknown.

    Attributes:
        dtype: TensorFlow's name of the scalar type.
        shape: the dimensions.
        ragged_rank: of a ``tf.RaggedTensor``, how many dimensions after the first one are ragged; 0 for a dense tensor.
        is_sparse: whether it is a ``tf.SparseTensor``.

    Example:
        >>> print(TensorType("float64", Shape([None, 100])), TensorType("int64", Shape([None, None]), ragged_rank=1), sep=", ")
        float64[?, 100], ragged int64[?, ?]
    """

    dtype: str
    shape: Shape | None
    ragged_rank: int = 0
    is_sparse: bool = False

    def __repr__(self) -> str:
        """Print as ``TensorType(dtype='float64', shape=Shape([None, 100]))``, with what is not dense where it is not."""
        layout = f", ragged_rank={self.ragged_rank}" if self.ragged_rank else ", is_sparse=True" if self.is_sparse else ""
        return f"TensorType(dtype={self.dtype!r}, shape={self.shape!r}{layout})"

    def __str__(self) -> str:
        """Print as ``float64[?, 100]``, ``ragged int64[?, ?]`` or ``sparse float64[?, 3]``."""
        layout = "ragged " if self.ragged_rank else "sparse " if self.is_sparse else ""
        return layout + self.dtype + ("[...]" if self.shape is None else str(self.shape))


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its Arrow type, and what it means as a tensor.

    Attributes:
        name: the column's name, or the dotted path of a struct's field.
        arrow: its Arrow type.
        nullable: whether it may hold nulls, as far as the frame says.
        dtype: dtype of its tensor, or None where it means none.
        cell_shape: shape of one cell, or None where it means no tensor.
        fields: a struct's fields.
        native_type: the frame's own name of the type, where it is not to be had from the Arrow type.
    """

    name: str
    arrow: pa.DataType
    nullable: bool = True
    dtype: str | None = None
    cell_shape: Shape | None = None
    fields: tuple[Column, ...] = ()
    native_type: str | None = None

    @property
    def is_decimal(self) -> bool:
        """Whether its cells hold decimals, of which a feed's dtype makes a tensor."""
        return _is_decimal(split_lists(self.arrow)[0])

    @property
    def block(self) -> TensorType | None:
        """The type of a block of this column: one more, unknown, dimension in front."""
        if self.dtype is None or self.cell_shape is None:
            return None  # also of decimals, whose cells have a shape only
        return TensorType(self.dtype, Shape((None, *self.cell_shape)))

    def __str__(self) -> str:
        """Print as ``x: float64[?]``, or with its Arrow type where it means no tensor."""
        return f"{self.name}: {self.block or f'<no tensor: {self.type_name}>'}"

    def with_cell_shape(self, shape: Shape) -> Column:
        """Return the column with another shape of its cells."""
        return replace(self, cell_shape=shape)

    @property
    def type_name(self) -> str:
        """Spark's name of the column's type, as its own ``printSchema`` writes it; Arrow's where Spark has none."""
        return self.native_type or _type_name(self.arrow)

    @property
    def tensor_name(self) -> str:
        """The tensor as ``print_schema`` writes it: ``double[?,2]``."""
        if self.block is None or self.block.shape is None:
            return "<no tensor>"
        leaf, _ = split_lists(self.arrow)
        scalar = "binary" if is_bytes(leaf) else BY_NAME[self.block.dtype].spark or self.block.dtype
        return scalar + self.block.shape.print()


@dataclass(frozen=True, slots=True)
class Schema:
    """A frame's columns, in order. Iterates over them; looks them up by name or by the dotted path of a struct's field.

    Attributes:
        columns: the columns, in order.
        on_spark: whether outputs are stored in Spark's types (which lack unsigned and half) or in Arrow's.
        folds_case: whether names that differ only in case are one name to the frame.
    """

    columns: tuple[Column, ...]
    on_spark: bool = False
    folds_case: bool = False

    def __iter__(self) -> Iterator[Column]:
        """Iterate over the columns."""
        return iter(self.columns)

    def __len__(self) -> int:
        """Count the columns."""
        return len(self.columns)

    def __getitem__(self, name: str) -> Column:
        """Return the column of that name or path; a column really named ``a.b`` wins over the field ``b`` of ``a``."""
        return self.resolve(name)[1]

    @property
    def names(self) -> list[str]:
        """The names, in order."""
        return [column.name for column in self.columns]

    @property
    def facts(self) -> list[str]:
        """The columns as an error lists them."""
        return [str(column) for column in self.columns]

    def resolve(self, name: str) -> tuple[tuple[str, ...], Column]:
        """Find a column or a struct's field.

        Returns:
            The path to it, outermost name first, and the column.

        Raises:
            ColumnError: there is none of that name, or several.
        """
        found = self.find(name)
        if found is None:
            raise ColumnError(f"the frame has no column {name!r}.", facts={"columns": self.facts})
        return found

    def find(self, name: str) -> tuple[tuple[str, ...], Column] | None:
        """Find a column or a struct's field; None where there is none."""
        matches = [column for column in self.columns if self._is_named(column, name)]
        if len(matches) > 1:
            raise ColumnError(f"the frame has {len(matches)} columns named {name!r}.", facts={"columns": self.facts})
        if matches:
            return (matches[0].name,), matches[0]
        for column in self.columns:
            if column.fields and name.startswith(column.name + "."):
                inner = Schema(column.fields).find(name[len(column.name) + 1 :])
                if inner is not None:
                    return (column.name, *inner[0]), replace(inner[1], name=name)
        return None

    def taken(self, name: str) -> str | None:
        """Return the column whose name collides with this one, or None."""
        return next((column.name for column in self.columns if self._is_named(column, name)), None)

    def _is_named(self, column: Column, name: str) -> bool:
        return column.name == name or (self.folds_case and column.name.lower() == name.lower())

    def __repr__(self) -> str:
        """Print as ``print_schema`` does."""
        lines = (f" |-- {c.name}: {c.type_name} (nullable = {str(c.nullable).lower()}) {c.tensor_name}" for c in self.columns)
        return "\n".join(["root", *lines])

    def _repr_html_(self) -> str:
        """Show as a table in a notebook."""
        cells = "".join(
            f"<tr><td>{_escape(c.name)}</td><td>{_escape(c.type_name)}</td><td>{str(c.nullable).lower()}</td>"
            f"<td>{_escape(c.tensor_name)}</td></tr>"
            for c in self.columns
        )
        return f"<table><tr><th>column</th><th>type</th><th>nullable</th><th>block</th></tr>{cells}</table>"


def column_from_field(field: pa.Field) -> Column:
    """Read a column from an Arrow field and its metadata (Spark's or our own)."""
    fields = tuple(column_from_field(field.type.field(i)) for i in range(field.type.num_fields)) if pa.types.is_struct(field.type) else ()
    rank = vector_rank(field.type)
    leaf, inner = split_lists(field.type) if rank is None else (pa.float64(), Shape([None] * rank))
    dtype = dtype_of_arrow(leaf)
    column = Column(field.name, field.type, field.nullable, dtype, inner if dtype or _is_decimal(leaf) else None, fields)
    column = column if rank is None else replace(column, native_type=VECTOR_NAMES[rank])
    known = _metadata_shape(field)
    if dtype is None or known is None or len(known) != len(inner):
        return column
    return column.with_cell_shape(inner.narrow(known) if inner.accepts(known) else inner)


def metadata_of(column: Column) -> dict[str, object]:
    """Return the metadata that a column carries: the block's shape with -1 for unknown, and Spark's name of the scalar type."""
    assert column.block is not None
    assert column.block.shape is not None
    dims = [-1 if dim is None else dim for dim in column.block.shape]
    return {SHAPE_KEY: dims, DTYPE_KEY: BY_NAME[column.block.dtype].spark or column.block.dtype}


def field_with_metadata(field: pa.Field, column: Column) -> pa.Field:
    """Return an Arrow field that carries the column's shape; whatever else its metadata says is kept."""
    entries = {key.encode(): json.dumps(value).encode() for key, value in metadata_of(column).items()}
    return field.with_metadata({**(field.metadata or {}), **entries})


def plain_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema of some columns, without metadata."""
    return pa.schema([pa.field(column.name, column.arrow, column.nullable) for column in columns])


def split_lists(arrow: pa.DataType) -> tuple[pa.DataType, Shape]:
    """Return the type inside all list levels, and the cell's shape: a fixed-size list knows its dimension."""
    dims: list[int | None] = []
    while True:
        if isinstance(arrow, pa.FixedShapeTensorType):
            return arrow.value_type, Shape((*dims, *_logical_shape(arrow)))
        if pa.types.is_fixed_size_list(arrow):
            dims.append(arrow.list_size)
        elif is_list(arrow):
            dims.append(None)
        else:
            return arrow, Shape(dims)
        arrow = arrow.value_type


VECTOR_NAMES = {1: "vector", 2: "matrix"}
AS_ARRAY = "as array"
"""The last step of a path to a vector that is wanted as an array: frames that can make one faster than a worker do, others ignore it."""


def vector_rank(arrow: pa.DataType) -> int | None:
    """Return 1 for the type of Spark's vectors, 2 for that of its matrices, None for any other.

    Args:
        arrow: a column's type; fields may be nullable or not, lists may be large ones.
    """
    return {_spelled(VECTOR): 1, _spelled(MATRIX): 2}.get(_spelled(arrow)) if pa.types.is_struct(arrow) else None


def _spelled(arrow: pa.StructType) -> tuple[tuple[str, str], ...]:
    """Spell a struct's fields but for what may differ: what is nullable, whether lists are large, and what they call their elements."""
    return tuple((field.name, f"list of {field.type.value_type}" if is_list(field.type) else str(field.type)) for field in arrow)


def _is_decimal(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(arrow.value_type if pa.types.is_dictionary(arrow) else arrow))


def is_list(arrow: pa.DataType) -> bool:
    """Tell whether a type is a list of any length."""
    return bool(pa.types.is_list(arrow) or pa.types.is_large_list(arrow))


def list_type(leaf: pa.DataType, rank: int) -> pa.DataType:
    """Wrap a scalar type into as many list levels as the rank says."""
    for _ in range(rank):
        leaf = pa.list_(leaf)
    return leaf


def _logical_shape(arrow: pa.FixedShapeTensorType) -> list[int]:
    return [arrow.shape[i] for i in arrow.permutation] if arrow.permutation else list(arrow.shape)


def _metadata_shape(field: pa.Field) -> Shape | None:
    metadata = field.metadata or {}
    text = metadata.get(SHAPE_KEY.encode())
    try:
        dims = json.loads(text) if text else json.loads(metadata.get(_SPARK_KEY, b"{}")).get(SHAPE_KEY)
        return Shape.of(dims[1:]) if dims else None
    except (ValueError, TypeError):  # somebody else's metadata, out of which no shape is to be had
        return None


_SPARK_NAMES = {"int": "integer"}


def _type_name(arrow: pa.DataType) -> str:
    if pa.types.is_struct(arrow):
        return "struct"
    if pa.types.is_map(arrow):
        return "map"
    if split_lists(arrow)[1]:
        return "array"
    if pa.types.is_date32(arrow):
        return "date"
    if pa.types.is_timestamp(arrow):
        return "timestamp" if arrow.tz else "timestamp_ntz"
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if is_bytes(arrow):
        return "binary"
    dtype = dtype_of_arrow(arrow)
    spark = BY_NAME[dtype].spark if dtype else None
    return _SPARK_NAMES.get(spark, spark) if spark else str(arrow)


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
