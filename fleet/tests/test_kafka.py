"""The stream through a real broker: a single Kafka node (KRaft), whose jars come from Maven (`fleet/broker.py`)."""

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import did_not_run

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.extras


@pytest.fixture
def broker(tmp_path):
    """A broker's address, and the folder of the Spark connector's jars."""
    if pyspark.__version__.startswith("3."):
        did_not_run("a stream through Kafka", "PySpark 4 is needed, for one version of Scala with the broker")
    import broker as made

    try:
        made.jars()
        connector = made.jars(made.CONNECTOR)
    except made.NoJars as e:
        did_not_run("a stream through Kafka", str(e), "unavailable")
    with made.Broker(tmp_path / "broker") as running:
        yield running.address, connector


def test_a_stream_through_kafka(broker, tmp_path):
    script = pathlib.Path(__file__).parent / "kafka_round.py"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([sys.executable, script, broker[0], tmp_path / "round", broker[1]], capture_output=True, text=True, env=environment, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "findings through Kafka" in done.stdout
