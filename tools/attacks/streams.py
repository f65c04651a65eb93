"""Attacks on TCP reassembly."""
from . import STREAM, attack
from .wire import ACK, MSS, PSH


@attack('reversed-segments', caps=STREAM)
def reversed_segments(wire):
    """segments that come last one first, a window of them at a time"""
    c = wire.connect(9999)
    while not wire.full:
        starts = list(range(0, 48 * 1024, 64))
        for at in reversed(starts):
            c.segment(0, ACK | PSH, b'r' * 64, c.next[0] + at)
        c.next[0] += 48 * 1024
        c.segment(1, ACK)


@attack('every-second-segment', caps=STREAM)
def every_second_segment(wire):
    """segments with a hole before each, which are filled afterwards from the end"""
    c = wire.connect(9999)
    while not wire.full:
        starts = list(range(0, 32 * 1024, 16))
        for at in starts[1::2] + starts[::2][::-1]:
            c.segment(0, ACK | PSH, b'e' * 16, c.next[0] + at)
        c.next[0] += 32 * 1024
        c.segment(1, ACK)


@attack('shuffled-segments', caps=STREAM)
def shuffled_segments(wire):
    """segments in no order at all"""
    c = wire.connect(9999)
    while not wire.full:
        starts = list(range(0, 60_000, 30))
        wire.draw.shuffle(starts)
        for at in starts:
            c.segment(0, ACK | PSH, b's' * 30, c.next[0] + at)
        c.next[0] += 60_000
        c.segment(1, ACK)


@attack('overlapping-segments', caps=STREAM)
def overlapping_segments(wire):
    """segments that overlap others with other data"""
    c = wire.connect(9999)
    n = 0
    while not wire.full:
        for _ in range(400):
            n += 1
            at = wire.draw.randrange(0, 20_000)
            c.segment(0, ACK | PSH, bytes([n & 255]) * wire.draw.randrange(1, 200), c.next[0] + 1 + at)
        c.say(0, b'o' * 20_300)


@attack('one-byte-segments', caps=STREAM)
def one_byte_segments(wire):
    """a stream of one byte a segment, each acknowledged"""
    c = wire.connect(80)
    text = b'GET /' + b'a' * 500 + b' HTTP/1.1\r\nHost: a\r\n\r\n'
    while not wire.full:
        c.say(0, text, mss=1, acks=1)


@attack('repeated-segments', caps=STREAM)
def repeated_segments(wire):
    """the same data again and again, before it is acknowledged and after"""
    c = wire.connect(9999)
    while not wire.full:
        for _ in range(30):
            c.segment(0, ACK | PSH, b'again' * 280)
        c.next[0] += 1400
        c.segment(1, ACK)
        for _ in range(30):
            c.segment(0, ACK | PSH, b'other' * 280, c.next[0] - 1400)


@attack('unacknowledged-streams', counters=['tcp.segment_memcap_drop'], caps=STREAM)
def unacknowledged_streams(wire):
    """connections that send all they may, which nobody acknowledges"""
    while not wire.full:
        c = wire.connect(9999)
        for n in range(44):
            c.segment(0, ACK | PSH, b'u' * MSS, c.next[0] + n * MSS)


@attack('streams-behind-a-hole', counters=['tcp.segment_memcap_drop'], caps=STREAM)
def behind_a_hole(wire):
    """connections of which one byte is missing, and all that follows is held"""
    while not wire.full:
        c = wire.connect(80)
        for n in range(44):
            c.segment(0, ACK | PSH, b'h' * MSS, c.next[0] + 1 + n * MSS)


@attack('urgent-data', caps=STREAM)
def urgent_data(wire):
    """every segment with urgent data"""
    c = wire.connect(9999)
    while not wire.full:
        c.segment(0, ACK | PSH | 0x20, b'urgent')
        c.next[0] += 6
        c.segment(1, ACK)
