"""Runs an engine over a capture with a rule file. Returns the packets on which each rule alerts, and the rejected rules."""
import collections
import json
import os
import re
import shutil
import subprocess
import tempfile

LIMIT = 120
# Many rules alert on one packet here, and the limit must not drop any alert. Suricata 7 replaces a limit above 255 by 15.
ALERTS = 255
ALWAYS = ['-k', 'none', '--runmode', 'single', '--set', f'packet-alert-max={ALERTS}']
# Rules of one run: several transactions of a packet may alert.
RULES = 100


class Engine:
    def __init__(self, command, config, extra=()):
        self.command, self.config, self.extra = command, config, list(extra)
        # Keywords that the engine reported as unknown.
        self.unknown = set()

    def run(self, capture, rules, variant=(), keep=False):
        """For each rule in order, the packets that it alerts on, or 'refused'. With `keep` returns the events instead."""
        out = tempfile.mkdtemp(prefix='generated-')
        try:
            path = os.path.join(out, 'the.rules')
            with open(path, 'w') as f: f.write(''.join(r + '\n' for r in rules))
            argv = [*self.command, '-c', self.config, *ALWAYS, *self.extra, *variant, '-S', path, '-r', capture, '-l', out]
            p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT)
            said = p.stdout.decode(errors='replace')
            if p.returncode: raise Failed(f'{os.path.basename(self.command[0])} ended with status {p.returncode}: {said.strip()[-300:]}')
            with open(os.path.join(out, 'eve.json'), errors='replace') as f: events = [json.loads(line) for line in f]
        except subprocess.TimeoutExpired:
            raise Failed(f'no end within {LIMIT} s') from None
        except (FileNotFoundError, ValueError) as e:
            raise Failed(f'eve.json: {e}') from None
        finally:
            shutil.rmtree(out, ignore_errors=True)
        if keep: return events
        self.unknown |= set(re.findall(r"unknown rule keyword '([^']+)'", said))
        alerts = collections.defaultdict(list)
        for e in events:
            if e['event_type'] == 'alert': alerts[e['alert']['signature_id']].append(e.get('pcap_cnt', 0))
        refused = {int(n) for n in re.findall(r'from file .* at line (\d+)\s*$', said, re.M)}
        return ['refused' if n in refused else sorted(alerts.get(sid(r), [])) for n, r in enumerate(rules, 1)]


class Failed(Exception):
    """An engine failed or did not end, which is itself a finding."""


def sid(rule):
    m = re.search(r'\bsid:(\d+);\)$', rule)
    return int(m[1]) if m else 0


def peer_config(config, folder):
    """Writes the configuration with units that Suricata 7 knows (kb, not KiB); returns its path."""
    with open(config) as f: text = f.read()
    path = os.path.join(folder, 'peer.yaml')
    with open(path, 'w') as f: f.write(re.sub(r'(\d+) ([KMG])iB', lambda m: m[1] + m[2].lower() + 'b', text))
    return path
