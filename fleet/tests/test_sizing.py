"""The simulation of hunts, and sizes."""

import json

import pytest

from margay_fleet import FleetError
from margay_fleet.cli import main
from margay_fleet.sizing import Costs, hunt_seconds, size

PLAIN = Costs(start=1.0, rate=100.0, task=0.0, spark=0.0, plan=0.0)


def test_tasks_take_the_first_core_that_is_free():
    assert hunt_seconds([100] * 4, 1, PLAIN) == 8
    assert hunt_seconds([100] * 4, 2, PLAIN) == 4
    # Longest first: 4 s, and 1 + 1 + 2 s beside it.
    assert hunt_seconds([100, 0, 300, 0], 2, PLAIN) == 4
    assert hunt_seconds([100] * 5, 2, PLAIN) == 6
    assert hunt_seconds([100], 8, PLAIN, read=0.5) == 1.5
    costs = Costs(start=1.0, rate=100.0, task=0.5, spark=7.0, plan=0.25)
    assert hunt_seconds([100, 100], 1, costs) == 7 + 0.5 + 5
    assert hunt_seconds([100, 100], 1, costs, spark=False) == 0.5 + 4


def test_sizes(capsys, tmp_path):
    assert (size("256M"), size("1PB"), size("1.5k")) == (256e6, 1e15, 1500)
    with pytest.raises(FleetError):
        size("much")
    costs = tmp_path / "costs.json"
    costs.write_text('{"start": 0, "rate": 1e9, "task": 0, "spark": 0, "plan": 0, "events": 1000, "event": 500, "kept": 100}')
    assert main(["size", "--sensors", "10", "--events", "100", "--archive", "3600TB", "--cores", "100", "--costs", str(costs)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["stream_cores"] == 1 and told["kafka_bytes_per_second"] == 500_000 and told["hunt_core_hours"] == 1000
    # An archive with more parts than are simulated is scaled.
    assert told["hunt_hours"] == pytest.approx(10, rel=0.01) and told["parquet_bytes_per_day"] == 8_640_000_000
    costs.write_text('{"speed": 1}')
    assert main(["size", "--costs", str(costs)]) == 2
    assert "speed" in capsys.readouterr().err
