"""Runs the engine on a unit of a hunt. This module is independent of Spark. A task is a function of plain values, and may run again or twice at
the same time: it writes only to a folder of its own, which is removed afterwards."""

import array
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime

from . import store

INCLUDE = """%YAML 1.1
---
outputs:
  - eve-log:
      enabled: yes
      filetype: regular
      filename: eve.json
      community-id: true
      types:
        - alert
        - stats
"""
# The engine limits a packet's alerts after thresholds, but thresholds are counted later here. A task therefore uses the largest limit.
MOST_ALERTS = 255
# Most alerts of a unit; they are in memory until they are merged.
MOST_ROWS = 2_000_000


def micros(timestamp):
    """Microseconds since 1970 of an event's time."""
    moment = datetime.strptime(timestamp, "%Y-%m-%dT%H:%M:%S.%f%z")
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


class Job:
    """Data that all tasks of a hunt share. It has plain values, because it is sent to workers."""

    def __init__(self, engine, archive, rules, config=None, settings=(), memory=None, timeout=None, suppress=()):
        self.engine, self.archive, self.rules, self.config = engine, archive, rules, config
        self.settings, self.memory, self.timeout = list(settings), memory, timeout
        # The lines of `threshold.config` that do not count. Counting lines are for the rules of `whole`, whose engine reads the file itself.
        self.suppress = list(suppress)

    def command(self, group, scratch, source):
        """The command line of one engine."""
        rules, include = os.path.join(scratch, "hunt.rules"), os.path.join(scratch, "hunt.yaml")
        with open(rules, "w", encoding="utf-8", errors="surrogateescape") as f:
            f.write("\n".join(self.rules[group]) + "\n")
        with open(include, "w", encoding="utf-8") as f:
            f.write(INCLUDE)
        line = [self.engine, "--include", include, "-S", rules, "-r", source, "-l", scratch, "--runmode", "single"]
        if self.config:
            line += ["-c", self.config]
        if group == "parts":
            thresholds = os.path.join(scratch, "threshold.config")
            with open(thresholds, "w", encoding="utf-8") as f:
                f.write("".join(f"{text}\n" for text in self.suppress))
            line += ["--set", f"packet-alert-max={MOST_ALERTS}", "--set", f"threshold-file={thresholds}"]
        for setting in self.settings:
            line += ["--set", setting]
        return line


def _limit(memory):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    return limit if memory else None


def run(job, unit):
    """Runs a unit: (rows, report). A row is (packet's number in the capture, position in the unit, unit, JSON). The report says what was read and,
    under `problem`, why the unit failed."""
    scratch = tempfile.mkdtemp(prefix=f"margay-hunt-{unit['number']}-")
    try:
        return _run(job, unit, scratch)
    except (OSError, ValueError, subprocess.SubprocessError) as e:
        return [], {"unit": unit["number"], "problem": f"{_named(unit)}: {e}"}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _named(unit):
    names = unit["parts"]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _last_line(file):
    with open(file, encoding="utf-8", errors="replace") as f:
        lines = [line for line in f.read()[-4000:].splitlines() if line.startswith(("E:", "margay", "Error"))]
    return lines[-1].removeprefix("margay split: ") if lines else "it printed nothing"


def _here(location, unit, scratch):
    """The folder in which the engine finds the unit's parts: the archive's own, or a local copy."""
    archive = store.at(location)
    if archive.local:
        return archive.location
    folder = os.path.join(scratch, "archive")
    extensions = ("pcapng", "numbers", "groups", "index.json") if unit["hosts"] else ("pcapng", "numbers")
    archive.fetch(["archive.json", *(f"{name}.{extension}" for name in unit["parts"] for extension in extensions)], folder)
    return folder


def _run(job, unit, scratch):
    folder = _here(job.archive, unit, scratch)
    files = [os.path.join(folder, name) for name in unit["parts"]]
    errors, joined = os.path.join(scratch, "errors"), os.path.join(scratch, "join-errors")
    join, numbers = None, [f"{f}.numbers" for f in files]
    single = len(files) == 1 and not unit["hosts"]
    line = job.command(unit["group"], scratch, f"{files[0]}.pcapng" if single else "-")
    with open(errors, "wb") as err, open(joined, "wb") as join_err:
        if not single:
            numbers = [os.path.join(scratch, "numbers")]
            take = [job.engine, "split", "--join", folder, "--only", ",".join(unit["parts"]), "--into", "-", "--numbers", numbers[0]]
            take += [word for host in unit["hosts"] or () for word in ("--host", host)]
            join = subprocess.Popen(take, stdout=subprocess.PIPE, stderr=join_err)
        try:
            source = join.stdout if join else subprocess.DEVNULL
            done = subprocess.run(
                line, stdin=source, stdout=subprocess.DEVNULL, stderr=err, preexec_fn=_limit(job.memory), timeout=job.timeout, check=False
            )
        finally:
            if join:
                join.stdout.close()
                if join.poll() is None and sys.exc_info()[0]:
                    join.kill()
                ended = join.wait()
    if join and ended != 0:
        raise ValueError(_last_line(joined))
    if done.returncode != 0:
        raise ValueError(f"the engine ended with status {done.returncode}: {_last_line(errors)}")
    rows, seen, overflow = _rows(os.path.join(scratch, "eve.json"), numbers, unit)
    # When only some hosts' flows are read, the number of packets is known only now.
    packets = sum(os.stat(file).st_size for file in numbers) // 8
    if seen != packets or (not unit["hosts"] and seen != unit["packets"]):
        raise ValueError(f"the engine read {seen} of {packets} packets: {_last_line(errors)}")
    return rows, {"unit": unit["number"], "problem": None, "packets": seen, "alerts": len(rows), "overflow": overflow}


def _rows(eve, numbers, unit):
    """Alerts with their packets' numbers in the whole capture; the number of packets read; and the alerts that found no room."""
    rows, seen, overflow, before = [], -1, 0, 0
    of = array.array("Q")
    with open(eve, "rb") as f:
        for text in f:
            if b'"event_type":"stats"' in text:
                stats = json.loads(text)["stats"]
                seen, overflow = stats["decoder"]["pkts"], stats["detect"].get("alert_queue_overflow", 0)
                continue
            if b'"event_type":"alert"' not in text:
                continue
            if not of:
                for file in numbers:
                    with open(file, "rb") as n:
                        of.frombytes(n.read())
                if sys.byteorder == "big":
                    of.byteswap()
            event = json.loads(text)
            # An event from inside a tunnel has the number of the outer packet.
            shown = event if "pcap_cnt" in event else event.get("tunnel", {})
            packet = shown.get("pcap_cnt")
            # An event at the end of a flow has no packet of its own. It follows the events before it.
            number = of[packet - 1] if packet else before
            before = number
            if packet:
                shown["pcap_cnt"] = number
            if len(rows) >= MOST_ROWS:
                raise ValueError(f"more than {MOST_ROWS} alerts: hunt with fewer rules, or in a shorter time")
            rows.append((number, len(rows), unit["number"], json.dumps(event, separators=(",", ":"))))
    return rows, seen, overflow
