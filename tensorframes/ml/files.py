"""Files of stages: Spark ML's metadata, and beside it the program as a SavedModel.

A stage's directory holds ``metadata/``, as Spark ML writes it, and ``program/``. Knows Spark ML's readers and writers; no frames. The one
law: nothing is unpickled, and what a newer version wrote is refused, not guessed at.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReader, MLWriter

from tensorframes.errors import ProgramError, raised_by
from tensorframes.feeds import Feed
from tensorframes.ml.storage import TABLE, storage, table_files
from tensorframes.ops.programs import load_program

FORMAT = 1
_FIELD = "tensorframesFormat"
_COMPILED = "jitCompile"  # which a SavedModel does not say
_LAYOUT = "programLayout"
_BYTES = "base64"


class StageWriter(MLWriter):
    """Saves a stage that has a program."""

    def __init__(self, instance: Any) -> None:
        super().__init__()
        self.instance = instance

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the stage to a directory of any file system that Spark knows.

        Args:
            path: a directory, which is made; after ``overwrite()`` it may be there and is replaced.

        Raises:
            ProgramError: there is something already, or the stage has no program, or one that no SavedModel holds.
        """
        path, program = os.fspath(path), self.instance.program
        with raised_by("save"), tempfile.TemporaryDirectory() as folder:
            if program is None:
                raise ProgramError(f"the stage {self.instance.uid} has no program.", hint="Give it one: setProgram(…).")
            files = storage(self.sparkSession)
            if not self.shouldOverwrite and files.exists(path):
                raise ProgramError(f"there is something at {path!r} already.", hint="Replace it: write().overwrite().save(path).")
            local = os.path.join(folder, "program")
            program.save(local)  # before anything is deleted
            files.delete(path)
            extra = {_FIELD: FORMAT, _COMPILED: program.is_compiled, _LAYOUT: files.layout}
            # As DefaultParamsWriter.saveMetadata does, which overwrites nothing.
            params = {param.name: _as_json(value) for param, value in self.instance._paramMap.items()}
            metadata = DefaultParamsWriter._get_metadata_to_save(self.instance, self.sparkSession, extra, params)
            table = self.sparkSession.createDataFrame([(metadata,)], "value string").coalesce(1)
            table.write.mode("overwrite").text(os.path.join(path, "metadata"))
            files.write(local, os.path.join(path, "program"))


class StageReader(MLReader[Any]):
    """Loads a stage that a `StageWriter` saved."""

    def __init__(self, cls: type) -> None:
        super().__init__()
        self.cls = cls

    def load(self, path: str | os.PathLike[str]) -> Any:
        """Read the stage from a directory.

        Raises:
            ProgramError: there is none, or it was written by a newer version.
        """
        path = os.fspath(path)
        with raised_by("load"):
            files = storage(self.sparkSession)
            if not files.exists(os.path.join(path, "metadata")):
                raise ProgramError(f"there is no {self.cls.__name__} at {path!r}.")
            metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
            held, kind = metadata.get(_FIELD), metadata.get("class")
            if kind != f"{self.cls.__module__}.{self.cls.__qualname__}":
                raise ProgramError(f"there is no {self.cls.__name__} at {path!r}, but a {kind}.")
            if not isinstance(held, int):
                raise ProgramError(f"the {self.cls.__name__} at {path!r} is damaged: its metadata has no format number.")
            if held > FORMAT:
                raise ProgramError(
                    f"{path!r} was written by a newer version of TensorFrames (format {held}; this one reads up to {FORMAT})."
                )
            inner = os.path.join(path, "program")
            if not files.exists(inner):
                raise ProgramError(f"the {self.cls.__name__} at {path!r} is damaged: {inner!r} is missing.")
            is_table = metadata.get(_LAYOUT) == TABLE
            with table_files(self.sparkSession, inner) if is_table else files.directory(inner) as local:
                program = load_program(local, jit_compile=metadata.get(_COMPILED, False))
            stage: Any = self.cls(program=program)
            stage._resetUid(metadata["uid"])
            DefaultParamsReader.getAndSetParams(stage, metadata)
            return stage


def _as_json(value: Any) -> Any:
    """Return a Param's value as JSON has it: a feed as its fields, bytes in base 64."""
    if isinstance(value, Feed):
        return {name: _as_json(option) for name, option in asdict(value).items()}
    if isinstance(value, Mapping):
        return {name: _as_json(part) for name, part in value.items()}
    return {_BYTES: base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def read_feed(written: Mapping[str, Any]) -> Feed:
    """Return the feed that was written as JSON."""
    options: dict[str, Any] = {
        name: base64.b64decode(value[_BYTES]) if isinstance(value, Mapping) else value for name, value in written.items()
    }
    return Feed(**options)
