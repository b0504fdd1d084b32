"""Reading ahead: by one item, in another thread, and what goes wrong there."""

import threading
from collections.abc import Iterator

import pytest

from tensorframes.prefetch import ahead


def test_items_come_in_order_and_are_made_in_another_thread():
    threads = set()

    def made() -> Iterator[int]:
        for i in range(100):
            threads.add(threading.current_thread())
            yield i

    assert list(ahead(made())) == list(range(100))
    assert threads
    assert threading.current_thread() not in threads
    assert list(ahead([])) == []


def test_the_next_item_is_made_while_the_last_is_in_use():
    is_made = [threading.Event() for _ in range(4)]

    def made() -> Iterator[int]:
        for i, event in enumerate(is_made):
            event.set()
            yield i

    for i in ahead(made()):
        assert all(event.wait(60) for event in is_made[: i + 2])
        assert not any(event.is_set() for event in is_made[i + 2 :]), "one ahead, no more"


def test_what_goes_wrong_is_raised_where_the_item_is_taken():
    def made() -> Iterator[int]:
        yield 0
        raise OSError("the disk is gone")

    items = ahead(made())
    assert next(items) == 0
    with pytest.raises(OSError, match=r"^the disk is gone$"):
        next(items)


def test_a_caller_that_stops_early_leaves_no_thread_behind():
    made = []

    def endless() -> Iterator[int]:
        while True:
            made.append(len(made))
            yield made[-1]

    before = threading.active_count()
    items = ahead(endless())
    assert [next(items), next(items)] == [0, 1]
    items.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert len(made) <= 3
