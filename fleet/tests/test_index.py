"""Filters, rules and plans."""

import ipaddress
import random

from margay_fleet import plan
from margay_fleet.index import HASHES, MASK, PREFIXES, Index, Part, mix, network_entry, port_entry
from margay_fleet.rules import Threshold, Variables, parse_rule, read_rules


def test_hashes_are_those_that_the_archive_is_written_with():
    # crates/archive/src/bloom.rs has the same values.
    address = ipaddress.ip_address
    hashes = [network_entry(address("192.0.2.1"), 32), network_entry(address("192.0.2.1"), 24)]
    hashes += [network_entry(address("2001:db8::1"), 48), port_entry(6, 443)]
    assert hashes == [8868762497323800126, 8656811611009855910, 11091749933735942441, 10885831000786060478]


def made(addresses, ports=(), protocols=(6,), bits=1 << 16):
    """An index with these entries."""
    filter_ = bytearray(bits // 8)
    hashes = [port_entry(proto, p) for proto, p in ports]
    for text in addresses:
        address = ipaddress.ip_address(text)
        hashes += [network_entry(address, b) for b in PREFIXES[address.version]]
    for h in hashes:
        for i in range(HASHES):
            at = ((h + i * (mix(h) | 1)) & MASK) % bits
            filter_[at // 8] |= 1 << (at % 8)
    return Index(frozenset(protocols), 0, 0, bytes(filter_))


def test_networks_are_never_ruled_out_wrongly():
    random.seed(7)
    for version, kind in ((4, ipaddress.IPv4Address), (6, ipaddress.IPv6Address)):
        longest = 32 if version == 4 else 128
        addresses = [kind(random.getrandbits(longest)) for _ in range(40)]
        index = made(map(str, addresses))
        for address in addresses:
            for bits in range(longest + 1):
                assert index.may_hold_network(ipaddress.ip_network((address, bits), strict=False)), (address, bits)
        others = [ipaddress.ip_network(kind(random.getrandbits(longest))) for _ in range(500)]
        assert sum(map(index.may_hold_network, others)) < 5


def test_networks_and_ports_are_ruled_out():
    index = made(["10.1.2.3", "2001:db8:1::5"], [(6, 443), (17, 53)])
    for text, there in (("10.1.2.0/28", True), ("10.1.2.16/28", False), ("10.1.0.0/20", True), ("10.1.16.0/20", False), ("10.0.0.0/12", True),
                        ("11.0.0.0/10", False), ("0.0.0.0/0", True), ("2001:db8:1::/49", True), ("2001:db8:2::/49", False)):  # fmt: skip
        assert index.may_hold_network(ipaddress.ip_network(text)) is there, text
    assert index.may_hold_ports((6,), [(440, 450)]) and not index.may_hold_ports((6,), [(53, 53)])
    assert index.may_hold_ports((6, 17), [(53, 53)]) and index.may_hold_ports((6,), [(1, 5000)])


def test_variables_are_taken_apart():
    dump = "vars.address-groups.HOME = [10.0.0.0/8,!10.1.0.0/16]\nvars.address-groups.EXT = !$HOME\nvars.port-groups.P = [80,8000:8080]\n"
    variables = Variables(dump)
    networks = lambda text: variables.networks(text) and [str(n) for n in variables.networks(text)]  # noqa: E731
    assert networks("[$HOME, 192.0.2.1]") == ["10.0.0.0/8", "192.0.2.1/32"]
    assert networks("$EXT") is None and networks("any") is None and networks("$GONE") is None and networks("![1.2.3.4]") is None
    assert networks("10.0.0.1-10.0.0.2") == ["10.0.0.1/32", "10.0.0.2/32"]
    assert variables.port_ranges("$P") == [(80, 80), (8000, 8080)]
    assert variables.port_ranges("1024:") == [(1024, 65535)] and variables.port_ranges("!80") is None


def rule(text):
    parsed = parse_rule(text, "a.rules", 1)
    assert parsed is not None, text
    return parsed


def test_rules_are_taken_apart():
    text = 'alert tcp [10.0.0.1, 10.0.0.2] any -> $X 80 (msg:"a \\; b"; content:"(|3b|"; threshold: type limit, track by_src, count 1, seconds 60; sid:5;)'
    parsed = rule(text)
    assert (parsed.key, parsed.addresses, parsed.ports) == ((1, 5), ("[10.0.0.1, 10.0.0.2]", "$X"), ("any", "80"))
    assert parsed.thresholds == [Threshold("limit", "by_src", 1, 60)]
    assert parsed.stripped() == 'alert tcp [10.0.0.1, 10.0.0.2] any -> $X 80 (msg:"a \\; b"; content:"(|3b|"; sid:5;)'
    assert parse_rule("alert tcp any any -> any (sid:1;)", "a", 1) is None
    assert not rule("alert tcp any any -> any any (threshold: type limit, track by_flow, count 1, seconds 5; sid:1;)").recounted()
    assert rule("alert tcp any any -> any any (threshold: type odd; sid:1;)").needs_whole()


def test_lines_go_on(tmp_path):
    path = tmp_path / "a.rules"
    path.write_text("# none\nalert tcp any any -> any any \\\n(sid:1;)\nnonsense\n")
    rules, strange = read_rules(str(path))
    assert [(r.sid, r.line) for r in rules] == [(1, 2)] and strange == [(4, "nonsense")]


def grouped(*options, forced=None):
    rules = [rule(f"{o.split()[0]} tcp any any -> any any ({' '.join(o.split()[1:])} sid:{n};)") for n, o in enumerate(options)]
    parts, whole, both, _ = plan.group(rules, forced)
    return parts, whole, both


def test_what_shares_state_is_run_together():
    assert grouped("alert", "alert xbits:set,a,track ip_src;") == ({0}, {1}, set())
    # Flow bits tie the first two to the third.
    bits = ("alert flowbits:set,a;", "alert flowbits:isset,a; flowbits:set,b;", "alert flowbits:isset,b; hostbits:set,h;", "alert")
    assert grouped(*bits) == ({3}, {0, 1, 2}, set())
    assert grouped("alert flowbits:set,a;", "pass flowbits:isset,a;", "alert") == ({0, 1, 2}, set(), {0, 1})
    assert grouped("alert score:s,+3;", "alert score:s,>=,3; hostbits:set,h;", "alert score:t,+1;") == ({2}, {0, 1}, set())
    assert grouped('alert pcre:"/(?P<flow_x>a)/";', "alert flowvar:x,a; xbits:set,y,track ip_src;") == (set(), {0, 1}, set())
    # A rule that passes on host bits affects all rules.
    assert grouped("alert", "pass xbits:isset,a,track ip_src;") == (set(), {0, 1}, set())
    assert grouped("alert", "alert dataset:isset,x;", "alert dataset:set,y;") == ({0, 1}, {2}, set())
    assert grouped("alert", "alert", forced={(1, 1): "counted elsewhere"}) == ({0}, {1}, set())


class Fake:
    """An archive that consists of indexes."""

    def __init__(self, indexes, together=()):
        self.of, self.together, self.ports_known, self.by_hosts = indexes, list(together), True, True
        self.parts = [Part(f"{n}", n % 2, n // 2, 1, 10 + n, n * 100, n * 100 + 50, "") for n in range(len(indexes))]

    def indexes(self, parts):
        return [(part, self.of[int(part.name)]) for part in parts]


def test_plans_leave_out_what_cannot_match():
    archive = Fake([made(["10.0.0.1"], [(6, 80)]), made(["10.0.0.2"], [(6, 80)]), made(["10.0.0.3"], [(17, 53)], (17,)), made(["10.0.0.1"], [(6, 22)])])

    def names(text, **more):
        made_plan = plan.make(archive, [rule(text)], Variables(), **more)
        return sorted([p.name for p in u.parts] for u in made_plan.units)

    assert names("alert tcp 10.0.0.1 any -> any any (sid:1;)") == [["0"], ["3"]]
    assert names("alert tcp any any -> any 80 (sid:1;)") == [["0"], ["1"]]
    assert names("alert udp any any -> any any (sid:1;)") == [["2"]]
    assert names("alert ip any any -> any any (sid:1;)") == [["0", "2"], ["1", "3"]]
    assert names("alert ftp-data any 20 -> any any (sid:1;)") == [["0"], ["1", "3"]], "its port is not that of what announced it"
    assert names("alert ip any any -> any any (sid:1;)", start=300, end=400, lead=0) == [["3"]]
    archive.together = [(0, 1)]
    assert names("alert ip any any -> any any (sid:1;)") == [["0", "1", "2", "3"]]
    archive.ports_known = False
    assert names("alert tcp any any -> any 80 (sid:1;)") == [["0", "1", "3"]]


def test_plans_name_the_hosts_whose_flows_are_read():
    archive = Fake([made(["10.0.0.1", "10.0.0.2"], [(6, 80)]), made(["10.0.0.2"], [(6, 80)]), made(["10.0.0.1"], [(6, 22)])])

    def hosts(*texts):
        made_plan = plan.make(archive, [rule(f"{text} (sid:{n};)") for n, text in enumerate(texts)], Variables())
        return {tuple(p.name for p in u.parts): u.hosts for u in made_plan.units}

    one = "alert tcp 10.0.0.1 any -> any any"
    assert hosts(one) == {("0", "2"): ["10.0.0.1"]}
    assert hosts("alert tcp [10.0.0.0/31] any <> 10.0.0.2 any") == {("0",): ["10.0.0.0,10.0.0.2", "10.0.0.1,10.0.0.2"]}
    # A rule that cannot match in a part needs nothing from it.
    assert hosts(one, "alert tcp 10.0.0.2 80 -> any any") == {("0", "2"): ["10.0.0.1", "10.0.0.2"], ("1",): ["10.0.0.2"]}
    assert hosts(one, "alert tcp any any -> any 22") == {("0", "2"): None}
    assert hosts("alert tcp 10.0.0.0/8 any -> any any") == {("0", "2"): None, ("1",): None}
    archive.by_hosts = False
    assert hosts(one) == {("0", "2"): None}
