"""Computes the size of a fleet: simulates hunts and streams from measured costs (`fleet/measure.py`, docs/fleet.md).

A hunt is simulated task by task. Each task takes its engine's start, its bytes at the engine's rate, and Spark's overhead, on the first free core,
in the order of the plan. `measure.py sizing` compares the simulation with real small hunts.
"""

import heapq
import json
import re
from dataclasses import dataclass, fields

from . import FleetError

# Most tasks to simulate one by one; a larger archive is scaled.
MOST_TASKS = 200_000


@dataclass(frozen=True)
class Costs:
    """Costs measured on one core, in seconds and bytes. docs/fleet.md gives the source of each."""

    start: float = 0.1
    """The engine's start with the hunt's rules."""
    rate: float = 230e6
    """Capture bytes that an engine reads in a second."""
    task: float = 0.05
    """Spark's overhead for a task."""
    spark: float = 8.0
    """Spark's own start, once for each hunt."""
    plan: float = 0.002
    """Reading the index of a part on one core, once for each hunt."""
    events: float = 2200.0
    """Events that detectors process in a second on one core."""
    event: float = 600.0
    """Bytes of an event, as a sensor writes it."""
    kept: float = 80.0
    """Bytes of an event in Parquet."""

    @staticmethod
    def read(text):
        """Parses JSON with some of the fields."""
        given = json.loads(text)
        names = {f.name for f in fields(Costs)}
        if strange := set(given) - names:
            raise ValueError(f"unknown: {', '.join(sorted(strange))}")
        return Costs(**{name: float(value) for name, value in given.items()})


def hunt_seconds(parts, cores, costs, spark=True, read=1.0):
    """The duration of a hunt over parts with these sizes in bytes. `read` is the share of each part that is read."""
    free = [0.0] * max(1, cores)
    heapq.heapify(free)
    for size in sorted(parts, reverse=True):
        at = heapq.heappop(free)
        heapq.heappush(free, at + costs.start + size * read / costs.rate + (costs.task if spark else 0.0))
    return max(free) + len(parts) * costs.plan + (costs.spark if spark else 0.0)


def archive_parts(total, part):
    """(sizes of parts, number of such archives in the whole). Only a part of a large archive is simulated."""
    count = max(1, round(total / part))
    scale = max(1.0, count / MOST_TASKS)
    return [part] * round(count / scale), scale


SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([kKMGTP]?)B?$")


def size(text):
    """Parses a size such as 256M or 1PB (powers of ten) to bytes."""
    match = SIZE.match(text.strip())
    if not match:
        raise FleetError(f"'{text}' is not a size: write it as 256M or 1PB")
    return float(match[1]) * 1000.0 ** " kMGTP".index((match[2] or " ").replace("K", "k"))


def sizes(options):
    """Runs `margay-fleet size`."""
    costs = Costs()
    if options.costs:
        try:
            with open(options.costs, encoding="utf-8") as f:
                costs = Costs.read(f.read())
        except (OSError, ValueError, TypeError) as e:
            raise FleetError(f"{options.costs}: cannot be used: {e}") from e
    total, part = size(options.archive), size(options.part_size)
    parts, scale = archive_parts(total, part)
    seconds = hunt_seconds(parts, options.cores, costs, read=options.read) * scale
    busy = (costs.start + part * options.read / costs.rate + costs.task) * len(parts) * scale
    events = options.sensors * options.events
    told = {
        "events_per_second": events,
        "stream_cores": round(events / costs.events, 1),
        "kafka_bytes_per_second": round(events * costs.event),
        "parquet_bytes_per_day": round(events * costs.kept * 86_400),
        "hunt_tasks": round(len(parts) * scale),
        "hunt_core_hours": round(busy / 3600, 1),
        "hunt_hours": round(seconds / 3600, 2),
    }
    print(json.dumps(told, indent=1))
    return 0
