#!/usr/bin/env python3
"""Writes demo.pcap, the capture that `make demo` runs on: an ordinary DNS lookup and web page, a shell's answer coming
back over TCP in pieces, a port scan, and a packet whose IP options are broken. The same bytes every time."""
import os, struct

T0 = 1_700_000_000
packets, clock = [], [0]


def csum(b):
    if len(b) % 2: b += b'\0'
    s = sum(struct.unpack(f'>{len(b) // 2}H', b))
    while s >> 16: s = (s & 0xffff) + (s >> 16)
    return ~s & 0xffff


def ip(src, dst, proto, payload, options=b''):
    src, dst = (bytes(map(int, a.split('.'))) for a in (src, dst))
    n = 20 + len(options)
    h = struct.pack('>BBHHHBBH', 0x40 | n // 4, 0, n + len(payload), len(packets) + 1, 0x4000, 64, proto, 0) + src + dst + options
    h = h[:10] + struct.pack('>H', csum(h)) + h[12:]
    clock[0] += 700
    packets.append((clock[0], b'\2\0\0\0\0\2\2\0\0\0\0\1\x08\0' + h + payload))


def l4sum(src, dst, proto, seg):
    pseudo = bytes(map(int, (src + '.' + dst).split('.'))) + struct.pack('>BBH', 0, proto, len(seg))
    return csum(pseudo + seg)


def tcp(src, sport, dst, dport, seq, ack, flags, data=b''):
    seg = struct.pack('>HHIIBBHHH', sport, dport, seq, ack, 0x50, flags, 29200, 0, 0) + data
    seg = seg[:16] + struct.pack('>H', l4sum(src, dst, 6, seg)) + seg[18:]
    ip(src, dst, 6, seg)


def udp(src, sport, dst, dport, data):
    seg = struct.pack('>HHHH', sport, dport, 8 + len(data), 0) + data
    seg = seg[:6] + struct.pack('>H', l4sum(src, dst, 17, seg)) + seg[8:]
    ip(src, dst, 17, seg)


def conversation(client, cport, server, sport, turns):
    """turns: (from_client, bytes); each piece is a segment of its own and is acknowledged."""
    c, s = 1000, 5000
    tcp(client, cport, server, sport, c, 0, 2); c += 1
    tcp(server, sport, client, cport, s, c, 0x12); s += 1
    tcp(client, cport, server, sport, c, s, 0x10)
    for mine, data in turns:
        if mine:
            tcp(client, cport, server, sport, c, s, 0x18, data); c += len(data)
            tcp(server, sport, client, cport, s, c, 0x10)
        else:
            tcp(server, sport, client, cport, s, c, 0x18, data); s += len(data)
            tcp(client, cport, server, sport, c, s, 0x10)
    tcp(client, cport, server, sport, c, s, 0x11); c += 1
    tcp(server, sport, client, cport, s, c, 0x11); s += 1
    tcp(client, cport, server, sport, c, s, 0x10)


def query(name, answer=b''):
    q = b''.join(bytes([len(p)]) + p.encode() for p in name.split('.')) + b'\0' + struct.pack('>HH', 1, 1)
    return struct.pack('>HHHHHH', 7, 0x8180 if answer else 0x100, 1, 1 if answer else 0, 0, 0) + q + \
        (b'\xc0\x0c' + struct.pack('>HHIH', 1, 1, 300, 4) + answer if answer else b'')


udp('192.168.1.10', 40000, '192.168.1.1', 53, query('example.org'))
udp('192.168.1.1', 53, '192.168.1.10', 40000, query('example.org', bytes((203, 0, 113, 5))))
page = b'<html><body>' + b'hello ' * 200 + b'</body></html>'
conversation('192.168.1.10', 41000, '203.0.113.5', 80, [
    (True, b'GET /index.html HTTP/1.1\r\nHost: example.org\r\nUser-Agent: demo\r\n\r\n'),
    (False, b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n' % len(page)), (False, page)])
conversation('192.168.1.20', 42000, '198.51.100.7', 4444, [
    (True, b'id\n'), (False, b'uid=0(ro'), (False, b'ot) gid=0(root)\n'), (True, b'exit\n')])
for port in range(20, 32):
    tcp('198.51.100.99', 43000 + port, '192.168.1.30', port, 77, 0, 2)
    tcp('192.168.1.30', port, '198.51.100.99', 43000 + port, 0, 78, 0x14)
ip('198.51.100.99', '192.168.1.30', 17, struct.pack('>HHHH', 9, 9, 8, 0), options=b'\x44\x50\x05\x00')

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'demo.pcap'), 'wb') as f:
    f.write(struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
    for us, p in packets: f.write(struct.pack('<IIII', T0 + us // 10**6, us % 10**6, len(p), len(p)) + p)
print(len(packets), 'packets')
