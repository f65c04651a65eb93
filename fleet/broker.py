#!/usr/bin/env python3
"""A single-node Kafka broker (KRaft) for tests and demonstrations. Spark's own resolver fetches its jars from Maven into `target/fleet-ivy`.

    broker.py --jars  # fetches them and those of Spark's connector, and prints their folders
"""

import contextlib
import glob
import os
import pathlib
import socket
import subprocess
import sys
import time

import pyspark

BROKER = "org.apache.kafka:kafka_2.13:4.0.0"
# Spark's connector. Each package has its own folder, because both bring a version of Kafka's client.
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
IVY = pathlib.Path(__file__).resolve().parent.parent / "target" / "fleet-ivy"
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
controller.quorum.voters=1@{host}:{controller}
listeners={listeners},CONTROLLER://{host}:{controller}
advertised.listeners={advertised}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
num.partitions={partitions}
{more}
"""


class NoJars(Exception):
    """The jars cannot be fetched."""


def jars(package=BROKER):
    """Fetches the jars of a package (GROUP:NAME:VERSION), unless they exist. Returns their folder."""
    group, name, version = package.split(":")
    home = IVY / name
    if not (home / "jars" / f"{group}_{name}-{version}.jar").exists():
        line = [sys.executable, "-c", RESOLVE.format(packages=package, ivy=str(home))]
        done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            raise NoJars(f"the jars cannot be fetched from Maven: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    return home / "jars"


def free_port(host="127.0.0.1"):
    """A port that is unused at present."""
    with socket.socket() as s:
        s.bind((host, 0))
        return s.getsockname()[1]


class Broker:
    """A broker in `folder`, which it does not remove. `more` are further lines of its properties. With `tls` it accepts only TLS. `advertised` is
    the port that clients get, if a proxy stands between."""

    def __init__(self, folder, host="127.0.0.1", partitions=2, more="", tls=False, advertised=None, memory="300m"):
        self.folder, self.host, self.process = pathlib.Path(folder), host, None
        self.folder.mkdir(parents=True, exist_ok=True)
        scala = glob.glob(os.path.join(os.path.dirname(pyspark.__file__), "jars", "scala-library-*.jar"))
        self._java = ["java", f"-Xmx{memory}", "-cp", ":".join([str(jars() / "*"), *scala])]
        self.port, self._properties = free_port(host), self.folder / "kafka.properties"
        protocol = "SSL" if tls else "PLAINTEXT"
        listeners, advertised = f"{protocol}://{host}:{self.port}", f"{protocol}://{host}:{advertised or self.port}"
        if tls:
            # Brokers would check each other's certificate, which may be untrusted in a test.
            inner = f",PLAINTEXT://{host}:{free_port(host)}"
            listeners, advertised, more = listeners + inner, advertised + inner, more + "\ninter.broker.listener.name=PLAINTEXT\n"
        text = PROPERTIES.format(host=host, controller=free_port(host), listeners=listeners, advertised=advertised,
                                 data=self.folder / "data", partitions=partitions, more=more)  # fmt: skip
        self._properties.write_text(text)
        form = [*self._java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._properties)]
        subprocess.run(form, check=True, capture_output=True)

    @property
    def address(self):
        """HOST:PORT."""
        return f"{self.host}:{self.port}"

    def start(self):
        """Starts the broker. A restart keeps what is on disk."""
        with open(self.folder / "broker.log", "ab") as log:
            self.process = subprocess.Popen([*self._java, "kafka.Kafka", str(self._properties)], stdout=log, stderr=log)
        for _ in range(240):
            if self.process.poll() is not None:
                raise RuntimeError((self.folder / "broker.log").read_text(errors="replace")[-2000:])
            with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 1):
                return self
            time.sleep(0.5)
        raise RuntimeError("the broker does not accept connections")

    def stop(self, at_once=False):
        """Stops the broker; with `at_once` without notice, as a crash does."""
        if self.process and self.process.poll() is None:
            self.process.kill() if at_once else self.process.terminate()
            self.process.wait(60)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


if __name__ == "__main__":
    if sys.argv[1:2] != ["--jars"]:
        sys.exit(__doc__)
    try:
        print(jars(BROKER), jars(CONNECTOR), sep="\n")
    except NoJars as e:
        sys.exit(f"broker.py: {e}")
