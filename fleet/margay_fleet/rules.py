"""Parses rules as far as a plan needs: the header, the state that a rule shares with others, and its thresholds.

Only the engine decides whether a rule is valid. A form that this module does not understand makes the plan more careful: its header prunes
nothing, and the rule runs over all packets in one piece.
"""

import ipaddress
import re
from dataclasses import dataclass, field

ACTIONS = {"alert", "pass", "drop", "reject", "rejectsrc", "rejectdst", "rejectboth"}
# Transport protocols of the names in a header; a missing name may be any.
TRANSPORTS = {
    "tcp": (6,), "tcp-pkt": (6,), "tcp-stream": (6,), "udp": (17,), "sctp": (132,), "icmp": (1, 58), "icmpv4": (1,), "icmpv6": (58,),
    "http": (6,), "http1": (6,), "http2": (6,), "tls": (6,), "ssl": (6,), "ssh": (6,), "smtp": (6,), "ftp": (6,), "ftp-data": (6,),
    "smb": (6,), "imap": (6,), "pop3": (6,), "rdp": (6,), "rfb": (6,), "mqtt": (6,), "telnet": (6,), "pgsql": (6,), "websocket": (6,),
    "tftp": (17,), "ntp": (17,), "dhcp": (17,), "snmp": (17,), "quic": (17,), "dns": (6, 17), "krb5": (6, 17), "sip": (6, 17),
    "dcerpc": (6, 17),
}  # fmt: skip
# For these, the header's ports are not compared, or the port belongs to the connection that announced them.
PORTLESS = {"icmp", "icmpv4", "icmpv6", "ftp-data", "ip", "pkthdr", "ipv4", "ipv6", "arp", "ether"}
# State of hosts, of pairs or of everything: it is correct only if all packets pass one engine in order.
SHARED_STATE = {"hostbits", "xbits", "lua", "luajit", "luaxform"}
NAMED_STATE = {"flowbits", "hostbits", "xbits", "flowint", "flowvar", "pktvar", "dataset", "score"}
WORD = re.compile(r"[^\s,;:]+")


@dataclass(frozen=True)
class Threshold:
    """`threshold` or `detection_filter` of a rule; `kind` is limit, threshold, both, backoff or detection_filter."""

    kind: str
    track: str
    count: int
    seconds: int
    multiplier: int = 1


@dataclass
class Rule:
    """A rule with its file and line."""

    text: str
    file: str
    line: int
    action: str
    proto: str
    addresses: tuple
    ports: tuple
    both_ways: bool
    options: list
    gid: int = 1
    sid: int = 0
    thresholds: list = field(default_factory=list)

    @property
    def key(self):
        """Generator and signature id."""
        return (self.gid, self.sid)

    def names(self):
        """Names of the state that it shares with other rules, with their kinds."""
        found = set()
        for name, value in self.options:
            if name not in NAMED_STATE:
                continue
            words = [w.strip() for w in (value or "").split(",")]
            if name == "flowint":
                found.update(("flowint", w) for w in (words[0], words[-1]) if WORD.fullmatch(w))
            elif name in ("flowvar", "pktvar"):
                # Such a rule names them within a regular expression.
                found.add(("variable", "*"))
            elif name == "score":
                found.add((name, words[0]))
            elif len(words) > 1:
                found.update((name, w.strip()) for w in words[1].split("|"))
        for name, value in self.options:
            if name == "pcre" and value and ("flow:" in value or "pkt:" in value or "flow_" in value):
                found.add(("variable", "*"))
        return found

    def needs_whole(self):
        """The reason that one engine must see all its packets, or None."""
        for name, value in self.options:
            if name in SHARED_STATE:
                return name
            if name == "dataset" and (value or "").split(",")[0].strip() not in ("isset", "isnotset"):
                return "dataset that grows"
            if name == "tag" and "host" in (value or ""):
                return "tag of hosts"
        if self.recounted() and self.action != "alert":
            return f"threshold of a {self.action} rule"
        if any(name in ("threshold", "detection_filter") for name, _ in self.options) and not self.thresholds:
            return "threshold that is not understood"
        return None

    def recounted(self):
        """Whether its thresholds count over several parts."""
        return any(t.track != "by_flow" for t in self.thresholds)

    def stripped(self):
        """Its text without thresholds."""
        head, body, tail = _halves(self.text)
        kept = [o for o in _split_options(body) if o.split(":")[0].strip() not in ("threshold", "detection_filter")]
        return f"{head}({'; '.join(kept)};){tail}"


def _split_options(body):
    """Options of a rule's body, with escapes."""
    out, now, escaped = [], [], False
    for c in body:
        if c == ";" and not escaped:
            out.append("".join(now).strip())
            now = []
        else:
            now.append(c)
        escaped = c == "\\" and not escaped
    rest = "".join(now).strip()
    return [o for o in [*out, rest] if o]


def _halves(text):
    """A rule's header, its body without parentheses, and the rest."""
    start, end = text.index("("), text.rindex(")")
    return text[:start], text[start + 1 : end], text[end + 1 :]


