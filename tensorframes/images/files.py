"""Files of images, and columns of their bytes, as Spark's image schema, with what is wrong with an image in its row.

Knows Spark's columns and TensorFlow's codecs. The one law: no image, whatever its bytes are, fails a job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (its name in Spark's own documentation)
from pyspark.sql import types as T  # noqa: N812

from tensorframes.errors import verb
from tensorframes.frames.spark import listed_paths, struct_udf
from tensorframes.images.pixels import Fit, Size, Sizing, decoded, finish
from tensorframes.tensors import eagerly

# Spark's ``ImageSchema.columnSchema``, which PySpark asks the JVM for.
IMAGE = T.StructType(
    [
        T.StructField("origin", T.StringType(), True),
        T.StructField("height", T.IntegerType(), False),
        T.StructField("width", T.IntegerType(), False),
        T.StructField("nChannels", T.IntegerType(), False),
        T.StructField("mode", T.IntegerType(), False),
        T.StructField("data", T.BinaryType(), False),
    ]
)
_RESULT = T.StructType([T.StructField("image", IMAGE), T.StructField("error", T.StringType())])
_MODES = {1: 0, 3: 16, 4: 24}  # OpenCV's CV_8UC1, CV_8UC3, CV_8UC4
_BATCH_BYTES = 16 * 2**20


@verb
def read_images(
    spark: SparkSession,
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    size: Size = None,
    fit: Fit = "stretch",
    method: str = "bilinear",
    antialias: bool = False,
    recursive: bool = False,
    pattern: str = "*",
) -> DataFrame:
    """Read a folder of images: JPEG, PNG, BMP, WebP, and of GIF the first frame, told apart by their content.

    A row for each file: ``path: string``; ``image``, of the schema that ``spark.read.format("image")`` gives (origin, height, width,
    nChannels, mode, data: bytes from the top, in BGR order), null where the file is no image that can be decoded; and ``error: string``,
    which then says why, else null. Gray images have 1 channel, those with alpha 4, others 3. Lazy, as everything that Spark reads.

    Args:
        spark: the session, classic or Connect.
        path: a file or folder, or several, as Spark reads them; globs too.
        size: (height, width), to which each image is brought as soon as it is decoded, rounded to whole values: what else goes through
            Spark are the pixels of the images as they are, which are ten times as many bytes as JPEG has.
        fit: as for `decode`.
        method: as for `decode`.
        antialias: as for `decode`.
        recursive: whether folders in the folder are read too.
        pattern: a glob for the files' names, such as "*.jpg".

    Raises:
        ShapeError: the size is no pair of positive numbers.
        ProgramError: there is no such fit or method.

    Example:
        >>> import pathlib, tempfile, tensorflow as tf
        >>> from pyspark.sql import SparkSession
        >>> from tensorframes import images
        >>> spark = SparkSession.builder.getOrCreate()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "white.png").write_bytes(tf.io.encode_png(tf.fill([2, 5, 3], tf.cast(255, tf.uint8))).numpy())
        ...     _ = pathlib.Path(folder, "zero.jpg").write_bytes(b"")
        ...     images.read_images(spark, folder).orderBy("path").select("image.height", "image.width", "error").collect()
        [Row(height=2, width=5, error=None), Row(height=None, width=None, error='Input is empty.')]
    """
    result = _function(spark, Sizing.of(size, fit, method, antialias))(F.col("content"), F.col("path"))
    reader = spark.read.format("binaryFile").option("pathGlobFilter", pattern).option("recursiveFileLookup", bool(recursive))
    files = reader.load([os.fspath(part) for part in ([path] if isinstance(path, str | os.PathLike) else path)])
    contents = files.select("path", "content").unionAll(_empty_files(spark, files))
    return contents.select("path", result.alias("_")).select("path", "_.image", "_.error")


def _empty_files(session: SparkSession, files: DataFrame) -> DataFrame:
    """Return the files that Spark's sources leave out since there is nothing in them: those that it lists and does not read."""
    listed = session.createDataFrame([(path,) for path in listed_paths(files)], "path string")
    left_out = listed.join(F.broadcast(files.select("path")), "path", "left_anti")
    return left_out.select("path", F.lit(b"").alias("content")).coalesce(1)


