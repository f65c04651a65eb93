"""Shows how the engine reads conversations: one run over a capture of all of them, with a rule for each buffer and token.

A token is a word like `tk07zq`. Generators put different tokens into different places of a message. Rules report which token reached which buffer
of which flow, and the logged fields show the name.
"""
import json
import os
import random
import re
import subprocess
import tempfile

from attacks.wire import SERVER, Wire, address

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOKENS = 32
TOKEN = re.compile(r'tk(\d\d)zq', re.I)
# Conversations in one capture, and the address of the first client.
BATCH, FIRST = 4000, 0x0a000001
SETTINGS = f"""%YAML 1.1
---
include: {TOP}/etc/margay.yaml
packet-alert-max: 4000
classification-file: {TOP}/etc/classification.config
reference-config-file: {TOP}/etc/reference.config
outputs:
  - eve-log:
      enabled: yes
      filetype: regular
      filename: eve.json
      types: [alert: {{}}, http: {{extended: yes, dump-all-headers: both}}, tls: {{extended: yes}}]
"""


def token(n):
    """Token number `n`, below TOKENS."""
    assert n < TOKENS
    return f'tk{n:02}zq'


def tokens(text):
    """The numbers of the tokens in a text."""
    return {int(n) for n in TOKEN.findall(text)}


class Engine:
    """An engine, by the path of its program."""

    def __init__(self, program):
        self.program = os.path.abspath(program)
        if not os.access(self.program, os.X_OK):
            raise SystemExit(f'peers: {program} is not there: build it first (make build)')

    def see(self, kind, conversations):
        """For each conversation (its turns, and how they are cut into segments): the set of (view, token) that the engine saw.

        A view is the name of a buffer of `kind.buffers`, or `field NAME` for a logged header.
        """
        seen = []
        for at in range(0, len(conversations), BATCH):
            seen += self._batch(kind, conversations[at:at + BATCH])
        return seen

    def _batch(self, kind, conversations):
        with tempfile.TemporaryDirectory(prefix='margay-peers.') as folder:
            path = lambda name: os.path.join(folder, name)
            with open(path('settings.yaml'), 'w') as f:
                f.write(SETTINGS)
            with open(path('token.rules'), 'w') as f:
                f.writelines(rules(kind))
            write(path('capture.pcap'), kind, conversations)
            line = [self.program, '-c', path('settings.yaml'), '-S', path('token.rules'), '--init-errors-fatal', '-r', path('capture.pcap'), '-l', folder]
            run = subprocess.run(line, capture_output=True, text=True)
            if run.returncode:
                raise SystemExit(f'peers: the engine failed ({run.returncode}):\n{run.stdout}{run.stderr}')
            seen = [set() for _ in conversations]
            with open(path('eve.json')) as f:
                for event in map(json.loads, f):
                    note(kind, seen, event)
            return seen


def rules(kind):
    for b, (buffer, options) in enumerate(kind.buffers.items()):
        for t in range(TOKENS):
            yield (f'alert {kind.protocol} any any -> any any (msg:"{buffer} {t}"; {options}; content:"{token(t)}"; {"" if buffer == "http.host" else "nocase; "}'
                   f'sid:{1 + b * TOKENS + t};)\n')


def note(kind, seen, event):
    """Adds the tokens that an event shows to those of its conversation."""
    ends = [e for e in (event.get('src_ip'), event.get('dest_ip')) if e and e.startswith('10.')]
    if not ends:
        return
    mine = seen[int.from_bytes(bytes(map(int, ends[0].split('.'))), 'big') - FIRST]
    if event['event_type'] == 'alert':
        buffer, t = divmod(event['alert']['signature_id'] - 1, TOKENS)
        mine.add((list(kind.buffers)[buffer], t))
    for field in event.get('http', {}).get(kind.fields, []) if kind.fields else []:
        mine.update((f'field {field["name"].strip().lower()}', t) for t in tokens(field['value']))


def write(path, kind, conversations):
    """Writes a capture of conversations, each with a client of its own."""
    wire = Wire(float('inf'))
    for n, (turns, cut) in enumerate(conversations):
        c = wire.connect(kind.port, src=address(FIRST + n), dst=SERVER)
        draw = random.Random(n)
        for side, data in turns:
            for piece in pieces(data, cut, draw):
                c.say(side, piece)
        c.close()
    wire.write(path)


def pieces(data, cut, draw):
    """Cuts one side's data into segments: `whole` (one), `bytes` (the first 2,000 bytes one by one) or `random`."""
    if cut == 'bytes':
        return [data[i:i + 1] for i in range(min(len(data), 2000))] + ([data[2000:]] if len(data) > 2000 else [])
    if cut == 'random':
        ends = sorted({draw.randrange(1, len(data)) for _ in range(4)} | {len(data)}) if len(data) > 1 else [len(data)]
        return [data[a:b] for a, b in zip([0] + ends, ends)]
    return [data]
