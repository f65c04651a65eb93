"""The captures and rules for Margay's measurements, created once in their own folder."""
import gzip
import os
import random
import shutil
import struct
import subprocess
import sys

from pcap import write

TOOLS = os.path.dirname(os.path.abspath(__file__))


def pcap(path, frames):
    """Writes a capture of Ethernet frames, 10 microseconds apart."""
    write(path + '.new', ((1_700_000_000 * 10**6 + n * 10, frame) for n, frame in enumerate(frames)))
    os.rename(path + '.new', path)


def flood(packets):
    """Frames of 64 bytes, each a new flow: half of them UDP, half TCP SYNs."""
    draw = random.Random(1)
    ether = bytes(12) + b'\x08\0'
    for n in range(packets):
        src, dst, port = 0x0a000000 | draw.getrandbits(24), 0xc0a80000 | draw.getrandbits(16), draw.randrange(1024, 65536)
        tcp = n % 2
        ip = struct.pack('>BBHHHBBHII', 0x45, 0, 46, n & 0xffff, 0, 64, 6 if tcp else 17, 0, src, dst)
        l4 = struct.pack('>HHIIBBHHH', port, 80, draw.getrandbits(32), 0, 0x50, 2, 8192, 0, 0) if tcp \
            else struct.pack('>HHHH', port, 9, 26, 0)
        yield (ether + ip + l4).ljust(60, b'\0')


def made(path, rounds):
    """Writes a capture of this many rounds of make-capture."""
    subprocess.run([sys.executable, f'{TOOLS}/make-capture', path + '.new', '--rounds', str(rounds)], check=True,
                   stdout=subprocess.DEVNULL)
    os.rename(path + '.new', path)


def made_rules(path, count):
    """Writes this many rules of generate-rules."""
    with open(path, 'w') as out:
        subprocess.run([sys.executable, f'{TOOLS}/generate-rules', '--count', str(count)], check=True, stdout=out)


def capture(name, shared, work):
    """The path of the named capture in `work`; makes it if it is missing. All but `flood` and `made` need the folder `shared`."""
    mkload = [sys.executable, f'{shared}/bench/mkload.py']
    run = lambda *argv: subprocess.run([*mkload, *argv], check=True, stdout=subprocess.DEVNULL)
    path = f'{work}/{name}.pcap'
    how = {
        'mix': lambda: run(path, '--megabytes', '600', '--sfr', f'{shared}/captures/sfr/avl'),
        'real': lambda: run(path, '--megabytes', '400', '--dir', f'{shared}/captures/real'),
        'flood': lambda: pcap(path, flood(1_000_000)),
        'alerting': lambda: run(path, '--megabytes', '60', '--sfr', f'{shared}/captures/sfr/avl'),
        'made': lambda: made(path, 60),
    }[name]
    if not os.path.exists(path):
        print(f'making {name}.pcap', file=sys.stderr)
        os.makedirs(work, exist_ok=True)
        how()
    return path


def rules(name, shared, work):
    """The path of the named rules in `work`: `all` (those of `shared`), `any` (a rule for every packet) or `made` (10,000 generated)."""
    path = f'{work}/{name}.rules'
    if os.path.exists(path) and name != 'any':
        return path
    os.makedirs(work, exist_ok=True)
    if name == 'all':
        with gzip.open(f'{shared}/rules/etopen.rules.gz') as f, open(path, 'wb') as out:
            shutil.copyfileobj(f, out)
    elif name == 'any':
        with open(path, 'w') as f:
            f.write('alert ip any any -> any any (msg:"any"; content:!"no packet has this in it"; sid:1;)\n')
    else:
        made_rules(path, 10000)
    return path
