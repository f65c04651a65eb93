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
