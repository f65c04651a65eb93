"""Shows what sensors run, and makes them reload their rules ring by ring. Stops if loss or CPU use grows."""

import json
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass

from . import FleetError
from .engine import micros


def seen_in_stats(lines):
    """The state of each sensor in its last `stats` event: a dict by name. Other lines are skipped."""
    sensors = {}
    for line in lines:
        if '"stats"' not in line:
            continue
        try:
            event = json.loads(line)
            stats, name = event["stats"], event.get("host") or "unnamed"
            when = micros(event["timestamp"])
            engines = stats.get("detect", {}).get("engines", [])
            capture = stats.get("capture", {})
            row = {
                "when": when, "timestamp": event["timestamp"], "uptime": stats.get("uptime", 0),
                "rules": sum(e.get("rules_loaded", 0) for e in engines), "failed": sum(e.get("rules_failed", 0) for e in engines),
                "reloaded": max((e.get("last_reload", "") for e in engines), default=""),
                "packets": capture.get("kernel_packets", 0), "lost": capture.get("kernel_drops", 0),
            }  # fmt: skip
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        if name not in sensors or sensors[name]["when"] <= when:
            sensors[name] = row
    return sensors


def table(sensors, newest=None):
    """A table as lines. It marks sensors whose rules differ from the majority's, and sensors that are a minute behind."""
    counts = {}
    for row in sensors.values():
        counts[row["rules"], row["failed"]] = counts.get((row["rules"], row["failed"]), 0) + 1
    usual = max(counts, key=lambda k: (counts[k], k), default=None)
    newest = newest if newest is not None else max((r["when"] for r in sensors.values()), default=0)
    yield f"{'sensor':<24} {'rules':>7} {'failed':>6} {'loss':>8}  {'reloaded':<31} {'last told':<31} "
    for name, row in sorted(sensors.items()):
        marks = []
        if (row["rules"], row["failed"]) != usual:
            marks.append("other rules than most")
        if newest - row["when"] > 60_000_000:
            marks.append("silent")
        loss = row["lost"] / row["packets"] if row["packets"] else 0.0
        yield (f"{name:<24} {row['rules']:>7} {row['failed']:>6} {loss:>8.3%}  {row['reloaded']:<31} {row['timestamp']:<31} {', '.join(marks)}").rstrip()


@dataclass(frozen=True)
class Limits:
    """The limits at which a rollout stops."""

    loss: float = 0.001
    """Allowed increase of the share of lost packets."""
    cpu: float = 0.25
    """Allowed relative increase of CPU use."""


@dataclass(frozen=True)
class Sample:
    """Counters of a sensor: packets, lost packets, and CPU seconds (None: unknown)."""

    at: float
    packets: int
    lost: int
    cpu: float | None


def rates(first, last):
    """The share of lost packets, and the CPUs in use, between two samples."""
    packets, lost = last.packets - first.packets, last.lost - first.lost
    if packets < 0 or lost < 0:
        raise FleetError("its counters were reset: it was restarted meanwhile")
    cpu = None
    if first.cpu is not None and last.cpu is not None and last.at > first.at:
        cpu = max(0.0, last.cpu - first.cpu) / (last.at - first.at)
    return lost / packets if packets else 0.0, cpu


def judge(before, after, limits):
    """The reason that a sensor is worse than before, or None. Both arguments are (loss, CPUs)."""
    if after[0] > before[0] + limits.loss:
        return f"it loses {after[0]:.3%} of its packets, and lost {before[0]:.3%} before"
    if before[1] is not None and after[1] is not None and after[1] > max(before[1], 0.05) * (1 + limits.cpu):
        return f"it uses {after[1]:.2f} CPUs, and used {before[1]:.2f} before"
    return None


