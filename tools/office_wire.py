"""Packets of many conversations at once, written as a capture to a pipe. Checksums of TCP and UDP are left out: the reader runs with -k none."""
import heapq
import struct

SYN, FIN, PSH, ACK = 2, 1, 8, 16
#: Bytes of a segment, and segments that a sender sends at once.
SEGMENT, BURST = 1448, 16
RTT = 0.02


class Wire:
    """A link and its clock. A conversation is a generator: it writes packets and yields the seconds until its next ones."""

    def __init__(self, out, start):
        self.out, self.now, self.ident = out, start, 0
        self.bytes = self.packets = self.order = 0
        self.waiting = []
        self.said = {}
        out.write(struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))

    def start(self, conversation, after=0.0):
        self.order += 1
        heapq.heappush(self.waiting, (self.now + after, self.order, conversation))

    def run(self, until=None):
        """Runs what is due before this time, or everything."""
        while self.waiting and (until is None or self.waiting[0][0] < until):
            when, order, conversation = heapq.heappop(self.waiting)
            self.now = max(self.now, when)
            wait = next(conversation, None)
            if wait is not None: heapq.heappush(self.waiting, (self.now + wait, order, conversation))
        if until is not None: self.now = max(self.now, until)

    def frame(self, src, dst, proto, l4, data):
        self.ident = (self.ident + 1) & 0xffff
        n = 20 + len(l4) + len(data)
        packet = b'\2\0\0\0\0\2\2\0\0\0\0\1\x08\0' + struct.pack('>BBHHHBBH', 0x45, 0, n, self.ident, 0x4000, 64, proto, 0) + src + dst + l4 + data
        if len(packet) < 60: packet = packet.ljust(60, b'\0')
        micros = int(self.now * 1e6)
        self.out.write(struct.pack('<IIII', micros // 10**6, micros % 10**6, len(packet), len(packet)) + packet)
        self.bytes += len(packet)
        self.packets += 1

    def udp(self, a, b, data):
        self.frame(a[0], b[0], 17, struct.pack('>HHHH', a[1], b[1], 8 + len(data), 0), data)

    def tcp(self, client, server, turns, kind):
        """A connection. A turn is (from the client, bytes), or seconds of silence. What the client says is kept for the report."""
        said = self.said[client, server] = (kind, [])
        end = {True: (client, server), False: (server, client)}
        seq = {True: self.ident * 7919, False: self.ident * 104729}
        def send(mine, flags, data=b''):
            a, b = end[mine]
            self.frame(a[0], b[0], 6, struct.pack('>HHIIBBHHH', a[1], b[1], seq[mine] & 0xffffffff, seq[not mine] & 0xffffffff if flags & ACK else 0, 0x50, flags, 64240, 0, 0), data)
        send(True, SYN); seq[True] += 1
        yield RTT / 2
        send(False, SYN | ACK); seq[False] += 1
        yield RTT / 2
        send(True, ACK)
        for turn in turns:
            if not isinstance(turn, tuple):
                yield turn
                continue
            mine, data = turn
            if mine: said[1].append(data)
            for n, at in enumerate(range(0, len(data), SEGMENT)):
                piece = data[at:at + SEGMENT]
                send(mine, ACK | PSH, piece); seq[mine] += len(piece)
                if n % 2: send(not mine, ACK)
                if n % BURST == BURST - 1: yield 0.004
            yield RTT / 2
            send(not mine, ACK)
            yield 0.0005
        send(True, FIN | ACK); seq[True] += 1
        yield RTT / 2
        send(False, FIN | ACK); seq[False] += 1
        yield RTT / 2
        send(True, ACK)
