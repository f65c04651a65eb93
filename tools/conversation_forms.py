"""Other forms of the captures of tools/conversations, and what an engine logs of them."""
import argparse, collections, concurrent.futures, glob, json, os, random, shlex, sys

import pcap

SHARED = os.path.realpath(os.environ.get('SHARED') or os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'shared'))


def cut(all_, size):
    """TCP data in segments of `size` bytes; long segments in at most 300. Checksums stay, so the engine needs -k none."""
    for when, frame in all_:
        p = pcap.tcp(frame)
        if not p or len(p[2]) <= size or p[1][13] & 0x27: yield when, frame; continue
        head, tcp, data = p; step = max(size, len(data) // 300); seq = int.from_bytes(tcp[4:8], 'big')
        for at in range(0, len(data), step):
            piece = data[at:at + step]; n = len(tcp) + len(piece)
            length = (16, len(head) - 14 + n) if head[12:14] == b'\x08\0' else (18, n)
            new = head[:length[0]] + length[1].to_bytes(2, 'big') + head[length[0] + 2:]
            yield when, new + tcp[:4] + ((seq + at) & 0xffffffff).to_bytes(4, 'big') + tcp[8:] + piece


def mixed(all_):
    """Neighbouring segments of one direction change places."""
    all_ = list(all_); at = 0
    while at + 1 < len(all_):
        a, b = pcap.tcp(all_[at][1]), pcap.tcp(all_[at + 1][1])
        if a and b and a[2] and b[2] and a[1][:4] == b[1][:4] and not (a[1][13] | b[1][13]) & 7:
            (first, one), (second, other) = all_[at:at + 2]
            all_[at:at + 2] = (first, other), (second, one); at += 1
        at += 1
    return all_


def without_one(all_):
    """A segment in the middle was never seen."""
    all_ = list(all_); data = [i for i, (_, f) in enumerate(all_) if (p := pcap.tcp(f)) and p[2]][2:-1]
    if not data: return all_
    lost = pcap.tcp(all_[random.Random(len(all_)).choice(data)][1])[1][:8]
    return [x for x in all_ if not ((p := pcap.tcp(x[1])) and p[2] and p[1][:8] == lost)]


def client_alone(all_):
    """TCP segments from a lower to a higher port are missing: most of them are the server's."""
    return [x for x in all_ if not ((p := pcap.tcp(x[1])) and p[1][:2] < p[1][2:4])]


FORMS = {'one': lambda p: cut(p, 1), 'seven': lambda p: cut(p, 7), 'mixed': lambda p: mixed(cut(p, 40)),
         'twice': lambda p: (x for x in p for _ in 'ab'), 'midstream': lambda p: list(p)[3:],
         'gap': without_one, 'client': client_alone, 'vlan': lambda p: ((t, f[:12] + b'\x81\0\0\x07' + f[12:]) for t, f in p)}


def vary(folder):
    for path in sorted(glob.glob(os.path.join(folder, '*.pcap'))):
        for name, form in FORMS.items():
            target = os.path.join(folder, name); os.makedirs(target, exist_ok=True)
            pcap.write(os.path.join(target, os.path.basename(path)), form(pcap.read(path)[1]))


# Forms with the same data, and whether datagrams occur as often.
SAME = {'one': True, 'seven': True, 'mixed': True, 'twice': False, 'vlan': True}
# What depends on how the data was sent. The last number of an NFS file's messages depends on which of them came last.
FORM = 'timestamp flow_id pcap_cnt vlan pkt_src flow tcp tx_id last_xid'.split()


def without_form(value):
    if isinstance(value, dict): return {k: without_form(v) for k, v in value.items() if k not in FORM}
    return [without_form(v) for v in value] if isinstance(value, list) else value


def logged(engine, capture):
    """The application events of a capture, without what depends on its form. Datagrams have their own count."""
    import events
    command = f'{shlex.quote(os.path.abspath(engine))} -c {SHARED}/captures/every.yaml -S {{rules}} -k none -r {{pcap}} -l {{out}}'
    all_, fault = events.observe(argparse.Namespace(captures='', rules='/dev/null', timeout=120, engine=command), capture)
    if fault: raise RuntimeError(f'{capture}: {fault}')
    kept = [e for e in all_ if e['event_type'] not in ('flow', 'netflow', 'arp') and (e['event_type'] != 'anomaly' or e['anomaly']['type'] == 'applayer')]
    return collections.Counter((e['proto'], json.dumps(without_form(e), sort_keys=True)) for e in kept)


def check(engine, folder):
    """Prints events that another form of a capture adds or loses. Returns whether there are any."""
    sys.path.insert(0, os.path.join(SHARED, 'bench'))

    def one(path):
        whole, lines = logged(engine, path), []
        for name, all_ in SAME.items():
            form = logged(engine, os.path.join(folder, name, os.path.basename(path)))
            here = {k: v for k, v in whole.items() if all_ or k[0] == 'TCP'}
            form = {k: v for k, v in form.items() if all_ or k[0] == 'TCP'}
            lost, new = ((collections.Counter(a) - collections.Counter(b)).elements() for a, b in ((here, form), (form, here)))
            lines += [f'{os.path.basename(path)} {name}: {word} {event[:300]}' for word, events in (('lost', lost), ('added', new)) for _, event in events]
        return sum(whole.values()), lines
    paths = sorted(glob.glob(os.path.join(folder, '*.pcap')))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool: results = list(pool.map(one, paths))
    for _, lines in results:
        for line in lines[:4]: print(line)
    differing = sum(bool(lines) for _, lines in results)
    print(f'conversations: {len(paths)} captures with {sum(n for n, _ in results)} application events, {len(SAME)} other forms of each; {differing} captures differ')
    return bool(differing)
