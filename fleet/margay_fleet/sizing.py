"""How many machines a fleet needs: a simulation of hunts and streams from costs that were measured (`fleet/measure.py`, docs/fleet.md).

A hunt is simulated task by task: each takes its engine's start, its bytes at the engine's rate, and what Spark adds, on the first core that is
free, in the order in which a plan has them. What the simulation says of small hunts is compared with these by `measure.py sizing`.
"""

import heapq
import json
import re
from dataclasses import dataclass, fields

from . import FleetError

# Tasks that are simulated one by one; an archive of more is scaled from so many.
MOST_TASKS = 200_000


@dataclass(frozen=True)
class Costs:
    """What was measured, on one core; seconds and bytes. docs/fleet.md says where each figure comes from."""

    start: float = 0.1
    """An engine's start with the hunt's rules."""
    rate: float = 230e6
    """Bytes of captures that an engine reads in a second."""
    task: float = 0.05
    """What Spark adds to a task."""
    spark: float = 8.0
    """Spark's own start, once a hunt."""
    plan: float = 0.002
    """Reading the index of a part, once a hunt, on one core."""
    events: float = 2200.0
    """Events that detectors judge in a second of a core."""
    event: float = 600.0
    """Bytes of an event as a sensor writes it."""
    kept: float = 80.0
    """Bytes of an event in Parquet."""

    @staticmethod
    def read(text):
        """From JSON with some of the fields."""
        given = json.loads(text)
        names = {f.name for f in fields(Costs)}
        if strange := set(given) - names:
            raise ValueError(f"unknown: {', '.join(sorted(strange))}")
        return Costs(**{name: float(value) for name, value in given.items()})


def hunt_seconds(parts, cores, costs, spark=True, read=1.0):
    """How long a hunt takes over parts of these sizes in bytes; `read` is the share of each that it reads."""
    free = [0.0] * max(1, cores)
    heapq.heapify(free)
    for size in sorted(parts, reverse=True):
        at = heapq.heappop(free)
        heapq.heappush(free, at + costs.start + size * read / costs.rate + (costs.task if spark else 0.0))
    return max(free) + len(parts) * costs.plan + (costs.spark if spark else 0.0)


def archive_parts(total, part):
    """(sizes of parts, how many archives of that size make the whole): large archives are simulated in part."""
    count = max(1, round(total / part))
    scale = max(1.0, count / MOST_TASKS)
    return [part] * round(count / scale), scale


SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([kKMGTP]?)B?$")


def size(text):
    """Bytes of a size as 256M, 1PB (powers of ten)."""
    match = SIZE.match(text.strip())
    if not match:
        raise FleetError(f"'{text}' is no size: write it as 256M or 1PB")
    return float(match[1]) * 1000.0 ** " kMGTP".index((match[2] or " ").replace("K", "k"))


def sizes(options):
    """Carries out `margay-fleet size`."""
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
