"""Hunts equal one engine over the whole capture, alert by alert, for any number of parts."""

import json
import os
import random
import subprocess
import sys

import pytest
from conftest import conversation, did_not_run, ip, tcp, udp, write_pcap

from margay_fleet import engine as task
from margay_fleet.cli import main

RULES = """
alert tcp any any -> any any (msg:"limit by source"; flags:S; threshold: type limit, track by_src, count 1, seconds 6; sid:1;)
alert tcp any any -> any any (msg:"filter by source"; flags:S; detection_filter: track by_src, count 4, seconds 6; sid:2;)
alert http any any -> any any (msg:"method"; http.method; content:"GET"; flowbits:set,got; sid:3;)
alert tcp any any -> any any (msg:"answer"; flow:established,to_client; flowbits:isset,got; content:"200 OK"; sid:4;)
alert udp any any -> any any (msg:"both by destination"; content:"q"; threshold: type both, track by_dst, count 3, seconds 3; sid:5;)
alert udp any any -> any any (msg:"every fifth"; content:"q"; threshold: type threshold, track by_rule, count 5, seconds 2; sid:6;)
alert tcp any any -> any any (msg:"remembers"; flags:S; xbits:set,seen,track ip_src,expire 5; noalert; sid:7;)
alert udp any any -> any any (msg:"known elsewhere"; xbits:isset,seen,track ip_src; threshold: type limit, track by_src, count 2, seconds 5; sid:8;)
alert ip any any -> any any (msg:"fragment"; fragbits:M; sid:9;)
alert udp any any -> any 5353 (msg:"of fragments"; content:"in-the-second"; sid:10;)
alert udp any any -> any 2222 (msg:"in tunnels"; content:"inner"; threshold: type threshold, track by_both, count 2, seconds 9; sid:11;)
alert icmp any any -> any any (msg:"unreachable"; itype:3; threshold: type limit, track by_both, count 1, seconds 4; sid:12;)
alert tcp any any -> any any (msg:"limit by flow"; flow:established; threshold: type limit, track by_flow, count 1, seconds 60; sid:13;)
pass tcp 10.0.3.0/30 any -> any any (msg:"passes"; flow:established; sid:14;)
alert ip any any -> any any (msg:"all"; threshold: type limit, track by_both, count 2, seconds 8; sid:15;)
"""


def mix(seed=1, hosts=14, turns=120):
    """Connections, datagrams, fragments, tunnels and ICMP errors between a few hosts, over more than half a minute."""
    r, packets = random.Random(seed), []
    host = lambda: f"10.0.{r.randrange(4)}.{r.randrange(1, hosts)}"  # noqa: E731
    for _ in range(turns):
        at, a, b = 1_700_000_000 + r.random() * 40, host(), host()
        kind = r.randrange(6)
        sport = r.randrange(1024, 60000)
        if kind in (0, 1):
            request, response = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
            packets += conversation(a, b, sport, r.choice((80, 8080)), request, response, at)
        elif kind == 2:
            packets += [(at + n / 9, ip(a, b, 17, udp(a, b, sport, 53, b"q"))) for n in range(r.randrange(1, 5))]
        elif kind == 3:
            whole = udp(a, b, sport, 5353, b"x" * 24 + b"in-the-second")
            pieces = [(at, ip(a, b, 17, whole[:24], sport, 0x2000)), (at + r.random(), ip(a, b, 17, whole[24:], sport, 3))]
            packets += pieces[: r.choice((1, 2, 2, 2))]
        elif kind == 4:
            # The same inner flow, sometimes in one tunnel, sometimes in another.
            inner = ip("10.9.0.1", f"10.9.0.{r.randrange(2, 6)}", 17, udp("10.9.0.1", "10.9.0.2", 1111, 2222, b"inner"))
            inner = inner[:20] + inner[20:26] + b"\0\0" + inner[28:]
            packets.append((at, ip(a, b, 47, b"\0\0\x08\0" + inner)))
        else:
            about = ip(a, b, 17, udp(a, b, sport, 53, b"q"))
            packets += [(at, about), (at + 0.1, ip(host(), a, 1, b"\x03\x01\0\0\0\0\0\0" + about[:28]))]
        packets += [(at + 0.05, tcp(a, host(), sport, p, 2)) for p in range(r.randrange(0, 4))]
    return packets


