"""Reading archives: the manifest and the indexes that `margay split` writes (crates/archive says what is in them)."""

import base64
import hashlib
import ipaddress
import json
import os
from dataclasses import dataclass, field

from . import FleetError

VERSION = 1
MASK = (1 << 64) - 1
# Prefix lengths, in bits, under which addresses are in a filter.
PREFIXES = {4: (8, 16, 24, 32), 6: (32, 48, 64, 128)}
# Networks asked for one by one before a coarser one is asked for.
MOST_NETWORKS = 256
# Ports asked for one by one.
MOST_PORTS = 1024
HASHES = 8


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


def _json(path):
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except OSError as e:
        raise FleetError(f"{path}: cannot be read: {e.strerror}") from e
    except ValueError as e:
        raise FleetError(f"{path}: is not what `margay split` writes ({e}): split the captures again") from e


class Archive:
    """An archive of `margay split`."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        path = os.path.join(self.folder, "archive.json")
        manifest = _json(path)
        try:
            if manifest["version"] != VERSION:
                raise FleetError(
                    f"{path}: has version {manifest['version']}, and this program reads version {VERSION}: "
                    "take the margay-fleet that came with the engine, or split the captures again"
                )
            self.buckets, self.packets, self.window = manifest["buckets"], manifest["packets"], manifest["window"]
            self.together = [tuple(s) for s in manifest["together"]]
            self.checksums_believed = manifest["checksums_believed"]
            self.ports_known = manifest["fragments_refused"] == 0
            self.parts = [Part(**p) for p in manifest["parts"]]
        except (KeyError, TypeError) as e:
            raise FleetError(f"{path}: lacks {e}: split the captures again") from e

    def file(self, part, extension="pcapng"):
        """The path of a part's file."""
        return os.path.join(self.folder, f"{part.name}.{extension}")

    def index(self, part):
        """A part's index. It is read anew each time: a plan holds one at a time."""
        path = self.file(part, "index.json")
        text = _json(path)
        try:
            if text["version"] != VERSION:
                raise FleetError(f"{path}: has version {text['version']}, and this program reads version {VERSION}")
            bits = base64.b64decode(text["filter"], validate=True)
            return Index(frozenset(text["protocols"]), text["fragments"], text["other"], bits)
        except (KeyError, TypeError, ValueError) as e:
            raise FleetError(f"{path}: is not what `margay split` writes ({e}): split the captures again") from e

    def problem(self, part, verify=False):
        """What is wrong with a part's files, or None. With `verify` its checksum is computed."""
        path = self.file(part)
        for name, size in ((path, part.bytes), (self.file(part, "numbers"), part.packets * 8)):
            try:
                there = os.stat(name).st_size
            except OSError as e:
                return f"{name}: cannot be read: {e.strerror}"
            if there != size:
                return f"{name}: has {there} bytes, and the archive was written with {size}"
        if verify:
            sum_ = hashlib.sha256()
            with open(path, "rb") as f:
                while block := f.read(1 << 20):
                    sum_.update(block)
            if sum_.hexdigest() != part.sha256:
                return f"{path}: its checksum is not the one that it was written with"
        return None
