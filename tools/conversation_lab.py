"""Two connected network namespaces in which tools/conversations runs servers and records what their clients send and receive."""
import fnmatch, os, re, shutil, signal, subprocess, tempfile, textwrap, time

SERVER, CLIENT, SERVER6, CLIENT6 = '10.9.0.2', '10.9.0.1', 'fd09::2', 'fd09::1'
PROGRAMS = []


def program(*executables, modules=()):
    """Marks a function that runs servers and records conversations with them."""
    def add(f): PROGRAMS.append((f, executables, modules)); return f
    return add


class Lab:
    """Two connected network namespaces, with the servers in one and the clients in the other."""

    def __init__(self, out, only, python):
        self.out, self.only, self.python = out, only, python
        self.work = tempfile.mkdtemp(prefix='conversations-'); os.chmod(self.work, 0o755)
        self.running, self.count, mark = [], 0, f'mc{os.getpid()}'
        self.s, self.c = mark + 's', mark + 'c'
        for line in f'''netns add {self.s}
                        netns add {self.c}
                        link add c0 netns {self.c} type veth peer name s0 netns {self.s}
                        -n {self.s} addr add {SERVER}/24 dev s0
                        -n {self.c} addr add {CLIENT}/24 dev c0
                        -n {self.s} addr add {SERVER6}/64 dev s0 nodad
                        -n {self.c} addr add {CLIENT6}/64 dev c0 nodad
                        -n {self.s} link set lo up
                        -n {self.c} link set lo up
                        -n {self.s} link set s0 up
                        -n {self.c} link set c0 up'''.split('\n'):
            subprocess.run(['ip', *line.split()], check=True)
        # Packets have the sizes of the wire.
        for ns, dev in (self.s, 's0'), (self.c, 'c0'):
            subprocess.run(f'ip netns exec {ns} ethtool -K {dev} tso off gso off gro off tx off'.split(), capture_output=True)

    def path(self, name, text=None, mode=0o644):
        """A file in the work folder; writes `text` to it."""
        path = os.path.join(self.work, name); os.makedirs(os.path.dirname(path), exist_ok=True)
        if text is not None:
            with open(path, 'w') as f: f.write(textwrap.dedent(text))
            os.chmod(path, mode)
        return path

    def certificate(self):
        """The paths of a certificate and its key."""
        cert, key = self.path('cert.pem'), self.path('key.pem')
        if not os.path.exists(cert):
            subprocess.run(f'openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {cert} -days 900 -subj /O=Test/CN=mail.example.org '
                           '-addext subjectAltName=DNS:mail.example.org,DNS:*.example.org'.split(), check=True, capture_output=True)
        return cert, key

    def serve(self, command, port, seconds=15):
        """Starts a server and waits until it listens."""
        with open(self.path('log'), 'a') as log:
            inside = ['ip', 'netns', 'exec', self.s, 'sh', '-c', 'exec ' + command]
            self.running.append(subprocess.Popen(inside, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            seen = subprocess.run(['ip', 'netns', 'exec', self.s, 'ss', '-lntu'], capture_output=True, text=True).stdout
            if re.search(rf'[:\]]{port}\s', seen): return
            time.sleep(0.1)
        raise RuntimeError(f'no server on port {port}: {command}')

    def stop(self):
        for sig in signal.SIGTERM, signal.SIGKILL:
            for p in self.running:
                try: os.killpg(p.pid, sig)
                except ProcessLookupError: pass
            time.sleep(0.2)
        for p in self.running: p.wait()
        self.running = []

    def record(self, name, command, seconds=20):
        """Records what a client's shell command sends and receives."""
        if not any(fnmatch.fnmatch(name, g) for g in self.only): return
        inside, quiet = ['ip', 'netns', 'exec', self.c], subprocess.DEVNULL
        dump = subprocess.Popen([*inside, *'tcpdump -i c0 -s0 -U --immediate-mode -Z root -w'.split(), os.path.join(self.out, name + '.pcap'), 'not arp and not icmp6'],
                                stderr=subprocess.PIPE, text=True)
        for line in dump.stderr:
            if 'listening' in line: break
        client = subprocess.Popen([*inside, 'sh', '-c', command], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        try: client.wait(seconds)
        except subprocess.TimeoutExpired: os.killpg(client.pid, signal.SIGKILL); client.wait()
        time.sleep(0.15); dump.send_signal(signal.SIGINT); dump.wait(); self.count += 1

    def script(self, name, text, **options):
        """Records a client that is a Python program."""
        head = f'import os, socket, ssl, sys, time\nS, S6 = {SERVER!r}, {SERVER6!r}\n'
        self.record(name, f'{self.python} {self.path(name + ".py", head + textwrap.dedent(text))}', **options)

    def close(self):
        self.stop()
        for ns in self.s, self.c: subprocess.run(['ip', 'netns', 'del', ns])
        shutil.rmtree(self.work, ignore_errors=True)
