"""Capture files in the classic format: packets with their time in microseconds."""
import struct


def read(path):
    """Returns the link type and the packets of a capture, each with its time; of a capture that is not classic, None. Nanoseconds are cut off."""
    with open(path, 'rb') as f: data = f.read()
    order, unit = {b'\xd4\xc3\xb2\xa1': ('<', 1), b'\xa1\xb2\xc3\xd4': ('>', 1), b'\x4d\x3c\xb2\xa1': ('<', 1000), b'\xa1\xb2\x3c\x4d': ('>', 1000)}.get(data[:4], (None, 1))
    if not order: return None
    found, at = [], 24
    while at + 16 <= len(data):
        seconds, micros, length, _ = struct.unpack(order + 'IIII', data[at:at + 16])
        found.append((seconds * 10**6 + micros // unit, data[at + 16:at + 16 + length])); at += 16 + length
    return struct.unpack(order + 'I', data[20:24])[0] & 0xffff, found


def frames(path):
    """The frames of a classic capture or a pcapng: (link type, time in microseconds, bytes) of each. Ends at what it cannot read."""
    with open(path, 'rb') as f: data = f.read()
    if data[:4] != b'\n\r\r\n':
        link, packets = read(path) or (None, [])
        return [(link, when, frame) for when, frame in packets]
    found, at, order, interfaces = [], 0, '<', []
    while at + 12 <= len(data):
        kind = data[at:at + 4]
        if kind == b'\n\r\r\n': order, interfaces = '<' if data[at + 8:at + 12] == b'\x4d\x3c\x2b\x1a' else '>', []
        length = struct.unpack(order + 'I', data[at + 4:at + 8])[0]
        if length < 12 or at + length > len(data): break
        kind = struct.unpack(order + 'I', kind)[0]
        if kind == 1: interfaces.append((struct.unpack(order + 'H', data[at + 8:at + 10])[0], ticks(data[at + 16:at + length - 4], order)))
        elif kind == 6:
            which, high, low, size, _ = struct.unpack(order + 'IIIII', data[at + 8:at + 28])
            if which >= len(interfaces): break
            link, second = interfaces[which]
            found.append((link, (high << 32 | low) * 10**6 // second, data[at + 28:at + 28 + size]))
        at += length
    return found


def ticks(options, order):
    """The ticks of a second, by the options of an interface in a pcapng (`if_tsresol`)."""
    at = 0
    while at + 4 <= len(options):
        code, size = struct.unpack(order + 'HH', options[at:at + 4])
        if code == 0: break
        if code == 9 and size: return 2**(options[at + 4] & 127) if options[at + 4] & 128 else 10**options[at + 4]
        at += 4 + -size % 4 + size
    return 10**6


def tcp(frame):
    """Ethernet and IP header, TCP header, payload of a frame without VLAN; None unless it is TCP. The payload ends where the IP packet does."""
    if frame[12:14] == b'\x08\0' and frame[23:24] == b'\6': t, end = 14 + (frame[14] & 15) * 4, 14 + int.from_bytes(frame[16:18], 'big')
    elif frame[12:14] == b'\x86\xdd' and frame[20:21] == b'\6': t, end = 54, 54 + int.from_bytes(frame[18:20], 'big')
    else: return None
    if len(frame) < t + 20: return None
    offset = t + (frame[t + 12] >> 4) * 4
    return (frame[:t], frame[t:offset], frame[offset:end]) if offset >= t + 20 else None


#: The beginning of a capture of Ethernet frames.
HEADER = struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1)


def record(when, frame):
    """A frame as a capture has it. `when` is in microseconds."""
    return struct.pack('<IIII', when // 10**6, when % 10**6, len(frame), len(frame)) + frame


def write(path, packets):
    """Writes Ethernet frames, each with its time."""
    with open(path, 'wb') as f:
        f.write(HEADER)
        for when, frame in packets: f.write(record(when, frame))
