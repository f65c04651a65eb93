"""Detection over the events of many sensors as a stream: runs `detectors` in Spark's Structured Streaming.

One stateful operator holds all detectors, keyed by detector and by the detector's own key. All its state is in the checkpoint. There are two
queries: `findings`, and `events`, which keeps every line. Both write Parquet exactly once (through the file sink's log). `findings` also writes to
Kafka if configured. Kafka's sink may repeat a finding after a crash; the copies have the same `id`.
"""

import atexit
import json
import os
import shutil

from . import FleetError, ship
from .detectors import Settings, advance, all_of, parse

SPARK_KAFKA = "org.apache.spark:spark-sql-kafka-0-10"
STATE = "kept string"
FOUND = "time timestamp, detector string, key string, id string, finding string"
KEYED = "detector string, key string, time timestamp, event string"


def session(master=None, kafka=False, conf=()):
    """A Spark session, with Kafka's connector if needed."""
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as e:
        raise FleetError("pyspark is not installed: pip install 'margay-fleet[spark]'") from e
    builder = SparkSession.builder.appName("margay-fleet stream").config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", "false")
    builder = builder.master(master) if master else builder
    if kafka:
        scala = "2.12" if pyspark.__version__.startswith("3.") else "2.13"
        builder = builder.config("spark.jars.packages", f"{SPARK_KAFKA}_{scala}:{pyspark.__version__}")
    for name, value in conf:
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    package = ship.send(made.sparkContext)
    atexit.register(shutil.rmtree, os.path.dirname(package), ignore_errors=True)
    return made


