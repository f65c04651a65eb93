"""Sends attacks as conversations with ground truth within other traffic, and reports how an inline engine handled them."""
import collections
import html
import os
import struct

import defence_samples

STYLE = '''body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1c2430}
h1{font-size:1.5rem}table{border-collapse:collapse;width:100%}td,th{padding:.3rem .6rem;border-bottom:1px solid #dde3ea;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.ok{color:#11703b}.bad{color:#b3261e;font-weight:600}.cards{display:flex;gap:1rem;flex-wrap:wrap}
.card{border:1px solid #dde3ea;border-radius:.5rem;padding:.6rem 1rem;min-width:9rem}.card b{display:block;font-size:1.6rem}
pre{white-space:pre-wrap;word-break:break-all;background:#f5f7f9;padding:.5rem;margin:.2rem 0;max-height:16rem;overflow:auto}summary{cursor:pointer}'''


class Case:
    """A conversation and what it is: an attack of a technique, or one that must pass."""

    def __init__(self, name, technique, attack, sid, data, text):
        self.name, self.technique, self.attack, self.sid, self.data, self.text = name, technique, attack, sid, data, text


def records(path):
    """Time in microseconds and frame of every packet of a capture with Ethernet and time stamps in micro- or nanoseconds."""
    with open(path, 'rb') as f:
        head = f.read(24)
        magic, = struct.unpack('<I', head[:4])
        if magic not in (0xa1b2c3d4, 0xa1b23c4d):
            raise SystemExit(f'{path} is no little-endian pcap file')
        unit = 1 if magic == 0xa1b2c3d4 else 1000
        while len(record := f.read(16)) == 16:
            seconds, part, length, _ = struct.unpack('<IIII', record)
            yield seconds * 1_000_000 + part // unit, f.read(length)


def ends(frame):
    """The number of the case that a frame belongs to."""
    if frame[12:14] != b'\x08\0':
        return None
    source, target = struct.unpack('>II', frame[26:34])
    return next((n for n in map(defence_samples.number, (source, target)) if n is not None), None)


def make(cases, path, background, share):
    """Writes the cases into a capture: alone, or so that `share` of its packets are theirs. Returns how many packets each side has."""
    capture = defence_samples.Capture(path)
    for n, case in enumerate(cases):
        if isinstance(case.data, bytes):
            capture.request(n, case.data)
        else:
            capture.sample(n, case.data)
    capture.file.close()
    if not background:
        return None
    groups = collections.defaultdict(list)
    for time, frame in records(path):
        groups[ends(frame)].append((time, frame))
    attacks = sum(map(len, groups.values()))
    traffic = list(records(background))
    wanted = int(attacks * (1 - share) / share)
    span = traffic[-1][0] - traffic[0][0] + 1000
    packets = []
    # The traffic again and again, as often as the share takes; where that is less than once, what comes first of it.
    for k in range(max(1, -(-wanted // len(traffic)))):
        packets += [(time + k * span, frame) for time, frame in traffic]
    packets = packets[:max(wanted, 1)]
    begin, length = packets[0][0], packets[-1][0] - packets[0][0]
    for place, group in enumerate(groups.values()):
        shift = begin + length * place // len(groups) - group[0][0]
        packets += [(time + shift, frame) for time, frame in group]
    packets.sort(key=lambda p: p[0])
    with open(path, 'wb') as f:
        f.write(struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 262144, 1))
        for time, frame in packets:
            f.write(struct.pack('<IIII', *divmod(time, 1_000_000), len(frame), len(frame)) + frame)
    return attacks, len(packets) - attacks


def text_of(data):
    text = data.decode('utf-8', 'backslashreplace') if isinstance(data, bytes) else '\n'.join(data.get('say', [str(data)]))
    return text[:3000] + (' …' if len(text) > 3000 else '')


def write(path, cases, blocked, noticed, others, packets):
    """The report, with the rules that blocked something of the `others`: what was stopped, missed and stopped by mistake, by technique; the conversations behind a click."""
    rows = collections.defaultdict(list)
    for n, case in enumerate(cases):
        rows[case.technique, case.name].append((case, sorted(blocked.get(n, ())), sorted(noticed.get(n, ()))))
    attacks = [(c, b) for r in rows.values() for c, b, _ in r if c.attack]
    passing = [(c, b) for r in rows.values() for c, b, _ in r if not c.attack]
    stopped, wrong = sum(bool(b) for _, b in attacks), sum(bool(b) for _, b in passing)
    e = html.escape
    out = [f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Attacks stopped</title><style>{STYLE}</style><h1>Attacks stopped, and nobody harmed</h1>',
           '<p>Each attack is a conversation of its own. It counts as stopped when the engine blocked it, and as missed otherwise, also where the engine raised '
           'an alert. What must pass is as near to an attack as ordinary traffic comes.</p><div class="cards">']
    for label, value in (('attacks', len(attacks)), ('stopped', f'{stopped} ({100 * stopped / max(1, len(attacks)):.1f} %)'), ('missed', len(attacks) - stopped),
                         ('must pass', len(passing)), ('stopped by mistake', wrong)):
        out.append(f'<div class="card">{label}<b>{value}</b></div>')
    out.append('</div>')
    if packets:
        out.append(f'<p>{packets[0]:,} packets of attacks among {packets[1]:,} packets of other traffic ({100 * packets[0] / sum(packets):.2f} %).'
                   f' In the other traffic {len(others)} rules blocked something' + (': ' + ', '.join(map(str, sorted(others))) if others else '') + '.</p>')
    out.append('<h2>By technique</h2><table><tr><th>technique<th>attack<th class="n">attacks<th class="n">stopped<th class="n">missed<th class="n">by mistake</tr>')
    for (technique, name), found in sorted(rows.items()):
        a = [b for c, b, _ in found if c.attack]
        hit, false = sum(map(bool, a)), sum(bool(b) for c, b, _ in found if not c.attack)
        inner = []
        for case, by, seen in found:
            good = bool(by) == case.attack
            says = 'blocked by ' + ', '.join(map(str, by)) if by else 'alert of ' + ', '.join(map(str, seen)) if seen else 'passed'
            inner.append(f'<p class="{"ok" if good else "bad"}">{"attack" if case.attack else "must pass"}: {says}</p><pre>{e(case.text)}</pre>')
        out.append(f'<tr><td>{e(technique)}<td><details><summary>{e(name)}</summary>{"".join(inner)}</details><td class="n">{len(a)}<td class="n">{hit}'
                   f'<td class="n{" bad" if hit < len(a) else ""}">{len(a) - hit}<td class="n{" bad" if false else ""}">{false}</tr>')
    out.append('</table>')
    with open(path, 'w', encoding='utf-8', errors='backslashreplace') as f:
        f.write('\n'.join(out))
    print(f'defence: {stopped} of {len(attacks)} attacks stopped, {wrong} of {len(passing)} that must pass; {os.path.relpath(path)}')
