"""Composites: dense, ragged and sparse tensors as the plain tensors that they consist of.

A program's graph has plain tensors only. Knows TensorFlow and the types of a signature; no programs, no columns. The one law: `join`
undoes `split`, and both go by the type alone.

A ragged tensor is its flat values, then its row_splits, outermost first; a sparse one its indices, values and dense shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tensorframes.columns import TensorType
from tensorframes.shapes import Shape

SPECS = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)


def type_of(value: Any) -> TensorType:
    """Return the type of a tensor of any kind, or of its spec."""
    shape = None if value.shape.rank is None else Shape(value.shape.as_list())
    rank = value.ragged_rank if isinstance(value, tf.RaggedTensor | tf.RaggedTensorSpec) else 0
    return TensorType(value.dtype.base_dtype.name, shape, rank, isinstance(value, tf.SparseTensor | tf.SparseTensorSpec))


def spec_of(kind: TensorType) -> Any:
    """Return TensorFlow's spec of a type."""
    if kind.is_sparse:
        return tf.SparseTensorSpec(kind.shape, kind.dtype)
    if kind.ragged_rank:
        return tf.RaggedTensorSpec(kind.shape, kind.dtype, kind.ragged_rank)
    return tf.TensorSpec(kind.shape, kind.dtype)


def part_specs(kind: TensorType) -> list[tf.TensorSpec]:
    """Return the specs of the plain tensors that a tensor of this type consists of."""
    if kind.is_sparse:
        rank = None if kind.shape is None else len(kind.shape)
        return [tf.TensorSpec([None, rank], tf.int64), tf.TensorSpec([None], kind.dtype), tf.TensorSpec([rank], tf.int64)]
    if kind.ragged_rank:
        inner = None if kind.shape is None else [None, *kind.shape[kind.ragged_rank + 1 :]]
        return [tf.TensorSpec(inner, kind.dtype), *(tf.TensorSpec([None], tf.int64) for _ in range(kind.ragged_rank))]
    return [tf.TensorSpec(kind.shape, kind.dtype)]


def join(kind: TensorType, parts: Sequence[tf.Tensor]) -> Any:
    """Return the tensor of a type that consists of these."""
    if kind.is_sparse:
        sparse = tf.SparseTensor(*parts)
        if kind.shape is not None and not tf.executing_eagerly():
            sparse.set_shape(tf.TensorShape(kind.shape))
        return sparse
    if kind.ragged_rank:
        return tf.RaggedTensor.from_nested_row_splits(parts[0], list(parts[1:]), validate=False)
    return parts[0]


def split(value: Any) -> list[tf.Tensor]:
    """Return the plain tensors that a tensor consists of."""
    if isinstance(value, tf.SparseTensor):
        return [value.indices, value.values, value.dense_shape]
    if isinstance(value, tf.RaggedTensor):
        wide = value.with_row_splits_dtype(tf.int64)
        return [wide.flat_values, *wide.nested_row_splits]
    return [value]


def conform(value: Any, spec: Any) -> Any:
    """Give a ragged tensor the row_splits' dtype that a declared spec asks for."""
    return value.with_row_splits_dtype(spec.row_splits_dtype) if isinstance(spec, tf.RaggedTensorSpec) else value
