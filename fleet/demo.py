#!/usr/bin/env python3
"""What one sensor does not see: a scan spread over three, found by the fleet; then a rule that came later, over what was captured.

Everything is made here and goes into a folder that is removed: captures of three sensors, their engines' events, a stream of Spark over
these, an archive and a hunt. `demo.py ENGINE`.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "tests")]

from conftest import conversation, tcp, write_pcap  # noqa: E402

START = 1_700_000_000
CONFIG = """%YAML 1.1
---
sensor-name: {name}
outputs:
  - eve-log: {{enabled: yes, filetype: regular, filename: eve.json, community-id: true, types: [alert, flow, stats]}}
"""
LATER = 'alert http any any -> any any (msg:"a tool that was not known then"; http.user_agent; content:"newbot/1.0"; sid:1000001;)\n'


def sensor(engine, folder, number):
    """Captures what passes one of three sensors, has an engine read it, and ends its events with one that is later, as time goes on."""
    at, packets = START, []
    for n in range(number, 36, 3):
        packets.append((at + n, tcp("203.0.113.9", f"10.0.{number}.{n + 1}", 50000 + n, 22, 2)))
    agent = b"newbot/1.0" if number == 2 else b"curl/8.0"
    request = b"GET /a HTTP/1.1\r\nHost: www.example\r\nUser-Agent: " + agent + b"\r\n\r\n"
    packets += conversation(f"10.0.{number}.200", "198.51.100.7", 40000, 80, request, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", at + 5)
    # Nothing more until all flows are over.
    packets.append((at + 4000, tcp("10.0.0.1", "10.0.0.2", 1, 2, 16)))
    capture = write_pcap(folder / f"sensor-{number}.pcap", packets)
    config, logs = folder / f"sensor-{number}.yaml", folder / f"sensor-{number}"
    config.write_text(CONFIG.format(name=f"sensor-{number}"))
    logs.mkdir()
    (folder / "none.rules").write_text("")
    line = [engine, "-c", config, "-S", folder / "none.rules", "-r", capture, "-l", logs, "--runmode", "single"]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (folder / "events").mkdir(exist_ok=True)
    (logs / "eve.json").rename(folder / "events" / f"{number}.json")
    return capture


def main():
    engine = str(pathlib.Path(sys.argv[1]).resolve())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="margay-demo-fleet-") as name:
        folder = pathlib.Path(name)
        captures = [sensor(engine, folder, n) for n in range(3)]
        alone = [sum('"dest_port":22' in line for line in open(folder / "events" / f"{n}.json", encoding="utf-8")) for n in range(3)]
        print(f"three sensors see {', '.join(map(str, alone))} tries at port 22 each: too few for a scan (30 hosts within a minute)")

        from margay_fleet import detectors, stream

        spark = stream.session("local[2]", conf=[("spark.sql.shuffle.partitions", "2"), ("spark.driver.bindAddress", "127.0.0.1")])
        spark.sparkContext.setLogLevel("ERROR")
        lines = stream.from_files(spark, str(folder / "events"))
        queries = stream.start(lines, detectors.Settings(scan_hosts=30), str(folder / "out"), str(folder / "checkpoint"))
        for query in queries:
            query.awaitTermination()
        found = [(r.detector, json.loads(r.finding)) for r in spark.read.parquet(str(folder / "out" / "findings")).collect()]
        spark.stop()
        scans = [f for kind, f in found if kind == "scan"]
        for scan in scans:
            print(f"the fleet: a scan of {scan['src_ip']}: {scan['targets']} hosts at port {scan['dest_port']}, seen by {', '.join(scan['sensors'])}")

        split = [engine, "split", *captures, "--into", folder / "archive", "--parts", "8"]
        subprocess.run(split, check=True)
        (folder / "later.rules").write_text(LATER)
        from margay_fleet.cli import main as fleet

        hits = folder / "hits.json"
        status = fleet(["hunt", "--rules", str(folder / "later.rules"), "--archive", str(folder / "archive"), "--engine", engine, "--local", "2",
                        "-o", str(hits)])  # fmt: skip
        alerts = [json.loads(line) for line in hits.read_text().splitlines()]
        for alert in alerts:
            print(f"the hunt: {alert['timestamp']} {alert['src_ip']}: {alert['alert']['signature']}")
        return 0 if status == 0 and len(scans) == 1 and len(scans[0]["sensors"]) == 3 and [a["src_ip"] for a in alerts] == ["10.0.2.200"] else 1


if __name__ == "__main__":
    sys.exit(main())
