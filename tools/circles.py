"""Circles between the modules of a crate: modules that import each other, directly or through others.

A module is a file or folder directly below a crate's `src`. Imports are read from the paths `crate::…` and `super::…`; the root and test
modules are left out. A name that the root re-exports (`pub use registry::List`) counts as its module's.
"""
import re


def code(path):
    """A file without comments and without its test module."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    return text.split("#[cfg(test)]\nmod tests {")[0]


def modules(src):
    """The files below `src` by module path: ("settings", "tls")."""
    found = {}
    for path in src.rglob("*.rs"):
        parts = path.relative_to(src).with_suffix("").parts
        parts = parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts
        if not {"tests", "testing"} & set(parts):
            found[parts] = path
    return found


def imported(text, module):
    """The paths that a file of `module` names, as tuples from the crate's root."""
    for found in re.finditer(r"\b(crate|super(?:::super)*)::(\{?)", text):
        up = found[1].count("super")
        base = module[: len(module) - up] if up else ()
        names = [text[found.end() : found.end() + 200]]
        if found[2]:
            depth, names = 1, [""]
            for c in text[found.end() :]:
                depth += {"{": 1, "}": -1}.get(c, 0)
                if depth == 0:
                    break
                if c == "," and depth == 1:
                    names.append("")
                else:
                    names[-1] += c
        for name in names:
            if path := re.match(r"\s*((?:\w+::)*\w+)", name):
                yield base + tuple(path[1].split("::"))


def reexported(root):
    """The module of each name that the crate's root re-exports."""
    found = {}
    for use in re.finditer(r"\buse (\w+)(?:::\w+)*::(\{[^}]*\}|\w+(?: as \w+)?);", code(root)):
        for name in re.findall(r"(\w+)\s*(?:,|\}|$)", use[2]):
            found[name] = use[1]
    return found


def imports(src):
    """For each module below `src`, the modules that it imports."""
    files = modules(src)
    names = reexported(files[()]) if () in files else {}
    edges = {}
    for module, path in files.items():
        if not module:
            continue
        for name in imported(code(path), module):
            if name and name[:1] not in files:
                name = (names.get(name[0]),)
            while name and name not in files:
                name = name[:-1]
            if name and name[0] != module[0]:
                edges.setdefault(module[0], set()).add(name[0])
    return edges


def reached(edges, start):
    """The modules that `start` imports, directly or through others."""
    found, left = set(), list(edges.get(start, ()))
    while left:
        if (module := left.pop()) not in found:
            found.add(module)
            left.extend(edges.get(module, ()))
    return found


def of_crate(src):
    """The modules below `src` that are part of a circle."""
    edges = imports(src)
    return sorted(module for module in edges if module in reached(edges, module))