def events(path):
    """Alerts in order, without flow numbers and without the order within one packet. Alerts from a flow's timeout show when the engine noticed it,
    which is later if fewer packets arrive."""
    found = []
    with open(path, encoding="utf-8") as f:
        for event in map(json.loads, f):
            if event["event_type"] != "alert":
                continue
            event.pop("flow_id", None)
            number = event.get("pcap_cnt") or event.get("tunnel", {}).get("pcap_cnt")
            if number is None:
                event.pop("timestamp")
            found.append((number or 0, json.dumps(event, sort_keys=True)))
    return sorted(found)


def one_engine(engine, folder, capture, rules):
    """The alerts of one engine over the whole."""
    folder.mkdir(exist_ok=True)
    # Engines append to existing files.
    (folder / "eve.json").unlink(missing_ok=True)
    include = folder / "include.yaml"
    include.write_text(task.INCLUDE)
    subprocess.run([engine, "--include", include, "-S", rules, "-r", capture, "-l", folder, "--runmode", "single"], check=True, capture_output=True)
    return events(folder / "eve.json")


def split(engine, capture, into, *arguments):
    subprocess.run([engine, "split", capture, "--into", into, *map(str, arguments)], check=True, capture_output=True)


def hunt(engine, archive, rules, output, *arguments, how=("--local", "2")):
    return main(["hunt", "--rules", str(rules), "--archive", str(archive), "--engine", engine, "-o", str(output), *how, *arguments])


@pytest.fixture(scope="module")
def small(engine, tmp_path_factory):
    """A capture, rules, and the alerts of one engine."""
    folder = tmp_path_factory.mktemp("small")
    capture, rules = write_pcap(folder / "mix.pcap", mix()), folder / "a.rules"
    rules.write_text(RULES)
    expected = one_engine(engine, folder / "one", capture, rules)
    assert len({json.loads(e)["alert"]["signature_id"] for _, e in expected}) >= 12, "the capture has something for each rule"
    return folder, capture, rules, expected


@pytest.mark.parametrize("parts", [1, 2, 7, 32])
def test_a_hunt_equals_one_engine(engine, small, tmp_path, parts):
    _, capture, rules, expected = small
    split(engine, capture, tmp_path / "archive", "--parts", parts)
    assert hunt(engine, tmp_path / "archive", rules, tmp_path / "out.json") == 0
    assert events(tmp_path / "out.json") == expected


def test_parts_by_time_equal_one_engine(engine, small, tmp_path):
    folder, _, rules, _ = small
    # Three mixes, ten minutes apart: windows cut through the first and the second.
    packets = [(at + 600 * n, p) for n in range(3) for at, p in mix(n + 5, turns=60)]
    capture = write_pcap(tmp_path / "long.pcap", packets)
    expected = one_engine(engine, tmp_path / "one", capture, rules)
    split(engine, capture, tmp_path / "archive", "--parts", 5, "--by-time", "2m")
    assert hunt(engine, tmp_path / "archive", rules, tmp_path / "out.json") == 0
    assert events(tmp_path / "out.json") == expected
    # From the second mix on: flows and counts of the first are over by then.
    assert hunt(engine, tmp_path / "archive", rules, tmp_path / "late.json", "--from", "2023-11-14T22:22:00Z", "--lead", "60") == 0
    # Host bits are not: an expired bit stays until a rule checks it, and cannot be set again before that (docs/fleet.md).
    of = lambda found: [e for e in found if json.loads(e[1])["alert"]["signature_id"] != 8]
    late = [e for e in of(expected) if json.loads(e[1])["timestamp"] >= "2023-11-14T22:22:00"]
    assert 0 < len(late) < len(expected) and of(events(tmp_path / "late.json")) == late


def test_an_index_rules_parts_out(engine, small, tmp_path, capsys):
    _, capture, _, _ = small
    rules = tmp_path / "one.rules"
    rules.write_text('alert tcp 10.0.1.5 any -> any any (msg:"a"; flags:S; sid:1;)\n')
    split(engine, capture, tmp_path / "archive", "--parts", 200)
    expected = one_engine(engine, tmp_path / "one", capture, rules)
    assert hunt(engine, tmp_path / "archive", rules, tmp_path / "out.json") == 0
    assert events(tmp_path / "out.json") == expected and expected
    assert hunt(engine, tmp_path / "archive", rules, tmp_path / "out.json", "--plan") == 0
    printed = capsys.readouterr().out
    made = json.loads(printed[printed.index("{") :])
    assert made["pruned"] > made["parts"] * 0.8, made


