"""Detectors for patterns that appear only in the events of many sensors together.

A detector is a pure function of a state (plain values, stored as JSON) and of one event or the time. It returns the keys of an event. It then
receives the events of each key in the order of their time, whatever order they arrived in (`advance`). Its findings depend only on the events, not
on batches, restarts, or the order of the sensors.

Times are microseconds since 1970. Every state is bounded; findings count the items beyond a bound (`dropped`).
"""

import hashlib
import json
from dataclasses import dataclass

from .engine import micros
from .rules import Threshold
from .thresholds import Entry, Match, canonical, step, who

SECOND = 1_000_000
# Events of a key that wait for their time. If there are more, the oldest are processed early.
MOST_WAITING = 50_000
# Identities remembered for each key, to recognise duplicates.
MOST_IDENTITIES = 20_000


@dataclass(frozen=True)
class Settings:
    """The limits of the detectors, in seconds and counts."""

    thresholds: tuple = ()
    """(generator, signature, Threshold) of rules that run without a threshold on the sensors."""
    twice: int = 5
    """Equal events of two sensors within this time are one event."""
    scan_hosts: int = 20
    scan_window: int = 60
    slow_targets: int = 50
    slow_window: int = 86_400
    beacon_count: int = 12
    beacon_jitter: float = 0.1
    """Median deviation of the intervals, relative to their median."""
    beacon_least: int = 10
    """Intervals shorter than this do not count."""
    beacon_span: int = 3_600
    half_window: int = 120
    """Largest difference between the times at which two sensors report the halves of a flow."""
    silent: int = 60
    """A sensor without `stats` for this long is silent."""
    loss: float = 0.01
    """A larger share of lost packets in an interval is reported."""

    @staticmethod
    def read(text):
        """Parses JSON. An unknown name is an error (ValueError)."""
        values = json.loads(text)
        thresholds = []
        for t in values.pop("thresholds", []):
            track, kind = t.pop("track"), t.pop("type")
            gid, sid = t.pop("gid", 1), t.pop("sid")
            thresholds.append((gid, sid, Threshold(kind, track, t.pop("count"), t.pop("seconds"), t.pop("multiplier", 1))))
            if t:
                raise ValueError(f"a threshold has no setting '{next(iter(t))}'")
        unknown = set(values) - set(Settings.__dataclass_fields__)
        if unknown:
            raise ValueError(f"there is no setting '{min(unknown)}'")
        return Settings(thresholds=tuple(thresholds), **values)


def identity(event):
    """The identity of an event, independent of its sensor: equal for the same event on two sensors, and different for most other events."""
    of = event["event_type"]
    parts = [of, event.get("community_id"), event.get("tx_id")]
    if of == "alert":
        alert = event["alert"]
        parts += [alert.get("gid"), alert.get("signature_id"), event.get("direction"), event.get("src_ip"), event.get("src_port")]
    elif of == "flow":
        parts += [event["flow"].get("start", "")[:19]]
    return json.dumps(parts)


def own_identity(event):
    """Distinguishes an event from all others of its sensor. A repeated copy has the same value."""
    return hashlib.sha256(json.dumps(event, sort_keys=True).encode()).hexdigest()[:24]


def sensor_of(event):
    """The sensor's name (`sensor-name`, shown as `host`)."""
    return event.get("host") or "unnamed"


