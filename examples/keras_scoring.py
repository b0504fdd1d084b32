"""Score handwritten digits on Spark with a Keras network: the model itself, its .keras file and its SavedModel give the same.

    python examples/keras_scoring.py [--plot confusion.png]

The network is trained on every second of 1,797 real 8 × 8 images; Spark scores all of them. Prints some rows, the accuracy on the
images that the network has not seen and how often each digit was taken for which, and draws the latter as a picture.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import matplotlib as mpl
import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from sklearn.datasets import load_digits

import tensorframes as tfs

mpl.use("Agg")
from matplotlib import pyplot as plt


def train(images: np.ndarray, labels: np.ndarray) -> keras.Model:
    """Train a small dense network: pixels [?, 8, 8] → ten probabilities [?, 10]."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((8, 8), name="pixels"),
            keras.layers.Rescaling(1 / 16),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ],
        name="digits",
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(images, labels, batch_size=32, epochs=30, verbose=0)
    return model


def save(model: keras.Model, directory: Path) -> dict[str, Any]:
    """Save the model in both forms; returns the three things that can be scored with, by the name of the column that each will give."""
    model.save(directory / "digits.keras")
    model.export(directory / "digits", verbose=False)
    return {"by_model": model, "by_file": directory / "digits.keras", "by_saved_model": directory / "digits"}


def as_dataframe(spark: SparkSession, images: np.ndarray, labels: np.ndarray) -> DataFrame:
    """Make a DataFrame of the images (array<array<double>>), their true labels, and whether the network was trained on them."""
    rows = [(i, image, int(label), i % 2 == 0) for i, (image, label) in enumerate(zip(images.tolist(), labels, strict=True))]
    return spark.createDataFrame(rows, "id int, pixels array<array<double>>, truth int, trained boolean")


def score(df: DataFrame, ways: Mapping[str, Any]) -> DataFrame:
    """Score in each way, in one map: the doubles are cast to the model's floats. The label is the place of the largest probability."""
    scored = tfs.map_blocks(dict(ways), df)
    return scored.withColumn("label", F.expr("cast(array_position(by_model, array_max(by_model)) - 1 as int)"))


def confusion(scored: DataFrame) -> np.ndarray:
    """Count by Spark how often each true label (row) got which label (column)."""
    counts = np.zeros((10, 10), int)
    for row in scored.groupBy("truth", "label").count().collect():
        counts[row["truth"], row["label"]] = row["count"]
    return counts


def plot(path: str, counts: np.ndarray) -> None:
    """Draw the counts, the more the darker."""
    figure, axis = plt.subplots(figsize=(5.5, 5.5))
    axis.imshow(np.sqrt(counts), cmap="Blues")
    for (truth, label), count in np.ndenumerate(counts):
        if count:
            axis.text(label, truth, str(count), ha="center", va="center", color="white" if truth == label else "tab:red")
    axis.set(xticks=range(10), yticks=range(10), xlabel="label", ylabel="truth", title="Digits that the network has not seen")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv: list[str]) -> float:
    """Train, save, score and report; returns the accuracy on unseen images.

    Raises:
        RuntimeError: the model and its files do not give the same.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", default="confusion.png", help="where the picture goes")
    options = parser.parse_args(argv)

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").appName("digits").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    digits = load_digits()
    model = train(digits.images[::2], digits.target[::2])
    df = as_dataframe(spark, digits.images, digits.target).repartition(4)
    with tempfile.TemporaryDirectory() as directory:
        scored = score(df, save(model, Path(directory)))  # the files are read here, and are not needed any more
    scored = scored.cache()

    tfs.print_schema(scored)
    scored.select("id", "truth", "label", F.round(F.array_max("by_model"), 3).alias("score")).orderBy("id").show(8)
    same = scored.filter("by_model = by_file and by_model = by_saved_model").count()
    print(f"the model, its .keras file and its SavedModel give the same for {same} of {scored.count()} images")
    if same != scored.count():
        raise RuntimeError("the model and its files do not give the same")

    unseen = scored.filter("not trained")
    counts = confusion(unseen)
    accuracy = float(np.trace(counts) / counts.sum())
    print(f"accuracy on the {counts.sum()} images that the network has not seen: {accuracy:.4f}")
    print(f"how often each digit (row) was taken for which (column):\n{counts}")
    plot(options.plot, counts)
    print(f"the same as a picture: {options.plot}")
    scored.unpersist()
    return accuracy


if __name__ == "__main__":
    main(sys.argv[1:])