@verb
def as_image(
    content: Column | str,
    origin: Column | str | None = None,
    *,
    size: Size = None,
    fit: Fit = "stretch",
    method: str = "bilinear",
    antialias: bool = False,
) -> Column:
    """Turn a column of encoded images into a struct of ``image`` and ``error``, as `read_images` has them.

    Args:
        content: the bytes, a binary column or its name.
        origin: where they come from, which Spark's image schema notes; None: nothing is noted.
        size: as for `read_images`.
        fit: as for `decode`.
        method: as for `decode`.
        antialias: as for `decode`.

    Raises:
        ShapeError: the size is no pair of positive numbers.
        ProgramError: there is no such fit or method.

    Example:
        >>> from pyspark.sql import SparkSession
        >>> from tensorframes import images
        >>> spark = SparkSession.builder.getOrCreate()
        >>> df = spark.createDataFrame([(bytearray(b"no image"),)], "photo binary")
        >>> df.select(images.as_image("photo").alias("read")).select("read.error").first()[0]
        'Unknown image file format. One of JPEG, JPEG XL, PNG, GIF, BMP, WebP required.'
    """
    held, noted = (F.col(part) if isinstance(part, str) else part for part in (content, F.lit(None) if origin is None else origin))
    typed = F.coalesce(held, F.lit(None).cast("binary"))  # what is no bytes is refused when the query is analysed
    result: Column = _function(SparkSession.active(), Sizing.of(size, fit, method, antialias))(typed, noted.cast("string"))
    return result.alias("image")


def _function(session: SparkSession, sizing: Sizing | None) -> Any:
    return struct_udf(Reading(sizing), _RESULT, 2, session)


@dataclass(frozen=True, slots=True)
class Reading:
    """The function in the worker: bytes and where they come from → images and errors.

    Attributes:
        sizing: how images are brought to one size; None: they keep theirs.
    """

    sizing: Sizing | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give batches that end as soon as they hold many bytes, however many rows come at once."""
        for batch in batches:
            rows: list[tuple[Any, str | None]] = []
            held = 0
            for content, origin in zip(*batch.columns, strict=True):
                rows.append(self._read(content, origin))
                held += len(rows[-1][0]["data"]) if rows[-1][0] else 0
                if held >= _BATCH_BYTES:
                    yield _as_batch(rows)
                    rows, held = [], 0
            if rows or not len(batch):
                yield _as_batch(rows)

    def _read(self, content: pa.Scalar, origin: pa.Scalar) -> tuple[Any, str | None]:
        if not content.is_valid:
            return None, "The content is null."
        with eagerly(), tf.device("CPU:0"):
            try:
                pixels = decoded(content.as_py())
                held = pixels.shape[-1]
                pixels = finish(pixels, 4 if held == 2 else held, self.sizing)  # the schema has no gray with alpha
            except tf.errors.OpError as error:
                return None, re.sub(r"^\{\{.*?\}\} | \[Op:\w+\].*$", "", str(error), flags=re.DOTALL)
            stored = np.ascontiguousarray(_as_bgr(_as_bytes(pixels.numpy())))
        height, width, channels = stored.shape
        image = {
            "origin": origin.as_py(),
            "height": height,
            "width": width,
            "nChannels": channels,
            "mode": _MODES[channels],
            "data": stored.tobytes(),
        }
        return image, None


def _as_batch(rows: Sequence[tuple[Any, str | None]]) -> pa.RecordBatch:
    images, errors = [image for image, _ in rows], [error for _, error in rows]
    return pa.record_batch([pa.array(images, _ARROW_IMAGE), pa.array(errors, pa.string())], names=["image", "error"])


_ARROW_IMAGE = pa.struct(
    [
        pa.field("origin", pa.string()),
        *(pa.field(name, pa.int32()) for name in ("height", "width", "nChannels", "mode")),
        pa.field("data", pa.binary()),
    ]
)


def _as_bytes(values: np.ndarray) -> np.ndarray:
    """Round to whole values of a byte; interpolation may go beyond them."""
    return values if values.dtype == np.uint8 else np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _as_bgr(pixels: np.ndarray) -> np.ndarray:
    return pixels if pixels.shape[-1] == 1 else np.concatenate([pixels[..., 2::-1], pixels[..., 3:]], axis=-1)
