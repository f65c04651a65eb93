"""Builds frames for attacks byte by byte, identical for the same seed on every machine."""
import random
import struct

import pcap

SYN, FIN, RST, PSH, ACK = 2, 1, 4, 8, 16
MSS = 1448


def words16(data):
    data += b'\0' * (len(data) % 2)
    total = sum(struct.unpack(f'>{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def address(n):
    """The IPv4 address of that number."""
    return struct.pack('>I', n)


CLIENT, SERVER = address(0x0a000001), address(0xc0000202)


def ipv4(src, dst, proto, data, ident=0, offset=0, more=False, ttl=64, options=b''):
    options += b'\0' * (-len(options) % 4)
    flags = offset // 8 | (0x2000 if more else 0)
    words = 5 + len(options) // 4
    head = struct.pack('>BBHHHBBH', 0x40 | words, 0, words * 4 + len(data), ident & 0xffff, flags, ttl, proto, 0)
    head += src + dst + options
    return head[:10] + struct.pack('>H', words16(head)) + head[12:] + data


def ipv6(src, dst, proto, data):
    return struct.pack('>IHBB', 0x60000000, len(data), proto, 64) + src + dst + data


def udp(sport, dport, data):
    """Without a checksum, which IPv4 allows."""
    return struct.pack('>HHHH', sport, dport, 8 + len(data), 0) + data


def tcp(src, dst, sport, dport, seq, ack, flags, data=b'', options=b'', window=65535):
    options += b'\1' * (-len(options) % 4)
    head = struct.pack('>HHIIBBHHH', sport, dport, seq & 0xffffffff, ack & 0xffffffff, (5 + len(options) // 4) << 4, flags,
                       window, 0, 0) + options
    pseudo = src + dst + struct.pack('>BBH', 0, 6, len(head) + len(data))
    check = words16(pseudo + head + data)
    return head[:16] + struct.pack('>H', check) + head[18:] + data


class Wire:
    """Collects frames of Ethernet until there is enough of them: `size` bytes of an Ethernet line (see `line`)."""

    def __init__(self, size, seed=1):
        self.size, self.draw = size, random.Random(seed)
        self.frames, self.line = [], 0
        self.ports = 1024

    @property
    def full(self):
        return self.line >= self.size

    def frame(self, kind, data):
        frame = b'\2\0\0\0\0\2\2\0\0\0\0\1' + struct.pack('>H', kind) + data
        self.frames.append(frame)
        self.line += line(len(frame))

    def ip(self, data):
        self.frame(0x800 if data[0] >> 4 == 4 else 0x86dd, data)

    def udp(self, data, src=CLIENT, dst=SERVER, sport=40000, dport=9):
        self.ip(ipv4(src, dst, 17, udp(sport, dport, data)))

    def port(self):
        """A client's port that no connection had before."""
        self.ports += 1
        if self.ports > 65000:
            self.ports = 1025
        return self.ports

    def connect(self, dport, src=None, dst=SERVER):
        return Connection(self, src or address(0x0a000000 + self.draw.getrandbits(24)), dst, self.port(), dport)

    def write(self, path):
        # 10 microseconds apart.
        pcap.write(path, ((1_700_000_000 * 10**6 + n * 10, frame.ljust(60, b'\0')) for n, frame in enumerate(self.frames)))


def line(length):
    """Bytes that a frame of that length takes of an Ethernet line: at least 60, 4 of checksum, 20 of preamble and gap."""
    return max(length, 60) + 24


class Connection:
    """A TCP connection; `say` sends what one side says in segments, acknowledged now and then."""

    def __init__(self, wire, src, dst, sport, dport):
        self.wire, self.ends, self.ports = wire, (src, dst), (sport, dport)
        self.next = [1000, 5000]
        self.segment(0, SYN, options=b'\2\4\5\xb4')
        self.next[0] += 1
        self.segment(1, SYN | ACK, options=b'\2\4\5\xb4')
        self.next[1] += 1
        self.segment(0, ACK)

    def segment(self, side, flags, data=b'', seq=None, options=b''):
        src, dst = self.ends[side], self.ends[1 - side]
        seq = self.next[side] if seq is None else seq
        ack = self.next[1 - side] if flags & ACK else 0
        ports = self.ports[side], self.ports[1 - side]
        self.wire.ip(ipv4(src, dst, 6, tcp(src, dst, *ports, seq, ack, flags, data, options)))

    def say(self, side, data, mss=MSS, acks=8):
        for n, at in enumerate(range(0, len(data), mss)):
            part = data[at:at + mss]
            self.segment(side, ACK | PSH, part)
            self.next[side] += len(part)
            if n % acks == acks - 1 or at + mss >= len(data):
                self.segment(1 - side, ACK)

    def close(self):
        self.segment(0, FIN | ACK)
        self.next[0] += 1
        self.segment(1, FIN | ACK)
        self.next[1] += 1
        self.segment(0, ACK)
