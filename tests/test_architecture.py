"""Who may import whom, and what every room owes to its readers."""

import ast
import doctest
import graphlib
import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tensorframes

ROOT = Path(tensorframes.__file__).parent

# Room → the rooms right below it; it may import these and whatever lies below them.
BELOW = {
    "errors": [],
    "dtypes": ["errors"],
    "shapes": ["errors"],
    "columns": ["dtypes", "shapes"],
    "blobs": [],
    "prefetch": [],
    "settings": ["errors"],
    "feeds": ["columns", "blobs"],
    "matching": ["feeds"],
    "blocks": ["feeds"],
    "tensors": ["blocks"],
    "digest": [],
    "composites": ["columns"],
    "graphdefs": ["errors"],
    "programs": ["tensors", "digest", "composites", "graphdefs"],
    "turns": [],
    "device": ["errors", "turns"],
    "capture": ["programs", "matching"],
    "plan": ["programs", "matching", "device"],
    "calls": ["plan"],
    "runner": ["capture", "calls", "prefetch"],
    "frames": ["blocks", "device", "settings"],
    "fold": ["runner"],
    "reductions": ["programs"],
    "combine": ["fold", "reductions"],
    "ops": ["combine", "frames"],
    "sql": ["ops"],
    "ml": ["ops"],
    "images": ["ops"],
    "": [],
}
OWNERS = {
    "tensorflow": {
        *(
            "programs",
            "digest",
            "graphdefs",
            "tensors",
            "composites",
            "capture",
            "capture.chains",
            "capture.functions",
            "capture.graphs",
            "capture.keras_models",
            "capture.saved_models",
            "capture.tracing",
            "capture.vectorizing",
        ),
        *("calls", "reductions", "combine", "device", "ops.placeholders", "ops.programs", "images.files", "images.pixels"),
    },
    "pandas": {"frames.pandas"},
    "polars": {"frames.polars"},
    "pyspark": {"frames.spark", "frames.spark_files", "images.files", "ml", "ml.files", "ml.storage", "sql"},
}


def module_names(root: Path) -> dict[str, Path]:
    """Map each module of the package, without the package's name, to its file."""
    found = {".".join(path.relative_to(root).with_suffix("").parts): path for path in sorted(root.rglob("*.py"))}
    return {name.removesuffix("__init__").removesuffix("."): path for name, path in found.items()}


