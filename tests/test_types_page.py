"""docs/types.md says what the tables in the code say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pyarrow as pa

from tensorframes.dtypes import BY_NAME

ROOT = Path(__file__).parent.parent


def test_the_page_is_what_the_tables_give() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "types_page.py"))
    assert page["PAGE"].read_text() == page["write"](), "run: python docs/types_page.py"


def test_the_page_has_every_scalar_type() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "types_page.py"))
    listed = {kind for _, kinds, _ in page["_COLUMNS"] for kind in kinds}
    assert {scalar.arrow for scalar in BY_NAME.values() if scalar.arrow is not None} <= listed
    assert pa.binary() in listed