def test_what_is_broken_is_named_and_the_rest_goes_on(engine, small, tmp_path, capsys):
    _, capture, rules, expected = small
    split(engine, capture, tmp_path / "archive", "--parts", 4)
    parts = sorted((tmp_path / "archive").glob("*.pcapng"))
    parts[0].write_bytes(parts[0].read_bytes()[:-9])
    (tmp_path / "bad.rules").write_text(rules.read_text() + 'alert tcp any any -> any any (nosuchkeyword:1; sid:99;)\nwhat is this\n')
    assert hunt(engine, tmp_path / "archive", tmp_path / "bad.rules", tmp_path / "out.json") == 1
    told = capsys.readouterr().err
    assert parts[0].name in told and "nosuchkeyword" in told and "bad.rules:18" in told
    assert 0 < len(events(tmp_path / "out.json")) < len(expected)

    # The engine or the checksum detects damage within a part of the right size.
    data = bytearray(parts[1].read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)
    parts[1].write_bytes(data)
    assert hunt(engine, tmp_path / "archive", rules, tmp_path / "out.json") == 1
    assert parts[1].stem in capsys.readouterr().err
    assert hunt(engine, tmp_path / "archive", rules, tmp_path / "out.json", "--verify") == 1
    assert "checksum" in capsys.readouterr().err


def test_what_cannot_be_done_is_said(engine, small, tmp_path, capsys):
    _, capture, rules, _ = small
    assert hunt(engine, tmp_path / "none", rules, tmp_path / "out.json") == 2
    assert "archive.json: cannot be read" in capsys.readouterr().err
    split(engine, capture, tmp_path / "archive", "--parts", 2)
    assert hunt("/nowhere/margay", tmp_path / "archive", rules, tmp_path / "out.json") == 2
    assert "--engine" in capsys.readouterr().err
    manifest = tmp_path / "archive" / "archive.json"
    manifest.write_text(manifest.read_text().replace('"version":1', '"version":9', 1))
    assert hunt(engine, tmp_path / "archive", rules, tmp_path / "out.json") == 2
    assert "version 9" in capsys.readouterr().err


def test_a_threshold_file_counts_over_the_whole(engine, small, tmp_path):
    _, capture, rules, _ = small
    thresholds, config = tmp_path / "threshold.config", tmp_path / "margay.yaml"
    thresholds.write_text(
        "suppress gen_id 1, sig_id 15, track by_src, ip 10.0.1.0/24\nthreshold gen_id 1, sig_id 3, type limit, track by_src, count 1, seconds 30\n"
    )
    config.write_text(f"%YAML 1.1\n---\nthreshold-file: {thresholds}\n")
    folder = tmp_path / "one"
    folder.mkdir()
    include = folder / "include.yaml"
    include.write_text(task.INCLUDE)
    line = [engine, "-c", config, "--include", include, "-S", rules, "-r", capture, "-l", folder, "--runmode", "single"]
    subprocess.run(line, check=True, capture_output=True)
    split(engine, capture, tmp_path / "archive", "--parts", 7)
    assert hunt(engine, tmp_path / "archive", rules, tmp_path / "out.json", "-c", str(config)) == 0
    assert events(tmp_path / "out.json") == events(folder / "eve.json")


