"""Conversations in other shapes: messages cut, split, joined, left out, repeated, exchanged, or sent by the other side."""
import struct

#: What each shape does to a message, for `sweep --help`.
SHAPES = {
    'cut': 'ends after each length; the conversation continues',
    'end': 'ends after each length, and so does the conversation',
    'split': 'arrives in two segments, divided at each place',
    'join': 'is sent together with the next one of its side',
    'drop': 'is never sent',
    'lose': 'is lost: the capture lacks its segment',
    'repeat': 'is sent twice',
    'swap': 'changes places with the next one',
    'turn': 'is sent by the other side',
    'late': 'is the first one of the conversation',
    'lone': 'and the others of its side are the whole conversation',
}
TCP = 6
SYN, FIN, PSH, ACK = 2, 1, 8, 16


def messages(segments):
    """The payloads of a flow in order, each with its side: (from_client, bytes). Data that was sent again is left out."""
    found, expected = [], {}
    for s in segments:
        transport = 14 + (s.frame[14] & 15) * 4
        payload = s.frame[s.payload:s.end]
        if s.frame[23] == TCP:
            number, flags = struct.unpack('>I', s.frame[transport + 4:transport + 8])[0], s.frame[transport + 13]
            start = expected.setdefault(s.from_client, number + bool(flags & SYN))
            if flags & SYN: continue
            again = (start - number + 2**31) % 2**32 - 2**31
            if again < 0: break
            payload = payload[again:]
            expected[s.from_client] = (start + len(payload)) % 2**32
        if payload: found.append((s.from_client, payload))
    return found


def shaped(said, shape, n, at):
    """The messages of one variant; a lost one has its length instead of bytes."""
    side, text = said[n]
    before, behind = said[:n], said[n + 1:]
    if shape == 'cut': return before + [(side, text[:at])] + behind
    if shape == 'end': return before + [(side, text[:at])]
    if shape == 'split': return before + [(side, text[:at]), (side, text[at:])] + behind
    if shape == 'drop': return before + behind
    if shape == 'lose': return before + [(side, len(text))] + behind
    if shape == 'repeat': return before + [said[n]] + said[n:]
    if shape == 'swap': return before + behind[:1] + [said[n]] + behind[1:]
    if shape == 'turn': return before + [(not side, text)] + behind
    if shape == 'late': return said[n:]
    if shape == 'lone': return [m for m in said if m[0] == side]
    follows = next((i for i, m in enumerate(behind) if m[0] == side), None)
    if follows is None: return said
    return before + [(side, text + behind[follows][1])] + behind[:follows] + behind[follows + 1:]


def variants(said, chosen, packets, length, over_tcp):
    """(message, place, shape) of each variant."""
    for shape in chosen:
        if not over_tcp and shape in ('split', 'lose', 'join'): continue
        for n, (_, text) in enumerate(said):
            if packets and n + 1 not in packets: continue
            if shape == 'swap' and n + 1 == len(said): continue
            if shape == 'lone' and n and said[n][0] == said[0][0]: continue
            places = range(shape != 'cut', min(len(text), length)) if shape in ('cut', 'end', 'split') else [0]
            yield from ((n, at, shape) for at in places)


class Conversation:
    """Writes messages as the packets of a connection between a client's address and the flow's server."""

    def __init__(self, sample, server_port):
        transport = 14 + (sample.frame[14] & 15) * 4
        ports = sample.frame[transport:transport + 2], sample.frame[transport + 2:transport + 4]
        addresses = sample.frame[26:30], sample.frame[30:34]
        self.server, self.protocol = addresses[sample.from_client], sample.frame[23]
        self.ports = ports if sample.from_client else ports[::-1]
        if server_port: self.ports = self.ports[0], struct.pack('>H', server_port)

    def frame(self, client, from_client, body):
        ends = (client, self.server) if from_client else (self.server, client)
        ip = struct.pack('>BBHHHBBH', 0x45, 0, 20 + len(body), 0, 0, 64, self.protocol, 0) + ends[0] + ends[1]
        return bytes(6) + bytes(5) + b'\1\x08\0' + ip + body

    def packets(self, client, said):
        """The frames; a connection over TCP begins with a handshake and is closed by its client."""
        if self.protocol != TCP:
            for side, text in said:
                ports = self.ports if side else self.ports[::-1]
                yield self.frame(client, side, ports[0] + ports[1] + struct.pack('>HH', 8 + len(text), 0) + text)
            return
        sent = {True: 1000, False: 5000}

        def segment(side, flags, text=b''):
            ports = self.ports if side else self.ports[::-1]
            head = ports[0] + ports[1] + struct.pack('>IIBBHHH', sent[side], sent[not side] if flags & ACK else 0, 0x50, flags, 65535, 0, 0)
            sent[side] += len(text) + bool(flags & (SYN | FIN))
            return self.frame(client, side, head + text)

        yield segment(True, SYN)
        yield segment(False, SYN | ACK)
        yield segment(True, ACK)
        for side, text in said:
            if isinstance(text, int): sent[side] += text
            elif text: yield segment(side, PSH | ACK, text)
            else: continue
            yield segment(not side, ACK)
        for side in True, False:
            yield segment(side, FIN | ACK)
            yield segment(not side, ACK)
