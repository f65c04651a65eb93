"""Shared fixtures: synthetic captures, and the engine."""

import os
import pathlib
import struct
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))


def did_not_run(what, why, kind="left out"):
    """Records that a test cannot run here, also for `make test`. `kind` is `unavailable` if this machine cannot have what is missing."""
    if path := os.environ.get("MARGAY_NOT_RUN"):
        with open(path, "a", encoding="utf-8") as f:
            f.write(f"fleet\t{what}\t{why}\t{kind}\n")
    pytest.skip(why)


@pytest.fixture(scope="session")
def engine():
    """The engine's path: `MARGAY_ENGINE`, or the latest build."""
    found = os.environ.get("MARGAY_ENGINE")
    if not found:
        built = [p for p in (TOP.parent / "target" / kind / "margay" for kind in ("release", "fast", "debug")) if p.exists()]
        if not built:
            did_not_run("hunts", "no engine was built: cargo build --package margay")
        found = str(max(built, key=lambda p: p.stat().st_mtime))
    return found


def checksum(data):
    """The RFC 1071 checksum."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ip(src, dst, proto, payload, ident=0, fragment=0):
    """An IPv4 packet; `fragment` is the field of flags and offset."""
    a, b = (bytes(int(x) for x in host.split(".")) for host in (src, dst))
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), ident, fragment, 64, proto, 0, a, b)
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + payload


def _sum(src, dst, proto, segment, at):
    a, b = (bytes(int(x) for x in host.split(".")) for host in (src, dst))
    value = checksum(a + b + struct.pack(">BBH", 0, proto, len(segment)) + segment)
    return segment[:at] + struct.pack(">H", value) + segment[at + 2 :]


def udp(src, dst, sport, dport, payload):
    """A UDP datagram without its IP header."""
    return _sum(src, dst, 17, struct.pack(">HHHH", sport, dport, 8 + len(payload), 0) + payload, 6)


def tcp(src, dst, sport, dport, flags, seq=1, ack=0, payload=b""):
    """An IPv4 packet with a TCP segment."""
    segment = struct.pack(">HHIIBBHHH", sport, dport, seq, ack, 0x50, flags, 65000, 0, 0) + payload
    return ip(src, dst, 6, _sum(src, dst, 6, segment, 16))


def conversation(src, dst, sport, dport, request, response, start, gap=0.01):
    """A complete TCP connection: (seconds, packet)."""
    syn, ack, push, fin = 2, 16, 24, 17
    a, b = 1 + len(request), 1 + len(response)
    turns = [
        (src, dst, sport, dport, syn, 0, 0, b""), (dst, src, dport, sport, syn | ack, 0, 1, b""), (src, dst, sport, dport, ack, 1, 1, b""),
        (src, dst, sport, dport, push, 1, 1, request), (dst, src, dport, sport, ack, 1, a, b""), (dst, src, dport, sport, push, 1, a, response),
        (src, dst, sport, dport, ack, a, b, b""), (src, dst, sport, dport, fin, a, b, b""), (dst, src, dport, sport, fin, b, a + 1, b""),
        (src, dst, sport, dport, ack, a + 1, b + 1, b""),
    ]  # fmt: skip
    return [(start + n * gap, tcp(*turn)) for n, turn in enumerate(turns)]


def write_pcap(path, packets):
    """A capture of IPv4 packets, ordered by time."""
    with open(path, "wb") as f:
        f.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
        for seconds, packet in sorted(packets, key=lambda p: p[0]):
            f.write(struct.pack("<IIII", int(seconds), round(seconds % 1 * 1e6) % 1_000_000, len(packet), len(packet)) + packet)
    return path
