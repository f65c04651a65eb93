#!/usr/bin/env python3
"""Measures the figures of docs/fleet.md.

    measure.py prune ENGINE CAPTURE [--parts 32]      # what indexes leave out for a rule on one address, for every address
    measure.py spark ENGINE CAPTURE [--part-size …]   # hunts on Spark and in plain processes over the same parts, without Spark's start
    measure.py sizing ENGINE CAPTURE                  # costs, and the simulation compared with small hunts
    measure.py kafka ENGINE [--events 400000]         # CPU time of an event to a broker, compared with one to a file
"""

import argparse
import array
import contextlib
import io
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from margay_fleet import engine as task  # noqa: E402
from margay_fleet import hunt, plan, sizing  # noqa: E402
from margay_fleet.index import ROWS, Archive, entry_hash  # noqa: E402
from margay_fleet.rules import Variables, parse_rule  # noqa: E402

RULES = """alert http any any -> any any (msg:"method"; http.method; content:"POST"; sid:1;)
alert dns any any -> any any (msg:"query"; dns.query; content:"example"; sid:2;)
alert tcp any any -> any any (msg:"bytes"; content:"|de ad be ef|"; sid:3;)
alert tcp any any -> any any (msg:"many"; flags:S; threshold: type both, track by_src, count 500, seconds 60; sid:4;)
"""