def _threshold(kind, value):
    words = {}
    for pair in value.split(","):
        key, _, val = pair.strip().partition(" ")
        words[key] = val.strip()
    try:
        seconds = int(words.get("seconds", 0))
        kind = kind or words["type"]
        known = kind in ("limit", "threshold", "both", "backoff", "detection_filter")
        if not known or words["track"] not in ("by_src", "by_dst", "by_rule", "by_both", "by_flow"):
            return None
        return Threshold(kind, words["track"], int(words["count"]), seconds, int(words.get("multiplier", 1)))
    except (KeyError, ValueError):
        return None


HEADER = re.compile(r"^(\w+)\s+(\S+)\s+(\[.*?\]|\S+)\s+(\[.*?\]|\S+)\s+(->|<>|=>)\s+(\[.*?\]|\S+)\s+(\[.*?\]|\S+)\s*\(", re.S)


def parse_rule(text, file, line):
    """Parses a rule from one line; None if this module does not understand it."""
    match = HEADER.match(_close_brackets(text))
    if not match or ")" not in text or match[1] not in ACTIONS:
        return None
    addresses = (match[3].replace("\x00", " "), match[6].replace("\x00", " "))
    ports = (match[4].replace("\x00", " "), match[7].replace("\x00", " "))
    options = []
    for option in _split_options(_halves(text)[1]):
        name, colon, value = option.partition(":")
        options.append((name.strip(), value.strip() if colon else None))
    rule = Rule(text, file, line, match[1], match[2].lower(), addresses, ports, match[5] == "<>", options)
    for name, value in options:
        if name in ("sid", "gid") and value and value.isdigit():
            setattr(rule, name, int(value))
        elif name in ("threshold", "detection_filter") and value:
            threshold = _threshold("detection_filter" if name == "detection_filter" else None, value)
            if threshold is None:
                rule.thresholds = []
                return rule
            rule.thresholds.append(threshold)
    return rule


def _close_brackets(text):
    """Replaces spaces within the header's brackets by NULs, so that a group is one word."""
    out, depth = [], 0
    for i, c in enumerate(text):
        if c == "(":
            return "".join(out) + text[i:]
        depth += (c == "[") - (c == "]")
        out.append("\x00" if depth > 0 and c.isspace() else c)
    return "".join(out)


def read_rules(path):
    """Rules of a file, and the lines with a rule that is not understood: (rules, [(line, text)])."""
    rules, strange, waiting, start = [], [], "", 0
    with open(path, encoding="utf-8", errors="surrogateescape") as f:
        for number, raw in enumerate(f, 1):
            text = raw.rstrip("\r\n")
            if not waiting:
                start = number
            if text.endswith("\\"):
                waiting += text[:-1]
                continue
            text, waiting = (waiting + text).strip(), ""
            if not text or text.startswith("#"):
                continue
            rule = parse_rule(text, path, start)
            if rule is None:
                strange.append((start, text))
            else:
                rules.append(rule)
    return rules, strange


class Variables:
    """`vars` of the configuration, as `margay --dump-config` prints them."""

    def __init__(self, dump=""):
        self.known = {}
        for line in dump.splitlines():
            name, equals, value = line.partition(" = ")
            if equals and name.startswith(("vars.address-groups.", "vars.port-groups.")):
                self.known[name.rsplit(".", 1)[1]] = value

    def networks(self, text, depth=0):
        """Networks that contain every address of an address group, or None if the addresses are unlimited."""
        networks = []
        for word in self._members(text, depth):
            if word is None:
                return None
            try:
                if "-" in word:
                    first, last = (ipaddress.ip_address(w.strip()) for w in word.split("-"))
                    networks.extend(ipaddress.summarize_address_range(first, last))
                else:
                    networks.append(ipaddress.ip_network(word, strict=False))
            except (ValueError, TypeError):
                return None
        return networks or None

    def port_ranges(self, text, depth=0):
        """Inclusive ranges that contain every port of a port group, or None if the ports are unlimited."""
        ranges = []
        for word in self._members(text, depth):
            if word is None:
                return None
            first, colon, last = word.partition(":")
            try:
                low = int(first) if first else 0
                high = (int(last) if last else 65535) if colon else low
            except ValueError:
                return None
            if not 0 <= low <= high <= 65535:
                return None
            ranges.append((low, high))
        return ranges or None

    def _members(self, text, depth):
        """The members of a group, with nested groups expanded and without negated ones; None means anything."""
        text = text.strip()
        if depth > 16 or text == "any":
            yield None
        elif text.startswith("!"):
            return
        elif text.startswith("$"):
            yield from self._members(self.known.get(text[1:], "any"), depth + 1)
        elif text.startswith("["):
            if not text.endswith("]"):
                yield None
                return
            level, word = 0, []
            for c in text[1:-1] + ",":
                level += (c == "[") - (c == "]")
                if c == "," and level == 0:
                    if inner := "".join(word).strip():
                        yield from self._members(inner, depth + 1)
                    word = []
                else:
                    word.append(c)
        elif text:
            yield text
        else:
            yield None
