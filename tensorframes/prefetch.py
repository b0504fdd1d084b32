"""Prefetching: the next item is made while the caller works on the last.

Knows nothing of what the items are. The one law: never more than one item ahead, and what goes wrong in the making is raised where the
item is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")
_END: Any = object()


def ahead(items: Iterable[_T]) -> Iterator[_T]:
    """Give the items of an iterable, each of which is made in a background thread while the one before it is in use.

    When the caller stops early, the item that is being made is waited for, and no other is begun.

    Example:
        >>> list(ahead(range(3)))
        [0, 1, 2]
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="tensorframes-ahead") as thread:
        coming = thread.submit(next, iterator, _END)
        while (item := coming.result()) is not _END:
            coming = thread.submit(next, iterator, _END)
            yield item