@pytest.mark.extras
def test_spark_gives_the_same(engine, small, tmp_path):
    pytest.importorskip("pyspark")
    _, capture, rules, expected = small
    split(engine, capture, tmp_path / "archive", "--parts", 7)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = ["--conf", "spark.driver.memory=512m", "--conf", "spark.speculation=true", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    assert hunt(engine, tmp_path / "archive", rules, tmp_path / "out.json", *conf, how=("--master", "local[2]")) == 0
    assert events(tmp_path / "out.json") == expected


def test_real_captures(engine, tmp_path):
    """The captures of ../shared, if available: each one with two and with seven parts."""
    shared = os.environ.get("MARGAY_SHARED", os.path.join(os.path.dirname(__file__), "..", "..", "..", "shared"))
    folder = os.path.join(shared, "captures", "real")
    names = sorted(os.listdir(folder))[::20] if os.path.isdir(folder) else []
    if not names:
        did_not_run("hunts over real captures", "../shared is not here")
    rules = tmp_path / "a.rules"
    rules.write_text(RULES)
    for name in names:
        capture = os.path.join(folder, name)
        expected = one_engine(engine, tmp_path / "one", capture, rules)
        for parts in (2, 7):
            archive = tmp_path / f"{name}-{parts}"
            split_done = subprocess.run([engine, "split", capture, "--into", archive, "--parts", str(parts)], capture_output=True, check=False)
            if split_done.returncode == 2:
                continue
            assert hunt(engine, archive, rules, tmp_path / "out.json") == 0
            assert events(tmp_path / "out.json") == expected, name
        (tmp_path / "one" / "eve.json").unlink()


def test_rules_on_hosts_read_their_flows_alone(engine, small, tmp_path, capsys):
    _, capture, _, _ = small
    rules, archive = tmp_path / "one.rules", tmp_path / "archive"
    split(engine, capture, archive, "--parts", 3)
    texts = {
        "10.0.1.5": 'alert {} 10.0.1.5 any <> any any (msg:"a"; threshold: type limit, track by_both, count 2, seconds 3; sid:{};)\n',
        "10.0.0.3": 'alert {} any any -> 10.0.0.3 any (msg:"b"; sid:{};)\n',
        # A rule on hosts inside a tunnel, whose outer hosts are many.
        "10.9.0.2": 'alert {} any any -> 10.9.0.2 any (msg:"c"; threshold: type limit, track by_dst, count 2, seconds 9; sid:{};)\n',
    }
    for host, text in texts.items():
        rules.write_text("".join(text.format(proto, sid) for sid, proto in enumerate(("tcp", "udp", "icmp", "ip", "http"), 1)))
        expected = one_engine(engine, tmp_path / "one", capture, rules)
        assert hunt(engine, archive, rules, tmp_path / "out.json") == 0
        assert events(tmp_path / "out.json") == expected and expected, host
        told = capsys.readouterr().err
        read, _, of = told.split("alerts; ")[1].split(";")[0].partition(" packets read of an archive of ")
        assert int(read) < int(of) / (1 if host == "10.9.0.2" else 2), told


@pytest.mark.extras
def test_an_archive_in_s3(engine, small, tmp_path, monkeypatch, capsys):
    """Through boto3, from a simulated S3: whole parts, flows of one host, windows, and missing objects."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    import boto3

    _, capture, rules, expected = small
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in (("AWS_ENDPOINT_URL", f"http://{host}:{port}"), ("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"),
                            ("AWS_DEFAULT_REGION", "us-east-1"), ("NO_PROXY", "127.0.0.1"), ("no_proxy", "127.0.0.1")):  # fmt: skip
            monkeypatch.setenv(name, value)
        client = boto3.client("s3")
        client.create_bucket(Bucket="captures")
        split(engine, capture, tmp_path / "archive", "--parts", 4)
        for file in sorted((tmp_path / "archive").iterdir()):
            client.upload_file(str(file), "captures", f"year/{file.name}")
        archive = "s3a://captures/year"
        assert hunt(engine, archive, rules, tmp_path / "out.json", "--verify") == 0
        assert events(tmp_path / "out.json") == expected
        one = tmp_path / "one.rules"
        one.write_text('alert tcp 10.0.1.5 any <> any any (msg:"a"; flags:S; sid:1;)\n')
        assert hunt(engine, archive, one, tmp_path / "out.json") == 0
        assert events(tmp_path / "out.json") == one_engine(engine, tmp_path / "one", capture, one)

        gone = sorted((tmp_path / "archive").glob("*.pcapng"))[0].name
        client.delete_object(Bucket="captures", Key=f"year/{gone}")
        capsys.readouterr()
        assert hunt(engine, archive, rules, tmp_path / "out.json") == 1
        assert f"s3://captures/year/{gone}: cannot be read" in capsys.readouterr().err
        assert hunt(engine, "s3://captures/nothing", rules, tmp_path / "out.json") == 2
        assert "archive.json: cannot be read" in capsys.readouterr().err
    finally:
        server.stop()
