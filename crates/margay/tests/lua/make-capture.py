#!/usr/bin/env python3
"""Writes packets.pcap, the capture that scripts are tested on: DNS, HTTP with bodies, SSH's banners, a mail, a TLS handshake
with a certificate, and a ping. The same bytes every time."""
import os, struct

T0 = 1_700_000_000
packets, clock = [], [0]
here = os.path.dirname(os.path.abspath(__file__))


def csum(b):
    if len(b) % 2: b += b'\0'
    s = sum(struct.unpack(f'>{len(b) // 2}H', b))
    while s >> 16: s = (s & 0xffff) + (s >> 16)
    return ~s & 0xffff


def address(a): return bytes(map(int, a.split('.')))


def ip(src, dst, proto, payload):
    h = struct.pack('>BBHHHBBH', 0x45, 0, 20 + len(payload), len(packets) + 1, 0x4000, 64, proto, 0) + address(src) + address(dst)
    h = h[:10] + struct.pack('>H', csum(h)) + h[12:]
    clock[0] += 1000
    packets.append((clock[0], b'\2\0\0\0\0\2\2\0\0\0\0\1\x08\0' + h + payload))


def l4sum(src, dst, proto, seg):
    return csum(address(src) + address(dst) + struct.pack('>BBH', 0, proto, len(seg)) + seg)


def tcp(src, sport, dst, dport, seq, ack, flags, data=b''):
    seg = struct.pack('>HHIIBBHHH', sport, dport, seq, ack, 0x50, flags, 29200, 0, 0) + data
    ip(src, dst, 6, seg[:16] + struct.pack('>H', l4sum(src, dst, 6, seg)) + seg[18:])


def udp(src, sport, dst, dport, data):
    seg = struct.pack('>HHHH', sport, dport, 8 + len(data), 0) + data
    ip(src, dst, 17, seg[:6] + struct.pack('>H', l4sum(src, dst, 17, seg)) + seg[8:])


def conversation(client, cport, server, sport, turns):
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


def name(text): return b''.join(bytes([len(l)]) + l.encode() for l in text.split('.')) + b'\0'


C, S = '192.168.1.10', '203.0.113.5'

# 1, 2: DNS
question = name('www.example.org') + struct.pack('>HH', 1, 1)
udp(C, 40000, '192.168.1.1', 53, struct.pack('>HHHHHH', 0x1234, 0x0100, 1, 0, 0, 0) + question)
answers = name('www.example.org') + struct.pack('>HHIH', 5, 1, 300, 2) + b'\xc0\x10'
answers += name('example.org') + struct.pack('>HHIH', 1, 1, 60, 4) + address(S)
authority = name('example.org') + struct.pack('>HHIH', 2, 1, 900, len(name('ns.example.org'))) + name('ns.example.org')
udp('192.168.1.1', 53, C, 40000, struct.pack('>HHHHHH', 0x1234, 0x8183, 1, 2, 1, 0) + question + answers + authority)

# HTTP
conversation(C, 41000, S, 80, [
    (True, b'POST /a%2fb/x.php?q=1 HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: curl/8.0\r\nCookie: id=7\r\n'
           b'Content-Type: text/plain\r\nContent-Length: 11\r\n\r\nhello=world'),
    (False, b'HTTP/1.1 200 OK\r\nServer: nginx\r\nSet-Cookie: a=b\r\nContent-Type: text/html\r\n'
            b'Content-Disposition: attachment; filename="page.html"\r\nContent-Length: 26\r\n\r\n<html>the answer</html>\n\n\n'),
])

# SSH
conversation(C, 41001, S, 22, [
    (False, b'SSH-2.0-OpenSSH_9.6\r\n'),
    (True, b'SSH-2.0-PuTTY_0.80\r\n'),
])

# SMTP
conversation(C, 41002, S, 25, [
    (False, b'220 mx.example.org ESMTP\r\n'), (True, b'EHLO pc.example.com\r\n'), (False, b'250 mx.example.org\r\n'),
    (True, b'MAIL FROM:<alice@example.com>\r\n'), (False, b'250 ok\r\n'),
    (True, b'RCPT TO:<bob@example.org>\r\n'), (False, b'250 ok\r\n'),
    (True, b'RCPT TO:<carol@example.org>\r\n'), (False, b'250 ok\r\n'),
    (True, b'DATA\r\n'), (False, b'354 go on\r\n'),
    (True, b'From: Alice <alice@example.com>\r\nTo: bob@example.org\r\nSubject: hello\r\nX-Sender: test one\r\n'
           b'MIME-Version: 1.0\r\nContent-Type: text/plain\r\nContent-Transfer-Encoding: 7bit\r\n\r\nA mail.\r\n.\r\n'),
    (False, b'250 queued\r\n'), (True, b'QUIT\r\n'), (False, b'221 bye\r\n'),
])

# TLS 1.2
def handshake(kind, body): return bytes([kind]) + len(body).to_bytes(3, 'big') + body
def record(kind, body): return bytes([kind, 3, 3]) + struct.pack('>H', len(body)) + body
host = b'tls.example.org'
extension = struct.pack('>HHHBH', 0, len(host) + 5, len(host) + 3, 0, len(host)) + host
client = b'\3\3' + bytes(range(32)) + b'\0' + struct.pack('>HHH', 4, 0xc02f, 0x009c) + b'\1\0' + struct.pack('>H', len(extension)) + extension
server = b'\3\3' + bytes(range(32, 64)) + b'\0' + struct.pack('>HB', 0xc02f, 0)
der = open(os.path.join(here, '../../../app/tests/tls-certificate.der'), 'rb').read()
chain = len(der).to_bytes(3, 'big') + der
certificate = handshake(11, len(chain).to_bytes(3, 'big') + chain)
conversation(C, 41003, S, 443, [
    (True, record(22, handshake(1, client))),
    (False, record(22, handshake(2, server)) + record(22, certificate) + record(22, handshake(14, b''))),
    (True, record(22, handshake(11, len(chain).to_bytes(3, 'big') + chain)) + record(22, handshake(16, b'\x20' + bytes(32))) + record(20, b'\1') + record(22, bytes(40))),
    (False, record(20, b'\1') + record(22, bytes(40))),
    (True, record(23, bytes(30))), (False, record(23, bytes(30))),
])

# A ping
echo = struct.pack('>BBHHH', 8, 0, 0, 7, 1) + b'ping'
ip(C, S, 1, echo[:2] + struct.pack('>H', csum(echo)) + echo[4:])

with open(os.path.join(here, 'packets.pcap'), 'wb') as f:
    f.write(struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
    for t, data in packets:
        f.write(struct.pack('<IIII', T0, t, len(data), len(data)) + data)