def from_kafka(spark, servers, topic, conf=()):
    """Lines of a topic, from its beginning if there is no checkpoint yet."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    # Records that retention deleted before they were read are lost; fail instead of skipping them silently.
    reader = reader.option("startingOffsets", "earliest").option("failOnDataLoss", "true")
    for name, value in conf:
        reader = reader.option(name, value)
    return reader.load().selectExpr("cast(value as string) as value")


def from_files(spark, folder, at_a_time=None):
    """Lines of the EVE files in a folder, oldest first, and of files that appear later."""
    reader = spark.readStream.format("text")
    if at_a_time:
        reader = reader.option("maxFilesPerTrigger", at_a_time)
    return reader.load(folder).select("value")


def keyed(settings):
    """A function from lines to rows with detector, key, time and event."""

    def rows(batches):
        import pandas

        detectors = all_of(settings)
        for batch in batches:
            out = []
            for line in batch["value"]:
                parsed = parse(line)
                if parsed is None:
                    continue
                time, event = parsed
                text = json.dumps(event, separators=(",", ":"))
                out += [(d.name, key, time, text) for d in detectors.values() for key in d.keys(event)]
            frame = pandas.DataFrame(out, columns=["detector", "key", "time", "event"])
            frame["time"] = pandas.to_datetime(frame["time"], unit="us")
            yield frame

    return rows


def stateful(settings):
    """The function of the stateful operator: it turns a key's new rows and its state into findings."""

    def run(group, frames, state):
        import pandas

        detector = all_of(settings)[group[0]]
        kept = json.loads(state.get[0]) if state.exists else None
        new = []
        if not state.hasTimedOut:
            for frame in frames:
                times = frame["time"].astype("int64") // (1000 if str(frame["time"].dtype).startswith("datetime64[ns") else 1)
                new += [(int(t), json.loads(e)) for t, e in zip(times, frame["event"])]
        milliseconds = state.getCurrentWatermarkMs()
        kept, found, again = advance(detector, group[1], kept, new, milliseconds * 1000)
        if kept is None:
            state.remove()
        else:
            state.update((json.dumps(kept, separators=(",", ":")),))
            # The first future millisecond at which there is something to do.
            state.setTimeoutTimestamp(max(again // 1000 + 1, milliseconds + 1))
        frame = pandas.DataFrame([(t, n, k, i, json.dumps(f, sort_keys=True)) for t, n, k, i, f in found],
                                 columns=["time", "detector", "key", "id", "finding"])  # fmt: skip
        frame["time"] = pandas.to_datetime(frame["time"], unit="us")
        yield frame

    return run


def findings(lines, settings, delay="30 seconds"):
    """The detectors' findings in a stream of lines. `delay` is how much later than others a line may come and still count."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    rows = lines.mapInPandas(keyed(settings), KEYED).withWatermark("time", delay)
    return rows.groupBy("detector", "key").applyInPandasWithState(stateful(settings), FOUND, STATE, "append", GroupStateTimeout.EventTimeTimeout)


def events(lines):
    """Every line with its day and sensor. Invalid lines are kept too, with the sensor `unreadable`."""
    from pyspark.sql import functions as f

    got = lambda name: f.get_json_object("value", f"$.{name}")  # noqa: E731
    time = f.to_timestamp(got("timestamp"), "yyyy-MM-dd'T'HH:mm:ss.SSSSSSZ")
    readable = time.isNotNull() & got("event_type").isNotNull()
    # A sensor's name becomes a folder name.
    sensor = f.regexp_replace(f.coalesce(got("host"), f.lit("unnamed")), "[^A-Za-z0-9._-]", "_")
    return lines.select(
        time.alias("time"), got("event_type").alias("event_type"), got("community_id").alias("community_id"), got("src_ip").alias("src_ip"),
        got("dest_ip").alias("dest_ip"), f.col("value").alias("event"),
        f.when(readable, f.date_format(time, "yyyy-MM-dd")).otherwise("none").alias("day"),
        f.when(readable, sensor).otherwise("unreadable").alias("sensor"),
    )  # fmt: skip


def start(lines, settings, output, checkpoint, delay="30 seconds", every=None, kafka=None):
    """Starts the queries and returns them. `every` is the time between batches; None reads the available lines, and ends."""
    from pyspark.sql import functions as f

    def trigger(writer):
        return writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True)

    def parquet(frame, name, by):
        writer = frame.writeStream.format("parquet").option("path", os.path.join(output, name)).partitionBy(*by).queryName(name)
        return trigger(writer.option("checkpointLocation", os.path.join(checkpoint, name)).outputMode("append")).start()

    found = findings(lines, settings, delay)
    sensor = f.coalesce(f.get_json_object("finding", "$.sensor"), f.get_json_object("finding", "$.sensors[0]"), f.lit("fleet"))
    sensor = f.when(f.col("detector") == "health", f.col("key")).otherwise(sensor)
    by_day = found.withColumn("day", f.date_format("time", "yyyy-MM-dd")).withColumn("sensor", f.regexp_replace(sensor, "[^A-Za-z0-9._-]", "_"))
    queries = [parquet(by_day, "findings", ("day", "sensor")), parquet(events(lines), "events", ("day", "sensor"))]
    if kafka:
        servers, topic = kafka
        value = f.to_json(f.struct("id", "time", "detector", "key", "finding")).alias("value")
        writer = found.select(f.col("id").alias("key"), value).writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
        writer = writer.option("topic", topic).option("checkpointLocation", os.path.join(checkpoint, "kafka")).queryName("kafka")
        queries.append(trigger(writer).start())
    return queries


def stream(options):
    """Runs `margay-fleet stream` and returns the exit status."""
    settings = Settings()
    if options.settings:
        try:
            with open(options.settings, encoding="utf-8") as f:
                settings = Settings.read(f.read())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            raise FleetError(f"{options.settings}: cannot be used: {e}") from e
    spark = session(options.master, bool(options.kafka or options.kafka_out), [c.split("=", 1) for c in options.conf])
    try:
        if options.kafka:
            lines = from_kafka(spark, options.kafka, options.topic, [o.split("=", 1) for o in options.kafka_option])
        else:
            lines = from_files(spark, options.files)
        out = (options.kafka or options.kafka_out, options.findings_topic) if options.findings_topic else None
        if out and not out[0]:
            raise FleetError("--findings-topic needs --kafka or --kafka-out")
        queries = start(lines, settings, options.output, options.checkpoint, options.delay, None if options.once else options.every, out)
        for query in queries:
            query.awaitTermination()
        return 0
    finally:
        spark.stop()
