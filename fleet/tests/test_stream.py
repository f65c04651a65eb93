"""Streams: the same findings as in one pass, even after a restart from the checkpoint; every line is kept once."""

import json
import os
import sys

import pytest
from test_detectors import busy, counting, stats

pytest.importorskip("pyspark")
pytestmark = pytest.mark.extras
pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

from margay_fleet import stream  # noqa: E402
from margay_fleet.detectors import SECOND, one_pass  # noqa: E402

# If the last event is later than all others by more than the delay, all of those are judged.
END = stats(9000, "z", 1, 0)


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "700m", "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")), "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    }  # fmt: skip
    session = stream.session("local[2]", conf=conf.items())
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def run(spark, folder, source, settings):
    """Reads the available files to their end."""
    lines = stream.from_files(spark, str(source), 1)
    for query in stream.start(lines, settings, str(folder / "out"), str(folder / "checkpoint"), "60 seconds"):
        query.awaitTermination()
        if error := query.exception():
            raise error


def put(source, name, lines, order):
    """Writes a file of lines; files are read in the order of their times."""
    path = source / name
    path.write_text("".join(f"{line}\n" for line in lines))
    os.utime(path, (1_700_000_000 + order, 1_700_000_000 + order))


def results(spark, folder, name):
    return spark.read.parquet(str(folder / "out" / name))


def test_a_stream_finds_what_one_pass_finds_also_after_a_restart(spark, tmp_path):
    settings, lines = counting(count=5), busy(count=400)
    source = tmp_path / "in"
    source.mkdir()
    pieces = [lines[at : at + 700] for at in range(0, len(lines), 700)]
    # Lines that are late by less than the delay count.
    pieces[0].append(pieces[1].pop(0))
    for n, piece in enumerate(pieces[:2]):
        put(source, f"{n}.json", piece, n)
    run(spark, tmp_path, source, settings)
    early = results(spark, tmp_path, "findings").count()
    # A restarted driver continues from its checkpoint.
    for n, piece in enumerate([*pieces[2:], ["{broken"], [END]], 2):
        put(source, f"{n}.json", piece, n)
    run(spark, tmp_path, source, settings)

    watermark = (1_700_000_000 + 9000 - 60) * SECOND
    expected = one_pass(settings, [*lines, END], watermark)
    rows = results(spark, tmp_path, "findings").selectExpr("unix_micros(time) t", "detector", "key", "id", "finding").collect()
    got = sorted((r.t, r.detector, r.key, r.id, json.loads(r.finding)) for r in rows)
    assert [g[:4] for g in got] == [tuple(e[:4]) for e in expected]
    assert [g[4] for g in got] == [e[4] for e in expected]
    assert 0 < early < len(got)

    kept = results(spark, tmp_path, "events")
    assert sorted(r.event for r in kept.select("event").collect()) == sorted([*lines, "{broken", END])
    assert {r.sensor for r in kept.select("sensor").distinct().collect()} == {"a", "b", "c", "z", "unreadable"}
    assert (tmp_path / "out" / "events" / "day=2023-11-14" / "sensor=a").is_dir()


def test_a_batch_that_failed_is_not_written_twice(spark, tmp_path):
    """The driver ends after it computed a batch, and before it marked the batch as done."""
    settings, lines = counting(count=5), busy(count=150)
    source = tmp_path / "in"
    source.mkdir()
    half = len(lines) // 2
    put(source, "0.json", lines[:half], 0)
    put(source, "1.json", lines[half:], 1)
    put(source, "2.json", [END], 2)
    run(spark, tmp_path, source, settings)
    before = sorted(r.id for r in results(spark, tmp_path, "findings").select("id").collect())
    assert before
    for query in ("findings", "events"):
        commits = tmp_path / "checkpoint" / query / "commits"
        last = max((p for p in commits.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)
    run(spark, tmp_path, source, settings)
    assert sorted(r.id for r in results(spark, tmp_path, "findings").select("id").collect()) == before
    assert results(spark, tmp_path, "events").count() == len(lines) + 1
