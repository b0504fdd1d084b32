"""Files of stages: Spark ML's metadata, and beside it the program as a SavedModel.

A stage's directory holds ``metadata/``, as Spark ML writes it, and ``program/``. Knows Spark's file systems, of which the classic session's
JVM has the clients; knows no frames. The one law: nothing is unpickled, and what a newer version wrote is refused, not guessed at.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReader, MLWriter
from pyspark.sql import SparkSession

from tensorframes.errors import ProgramError, raised_by
from tensorframes.ops.programs import load_program

FORMAT = 1
_FIELD = "tensorframesFormat"
_COMPILED = "jitCompile"  # which a SavedModel does not say


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
            ProgramError: there is something already, the stage has no program or one that no SavedModel holds, or the session is none of
                the classic kind.
        """
        path, program = os.fspath(path), self.instance.program
        with raised_by("save"), tempfile.TemporaryDirectory() as folder:
            if program is None:
                raise ProgramError(f"the stage {self.instance.uid} has no program.", hint="Give it one: setProgram(…).")
            files = _FileSystem(self.sparkSession, path)
            if not self.shouldOverwrite and files.exists(path):
                raise ProgramError(f"there is something at {path!r} already.", hint="Replace it: write().overwrite().save(path).")
            local = os.path.join(folder, "program")
            program.save(local)  # before anything is deleted
            if self.shouldOverwrite:
                self._handleOverwrite(path)
            extra = {_FIELD: FORMAT, _COMPILED: program.is_compiled}
            DefaultParamsWriter.saveMetadata(self.instance, path, self.sparkSession, extraMetadata=extra)
            files.write(local, os.path.join(path, "program"))


class StageReader(MLReader[Any]):
    """Loads a stage that a `StageWriter` saved."""

    def __init__(self, cls: type) -> None:
        super().__init__()
        self.cls = cls

    def load(self, path: str | os.PathLike[str]) -> Any:
        """Read the stage from a directory.

        Raises:
            ProgramError: there is none, it was written by a newer version, or the session is none of the classic kind.
        """
        path = os.fspath(path)
        with raised_by("load"):
            files = _FileSystem(self.sparkSession, path)
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
            with files.local(inner) as local:
                program = load_program(local, jit_compile=metadata.get(_COMPILED, False))
            stage: Any = self.cls(program=program)
            stage._resetUid(metadata["uid"])
            DefaultParamsReader.getAndSetParams(stage, metadata)
            return stage


class _FileSystem:
    """The file system of a path, by the JVM's client for it."""

    def __init__(self, session: SparkSession, path: str) -> None:
        classic: Any = session
        if not hasattr(classic, "_jsparkSession"):
            raise ProgramError(
                f"{path!r} is in a file system of Spark's, which Spark Connect gives no access to; a classic session is wanted.",
                hint="Save the program itself: stage.program.save(path), tfs.load_program(path).",
            )
        self._path = classic._jvm.org.apache.hadoop.fs.Path
        self._files = self._path(path).getFileSystem(classic._jsparkSession.sessionState().newHadoopConf())

    def exists(self, path: str) -> bool:
        """Tell whether there is anything."""
        return bool(self._files.exists(self._path(path)))

    def write(self, local: str, path: str) -> None:
        """Copy a local directory to a path where nothing is."""
        self._files.copyFromLocalFile(False, False, self._path("file", "", local), self._path(path))

    @contextmanager
    def local(self, path: str) -> Iterator[str]:
        """Give the local path of a directory, which is copied here where it is none."""
        place = self._files.makeQualified(self._path(path)).toUri()
        if place.getScheme() == "file":
            yield place.getPath()
            return
        with tempfile.TemporaryDirectory() as folder:
            copied = os.path.join(folder, "program")
            self._files.copyToLocalFile(False, self._path(path), self._path("file", "", copied), True)
            yield copied
