"""`margay-fleet`."""

import argparse
import os
import sys

from . import FleetError, __version__


def parser():
    """The command line."""
    top = argparse.ArgumentParser(prog="margay-fleet", description="Detection over many sensors and over archives of captures.")
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(dest="command", required=True)

    hunt = commands.add_parser(
        "hunt",
        help="run rules over an archive of `margay split`",
        description="Runs rules over an archive, and writes the alerts that one engine would give over the whole capture, in its order.",
        epilog="Exit status: 0 all was done; 1 something was wrong, is named, and the rest was done; 2 nothing was done.",
    )
    hunt.add_argument("--rules", action="append", required=True, metavar="FILE", help="rules to hunt with (may be given several times)")
    hunt.add_argument("--archive", required=True, metavar="DIR", help="the archive, where every worker finds it")
    hunt.add_argument("--from", dest="start", metavar="TIME", help="alerts from this time on, e.g. 2026-03-01T14:00:00Z")
    hunt.add_argument("--to", dest="end", metavar="TIME", help="alerts before this time")
    hunt.add_argument("--lead", type=int, default=3600, metavar="SECONDS", help="read parts so long before --from as well (3600)")
    hunt.add_argument("--engine", default="margay", metavar="PATH", help="the engine, at the same path on every worker (margay)")
    hunt.add_argument("-c", "--config", metavar="FILE", help="the engine's configuration, at the same path on every worker")
    hunt.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change one setting of it")
    hunt.add_argument("--local", type=int, metavar="N", help="N processes of this machine, without Spark")
    hunt.add_argument("--master", metavar="URL", help="Spark's master, e.g. local[4], yarn, k8s://… (that of spark-submit)")
    hunt.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    hunt.add_argument("--memory", type=int, metavar="MIB", help="address space of an engine; beyond it the task fails and is named")
    hunt.add_argument("--timeout", type=int, metavar="SECONDS", help="the longest that an engine may take for a unit")
    hunt.add_argument("--verify", action="store_true", help="compute checksums of parts before they are read")
    hunt.add_argument("--plan", action="store_true", help="print what would be run as JSON, and end")
    hunt.add_argument("-o", "--output", metavar="FILE", help="write alerts there (EVE, a line each) instead of to standard output")
    return top


def main(arguments=None):
    """Runs a command; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "hunt":
            from .hunt import hunt

            return hunt(options)
    except FleetError as e:
        print(f"margay-fleet {options.command}: {e}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 2
