"""A hunt: rules over an archive, with the same alerts as one engine over the whole capture."""

import atexit
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
import zipimport
from datetime import datetime, timezone

from . import FleetError, engine, plan, ship
from .index import Archive
from .rules import Variables, read_rules
from .thresholds import Counts, Match, canonical


def moment(text):
    """Parses a time on the command line to microseconds since 1970; without an offset it is UTC."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError as e:
        raise FleetError(f"'{text}' is not a time: write it as 2026-03-01 or 2026-03-01T14:00:00Z") from e
    when = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
    return int(when.timestamp()) * 1_000_000 + when.microsecond


def _ask(engine_, *arguments, statuses=(0,)):
    try:
        done = subprocess.run([engine_, *arguments], capture_output=True, text=True, errors="replace", check=False)
    except OSError as e:
        raise FleetError(f"{engine_}: cannot be started: {e.strerror}; name the engine with --engine") from e
    if done.returncode not in statuses:
        text = (done.stderr or done.stdout).strip().splitlines()
        raise FleetError(f"{engine_} {arguments[0]}: status {done.returncode}: {text[-1] if text else 'it printed nothing'}")
    return done.stdout


def settings_of(dump):
    """Settings of `margay --dump-config` by name."""
    pairs = (line.partition(" = ") for line in dump.splitlines())
    return {name: value for name, equals, value in pairs if equals}


COUNTING = re.compile(r"^(event_filter|threshold|rate_filter)\s+gen_id\s+(\d+)\s*,\s*sig_id\s+(\d+)", re.I)


def threshold_file(path):
    """Reads a `threshold.config`: (lines that suppress, reasons by key for rules whose alerts it counts)."""
    suppress, forced = [], {}
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            lines = re.sub(r"\\\r?\n", " ", f.read()).splitlines()
    except FileNotFoundError:
        return suppress, forced
    for line in map(str.strip, lines):
        if not line or line.startswith("#"):
            continue
        if line.lower().startswith("suppress"):
            suppress.append(line)
        elif match := COUNTING.match(line):
            gid, sid = int(match[2]), int(match[3])
            # An entry for all signatures, or for a signature of any generator, is not analysed further.
            key = (gid or 1, sid) if sid else (0, 0)
            forced[key] = f"{match[1]} in {path}"
        else:
            forced[(0, 0)] = f"'{line[:40]}' in {path}"
    return suppress, forced


def checked(engine_, config, files):
    """The engine's errors about rules, as sentences."""
    arguments = ["rules", "check", "--json", *(["-c", config] if config else []), *files]
    # Warnings about the configuration precede the report.
    lines = [line for line in _ask(engine_, *arguments, statuses=(0, 1)).splitlines() if line.startswith("{")]
    if not lines:
        raise FleetError(f"{engine_} rules check: printed no report: does the engine have this version?")
    report = json.loads(lines[-1])
    return [f"{m['file']}:{m['line']}: {m['text']}" for m in report["messages"] if m["level"] == "error"]


class Merge:
    """Merges the ordered rows of all units into the events that one engine would have written."""

    def __init__(self, made, start=None, end=None, most=15):
        self.plan, self.start, self.end, self.most = made, start, end, most
        self.counts, self.groups = Counts(), {u.number: u.group for u in made.units}
        self.alerts = 0

    def __call__(self, rows):
        """Yields events. `rows` are in order of packet, place and unit."""
        packet, taken = None, 0
        for number, _, unit, text in rows:
            event = json.loads(text)
            alert = event["alert"]
            key = (alert["gid"], alert["signature_id"])
            if key not in self.plan.owned[self.groups[unit]]:
                continue
            at = engine.micros(event["timestamp"])
            thresholds = self.plan.recount.get(key)
            if thresholds:
                flow = (unit, event["flow_id"]) if "flow_id" in event else None
                src, dst = canonical(event.get("src_ip", "")), canonical(event.get("dest_ip", ""))
                if not self.counts.alerts(key, thresholds, Match(src, dst, flow, at)):
                    continue
            # Inner packets of a tunnel have the frame's number, and their own room for alerts.
            now = (number, event.get("pkt_src"), event.get("src_ip"), event.get("dest_ip"))
            packet, taken = now, taken + 1 if now == packet else 1
            if taken > self.most:
                continue
            if (self.start is not None and at < self.start) or (self.end is not None and at >= self.end):
                continue
            self.alerts += 1
            yield event


