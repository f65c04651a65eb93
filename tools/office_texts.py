"""Real texts, programs and binaries of this machine, from which tools/defence-office makes traffic.

Files come from documentation, manuals, libraries, programs of this repository and of Cargo's registry, recorded ordinary requests and the
held-out texts of the defence. Nothing is invented but the frame around them: a test with invented texts would find what its author expects.
"""
import base64
import gzip
import json
import os
import re
import sys

import held_out

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHARED = os.environ.get('SHARED') or os.path.join(ROOT, '..', 'shared')
FOLDERS = ('/usr/share/doc', '/usr/share/man', '/usr/share/perl', '/usr/share/postgresql', '/usr/share/bash-completion', '/usr/share/nodejs',
           '/usr/share/maven', '/usr/share/vim', '/usr/share/php', '/usr/lib', '/usr/include', '/usr/bin', '/usr/sbin', '/usr/local', '/var/lib/dpkg/info',
           '/etc/init.d', os.path.expanduser('~/.cargo/registry/src'), ROOT)
#: Folders of this repository and of others that hold no sources.
LEFT_OUT = {'target', '.git', '__pycache__', 'node_modules.cache'}
CODE = {'.py', '.rs', '.js', '.ts', '.sh', '.bash', '.pl', '.pm', '.c', '.h', '.cc', '.cpp', '.hpp', '.php', '.sql', '.rb', '.java', '.go', '.lua', '.ps1', '.bat',
        '.cmd', '.css', '.xml', '.yaml', '.yml', '.toml', '.json', '.postinst', '.preinst', '.prerm', '.postrm', '.config', '.vim', '.cmake', '.mk', '.m4', '.tcl',
        '.rules', '.conf', '.service', '.awk', '.el', '.r', '.ipynb', '.tf', '.scss', '.vue', '.jsx', '.tsx', '.diff', '.patch', '.mjs', '.cjs', '.d', '.init'}
TEXTS = {'readme', 'news', 'changelog', 'copyright', 'faq', 'todo', 'install'}
PROSE = {'.md', '.txt', '.rst', '.pod', '.markdown', '.adoc', '.org', '.news'}
#: A text's largest size, and the least of a file that is sent for its bytes alone.
LONGEST, BINARY = 200_000, 60_000
#: Pieces of documents that are kept for passages; each use replaces one in twenty.
WINDOWS = 2000


def roff(text):
    """The sentences of a manual page, without its commands."""
    out = []
    for line in text.split('\n'):
        if line.startswith(('.\\"', "'\\\"")): continue
        if re.match(r"[.'](SH|SS|PP|P|LP|TP|IP|Pp|Sh|Ss)\b", line): out.append('')
        line = re.sub(r"^[.']\s*(?:SH|SS|B|I|BR|RB|IR|RI|BI|IB|Sh|Ss|Nm|Nd)\s+", '', line)
        if not line.startswith(('.', "'")):
            out.append(re.sub(r'\\f(?:\(..|\[.*?\]|.)|\\[&%|^/,]', '', line).replace('\\-', '-').replace('\\(aq', "'").replace('\\e', '\\').replace('\\(dq', '"'))
    return '\n'.join(out)