def split(engine, capture, into, *arguments):
    subprocess.run([engine, "split", capture, "--into", into, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
    return Archive(into)


def addresses(capture):
    """Number of packets by IPv4 address in an Ethernet capture."""
    seen = Counter()
    with open(capture, "rb") as f:
        order = "<" if f.read(24)[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
        while head := f.read(16):
            data = f.read(struct.unpack(order + "IIII", head)[2])
            if data[12:14] == b"\x08\x00":
                seen.update({data[26:30], data[30:34]})
    return seen


def cell(a, b):
    low, high = min(a, b), max(a, b)
    return high * (high + 1) // 2 + low


def prune(options, folder):
    archive = split(options.engine, options.capture, folder / "archive", "--parts", options.parts)
    indexes, groups = dict(enumerate(i for _, i in archive.indexes(archive.parts))), []
    for part in archive.parts:
        entries = array.array("H")
        entries.frombytes((folder / "archive" / f"{part.name}.groups").read_bytes())
        # Three 16-bit words for each entry; the first one is the group.
        groups.append(Counter(entries[::3]))
    figures = []
    for packed, packets in addresses(options.capture).items():
        host = ".".join(map(str, packed))
        header = plan.Header(parse_rule(f"alert ip {host} any <> any any (sid:1;)", "a", 1), Variables())
        row = entry_hash(packed) % ROWS
        own = [cell(row, other) for other in range(ROWS)] + [65535]
        read = [n for n, index in indexes.items() if header.may_match(index, archive.ports_known)]
        taken = sum(sum(map(groups[n].__getitem__, own)) for n in read)
        figures.append((packets, 1 - len(read) / len(archive.parts), 1 - taken / archive.packets, packets / archive.packets))
    figures.sort(reverse=True)

    def told(what, some):
        for name, at in (("parts", 1), ("packets", 2)):
            values = [f[at] for f in some]
            most = sum(v >= 0.9 for v in values)
            print(f"{what}: {name} left out: median {statistics.median(values):.1%}, least {min(values):.1%}; "
                  f"at least 90 % for {most} of {len(values)}")  # fmt: skip

    told(f"all {len(figures)} addresses", figures)
    told("the 20 busiest", figures[:20])
    for packets, parts, left, share in figures[:3]:
        print(f"  an address with {packets} packets ({share:.1%} of all): {parts:.0%} of parts, {left:.1%} of packets left out")
    bytes_ = sum(p.bytes for p in archive.parts)
    sides = {e: sum(f.stat().st_size for f in (folder / "archive").glob(f"*.{e}")) for e in ("numbers", "groups", "index.json")}
    print(f"beside {bytes_} bytes of parts: " + ", ".join(f"{e} {size / bytes_:.2%}" for e, size in sides.items()))


def job_of(options, archive):
    """The job and units of a hunt with RULES."""
    rules = [parse_rule(line, "a", 1) for line in RULES.splitlines()]
    made = plan.make(archive, rules, Variables())
    units = [{"number": u.number, "group": u.group, "parts": [p.name for p in u.parts], "packets": sum(p.packets for p in u.parts), "hosts": u.hosts}
             for u in made.units]  # fmt: skip
    return task.Job(os.path.abspath(options.engine), archive.store.location, made.rules), units


def timed(call):
    began = time.monotonic()
    rows, reports = call()
    rows = list(rows)
    wrong = [r["problem"] for r in reports if r["problem"]]
    if wrong:
        sys.exit(wrong[0])
    return time.monotonic() - began, len(rows)


def plain(job, units, processes):
    """Runs the same tasks in local processes. Returns their engines' time, without Python's start."""
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(processes, hunt._begin, (job,)) as pool:
        return timed(lambda: zip_results(pool.map(hunt._task, units, chunksize=1)))


def zip_results(results):
    return [row for rows, _ in results for row in rows], [report for _, report in results]


def spark(options, folder):
    archive = split(options.engine, options.capture, folder / "archive", "--part-size", options.part_size)
    job, units = job_of(options, archive)
    print(f"{len(units)} parts, {sum(p.bytes for p in archive.parts) / 2**20:.0f} MiB")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = [("spark.driver.bindAddress", "127.0.0.1"), ("spark.driver.host", "127.0.0.1"), ("spark.driver.memory", "700m")]
    began = time.monotonic()
    session = hunt.spark_session(f"local[{options.processes}]", conf)
    session.sparkContext.setLogLevel("ERROR")
    ready = time.monotonic()
    # The first task starts Python's workers.
    session.sparkContext.parallelize(range(options.processes), options.processes).map(lambda n: task.MOST_ROWS + n).collect()
    print(f"Spark's start: {ready - began:.1f} s, and {time.monotonic() - ready:.1f} s for its first tasks")
    ratios = []
    for _ in range(options.pairs):
        alone, alerts = plain(job, units, options.processes)
        on_spark, same = timed(lambda: hunt.run_spark(session, job, units))
        if alerts != same:
            sys.exit(f"{alerts} rows in processes, {same} on Spark")
        ratios.append(on_spark / alone)
        print(f"processes {alone:.2f} s, Spark {on_spark:.2f} s, {alerts} rows: {on_spark / alone:.3f}")
    session.stop()
    print(f"Spark takes {statistics.median(ratios):.3f} times as long (median of {len(ratios)} pairs, {min(ratios):.3f} to {max(ratios):.3f})")


def measured(options, folder):
    """This machine's costs, from one hunt of nothing and one of everything, with one process."""
    archive = split(options.engine, options.capture, folder / "one", "--parts", 1)
    job, units = job_of(options, archive)
    empty = folder / "empty.pcap"
    with open(options.capture, "rb") as f:
        head = f.read(24)
        first = f.read(16)
        empty.write_bytes(head + first + f.read(struct.unpack("<IIII", first)[2]))
    small = split(options.engine, empty, folder / "empty", "--parts", 1)
    start = statistics.median(plain(*job_of(options, small), 1)[0] for _ in range(5))
    whole = statistics.median(plain(job, units, 1)[0] for _ in range(3))
    bytes_ = archive.parts[0].bytes
    began = time.monotonic()
    for _ in range(50):
        list(archive.indexes(archive.parts))
    return sizing.Costs(start=start, rate=bytes_ / (whole - start), plan=(time.monotonic() - began) / 50)


def simulated(options, folder):
    costs = measured(options, folder)
    print(f"an engine's start {costs.start:.3f} s, {costs.rate / 1e6:.0f} MB/s, {costs.plan * 1e3:.2f} ms an index")
    worst = 0.0
    for parts in (3, 8, 20):
        archive = split(options.engine, options.capture, folder / f"parts-{parts}", "--parts", parts)
        job, units = job_of(options, archive)
        for processes in (1, 2):
            took = statistics.median(plain(job, units, processes)[0] for _ in range(3))
            said = sizing.hunt_seconds([p.bytes for p in archive.parts], processes, costs, spark=False)
            worst = max(worst, abs(said / took - 1))
            print(f"{parts} parts, {processes} processes: {took:.2f} s, simulated {said:.2f} s ({said / took - 1:+.0%})")
    print(f"the simulation is off by {worst:.0%} at most")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        (folder / "costs.json").write_text(json.dumps({"start": costs.start, "rate": costs.rate}))
        from margay_fleet.cli import main as fleet

        fleet(["size", "--costs", str(folder / "costs.json")])
    print(f"with these costs, 100 sensors and 1 PB: {out.getvalue()}")


KAFKA = """%YAML 1.1
---
outputs:
  - eve-log:
      enabled: yes
      community-id: true
      types: [alert]
      filename: eve.json
      filetype: {filetype}
      {more}
"""


def threads(pid):
    """CPU nanoseconds of each thread in a process: {thread: (name, time)}."""
    found = {}
    for folder in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            found[folder.name] = ((folder / "comm").read_text().strip(), int((folder / "schedstat").read_text().split()[0]))
    return found


def cost(line, folder):
    """Runs an engine. Returns the CPU seconds of its worker, of all its threads, and of each thread by name."""
    with open(folder / "said", "wb") as said:
        process = subprocess.Popen([str(word) for word in line], stdout=said, stderr=said)
        seen = {}
        while process.poll() is None:
            seen.update(threads(process.pid))
            time.sleep(0.02)
    if process.returncode != 0:
        sys.exit((folder / "said").read_text())
    by_name = Counter()
    for name, spent in seen.values():
        by_name[name] += spent / 1e9
    # In the run mode `single`, the worker is the first thread.
    return seen[str(process.pid)][1] / 1e9, by_name.total(), by_name


def kafka(options, folder):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "tests"))
    from broker import Broker
    from conftest import ip, udp, write_pcap

    datagram = ((f"10.0.0.{n % 50 + 1}", 1000 + n % 50, b"%08d" % n) for n in range(options.events))
    packets = ((1_700_000_000 + n / 50_000, ip(a, "10.1.0.1", 17, udp(a, "10.1.0.1", port, 9999, data))) for n, (a, port, data) in enumerate(datagram))
    capture = write_pcap(folder / "a.pcap", packets)
    (folder / "a.rules").write_text('alert udp any any -> any any (msg:"each packet"; dsize:8; sid:1;)\n')
    broker = Broker(folder / "broker", partitions=4, memory="1g").start()
    try:
        figures = {"file": [], "broker": []}
        for pair in range(options.pairs):
            for what, filetype, more in (("file", "regular", ""), ("broker", "kafka", f'kafka: {{brokers: "{broker.address}", topic: eve}}')):
                config, logs = folder / f"{what}.yaml", folder / f"{what}-{pair}"
                logs.mkdir()
                config.write_text(KAFKA.format(filetype=filetype, more=more))
                figures[what].append(cost([options.engine, "-c", config, "-S", folder / "a.rules", "-l", logs, "--runmode", "single", "-r", capture], folder))
    finally:
        broker.stop(at_once=True)
    for name, at in (("worker", 0), ("all threads", 1)):
        a, b = (statistics.median(f[at] for f in figures[what]) for what in ("file", "broker"))
        each = (b - a) / options.events
        print(f"{name}: {a:.2f} s to a file, {b:.2f} s to a broker: {each * 1e6:+.2f} us an event, {each * 50_000:+.1%} of a core at 50,000 events a second")
    for what, runs in figures.items():
        names = sorted({name for run in runs for name in run[2]})
        print(f"{what}: " + ", ".join(f"{name} {statistics.median(run[2][name] for run in runs):.2f} s" for name in names))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["prune", "spark", "sizing", "kafka"])
    p.add_argument("engine")
    p.add_argument("capture", nargs="?")
    p.add_argument("--parts", type=int, default=32)
    p.add_argument("--part-size", default="256M")
    p.add_argument("--processes", type=int, default=os.cpu_count())
    p.add_argument("--pairs", type=int, default=3)
    p.add_argument("--events", type=int, default=400_000)
    options = p.parse_args()
    if options.capture is None and options.what != "kafka":
        p.error(f"{options.what} needs a capture")
    with tempfile.TemporaryDirectory(prefix="margay-measure-", dir=os.environ.get("TMPDIR")) as folder:
        {"prune": prune, "spark": spark, "sizing": simulated, "kafka": kafka}[options.what](options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
