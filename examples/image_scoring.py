"""Score a folder of photographs on Spark with a Keras network: JPEG and PNG, of different sizes, with broken files among them.

    python examples/image_scoring.py [--plot photographs.png]

Two photographs that scikit-learn carries, of a flower and of a palace, are cut into pieces. A small network learns from pieces of their
left halves which is which; pieces of the right halves are the files of a folder, beside four that are no images. Prints what Spark makes
of the folder, what is wrong with the four, and the accuracy, and draws the pieces with what they were taken for.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import keras
import matplotlib as mpl
import numpy as np
import tensorflow as tf
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from sklearn.datasets import load_sample_image

import tensorframes as tfs
from tensorframes import images

mpl.use("Agg")
from matplotlib import pyplot as plt

KINDS = ("palace", "flower")
SIZE = (32, 32)


def score(spark: SparkSession, folder: Path, model: keras.Model) -> DataFrame:
    """Score the images of a folder: read, resize and compute, each image with what is wrong with it beside it."""
    df = images.read_images(spark, folder)
    program = tfs.chain(images.to_tensor(SIZE, antialias=True), model, lambda scores: {"score": scores[:, 0]})
    scored = tfs.map_blocks(program, df, images.feeds("image"), block_rows=64)
    kind = F.when(F.col("score") > 0.5, KINDS[1]).when(F.col("score") <= 0.5, KINDS[0])
    return scored.withColumn("kind", kind).withColumn("file", F.element_at(F.split("path", "/"), -1))


def pieces(photograph: np.ndarray, count: int, seed: int) -> list[np.ndarray]:
    """Cut pieces of random sizes and places out of a photograph ``uint8[height, width, 3]``."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        height, width = random.integers(60, 120, 2)
        top, left = (random.integers(0, side - part) for side, part in zip(photograph.shape, (height, width), strict=False))
        found.append(photograph[top : top + height, left : left + width])
    return found


def train(halves: Sequence[np.ndarray]) -> keras.Model:
    """Train a small network: photo [?, height, width, 3], values from 0 to 255 → the probability [?, 1] that it is of the second kind."""
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Rescaling(1 / 255),
        keras.layers.Conv2D(8, 5, strides=2, activation="relu"),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
    model = keras.Sequential([keras.Input((*SIZE, 3), name="photo"), *layers], name="probability")
    cut = [(piece, kind) for kind, half in enumerate(halves) for piece in pieces(half, 300, seed=kind)]
    photos = np.stack([tf.image.resize(piece, SIZE, antialias=True) for piece, _ in cut])
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy")
    model.fit(photos, np.array([kind for _, kind in cut]), epochs=12, verbose=0)
    return model


def fill(folder: Path, halves: Sequence[np.ndarray]) -> None:
    """Write pieces as JPEG and PNG files, and four files that are no images."""
    for kind, half in zip(KINDS, halves, strict=True):
        for i, piece in enumerate(pieces(half, 40, seed=len(kind) + 10)):
            file = folder / f"{kind}-{i:02}.{'png' if i % 4 == 0 else 'jpg'}"
            file.write_bytes((tf.io.encode_png if i % 4 == 0 else tf.io.encode_jpeg)(piece).numpy())
    (folder / "cut-off.jpg").write_bytes((folder / "palace-01.jpg").read_bytes()[:500])
    (folder / "cut-off.png").write_bytes((folder / "palace-00.png").read_bytes()[:500])
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "notes.txt").write_text("Remember to take more photographs.")


def plot(path: str, rows: Sequence[Row]) -> None:
    """Draw the images, from Spark's own rows, with what they were taken for; red where that is wrong."""
    figure, axes = plt.subplots(5, 8, figsize=(10, 6.8))
    for axis, row in zip(axes.flat, rows, strict=False):
        pixels = np.frombuffer(row.image.data, np.uint8).reshape(row.image.height, row.image.width, 3)
        axis.imshow(pixels[..., ::-1])  # Spark's image schema is in BGR order
        axis.set_title(f"{row.kind} {row.score:.2f}", fontsize=8, color="black" if row.file.startswith(row.kind) else "red")
    for axis in axes.flat:
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv: list[str]) -> float:
    """Train, write the folder, score and report; returns the accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", default="photographs.png", help="where the picture goes")
    options = parser.parse_args(argv)

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").appName("images").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    photographs = [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
    middle = photographs[0].shape[1] // 2
    model = train([photograph[:, :middle] for photograph in photographs])
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), [photograph[:, middle:] for photograph in photographs])
        scored = score(spark, Path(folder), model).cache()
        scored.select("file", "image.height", "image.width", F.round("score", 3).alias("score"), "kind").orderBy("file").show(8)
        print("no images:")
        scored.filter("error is not null").select("file", "error").orderBy("file").show(truncate=False)
        rows = scored.filter("error is null").orderBy("file").collect()
        scored.unpersist()
    right = [row.file.startswith(row.kind) for row in rows]
    print(f"accuracy on the {len(rows)} images: {np.mean(right):.4f}")
    plot(options.plot, rows[::2])
    print(f"half of them as a picture: {options.plot}")
    return float(np.mean(right))


if __name__ == "__main__":
    main(sys.argv[1:])
