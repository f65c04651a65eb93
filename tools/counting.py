"""Counts instructions with valgrind's callgrind, by function and stage."""
import collections
import os
import platform
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARIES = {'libhs': 'pattern matcher (libhs)', 'libpcre2': 'regular expressions (libpcre2)', 'libc.': 'libc',
             'libmagic': 'libmagic', 'libstdc++': 'libstdc++', 'ld-linux': 'dynamic linker', 'kernel': 'kernel',
             'libm.': 'libm', 'libgcc': 'libgcc', 'vdso': 'vdso'}
CONFIGURATIONS = {
    # Reading, decoding, flows, streams and protocols, without rules and output.
    'plain': 'outputs: []\n',
    'alerts': 'outputs:\n  - eve-log: {enabled: yes, filetype: regular, filename: eve.json, types: [alert]}\n',
    # Also the final counters.
    'counted': 'outputs:\n  - eve-log: {enabled: yes, filetype: regular, filename: eve.json, types: [alert, stats]}\n',
    # Everything that the configuration writes.
    'full': '',
}


def needs(program, package):
    """Exits with a message if the program is not installed."""
    if not shutil.which(program):
        sys.exit(f'{os.path.basename(sys.argv[0])}: {program} is not installed: apt-get install {package} '
                 f'(tools/setup {program} does it)')


def command(engine, configuration, rules, capture, out):
    """The engine's command line: one worker, a configuration of CONFIGURATIONS, files in the folder `out`, which is emptied."""
    os.makedirs(out, exist_ok=True)
    for name in os.listdir(out):
        if os.path.isfile(f'{out}/{name}'):
            os.remove(f'{out}/{name}')
    with open(f'{out}/run.yaml', 'w') as f:
        f.write(f'%YAML 1.1\n---\ninclude: {ROOT}/etc/margay.yaml\n{CONFIGURATIONS[configuration]}')
    looked_for = ['--disable-detection'] if configuration == 'plain' else ['-S', rules]
    return [engine, '-c', f'{out}/run.yaml', *looked_for, '-r', capture, '-l', out, '-k', 'none', '--runmode', 'single',
            '--set', 'vars.address-groups.HOME_NET=any', '--set', 'vars.address-groups.EXTERNAL_NET=any',
            '--set', f'classification-file={ROOT}/etc/classification.config',
            '--set', f'reference-config-file={ROOT}/etc/reference.config']


def count(argv, out):
    """Runs `argv` in callgrind, which writes `out`. Returns the instructions of each function: {(name, object): n}."""
    # The environment is the same everywhere. The CPU that valgrind simulates has nothing beyond AVX2.
    env = {'PATH': os.environ.get('PATH', '/usr/bin:/bin'), 'LC_ALL': 'C', 'TZ': 'UTC'}
    if os.path.exists(out):
        os.remove(out)
    p = subprocess.run(['valgrind', '--tool=callgrind', f'--callgrind-out-file={out}', *argv], env=env,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace')
    if p.returncode or not os.path.exists(out):
        sys.exit(f'{os.path.basename(sys.argv[0])}: the engine ended with status {p.returncode} in valgrind:\n{p.stdout[-3000:]}')
    return functions(out)


def functions(path):
    """The instructions of each function in callgrind's file, without those of the functions that it calls: {(name, object): n}."""
    names, total, key, callee = {}, collections.Counter(), [None, None], False
    pair = re.compile(r'\((\d+)\)(?: (.*))?$')

    def name(kind, text):
        m = pair.match(text)
        if not m:
            return text
        if m[2]:
            names[kind, m[1]] = m[2]
        return names.get((kind, m[1]), '?')

    with open(path, errors='replace') as f:
        for line in f:
            first = line[0]
            if first in '0123456789+-*':
                if not callee:
                    total[key[0], key[1]] += int(line.split()[1])
                callee = False
            elif line.startswith('fn='):
                key[0] = name('fn', line[3:].rstrip())
            elif line.startswith('ob='):
                key[1] = name('ob', line[3:].rstrip())
            elif line.startswith('cfn='):
                name('fn', line[4:].rstrip())
            elif line.startswith('cob='):
                name('ob', line[4:].rstrip())
            elif line.startswith('calls='):
                # The next line has the cost of the called function.
                callee = True
    return total


def room(symbol, library):
    """The room of a function is its owner: a crate of the project (a stage of the engine), another crate, or a system library."""
    path = re.search(r'\b([a-z_][a-z0-9_]*)::', symbol)
    crate = path[1] if path else 'std' if symbol.startswith('<') else ''
    if crate.startswith('margay_'):
        return crate.removeprefix('margay_')
    for key, name in LIBRARIES.items():
        if key in os.path.basename(library or ''):
            return name
    if crate:
        return 'std' if crate in ('core', 'alloc') else crate
    for start, name in (('mi_', 'mimalloc'), ('_mi_', 'mimalloc'), ('lua', 'lua')):
        if symbol.startswith(start):
            return name
    return 'others'


def rooms(functions):
    """The instructions of each room."""
    by = collections.Counter()
    for (name, library), n in functions.items():
        by[room(name or '?', library)] += n
    return by


def machine(engine):
    """What counts depend on besides the code. Counts can be compared only if all of these are equal."""
    def first(argv, pattern):
        try:
            text = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        except OSError:
            return 'none'
        m = re.search(pattern, text)
        return m[1].strip() if m else 'unknown'
    flags = first(['grep', '-m1', '-E', '^(flags|Features)', '/proc/cpuinfo'], r':(.*)').split()
    return {'architecture': platform.machine(), 'avx2': 'avx2' in flags, 'libc': platform.libc_ver()[1],
            'matcher': first([engine, '--build-info'], r'Pattern matcher:\s*(.*)'),
            'rustc': first(['rustc', '--version'], r'rustc (\S+)'),
            'valgrind': first(['valgrind', '--version'], r'valgrind-(\S+)')}


def table(head, rows, out=sys.stdout):
    """Prints rows below a heading, with the first column aligned to the left and the others to the right."""
    rows = [[str(c) for c in r] for r in [head, *rows]]
    widths = [max(len(r[i]) for r in rows) for i in range(len(head))]
    for r in rows:
        print('  '.join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip(), file=out)
