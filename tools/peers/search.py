"""Generates odd messages, compares a program's reading with the engine's, and finds the smallest message that differs."""
import dataclasses
import itertools
import random
from typing import Callable

CUTS = ('whole', 'bytes', 'random')


@dataclasses.dataclass
class Kind:
    """A kind of messages: how they are made, which programs read them, and where the engine shows the same data."""
    name: str
    # For rules and the capture: the protocol, the server's port, and the rule options of each buffer.
    protocol: str
    port: int
    buffers: dict
    # The member of events that has a message's fields, if there is one.
    fields: str | None
    # A function from a place in which a program read a token to the views in which the engine must show it.
    views: Callable
    peers: list
    # Plain messages by name; their possible changes; functions that copy a message, and that turn it into bytes.
    bases: dict
    mutations: list
    copy: Callable
    write: Callable


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A change of a message: the part that it changes, the variant, and the function."""
    what: str
    variant: str
    apply: Callable = dataclasses.field(compare=False)

    def __str__(self):
        return f'{self.what} {self.variant}'


def changes(table):
    """Mutations from a table of name, variants and function."""
    return [Mutation(what, brief(v), lambda m, v=v, f=apply: f(m, v)) for what, variants, apply in table for v in variants]


def brief(variant):
    text = ascii(variant.decode('latin-1') if isinstance(variant, bytes) else variant)
    return text if len(text) < 80 else f'{text[:30]}...{text[-30:]} of {len(variant)}'


@dataclasses.dataclass(frozen=True)
class Case:
    base: str
    mutations: tuple
    cut: str = 'whole'

    def bytes(self, kind):
        """The message's bytes; None if a change does not apply to it."""
        message = kind.copy(kind.bases[self.base])
        try:
            for m in self.mutations:
                m.apply(message)
        except (IndexError, StopIteration, KeyError, AttributeError, ValueError):
            return None
        return kind.write(message)

    def __str__(self):
        return f'{self.base}: {" + ".join(map(str, self.mutations)) or "as it is"}' + (f' (segments: {self.cut})' if self.cut != 'whole' else '')


@dataclasses.dataclass(frozen=True)
class Finding:
    """A token that a program read in a place, and that the engine did not show in a view of this place."""
    peer: str
    place: str
    view: str
    case: Case

    def changed(self):
        return [str(m) for m in self.case.mutations] or ['as it is']


def singles(kind):
    """Every base, unchanged and with each single change."""
    for base in kind.bases:
        for m in [()] + [(m,) for m in kind.mutations]:
            yield Case(base, m)


def drawn(kind, seed, count):
    """Random cases with one to four changes, cut into segments in a random way."""
    draw = random.Random(f'{kind.name} {seed}')
    by_what = {}
    for m in kind.mutations:
        by_what.setdefault(m.what, []).append(m)
    whats = sorted(by_what)
    for _ in range(count):
        some = draw.sample(whats, min(len(whats), draw.choice((1, 2, 2, 3, 4))))
        yield Case(draw.choice(list(kind.bases)), tuple(draw.choice(by_what[w]) for w in sorted(some)), draw.choice(CUTS))


@dataclasses.dataclass
class Held:
    """The result of a peer's cases: numbers of cases, of those it read, and of tokens; and the findings."""
    cases: int = 0
    accepted: int = 0
    tokens: int = 0
    findings: list = dataclasses.field(default_factory=list)


def hold(engine, kind, peer, cases):
    """Sends the cases to the peer and their conversations to the engine, and compares."""
    messages = [(c, b) for c in cases if (b := c.bytes(kind)) is not None]
    held = Held(len(messages))
    for case, missed, read in compare(engine, kind, peer, messages):
        held.accepted += bool(read)
        held.tokens += len(read)
        held.findings += [Finding(peer.name, place, view, case) for place, view in sorted(missed)]
    return held


def compare(engine, kind, peer, messages):
    """For each message: the pairs of place and view that the engine missed, and the tokens that the peer read."""
    answers = peer.ask([b for _, b in messages])
    seen = engine.see(kind, [(turns, case.cut) for (case, _), (turns, _) in zip(messages, answers)])
    for (case, _), (_, read), views in zip(messages, answers, seen):
        yield case, {(place, view) for place, t in read for view in kind.views(place) if (view, t) not in views}, read


def smaller(case):
    """Cases with fewer changes, the fewest first, each uncut and cut as before."""
    for n in range(len(case.mutations) + 1):
        for some in itertools.combinations(case.mutations, n):
            for cut in dict.fromkeys(('whole', case.cut)):
                if (some, cut) != (case.mutations, case.cut):
                    yield Case(case.base, some, cut)


def shrink(engine, kind, peer, finding):
    """The same finding with the fewest changes that show it."""
    held = hold(engine, kind, peer, smaller(finding.case))
    return next((f for f in held.findings if (f.place, f.view) == (finding.place, finding.view)), finding)


def smallest(engine, kind, peer, finding, rounds=60):
    """The shortest message that still shows a finding. Removes parts of the message as long as it does."""
    message = finding.case.bytes(kind)
    size = len(message) // 2
    while size and rounds:
        rounds -= 1
        without = [message[:at] + message[at + size:] for at in range(0, len(message), size)]
        held = compare(engine, kind, peer, [(finding.case, m) for m in without])
        shown = [m for m, (_, missed, _) in zip(without, held) if (finding.place, finding.view) in missed]
        if shown:
            message = shown[0]
        size = min(size, len(message)) if shown else size // 2
    return message