class Once:
    """Filters duplicates. Repeated copies of a sensor's own event never count. An event seen by several sensors counts as often as the sensor with
    the most sightings saw it."""

    @staticmethod
    def new(state, event, time, window):
        """Whether the event counts. It keeps its data in the dict `state`."""
        seen = state.setdefault("seen", {})
        if len(seen) >= MOST_IDENTITIES:
            horizon = time - window * SECOND
            state["seen"] = seen = {k: v for k, v in seen.items() if v["t"] >= horizon}
            while len(seen) >= MOST_IDENTITIES:
                seen.pop(next(iter(seen)))
                state["dropped"] = state.get("dropped", 0) + 1
        name, own, sensor = identity(event), own_identity(event), sensor_of(event)
        entry = seen.get(name)
        if entry is None or time - entry["t"] > window * SECOND:
            entry = seen[name] = {"t": time, "by": {}, "most": 0, "own": []}
        if own in entry["own"]:
            state["copies"] = state.get("copies", 0) + 1
            return False
        entry["own"] = [*entry["own"], own][-256:]
        entry["by"][sensor] = entry["by"].get(sensor, 0) + 1
        if entry["by"][sensor] > entry["most"]:
            entry["most"] = entry["by"][sensor]
            return True
        state["twice"] = state.get("twice", 0) + 1
        return False


class Detector:
    """A detector for one pattern."""

    name = ""
    # A state is kept for this many microseconds after its last event.
    keep = 3600 * SECOND

    def __init__(self, settings):
        self.settings = settings

    def keys(self, event):
        """The keys of the event; none if the detector ignores it."""
        raise NotImplementedError

    def step(self, state, event, time):
        """Processes an event. Returns the findings as dicts."""
        raise NotImplementedError

    def deadline(self, state):
        """When to call `due`, or None."""
        return None

    def due(self, state, time):
        """Findings from the absence of events until `time`."""
        return []


class FleetThreshold(Detector):
    """`threshold` and `detection_filter` counted across sensors."""

    name = "threshold"

    def __init__(self, settings):
        super().__init__(settings)
        self.of = {}
        for gid, sid, threshold in settings.thresholds:
            self.of.setdefault((gid, sid), []).append(threshold)
        for thresholds in self.of.values():
            thresholds.sort(key=lambda t: t.kind != "detection_filter")
        longest = max((t.seconds for _, _, t in settings.thresholds), default=0)
        self.keep = max(3600, longest) * SECOND

    def keys(self, event):
        if event["event_type"] != "alert":
            return
        key = (event["alert"].get("gid"), event["alert"].get("signature_id"))
        thresholds = self.of.get(key)
        if thresholds and (subject := who(thresholds[0].track, _match(event, 0))):
            yield json.dumps([*key, *subject])

    def step(self, state, event, time):
        if not Once.new(state, event, time, self.settings.twice):
            return []
        alert = event["alert"]
        sensors = state.setdefault("sensors", [])
        if sensor_of(event) not in sensors:
            state["sensors"] = sorted([*sensors, sensor_of(event)])[:64]
        for n, threshold in enumerate(self.of[(alert.get("gid"), alert.get("signature_id"))]):
            # The first threshold defines the key; a second one with another key counts within it.
            kept = state.get(f"count{n}")
            entry, outcome = step(threshold, Entry(**kept) if kept else None, time)
            state[f"count{n}"] = vars(entry)
            if outcome != "alert":
                return []
        return [{"signature_id": alert["signature_id"], "signature": alert.get("signature"), "src_ip": event.get("src_ip"),
                 "dest_ip": event.get("dest_ip"), "sensors": state["sensors"]}]  # fmt: skip


def _match(event, time):
    return Match(canonical(event.get("src_ip", "")), canonical(event.get("dest_ip", "")), event.get("community_id"), time)


