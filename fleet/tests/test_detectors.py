"""Each detector on synthetic events. The findings do not depend on the order or batches of events."""

import json
import random
from datetime import datetime, timezone

from margay_fleet.detectors import SECOND, Settings, advance, all_of, one_pass, parse
from margay_fleet.rules import Threshold

START = 1_700_000_000


def event(at, kind, sensor="a", **more):
    """A line of EVE, `at` seconds after the start."""
    time = datetime.fromtimestamp(START + at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f+0000")
    return json.dumps({"timestamp": time, "event_type": kind, "host": sensor, **more})


def alert(at, src="10.0.0.1", dst="10.0.0.2", sensor="a", sid=1, flow=None, **more):
    flow = flow if flow is not None else f"1:{src}{dst}{at:.0f}"
    return event(at, "alert", sensor, src_ip=src, dest_ip=dst, community_id=flow, alert={"gid": 1, "signature_id": sid, "signature": "s"}, **more)


def flow(at, src="10.0.0.1", dst="10.0.0.2", port=80, sensor="a", sent=3, back=0, begun=None, community=None, **more):
    begun = at - 1 if begun is None else begun
    begin = datetime.fromtimestamp(START + begun, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f+0000")
    of = {"pkts_toserver": sent, "pkts_toclient": back, "bytes_toserver": sent * 60, "bytes_toclient": back * 60, "start": begin}
    community = community or f"1:{src}{dst}{port}{begun}"
    return event(at, "flow", sensor, src_ip=src, src_port=40000, dest_ip=dst, dest_port=port, proto="TCP", flow=of, community_id=community, **more)


def stats(at, sensor="a", packets=0, lost=0, up=None):
    return event(at, "stats", sensor, stats={"uptime": at if up is None else up, "capture": {"kernel_packets": packets, "kernel_drops": lost}})


def found(lines, detector, settings=None, watermark=1 << 62):
    return [(round(t / SECOND - START, 6), f) for t, n, _, _, f in one_pass(settings or Settings(), lines, watermark) if n == detector]


def counting(kind="threshold", track="by_src", count=4, seconds=60):
    return Settings(thresholds=((1, 1, Threshold(kind, track, count, seconds)),))


def test_thresholds_count_across_sensors():
    lines = [alert(n, sensor="abc"[n % 3], dst=f"10.1.0.{n}") for n in range(8)]
    assert [t for t, _ in found(lines, "threshold", counting())] == [3, 7]
    assert found(lines, "threshold", counting())[0][1]["sensors"] == ["a", "b", "c"]
    assert not found(lines, "threshold", counting(track="by_dst")), "each target is tried once"
    assert [t for t, _ in found(lines, "threshold", counting("detection_filter"))] == [4, 5, 6, 7]
    assert not found([alert(n * 100) for n in range(8)], "threshold", counting())


def test_what_two_sensors_see_counts_once():
    pairs = [alert(n + s / 100, sensor="ab"[s], flow=f"1:{n}") for n in range(3) for s in (0, 1)]
    assert not found(pairs, "threshold", counting())
    assert len(found([*pairs, alert(3)], "threshold", counting())) == 1
    # A repeated copy of one event; and one rule twice in a flow that both sensors saw.
    assert not found([alert(1, flow="x")] * 9, "threshold", counting())
    twice = [alert(n / 10 + s / 100, sensor="ab"[s], flow="x") for n in range(4) for s in (0, 1)]
    assert [t for t, _ in found(twice, "threshold", counting())] == [0.3]


def test_scans():
    spread = [flow(n, dst=f"10.1.0.{n}", sensor="abc"[n % 3]) for n in range(20)]
    (when, what), = found(spread, "scan")
    assert when == 19 and what["targets"] == 20 and what["sensors"] == ["a", "b", "c"] and what["dest_port"] == 80
    assert not found([flow(n * 10, dst=f"10.1.0.{n}") for n in range(40)], "scan"), "too slow for it"
    assert not found([flow(n, dst=f"10.1.0.{n}", back=4) for n in range(40)], "scan"), "they answer"
    assert not found([flow(n) for n in range(40)], "scan"), "always the same"
    slow = [flow(n * 1200, dst=f"10.1.{n}.1", port=n) for n in range(60)]
    (when, what), = found(slow, "slow_scan")
    assert when == 49 * 1200 and what["targets"] == 50
    assert not found([flow(n * 3600, dst=f"10.1.{n}.1") for n in range(60)], "slow_scan"), "no day has fifty"


def test_beacons():
    random.seed(3)
    regular = [flow(n * 300 + random.uniform(-9, 9), back=3, begun=n * 300 + random.uniform(-9, 9)) for n in range(30)]
    (when, what), = found(regular, "beacon")
    assert 290 < what["interval"] < 310 and what["connections"] in (13, 14) and 3500 < when < 4000
    people = [flow(t, back=3, begun=t) for t in sorted(random.uniform(0, 9000) for _ in range(60))]
    assert not found(people, "beacon")
    assert not found([flow(n * 5, back=3, begun=n * 5) for n in range(900)], "beacon"), "a poll of every few seconds is not one"


def test_halves():
    one = flow(10, sensor="a", sent=5, community="1:x", begun=1)
    other = event(12, "flow", "b", src_ip="10.0.0.2", src_port=80, dest_ip="10.0.0.1", dest_port=40000, proto="TCP", community_id="1:x",
                  flow={"pkts_toserver": 7, "pkts_toclient": 0, "bytes_toserver": 900, "bytes_toclient": 0,
                        "start": datetime.fromtimestamp(START + 1.5, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f+0000")})  # fmt: skip
    for lines in ([one, other], [other, one]):
        (_, what), = found(lines, "halves")
        assert (what["src_ip"], what["pkts_toserver"], what["pkts_toclient"], what["bytes_toclient"]) == ("10.0.0.1", 5, 7, 900)
        assert what["sensors"] == ["a", "b"]
    assert not found([one, one.replace('"a"', '"b"')], "halves"), "both saw the same half"
    assert not found([one, other.replace('"b"', '"a"')], "halves"), "one sensor's two flows"
    assert not found([one, flow(11, sensor="b", sent=5, back=5, community="1:x")], "halves")


def test_health():
    lines = [stats(n * 10, s, n * 1000, 0) for n in range(12) for s in "ab" if s == "a" or not 3 <= n <= 10]
    silent, back = found(lines, "health", watermark=(START + 110) * SECOND)
    assert (silent[0], silent[1]["what"]) == (80, "silent") and (back[0], back[1]["silent_for"]) == (110, 90)
    grows = [stats(n * 10, packets=n * 1000, lost=lost) for n, lost in enumerate((0, 5, 10, 60, 110, 300, 301, 302, 400))]
    told = [(t, f["what"], f["loss"]) for t, f in found(grows, "health", watermark=(START + 80) * SECOND)]
    assert told == [(30, "loss", 0.05), (50, "loss", 0.19), (80, "loss", 0.098)]
    # In small steps, of which none is half of the step before.
    slowly = [stats(n * 10, packets=n * 1000, lost=lost) for n, lost in enumerate((0, 50, 110, 180, 260, 350))]
    assert [f["loss"] for _, f in found(slowly, "health", watermark=(START + 50) * SECOND)] == [0.05, 0.08]
    restarted = [stats(0, packets=5000), stats(10, packets=10, lost=9, up=1), stats(20, packets=1010, lost=9, up=11)]
    assert not found(restarted, "health", watermark=(START + 20) * SECOND)


def busy(seed=5, count=1500):
    """Events of three sensors over some hours, with a pattern for each detector."""
    r, lines = random.Random(seed), []
    for n in range(count):
        t = r.random() * 7200
        lines.append(alert(t, src=f"10.0.0.{r.randrange(5)}", sensor=r.choice("abc"), dst=f"10.2.0.{r.randrange(9)}"))
        lines.append(flow(t, src=f"10.0.0.{r.randrange(5)}", dst=f"10.3.0.{r.randrange(200)}", sensor=r.choice("abc"), port=r.choice((22, 445))))
        if n % 20 == 0:
            other = dict(json.loads(lines[-1]), host="c", src_ip=json.loads(lines[-1])["dest_ip"], dest_ip=json.loads(lines[-1])["src_ip"])
            other |= {"src_port": other["dest_port"], "dest_port": other["src_port"]}
            lines.append(json.dumps(other))
    lines += [flow(3000 + n, dst=f"10.4.0.{n}", sensor="abc"[n % 3]) for n in range(25)]
    lines += [flow(n * 300, back=2, begun=n * 300, port=8443) for n in range(25)]
    lines += [stats(n * 20, s, n * 1000, n * n * (s == "b")) for n in range(300) for s in "abc" if s != "c" or n < 200]
    return sorted(lines, key=lambda line: json.loads(line)["timestamp"])


def test_batches_change_nothing():
    settings, lines = counting(count=5), busy()
    end = (START + 7200) * SECOND
    expected = one_pass(settings, lines, end)
    assert {f[1] for f in expected} == set(all_of(settings))
    detectors, r = all_of(settings), random.Random(1)
    for delay in (0, 30):
        kept, all_found, at, newest = {}, [], 0, 0
        # Events arrive up to half a minute out of order, in batches of any size, and the watermark follows.
        order = sorted(lines, key=lambda line: parse(line)[0] + r.random() * delay * SECOND)
        while at < len(order):
            size = r.randrange(1, 300)
            new, at = [parse(line) for line in order[at : at + size]], at + size
            watermark = newest - delay * SECOND
            by_key = {}
            for t, e in new:
                for d in detectors.values():
                    for key in d.keys(e):
                        by_key.setdefault((d.name, key), []).append((t, e))
            for name in {*by_key, *kept}:
                # The checkpoint stores a state as text.
                before = json.loads(json.dumps(kept.get(name)))
                kept[name], found_now, _ = advance(detectors[name[0]], name[1], before, by_key.get(name, []), watermark)
                all_found += found_now
                if kept[name] is None:
                    del kept[name]
            newest = max([newest, *(t for t, _ in new)])
        for name, state in kept.items():
            all_found += advance(detectors[name[0]], name[1], state, [], end)[1]
        assert sorted(all_found, key=lambda f: f[:4]) == expected


def test_what_is_no_event_is_passed_over():
    for line in ("", "{", "[]", "null", '{"event_type":"alert"}', '{"event_type":"dns","timestamp":"2023-11-14T22:13:20.000000+0000"}', event(1, "alert"),
                 '{"event_type":"flow","timestamp":"yesterday","flow":{}}', '{"event_type":"alert","timestamp":"2023-11-14T22:13:20.0+0000","alert":3}'):  # fmt: skip
        assert parse(line) is None, line


def test_settings_are_read_and_wrong_ones_refused():
    read = Settings.read('{"silent": 5, "thresholds": [{"sid": 7, "type": "limit", "track": "by_src", "count": 1, "seconds": 9}]}')
    assert read.silent == 5 and read.thresholds == ((1, 7, Threshold("limit", "by_src", 1, 9)),)
    for text in ('{"nosuch": 1}', '{"thresholds": [{"sid": 1, "type": "limit", "track": "by_src", "count": 1, "seconds": 1, "odd": 1}]}'):
        try:
            Settings.read(text)
        except ValueError:
            continue
        raise AssertionError(text)
