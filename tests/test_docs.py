"""Every example in README and docs runs and prints what it says."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
IN_FILES = "pipelines.md"  # looks into what a classic session saved
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if ">>>" in page.read_text()]
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.classic] if page.name == IN_FILES else [], id=page.name) for page in PAGES]
)
def test_examples_print_what_they_say(page: Path, spark) -> None:
    text = page.read_text()
    name = page.name
    test = doctest.DocTestParser().get_doctest(
        text.replace("```\n", "\n").replace("```python\n", "\n"), {"__name__": "__main__"}, name, str(page), 0
    )
    printed: list[str] = []
    result = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=printed.append)
    assert result.failed == 0, "".join(printed)
    assert result.attempted > 0, f"{name} has no example"