class Scan(Detector):
    """A host that tries many targets: on one port within a minute (horizontal), or on any port within a day (slow)."""

    def __init__(self, settings, name, most, window, by_port):
        super().__init__(settings)
        self.name, self.most, self.window, self.by_port = name, most, window, by_port
        self.keep = window * SECOND

    def keys(self, event):
        if event["event_type"] != "flow" or event.get("proto") not in ("TCP", "UDP", "SCTP") or not unanswered(event):
            return
        source = canonical(event.get("src_ip", ""))
        yield json.dumps([source, event.get("proto"), event.get("dest_port")] if self.by_port else [source])

    def step(self, state, event, time):
        targets = state.setdefault("targets", {})
        target = canonical(event.get("dest_ip", ""))
        if not self.by_port:
            target = f"{target} {event.get('proto')} {event.get('dest_port')}"
        sensors = state.setdefault("sensors", {})
        sensors[sensor_of(event)] = time
        horizon = time - self.window * SECOND
        targets.pop(target, None)
        targets[target] = time
        # Targets are ordered by their latest time.
        while targets and next(iter(targets.values())) < horizon:
            targets.pop(next(iter(targets)))
        if len(targets) < self.most:
            return []
        seen_by = sorted(s for s, t in sensors.items() if t >= horizon)
        found = {"src_ip": event.get("src_ip"), "targets": len(targets), "first": min(targets.values()), "sensors": seen_by}
        if self.by_port:
            found |= {"proto": event.get("proto"), "dest_port": event.get("dest_port")}
        state["targets"], state["sensors"] = {}, {}
        return [found]


def unanswered(event):
    """Whether the flow event describes a failed attempt: no answer, or only a refusal."""
    flow = event["flow"]
    back = flow.get("pkts_toclient", 0)
    tcp = event.get("tcp", {})
    refused = back <= 1 and flow.get("pkts_toserver", 0) <= 2 and bool(tcp.get("rst"))
    return back == 0 or refused


class Beacon(Detector):
    """Connections between the same two hosts at regular intervals, over hours."""

    name = "beacon"
    keep = 86_400 * SECOND

    def keys(self, event):
        if event["event_type"] == "flow" and event.get("proto") in ("TCP", "UDP") and "start" in event["flow"]:
            ends = canonical(event.get("src_ip", "")), canonical(event.get("dest_ip", ""))
            yield json.dumps([*ends, event["proto"], event.get("dest_port")])

    def step(self, state, event, time):
        if not Once.new(state, event, time, self.settings.twice):
            return []
        # Flows are reported at their end; the regularity is in their start times.
        starts = sorted([*state.get("starts", []), micros(event["flow"]["start"])])[-64:]
        state["starts"] = starts
        gaps = [b - a for a, b in zip(starts, starts[1:])]
        if len(gaps) < self.settings.beacon_count - 1 or starts[-1] - starts[0] < self.settings.beacon_span * SECOND:
            return []
        middle = median(gaps)
        deviation = median([abs(g - middle) for g in gaps])
        # A small median deviation is not enough: most gaps must be similar.
        regular = sum(abs(g - middle) <= self.settings.beacon_jitter * middle for g in gaps) >= 0.8 * len(gaps)
        if middle < self.settings.beacon_least * SECOND or deviation > self.settings.beacon_jitter * middle or not regular:
            return []
        if time - state.get("told", -(1 << 62)) < self.settings.slow_window * SECOND:
            return []
        state["told"] = time
        return [{"src_ip": event.get("src_ip"), "dest_ip": event.get("dest_ip"), "dest_port": event.get("dest_port"), "interval": middle / SECOND,
                 "jitter": round(deviation / middle, 4), "connections": len(starts)}]  # fmt: skip