class Material:
    """What the conversations say. Each method takes a generator of random numbers, and returns a source's name with what it says."""

    def __init__(self, folders=FOLDERS):
        self.code, self.prose, self.pages, self.binaries, self.manuals = {}, {}, [], [], []
        for folder in folders:
            for here, inside, files in os.walk(folder):
                inside[:] = sorted(d for d in inside if d not in LEFT_OUT)
                for name in sorted(files):
                    self.take(os.path.join(here, name))
        self.kinds = sorted(self.code)
        path = os.path.join(SHARED, 'attacks', 'requests.jsonl.gz')
        if not os.path.exists(path): sys.exit(f'defence-office: {path} is not there; set SHARED to the folder that has attacks')
        with gzip.open(path, 'rt') as f:
            self.requests = [(row['id'], base64.b64decode(row['request'])) for row in map(json.loads, f) if row['label'] == 'benign']
        self.attacks, self.posts = [], []
        folder = os.path.join(ROOT, 'defence', 'held-out')
        for name in sorted(os.listdir(folder)):
            if name == 'figures.txt': continue
            with open(os.path.join(folder, name), encoding='utf-8', errors='replace') as f: text = f.read()
            if name.startswith('attacks-'):
                self.attacks += [(f'{name}: {value[:40]}', value) for _, place, _, value in held_out.attacks(text) if place != 'raw']
            elif name.startswith('ordinary-'):
                self.posts += [(f'{name}: {value[:40]}', value) for value in sorted({v for _, _, _, v in held_out.ordinary(text)})]
        packages = []
        try:
            with open('/var/lib/dpkg/status', encoding='utf-8', errors='replace') as f:
                packages = re.findall(r'^Package: (\S+)\n(?:.+\n)*?Version: (\S+)', f.read(), re.M)
        except OSError: pass
        self.packages = packages or [('margay', '0.2.0')]
        self.cache = {}

    def take(self, path):
        """Puts a file where it belongs."""
        try:
            at = os.lstat(path)
        except OSError: return
        if not at.st_size or at.st_mode & 0o170000 != 0o100000: return
        name = os.path.basename(path).lower()
        ext = os.path.splitext(name)[1]
        if '/man/man' in path and ext == '.gz': self.manuals.append(path)
        elif ext in ('.html', '.htm'): self.pages.append(path)
        elif ext in PROSE or name.split('.')[0] in TEXTS:
            if at.st_size < LONGEST: self.prose.setdefault(ext if ext in PROSE else name.split('.')[0], []).append(path)
        elif ext in CODE:
            if at.st_size < LONGEST: self.code.setdefault(ext, []).append(path)
        elif at.st_size > BINARY: self.binaries.append((path, at.st_size))

    def read(self, path):
        """A text; None if the file is none."""
        try:
            with (gzip.open if path.endswith('.gz') else open)(path, 'rb') as f: data = f.read(LONGEST)
        except (OSError, EOFError): return None
        if b'\0' in data: return None
        try:
            return data.decode()
        except UnicodeDecodeError: return data.decode('latin-1')

    def any(self, r, paths):
        for _ in range(20):
            path = r.choice(paths)
            if text := self.read(path): return path, text
        return 'plain', 'The minutes of the meeting on Tuesday are in the usual folder.\n'

    def program(self, r, kinds=None):
        """A file of a program, whole. Rare languages are as frequent as common ones."""
        kinds = [k for k in kinds or self.kinds if k in self.code] or self.kinds
        return self.any(r, self.code[r.choice(kinds)])

    def document(self, r):
        kind = r.randrange(len(self.prose) + 2)
        if kind >= len(self.prose) and self.manuals:
            path, text = self.any(r, self.manuals)
            return path, roff(text)
        return self.any(r, self.prose[sorted(self.prose)[kind % len(self.prose)]])

    def passage(self, r, longest):
        """Some paragraphs of a document that stand together."""
        for _ in range(20):
            if len(self.cache) < WINDOWS or r.random() < 0.05:
                path, text = self.document(r)
                at = r.randrange(max(1, len(text) - 8000))
                parts = [p.strip('\n') for p in re.split(r'\n\s*\n', text[at:at + 8000]) if len(p.strip()) > 20]
                # A window begins and ends in the middle of a paragraph.
                parts = parts[1 if at else 0:-1] or parts
                if not parts: continue
                self.cache[len(self.cache) if len(self.cache) < WINDOWS else r.randrange(WINDOWS)] = path, parts
            else: path, parts = self.cache[r.randrange(len(self.cache))]
            at = r.randrange(len(parts))
            out = parts[at]
            while (at := at + 1) < len(parts) and len(out) + len(parts[at]) < longest and r.random() < 0.7: out += '\n\n' + parts[at]
            if len(out) <= longest: return path, out
        return 'plain', 'Thank you, that works for me now.'

    def line(self, r):
        """A line of prose: a title, a search, a chat's message."""
        path, text = self.passage(r, 2000)
        lines = [' '.join(l.split()).lstrip('#*-=. ') for l in text.split('\n')]
        # A title has words, and not only a line of a program.
        lines = [l for l in lines if 8 < len(l) < 160 and re.match(r"[A-Za-z][\w'-]*,? (?:[\w'-]+[,.:]? ){2}", l)]
        return path, r.choice(lines) if lines else 'minutes of the meeting on Tuesday'

    def snippet(self, r, kinds=None):
        """Some lines of a program, as somebody would paste them."""
        path, text = self.program(r, kinds)
        lines = text.split('\n')
        at, n = r.randrange(max(1, len(lines) - 4)), r.randrange(3, 40)
        return path, '\n'.join(l[:400] for l in lines[at:at + n])

    def statement(self, r):
        """A statement of SQL from a program."""
        for _ in range(20):
            path, text = self.any(r, self.code.get('.sql') or self.code[self.kinds[0]])
            text = re.sub(r'^(?:--[^\n]*|\\[^\n]*|[ \t]*)\n|/\*[\s\S]*?\*/', '', text, flags=re.M)
            parts = [p.strip() for p in text.split(';\n') if 20 < len(p.strip()) < 3000]
            if parts: return path, r.choice(parts) + ';'
        return 'plain', 'SELECT region, count(*) FROM orders GROUP BY region;'

    def binary(self, r, least, most):
        """A part of a binary file."""
        size = r.randrange(least, most)
        for _ in range(50):
            path, length = r.choice(self.binaries)
            if length >= least: break
        with open(path, 'rb') as f:
            f.seek(r.randrange(max(1, length - size)))
            return path, f.read(size)

    def log(self, r):
        """A line of a log, as servers write it."""
        host, pid = r.choice(('web-03', 'db1', 'gw', 'build-7', 'mail')), r.randrange(300, 60000)
        when = f'Nov {r.randrange(1, 30):2} {r.randrange(24):02}:{r.randrange(60):02}:{r.randrange(60):02}'
        other = f'{r.randrange(11, 220)}.{r.randrange(256)}.{r.randrange(256)}.{r.randrange(1, 255)}'
        kind = r.randrange(12)
        if kind <= 4 and self.requests:
            _, raw = r.choice(self.requests)
            head = raw.partition(b'\r\n\r\n')[0].decode('latin-1').split('\r\n')
            fields = dict(l.split(': ', 1) for l in head[1:] if ': ' in l)
            return f'{other} - - [{when[4:6].strip():0>2}/Nov/2026:{when[7:]} +0000] "{head[0]}" {r.choice((200, 200, 200, 304, 302, 404, 500))} {r.randrange(200, 90000)} ' \
                f'"{fields.get("Referer", "-")}" "{fields.get("User-Agent", "-")}"'
        if kind == 5:
            user = r.choice(('root', 'admin', 'oracle', 'test', 'git', 'ubuntu'))
            return f'{when} {host} sshd[{pid}]: ' + r.choice((f'Failed password for invalid user {user} from {other} port {pid} ssh2',
                f'Accepted publickey for deploy from 10.0.3.{pid % 250} port {pid} ssh2: ED25519 SHA256:{base64.b64encode(r.randbytes(32)).decode()[:43]}',
                f'Connection closed by authenticating user {user} {other} port {pid} [preauth]', f'pam_unix(sshd:session): session opened for user {user}(uid=0) by (uid=0)'))
        if kind == 6:
            return f'{when} {host} sudo: {r.choice(("anna", "deploy", "jens"))} : TTY=pts/{pid % 9} ; PWD=/home/anna ; USER=root ; COMMAND=' + \
                r.choice(('/usr/bin/systemctl restart nginx', '/usr/bin/apt-get update', '/usr/bin/tail -f /var/log/syslog', '/usr/bin/journalctl -u ssh', '/bin/cat /etc/fstab'))
        if kind == 7:
            return f'{when} {host} CRON[{pid}]: (root) CMD (' + r.choice(('   cd / && run-parts --report /etc/cron.hourly', 'command -v debian-sa1 > /dev/null && debian-sa1 1 1',
                '[ -x /usr/lib/php/sessionclean ] && if [ ! -d /run/systemd/system ]; then /usr/lib/php/sessionclean; fi', 'test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )')) + ')'
        if kind == 8:
            return f'2026-11-{r.randrange(1, 30):02} {when[7:]}.{pid % 1000:03} UTC [{pid}] app@shop ' + r.choice(('ERROR:  duplicate key value violates unique constraint "users_email_key"',
                f'STATEMENT:  {" ".join(self.statement(r)[1].split())[:600]}', f'LOG:  duration: {pid / 7:.3f} ms  statement: {" ".join(self.statement(r)[1].split())[:600]}',
                'ERROR:  syntax error at or near "FORM" at character 15'))
        if kind == 9:
            path, text = self.program(r, ['.py', '.java', '.js'])
            lines = [l.strip() for l in text.split('\n') if 10 < len(l.strip()) < 200]
            return f'{when} {host} app[{pid}]: File "{path}", line {pid % 900}, in run: {r.choice(lines) if lines else "pass"}'
        if kind == 10:
            package, version = r.choice(self.packages)
            return f'2026-11-{r.randrange(1, 30):02} {when[7:]} status {r.choice(("installed", "unpacked", "half-configured"))} {package}:amd64 {version}'
        return f'{when} {host} kernel: [{pid}.{pid % 997:06}] ' + r.choice((f'IN=eth0 OUT= MAC=52:54:00:12:34:56:52:54:00:65:43:21:08:00 SRC={other} DST=10.0.0.9 LEN=40 TOS=0x00 PREC=0x00 TTL=242 PROTO=TCP SPT={pid} DPT=23 SYN',
            f'EXT4-fs (sda1): mounted filesystem with ordered data mode. Opts: errors=remount-ro', f'audit: type=1400 audit(1700000000.{pid % 999:03}:{pid}): apparmor="DENIED" operation="open" profile="/usr/sbin/cupsd" name="/etc/shadow" pid={pid} comm="cupsd" requested_mask="r"'))
