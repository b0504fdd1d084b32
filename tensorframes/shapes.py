"""Shapes of cells and blocks.

Knows nothing of types. The one law: an unknown dimension is None in Python, ``?`` in print and -1 in metadata.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

Dim = int | None


class Shape(tuple[Dim, ...]):
    """The dimensions of a tensor, outermost first; None is an unknown one.

    Example:
        >>> print(Shape([None, 2]), Shape.parse("[?,2]") == (None, 2), Shape([]))
        [?, 2] True []
    """

    __slots__ = ()

    def __str__(self) -> str:
        """Print as ``[?, 2]``."""
        return self.print(", ")

    def __repr__(self) -> str:
        """Print as ``Shape([None, 2])``."""
        return f"Shape({list(self)})"

    def __reduce__(self) -> tuple[type[Shape], tuple[tuple[Dim, ...]]]:
        """Pickle as a plain tuple."""
        return Shape, (tuple(self),)

    def print(self, comma: str = ",") -> str:
        """Print with the given separator."""
        return "[" + comma.join("?" if dim is None else str(dim) for dim in self) + "]"

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Read what `print` wrote."""
        inner = text.strip().removeprefix("[").removesuffix("]").strip()
        return cls(None if part.strip() == "?" else int(part) for part in inner.split(",")) if inner else cls()

    @classmethod
    def of(cls, dims: Iterable[int | None]) -> Shape:
        """Make a shape from whatever spells dimensions; -1 is accepted for unknown.

        Raises:
            ValueError: a dimension is neither None nor an integer from -1 on.
        """
        return cls(None if dim is None or _dim(dim) == -1 else _dim(dim) for dim in dims)

    def accepts(self, other: Sequence[Dim]) -> bool:
        """Tell whether a tensor of the other shape may be one of this shape."""
        return len(self) == len(other) and all(a is None or b is None or a == b for a, b in zip(self, other, strict=True))

    def narrow(self, other: Sequence[Dim]) -> Shape:
        """Fill in unknown dimensions from the other, which must be accepted."""
        return Shape(b if a is None else a for a, b in zip(self, other, strict=True))


def _dim(dim: object) -> int:
    if isinstance(dim, bool) or not hasattr(dim, "__index__") or not -1 <= operator.index(dim) < 2**63:
        raise ValueError(f"{dim!r} is no dimension")
    return operator.index(dim)


def merge_shapes(a: Sequence[Dim], b: Sequence[Dim]) -> Shape:
    """Return the weakest shape that covers both, which must have the same rank.

    Example:
        >>> merge_shapes([2, 3], [4, 3])
        Shape([None, 3])
    """
    return Shape(x if x == y else None for x, y in zip(a, b, strict=True))
