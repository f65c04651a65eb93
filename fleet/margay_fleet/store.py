"""Where an archive lies: a folder, or objects of S3 (`s3://BUCKET/PREFIX`; `s3a://` and `s3n://` are taken for the same).

S3 is read with boto3, which finds keys, region and endpoint as other tools do (environment, files of `~/.aws`, roles of machines); for a store
that is not Amazon's set `AWS_ENDPOINT_URL`. Workers find them in the same places. What an engine reads is fetched to the task's own folder.
"""

import os
from concurrent.futures import ThreadPoolExecutor

from . import FleetError

SCHEMES = ("s3://", "s3a://", "s3n://")
# Bytes that are read of an object at a time.
BLOCK = 1 << 20
# Small objects that are asked for at a time: their number costs, not their size.
AT_ONCE = 32
# How often an object is fetched that breaks off.
TRIES = 3


class Folder:
    """An archive in a folder that every worker finds at the same path."""

    local = True

    def __init__(self, location):
        self.location = os.path.abspath(location)

    def path(self, name):
        """What a file is called in messages, and by the engine."""
        return os.path.join(self.location, name)

    def read(self, name):
        """A whole file."""
        with open(self.path(name), "rb") as f:
            return f.read()

    def read_many(self, names):
        """Whole files, in order; an `OSError` in place of one that cannot be read."""
        for name in names:
            try:
                yield self.read(name)
            except OSError as e:
                yield e

    def size(self, name):
        """A file's size."""
        return os.stat(self.path(name)).st_size

    def blocks(self, name):
        """A file block by block."""
        with open(self.path(name), "rb") as f:
            while block := f.read(BLOCK):
                yield block


class Bucket:
    """An archive in S3. Failures are `OSError`s, as those of a folder are."""

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
            raise FleetError("boto3 is not installed, by which S3 is read: pip install 'margay-fleet[s3]'") from e
        self._failures = (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError)
        retries = botocore.config.Config(retries={"mode": "standard", "max_attempts": 5}, max_pool_connections=AT_ONCE)
        try:
            self._client = boto3.session.Session().client("s3", config=retries)
        except self._failures as e:
            raise FleetError(f"{self.location}: {e}") from e

    def path(self, name):
        """What an object is called in messages."""
        return f"{self.location}/{name}"

    def _ask(self, what, name):
        try:
            return what(Bucket=self.bucket, Key=f"{self.prefix}/{name}" if self.prefix else name)
        except self._failures as e:
            raise OSError(0, str(e), self.path(name)) from e

    def read(self, name):
        """A whole object."""
        return b"".join(self.blocks(name))

    def read_many(self, names):
        """Whole objects, in order; an `OSError` in place of one that cannot be read."""

        def one(name):
            try:
                return self.read(name)
            except OSError as e:
                return e

        names = list(names)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            # Not all at once: what was read waits in memory until it is taken.
            for at in range(0, len(names), 4 * AT_ONCE):
                yield from pool.map(one, names[at : at + 4 * AT_ONCE])

    def size(self, name):
        """An object's size."""
        return self._ask(self._client.head_object, name)["ContentLength"]

    def blocks(self, name):
        """An object block by block."""
        body = self._ask(self._client.get_object, name)["Body"]
        try:
            yield from body.iter_chunks(BLOCK)
        except self._failures as e:
            raise OSError(0, str(e), self.path(name)) from e
        finally:
            body.close()

    def fetch(self, names, folder):
        """Copies objects into a folder. One that breaks off is begun again, as boto3 does with requests but not with bodies."""
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
    """The store of an archive by what was given on the command line."""
    return Bucket(location) if str(location).startswith(SCHEMES) else Folder(location)
