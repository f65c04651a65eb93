"""Reads the packets of a capture that rules can be generated from: IP packets without tunnels, and contiguous TCP data."""
import collections
import dataclasses
import ipaddress
import struct

# Bytes before the IP header, or before an Ethernet type, by link type.
ETHERNET, RAW, SLL, SLL2, NULL = 1, {12, 14, 101, 228, 229}, 113, 276, {0, 108}
MOST_PACKETS = 5000
SNAP = 65535


@dataclasses.dataclass
class Packet:
    number: int
    proto: int
    src: str
    dst: str
    ttl: int
    ident: int = 0
    sport: int = 0
    dport: int = 0
    seq: int = 0
    ack: int = 0
    flags: int = 0
    window: int = 0
    head: bytes = b''       # the header of TCP, UDP or ICMP
    payload: bytes = b''

    @property
    def v6(self): return ':' in self.src


def frames(data):
    """Link type and bytes of each frame of a pcap or pcapng file."""
    if data[:4] == b'\x0a\x0d\x0d\x0a':
        yield from blocks(data)
        return
    order = {b'\xa1\xb2': '>', b'\xd4\xc3': '<', b'\x4d\x3c': '<'}.get(data[:2])
    if order is None: return
    link = struct.unpack(order + 'I', data[20:24])[0] & 0xffff
    at = 24
    while at + 16 <= len(data):
        length = struct.unpack(order + 'I', data[at + 8:at + 12])[0]
        yield link, data[at + 16:at + 16 + length]
        at += 16 + length


def blocks(data):
    """Link type and bytes of each frame of a pcapng file, whose sections may have different byte orders."""
    at, order, links = 0, '<', []
    while at + 12 <= len(data):
        kind = data[at:at + 4]
        if kind == b'\x0a\x0d\x0d\x0a':
            order, links = '<' if data[at + 8:at + 12] == b'\x4d\x3c\x2b\x1a' else '>', []
        number, length = struct.unpack(order + 'II', data[at:at + 8])
        if length < 12: return
        body = data[at + 8:at + length - 4]
        if number == 1: links.append(struct.unpack(order + 'H', body[:2])[0])
        elif number == 6 and len(body) >= 20:
            interface, captured = struct.unpack(order + 'I', body[:4])[0], struct.unpack(order + 'I', body[12:16])[0]
            if interface < len(links): yield links[interface], body[20:20 + captured]
        elif number == 3 and links: yield links[0], body[4:]
        at += length


def network(link, frame):
    """The IP packet in a frame; `None` if it has none."""
    if link in RAW: return frame
    if link in NULL: return frame[4:]
    if link == SLL: kind, frame = frame[14:16], frame[16:]
    elif link == SLL2: kind, frame = frame[:2], frame[20:]
    elif link == ETHERNET: kind, frame = frame[12:14], frame[14:]
    else: return None
    while kind in (b'\x81\x00', b'\x88\xa8') and len(frame) > 4: kind, frame = frame[2:4], frame[4:]
    return frame if kind in (b'\x08\x00', b'\x86\xdd') else None


def packet(number, data):
    """Parses an IP packet; `None` if it is a fragment or invalid."""
    if len(data) < 20: return None
    if data[0] >> 4 == 4:
        length, fragment = (data[0] & 15) * 4, struct.unpack('!H', data[6:8])[0]
        if fragment & 0x3fff or length < 20: return None
        data = data[:struct.unpack('!H', data[2:4])[0] or len(data)]
        p = Packet(number, data[9], str(ipaddress.ip_address(data[12:16])), str(ipaddress.ip_address(data[16:20])), data[8], struct.unpack('!H', data[4:6])[0])
        rest = data[length:]
    elif data[0] >> 4 == 6 and len(data) >= 40:
        p = Packet(number, data[6], str(ipaddress.ip_address(data[8:24])), str(ipaddress.ip_address(data[24:40])), data[7])
        rest = data[40:40 + struct.unpack('!H', data[4:6])[0]]
    else: return None
    if p.proto in (6, 17) and len(rest) >= 8:
        p.sport, p.dport = struct.unpack('!HH', rest[:4])
    if p.proto == 6 and len(rest) >= 20:
        p.seq, p.ack, _, p.flags, p.window = struct.unpack('!IIBBH', rest[4:16])
        p.head, p.payload = rest[:(rest[12] >> 4) * 4], rest[(rest[12] >> 4) * 4:]
    elif p.proto == 17: p.head, p.payload = rest[:8], rest[8:]
    elif p.proto in (1, 58): p.head, p.payload = rest[:8], rest[8:]
    else: p.payload = rest
    return p


@dataclasses.dataclass
class World:
    """The contents of a capture, from which rules are generated."""
    packets: list
    streams: list       # bytes in order, with the packet that began them
    events: list = dataclasses.field(default_factory=list)

    def loaded(self): return [p for p in self.packets if p.payload] or self.packets


def read(path):
    with open(path, 'rb') as f: data = f.read()
    packets = []
    for number, (link, frame) in enumerate(frames(data), 1):
        if number > MOST_PACKETS: break
        inner = network(link, frame[:SNAP])
        if inner and (p := packet(number, inner)): packets.append(p)
    streams, due = {}, {}
    for p in packets:
        if p.proto != 6: continue
        key = p.src, p.dst, p.sport, p.dport
        if p.flags & 2: due[key] = (p.seq + 1) & 0xffffffff
        elif p.payload and due.get(key) == p.seq:
            streams.setdefault(key, (p, bytearray()))[1].extend(p.payload)
            due[key] = (p.seq + len(p.payload)) & 0xffffffff
    return World(packets, [(p, bytes(b)) for p, b in streams.values()])


def values(events, kind, path):
    """The values of a member in the events of one type, each value once."""
    found = collections.Counter()
    for e in events:
        if e.get('event_type') != kind: continue
        todo = [e]
        for name in path.split('.'):
            nexts = []
            for v in todo:
                v = v.get(name) if isinstance(v, dict) else None
                nexts.extend(v if isinstance(v, list) else [v] if v is not None else [])
            todo = nexts
        for v in todo:
            if isinstance(v, (str, int)) and not isinstance(v, bool): found[v] += 1
    return list(found)
