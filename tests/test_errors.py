"""The exceptions and the layout of their messages."""

import copy
import pickle

import cloudpickle
import pytest
from expectations import Expect, cases, check

import tensorframes as tfs
from tensorframes.errors import TensorFramesError, format_message, verb

BUILTINS = {
    "ColumnError": ValueError,
    "DTypeError": TypeError,
    "ShapeError": ValueError,
    "NullError": ValueError,
    "ProgramError": ValueError,
    "EmptyFrameError": ValueError,
    "FrameError": TypeError,
}


@pytest.mark.parametrize(("name", "builtin"), BUILTINS.items(), ids=BUILTINS)
def test_each_error_is_the_builtin_that_a_caller_expects(name, builtin):
    kind = getattr(tfs, name)
    assert kind.__mro__[1:3] == (tfs.TensorFramesError, builtin)
    with pytest.raises(builtin, match=r"^no\.$"):
        raise kind("no.")


def test_there_is_no_other_error():
    assert {kind.__name__ for kind in TensorFramesError.__subclasses__()} == BUILTINS.keys()


MANY = [f"c{i}: int64[?]" for i in range(32)]


@cases(
    Expect({"summary": "no."}, "no.", "a sentence"),
    Expect({"summary": "no.", "verb": "map_rows"}, "map_rows: no.", "a verb"),
    Expect({"summary": "no.", "hint": "Do this."}, "no.\n  Do this.", "a hint"),
    Expect({"summary": "no.", "facts": {}}, "no.", "no facts"),
    Expect({"summary": "no.", "facts": {"columns": []}}, "no.\n  columns: (none)", "an empty fact"),
    Expect(
        {
            "summary": "input 'x' wants float32[?] but column 'x' holds string[?].",
            "facts": {"inputs": ["x: float32[?]"], "columns": ["k: int64[?]", "x: string[?]"]},
            "hint": "Cast the column, or feed another one with feed_dict={'x': …}.",
            "verb": "map_blocks",
        },
        "map_blocks: input 'x' wants float32[?] but column 'x' holds string[?].\n"
        "  inputs:  x: float32[?]\n"
        "  columns: k: int64[?], x: string[?]\n"
        "  Cast the column, or feed another one with feed_dict={'x': …}.",
        "all parts",
    ),
    Expect({"summary": "no.", "facts": {"columns": MANY[:20]}}, f"no.\n  columns: {', '.join(MANY[:20])}", "20 facts"),
    Expect({"summary": "no.", "facts": {"columns": MANY[:21]}}, f"no.\n  columns: {', '.join(MANY[:20])}, and 1 more", "21 facts"),
    Expect({"summary": "no.", "facts": {"columns": MANY}}, f"no.\n  columns: {', '.join(MANY[:20])}, and 12 more", "32 facts"),
)
def test_layout(case):
    check(lambda parts: format_message(**parts), case)
    check(lambda parts: str(tfs.ColumnError(**parts)), case)


@pytest.mark.parametrize("through", [pickle, cloudpickle], ids=lambda module: module.__name__)
@pytest.mark.parametrize("name", [*BUILTINS, "TensorFramesError"])
def test_errors_cross_processes_with_all_their_parts(name, through):
    kind = getattr(tfs, name)
    error = kind("no.", facts={"columns": ["a", "b"]}, hint="Do this.", verb="map_rows")
    for again in (through.loads(through.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert (again.summary, again.facts, again.hint, again.verb) == ("no.", {"columns": ["a", "b"]}, "Do this.", "map_rows")
        assert str(again) == str(error) == "map_rows: no.\n  columns: a, b\n  Do this."


def test_the_verb_is_added_once_by_the_outermost_that_knows_it():
    @verb
    def inner(error: Exception) -> None:
        raise error

    @verb
    def outer(error: Exception) -> None:
        inner(error)

    with pytest.raises(tfs.ShapeError) as raised:
        outer(tfs.ShapeError("no."))
    assert str(raised.value) == "inner: no."
    with pytest.raises(KeyError, match=r"^'no\.'$"):
        outer(KeyError("no."))
    assert inner.__name__ == "inner"
    assert verb(abs)(-1) == 1