def median(values):
    """The median; of an even number, the lower middle value."""
    return sorted(values)[(len(values) - 1) // 2]


class Halves(Detector):
    """Joins a flow of which two sensors saw one direction each (asymmetric routes)."""

    name = "halves"
    keep = 3600 * SECOND

    def keys(self, event):
        if event["event_type"] == "flow" and event.get("community_id"):
            flow = event["flow"]
            if (flow.get("pkts_toserver", 0) == 0) != (flow.get("pkts_toclient", 0) == 0):
                yield event["community_id"]

    def step(self, state, event, time):
        flow = event["flow"]
        forward = flow.get("pkts_toclient", 0) == 0
        # A sensor that sees only answers may mistake the server for the client, so use the sender.
        source = (event["src_ip"], event.get("src_port")) if forward else (event["dest_ip"], event.get("dest_port"))
        target = (event["dest_ip"], event.get("dest_port")) if forward else (event["src_ip"], event.get("src_port"))
        side = "toserver" if forward else "toclient"
        half = {"t": time, "sensor": sensor_of(event), "from": list(source), "to": list(target), "pkts": flow.get(f"pkts_{side}", 0),
                "bytes": flow.get(f"bytes_{side}", 0), "start": flow.get("start", "")}  # fmt: skip
        waiting = [h for h in state.get("waiting", []) if time - h["t"] <= self.settings.half_window * SECOND]
        for n, other in enumerate(waiting):
            if other["from"] == half["to"] and other["to"] == half["from"] and other["sensor"] != half["sensor"]:
                state["waiting"] = waiting[:n] + waiting[n + 1 :]
                # The client began first; at equal times it has the higher port.
                first, second = sorted((other, half), key=lambda h: (h["start"], -(h["from"][1] or 0), h["from"]))
                return [{"src_ip": first["from"][0], "src_port": first["from"][1], "dest_ip": first["to"][0], "dest_port": first["to"][1],
                         "proto": event.get("proto"), "pkts_toserver": first["pkts"], "pkts_toclient": second["pkts"],
                         "bytes_toserver": first["bytes"], "bytes_toclient": second["bytes"], "start": first["start"],
                         "sensors": [first["sensor"], second["sensor"]]}]  # fmt: skip
        same = any(h["sensor"] == half["sensor"] and h["from"] == half["from"] and h["start"] == half["start"] for h in waiting)
        state["waiting"] = waiting if same else [*waiting, half][-16:]
        return []


class Health(Detector):
    """A sensor that falls silent, returns, or loses more packets than before."""

    name = "health"
    keep = 7 * 86_400 * SECOND

    def keys(self, event):
        if event["event_type"] == "stats":
            yield sensor_of(event)

    def step(self, state, event, time):
        found = []
        if state.pop("silent", None):
            found.append({"what": "back", "sensor": sensor_of(event), "silent_for": (time - state["last"]) / SECOND})
        capture = event["stats"].get("capture", {})
        packets, lost = capture.get("kernel_packets", 0), capture.get("kernel_drops", 0)
        uptime = event["stats"].get("uptime", 0)
        before = state.get("counts")
        state["counts"], state["last"] = [uptime, packets, lost], time
        if before and uptime >= before[0] and packets >= before[1] and lost >= before[2]:
            # A restart resets the counters, so an interval across it is meaningless.
            came = packets - before[1]
            share = (lost - before[2]) / came if came else 0.0
            if share >= self.settings.loss and share > 1.5 * state.get("loss", 0.0):
                found.append({"what": "loss", "sensor": sensor_of(event), "loss": round(share, 6), "before": round(state.get("loss", 0.0), 6)})
                # Only growth is reported: a constant loss once, and again when it has grown by half since that report.
                state["loss"] = share
            elif share < self.settings.loss:
                state["loss"] = 0.0
        return found

    def deadline(self, state):
        return None if state.get("silent") or "last" not in state else state["last"] + self.settings.silent * SECOND

    def due(self, state, time):
        state["silent"] = True
        return [{"what": "silent", "last": state["last"]}]


def all_of(settings):
    """All detectors by name."""
    scans = (
        Scan(settings, "scan", settings.scan_hosts, settings.scan_window, True),
        Scan(settings, "slow_scan", settings.slow_targets, settings.slow_window, False),
    )
    detectors = [FleetThreshold(settings), *scans, Beacon(settings), Halves(settings), Health(settings)]
    return {d.name: d for d in detectors}


def needed(event):
    """The members of an event that detectors use, so that waiting events stay small."""
    out = {k: event[k] for k in ("timestamp", "event_type", "host", "community_id", "flow_id", "tx_id", "direction", "src_ip", "src_port", "dest_ip",
                                 "dest_port", "proto", "pcap_cnt") if k in event}  # fmt: skip
    of = event["event_type"]
    if of == "alert":
        out["alert"] = {k: event["alert"].get(k) for k in ("gid", "signature_id", "signature")}
    elif of == "flow":
        names = ("pkts_toserver", "pkts_toclient", "bytes_toserver", "bytes_toclient", "start")
        out["flow"] = {k: event["flow"][k] for k in names if k in event["flow"]}
        if "rst" in event.get("tcp", {}):
            out["tcp"] = {"rst": event["tcp"]["rst"]}
    elif of == "stats":
        stats = event["stats"]
        capture = {k: v for k, v in stats.get("capture", {}).items() if k in ("kernel_packets", "kernel_drops")}
        out["stats"] = {"uptime": stats.get("uptime", 0), "capture": capture}
    return out


def advance(detector, key, kept, events, watermark):
    """Processes new events of a key, and everything that the watermark allows: (state or None, findings, time of the next call or None).

    `kept` is the previous state, or None; `events` are (time, event). A finding is (time, detector, key, id, dict). Events later than the
    watermark wait, so that events are processed in the order of their time.
    """
    kept = kept or {"waiting": [], "state": {}, "at": None}
    state, waiting = kept["state"], [*kept["waiting"], *([t, e] for t, e in events)]
    waiting.sort(key=lambda w: (w[0], sensor_of(w[1]), json.dumps(w[1], sort_keys=True)))
    found = []

    def tell(time, results):
        for n, result in enumerate(results):
            if dropped := state.get("dropped"):
                result["dropped"] = dropped
            name = hashlib.sha256(json.dumps([detector.name, key, time, n, result], sort_keys=True).encode()).hexdigest()[:24]
            found.append((time, detector.name, key, name, result))

    taken = 0
    for time, event in waiting:
        if time > watermark and len(waiting) - taken <= MOST_WAITING:
            break
        taken += 1
        if time > watermark:
            state["dropped"] = state.get("dropped", 0) + 1
        deadline = detector.deadline(state)
        if deadline is not None and deadline < time:
            tell(deadline, detector.due(state, deadline))
        if kept["at"] is not None and time > kept["at"] + detector.keep:
            # A stream that ran continuously would have forgotten it by now.
            state = {}
        tell(time, detector.step(state, event, time))
        kept["at"] = time if kept["at"] is None else max(time, kept["at"])
    waiting = waiting[taken:]
    deadline = detector.deadline(state)
    if deadline is not None and deadline < watermark and not any(t <= deadline for t, _ in waiting):
        tell(deadline, detector.due(state, deadline))
        deadline = detector.deadline(state)
    if not waiting and kept["at"] is not None and watermark > kept["at"] + detector.keep:
        return None, found, None
    kept = {"waiting": waiting, "state": state, "at": kept["at"]}
    again = [t for t in (waiting[0][0] if waiting else None, deadline, kept["at"] + detector.keep if kept["at"] is not None else None) if t is not None]
    return kept, found, min(again) if again else None


def parse(text):
    """Parses an event's line: (time, event with the needed members), or None if the line is not a usable event."""
    try:
        event = json.loads(text)
        of = event["event_type"]
        if of not in ("alert", "flow", "stats") or (of in event) is False:
            return None
        return micros(event["timestamp"]), needed(event)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def one_pass(settings, lines, watermark=1 << 62):
    """All findings in these lines, processed at once. A stream must give the same result. Findings are in the order of time."""
    detectors, by_key = all_of(settings), {}
    for line in lines:
        if parsed := parse(line):
            for detector in detectors.values():
                for key in detector.keys(parsed[1]):
                    by_key.setdefault((detector.name, key), []).append(parsed)
    found = []
    for (name, key), events in by_key.items():
        found += advance(detectors[name], key, None, events, watermark)[1]
    return sorted(found, key=lambda f: f[:4])
