"""Counts thresholds as the engine does (docs/fleet.md, crates/detect/src/threshold), over matches from many parts or sensors.

Time is packet time in microseconds. A window starts with the match that opens it, and includes matches up to `seconds` later; the first match
after that opens the next one. A `detection_filter` is checked first, then the rule's `threshold`.
"""

import ipaddress
from dataclasses import dataclass

# Microseconds to keep a per-flow count without a window after its last match.
IDLE = 3600 * 1_000_000


@dataclass
class Entry:
    """The count for one host, pair, flow or rule."""

    start: int
    end: int
    count: int = 0
    next: int = 0


@dataclass(frozen=True)
class Match:
    """A match of a rule: addresses as in the event, the flow's name, microseconds since 1970."""

    src: str
    dst: str
    flow: object
    time: int


def who(track, match):
    """The subject that a match counts for; None if the match has no such subject."""
    if track == "by_src":
        return ("host", match.src)
    if track == "by_dst":
        return ("host", match.dst)
    if track == "by_both":
        # Both directions between two hosts are one pair.
        return ("pair", *sorted((match.src, match.dst)))
    if track == "by_rule":
        return ("rule",)
    return None if match.flow is None else ("flow", match.flow)


def step(threshold, entry, now):
    """Counts a match at `now` in `entry` (None: no entry yet). Returns the entry, and whether the match alerts, is limited or is ignored."""
    if threshold.kind == "backoff":
        if entry is None or entry.end < now:
            entry = Entry(now, now + IDLE, 0, threshold.count)
        entry.end = now + IDLE
        entry.count += 1
        if entry.count < entry.next:
            return entry, "nothing" if entry.next == threshold.count else "limited"
        entry.next = max(entry.next * max(threshold.multiplier, 1), entry.count + 1)
        return entry, "alert"
    window = threshold.seconds * 1_000_000
    if entry is None or now - entry.start > window:
        entry = Entry(now, now + window)
    entry.count += 1
    if threshold.kind == "limit":
        return entry, "alert" if entry.count <= threshold.count else "limited"
    if threshold.kind == "threshold":
        if entry.count < threshold.count:
            return entry, "nothing"
        # The window continues; only the count restarts.
        entry.count = 0
        return entry, "alert"
    if threshold.kind == "both":
        state = "nothing" if entry.count < threshold.count else "limited"
        return entry, "alert" if entry.count == threshold.count else state
    return entry, "alert" if entry.count > threshold.count else "nothing"


class Counts:
    """The counts of all rules, with a limit. Entries with expired windows are removed first; if there are none, the oldest is removed and counted."""

    def __init__(self, limit=2_000_000):
        self.limit, self.entries, self.evicted, self.swept = limit, {}, 0, 0

    def alerts(self, key, thresholds, match):
        """Counts a match of the rule `key`, and returns whether it alerts."""
        ordered = sorted(thresholds, key=lambda t: t.kind != "detection_filter")
        for threshold in ordered:
            subject = who(threshold.track, match)
            if subject is None:
                continue
            name = (key, threshold.kind == "detection_filter", subject)
            entry, state = step(threshold, self.entries.get(name), match.time)
            self._keep(name, entry, match.time)
            if state != "alert":
                return False
        return True

    def _keep(self, name, entry, now):
        if name not in self.entries and len(self.entries) >= self.limit:
            if now - self.swept > 1_000_000:
                self.swept = now
                self.entries = {n: e for n, e in self.entries.items() if e.end >= now}
            if len(self.entries) >= self.limit:
                self.entries.pop(next(iter(self.entries)))
                self.evicted += 1
        self.entries[name] = entry


def canonical(address):
    """An address in its shortest form, so that all spellings count as one."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address
