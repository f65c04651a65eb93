"""The stream through a real broker: one node of Kafka (KRaft), whose jars come from Maven."""

import glob
import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest
from conftest import TOP, did_not_run

pyspark = pytest.importorskip("pyspark")

BROKER = "org.apache.kafka:kafka_2.13:4.0.0"
IVY = TOP.parent / "target" / "fleet-ivy"
RESOLVE = """
from pyspark.sql import SparkSession
conf = {{"spark.jars.packages": {packages!r}, "spark.jars.ivy": {ivy!r}, "spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1"}}
builder = SparkSession.builder.master("local[1]")
for name, value in conf.items():
    builder = builder.config(name, value)
builder.getOrCreate().stop()
"""
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
num.partitions=2
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def broker(tmp_path):
    """A broker's address."""
    if pyspark.__version__.startswith("3."):
        did_not_run("a stream through Kafka", "PySpark 4 is needed, for one version of Scala with the broker")
    # Spark's own resolver gets the jars; Scala itself comes with Spark.
    if not glob.glob(str(IVY / "jars" / "org.apache.kafka_kafka_*.jar")):
        done = subprocess.run([sys.executable, "-c", RESOLVE.format(packages=BROKER, ivy=str(IVY))], capture_output=True, timeout=300, check=False)
        if done.returncode != 0:
            did_not_run("a stream through Kafka", "Kafka's jars could not be had from Maven", "unavailable")
    scala = glob.glob(os.path.join(os.path.dirname(pyspark.__file__), "jars", "scala-library-*.jar"))
    java = ["java", "-Xmx300m", "-cp", ":".join([str(IVY / "jars" / "*"), *scala])]
    port, properties = free_port(), tmp_path / "kafka.properties"
    properties.write_text(PROPERTIES.format(broker=port, controller=free_port(), data=tmp_path / "data"))
    form = [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(properties)]
    subprocess.run(form, check=True, capture_output=True)
    with open(tmp_path / "broker.log", "wb") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=log, stderr=log)
    try:
        for _ in range(120):
            assert process.poll() is None, (tmp_path / "broker.log").read_text()[-2000:]
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.5)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def test_a_stream_through_kafka(broker, tmp_path):
    script = pathlib.Path(__file__).parent / "kafka_round.py"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([sys.executable, script, broker, tmp_path / "round"], capture_output=True, text=True, env=environment, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "findings through Kafka" in done.stdout
