"""Starts the real programs, sends them messages, and collects the data that they read."""
import collections
import concurrent.futures
import functools
import json
import os
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

from engine import TOP, tokens

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'programs')
BUILT = os.path.join(TOP, 'target', 'peers')
# The number of connections at a time, and the seconds that a connection may be silent.
AT_ONCE, PATIENCE = 16, 3


def program(name):
    return os.path.join(PROGRAMS, name)


@functools.cache
def go_program():
    """Builds the program in Go and returns its path; None if Go is not installed."""
    if not shutil.which('go'):
        return None
    os.makedirs(BUILT, exist_ok=True)
    built = os.path.join(BUILT, 'peer-go')
    line = ['go', 'build', '-o', built, program('peer.go')]
    run = subprocess.run(line, capture_output=True, text=True, env={'GOCACHE': os.path.join(BUILT, 'go-cache'), **os.environ})
    if run.returncode:
        raise SystemExit(f'peers: go build failed:\n{run.stderr}')
    return built


@functools.cache
def urllib3_python():
    """A Python with urllib3: that of the environment from `make peers`, or this one; None if neither has it."""
    for python in (os.path.join(BUILT, 'venv', 'bin', 'python'), sys.executable):
        if os.path.exists(python) and not subprocess.run([python, '-c', 'import urllib3'], capture_output=True).returncode:
            return python
    return None


@functools.cache
def certificate():
    """A file with a certificate and its key."""
    os.makedirs(BUILT, exist_ok=True)
    path, key = os.path.join(BUILT, 'certificate.pem'), os.path.join(BUILT, 'key.pem')
    if not os.path.exists(path):
        line = ['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '36500', '-subj', '/CN=peer.test',
                '-keyout', key, '-out', path + '.new']
        subprocess.run(line, check=True, capture_output=True)
        with open(path + '.new', 'a') as f, open(key) as k:
            f.write(k.read())
        os.rename(path + '.new', path)
    return path


class Seen(collections.defaultdict):
    """The set of (place, token) that a program read, by connection."""

    def __init__(self):
        super().__init__(set)

    def note(self, who, pairs):
        for place, text in pairs:
            # A program finds a field by its name with or without white space around it.
            place = f'field {place[6:].strip().lower()}' if place.startswith('field ') else place
            self[who].update((place, t) for t in tokens(text))


class Child:
    """A program of `programs/`, which reports on its standard output."""

    def __init__(self, line):
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.seen, self.flushed, self.port, self.flushes = Seen(), queue.Queue(), queue.Queue(), 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            report = json.loads(line)
            if 'port' in report:
                self.port.put(report['port'])
            elif 'flush' in report:
                self.flushed.put(report['flush'])
            else:
                self.seen.note(report['from'], report['seen'])

    def tell(self, line):
        self.process.stdin.write(line.encode() + b'\n')
        self.process.stdin.flush()

    def flush(self, seconds=20):
        """Waits until all earlier reports of the program have arrived."""
        self.flushes += 1
        self.tell(f'flush {self.flushes}')
        try:
            self.flushed.get(timeout=seconds)
        except queue.Empty:
            raise SystemExit(f'peers: {self.process.args}: does not answer any more') from None

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Peer:
    """A program that reads messages. `short_run`: it also runs with --quick."""

    short_run = True


class Server(Peer):
    """A program that listens. `ask` sends it each message unchanged, on a separate connection."""

    def __init__(self, name, line):
        self.name, self.line, self.child, self.asked = name, line, None, 0

    def start(self):
        self.child = Child(self.line())
        self.port = self.child.port.get(timeout=30)
        self.seen = self.child.seen

    def stop(self):
        if self.child:
            self.child.stop()

    def ask(self, messages):
        """For each message: the turns of the conversation, and the tokens that the program read."""
        def one(numbered):
            n, message = numbered
            # Each conversation has its own client address, by which reports are assigned.
            who = f'127.{1 + (n >> 16)}.{n >> 8 & 255}.{n & 255}'
            return who, talk(who, self.port, message)
        first, self.asked = self.asked, self.asked + len(messages)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            talks = list(pool.map(one, enumerate(messages, first + 1)))
        self.flush()
        return [([(0, m), (1, said)], self.seen.pop(who, set())) for m, (who, said) in zip(messages, talks)]

    def flush(self):
        self.child.flush()


