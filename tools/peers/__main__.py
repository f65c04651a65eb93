"""Looks for evasions above TCP, with programs that users run (docs/peers.md).

    peers ENGINE [--quick] [--only KIND,...] [--peers NAME,...] [--seed N] [--count N] [--show N]

Odd messages go to real programs. Everything that these read has to be in the engine's buffers. Every change of every message is tested separately,
and so are COUNT random combinations of changes from SEED (for each kind and each peer). With --quick there are few combinations. A difference
fails the run unless known.toml lists it; a listed difference that does not appear fails the run as well.
"""
import argparse
import collections
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import hellos
import http_requests
import http_responses
import mail
import peers
import search
from engine import Engine
from known import Known

KINDS = [http_requests.KIND, http_responses.KIND, mail.KIND, hellos.KIND]
SEED, COUNT, QUICK = 1, 20000, 100
# New findings of each peer for which the smallest message is searched and printed.
SHOW = 5


def not_run(what, why):
    """Reports that a peer does not run, also for tools/not-run. Only `make peers` installs missing programs."""
    print(f'peers: {what} does not run: {why}')
    account = os.environ.get('MARGAY_NOT_RUN')
    if account:
        with open(account, 'a') as f:
            f.write(f'peers\t{what}\t{why}\tunavailable\n')


def explained(alone, finding):
    """Whether one of the finding's changes alone causes the same difference."""
    return any((c, finding.place, finding.view) in alone for c in finding.changed())


def search_peer(engine, kind, peer, known, options):
    """Tests one peer with all messages. Returns the number of new findings."""
    began = time.time()
    peer.start()
    try:
        plain = search.hold(engine, kind, peer, [search.Case(base, ()) for base in kind.bases])
        if plain.accepted < len(kind.bases):
            raise SystemExit(f'peers: {kind.name}, {peer.name}: {len(kind.bases) - plain.accepted} messages that have nothing odd are not read')
        held = search.hold(engine, kind, peer, search.singles(kind))
        alone = {(c, f.place, f.view) for f in held.findings for c in f.changed()}
        mixed = search.hold(engine, kind, peer, search.drawn(kind, options.seed, options.count))
        findings, counted = list(held.findings), collections.Counter()
        for f in mixed.findings:
            if explained(alone, f) or known.entry(kind, f):
                counted['mixtures of these'] += 1
                continue
            f = search.shrink(engine, kind, peer, f)
            findings.append(f)
            if len(f.case.mutations) == 1:
                alone.add((*f.changed(), f.place, f.view))
        new = {}
        for f in findings:
            if known.entry(kind, f):
                counted['known'] += 1
            else:
                new.setdefault(tuple(f.changed()), []).append(f)
        cases, accepted, tokens = (getattr(held, n) + getattr(mixed, n) for n in ('cases', 'accepted', 'tokens'))
        print(f'{kind.name:14} {peer.name:14} {cases:7} messages, {accepted:7} read, {tokens:8} tokens: {len(new):3} new, {counted["known"]:4} known, '
              f'{counted["mixtures of these"]:5} mixtures of these; {time.time() - began:.1f} s', flush=True)
        for n, (changes, some) in enumerate(new.items()):
            show(engine, kind, peer, changes, some, n < options.show)
        return len(new)
    finally:
        peer.stop()


def show(engine, kind, peer, changes, findings, small):
    """Prints the findings of one set of changes. With `small`, also prints the smallest message that shows the first finding."""
    print(f'  new: {" + ".join(changes)}')
    places = collections.defaultdict(set)
    for f in findings:
        places[f'{f.place} > {f.view}'].add(f.case.base)
    for place, some in sorted(places.items())[:6]:
        print(f'    {place} in {", ".join(sorted(some))}')
    if len(places) > 6:
        print(f'    and {len(places) - 6} more')
    if small:
        print(f'    smallest: {search.smallest(engine, kind, peer, findings[0])!r} ({findings[0].case.base}, {findings[0].place})')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('engine', help='the engine, or the folder that it is in')
    p.add_argument('--quick', action='store_true', help=f'{QUICK} mixtures, no more')
    p.add_argument('--only', type=lambda t: t.split(','), help='kinds: ' + ', '.join(k.name for k in KINDS))
    p.add_argument('--peers', type=lambda t: t.split(','), help='programs, by name')
    p.add_argument('--seed', type=int, default=SEED)
    p.add_argument('--count', type=int, help=f'mixtures for each peer ({COUNT})')
    p.add_argument('--show', type=int, default=SHOW, help=f'new findings that are made small, for each peer ({SHOW})')
    options = p.parse_args()
    options.count = options.count if options.count is not None else QUICK if options.quick else COUNT
    engine = Engine(os.path.join(options.engine, 'margay') if os.path.isdir(options.engine) else options.engine)
    known, bad = Known(), 0
    for kind in KINDS:
        if options.only and kind.name not in options.only:
            continue
        ran = []
        for peer in kind.peers:
            if options.peers and peer.name not in options.peers:
                continue
            if options.quick and not peer.short_run and not options.peers:
                print(f'{kind.name:14} {peer.name:14} is asked by the long run alone')
                continue
            if why := peers.missing(peer.name):
                not_run(f'{kind.name}, {peer.name}', why)
                continue
            bad += search_peer(engine, kind, peer, known, options)
            ran.append(peer.name)
        for entry, peer in known.unseen(kind, ran):
            same = known.same_version(peer)
            print(f'  {"not seen any more" if same else "not seen, of another version than listed"}: {kind.name}, {peer}, {entry.row["odd"]} ({entry.row["reason"]})')
            bad += same
    if bad:
        sys.exit(f'peers: {bad} differences that are not as tools/peers/known.toml says')
    print('peers: what was read was seen, or is listed')


main()
