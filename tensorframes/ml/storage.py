"""Where a stage's program lies, beside Spark ML's metadata: as a SavedModel's directory, or as a table of that directory's files.

A classic session's JVM has clients for all file systems, and writes the directory. Spark Connect gives no access to files, only to tables:
there the files become a Parquet table, in parts that fit into Connect's messages. Both sessions read both. Knows Spark; no stages. The one
law: what is read is byte for byte what was written.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (its name in Spark's own documentation)

from tensorframes.frames.spark import listed_paths

DIRECTORY, TABLE = "directory", "table"
_PART_BYTES = 4 * 2**20


def storage(session: SparkSession) -> HadoopStorage | TableStorage:
    """Return what a session can write to and read from."""
    return HadoopStorage(session) if hasattr(session, "_jsparkSession") else TableStorage(session)


@contextmanager
def table_files(session: SparkSession, path: str) -> Iterator[str]:
    """Give the local path of a directory whose files a table holds."""
    rows = session.read.parquet(path).orderBy("file", "part").toLocalIterator()
    with tempfile.TemporaryDirectory() as folder:
        _write_parts(folder, ((row.file, bytes(row.content)) for row in rows))
        yield folder


class HadoopStorage:
    """All file systems that Hadoop knows, by the JVM of a classic session."""

    layout = DIRECTORY

    def __init__(self, session: Any) -> None:
        self._path = session._jvm.org.apache.hadoop.fs.Path
        self._configuration = session._jsparkSession.sessionState().newHadoopConf()

    def exists(self, path: str) -> bool:
        """Tell whether there is anything."""
        return bool(self._files(path).exists(self._path(path)))

    def delete(self, path: str) -> None:
        """Delete whatever is there."""
        self._files(path).delete(self._path(path), True)

    def write(self, local: str, path: str) -> None:
        """Copy a local directory to a path where nothing is."""
        self._files(path).copyFromLocalFile(False, False, self._path("file", "", local), self._path(path))

    @contextmanager
    def directory(self, path: str) -> Iterator[str]:
        """Give the local path of a directory, which is copied here where it is none."""
        files = self._files(path)
        place = files.makeQualified(self._path(path)).toUri()
        if place.getScheme() == "file":
            yield place.getPath()
            return
        with tempfile.TemporaryDirectory() as folder:
            copied = os.path.join(folder, "program")
            files.copyToLocalFile(False, self._path(path), self._path("file", "", copied), True)
            yield copied

    def _files(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._configuration)


class TableStorage:
    """What Spark can read and write as tables: all there is on Connect."""

    layout = TABLE

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def exists(self, path: str) -> bool:
        """Tell whether there is anything."""
        try:
            return bool(self._session.read.format("binaryFile").load(path).columns)
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                return False
            raise

    def delete(self, path: str) -> None:
        """Do nothing: tables are overwritten."""

    def write(self, local: str, path: str) -> None:
        """Write the files of a local directory as a table, over one that is there."""
        files = sorted(file for file in Path(local).rglob("*") if file.is_file())
        parts = [(str(file.relative_to(local)), number, part) for file in files for number, part in enumerate(_parts(file.read_bytes()))]
        self._session.createDataFrame(parts, "file string, part int, content binary").write.mode("overwrite").parquet(path)

    @contextmanager
    def directory(self, path: str) -> Iterator[str]:
        """Give the local path of a directory to which the files of another are copied."""
        files = self._session.read.format("binaryFile").option("recursiveFileLookup", True).load(path)
        listed = listed_paths(files)
        home = min((path for path in listed if path.endswith("/saved_model.pb")), key=len).removesuffix("saved_model.pb")
        rows = _in_parts(files).toLocalIterator()
        with tempfile.TemporaryDirectory() as folder:
            _write_parts(folder, ((path.removeprefix(home), b"") for path in listed))  # those too that are empty, which are not read
            _write_parts(folder, ((row.path.removeprefix(home), bytes(row.content)) for row in rows))
            yield folder


def _parts(content: bytes) -> Iterator[bytes]:
    for begin in range(0, max(len(content), 1), _PART_BYTES):
        yield content[begin : begin + _PART_BYTES]


def _in_parts(files: DataFrame) -> DataFrame:
    numbers = F.expr(f"explode(sequence(0, cast((length - 1) div {_PART_BYTES} as int))) as part")
    content = F.expr(f"substring(content, part * {_PART_BYTES} + 1, {_PART_BYTES}) as content")
    return files.select("path", "length", "content", numbers).select("path", "part", content).orderBy("path", "part")


def _write_parts(folder: str, parts: Iterable[tuple[str, bytes]]) -> None:
    for name, content in parts:
        place = os.path.join(folder, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "ab") as file:
            file.write(content)