def talk(who, port, message):
    """Sends the message, closes that direction, and returns the answer."""
    said = b''
    try:
        with socket.create_connection(('127.0.0.1', port), PATIENCE, (who, 0)) as s:
            s.sendall(message)
            s.shutdown(socket.SHUT_WR)
            while got := s.recv(65536):
                said += got
    except OSError:
        pass  # A reset or silence ends the answer; the data received before counts.
    return said


class Nginx(Server):
    """nginx as a reverse proxy: it has read the data that it forwards. The server behind it is in this process."""
    CONFIGURATION = '''daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log crit;
events {{ worker_connections 512; }}
http {{
  access_log off; client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
  scgi_temp_path {dir}/s; keepalive_timeout 2; client_header_timeout 2; client_body_timeout 2; proxy_ignore_client_abort on;
  server {{
    listen 127.0.0.1:{port} backlog=256;
    location / {{
      proxy_pass http://unix:{dir}/back:; proxy_set_header Host $http_host; proxy_set_header X-Peer-From $remote_addr;
      proxy_set_header X-Peer-Path $uri; proxy_read_timeout 5;
    }}
  }}
}}'''

    def __init__(self):
        super().__init__('nginx', None)
        self.process = None

    def start(self):
        self.dir = tempfile.mkdtemp(prefix='margay-peers.')
        os.chmod(self.dir, 0o755)
        self.seen = Seen()
        with socket.socket() as s:
            s.bind(('127.0.0.1', 0))
            self.port = s.getsockname()[1]
        self.back = socket.socket(socket.AF_UNIX)
        self.back.bind(f'{self.dir}/back')
        os.chmod(f'{self.dir}/back', 0o777)
        self.back.listen(256)
        threading.Thread(target=self._accept, daemon=True).start()
        with open(f'{self.dir}/conf', 'w') as f:
            f.write(self.CONFIGURATION.format(dir=self.dir, port=self.port))
        self.process = subprocess.Popen(['nginx', '-p', self.dir, '-c', f'{self.dir}/conf'], stderr=subprocess.DEVNULL)
        for _ in range(100):
            if talk('127.0.0.1', self.port, b'GET / HTTP/1.0\r\n\r\n'):
                return
            if self.process.poll() is not None:
                break
            threading.Event().wait(0.1)
        raise SystemExit('peers: nginx does not start')

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.back.close()
            shutil.rmtree(self.dir, ignore_errors=True)

    def flush(self):
        pass  # The server behind nginx records each request before nginx answers.

    def _accept(self):
        while True:
            try:
                s, _ = self.back.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(s,), daemon=True).start()

    def _serve(self, s):
        """Reads a request in nginx's form: lines that end with CRLF, and a length if there is a body."""
        with s, s.makefile('rb') as f:
            s.settimeout(PATIENCE)
            try:
                method, target = f.readline().decode('latin-1').split(' ', 1)
                pairs, length, who = [('method', method), ('target', target.rpartition(' ')[0])], 0, None
                while (line := f.readline()) not in (b'\r\n', b''):
                    name, _, value = line.decode('latin-1').rstrip('\r\n').partition(': ')
                    if name == 'X-Peer-From':
                        who = value
                    elif name == 'X-Peer-Path':
                        pairs.append(('path', value))
                    else:
                        length = int(value) if name.lower() == 'content-length' else length
                        pairs += [('name', name), (f'field {name}', value)]
                self.seen.note(who, pairs)
                if length:
                    self.seen.note(who, [('body', f.read(length).decode('latin-1'))])
                s.sendall(b'HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok')
            except (OSError, ValueError) as e:
                print(f'peers: what nginx passes on cannot be read: {e!r}', file=sys.stderr)


