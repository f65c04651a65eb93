#!/usr/bin/env python3
"""Detection that needs a fleet: a scan spread over three sensors, and a newer rule run over captures.

    demo.py ENGINE    # as root; the engine needs the feature kafka

Three sensors run in network namespaces. Each watches a wire, keeps its packets, and sends its events to a Kafka broker in another namespace, where
Spark reads them. The captures then become an archive, and a hunt runs over it. Namespaces, processes and files are removed at the end.
"""

import contextlib
import glob
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "tests")]

import broker  # noqa: E402
from conftest import conversation, tcp  # noqa: E402

SENSORS = 3
HOSTS = 12
SCAN = 30
TOPIC = "margay"
CORE = "10.77.0.1"
CONFIG = """%YAML 1.1
---
sensor-name: sensor-{n}
stats: {{enabled: yes, interval: 1}}
flow-timeouts: {{tcp: {{new: 3, established: 3, closed: 1}}}}
af-packet:
  - interface: tap
    threads: 1
outputs:
  - eve-log:
      enabled: yes
      community-id: true
      filetype: kafka
      kafka: {{brokers: "{broker}", topic: {topic}}}
      types: [alert, flow, stats]
  - pcap-log: {{enabled: yes, filename: packets.pcap}}
"""
# The rule of each sensor needs twenty attempts within a minute. No sensor sees so many.
ALONE = (
    'alert tcp any any -> any 22 (msg:"SSH scan"; flags:S; threshold: type both, track by_src, count 20, seconds 60; sid:1000000;)\n'
)
LATER = 'alert http any any -> any any (msg:"a tool that was not known then"; http.user_agent; content:"newbot/1.0"; sid:1000001;)\n'


def ip(*words, check=True):
    subprocess.run(["ip", *map(str, words)], check=check, capture_output=not check)


def wait_for(what, why, seconds=60):
    """Polls until the condition is true."""
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            raise RuntimeError(why)
        time.sleep(0.2)


class Network:
    """The namespaces: `core` with the broker and one end of each sensor's wire, and the sensors."""

    def __init__(self):
        self.prefix = f"mfleet{os.getpid()}"
        self.core, self.sensors = f"{self.prefix}-core", [f"{self.prefix}-s{n}" for n in range(SENSORS)]

    def __enter__(self):
        for name in (self.core, *self.sensors):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.core, "link", "add", "br0", "type", "bridge")
        ip("-n", self.core, "addr", "add", f"{CORE}/24", "dev", "br0")
        ip("-n", self.core, "link", "set", "br0", "up")
        for n, sensor in enumerate(self.sensors):
            for inside, outside in ((f"m{n}", "manage"), (f"w{n}", "tap")):
                ip("-n", self.core, "link", "add", inside, "type", "veth", "peer", "name", outside, "netns", sensor)
                ip("-n", self.core, "link", "set", inside, "up")
                ip("-n", sensor, "link", "set", outside, "up")
            ip("-n", self.core, "link", "set", f"m{n}", "master", "br0")
            ip("-n", sensor, "addr", "add", f"10.77.0.{10 + n}/24", "dev", "manage")
        return self

    def __exit__(self, *_):
        for name in (*self.sensors, self.core):
            ip("netns", "del", name, check=False)


def traffic(n):
    """The traffic of sensor `n`: its share of the scan, and one download."""
    packets = [(0.02 * k, tcp("203.0.113.9", f"10.0.{n}.{k + 1}", 50000 + k, 22, 2)) for k in range(HOSTS)]
    agent = b"newbot/1.0" if n == 2 else b"curl/8.0"
    request = b"GET /a HTTP/1.1\r\nHost: www.example\r\nUser-Agent: " + agent + b"\r\n\r\n"
    response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    return packets + conversation(f"10.0.{n}.200", "198.51.100.7", 40000, 80, request, response, 0.1)


def send(wires):
    """Sends each sensor's traffic on its wire, in the order of time. Runs in the namespace with the wires."""
    sockets = []
    for n in range(wires):
        sockets.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
        sockets[-1].bind((f"w{n}", 0))
    start = time.monotonic()
    for at, n, packet in sorted((at, n, packet) for n in range(wires) for at, packet in traffic(n)):
        time.sleep(max(0.0, start + at - time.monotonic()))
        sockets[n].send(b"\2\0\0\0\0\2" + b"\2\0\0\0\0\1" + struct.pack(">H", 0x800) + packet)


def sensor(engine, network, folder, n, servers):
    """Starts an engine on a sensor's wire, and waits until it captures."""
    home = folder / f"sensor-{n}"
    home.mkdir()
    (home / "margay.yaml").write_text(CONFIG.format(n=n, broker=servers, topic=TOPIC))
    (home / "alone.rules").write_text(ALONE)
    line = [engine, "-c", home / "margay.yaml", "-S", home / "alone.rules", "-i", "tap", "-l", home, "-k", "none"]
    with open(home / "said", "wb") as said:
        process = subprocess.Popen(["ip", "netns", "exec", network.sensors[n], *map(str, line)], stdout=said, stderr=said)

    def ready():
        if process.poll() is not None:
            raise RuntimeError(f"sensor {n} ended: {(home / 'said').read_text(errors='replace')[-800:]}")
        return bool(glob.glob(str(home / "packets.pcap*"))) or "started" in (home / "said").read_text(errors="replace").lower()

    wait_for(ready, f"sensor {n} does not start: {(home / 'said').read_text(errors='replace')[-800:]}")
    return process


