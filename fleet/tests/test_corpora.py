"""Hunts over whole corpora equal one engine, alert by alert: the real captures of ../shared, the mix, and its attacks. It takes minutes: `make
test-fleet-corpora`, or `pytest -m corpora`."""

import base64
import gzip
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest
from conftest import TOP, conversation, did_not_run, write_pcap
from test_hunt import RULES, events, hunt, one_engine

pytestmark = pytest.mark.corpora
PARTS = (1, 2, 7, 32)
SHARED = pathlib.Path(os.environ.get("MARGAY_SHARED", TOP.parent.parent / "shared"))


def wanted(path):
    if not path.exists():
        did_not_run("hunts over corpora", f"{path} is not here")
    return path


def equal(engine, folder, capture, rules):
    """Compares hunts over a capture with one engine. Returns the number of alerts."""
    expected = one_engine(engine, folder / "one", capture, rules)
    for parts in PARTS:
        archive, out = folder / f"archive-{parts}", folder / "out.json"
        done = subprocess.run([engine, "split", capture, "--into", archive, "--parts", str(parts)], capture_output=True, check=False)
        if done.returncode == 2:
            assert b"no packet could be read" in done.stderr and not expected, (capture, done.stderr)
            continue
        assert hunt(engine, archive, rules, out) == 0, capture
        assert events(out) == expected, (capture, parts)
        subprocess.run(["rm", "-r", archive], check=True)
    (folder / "one" / "eve.json").unlink()
    return len(expected)


def test_every_real_capture(engine, tmp_path):
    rules = tmp_path / "a.rules"
    rules.write_text(RULES)
    captures = sorted(wanted(SHARED / "captures" / "real").iterdir())
    alerts = 0
    for capture in captures:
        alerts += equal(engine, tmp_path, capture, rules)
    assert len(captures) >= 260 and alerts > 1000
    print(f"{len(captures)} captures, {alerts} alerts, each in {PARTS} parts")


@pytest.fixture(scope="module")
def mix(tmp_path_factory):
    """The mix, 100 MB."""
    sfr, capture = wanted(SHARED / "captures" / "sfr" / "avl"), tmp_path_factory.mktemp("mix") / "mix.pcap"
    subprocess.run([sys.executable, SHARED / "bench" / "mkload.py", capture, "--megabytes", "100", "--sfr", sfr], check=True, capture_output=True)
    return capture


def test_the_mix(engine, mix, tmp_path):
    rules = tmp_path / "a.rules"
    rules.write_text(RULES)
    alerts = equal(engine, tmp_path, mix, rules)
    assert alerts > 1000
    print(f"{alerts} alerts")


def test_rules_on_one_host_of_the_mix(engine, mix, tmp_path):
    """Only the host's flows are read, and the alerts are the same."""
    whole, rules, archive = tmp_path / "whole.rules", tmp_path / "a.rules", tmp_path / "archive"
    whole.write_text('alert ip any any -> any any (msg:"all"; threshold: type limit, track by_both, count 1, seconds 3600; sid:1;)\n')
    hosts = {}
    for _, text in one_engine(engine, tmp_path / "one", mix, whole):
        for key in ("src_ip", "dest_ip"):
            hosts[json.loads(text)[key]] = hosts.get(json.loads(text)[key], 0) + 1
    busiest = sorted(hosts, key=hosts.get)[-4:]
    subprocess.run([engine, "split", mix, "--into", archive, "--parts", "32"], check=True, capture_output=True)
    for host in busiest + random.Random(3).sample(sorted(hosts), 8):
        rules.write_text(
            f'alert tcp {host} any <> any any (msg:"syn"; flags:S; sid:1;)\n'
            f'alert http {host} any -> any any (msg:"method"; http.method; content:"GET"; sid:2;)\n'
            f'alert http any any -> {host} any (msg:"answer"; flow:to_client; http.stat_code; content:"200"; sid:3;)\n'
            f'alert ip {host} any -> any any (msg:"any"; threshold: type limit, track by_src, count 3, seconds 2; sid:4;)\n'
        )
        expected = one_engine(engine, tmp_path / "one", mix, rules)
        assert hunt(engine, archive, rules, tmp_path / "out.json") == 0
        assert events(tmp_path / "out.json") == expected and expected, host


def test_the_attacks(engine, tmp_path):
    """Attacks and ordinary requests of ../shared, each in a separate connection, with the defence's rules."""
    packets, r = [], random.Random(5)
    with gzip.open(wanted(SHARED / "attacks" / "requests.jsonl.gz"), "rt", encoding="utf-8") as f:
        requests = [base64.b64decode(json.loads(line)["request"]) for line in f]
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    for n, request in enumerate(q for q in requests if len(q) < 60_000):
        client, server = f"10.{n >> 8 & 255}.{n & 255}.{1 + n % 250}", f"192.168.{n % 5}.{1 + n % 7}"
        packets += conversation(client, server, 1024 + n % 60_000, 80, request, answer, 1_700_000_000 + n / 50 + r.random(), 0.003)
    capture, rules = write_pcap(tmp_path / "attacks.pcap", packets), tmp_path / "a.rules"
    rules.write_text(RULES + (TOP.parent / "defence" / "margay-defence.rules").read_text())
    alerts = equal(engine, tmp_path, capture, rules)
    assert alerts > 4000
    print(f"{len(requests)} requests, {alerts} alerts")
