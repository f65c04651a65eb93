"""Attacks on decoding, defragmentation and the flow table."""
import os
import struct

from . import FLOW, attack
from .wire import ACK, CLIENT, SERVER, SYN, address, ipv4, ipv6, tcp, udp

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEFRAG = FLOW + ('defrag.memcap',)
SIX = [bytes.fromhex('20010db8000000000000000000000001'), bytes.fromhex('20010db8000000000000000000000002')]


def collisions():
    """Clients, as address and port, of datagrams to 192.0.2.2:9 whose flows share a bucket of the table whose key --no-random gives."""
    with open(f'{ROOT}/bench/collisions.bin', 'rb') as f:
        data = f.read()
    return [struct.unpack_from('>IH', data, at) for at in range(0, len(data), 6)]


def collide(wire):
    chosen = collisions()
    # Newest last in the bucket: each lookup of the first walks all that came after it.
    while not wire.full:
        for n, (host, port) in enumerate(chosen):
            wire.udp(b'x', address(host), SERVER, port, 9)
            if n % 2:
                wire.udp(b'x', address(chosen[0][0]), SERVER, chosen[0][1], 9)
            if wire.full:
                break


@attack('flow-collisions', counters=['flow.chain_evicted'], caps=FLOW, options=['--no-random'])
def flow_collisions(wire):
    """flows that share a bucket of the flow table, by somebody who knows its key"""
    collide(wire)


@attack('flow-collisions-unkeyed', caps=FLOW)
def flow_collisions_unkeyed(wire):
    """the same flows, where the key is random"""
    collide(wire)


@attack('half-open', counters=['flow.emerg_mode_entered', 'flow.get_used'], caps=FLOW + ('stream.memcap',))
def half_open(wire):
    """connections that are never completed, each from another address"""
    while not wire.full:
        src, port = address(wire.draw.getrandbits(32)), wire.draw.randrange(1024, 65536)
        wire.ip(ipv4(src, SERVER, 6, tcp(src, SERVER, port, 80, wire.draw.getrandbits(32), 0, SYN)))


@attack('one-packet-flows', counters=['flow.emerg_mode_entered', 'flow.get_used'], caps=FLOW)
def one_packet_flows(wire):
    """datagrams of one byte, each of a flow of its own"""
    while not wire.full:
        wire.udp(b'x', address(wire.draw.getrandbits(32)), SERVER, wire.draw.randrange(1024, 65536), 9)


@attack('tiny-packets', caps=FLOW)
def tiny_packets(wire):
    """the smallest packets of one flow"""
    while not wire.full:
        wire.udp(b'')


@attack('acknowledgements', caps=FLOW + ('stream.memcap',))
def acknowledgements(wire):
    """segments without data that acknowledge again and again"""
    c = wire.connect(80)
    while not wire.full:
        c.segment(wire.draw.getrandbits(1), ACK)


@attack('tiny-fragments', caps=DEFRAG)
def tiny_fragments(wire):
    """datagrams in fragments of eight bytes"""
    ident = 0
    while not wire.full:
        ident += 1
        whole = udp(40000, 9, bytes(1392))
        for at in range(0, len(whole), 8):
            wire.ip(ipv4(CLIENT, SERVER, 17, whole[at:at + 8], ident, at, at + 8 < len(whole)))


@attack('tiny-fragments-reversed', caps=DEFRAG)
def tiny_fragments_reversed(wire):
    """the largest datagrams in fragments of eight bytes, last one first"""
    ident = 0
    while not wire.full:
        ident += 1
        whole = udp(40000, 9, bytes(65000))
        for at in reversed(range(0, len(whole), 8)):
            wire.ip(ipv4(CLIENT, SERVER, 17, whole[at:at + 8], ident, at, at + 8 < len(whole)))
            if wire.full:
                break


@attack('held-fragments', counters=['defrag.tracker_hard_reuse'], caps=DEFRAG)
def held_fragments(wire):
    """first fragments of datagrams that are never completed"""
    while not wire.full:
        src = address(wire.draw.getrandbits(32))
        wire.ip(ipv4(src, SERVER, 17, udp(40000, 9, b'x' * 24), wire.draw.getrandbits(16), 0, True))


