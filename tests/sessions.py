"""Where the tests' Spark session may run: in one process, on executors that are processes of their own, behind Connect."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyspark
from flavours import BATCH_ROWS

PLACES = ("local", "cluster", "connect")
CLUSTER = "local-cluster[2,1,1024]"


def spark_home(folder: Path) -> Path:
    """Make a home of Spark in a folder, where clusters of local processes write instead of into the package."""
    home = folder / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    return home


def start_session(place: str, folder: Path) -> Any:
    """Start a session with two tasks at a time and batches of three rows; `folder` is for what it writes."""
    from pyspark.sql import SparkSession

    if place == "cluster":
        os.environ["SPARK_HOME"] = str(spark_home(folder))
    if place == "connect":
        builder = SparkSession.builder.remote("local[2]")
    else:
        quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
        builder = SparkSession.builder.master(CLUSTER if place == "cluster" else "local[2]").config(map=quiet)
    session = (
        builder.appName("tensorframes tests")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH_ROWS)
        .config("spark.sql.execution.arrow.localRelationThreshold", 0)  # each batch of Arrow data becomes a partition
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 2)
        .getOrCreate()
    )
    if place != "connect":
        session.sparkContext.setLogLevel("OFF")
    return session
