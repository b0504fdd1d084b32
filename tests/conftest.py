"""What all tests share: a quiet TensorFlow, one Spark session, and every kind of frame behind one `frame` fixture."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

# TensorFlow and Spark read these when they start.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

pytest.register_assert_rewrite("flavours")

from flavours import LOCAL, Flavour, spark_flavour  # noqa: E402
from sessions import PLACES, start_session  # noqa: E402


@pytest.hookimpl(wrapper=True)  # before -m deselects, and after pytest has its order
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark whatever uses the Spark session, and run it after the rest: Spark ends Python workers that are idle for a minute."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("classic") and item.config.getoption("--on") == "connect":
            item.add_marker(pytest.mark.skip(reason="only in a process with a classic session"))
    yield
    items.sort(key=lambda item: item.get_closest_marker("spark") is not None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the tests run elsewhere, in a process of their own: one that has a classic session can start none on Connect."""
    parser.addoption(
        "--on",
        choices=PLACES,
        default="local",
        help="where Spark runs: executors of a cluster are processes of their own; "
        "on Connect tests of what only classic sessions have are skipped",
    )


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start one session for all tests: two cores, and batches of three rows."""
    session = start_session(request.config.getoption("--on"), tmp_path_factory.mktemp("home"))
    yield session
    session.stop()


# Of the session's scope, so that all tests of one kind run together and find Spark's workers warm.
@pytest.fixture(
    scope="session", params=[*LOCAL, pytest.param("spark", marks=pytest.mark.spark)], ids=lambda kind: getattr(kind, "name", kind)
)
def frame(request: pytest.FixtureRequest) -> Flavour:
    """Give each kind of frame in turn; the body of a test is the same for all."""
    return spark_flavour(request.getfixturevalue("spark")) if request.param == "spark" else request.param
