"""Packets of many conversations at once, written as a capture to a pipe."""
import heapq

import pcap
from attacks.wire import ACK, FIN, MSS, PSH, SYN, ipv4, tcp, udp

#: Segments that a sender sends at once.
BURST = 16
RTT = 0.02


class Wire:
    """A link and its clock. A conversation is a generator: it writes packets and yields the seconds until its next ones."""

    def __init__(self, out, start):
        self.out, self.now, self.ident = out, start, 0
        self.bytes = self.packets = self.order = 0
        self.waiting = []
        self.said = {}
        out.write(pcap.HEADER)

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

    def frame(self, src, dst, proto, data):
        self.ident = (self.ident + 1) & 0xffff
        packet = (b'\2\0\0\0\0\2\2\0\0\0\0\1\x08\0' + ipv4(src, dst, proto, data, self.ident)).ljust(60, b'\0')
        self.out.write(pcap.record(int(self.now * 1e6), packet))
        self.bytes += len(packet)
        self.packets += 1

    def udp(self, a, b, data):
        self.frame(a[0], b[0], 17, udp(a[1], b[1], data))

    def tcp(self, client, server, turns, kind):
        """A connection. A turn is (from the client, bytes), or seconds of silence. What the client says is kept for the report."""
        said = self.said[client, server] = (kind, [])
        end = {True: (client, server), False: (server, client)}
        seq = {True: self.ident * 7919, False: self.ident * 104729}
        def send(mine, flags, data=b''):
            a, b = end[mine]
            self.frame(a[0], b[0], 6, tcp(a[0], b[0], a[1], b[1], seq[mine], seq[not mine] if flags & ACK else 0, flags, data))
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
            for n, at in enumerate(range(0, len(data), MSS)):
                piece = data[at:at + MSS]
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