_job = None


def _begin(job):
    """Sends the shared data to a process once, because there may be many rules."""
    global _job
    _job = job


def _task(unit):
    return engine.run(_job, unit)


def run_here(job, units, processes):
    """Runs units in local processes: (rows in order, reports)."""
    rows, reports = [], []
    with multiprocessing.get_context("spawn").Pool(max(1, min(processes, len(units))), _begin, (job,)) as pool:
        for found, report in pool.imap_unordered(_task, units, chunksize=1):
            rows.extend(found)
            reports.append(report)
    rows.sort()
    return rows, reports


def spark_session(master=None, conf=()):
    """A Spark session whose workers have this package."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as e:
        raise FleetError("pyspark is not installed: pip install 'margay-fleet[spark]', or hunt with --local N") from e
    builder = SparkSession.builder.appName("margay-fleet hunt").config("spark.ui.enabled", "false")
    builder = builder.master(master) if master else builder
    for name, value in conf:
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    package = ship.send(session.sparkContext)
    atexit.register(shutil.rmtree, os.path.dirname(package), ignore_errors=True)
    return session


def _spark_task(job, unit):
    """Runs a unit in one of Spark's Python processes, which run many tasks."""
    # Spark makes Python look for changed modules before each task, and Python then reads the directories of all archives on its path again, which takes
    # half as long as a part of 256 MB. These archives do not change.
    zipimport.zipimporter.invalidate_caches = lambda _: None
    return engine.run(job, unit)


# Most rows that come back with the reports, of all units. A unit with more than its share leaves its rows in Spark until they are merged.
AT_ONCE = 200_000


