"""Every example runs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from test_spark import loads, new_loads

from tensorframes.programs import CACHE

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example():
    """Load an example as a namespace, without running it."""
    return lambda name: runpy.run_path(str(EXAMPLES / name), run_name="example")


@pytest.mark.classic
def test_digits_labels_nineteen_of_twenty_unseen_images_rightly_and_draws_some(spark, example, tmp_path, capsys) -> None:
    picture = tmp_path / "digits.png"
    accuracy = example("digits.py")["main"](["--plot", str(picture)])
    assert accuracy > 0.95
    assert picture.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert " |-- scores: array (nullable = true) double[?,10]\n |-- label: long (nullable = true) long[?]\n" in printed
    assert f"the 898 unseen ones: {accuracy:.4f}" in printed


@pytest.mark.classic
def test_a_keras_network_and_its_files_label_nine_of_ten_unseen_images_rightly(spark, example, tmp_path, capsys) -> None:
    picture = tmp_path / "confusion.png"
    accuracy = example("keras_scoring.py")["main"](["--plot", str(picture)])
    assert accuracy > 0.9
    assert picture.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    for name in ("by_model", "by_file", "by_saved_model"):
        assert f" |-- {name}: array (nullable = true) float[?,10]\n" in printed
    assert "the model, its .keras file and its SavedModel give the same for 1797 of 1797 images\n" in printed
    assert f"accuracy on the 898 images that the network has not seen: {accuracy:.4f}\n" in printed
    counts = np.array([row.strip(" []").split() for row in re.findall(r"^[ \[]\[[\d ]+\]\]?$", printed, re.MULTILINE)], int)
    assert (counts.shape, counts.sum()) == ((10, 10), 898)
    assert np.trace(counts) == pytest.approx(898 * accuracy)


@pytest.mark.classic
def test_a_folder_of_photographs_is_scored_and_its_broken_files_are_named(spark, example, tmp_path, capsys) -> None:
    picture = tmp_path / "photographs.png"
    accuracy = example("image_scoring.py")["main"](["--plot", str(picture)])
    assert accuracy > 0.9
    assert picture.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    for file, error in (("cut-off.png", "Invalid PNG data, size 500"), ("empty.jpg", "Input is empty."), ("notes.txt", "Unknown image")):
        assert re.search(rf"\|{re.escape(file)} *\|{error}", printed)
    assert f"accuracy on the 80 images: {accuracy:.4f}\n" in printed


def test_harmonic_mean_of_each_group(spark, example) -> None:
    trips = [("there and back", 60.0), ("there and back", 20.0), ("uphill", 4.0), ("uphill", 6.0), ("uphill", 12.0)]
    means = example("harmonic_mean.py")["harmonic_mean"](spark.createDataFrame(trips, "trip string, x double"), "trip")
    assert means.columns == ["trip", "harmonic_mean"]
    rows = sorted(means.collect())
    assert [row.trip for row in rows] == ["there and back", "uphill"]
    assert [row.harmonic_mean for row in rows] == pytest.approx([30.0, 6.0], rel=1e-12)


def test_kmeans_agrees_with_mllib_and_loads_nothing_after_the_first_iteration(spark, example) -> None:
    from pyspark.ml.clustering import KMeans
    from pyspark.ml.functions import array_to_vector

    module = example("kmeans.py")
    points = module["synthetic"](60, 3, 4)
    table = pa.table({"points": points.tolist()})
    df = spark.createDataFrame(table).repartition(2)
    vectors = df.select(array_to_vector("points").alias("features")).cache()

    def mllib(iterations: int) -> np.ndarray:
        estimator = KMeans(k=4, maxIter=iterations, tol=0.0, initMode="random", seed=1)
        return np.array(estimator.fit(vectors).clusterCenters())

    start, wanted = mllib(0), mllib(4)
    assert not np.allclose(start, wanted)

    once = module["kmeans"](table, start, 1)
    loaded = CACHE.loads
    assert not np.allclose(once, wanted)
    np.testing.assert_allclose(module["kmeans"](table, start, 4), wanted, rtol=1e-9)
    assert CACHE.loads == loaded

    before = loads(spark)
    np.testing.assert_allclose(module["kmeans"](df, start, 4), wanted, rtol=1e-9)
    assert CACHE.loads == loaded
    # The program of the map and that of the reduce, at most once in each worker, whichever iteration's tasks it got.
    assert 1 <= max(new_loads(spark, before)) <= 2
    vectors.unpersist()
