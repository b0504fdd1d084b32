"""Every example runs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example():
    """Load an example as a namespace, without running it."""
    return lambda name: runpy.run_path(str(EXAMPLES / name), run_name="example")


def test_digits_labels_nineteen_of_twenty_unseen_images_rightly_and_draws_some(spark, example, tmp_path, capsys) -> None:
    picture = tmp_path / "digits.png"
    accuracy = example("digits.py")["main"](["--plot", str(picture)])
    assert accuracy > 0.95
    assert picture.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert " |-- scores: array (nullable = true) double[?,10]\n |-- label: long (nullable = true) long[?]\n" in printed
    assert f"the 898 unseen ones: {accuracy:.4f}" in printed
