"""The storage of an archive: a folder, or S3 objects (`s3://BUCKET/PREFIX`; `s3a://` and `s3n://` mean the same).

boto3 reads S3. It finds keys, region and endpoint as other tools do (environment, files in `~/.aws`, machine roles). For other stores than
Amazon's, set `AWS_ENDPOINT_URL`. Workers use the same sources. Files for the engine are copied to the task's own folder.
"""

import os
from concurrent.futures import ThreadPoolExecutor

from . import FleetError

SCHEMES = ("s3://", "s3a://", "s3n://")
# Bytes of an object to read at a time.
BLOCK = 1 << 20
# Small objects to request at a time; their number costs time, not their size.
AT_ONCE = 32
# How often to retry an object whose transfer breaks off.
TRIES = 3


class Folder:
    """An archive in a folder, at the same path on every worker."""

    local = True

    def __init__(self, location):
        self.location = os.path.abspath(location)

    def path(self, name):
        """A file's name in messages, and for the engine."""
        return os.path.join(self.location, name)

    def read(self, name):
        """Reads a whole file."""
        with open(self.path(name), "rb") as f:
            return f.read()

    def read_many(self, names):
        """Reads whole files, in order. An `OSError` takes the place of a file that cannot be read."""
        for name in names:
            try:
                yield self.read(name)
            except OSError as e:
                yield e

    def size(self, name):
        """A file's size."""
        return os.stat(self.path(name)).st_size

    def blocks(self, name):
        """Reads a file in blocks."""
        with open(self.path(name), "rb") as f:
            while block := f.read(BLOCK):
                yield block


class Bucket:
    """An archive in S3. Failures are `OSError`s, as for a folder."""

    local = False

    def __init__(self, location):
        bucket, _, prefix = location.split("://", 1)[1].partition("/")
        if not bucket:
            raise FleetError(f"'{location}' names no bucket: write s3://BUCKET/PREFIX")
        self.bucket, self.prefix = bucket, prefix.strip("/")
        self.location = f"s3://{bucket}/{self.prefix}".rstrip("/")
        try:
            import boto3
            import botocore.config
            import botocore.exceptions
        except ImportError as e:
            raise FleetError("boto3, which reads S3, is not installed: pip install 'margay-fleet[s3]'") from e
        self._failures = (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError)
        retries = botocore.config.Config(retries={"mode": "standard", "max_attempts": 5}, max_pool_connections=AT_ONCE)
        try:
            self._client = boto3.session.Session().client("s3", config=retries)
        except self._failures as e:
            raise FleetError(f"{self.location}: {e}") from e

    def path(self, name):
        """An object's name in messages."""
        return f"{self.location}/{name}"

    def _ask(self, what, name):
        try:
            return what(Bucket=self.bucket, Key=f"{self.prefix}/{name}" if self.prefix else name)
        except self._failures as e:
            raise OSError(0, str(e), self.path(name)) from e

    def read(self, name):
        """Reads a whole object."""
        return b"".join(self.blocks(name))

    def read_many(self, names):
        """Reads whole objects, in order. An `OSError` takes the place of an object that cannot be read."""

        def one(name):
            try:
                return self.read(name)
            except OSError as e:
                return e

        names = list(names)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            # Limit the requests, because results wait in memory until they are taken.
            for at in range(0, len(names), 4 * AT_ONCE):
                yield from pool.map(one, names[at : at + 4 * AT_ONCE])

    def size(self, name):
        """An object's size."""
        return self._ask(self._client.head_object, name)["ContentLength"]

    def blocks(self, name):
        """Reads an object in blocks."""
        body = self._ask(self._client.get_object, name)["Body"]
        try:
            yield from body.iter_chunks(BLOCK)
        except self._failures as e:
            raise OSError(0, str(e), self.path(name)) from e
        finally:
            body.close()

    def fetch(self, names, folder):
        """Copies objects into a folder. A broken transfer starts again; boto3 retries requests, but not bodies."""
        os.makedirs(folder, exist_ok=True)
        for name in names:
            for left in reversed(range(TRIES)):
                try:
                    with open(os.path.join(folder, name), "wb") as f:
                        f.writelines(self.blocks(name))
                    break
                except OSError:
                    if not left:
                        raise


def at(location):
    """The store for an archive location from the command line."""
    return Bucket(location) if str(location).startswith(SCHEMES) else Folder(location)
