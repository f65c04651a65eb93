"""Reads archives: the manifest and the indexes of `margay split` (crates/archive documents the formats)."""

import base64
import hashlib
import ipaddress
import json
from dataclasses import dataclass, field

from . import FleetError, store

VERSION = 1
MASK = (1 << 64) - 1
# Prefix lengths, in bits, of the addresses in a filter.
PREFIXES = {4: (8, 16, 24, 32), 6: (32, 48, 64, 128)}
# Most networks to look up one by one; beyond that, a coarser one is looked up.
MOST_NETWORKS = 256
# Most ports to look up one by one.
MOST_PORTS = 1024
HASHES = 8
# Host rows through which parts can be read in pieces (crates/archive/src/group.rs), and bytes of a packet's entry in `.groups`.
ROWS = 361
GROUP_ENTRY = 6


def mix(word):
    """SplitMix64's mixing function for a 64-bit word."""
    z = (word + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def entry_hash(data):
    """64-bit FNV-1a, mixed."""
    h = 0xCBF29CE484222325
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return mix(h)


def network_entry(network, bits):
    """The hash of an address's network with `bits` bits (a multiple of 8)."""
    tag = b"4" if network.version == 4 else b"6"
    return entry_hash(tag + bytes([bits]) + network.packed[: bits // 8])


def port_entry(protocol, port):
    """The hash of a port, with the number of its transport protocol."""
    return entry_hash(b"P" + bytes([protocol]) + port.to_bytes(2, "big"))


@dataclass
class Part:
    """A part in the manifest; times are microseconds since 1970."""

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
    """The entries that a part may contain."""

    protocols: frozenset
    fragments: int
    other: int
    bits: bytes
    asked: dict = field(default_factory=dict)

    def may_hold(self, hash_):
        """Whether an entry with this hash may exist; `False` is certain."""
        known = self.asked.get(hash_)
        if known is None:
            size, step = len(self.bits) * 8, mix(hash_) | 1
            places = (((hash_ + i * step) & MASK) % size for i in range(HASHES))
            known = bool(size) and all(self.bits[p // 8] >> (p % 8) & 1 for p in places)
            if len(self.asked) < 100_000:
                self.asked[hash_] = known
        return known

    def may_hold_network(self, network):
        """Whether an address in `network` (of `ipaddress`) may exist."""
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
        """Whether a port in one of `ranges` (inclusive pairs) may exist with one of the transport protocols."""
        if sum(b - a + 1 for a, b in ranges) > MOST_PORTS:
            return True
        ports = (p for a, b in ranges for p in range(a, b + 1))
        return any(self.may_hold(port_entry(proto, p)) for p in ports for proto in protocols)


def _json(path, text):
    """Parses a JSON file. `text` is its content, or the error from reading it."""
    if isinstance(text, OSError):
        raise FleetError(f"{path}: cannot be read: {text.strerror}") from text
    try:
        return json.loads(text)
    except ValueError as e:
        raise FleetError(f"{path}: is not an archive file of `margay split` ({e}): split the captures again") from e


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
            # Whether a part can be read for selected hosts.
            self.by_hosts = manifest.get("rows", 0) == ROWS
            self.together = [tuple(s) for s in manifest["together"]]
            self.checksums_believed = manifest["checksums_believed"]
            self.ports_known = manifest["fragments_refused"] == 0
            self.parts = [Part(**p) for p in manifest["parts"]]
        except (KeyError, TypeError) as e:
            raise FleetError(f"{path}: lacks {e}: split the captures again") from e

    def indexes(self, parts):
        """Yields parts with their indexes, reading each again, so that a plan holds only a few at a time."""
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
            raise FleetError(f"{path}: is not an archive file of `margay split` ({e}): split the captures again") from e

    def problem(self, part, verify=False):
        """The error in a part's files, or None. With `verify` its checksum is computed."""
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
