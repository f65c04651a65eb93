"""The state of sensors, and rollouts that stop when they should."""

import json
import stat
import sys

import pytest
from test_detectors import event

from margay_fleet import FleetError
from margay_fleet.cli import main
from margay_fleet.rollout import Limits, Sample, judge, rates, read_rings, rollout, seen_in_stats, table


def test_what_sensors_run():
    def told(at, sensor, rules):
        return event(at, "stats", sensor, stats={"uptime": at, "capture": {"kernel_packets": 100, "kernel_drops": 1},
                                                 "detect": {"engines": [{"rules_loaded": rules, "rules_failed": 0, "last_reload": "then"}]}})  # fmt: skip

    sensors = seen_in_stats([told(5, "a", 10), told(90, "a", 20), told(90, "b", 20), told(10, "c", 19), "{broken stats", "", '{"stats": 3}'])
    assert {n: r["rules"] for n, r in sensors.items()} == {"a": 20, "b": 20, "c": 19}
    lines = list(table(sensors))
    assert len(lines) == 4 and lines[3].endswith("other rules than most, silent") and "1.000%" in lines[1] and lines[1].endswith("+0000")


def test_what_is_worse():
    steady = rates(Sample(0, 0, 0, 10.0), Sample(10, 1000, 1, 15.0))
    assert steady == (0.001, 0.5)
    assert judge(steady, (0.0015, 0.55), Limits()) is None
    assert "loses" in judge(steady, (0.01, 0.5), Limits())
    assert "CPUs" in judge(steady, (0.0, 0.7), Limits())
    with pytest.raises(FleetError):
        rates(Sample(0, 100, 0, 1), Sample(1, 5, 0, 1))


ENGINE = """#!{python}
import json, pathlib, sys
host, words = sys.argv[1], sys.argv[2:]
folder = pathlib.Path({folder!r})
log = folder / "log"
log.write_text((log.read_text() if log.exists() else "") + host + " " + " ".join(words) + "\\n")
reloaded = f"{{host}} ctl reload-rules" in log.read_text()
calls = log.read_text().count(f"{{host}} ctl dump-counters")
bad = host == "bad" and reloaded
if words[0] == "cpu":
    print(calls * 2)
elif words[1] == "dump-counters":
    print(json.dumps({{"return": "OK", "message": {{"capture": {{"kernel_packets": calls * 1000, "kernel_drops": calls * 100 if bad else 0}}}}}}))
elif words[1] == "ruleset-stats":
    print(json.dumps({{"return": "OK", "message": [{{"id": 0, "rules_loaded": 5, "rules_failed": 3 if host == "fails" and reloaded else 0}}]}}))
else:
    print(json.dumps({{"return": "NOK" if host == "refuses" else "OK", "message": "done"}}))
"""


@pytest.fixture
def fleet(tmp_path):
    """A fake command that answers like sensors. Runs `reload` with these rings, and returns the requests."""
    script = tmp_path / "ssh"
    script.write_text(ENGINE.format(python=sys.executable, folder=str(tmp_path)))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)

    def run(rings, *arguments):
        (tmp_path / "rings").write_text(rings)
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        line = ["reload", "--rings", str(tmp_path / "rings"), "--ssh", f"{script} {{host}}", "--ctl", "ctl", "--cpu", "cpu", "--watch", "0.05"]
        # CPU use grows with each sample; these tests watch the loss.
        status = main([*line, "--max-cpu", "1e9", *arguments])
        return status, [w.split()[0] for w in (log.read_text() if log.exists() else "").splitlines() if "reload-rules" in w]

    return run


def test_a_rollout_goes_ring_by_ring(fleet, capsys):
    assert fleet("a # first\nb c\n") == (0, [])
    assert "nothing was changed" in capsys.readouterr().out
    assert fleet("a\nb c\n", "--really") == (0, ["a", "b", "c"])
    assert fleet("a\nbad\nc\n", "--really") == (1, ["a", "bad"])
    assert "bad: it loses 10.000%" in capsys.readouterr().err
    assert fleet("a fails\nc\n", "--really") == (1, ["a", "fails"])
    assert "3 rules do not load" in capsys.readouterr().err
    assert fleet("refuses\nc\n", "--really") == (1, ["refuses"])
    assert "reload-rules" in capsys.readouterr().err


def test_a_sensor_that_is_not_reached_stops_it():
    class Gone:
        def sample(self, host):
            raise FleetError(f"{host}: gone")

    assert rollout([["a"], ["b"]], Gone(), Limits(), 0, lambda text: None) == ([], "a: gone")


def test_rings_are_checked(tmp_path):
    for text in ("", "# none\n", "a b\na\n", "-oProxyCommand=x\n"):
        (tmp_path / "rings").write_text(text)
        with pytest.raises(FleetError):
            read_rings(tmp_path / "rings")


def test_sensors_are_listed(tmp_path, capsys):
    (tmp_path / "eve.json").write_text(event(1, "stats", "a", stats={"uptime": 1}) + "\n")
    assert main(["sensors", str(tmp_path / "eve.json")]) == 0
    assert json.dumps("a")[1:-1] in capsys.readouterr().out
    assert main(["sensors", str(tmp_path / "none")]) == 2
