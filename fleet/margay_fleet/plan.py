"""Plans a hunt: the parts in which rules can match, the engine that runs each rule, and the packets that one engine must read in one piece.

Each rule belongs to one of two groups. Rules of `parts` run on each part separately, without thresholds that count over hosts; those are counted
again over the merged stream (`thresholds`). Rules of `whole` depend on state that packets of several parts change (host bits, growing datasets,
scripts, thresholds of acting rules). They run once over all parts, joined in the order of the capture. Rules that share flow bits are in the same
group. Acting rules (`pass`, `drop`, `reject`), and those that they share bits with, are loaded with both groups and reported by one.
"""

from dataclasses import dataclass, field

from .rules import PORTLESS, TRANSPORTS

# Most hosts, or pairs of hosts, to select within a part. With more, the whole part is read, because little would be left out.
MOST_HOSTS = 64


@dataclass
class Unit:
    """Parts that one engine reads, joined in the order of the capture, and its rules: `parts` or `whole`."""

    number: int
    group: str
    parts: list
    hosts: list = None
    """Hosts, or pairs of hosts (`A,B`), whose flows are read; None reads all."""

    @property
    def bytes(self):
        """Total size of its parts."""
        return sum(p.bytes for p in self.parts)


@dataclass
class Plan:
    """The plan of a hunt."""

    units: list
    rules: dict
    """The rules' texts for each group."""
    owned: dict
    """Keys of the rules whose alerts count in each group."""
    recount: dict
    """Thresholds by rule key, to count over the merged stream."""
    whole_because: dict
    """The reason that a rule is in `whole`, by its key."""
    pruned: int = 0
    """Parts in the requested time that no rule can match in."""
    considered: int = 0
    """Parts in the requested time."""
    problems: list = field(default_factory=list)


def _components(rules):
    """Sets of indexes of rules that share named state."""
    parent = list(range(len(rules)))

    def root(i):
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first = {}
    for i, rule in enumerate(rules):
        for name in rule.names():
            parent[root(i)] = root(first.setdefault(name, i))
    sets = {}
    for i in range(len(rules)):
        sets.setdefault(root(i), []).append(i)
    return list(sets.values())


def group(rules, forced=None):
    """Sorts rules into groups: (indexes for `parts`, for `whole`, loaded with both, reasons by index). `forced` has further reasons by rule key
    for a rule to be in `whole`."""
    parts, whole, both, reasons = set(), set(), set(), {}
    forced = forced or {}

    def needs(rule):
        return forced.get(rule.key) or forced.get((0, 0)) or rule.needs_whole()

    for members in _components(rules):
        why = next(((i, r) for i in members if (r := needs(rules[i]))), None)
        # If one rule needs all packets, so do all rules that share state with it.
        if why:
            whole.update(members)
            reasons.update((i, why[1]) for i in members)
        else:
            parts.update(members)
        if any(rules[i].action != "alert" for i in members):
            both.update(members)
    if both & whole:
        # A rule that acts on all packets depends on the whole, so all rules do.
        reason = reasons[min(both & whole)]
        reasons = {i: reasons.get(i, f"beside a {rules[min(both & whole)].action} rule with {reason}") for i in parts | whole}
        return set(), parts | whole, set(), reasons
    return parts, whole, both, reasons


class Header:
    """The packets that a rule's header can match."""

    def __init__(self, rule, variables):
        self.protocols = TRANSPORTS.get(rule.proto)
        self.networks = [n for n in map(variables.networks, rule.addresses) if n is not None]
        self.ports = []
        if rule.proto not in PORTLESS and self.protocols:
            self.ports = [r for r in map(variables.port_ranges, rule.ports) if r is not None]

    @property
    def key(self):
        """Equal for headers that match the same packets."""
        return repr((self.protocols, self.networks, self.ports))

    def hosts(self):
        """Hosts (`A`) or pairs of hosts (`A,B`); every matching packet belongs to one of them. None if they are unlimited, or too many."""
        sides = []
        for networks in self.networks:
            if sum(n.num_addresses for n in networks) <= MOST_HOSTS:
                sides.append(sorted({str(a) for n in networks for a in n}))
        if len(sides) == 2 and len(sides[0]) * len(sides[1]) <= MOST_HOSTS:
            return [f"{a},{b}" for a in sides[0] for b in sides[1]]
        return min(sides, key=len, default=None)

    def may_match(self, index, ports_known):
        """Whether a packet in a part may match; `False` is certain."""
        if self.protocols and not index.protocols.intersection(self.protocols):
            return False
        if any(not any(map(index.may_hold_network, networks)) for networks in self.networks):
            return False
        return not ports_known or all(index.may_hold_ports(self.protocols, ranges) for ranges in self.ports)


def _all_hosts(lists):
    """The union of several lists of hosts; None if one is None, or if there are too many."""
    if any(hosts is None for hosts in lists):
        return None
    found = sorted({host for hosts in lists for host in hosts})
    return found if len(found) <= MOST_HOSTS else None


def make(archive, rules, variables, start=None, end=None, lead=3_600_000_000, forced=None):
    """Plans a hunt for `rules` in `archive` between `start` and `end` (microseconds, or None). Parts up to `lead` microseconds before `start` are
    read as well, because flows and counts that alert may have begun there."""
    parts, whole, both, reasons = group(rules, forced)
    recount = {rules[i].key: rules[i].thresholds for i in parts if rules[i].recounted()}

    def text(places):
        return [rules[i].stripped() if rules[i].key in recount else rules[i].text for i in sorted(places)]

    plan = Plan(
        [],
        {"parts": text(parts | both), "whole": text(whole | both) if whole else []},
        {"parts": {rules[i].key for i in parts}, "whole": {rules[i].key for i in whole}},
        recount,
        {rules[i].key: why for i, why in reasons.items()},
    )
    headers = {name: {h.key: h for h in (Header(rules[i], variables) for i in places)} for name, places in (("parts", parts), ("whole", whole))}
    chosen, hosts = {"parts": [], "whole": []}, {"parts": {}, "whole": {}}
    in_time = [p for p in archive.parts if (start is None or p.last >= start - lead) and (end is None or p.first < end)]
    plan.considered = len(in_time)
    for part, index in archive.indexes(in_time):
        for name, of in headers.items():
            fit = [h for h in of.values() if h.may_match(index, archive.ports_known)]
            if fit:
                chosen[name].append(part)
                hosts[name][part.name] = _all_hosts([h.hosts() for h in fit]) if archive.by_hosts else None
        if part not in chosen["parts"][-1:] and part not in chosen["whole"][-1:]:
            plan.pruned += 1
    bucket_of = {b: min(s) for s in archive.together for b in s}
    chains = {}
    for part in chosen["parts"]:
        chains.setdefault(bucket_of.get(part.bucket, part.bucket), []).append(part)
    # Longest first, so that the last tasks are short and no worker waits long for another.
    ordered = sorted(chains.values(), key=lambda c: -sum(p.bytes for p in c))

    def unit(number, name, parts):
        return Unit(number, name, parts, _all_hosts([hosts[name][p.name] for p in parts]))

    plan.units = [unit(n, "parts", chain) for n, chain in enumerate(ordered)]
    if chosen["whole"]:
        plan.units.insert(0, unit(len(plan.units), "whole", chosen["whole"]))
    return plan
