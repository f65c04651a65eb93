"""Sends this package to Spark workers, which need not have it installed."""

import os
import tempfile
import zipfile


def send(context):
    """Makes the workers of a Spark context load this package. Returns the path of the archive, which must exist until they have it."""
    folder = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(tempfile.mkdtemp(prefix="margay-fleet-"), "margay_fleet.zip")
    with zipfile.ZipFile(path, "w") as z:
        for name in sorted(os.listdir(folder)):
            if name.endswith(".py"):
                z.write(os.path.join(folder, name), f"margay_fleet/{name}")
    context.addPyFile(path)
    return path
