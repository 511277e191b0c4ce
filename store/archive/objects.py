"""An archive in an object store: S3 and all that speaks it, Google's, Azure's, by obstore.

A put is one request with a condition: If-None-Match or If-Match, or a generation at Google's. Credentials, endpoint and
region are read by obstore from the provider's own variables. An endpoint over plain HTTP is used where one is named.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from store.archive.port import ArchiveEntry, Bounds, Stored, mark_of_etag
from store.errors import ArchiveRefused, ArchiveUnavailable

if TYPE_CHECKING:
    from obstore import PutResult, UpdateVersion

KINDS: Mapping[str, type[S3Store] | type[GCSStore] | type[AzureStore]] = {
    "s3": S3Store,
    "gs": GCSStore,
    "az": AzureStore,
}

METADATA = "169.254.169.254"
"""The address at which a machine in a cloud asks for its credentials."""

NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
"""The words of a 404 for a missing bucket: at S3 and Google's, at Azure's."""

NO_KEY = ("NoSuchKey", "BlobNotFound")
"""The words of a 404 for a missing value: at S3 and Google's, at Azure's. Without them it is a gateway's, which knows
nothing of values: who took it for an absence would deny what is stored, and the marks of what is held or erased."""

VERSIONED = (
    "the bucket keeps former versions: what is erased stays in it; have a lifecycle rule that deletes noncurrent ones"
)

T = TypeVar("T")

_CODE = re.compile(r"<Code>(\w+)</Code>")
_QUERY = re.compile(r"\?\S+")


class ObjectsBackend:
    """A bucket, or what lies below a prefix in it. `scheme` is s3, gs or az.

    Raises ValueError where the provider's own variables lack something.
    """

    def __init__(self, scheme: str, bucket: str, prefix: str, bounds: Bounds) -> None:
        try:
            self._store: ObjectStore = KINDS[scheme](
                bucket,
                prefix=prefix or None,
                client_options={
                    "allow_http": True,
                    "connect_timeout": timedelta(seconds=bounds.connect_seconds),
                    "timeout": timedelta(seconds=bounds.request_seconds),
                },
                retry_config={"max_retries": 0},  # `Archive` tries again, within a time for all
            )
        except BaseError as error:
            raise ValueError(f"can't be used: {_in_short(error)}") from error
        self._threads = ThreadPoolExecutor(bounds.concurrency, "archive")
        self._tells_versions = scheme != "gs"  # where every object has a generation
        self._batches_miss = scheme == "az"  # of a missing value, obstore doesn't pass on the code in a batch
        self._versioned = False

    async def get(self, key: str) -> Stored | None:
        def work() -> Stored | None:
            try:
                found = obstore.get(self._store, key)
                return Stored(bytes(found.bytes()), _etag(found.meta["e_tag"], found.meta["version"]))
            except FileNotFoundError as error:
                if not _has_no_key(error):
                    raise
                return None

        return await self._ask(work)

    async def put(self, key: str, value: bytes, only_if: str | None) -> str | None:
        mode = "create" if only_if is None else _update(only_if)

        def work() -> "PutResult | None":
            try:
                # in one request whatever its size: parts of an upload know no condition
                return obstore.put(self._store, key, value, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return None

        made = await self._ask(work)
        if made is None:
            return None
        self._versioned |= self._tells_versions and made["version"] not in (None, "null")
        return _etag(made["e_tag"], made["version"])

    async def delete(self, keys: Sequence[str]) -> None:
        def work() -> None:
            try:
                obstore.delete(self._store, keys[0] if len(keys) == 1 else keys)
            except FileNotFoundError as error:
                if _has_no_bucket(error) or not (self._batches_miss or _has_no_key(error)):
                    raise

        await self._ask(work)

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[ArchiveEntry]:
        def work() -> Sequence[ArchiveEntry]:
            # the overload that returns Arrow has a type of a package that nobody installs
            pages = obstore.list(self._store, prefix or None, offset=after or None, chunk_size=limit)  # pyright: ignore[reportUnknownMemberType]
            page = next(pages, ())
            return [
                ArchiveEntry(
                    each["path"], each["size"], each["last_modified"].timestamp(), mark_of_etag(each["e_tag"] or "")
                )
                for each in page
            ]

        return await self._ask(work)

    def warnings(self) -> Sequence[str]:
        return (VERSIONED,) if self._versioned else ()

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    async def _ask(self, work: Callable[[], T]) -> T:
        """The result of a request, made in a thread of ours.

        obstore's own coroutines are woken by threads of Rust, and a process that ends while one of them waits for the
        interpreter is aborted.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except (BaseError, FileNotFoundError) as error:
            raise _translate(error) from error


def _etag(etag: str | None, version: str | None) -> str:
    """Both words of which a store needs one or the other, in one."""
    return f"{version or ''} {etag or ''}"


def _update(etag: str) -> "UpdateVersion":
    version, _, e_tag = etag.partition(" ")
    return {"e_tag": e_tag, "version": version} if version else {"e_tag": e_tag}


def _translate(error: Exception) -> ArchiveUnavailable:
    """Our error for one of obstore's. ArchiveRefused lasts until somebody changes a setting; others may pass."""
    told = _in_short(error)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return ArchiveRefused(f"{told}; its credentials must allow to get, put, delete and list")
    if _has_no_bucket(error):
        return ArchiveRefused(f"{told}; make the bucket, or name another")
    if isinstance(error, FileNotFoundError):
        return ArchiveUnavailable(f"{told}: a 404 that no object store says; is the endpoint right?")
    if METADATA in told:
        return ArchiveUnavailable(
            f"{told}; the provider's variables have no credentials, so the machine's were asked for"
        )
    return ArchiveUnavailable(told)


def _has_no_key(error: Exception) -> bool:
    return any(f"<Code>{word}</Code>" in str(error) for word in NO_KEY)


def _has_no_bucket(error: Exception) -> bool:
    return any(word in str(error) for word in NO_BUCKET)


def _in_short(error: Exception) -> str:
    """The first line of obstore's message and the provider's code. The query is left out, as it may be a signature."""
    whole = str(error)
    first = _QUERY.sub("", whole.partition("\n")[0].partition("<")[0]).strip(" :")
    code = _CODE.search(whole)
    return f"{first}: {code[1]}" if code else first
