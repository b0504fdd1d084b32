"""Images: files of every kind and their errors, Spark's image schema, and programs from either to tensors of one size."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from expectations import ExpectFail, cases, check_refused
from PIL import Image
from pyspark.errors import AnalysisException

import tensorframes as tfs
from tensorframes import images
from tensorframes.images import files

RANDOM = np.random.default_rng(0)


def picture(height: int, width: int, channels: int = 3) -> np.ndarray:
    """Make smooth colours: what is a little noisy when JPEG has had it."""
    rows, columns = np.mgrid[0:height, 0:width]
    waves = [127 + 120 * np.sin(rows / (3 + i) + columns / (5 - i) + i) for i in range(channels)]
    return np.stack(waves, axis=-1).astype(np.uint8)


def encoded(pixels: np.ndarray, kind: str = "PNG", mode: str | None = None, **options: Any) -> bytes:
    """Encode by Pillow, which is no part of what is tested."""
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    stream = io.BytesIO()
    (image if mode is None else image.convert(mode)).save(stream, kind, **options)
    return stream.getvalue()


def by_pillow(content: bytes, mode: str) -> list[Any]:
    pixels = np.asarray(Image.open(io.BytesIO(content)).convert(mode))
    return (pixels if pixels.ndim == 3 else pixels[..., None]).tolist()


def decoded(content: bytes, **options: Any) -> list[Any]:
    return tfs.map_blocks(images.decode(**options), pa.table({"content": pa.array([content], pa.binary())}))["pixels"].to_pylist()[0]


# --- decode ---

GRAY, RGB, RGBA = picture(5, 4, 1), picture(5, 4), picture(3, 6, 4)
GRAY_ALPHA = encoded(picture(4, 3, 2)[..., :1], mode="LA")
LOSSLESS = {
    "gray PNG": encoded(GRAY),
    "RGB PNG": encoded(RGB),
    "PNG with alpha": encoded(RGBA),
    "gray PNG with alpha": GRAY_ALPHA,
    "PNG with a palette": encoded(RGB, mode="P"),
    "black and white PNG": encoded(GRAY, mode="1"),
    "gray BMP": encoded(GRAY, "BMP"),
    "RGB BMP": encoded(RGB, "BMP"),
    "GIF": encoded(RGB, "GIF"),
    "GIF of two pictures": encoded(RGB, "GIF", save_all=True, append_images=[Image.fromarray(RGB[::-1])]),
    "WebP": encoded(RGB, "WEBP", lossless=True),
}


@pytest.mark.parametrize("content", LOSSLESS.values(), ids=LOSSLESS.keys())
def test_files_are_decoded_to_rgb(content: bytes) -> None:
    assert decoded(content) == by_pillow(content, "RGB")


@pytest.mark.parametrize("name", [name for name in LOSSLESS if name != "WebP"])  # of which TensorFlow gives no alpha
def test_alpha_is_kept_or_full(name: str) -> None:
    assert decoded(LOSSLESS[name], channels=4) == by_pillow(LOSSLESS[name], "RGBA")


@pytest.mark.parametrize("content", LOSSLESS.values(), ids=LOSSLESS.keys())
def test_gray_is_the_weighted_mean_of_the_colours(content: bytes) -> None:
    wanted = np.array(by_pillow(content, "L"), int)
    assert np.abs(np.array(decoded(content, channels=1), int) - wanted).max() <= 1, "Pillow rounds"


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg_of_every_kind(mode: str) -> None:
    content = encoded(picture(40, 30), "JPEG", mode, quality=95)
    assert decoded(content) == tf.io.decode_jpeg(content, channels=3).numpy().tolist()
    difference = np.array(decoded(content), int) - np.array(by_pillow(content, "RGB"), int)
    assert difference.shape == (40, 30, 3)
    assert np.abs(difference).mean() < (4 if mode != "CMYK" else 8), "TensorFlow's fast transform is not exact"


def test_images_of_different_sizes_are_ragged_and_none_is_none() -> None:
    table = pa.table({"content": pa.array([encoded(RGB), encoded(RGBA), encoded(GRAY)], pa.binary())})
    program = images.decode()
    assert str(program) == "Program(content: string[?]) -> (pixels: ragged uint8[?, ?, ?, 3])"
    pixels = tfs.map_blocks(program, table)["pixels"].to_pylist()
    assert [(len(image), len(image[0])) for image in pixels] == [(5, 4), (3, 6), (5, 4)]
    assert tfs.map_blocks(program, table[:0])["pixels"].to_pylist() == []
    assert tfs.map_blocks(images.decode((2, 3)), table[:0])["pixels"].to_pylist() == []


def test_rows_without_an_image_have_no_output() -> None:
    table = pa.table({"content": pa.array([None, encoded(RGB), None], pa.binary())})
    pixels = tfs.map_blocks(images.decode((1, 1)), table, {"content": tfs.feed("content", nulls="skip")})["pixels"].to_pylist()
    assert [cell is None for cell in pixels] == [True, False, True]


def test_an_image_that_is_none_is_named() -> None:
    table = pa.table({"photo": pa.array([encoded(RGB), b"text"], pa.binary())})
    check_refused(
        lambda: tfs.map_blocks(images.decode((1, 1)), table, {"content": "photo"}),
        tfs.ProgramError,
        "map_blocks: the program failed on row 1 of the block: InvalidArgumentError: Unknown image file format. One of JPEG, JPEG XL, PNG, "
        "GIF, BMP, WebP required.\n  inputs: content ← column 'photo'",
    )


# --- sizes ---


def at_size(pixels: np.ndarray, **options: Any) -> np.ndarray:
    table = pa.table({"content": pa.array([encoded(pixels)], pa.binary())})
    return np.array(tfs.map_blocks(images.decode(**options), table)["pixels"].to_pylist()[0], np.float32)


@pytest.mark.parametrize("method", ["bilinear", "nearest", "bicubic", "area", "lanczos3"])
@pytest.mark.parametrize("antialias", [False, True])
def test_stretched_as_tensorflow_does(method: str, antialias: bool) -> None:
    wanted = tf.image.resize(picture(9, 14).astype(np.float32), (4, 5), method, antialias=antialias)
    np.testing.assert_array_equal(at_size(picture(9, 14), size=(4, 5), method=method, antialias=antialias), wanted)


def test_padded_to_keep_the_aspect_ratio() -> None:
    white = np.full((2, 4, 3), 255, np.uint8)
    held = at_size(white, size=(6, 6), fit="pad")
    assert held[..., 0].tolist() == [[0.0] * 6, *[[255.0] * 6] * 3, *[[0.0] * 6] * 2]
    assert at_size(white.swapaxes(0, 1), size=(4, 4), fit="pad")[0, :, 0].tolist() == [0.0, 255.0, 255.0, 0.0]


@pytest.mark.parametrize(
    ("held", "size", "kept"),
    [
        ((4, 8), (3, 3), (slice(0, 4), slice(2, 6))),
        ((9, 3), (2, 6), (slice(4, 5), slice(0, 3))),
        ((1, 50), (40, 2), (slice(0, 1), slice(24, 25))),
    ],
    ids=["wide", "high", "at least one pixel"],
)
def test_cropped_to_keep_the_aspect_ratio(held: tuple[int, int], size: tuple[int, int], kept: tuple[slice, slice]) -> None:
    pixels = picture(*held)
    wanted = tf.image.resize(pixels[kept].astype(np.float32), size)
    np.testing.assert_array_equal(at_size(pixels, size=size, fit="crop"), wanted)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_decoding_and_then_resizing_is_decoding_to_a_size(channels: int) -> None:
    table = pa.table({"content": pa.array([encoded(RGB), encoded(RGBA), GRAY_ALPHA], pa.binary())})
    at_once = images.decode((3, 2), channels=channels)
    one_by_one = tfs.chain(images.decode(channels=channels), images.resize((3, 2), channels=channels))
    held = [np.array(tfs.map_blocks(program, table)[name].to_pylist()) for program, name in ((at_once, "pixels"), (one_by_one, "resized"))]
    assert held[0].shape == (3, 3, 2, channels)
    np.testing.assert_array_equal(held[0], held[1])


def test_columns_of_pixels_are_resized() -> None:
    cells = [picture(3, 5, 1).tolist(), picture(2, 2, 1).tolist()]
    resized = tfs.map_blocks(images.resize((2, 2), channels=1), pa.table({"pixels": cells}))["resized"].to_pylist()
    np.testing.assert_array_equal(resized[0], tf.image.resize(picture(3, 5, 1).astype(np.float32), (2, 2)))
    assert resized[1] == cells[1]
    with pytest.raises(tfs.ProgramError) as caught:
        tfs.map_blocks(images.resize((2, 2), channels=1), pa.table({"pixels": [[[[1]], [[1], [2]]]]}))
    assert "the rows of an image differ in length" in str(caught.value)


REFUSED = [
    ExpectFail({"size": (0, 3)}, tfs.ShapeError, "decode: the size is (0, 3), but (height, width) is wanted, in pixels.", id="no height"),
    ExpectFail({"size": (3,)}, tfs.ShapeError, "decode: the size is (3,), but (height, width) is wanted, in pixels.", id="one side"),
    ExpectFail({"size": 224}, tfs.ShapeError, "decode: the size is 224, but (height, width) is wanted, in pixels.", id="a number"),
    ExpectFail(
        {"size": (2.0, 3)}, tfs.ShapeError, "decode: the size is (2.0, 3), but (height, width) is wanted, in pixels.", id="a fraction"
    ),
    ExpectFail(
        {"size": (True, 3)}, tfs.ShapeError, "decode: the size is (True, 3), but (height, width) is wanted, in pixels.", id="a bool"
    ),
    ExpectFail({"channels": 2}, tfs.ShapeError, "decode: the channels are 2, but 1, 3 or 4 are wanted.", id="two channels"),
    ExpectFail(
        {"fit": "squeeze"}, tfs.ProgramError, "decode: fit is 'squeeze', but one of 'stretch', 'pad', 'crop' is wanted.", id="no such fit"
    ),
    ExpectFail(
        {"method": "linear"},
        tfs.ProgramError,
        "decode: method is 'linear', but one of 'area', 'bicubic', 'bilinear', 'gaussian', 'lanczos3', 'lanczos5', 'mitchellcubic', "
        "'nearest' is wanted.",
        id="no such method",
    ),
]


@cases(*REFUSED)
def test_what_is_no_size_and_no_channels(case: ExpectFail) -> None:
    check_refused(lambda: images.decode(**case.input), case.error, case.message)
    check_refused(lambda: images.to_tensor(**case.input), case.error, case.message.replace("decode", "to_tensor"))
    check_refused(lambda: images.resize(**{"size": (1, 1), **case.input}), case.error, case.message.replace("decode", "resize"))


@pytest.mark.parametrize(
    "size", [[2, 3], (np.int64(2), np.int32(3)), np.array([2, 3]), tf.TensorShape([2, 3]), keras.Input((2, 3)).shape[1:]]
)
def test_any_two_integers_are_a_size(size: Any) -> None:
    assert images.decode(size).outputs["pixels"].shape == (None, 2, 3, 3)


def test_resize_wants_a_size() -> None:
    check_refused(
        lambda: images.resize(None),  # type: ignore[arg-type]
        tfs.ShapeError,
        "resize: the size is None, but (height, width) is wanted.",
    )


# --- Spark's image schema ---


def schema_rows(pixels: Sequence[np.ndarray | None]) -> pa.Table:
    """Make rows of Spark's image schema by hand: BGR, from the top."""
    rows = []
    for image in pixels:
        channels = 0 if image is None else image.shape[-1]
        order = {0: [], 1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[channels]
        rows.append(
            None
            if image is None
            else {
                "origin": "here",
                "height": image.shape[0],
                "width": image.shape[1],
                "nChannels": channels,
                "mode": {1: 0, 3: 16, 4: 24}[channels],
                "data": image[..., order].tobytes(),
            }
        )
    numbers = [pa.field(name, pa.int32()) for name in ("height", "width", "nChannels", "mode")]
    return pa.table({"image": pa.array(rows, pa.struct([pa.field("origin", pa.string()), *numbers, pa.field("data", pa.binary())]))})


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_rows_of_the_schema_are_what_their_files_are(channels: int) -> None:
    pixels = [GRAY, RGB, RGBA]
    held = tfs.map_blocks(images.to_tensor(channels=channels), schema_rows(pixels), images.feeds("image"))["pixels"].to_pylist()
    assert held == [decoded(encoded(image), channels=channels) for image in pixels]
    small = tfs.map_blocks(images.to_tensor((2, 2), channels=channels), schema_rows(pixels), images.feeds("image"))["pixels"].to_pylist()
    assert small == [decoded(encoded(image), channels=channels, size=(2, 2)) for image in pixels]


def test_rows_without_an_image_are_skipped_or_refused() -> None:
    table = schema_rows([None, RGB, None])
    held = tfs.map_blocks(images.to_tensor((1, 1)), table, images.feeds("image"))["pixels"].to_pylist()
    assert [cell is None for cell in held] == [True, False, True]
    check_refused(
        lambda: tfs.map_blocks(images.to_tensor((1, 1)), table, images.feeds("image", nulls="error")),
        tfs.NullError,
        "map_blocks: column 'image.height' holds 2 nulls, the first at row 0 of the block, where no null may be; nulls= of tfs.feed says "
        "what becomes of them.",
    )


def test_data_of_another_size_than_the_row_says_is_refused() -> None:
    table = schema_rows([RGB])
    image = {**table["image"][0].as_py(), "width": 5}
    wrong = pa.table({"image": pa.array([image], table["image"].type)})
    with pytest.raises(tfs.ProgramError, match=r"^map_blocks: the program failed on row 0 of the block: InvalidArgumentError: "):
        tfs.map_blocks(images.to_tensor((1, 1)), wrong, images.feeds("image"))


def test_rows_that_spark_marks_as_no_images_are_refused() -> None:
    image = {"origin": "here", "height": -1, "width": -1, "nChannels": -1, "mode": -1, "data": b""}
    with pytest.raises(tfs.ProgramError) as caught:
        tfs.map_blocks(
            images.to_tensor((1, 1)), pa.table({"image": pa.array([image], schema_rows([RGB])["image"].type)}), images.feeds("image")
        )
    assert "the row holds no image, as readers of Spark say by a size of -1: filter such rows out" in str(caught.value)


# --- read_images ---


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder of images, of what is none, and of a folder."""
    contents = {
        "a.png": encoded(RGB),
        "b.png": encoded(GRAY),
        "c.png": encoded(RGBA),
        "d.png": GRAY_ALPHA,
        "e.jpg": encoded(picture(20, 10), "JPEG"),
        "broken.jpg": encoded(picture(200, 100), "JPEG")[:700],
        "cut.png": encoded(picture(50, 50))[:60],
        "empty.png": b"",
        "text.txt": b"no image",
        "inner/f.png": encoded(RGB[:2]),
    }
    (tmp_path / "inner").mkdir()
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def by_name(df: Any, column: str) -> dict[str, Any]:
    return {row["path"].rpartition("/")[2]: row[column] for row in df.collect()}


@pytest.mark.core
@pytest.mark.spark
def test_a_broken_image_carries_its_error_and_the_others_are_scored(spark: Any, folder: Path) -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8, 8, 3), name="photo"), keras.layers.Flatten(), keras.layers.Dense(2)], name="scores")
    df = images.read_images(spark, str(folder))
    assert df.columns == ["path", "image", "error"]
    assert by_name(df, "error") == {
        **dict.fromkeys(["a.png", "b.png", "c.png", "d.png", "e.jpg"]),
        "broken.jpg": "jpeg::Uncompress failed. Invalid JPEG data or crop window.",
        "cut.png": "Invalid PNG data, size 60",
        "empty.png": "Input is empty.",
        "text.txt": "Unknown image file format. One of JPEG, JPEG XL, PNG, GIF, BMP, WebP required.",
    }
    scores = by_name(tfs.map_blocks(tfs.chain(images.to_tensor((8, 8)), model), df, images.feeds("image")), "scores")
    for name, held in scores.items():
        if name in ("broken.jpg", "cut.png", "empty.png", "text.txt"):
            assert held is None
        else:
            pixels = tf.io.decode_image((folder / name).read_bytes(), 0 if name == "d.png" else 3, expand_animations=False)
            rgb = pixels[..., :3] if name != "d.png" else tf.repeat(pixels[..., :1], 3, axis=-1)
            np.testing.assert_allclose(held, model(tf.image.resize(rgb, (8, 8))[None])[0], rtol=1e-4)


@pytest.mark.spark
def test_images_are_as_spark_itself_reads_them(spark: Any, folder: Path) -> None:
    ours = images.read_images(spark, str(folder), pattern="[abc].png").select("image")
    theirs = spark.read.format("image").option("pathGlobFilter", "[abc].png").load(str(folder))
    assert ours.select("image.*").schema == theirs.select("image.*").schema
    as_spark = {row.image.origin.rpartition("/")[2]: row.image for row in theirs.collect()}
    for row in ours.collect():
        wanted = as_spark[row.image.origin.rpartition("/")[2]]
        assert row.image[1:] == wanted[1:]
        assert row.image.origin.replace("file:/", "file:///") == wanted.origin.replace("file:/", "file:///").replace("/////", "///")
    assert len(as_spark) == 3
    back = tfs.map_blocks(images.to_tensor(), theirs, images.feeds("image")).collect()
    assert {row.image.origin[-5]: row.pixels for row in back}["a"] == RGB.tolist()


@pytest.mark.spark
def test_which_files_are_read(spark: Any, folder: Path) -> None:
    def names(path: Any, **options: Any) -> list[str]:
        return sorted(by_name(images.read_images(spark, path, **options), "path"))

    assert names(str(folder), pattern="*.jpg") == ["broken.jpg", "e.jpg"]
    assert names(str(folder), pattern="?.png", recursive=True) == ["a.png", "b.png", "c.png", "d.png", "f.png"]
    assert names([folder / "a.png", str(folder / "inner")]) == ["a.png", "f.png"]
    assert names(folder / "b.png") == ["b.png"]
    assert names(f"{folder}/*.txt") == ["text.txt"]


@pytest.mark.spark
def test_images_are_brought_to_a_size_as_they_are_read(spark: Any, folder: Path) -> None:
    df = images.read_images(spark, str(folder), size=(4, 6), fit="pad", pattern="?.*")
    held = by_name(df, "image")
    assert {name: (image.height, image.width, image.nChannels, image.mode, len(image.data)) for name, image in held.items()} == {
        "a.png": (4, 6, 3, 16, 72),
        "b.png": (4, 6, 1, 0, 24),
        "c.png": (4, 6, 4, 24, 96),
        "d.png": (4, 6, 4, 24, 96),
        "e.jpg": (4, 6, 3, 16, 72),
    }
    wanted = np.rint(tf.image.resize_with_pad(RGB.astype(np.float32), 4, 6))
    assert list(held["a.png"].data) == wanted[..., ::-1].reshape(-1).tolist()


def test_values_beyond_a_byte_are_cut_off() -> None:
    sharp = np.tile(np.array([0, 255], np.uint8)[:, None, None], (4, 3, 3))
    reading = files.Reading(images.pixels.Sizing.of((16, 3), "stretch", "bicubic", False))
    (batch,) = reading([pa.record_batch([pa.array([encoded(sharp)], pa.binary()), pa.array(["x"])], names=["_0", "_1"])])
    held = np.frombuffer(batch["image"][0].as_py()["data"], np.uint8)
    resized = tf.image.resize(sharp.astype(np.float32), (16, 3), "bicubic").numpy()
    assert resized.max() > 255 > 0 > resized.min()
    assert (held.min(), held.max()) == (0, 255)
    np.testing.assert_array_equal(held, np.clip(np.rint(resized), 0, 255).reshape(-1))


def test_batches_end_when_they_hold_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BATCH_BYTES", 2 * RGB.size)
    contents = [encoded(RGB), b"", None, encoded(RGB), encoded(RGB), encoded(GRAY)]
    batch = pa.record_batch([pa.array(contents, pa.binary()), pa.nulls(6, pa.string())], names=["_0", "_1"])
    given = list(files.Reading(None)([batch, batch[:0], batch[:1]]))
    assert [len(part) for part in given] == [4, 2, 0, 1]
    errors = [error for part in given for error in part["error"].to_pylist()]
    assert errors == [None, "Input is empty.", "The content is null.", None, None, None, None]


@pytest.mark.spark
def test_a_column_of_bytes_is_read_as_files_are(spark: Any) -> None:
    df = spark.createDataFrame([("one", encoded(RGB)), ("two", bytearray(b"x")), ("three", None)], "name string, photo binary")
    read = df.select("name", images.as_image("photo", "name").alias("read")).select("name", "read.*")
    rows = {row.name: row for row in read.collect()}
    assert (rows["one"].image.origin, rows["one"].image.width, rows["one"].error) == ("one", 4, None)
    assert (rows["two"].image, rows["three"].image, rows["three"].error) == (None, None, "The content is null.")
    small = df.filter("name = 'one'").select(images.as_image(df.photo, size=(2, 2))).first()
    assert small.image.image[:4] == (None, 2, 2, 3)


@pytest.mark.spark
def test_a_column_that_holds_no_bytes_is_refused_when_the_query_is_analysed(spark: Any) -> None:
    for column in ("id", "array(id)", "struct(id)"):
        df = spark.range(1).selectExpr(f"{column} as photo")
        with pytest.raises(AnalysisException) as caught:
            df.select(images.as_image("photo")).schema  # noqa: B018
        assert caught.value.getCondition() == "DATATYPE_MISMATCH.DATA_DIFF_TYPES"


@pytest.mark.spark
def test_images_in_sql_and_in_pipelines(spark: Any, folder: Path) -> None:
    from tensorframes.ml import TensorTransformer

    df = spark.read.format("binaryFile").option("pathGlobFilter", "[abc].png").load(str(folder))
    mean = tfs.chain(images.decode((4, 4)), lambda pixels: {"mean": tf.reduce_mean(pixels, axis=[1, 2, 3])})
    wanted = by_name(tfs.map_blocks(mean, df), "mean")
    assert by_name(df.select("path", tfs.udf(mean)("content").alias("mean")), "mean") == wanted
    assert by_name(TensorTransformer(program=mean).transform(df), "mean") == wanted
    assert len(set(wanted.values())) == 3