def imports(path: Path) -> Iterator[str]:
    """Name what a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def reachable(room: str) -> set[str]:
    return {room}.union(*(reachable(below) for below in BELOW[room]))


def violations(root: Path) -> list[str]:
    modules = module_names(root)
    edges: dict[str, set[str]] = {}
    found = []
    for name, path in modules.items():
        room = name.partition(".")[0]
        if room not in BELOW:
            found.append(f"{name} is in no room")
            continue
        for imported in imports(path):
            top, _, inner = imported.partition(".")
            if not top:
                found.append(f"{name} imports {imported} by a relative path")
            elif top in OWNERS and name not in OWNERS[top]:
                found.append(f"{name} imports {top}")
            elif top == "tensorframes":
                while inner not in modules:  # what is imported may be a name in a module
                    inner = inner.rpartition(".")[0]
                edges.setdefault(name, set()).add(inner)
                if inner.partition(".")[0] not in reachable(room):
                    found.append(f"{name or top} imports {inner or top}")
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        found.append("cycle: " + " → ".join(error.args[1]))
    return list(dict.fromkeys(found))


def test_imports_go_one_way():
    assert violations(ROOT) == []


def test_planted_violations_are_found(tmp_path):
    planted = {
        "__init__.py": "from tensorframes import errors",
        "errors.py": "def f():\n    from tensorframes.dtypes import can_cast",
        "dtypes.py": "from tensorframes.errors import DTypeError",
        "columns.py": "import tensorflow.compat as tf",
        "plan.py": "from . import columns",
        "util.py": "",
        "frames/__init__.py": "",
        "frames/arrow.py": "from pandas import DataFrame",
        "frames/pandas.py": "import pandas\nimport tensorframes.runner",
        "runner.py": "from tensorframes import __version__, frames",
    }
    for name, text in planted.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert sorted(violations(tmp_path)) == [
        "columns imports tensorflow",
        "cycle: errors → dtypes → errors",
        "errors imports dtypes",
        "frames.arrow imports pandas",
        "frames.pandas imports runner",
        "plan imports ..columns by a relative path",
        "runner imports frames",
        "runner imports tensorframes",
        "tensorframes imports errors",
        "util is in no room",
    ]


def loaded_after(code: str) -> set[str]:
    run = subprocess.run([sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True)
    return set(run.stdout.split()) & OWNERS.keys()


# pyarrow looks for pandas by itself as soon as it makes an array.
@pytest.mark.parametrize(
    ("code", "libraries"),
    [
        ("import tensorframes; dir(tensorframes), tensorframes.__all__, tensorframes.__version__", set()),
        ("import tensorframes as tfs; tfs.ShapeError", set()),
        (
            "import pyarrow as pa, tensorframes as tfs; table = pa.table({'y': [[1]]}); "
            "repr(tfs.schema(table)); tfs.append_shape(tfs.analyze(table), 'y', [None, 1])",
            {"pandas"},
        ),
        ("import pandas as pd, tensorframes as tfs; tfs.analyze(pd.DataFrame({'y': [[1]]}))", {"pandas"}),
        ("import polars as pl, tensorframes as tfs; tfs.analyze(pl.DataFrame({'y': [[1]]}))", {"pandas", "polars"}),
        ("import tensorframes.frames.spark, tensorframes.ops.shapes", {"pandas", "pyspark"}),
    ],
    ids=["the package", "an error", "analyze of a table", "analyze of pandas", "analyze of polars", "the adapter of Spark"],
)
def test_nothing_is_loaded_before_it_is_needed(code, libraries):
    assert loaded_after(code) <= libraries


def test_what_is_loaded_is_seen():
    assert "polars" in loaded_after("import tensorframes.frames.polars")


# --- the shop window ---


def test_every_public_name_is_there_and_no_other():
    assert dir(tensorframes) == sorted(tensorframes.__all__)
    assert all(hasattr(tensorframes, name) for name in tensorframes.__all__)
    with pytest.raises(AttributeError, match=r"^module 'tensorframes' has no attribute 'nothing'$"):
        tensorframes.nothing  # noqa: B018


@pytest.mark.parametrize("name", [name for name in tensorframes.__all__ if name != "__version__"])
def test_every_public_name_is_documented(name):
    value = getattr(tensorframes, name)
    lines = (value.__doc__ or "").splitlines()
    assert lines
    assert lines[0].endswith((".", ".``"))
    if inspect.isfunction(value):
        assert "    Example:" in lines
        assert "        >>> " in value.__doc__


# --- examples in docstrings ---


def examples(module: object) -> Iterator[doctest.DocTest]:
    """Find the examples of a module, those of decorated functions too, which doctest passes over."""
    finder = doctest.DocTestFinder()
    yield from (test for test in finder.find(module) if test.examples)
    for name, value in vars(module).items():
        plain = inspect.unwrap(value) if inspect.isfunction(value) else value
        if plain is not value and plain.__module__ == module.__name__:
            yield from (test for test in finder.find(plain, f"{module.__name__}.{name}", module) if test.examples)


MODULES = [f"tensorframes.{name}".rstrip(".") for name in module_names(ROOT)]


def needs_spark(name: str) -> bool:
    return "SparkSession.builder" in Path(importlib.util.find_spec(name).origin).read_text()


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.spark] if needs_spark(name) else []) for name in MODULES])
def test_examples_in_docstrings_run(name, capsys, request):
    if needs_spark(name):
        request.getfixturevalue("spark")
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS, verbose=False)
    for example in examples(importlib.import_module(name)):
        runner.run(example)
    assert runner.summarize(verbose=False).failed == 0, capsys.readouterr().out


def test_examples_of_every_public_function_are_found():
    found = {test.name for name in MODULES for test in examples(importlib.import_module(name))}
    functions = [value for value in (getattr(tensorframes, name) for name in tensorframes.__all__) if inspect.isfunction(value)]
    assert {f"{function.__module__}.{function.__name__}" for function in functions} <= found


def test_a_wrong_example_is_found(capsys):
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(wrong)
    assert runner.summarize(verbose=False).failed == 1
    assert "Expected:" in capsys.readouterr().out
