"""The known differences in known.toml: data that a program reads and the engine shows elsewhere, with the reason.

An entry names the kind of messages and the programs, the changes that it covers (`odd`: each a name and variant as printed, with `*` for
anything), the bases, and the places and views (`PLACE > VIEW`). With `mixed` its changes differ only beside certain others, which a run may lack.
"""
import os
import re
import shutil
import subprocess
import sys
import tomllib

from search import Finding

HERE = os.path.dirname(os.path.abspath(__file__))


def like(patterns):
    return re.compile('|'.join('.*'.join(map(re.escape, p.split('*'))) for p in patterns), re.S).fullmatch


class Entry:
    def __init__(self, row, file):
        unknown = set(row) - {'kind', 'peers', 'odd', 'bases', 'shown', 'mixed', 'reason'}
        if unknown or not row.get('reason') or not row.get('odd'):
            raise SystemExit(f'peers: {file}: an entry needs kind, peers, odd and reason, and has nothing else but bases, shown and mixed: {row}')
        self.row, self.hits = row, {peer: 0 for peer in row['peers']}
        self.odd, self.bases, self.shown = like(row['odd']), like(row.get('bases', ['*'])), like(row.get('shown', ['*']))

    def matches(self, kind, finding: Finding):
        return (kind.name == self.row['kind'] and finding.peer in self.hits and self.bases(finding.case.base)
                and self.shown(f'{finding.place} > {finding.view}') and any(map(self.odd, finding.changed())))


class Known:
    def __init__(self):
        file = os.path.join(HERE, 'known.toml')
        with open(file, 'rb') as f:
            table = tomllib.load(f)
        self.versions = table['versions']
        self.entries = [Entry(row, file) for row in table.get('difference', [])]

    def entry(self, kind, finding):
        """The first entry that matches the finding, which it counts; None if the finding is new."""
        for e in self.entries:
            if e.matches(kind, finding):
                e.hits[finding.peer] += 1
                return e
        return None

    def unseen(self, kind, peers):
        """Entries that no finding of these peers matched, each with the peer. A difference that is gone must leave the list."""
        return [(e, peer) for e in self.entries if e.row['kind'] == kind.name and not e.row.get('mixed') for peer, hits in e.hits.items() if peer in peers and not hits]

    def same_version(self, peer):
        """Whether the peer's program has the version with which the list was made."""
        return self.versions.get(PROGRAM_OF[peer]) in version(PROGRAM_OF[peer])


# The program whose version decides how a peer behaves.
PROGRAM_OF = {'python': 'python', 'zlib': 'python', 'email': 'python', 'email-compat32': 'python', 'openssl': 'python', 'urllib3': 'urllib3',
              'nginx': 'nginx', 'go': 'go', 'node': 'node', 'curl': 'curl'}


def version(program):
    """The program's own output about its version; empty if it is not installed."""
    if program == 'python':
        return sys.version
    if program == 'urllib3':
        from peers import urllib3_python
        command = [urllib3_python(), '-c', 'import urllib3; print(urllib3.__version__)']
    else:
        command = {'nginx': ['nginx', '-v'], 'go': ['go', 'version'], 'node': ['node', '--version'], 'curl': ['curl', '--version']}[program]
    if not command[0] or not shutil.which(command[0]):
        return ''
    run = subprocess.run(command, capture_output=True, text=True)
    return (run.stdout + run.stderr).strip()