@attack('overlapping-fragments', caps=DEFRAG)
def overlapping_fragments(wire):
    """fragments that overlap those before in all ways, of one datagram after another"""
    ident = 0
    while not wire.full:
        ident += 1
        for _ in range(200):
            at, length = wire.draw.randrange(0, 1400) & ~7, wire.draw.randrange(8, 64) & ~7
            wire.ip(ipv4(CLIENT, SERVER, 17, bytes([ident & 255]) * length, ident, at, True))
        wire.ip(ipv4(CLIENT, SERVER, 17, b'end', ident, 1408, False))


@attack('ip-options', caps=FLOW)
def ip_options(wire):
    """IPv4 headers full of options"""
    options = [b'\1' * 40, b'\x44\x28\x05\x00' + bytes(36), b'\x07\x27\x04' + bytes(37), b'\x82\x0b' + bytes(9) + b'\1' * 29]
    n = 0
    while not wire.full:
        n += 1
        wire.ip(ipv4(CLIENT, SERVER, 17, udp(40000, 9, b''), options=options[n % len(options)]))


@attack('extension-headers', caps=FLOW)
def extension_headers(wire):
    """IPv6 packets with as many extension headers as fit, each full of options of one byte"""
    def chain(count, each):
        data, following = udp(40000, 9, b''), 17
        for _ in range(count):
            # Destination options (RFC 8200 section 4.6): so many of one byte of padding.
            data = struct.pack('>BB', following, each) + b'\0' * (6 + 8 * each) + data
            following = 60
        return following, data
    kinds = [chain(100, 0), chain(5, 16), chain(1, 160)]
    n = 0
    while not wire.full:
        n += 1
        following, data = kinds[n % 3]
        wire.ip(ipv6(*SIX, following, data))


@attack('deep-tunnels', caps=FLOW)
def deep_tunnels(wire):
    """packets within packets within packets, by several kinds of tunnel"""
    def wrap(inner, kind):
        if kind == 0:
            return ipv4(CLIENT, SERVER, 4, inner)
        if kind == 1:
            return ipv4(CLIENT, SERVER, 47, b'\0\0\x08\0' + inner)
        ethernet = bytes(12) + b'\x08\0' + inner
        return ipv4(CLIENT, SERVER, 17, udp(40000, 4789, b'\x08\0\0\0\0\0\1\0' + ethernet))
    n = 0
    while not wire.full:
        n += 1
        packet = ipv4(CLIENT, SERVER, 17, udp(40000, 9, b'x'))
        for depth in range(40):
            outer = wrap(packet, (n + depth) % 3 if n % 2 else 0)
            if len(outer) > 1400:
                break
            packet = outer
        wire.ip(packet)


@attack('stacked-tags', caps=FLOW)
def stacked_tags(wire):
    """frames with as many VLAN tags, or MPLS labels, as fit"""
    n = 0
    while not wire.full:
        n += 1
        ip = ipv4(CLIENT, SERVER, 17, udp(40000, 9, b''))
        if n % 2:
            wire.frame(0x8847, b'\0\0\0\x40' * 60 + b'\0\0\1\x40' + ip)
        else:
            wire.frame(0x8100, b'\0\1\x81\0' * 60 + b'\0\1\x08\0' + ip)


@attack('broken-headers', caps=FLOW)
def broken_headers(wire):
    """packets of which each header has something wrong"""
    while not wire.full:
        good = ipv4(CLIENT, SERVER, 6, tcp(CLIENT, SERVER, 1, 2, 3, 4, wire.draw.getrandbits(8), b'', bytes(
            wire.draw.getrandbits(8) for _ in range(40))))
        broken = bytearray(good)
        for _ in range(4):
            broken[wire.draw.randrange(len(broken))] = wire.draw.getrandbits(8)
        wire.frame(0x800, bytes(broken))
