#!/usr/bin/env python3
"""Generates rules from the contents of captures, runs them with the installed Suricata and with an engine, and shows the differences.

    generate-differential ENGINE [--captures GLOB …] [--seed N] [--rules N] [--minutes N] [--families F …] [--variants] [--show N] [--all]

ENGINE is Margay's binary. The captures are those of ../shared by default. Each capture gets N rules from a seed (40). With --minutes, captures are
used again with further seeds until the time is over. Differing cases are minimised and printed by class. With --variants every other run has
another configuration. Differences that known.toml explains are counted, and shown only with --all. Exit status 1 for an unknown difference.
docs/generated-rules.md has the details.
"""
import argparse
import collections
import glob
import hashlib
import os
import random
import re
import shutil
import sys
import tempfile
import time
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import captures
import engines
import makers
import shrink

HOME = os.path.dirname(os.path.dirname(HERE))
SHARED = os.environ.get('SHARED') or os.path.join(HOME, '..', 'shared')
LARGEST = 3_000_000
# With --variants a run changes one of these settings, in both engines.
VARIANTS = [['--set', 'stream.midstream=yes'], ['--set', 'stream.async-oneside=yes'], ['--set', 'stream.reassembly.depth=4096'], ['--simulate-ips'],
            ['--set', 'app-layer.protocols.tls.encryption-handling=full'], ['--set', 'app-layer.protocols.tls.encryption-handling=bypass'], ['--set', 'vars.address-groups.HOME_NET=10.0.0.0/8'],
            ['--set', 'stream.inline=yes'], ['--set', 'app-layer.protocols.http.libhtp.default-config.request-body-limit=100'], ['--set', 'stream.reassembly.toserver-chunk-size=500']]


def named(path):
    """A capture's name, with its folder if all cases call theirs so."""
    folder, name = os.path.split(path)
    return f'{os.path.basename(folder)}/{name}' if name.startswith('input.') else name


def known_classes():
    with open(os.path.join(HERE, 'known.toml'), 'rb') as f: return tomllib.load(f)['class']


def reason(known, case, kind, capture, variant):
    """The reason of a known difference; `None` if it is not known."""
    text, name, changed = '\n'.join(case.texts), named(capture), ' '.join(variant)
    for k in known:
        there = re.search(k.get('rules', ''), text) and re.search(k.get('captures', ''), name) and re.search(k.get('variants', ''), changed)
        if there and kind in k.get('kinds', [kind]): return k['reason']
    return None


class Comparison:
    """Runs both engines on a capture in one configuration, and returns the first difference of each case."""

    def __init__(self, here, there, capture, variant): self.here, self.there, self.capture, self.variant = here, there, capture, variant

    def __call__(self, cases):
        """Runs as many cases at once as the limit of alerts allows."""
        out, part, size = [], [], 0
        for case in cases:
            if part and size + len(case.texts) > engines.RULES:
                out += self.together(part); part, size = [], 0
            part.append(case); size += len(case.texts)
        return out + self.together(part)

    def together(self, cases):
        rules = [c.rules(n) for n, c in enumerate(cases, 1)]
        flat = [r for rs in rules for r in rs]
        if not flat: return []
        answers = [e.run(self.capture, flat, self.variant) for e in (self.here, self.there)]
        out, at = [], 0
        for rs in rules:
            here, there = (a[at:at + len(rs)] for a in answers)
            out.append(shrink.first(rs, here, there)); at += len(rs)
        return out


def make(r, world, count, families):
    names = list(families)
    weights = [makers.WEIGHTS[n] for n in names]
    return [(n, shrink.Case(makers.FAMILIES[n](r, world))) for n in r.choices(names, weights, k=count)]


def unknown(case, words):
    """Whether a case uses one of these keywords, which one of the engines does not know."""
    return any(o.partition(':')[0] in words for _, options in case.parts() for o in options)