class Sensors:
    """Sensors that commands reach. In the command line `template`, `{host}` is the sensor; a command is appended."""

    def __init__(self, template, ctl="margay ctl", cpu="ps -o cputimes= -C margay", timeout=120):
        self.template, self.ctl, self.cpu, self.timeout = template, ctl, cpu, timeout

    def line(self, host, command):
        """The command line as a list of words."""
        return [w.replace("{host}", host) for w in shlex.split(self.template)] + shlex.split(command)

    def _run(self, host, command):
        line = self.line(host, command)
        try:
            done = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=self.timeout, check=False)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise FleetError(f"{host}: {shlex.join(line)}: {e}") from e
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise FleetError(f"{host}: {shlex.join(line)}: status {done.returncode}: {said[-1] if said else 'it printed nothing'}")
        return done.stdout

    def ask(self, host, command):
        """The engine's answer to a command on its socket."""
        text = self._run(host, f"{self.ctl} {command}")
        try:
            answer = json.loads(text)
            if answer["return"] != "OK":
                raise FleetError(f"{host}: {command}: {answer.get('message')}")
            return answer["message"]
        except (ValueError, KeyError, TypeError) as e:
            raise FleetError(f"{host}: {command}: the answer is not an engine's: {text[:80]!r}") from e

    def sample(self, host):
        """The current counters."""
        counters = self.ask(host, "dump-counters")
        capture = counters.get("capture", {}) if isinstance(counters, dict) else {}
        cpu = None
        if self.cpu:
            words = self._run(host, self.cpu).split()
            if not words or not all(w.replace(".", "", 1).isdigit() for w in words):
                raise FleetError(f"{host}: '{self.cpu}' prints no CPU seconds: give another command with --cpu, or --cpu '' for none")
            cpu = sum(map(float, words))
        return Sample(time.monotonic(), capture.get("kernel_packets", 0), capture.get("kernel_drops", 0), cpu)


def rollout(rings, sensors, limits, watch, say, sleep=time.sleep):
    """Reloads ring by ring. Returns the hosts that reloaded, and the reason for stopping, or None."""
    done = []
    for number, ring in enumerate(rings, 1):
        say(f"ring {number} of {len(rings)}: {', '.join(ring)}")
        try:
            first = {h: sensors.sample(h) for h in ring}
            sleep(watch)
            before = {h: rates(first[h], sensors.sample(h)) for h in ring}
            for host in ring:
                failed = _failed(sensors.ask(host, "ruleset-stats"))
                sensors.ask(host, "reload-rules")
                done.append(host)
                loaded, now = _loaded(stats := sensors.ask(host, "ruleset-stats")), _failed(stats)
                say(f"  {host}: {loaded} rules, {now} failed")
                if loaded == 0 or now > failed:
                    return done, f"{host}: {now} rules do not load, and {failed} did not before"
            first = {h: sensors.sample(h) for h in ring}
            sleep(watch)
            for host in ring:
                after = rates(first[host], sensors.sample(host))
                if why := judge(before[host], after, limits):
                    return done, f"{host}: {why}"
        except FleetError as e:
            return done, str(e)
    return done, None


def _sum(stats, name):
    rows = stats if isinstance(stats, list) else [stats]
    return sum(r.get(name, 0) for r in rows if isinstance(r, dict))


def _loaded(stats):
    return _sum(stats, "rules_loaded")


def _failed(stats):
    return _sum(stats, "rules_failed")


def read_rings(path):
    """Reads rings from a file: one on each line, with hosts separated by spaces; `#` begins a comment."""
    try:
        with open(path, encoding="utf-8") as f:
            rings = [words for line in f if (words := line.split("#")[0].split())]
    except OSError as e:
        raise FleetError(f"{path}: cannot be read: {e.strerror}") from e
    hosts = [h for ring in rings for h in ring]
    if not hosts:
        raise FleetError(f"{path}: has no host: write one ring on each line, with hosts separated by spaces")
    for host in hosts:
        if hosts.count(host) > 1:
            raise FleetError(f"{path}: {host} appears twice")
        if host.startswith("-"):
            raise FleetError(f"{path}: '{host}' is not a host name")
    return rings


def reload(options):
    """Runs `margay-fleet reload` and returns the exit status."""
    rings, sensors = read_rings(options.rings), Sensors(options.ssh, options.ctl, options.cpu)
    if not options.really:
        for number, ring in enumerate(rings, 1):
            print(f"ring {number} of {len(rings)}: watches for {options.watch} s, reloads, watches for {options.watch} s again")
            for host in ring:
                print(f"  {shlex.join(sensors.line(host, options.ctl + ' reload-rules'))}")
        print("nothing was changed: --really performs the reload")
        return 0
    done, why = rollout(rings, sensors, Limits(options.max_loss, options.max_cpu), options.watch, lambda text: print(text, flush=True))
    if why:
        print(f"margay-fleet reload: stopped: {why}; these have reloaded: {', '.join(done) or 'none'}", file=sys.stderr)
        return 1
    print(f"{len(done)} sensors have reloaded")
    return 0


def sensors(options):
    """Runs `margay-fleet sensors` and returns the exit status."""
    found = {}
    for path in options.files:
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                for name, row in seen_in_stats(f).items():
                    if name not in found or found[name]["when"] <= row["when"]:
                        found[name] = row
        except OSError as e:
            raise FleetError(f"{path}: cannot be read: {e.strerror}") from e
    print("\n".join(table(found)))
    return 0 if found else 1
