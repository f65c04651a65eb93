"""Reading archives: the manifest and the indexes that `margay split` writes (crates/archive says what is in them)."""

import base64
import hashlib
import ipaddress
import json
from dataclasses import dataclass, field

from . import FleetError, store

VERSION = 1
MASK = (1 << 64) - 1
# Prefix lengths, in bits, under which addresses are in a filter.
PREFIXES = {4: (8, 16, 24, 32), 6: (32, 48, 64, 128)}
# Networks asked for one by one before a coarser one is asked for.
MOST_NETWORKS = 256
# Ports asked for one by one.
MOST_PORTS = 1024
HASHES = 8
# Rows of hosts by which parts can be read in pieces (crates/archive/src/group.rs), and bytes of a packet's entry in `.groups`.
ROWS = 361
GROUP_ENTRY = 6


def mix(word):
    """SplitMix64's mixing of a word of 64 bits."""
    z = (word + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def entry_hash(data):
    """FNV-1a of 64 bits, mixed."""
    h = 0xCBF29CE484222325
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return mix(h)


def network_entry(network, bits):
    """The hash of the network of the first `bits` bits (a multiple of 8) of an address."""
    tag = b"4" if network.version == 4 else b"6"
    return entry_hash(tag + bytes([bits]) + network.packed[: bits // 8])


def port_entry(protocol, port):
    """The hash of a port of a transport protocol by number."""
    return entry_hash(b"P" + bytes([protocol]) + port.to_bytes(2, "big"))


@dataclass
class Part:
    """A part as the manifest lists it; times in microseconds since 1970."""

    name: str
    bucket: int
    window: int
    packets: int
    bytes: int
    first: int
    last: int
    sha256: str


@dataclass
class Index:
    """What may be in a part."""

    protocols: frozenset
    fragments: int
    other: int
    bits: bytes
    asked: dict = field(default_factory=dict)

    def may_hold(self, hash_):
        """Whether the entry of this hash may be there; `False` is certain."""
        known = self.asked.get(hash_)
        if known is None:
            size, step = len(self.bits) * 8, mix(hash_) | 1
            places = (((hash_ + i * step) & MASK) % size for i in range(HASHES))
            known = bool(size) and all(self.bits[p // 8] >> (p % 8) & 1 for p in places)
            if len(self.asked) < 100_000:
                self.asked[hash_] = known
        return known

    def may_hold_network(self, network):
        """Whether there may be an address of `network` (of `ipaddress`)."""
        prefixes = PREFIXES[network.version]
        for bits in prefixes:
            if bits < network.prefixlen:
                continue
            count = 1 << (bits - network.prefixlen)
            if count > MOST_NETWORKS:
                break
            first, step = int(network.network_address), 1 << (network.max_prefixlen - bits)
            kind = type(network.network_address)
            return any(self.may_hold(network_entry(kind(first + n * step), bits)) for n in range(count))
        coarser = [bits for bits in prefixes if bits <= network.prefixlen]
        if not coarser:
            return True
        return self.may_hold(network_entry(network.network_address, coarser[-1]))

    def may_hold_ports(self, protocols, ranges):
        """Whether there may be a port of one of `ranges` (pairs, both ends within) of one of the transport protocols."""
        if sum(b - a + 1 for a, b in ranges) > MOST_PORTS:
            return True
        ports = (p for a, b in ranges for p in range(a, b + 1))
        return any(self.may_hold(port_entry(proto, p)) for p in ports for proto in protocols)


def _json(path, text):
    """What a file of JSON holds; `text` is its bytes, or why it cannot be read."""
    if isinstance(text, OSError):
        raise FleetError(f"{path}: cannot be read: {text.strerror}") from text
    try:
        return json.loads(text)
    except ValueError as e:
        raise FleetError(f"{path}: is not what `margay split` writes ({e}): split the captures again") from e


class Archive:
    """An archive of `margay split`, in a folder or in S3 (`store`)."""

    def __init__(self, location):
        self.store = store.at(location)
        path = self.store.path("archive.json")
        manifest = _json(path, next(iter(self.store.read_many(["archive.json"]))))
        try:
            if manifest["version"] != VERSION:
                raise FleetError(
                    f"{path}: has version {manifest['version']}, and this program reads version {VERSION}: "
                    "take the margay-fleet that came with the engine, or split the captures again"
                )
            self.buckets, self.packets, self.window = manifest["buckets"], manifest["packets"], manifest["window"]
            # Whether a part can be read for some hosts alone.
            self.by_hosts = manifest.get("rows", 0) == ROWS
            self.together = [tuple(s) for s in manifest["together"]]
            self.checksums_believed = manifest["checksums_believed"]
            self.ports_known = manifest["fragments_refused"] == 0
            self.parts = [Part(**p) for p in manifest["parts"]]
        except (KeyError, TypeError) as e:
            raise FleetError(f"{path}: lacks {e}: split the captures again") from e

    def indexes(self, parts):
        """Parts, each with its index. They are read anew each time: a plan holds a few at a time."""
        names = [f"{part.name}.index.json" for part in parts]
        for part, name, text in zip(parts, names, self.store.read_many(names)):
            yield part, self._index(self.store.path(name), text)

    def _index(self, path, text):
        text = _json(path, text)
        try:
            if text["version"] != VERSION:
                raise FleetError(f"{path}: has version {text['version']}, and this program reads version {VERSION}")
            bits = base64.b64decode(text["filter"], validate=True)
            return Index(frozenset(text["protocols"]), text["fragments"], text["other"], bits)
        except (KeyError, TypeError, ValueError) as e:
            raise FleetError(f"{path}: is not what `margay split` writes ({e}): split the captures again") from e

    def problem(self, part, verify=False):
        """What is wrong with a part's files, or None. With `verify` its checksum is computed."""
        capture = f"{part.name}.pcapng"
        files = [(capture, part.bytes), (f"{part.name}.numbers", part.packets * 8)]
        if self.by_hosts:
            files.append((f"{part.name}.groups", part.packets * GROUP_ENTRY))
        for name, size in files:
            try:
                there = self.store.size(name)
            except OSError as e:
                return f"{self.store.path(name)}: cannot be read: {e.strerror}"
            if there != size:
                return f"{self.store.path(name)}: has {there} bytes, and the archive was written with {size}"
        if verify:
            sum_ = hashlib.sha256()
            for block in self.store.blocks(capture):
                sum_.update(block)
            if sum_.hexdigest() != part.sha256:
                return f"{self.store.path(capture)}: its checksum is not the one that it was written with"
        return None
