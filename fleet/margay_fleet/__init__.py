"""Detection over many Margay sensors, and over archives of captures (docs/fleet.md).

`index`, `rules`, `plan`, `engine` and `hunt` ask archives (`margay split`) something new; `thresholds` counts as the engine does;
`detectors` and `stream` look at the events of many sensors together; `rollout` says what sensors run and has them reload.
"""

__version__ = "0.2.0"


class FleetError(Exception):
    """Something that whoever gave the command can mend; the text says what, where and how."""
