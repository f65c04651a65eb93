"""Builds captures of samples: TCP connections, datagrams, ICMP messages and IP packets. Each sample has its own addresses.

A sample of a network defence is a table:

    over    "tcp", "udp", "icmp" or "ip"
    port    the server's port
    client  the client's port (one of its own)
    say     the messages, in order: '>' from the client or '<' from the server, and the bytes, with escapes as in Python ('\\x00');
            for ICMP: type, code, and the bytes after the checksum; for IP: the payload of each packet
    again   how often the last message is repeated, each time in its own segment (0)
    flags   for TCP: packets with these flags instead of a connection ("S", "FPU", "" for none)
    window  for TCP with flags: the window that the packets announce (65535)
    times   how often it happens, each time from another port of the client (1)
    apart   microseconds from one time to the next (1000)
    from    "outside" (the client's address is not in HOME_NET; the default) or "inside": the
            server is outside
    ip      for IP: fields with unusual values: proto, options (hexadecimal), frag (flags and offset), src and dst ("same", "broadcast")
"""
import struct

#: Networks of the samples: HOME_NET and not.
INSIDE, OUTSIDE, MASK = 0x0a000000, 0xc6120000, 0x1ffff
FLAGS = {'F': 1, 'S': 2, 'R': 4, 'P': 8, 'A': 16, 'U': 32}


def number(address):
    """The number of the sample that an address belongs to; None for another address."""
    return address & MASK if address & ~MASK in (INSIDE, OUTSIDE) else None


def checksum(data):
    return ~(int.from_bytes(data + b'\0' * (len(data) & 1), 'big') % 0xffff or 0xffff) & 0xffff


def bytes_of(text):
    return text.encode('latin1').decode('unicode_escape').encode('latin1')


class Capture:
    def __init__(self, path):
        self.file = open(path, 'wb')
        self.now = 1_700_000_000_000_000
        self.id = 0
        self.file.write(struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))

    def ip(self, src, dst, proto, data, options=b'', frag=0x4000, ident=None):
        self.id = self.id + 1 & 0xffff
        words = 5 + len(options) // 4
        head = struct.pack('>BBHHHBBHII', 0x40 | words, 0, words * 4 + len(data), self.id if ident is None else ident, frag, 64, proto,
                           0, src, dst) + options
        head = head[:10] + struct.pack('>H', checksum(head)) + head[12:]
        frame = b'\2\0\0\0\0\2\2\0\0\0\0\1\x08\0' + head + data
        self.now += 50
        self.file.write(struct.pack('<IIII', *divmod(self.now, 1_000_000), len(frame), len(frame)) + frame)

    def tcp(self, src, dst, sport, dport, seq, ack, flags, data=b'', window=65535):
        self.ip(src, dst, 6, struct.pack('>HHIIBBHHH', sport, dport, seq & 0xffffffff, ack & 0xffffffff, 0x50, flags, window, 0, 0) + data)

    def connection(self, c, s, sport, dport, say):
        """A connection on which the two sides say this: (from the client, bytes)."""
        up = lambda a, b, flags, data=b'': self.tcp(c, s, sport, dport, a, b, flags, data)
        down = lambda a, b, flags, data=b'': self.tcp(s, c, dport, sport, b, a, flags, data)
        x, y = 101, 301
        up(100, 0, 2)
        down(x, 300, 18)
        up(x, y, 16)
        for client, data in say:
            for at in range(0, len(data), 1400):
                piece = data[at:at + 1400]
                if client:
                    up(x, y, 24, piece)
                    x += len(piece)
                    down(x, y, 16)
                else:
                    down(x, y, 24, piece)
                    y += len(piece)
                    up(x, y, 16)
        up(x, y, 17)
        down(x + 1, y, 17)
        up(x + 1, y + 1, 16)

    def request(self, n, data):
        """A request of HTTP, and its answer."""
        reply = b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'
        self.connection(INSIDE + n, OUTSIDE + n, 1024 + n % 60000, 80, [(True, data), (False, reply)])

    def sample(self, n, sample):
        """A sample of a network defence."""
        known = {'over', 'port', 'client', 'say', 'flags', 'times', 'apart', 'from', 'ip', 'again', 'window'}
        if set(sample) - known:
            raise ValueError(f'a sample has {", ".join(sorted(set(sample) - known))}, which means nothing')
        c, s = OUTSIDE + n, INSIDE + n
        if sample.get('from') == 'inside':
            c, s = s, c
        say = [(text[0] == '>', bytes_of(text[1:])) for text in sample.get('say', ['>'])]
        say += say[-1:] * sample.get('again', 0)
        port, over = sample.get('port', 0), sample['over']
        for i in range(sample.get('times', 1)):
            begin, sport = self.now, sample.get('client', 20000 + (n * 7 + i) % 40000)
            if over == 'tcp' and 'flags' in sample:
                for flags in sample['flags']:
                    self.tcp(c, s, sport, port, 100, 0, sum(FLAGS[f] for f in flags), say[0][1], sample.get('window', 65535))
            elif over == 'tcp':
                self.connection(c, s, sport, port, say)
            else:
                for client, data in say:
                    a, b, ports = (c, s, (sport, port)) if client else (s, c, (port, sport))
                    if over == 'udp':
                        self.ip(a, b, 17, struct.pack('>HHHH', *ports, 8 + len(data), 0) + data)
                    elif over == 'icmp':
                        data = data[:2] + b'\0\0' + data[2:]
                        self.ip(a, b, 1, data[:2] + struct.pack('>H', checksum(data)) + data[4:])
                    elif over == 'ip':
                        self.odd(a, b, data, sample.get('ip', {}))
                    else:
                        raise ValueError(f'a sample goes over {over}, which is unknown')
            self.now = max(self.now, begin + sample.get('apart', 1000))
        self.now += 2_000_000

    def odd(self, src, dst, data, fields):
        src = dst if fields.get('src') == 'same' else src
        frags = fields.get('frag', [0x4000])
        for frag in frags:
            self.ip(src, dst, fields.get('proto', 17), data, bytes.fromhex(fields.get('options', '')), frag, 7)
