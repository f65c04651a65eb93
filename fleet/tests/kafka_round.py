"""Sends the events of `busy` to a broker, reads them as a stream, and compares findings and events with one pass: `kafka_round.py SERVERS FOLDER
CONNECTOR`."""

import glob
import json
import pathlib
import sys
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from test_detectors import busy, counting, stats  # noqa: E402

from margay_fleet import stream  # noqa: E402
from margay_fleet.detectors import SECOND, one_pass  # noqa: E402


def main(servers, folder, connector):
    topic, settings, lines = f"eve-{uuid.uuid4().hex[:8]}", counting(count=5), busy(count=200)
    conf = {"spark.sql.shuffle.partitions": "2", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "700m"}
    conf["spark.jars"] = ",".join(glob.glob(f"{connector}/*.jar"))
    spark = stream.session("local[2]", conf=conf.items())
    spark.sparkContext.setLogLevel("ERROR")

    def send(some):
        rows = spark.createDataFrame([(json.loads(line).get("community_id"), line) for line in some], "key string, value string")
        rows.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()

    def run():
        source = stream.from_kafka(spark, servers, topic)
        out = (servers, f"{topic}-findings")
        for query in stream.start(source, settings, f"{folder}/out", f"{folder}/checkpoint", "2 hours", None, out):
            query.awaitTermination()

    # A restarted driver continues where it stopped.
    end = stats(40000, "z", 1, 0)
    send(lines[:300])
    run()
    send([*lines[300:], end])
    run()
    expected = one_pass(settings, [*lines, end], (1_700_000_000 + 40000 - 7200) * SECOND)
    found = spark.read.parquet(f"{folder}/out/findings").select("id").collect()
    sent = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", f"{topic}-findings").load()
    kept = spark.read.parquet(f"{folder}/out/events").select("event").collect()
    assert sorted(r.id for r in found) == sorted(f[3] for f in expected) and expected
    assert sorted(r.id for r in sent.selectExpr("cast(key as string) id").distinct().collect()) == sorted(f[3] for f in expected)
    assert sorted(r.event for r in kept) == sorted([*lines, end])
    print(f"{len(kept)} events and {len(found)} findings through Kafka")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