def run_spark(session, job, units):
    """Runs each unit as a Spark task: (rows in order, reports). Results reach the driver through Spark's own task commit, so that a task that runs
    again, or twice at a time, counts once."""
    from pyspark import StorageLevel

    context = session.sparkContext
    shared, few = context.broadcast(job), max(1, AT_ONCE // len(units))
    done = context.parallelize(units, len(units)).map(lambda unit: _spark_task(shared.value, unit)).persist(StorageLevel.DISK_ONLY)
    results = done.map(lambda r: (r[1], r[0] if len(r[0]) <= few else None)).collect()
    reports = [report for report, _ in results]
    if all(rows is not None for _, rows in results):
        # Sorting in Spark would need two more jobs.
        return sorted(row for _, rows in results for row in rows), reports
    rows = done.flatMap(lambda r: r[0]).sortBy(lambda row: row[:3], numPartitions=max(1, min(len(units), 64))).toLocalIterator()
    return rows, reports


def hunt(options):
    """Runs `margay-fleet hunt` and returns the exit status. `options` are those of `cli`."""
    archive = Archive(options.archive)
    problems = checked(options.engine, options.config, options.rules)
    rules, seen = [], set()
    for path in options.rules:
        read, strange = read_rules(path)
        rules += read
        wrong = {p.rsplit(": ", 1)[0] for p in problems}
        # The engine has already named the rules that it rejects.
        problems += [f"{path}:{line}: is not understood, and is left out" for line, _ in strange if f"{path}:{line}" not in wrong]
    for rule in rules:
        if rule.key in seen:
            problems.append(f"{rule.file}:{rule.line}: another rule has its sid {rule.sid} as well: give it one of its own")
        seen.add(rule.key)
    arguments = ["--dump-config", *(["-c", options.config] if options.config else [])]
    for setting in options.set:
        arguments += ["--set", setting]
    dump = _ask(options.engine, *arguments)
    config = settings_of(dump)
    suppress, forced = threshold_file(config.get("threshold-file", ""))
    start, end = (moment(t) if t else None for t in (options.start, options.end))
    made = plan.make(archive, rules, Variables(dump), start, end, options.lead * 1_000_000, forced)
    units = []
    for unit in made.units:
        broken = [(p, wrong) for p in unit.parts if (wrong := archive.problem(p, options.verify))]
        problems += [wrong for _, wrong in broken]
        whole = [p for p in unit.parts if p not in [b for b, _ in broken]]
        if whole:
            parts, packets = [p.name for p in whole], sum(p.packets for p in whole)
            units.append({"number": unit.number, "group": unit.group, "parts": parts, "packets": packets, "hosts": unit.hosts})
    # `auto` decides from the first packets of a file, but all parts must be treated like the whole.
    settings = list(options.set)
    if config.get("pcap-file.checksum-checks", "auto") in ("auto", ""):
        settings.append(f"pcap-file.checksum-checks={'no' if archive.checksums_believed else 'yes'}")
    if options.plan:
        because = {f"{gid}:{sid}": why for (gid, sid), why in made.whole_because.items()}
        print(json.dumps({"parts": made.considered, "pruned": made.pruned, "units": units, "whole": because}, indent=1))
        return _end(problems)
    most = config.get("packet-alert-max", "")
    merge = Merge(made, start, end, int(most) if most.isdigit() else 15)
    job = engine.Job(
        os.path.abspath(shutil.which(options.engine) or options.engine), archive.store.location, made.rules, options.config and os.path.abspath(options.config),
        settings, options.memory and options.memory << 20, options.timeout, suppress,
    )  # fmt: skip
    session, rows, reports, began = None, [], [], time.monotonic()
    if units and options.local:
        rows, reports = run_here(job, units, options.local)
    elif units:
        session = spark_session(options.master, [c.split("=", 1) for c in options.conf])
        ready = time.monotonic()
        rows, reports = run_spark(session, job, units)
    _write(merge(rows), options.output)
    if session:
        print(f"margay-fleet hunt: Spark's start took {ready - began:.1f} s, the hunt {time.monotonic() - ready:.1f} s", file=sys.stderr)
        session.stop()
    problems += [r["problem"] for r in reports if r["problem"]]
    if overflow := sum(r.get("overflow", 0) for r in reports):
        problems.append(f"{overflow} alerts exceeded their packet's limit, and one engine might have dropped others; raise packet-alert-max")
    if merge.counts.evicted:
        problems.append(f"{merge.counts.evicted} counts of thresholds were forgotten for want of room: hunt in a shorter time")
    read = sum(r.get("packets", 0) for r in reports)
    print(
        f"margay-fleet hunt: {merge.alerts} alerts; {read} packets read of an archive of {archive.packets}; {made.considered - made.pruned} of {made.considered} parts read in {len(units)} tasks, "
        f"{made.pruned} ruled out by their indexes; {len(made.whole_because)} of {len(rules)} rules over all of them in one piece",
        file=sys.stderr,
    )
    return _end(problems)


def _end(problems):
    for problem in problems:
        print(f"margay-fleet hunt: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _write(events, output):
    if output in (None, "-"):
        for event in events:
            sys.stdout.write(json.dumps(event, separators=(",", ":")) + "\n")
        sys.stdout.flush()
        return
    # Rename the file into place, so that a reader sees all of it or none.
    partial = f"{output}.partial"
    with open(partial, "w", encoding="utf-8") as f:
        for event in events:
            f.write(json.dumps(event, separators=(",", ":")) + "\n")
        f.flush()
        os.fsync(f.fileno())
    os.replace(partial, output)
