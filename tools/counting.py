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
    # Reading, decoding, flows, streams and protocols; nothing is looked for and nothing written.
    'plain': 'outputs: []\n',
    'alerts': 'outputs:\n  - eve-log: {enabled: yes, filetype: regular, filename: eve.json, types: [alert]}\n',
    # The same, and the counters at the end.
    'counted': 'outputs:\n  - eve-log: {enabled: yes, filetype: regular, filename: eve.json, types: [alert, stats]}\n',
    # All that the configuration writes.
    'full': '',
}


def needs(program, package):
    """Ends with a word where the program is not installed."""
    if not shutil.which(program):
        sys.exit(f'{os.path.basename(sys.argv[0])}: {program} is not installed: apt-get install {package} '
                 f'(tools/setup {program} does it)')


def command(engine, configuration, rules, capture, out):
    """How the engine is run: one worker, a configuration of `CONFIGURATIONS`, its files in the folder `out`."""
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
    # The same environment everywhere; the processor that valgrind shows has nothing above AVX2.
    env = {'PATH': os.environ.get('PATH', '/usr/bin:/bin'), 'LC_ALL': 'C', 'TZ': 'UTC'}
    if os.path.exists(out):
        os.remove(out)
    p = subprocess.run(['valgrind', '--tool=callgrind', f'--callgrind-out-file={out}', *argv], env=env,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace')
    if p.returncode or not os.path.exists(out):
        sys.exit(f'{os.path.basename(sys.argv[0])}: the engine ended with status {p.returncode} in valgrind:\n{p.stdout[-3000:]}')
    return functions(out)


def functions(path):
    """The instructions that each function of a file of callgrind's spent itself: {(name, object): n}."""
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
    """The owner of a function: a crate of the project (its stage), another crate, or a system library."""
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
    """{room: instructions}."""
    by = collections.Counter()
    for (name, library), n in functions.items():
        by[room(name or '?', library)] += n
    return by


def machine(engine):
    """The dependencies of the counts beside the code: counts with different ones cannot be compared."""
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
    """Prints rows under a head; the first column stands left, the others right."""
    rows = [[str(c) for c in r] for r in [head, *rows]]
    widths = [max(len(r[i]) for r in rows) for i in range(len(head))]
    for r in rows:
        print('  '.join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip(), file=out)