def one(options, here, there, capture, seed, known):
    """Compares the engines on a capture with one seed. Returns the numbers of rules and of differing rules by family, and the minimised
    cases that are not known."""
    r = random.Random(hashlib.sha256(f'{seed} {os.path.basename(capture)}'.encode()).digest())
    world = captures.read(capture)
    if not world.packets: return collections.Counter(), []
    variant = r.choice([[]] * len(VARIANTS) + VARIANTS) if options.variants else []
    world.events = here.run(capture, [], variant, keep=True)
    made = make(r, world, options.rules, options.families)
    run = Comparison(here, there, capture, variant)
    counts, differ = collections.Counter(), []
    for (name, case), difference in zip(made, run([c for _, c in made])):
        if unknown(case, there.unknown ^ here.unknown): continue
        counts[name, 'made'] += 1
        if difference:
            counts[name, 'differ'] += 1
            differ.append((case, difference[1]))
    fresh = [(c, k) for c, k in differ if options.all or not reason(known, c, k, capture, variant)]
    counts['', 'known'] += len(differ) - len(fresh)
    small = shrink.shrink(fresh, run)
    left = [(c, k) for c, k in small if options.all or not reason(known, c, k, capture, variant)]
    counts['', 'known'] += len(small) - len(left)
    return counts, [(c, k, capture, variant) for c, k in left]


def report(options, counts, classes):
    print(f'{"family":14}{"cases":>8}{"differ":>8}')
    for name in sorted(makers.FAMILIES):
        if counts[name, 'made']: print(f'{name:14}{counts[name, "made"]:8}{counts[name, "differ"]:8}')
    made, differ = (sum(n for (_, what), n in counts.items() if what == w) for w in ('made', 'differ'))
    print(f'{"all":14}{made:8}{differ:8}   the same: {100 * (1 - differ / max(made, 1)):.2f} %; known.toml explains {counts["", "known"]}')
    for (kind, shape), cases in sorted(classes.items(), key=lambda x: -len(x[1]))[:options.show]:
        print(f'\n{len(cases)} {kind}: {shape}')
        for case, capture, variant in cases[:2]:
            print(f'    {named(capture)} {" ".join(variant)}')
            for rule in case.rules(1): print(f'        {rule}')
    if len(classes) > options.show: print(f'\n{len(classes) - options.show} more classes (--show)')


def arguments():
    p = argparse.ArgumentParser(prog='generate-differential', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('engine'); p.add_argument('--captures', nargs='*'); p.add_argument('--seed', type=int, default=1)
    p.add_argument('--rules', type=int, default=40); p.add_argument('--minutes', type=float, default=0)
    p.add_argument('--families', nargs='*', choices=makers.FAMILIES, default=list(makers.FAMILIES))
    p.add_argument('--variants', action='store_true'); p.add_argument('--show', type=int, default=40); p.add_argument('--all', action='store_true')
    return p.parse_args()


def main():
    options = arguments()
    peer = shutil.which('suricata')
    config = os.path.join(SHARED, 'captures/every.yaml')
    if not peer or not os.path.exists(config):
        sys.exit('generate-differential: needs Suricata (bench/install-peer) and ../shared (or SHARED)')
    globs = options.captures or [os.path.join(SHARED, 'captures/real/*'), os.path.join(SHARED, 'conformance/cases/**/*.pcap*')]
    paths = sorted(p for n in globs for p in glob.glob(n, recursive=True) if os.path.isfile(p) and 'pcap' in os.path.basename(p) and os.path.getsize(p) <= LARGEST)
    if not paths: sys.exit('generate-differential: no captures')
    folder = tempfile.mkdtemp(prefix='generated-')
    here = engines.Engine([os.path.abspath(options.engine)], config)
    there = engines.Engine([peer], engines.peer_config(config, folder), ['--set', 'threading.set-cpu-affinity=no'])
    known = known_classes()
    counts, classes, faults = collections.Counter(), collections.defaultdict(list), []
    end, seed = time.time() + options.minutes * 60, options.seed
    while True:
        for path in paths:
            if options.minutes and time.time() > end: break
            try: more, left = one(options, here, there, path, seed, known)
            except engines.Failed as e:
                faults.append(f'{named(path)}, seed {seed}: {e}')
                continue
            counts += more
            for case, kind, capture, variant in left: classes[kind, shrink.shape(case)].append((case, capture, variant))
        seed += 1
        if time.time() > end: break
    shutil.rmtree(folder, ignore_errors=True)
    report(options, counts, classes)
    for f in faults[:10]: print(f'fault: {f}')
    return 1 if classes or faults else 0


if __name__ == '__main__': sys.exit(main())