class Client(Peer):
    """A program that fetches. `ask` answers its requests with unchanged messages."""

    def __init__(self, name, line):
        self.name, self.line, self.child, self.asked = name, line, None, 0

    def start(self):
        self.child = Child(self.line())
        self.listen()

    def listen(self):
        self.messages, self.requests = {}, {}
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self):
        if self.child:
            self.child.stop()
            self.listener.close()

    def _accept(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(s,), daemon=True).start()

    def _serve(self, s):
        with s:
            s.settimeout(PATIENCE)
            request = b''
            try:
                while b'\r\n\r\n' not in request and (got := s.recv(65536)):
                    request += got
                number = request.split(b' ', 2)[1].decode().strip('/') if request else ''
                if number in self.messages:
                    self.requests.setdefault(number, request)
                    s.sendall(self.messages[number])
                    s.shutdown(socket.SHUT_WR)
                    while s.recv(65536):
                        pass
            except OSError:
                pass

    def number(self, messages):
        """Gives each message a number, by which the program requests it."""
        numbers = [str(n) for n in range(self.asked, self.asked + len(messages))]
        self.asked += len(messages)
        self.messages = dict(zip(numbers, messages))
        return numbers

    def turns(self, number):
        """The conversation. If the program requested nothing, a plain request stands in, since it cannot have read an answer."""
        return [(0, self.requests.pop(number, b'GET / HTTP/1.1\r\n\r\n')), (1, self.messages[number])]

    def ask(self, messages):
        """For each message: the turns of the conversation, and the tokens that the program read."""
        numbers = self.number(messages)
        for number in numbers:
            self.child.tell(f'{number} http://127.0.0.1:{self.port}/{number}')
        self.child.flush(60 + len(messages))
        return [(self.turns(n), self.child.seen.pop(n, set())) for n in numbers]


class Curl(Client):
    """curl, which scripts use, in a separate process for each response. That takes too long for the short run."""

    short_run = False

    def __init__(self, name):
        super().__init__(name, None)
        self.child = None

    def start(self):
        self.listen()

    def stop(self):
        self.listener.close()

    def ask(self, messages):
        numbers = self.number(messages)
        with tempfile.TemporaryDirectory(prefix='margay-peers.') as folder, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda n: self.fetch(n, folder), numbers))

    def fetch(self, number, folder):
        head = os.path.join(folder, number)
        line = ['curl', '-s', '--compressed', '--max-time', '2', '-D', head, f'http://127.0.0.1:{self.port}/{number}']
        body = subprocess.run(line, capture_output=True).stdout
        seen = Seen()
        seen.note(number, [('body', body.decode('latin-1'))])
        return self.turns(number), seen[number]


class Function(Peer):
    """A library of this Python: a function that reads a message into pairs of place and text, and one that makes the conversation."""

    def __init__(self, name, read, turns):
        self.name, self.read, self.turns = name, read, turns

    def start(self):
        pass

    def stop(self):
        pass

    def ask(self, messages):
        answers = []
        for message in messages:
            seen = Seen()
            seen.note('', self.read(message))
            answers.append((self.turns(message), seen['']))
        return answers


def python(*arguments):
    return line_of(lambda: sys.executable, 'peer.py', arguments)


def line_of(interpreter, source, arguments):
    return lambda: [interpreter(), program(source), *[a() if callable(a) else a for a in arguments]]


def node(*arguments):
    return line_of(lambda: 'node', 'peer.js', arguments)


def go(*arguments):
    return lambda: [go_program(), *[a() if callable(a) else a for a in arguments]]


def missing(name):
    """The reason that a peer cannot run here, or None."""
    if name == 'nginx' and not shutil.which('nginx'):
        return 'nginx is not installed'
    if name == 'curl' and not shutil.which('curl'):
        return 'curl is not installed'
    if name == 'node' and not shutil.which('node'):
        return 'Node.js is not installed'
    if name == 'go' and not go_program():
        return 'Go is not installed'
    if name == 'urllib3' and not urllib3_python():
        return 'urllib3 is not installed'
    return None
