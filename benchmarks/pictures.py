"""Images on Spark: a folder of JPEG files, decoded, resized and scored by a Keras network."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pandas as pd
import tensorflow as tf
from pyspark.sql import DataFrame

import tensorframes as tfs
from benchmarks.cases import Case, Contestants, Setting, beats, within
from benchmarks.sessions import total
from tensorframes import images

SIZE = (96, 96)
BLOCK = 64
PEER = "mapInPandas by hand"


def network() -> keras.Model:
    """Make a small convolutional network whose weights are random, and the same each time: photo [?, 96, 96, 3] → score [?, 1]."""
    start = [keras.initializers.GlorotUniform(seed=seed) for seed in range(3)]
    layers = [
        keras.layers.Rescaling(1 / 255),
        keras.layers.Conv2D(16, 3, strides=2, activation="relu", kernel_initializer=start[0]),
        keras.layers.Conv2D(32, 3, strides=2, activation="relu", kernel_initializer=start[1]),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(1, kernel_initializer=start[2]),
    ]
    return keras.Sequential([keras.Input((*SIZE, 3), name="photo"), *layers], name="score")


def fill(folder: Path, count: int) -> None:
    """Write JPEG files of 240 to 480 pixels a side: smooth colours with a little noise, some 30 kB each."""
    random = np.random.default_rng(0)
    for i in range(count):
        height, width = (int(side) for side in random.integers(240, 480, 2))
        rows, columns = np.mgrid[0:height, 0:width]
        waves = [100 + 90 * np.sin(rows / random.integers(5, 50) + columns / random.integers(5, 50) + phase) for phase in range(3)]
        noisy = np.stack(waves, axis=-1) + random.normal(0, 6, (height, width, 3))
        (folder / f"{i:05}.jpg").write_bytes(tf.io.encode_jpeg(np.clip(noisy, 0, 255).astype(np.uint8)).numpy())


@contextmanager
def images_case(setting: Setting) -> Iterator[Contestants]:
    """Score a folder. The floor does all but the network; the peer is what one writes without this library."""
    model = network()
    config, weights = model.get_config(), model.get_weights()

    def decoded(content: Any) -> tf.Tensor:
        return tf.image.resize(tf.io.decode_image(content, channels=3, expand_animations=False), SIZE)

    def batches(frames: Iterator[pd.DataFrame]) -> Iterator[tuple[pd.DataFrame, tf.Tensor]]:
        for frame in frames:
            for begin in range(0, len(frame), BLOCK):
                rows = frame.iloc[begin : begin + BLOCK]
                yield rows, tf.stack([decoded(content) for content in rows["content"]])

    def by_hand(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        made = keras.Sequential.from_config(config)
        made.set_weights(weights)
        call = tf.function(made, reduce_retracing=True)
        for _, photos in batches(frames):
            yield pd.DataFrame({"score": call(photos).numpy()[:, 0]})

    def resized(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for _, photos in batches(frames):
            yield pd.DataFrame({"score": photos.numpy()[:, 0, 0, 0]})

    with tempfile.TemporaryDirectory() as name:
        fill(Path(name), setting.rows)

        def files() -> DataFrame:
            return setting.spark.read.format("binaryFile").load(name).select("content").coalesce(2)

        in_one_hop = tfs.chain(images.decode(SIZE), model, lambda score: {"score": score[:, 0]})
        from_rows = tfs.chain(images.to_tensor(SIZE), model, lambda score: {"score": score[:, 0]})

        def read() -> float:
            """Score what `read_images` gives, which sends pixels through Spark."""
            df = images.read_images(setting.spark, name).coalesce(2)
            return total(tfs.map_blocks(from_rows, df, images.feeds("image"), block_rows=BLOCK), "score")

        yield Contestants(
            floor=lambda: (total(files().mapInPandas(resized, "score float"), "score"), None)[1],
            ours=lambda: total(tfs.map_blocks(in_one_hop, files(), block_rows=BLOCK), "score"),
            peers={
                PEER: lambda: total(files().mapInPandas(by_hand, "score float"), "score"),
                "read_images": read,
            },
        )


CASES = (
    Case(
        "images",
        f"Spark, a folder of JPEG files, decoded, resized to {SIZE[0]} × {SIZE[1]} and scored: is it slower than code by hand?",
        "decoding and resizing by hand",
        within(1.25),
        images_case,
        rows=2000,
        small=20,
        also=(beats(PEER, 1.0),),
    ),
)