def watch(folder, servers, connector):
    """Reads the topic as a stream, to its end. Runs in the broker's namespace, and prints the findings as JSON."""
    from margay_fleet import detectors, stream

    conf = {"spark.sql.shuffle.partitions": "2", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
            "spark.jars": ",".join(glob.glob(f"{connector}/*.jar"))}  # fmt: skip
    spark = stream.session("local[2]", conf=conf.items())
    spark.sparkContext.setLogLevel("ERROR")
    lines = stream.from_kafka(spark, servers, TOPIC)
    queries = stream.start(lines, detectors.Settings(scan_hosts=SCAN), f"{folder}/out", f"{folder}/checkpoint", delay="2 seconds")
    for query in queries:
        query.awaitTermination()
    found = [(r.detector, json.loads(r.finding)) for r in spark.read.parquet(f"{folder}/out/findings").collect()]
    kept = spark.read.parquet(f"{folder}/out/events")
    alerts = kept.where("event_type = 'alert'").count()
    print(json.dumps({"scans": [f for kind, f in found if kind == "scan"], "alerts": alerts, "events": kept.count()}))
    spark.stop()


def inside(network, *words):
    """Runs this program in the core's namespace, and returns its output."""
    line = ["ip", "netns", "exec", network.core, sys.executable, __file__, *map(str, words)]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]}: {done.stderr[-2000:]}")
    return done.stdout


def fleet_sees(engine, folder, connector):
    """Runs the sensors, sends the traffic and reads the stream. Returns the fleet's findings."""
    with Network() as network, contextlib.ExitStack() as stack:
        line = ["ip", "netns", "exec", network.core, sys.executable, __file__, "--broker", str(folder / "kafka")]
        running = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        stack.callback(running.wait)
        stack.callback(running.terminate)
        servers = running.stdout.readline().strip()
        if not servers:
            raise RuntimeError("the broker did not start")
        print(f"a broker at {servers}, and {SENSORS} sensors in namespaces of their own", flush=True)
        engines = [sensor(engine, network, folder, n, servers) for n in range(SENSORS)]
        for process in engines:
            stack.callback(process.wait)
            stack.callback(process.kill)
        inside(network, "--send")
        # Unanswered flows end after 3 s, and the stream judges events that are 2 s older than the newest one.
        time.sleep(12)
        for process in engines:
            process.send_signal(signal.SIGINT)
        for process in engines:
            process.wait(60)
        return json.loads(inside(network, "--watch", folder, servers, connector).splitlines()[-1])


def hunted(engine, folder):
    """Makes an archive of the sensors' captures, and hunts over it: (exit status, alerts)."""
    captures = sorted(glob.glob(str(folder / "sensor-*" / "packets.pcap*")))
    # The sensors captured at the same time, but an archive needs packets in the order of time.
    merged = folder / "all.pcap"
    packets = []
    for capture in captures:
        with open(capture, "rb") as f:
            data = f.read()
        kind, at = data[20:24], 24
        while at < len(data):
            seconds, fraction, length, _ = struct.unpack_from("<IIII", data, at)
            packets.append((seconds, fraction, data[at : at + 16 + length]))
            at += 16 + length
    merged.write_bytes(struct.pack("<IHHiII", 0xA1B2C3D4, 2, 4, 0, 0, 262144) + kind + b"".join(p for _, _, p in sorted(packets)))
    subprocess.run([engine, "split", merged, "--into", folder / "archive", "--parts", "8"], check=True)
    (folder / "later.rules").write_text(LATER)
    from margay_fleet.cli import main as fleet

    hits = folder / "hits.json"
    line = ["hunt", "--rules", folder / "later.rules", "--archive", folder / "archive", "--engine", engine, "--local", "2", "-o", hits]
    status = fleet(list(map(str, line)))
    return status, [json.loads(line) for line in hits.read_text().splitlines()]


def main(engine):
    engine = str(pathlib.Path(engine).resolve())
    if os.geteuid() != 0:
        sys.exit("demo: it creates network namespaces: run it as root")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    began = time.monotonic()
    broker.jars()
    connector = broker.jars(broker.CONNECTOR)
    with tempfile.TemporaryDirectory(prefix="margay-demo-fleet-") as name:
        folder = pathlib.Path(name)
        seen = fleet_sees(engine, folder, connector)
        print(f"each sensor sees {HOSTS} tries at port 22, and its own rule wants 20: {seen['alerts']} alerts among {seen['events']} events")
        for scan in seen["scans"]:
            print(f"the fleet: a scan of {scan['src_ip']}: {scan['targets']} hosts at port {scan['dest_port']}, seen by {', '.join(scan['sensors'])}")
        status, alerts = hunted(engine, folder)
        for alert in alerts:
            print(f"the hunt: {alert['timestamp']} {alert['src_ip']}: {alert['alert']['signature']}")
    print(f"{time.monotonic() - began:.0f} s; everything is removed again")
    scans = seen["scans"]
    good = len(scans) == 1 and len(scans[0]["sensors"]) == SENSORS and seen["alerts"] == 0
    return 0 if good and status == 0 and [a["src_ip"] for a in alerts] == ["10.0.2.200"] else 1


def hold(folder):
    """Runs a broker until it is told to stop, and prints its address."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with broker.Broker(folder, host=CORE) as running:
        print(running.address, flush=True)
        signal.pause()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--broker"]:
        hold(sys.argv[2])
    elif sys.argv[1:2] == ["--send"]:
        send(SENSORS)
    elif sys.argv[1:2] == ["--watch"]:
        watch(*sys.argv[2:])
    elif len(sys.argv) == 2:
        sys.exit(main(sys.argv[1]))
    else:
        sys.exit(__doc__)
