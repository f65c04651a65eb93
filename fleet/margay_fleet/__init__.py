"""Detection over many Margay sensors, and over archives of captures (docs/fleet.md).

`index`, `rules`, `plan`, `engine` and `hunt` run rules over archives (`margay split`). `thresholds` counts as the engine does. `detectors` and
`stream` analyse the events of many sensors together. `rollout` shows what sensors run, and makes them reload.
"""

__version__ = "0.2.0"


class FleetError(Exception):
    """An error that the user can fix. The text says what happened, where, and what to do."""
