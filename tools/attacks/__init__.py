"""Attacks on a sensor's resources: time and memory. Each is a function that fills a `Wire` with the requested amount of traffic."""
import collections

#: `name`; `make(wire)`; `what` it tries; `rules` besides the usual ones; `caps`: the limits of memory that it presses, as settings;
#: `settings` that are changed for it; `options` of the command line; `counters` that say that a limit was reached.
Attack = collections.namedtuple('Attack', 'name make what rules caps settings options counters')
ALL = []


def attack(name, rules='', caps=(), settings=(), options=(), counters=()):
    """Registers a function as an attack; what it tries is its documentation."""
    def register(make):
        what = ' '.join(make.__doc__.split())
        ALL.append(Attack(name, make, what, rules, tuple(caps), tuple(settings), tuple(options), tuple(counters)))
        return make
    return register


FLOW = ('flow.memcap', 'app-layer.memcap')
STREAM = FLOW + ('stream.memcap', 'stream.reassembly.memcap')
HTTP = STREAM + ('app-layer.protocols.http.memcap',)

from . import detection, mail, network, services, streams, web  # noqa: E402,F401 (they register what they have)
