"""Score handwritten digits on Spark: 1,797 real 8 × 8 images, a linear classifier, one map_blocks.

    ./dev demo [--plot digits.png]

The classifier is fitted by scikit-learn on every second image; its weights are a constant of the map. Prints some rows and the
accuracy against the true labels, on all images and on those that the classifier has not seen, and writes a picture of some digits
with their predicted labels.
"""

from __future__ import annotations

import argparse
import os
import sys

import matplotlib as mpl
import numpy as np
import tensorflow as tf
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import tensorframes as tfs

mpl.use("Agg")
from matplotlib import pyplot as plt


def score(pixels, weights, bias):
    """Give each image ten scores and the label of the largest one: pixels [?, 8, 8] → scores [?, 10], label [?]."""
    scores = tf.matmul(tf.reshape(pixels, [-1, 64]), weights) + bias
    return {"scores": tf.nn.softmax(scores), "label": tf.argmax(scores, axis=1)}


def fit(images: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Fit the classifier; returns its weights [64, 10] and bias [10]."""
    model = LogisticRegression(max_iter=2000).fit(images.reshape(len(images), 64), labels)
    return {"weights": model.coef_.T, "bias": model.intercept_}


def as_dataframe(spark: SparkSession, images: np.ndarray, labels: np.ndarray):
    """Make a DataFrame of the images (array<array<double>>), their true labels, and whether the classifier was fitted on them."""
    rows = [(i, image, int(label), i % 2 == 0) for i, (image, label) in enumerate(zip(images.tolist(), labels, strict=True))]
    return spark.createDataFrame(rows, "id int, pixels array<array<double>>, truth int, fitted boolean")


def accuracy(scored) -> float:
    """Return the fraction of rows whose label is the true one."""
    return scored.select(F.avg((F.col("label") == F.col("truth")).cast("double"))).first()[0]


def plot(path: str, rows) -> None:
    """Draw 24 digits with their predicted labels, the wrong ones in red."""
    figure, axes = plt.subplots(3, 8, figsize=(8, 3.8))
    for axis, row in zip(axes.flat, rows, strict=True):
        axis.imshow(row.pixels, cmap="gray_r")
        axis.set_title(str(row.label), color="black" if row.label == row.truth else "red")
        axis.set_axis_off()
    figure.suptitle("Digits that the classifier has not seen, with their predicted labels; some that it got wrong in the last row")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main(argv: list[str]) -> float:
    """Run the demo; returns the accuracy on unseen images."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", default="digits.png", help="where the picture goes")
    options = parser.parse_args(argv)

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").appName("digits").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    digits = load_digits()
    constants = fit(digits.images[::2], digits.target[::2])
    df = as_dataframe(spark, digits.images, digits.target).repartition(4)

    scored = tfs.map_blocks(score, tfs.append_shape(df, "pixels", [None, 8, 8]), constants).cache()

    tfs.print_schema(scored)
    scored.select("id", "truth", "label", F.round(F.array_max("scores"), 3).alias("score")).orderBy("id").show(8)
    unseen = scored.filter("not fitted")
    accurate = accuracy(unseen)
    print(f"accuracy on all {scored.count()} images: {accuracy(scored):.4f}; on the {unseen.count()} unseen ones: {accurate:.4f}")
    right, wrong = (unseen.filter(F.col("label") == F.col("truth")), unseen.filter(F.col("label") != F.col("truth")))
    plot(options.plot, right.orderBy("id").limit(16).collect() + wrong.orderBy("id").limit(8).collect())
    print(f"some digits and their labels: {options.plot}")
    return accurate


if __name__ == "__main__":
    main(sys.argv[1:])
