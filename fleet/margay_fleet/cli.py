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
    hunt.add_argument("--archive", required=True, metavar="DIR", help="the archive, at the same path on every worker; or s3://BUCKET/PREFIX")
    hunt.add_argument("--from", dest="start", metavar="TIME", help="alerts from this time on, e.g. 2026-03-01T14:00:00Z")
    hunt.add_argument("--to", dest="end", metavar="TIME", help="alerts before this time")
    hunt.add_argument("--lead", type=int, default=3600, metavar="SECONDS", help="also read parts up to this long before --from (3600)")
    hunt.add_argument("--engine", default="margay", metavar="PATH", help="the engine, at the same path on every worker (margay)")
    hunt.add_argument("-c", "--config", metavar="FILE", help="the engine's configuration, at the same path on every worker")
    hunt.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change one of its settings")
    hunt.add_argument("--local", type=int, metavar="N", help="use N local processes, without Spark")
    hunt.add_argument("--master", metavar="URL", help="Spark's master, e.g. local[4], yarn, k8s://… (that of spark-submit)")
    hunt.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    hunt.add_argument("--memory", type=int, metavar="MIB", help="limit of an engine's address space; a task that exceeds it fails and is reported")
    hunt.add_argument("--timeout", type=int, metavar="SECONDS", help="time limit of an engine for each unit")
    hunt.add_argument("--verify", action="store_true", help="verify the checksums of parts before reading them")
    hunt.add_argument("--plan", action="store_true", help="print the plan as JSON, and end")
    hunt.add_argument("-o", "--output", metavar="FILE", help="write alerts to this file (EVE, one on each line) instead of standard output")

    stream = commands.add_parser(
        "stream",
        help="detect over the events of many sensors",
        description="Reads EVE lines of many sensors, and writes what no single one can tell (findings), and every line (events), as Parquet by day and sensor.",
    )
    source = stream.add_mutually_exclusive_group(required=True)
    source.add_argument("--kafka", metavar="SERVERS", help="Kafka's servers, HOST:PORT,…")
    source.add_argument("--files", metavar="DIR", help="a folder of EVE files, which may grow")
    stream.add_argument("--topic", default="margay", help="the topic that sensors write to (margay)")
    stream.add_argument("--kafka-option", action="append", default=[], metavar="NAME=VALUE", help="an option of Spark's Kafka source, e.g. kafka.security.protocol=SSL")
    stream.add_argument("--output", required=True, metavar="DIR", help="folder for findings and events")
    stream.add_argument("--checkpoint", required=True, metavar="DIR", help="folder for Spark's progress; a separate one for each --output")
    stream.add_argument("--settings", metavar="FILE", help="limits of the detectors (JSON; docs/fleet.md)")
    stream.add_argument("--delay", default="30 seconds", help="how late a line may arrive and still count (30 seconds)")
    stream.add_argument("--every", default="10 seconds", help="time between batches (10 seconds)")
    stream.add_argument("--once", action="store_true", help="read the available events, and end")
    stream.add_argument("--findings-topic", metavar="TOPIC", help="write findings to this topic as well")
    stream.add_argument("--kafka-out", metavar="SERVERS", help="Kafka's servers for the findings, if the source is not Kafka")
    stream.add_argument("--master", metavar="URL", help="Spark's master (that of spark-submit)")
    stream.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")

    size = commands.add_parser("size", help="compute a fleet's cores and storage from measured costs")
    size.add_argument("--sensors", type=int, default=100, metavar="N", help="sensors (100)")
    size.add_argument("--events", type=float, default=200, metavar="N", help="events a second from each sensor (200)")
    size.add_argument("--archive", default="1PB", metavar="SIZE", help="bytes of captures (1PB)")
    size.add_argument("--part-size", default="256M", metavar="SIZE", help="bytes of a part (256M)")
    size.add_argument("--read", type=float, default=1.0, metavar="SHARE", help="share of the archive that a hunt reads (1)")
    size.add_argument("--cores", type=int, default=256, metavar="N", help="cores for hunts (256)")
    size.add_argument("--costs", metavar="FILE", help="costs measured elsewhere (JSON; fleet/measure.py)")

    sensors = commands.add_parser("sensors", help="show the state of sensors from their stats events")
    sensors.add_argument("files", nargs="+", metavar="FILE", help="EVE files with events of type stats")

    reload = commands.add_parser(
        "reload",
        help="make sensors reload their rules, ring by ring",
        description="Has sensors reload their rules over their sockets, one ring at a time, and stops where a sensor loses more packets or uses more CPU than before. "
        "Shows what it would do unless --really is given.",
    )
    reload.add_argument("--rings", required=True, metavar="FILE", help="one ring on each line, with hosts separated by spaces")
    reload.add_argument("--ssh", default="ssh -o BatchMode=yes {host}", metavar="COMMAND", help="command that reaches a sensor (ssh -o BatchMode=yes {host})")
    reload.add_argument("--ctl", default="margay ctl", metavar="COMMAND", help="command that asks the engine's socket (margay ctl)")
    reload.add_argument("--cpu", default="ps -o cputimes= -C margay", metavar="COMMAND", help="command that prints CPU seconds (ps -o cputimes= -C margay); '' for none")
    reload.add_argument("--watch", type=float, default=60, metavar="SECONDS", help="how long to watch a ring before and after the reload (60)")
    reload.add_argument("--max-loss", type=float, default=0.001, metavar="PART", help="allowed increase in the share of lost packets (0.001)")
    reload.add_argument("--max-cpu", type=float, default=0.25, metavar="PART", help="allowed relative increase of CPU use (0.25)")
    reload.add_argument("--really", action="store_true", help="reload; without it, only show the commands")
    return top


def main(arguments=None):
    """Runs a command; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "hunt":
            from .hunt import hunt

            return hunt(options)
        if options.command == "stream":
            from .stream import stream

            return stream(options)
        if options.command == "size":
            from .sizing import sizes

            return sizes(options)
        from . import rollout

        return {"sensors": rollout.sensors, "reload": rollout.reload}[options.command](options)
    except FleetError as e:
        print(f"margay-fleet {options.command}: {e}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
