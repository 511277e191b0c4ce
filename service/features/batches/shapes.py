"""Batches on the wire and in the store: the request for one, how it is shown, and what is known of it besides.

Source of the keys: openai 3.57's `types/batch.py`, `batch_create_params.py`, `batch_error.py`, `batch_usage.py`.
"""

from contextlib import suppress
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from service.api.request import read_metadata
from service.api.response import InputTokensDetails, OutputTokensDetails, Usage
from service.decoding import ABSENT, decode
from service.errors import ApiError
from service.features.files.routes import FileExpiry
from store.codec import decode_record
from store.errors import NewerFormat
from store.history.records import RecordKind, TenantRecords

VERSION = 1
"""The version of a record that this release writes, and the newest that it reads. Each new member, and each new
value in it such as a status, takes the next.
"""

WINDOWS = {"2h": 2 * 3600, "8h": 8 * 3600, "24h": 24 * 3600}
"""The seconds that each window has."""

BATCHES = RecordKind(
    "batches", "batch_", b"batch:".hex(), most=256, kept_ms=30 * 86_400_000, works="batching", most_open=16
)

BatchStatus = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]
UNDER_WAY: tuple[BatchStatus, ...] = ("validating", "in_progress", "finalizing", "cancelling")


# --- as sent ---


class NewBatch(msgspec.Struct, forbid_unknown_fields=True):
    """A new batch, as sent."""

    input_file_id: Annotated[str, Meta(max_length=128)]
    endpoint: Annotated[str, Meta(max_length=64)]
    completion_window: Literal["24h", "8h", "2h"]
    metadata: msgspec.Raw = ABSENT
    output_expires_after: FileExpiry | None = None


# --- as shown ---


class BatchProblem(msgspec.Struct, frozen=True):
    """Why a batch failed: a problem of one line, or of the whole input."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchProblems(msgspec.Struct, frozen=True):
    data: tuple[BatchProblem, ...]
    object: Literal["list"] = "list"


class BatchCounts(msgspec.Struct, frozen=True):
    total: int = 0
    completed: int = 0
    failed: int = 0


class BatchResource(msgspec.Struct, frozen=True):
    """A batch. Its files are named once they are whole."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    created_at: int
    expires_at: int
    status: BatchStatus = "validating"
    request_counts: BatchCounts = BatchCounts()
    usage: Usage | None = None
    errors: BatchProblems | None = None
    model: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    metadata: dict[str, str] | None = None
    object: Literal["batch"] = "batch"


# --- in the store ---


class OpenFile(msgspec.Struct, frozen=True):
    """A file that grows until the batch ends: its id, empty as long as it has nothing, and its length in bytes."""

    id: str = ""
    bytes: int = 0


class BatchRecord(msgspec.Struct, frozen=True):
    """The record of a batch. The answers of the first `until` lines, in the order of work, are in its files. `holder`
    works on it until `held_until`.
    """

    shown: BatchResource
    key: str = ""
    kept_seconds: int | None = None
    until: int = 0
    output: OpenFile = OpenFile()
    errors: OpenFile = OpenFile()
    put_off: tuple[tuple[int, int], ...] = ()
    """Models whose engines were away, and the places from which on their lines were put behind all others."""
    holder: str = ""
    held_until: float = 0.0
    version: int = VERSION

    @property
    def under_way(self) -> bool:
        return self.shown.status in UNDER_WAY

    def showing(self, **members: object) -> "BatchRecord":
        """The record with other members of what is shown."""
        return msgspec.structs.replace(self, shown=msgspec.structs.replace(self.shown, **members))

    def with_status(self, status: BatchStatus, now: float) -> "BatchRecord":
        """The record with another status since now."""
        return self.showing(status=status, **{f"{status}_at": int(now)})

    def cancel(self, now: float) -> "BatchRecord":
        """The record once it is cancelled, or will be soon by who works on it. Raises ApiError 409."""
        status = self.shown.status
        if status in ("cancelling", "cancelled"):
            return self
        if status not in ("validating", "in_progress"):
            message = f"The batch is {status}, so it can't be cancelled."
            raise ApiError(409, message, code="invalid_batch_status", param="batch_id")
        return self.with_status("cancelling" if self.holder or status == "in_progress" else "cancelled", now)


def read_batch(body: bytes, id: str, key: str, now: float) -> BatchRecord:
    """The record of a batch that a request asks for. Raises InvalidRequest."""
    sent = decode(body, NewBatch)
    shown = BatchResource(
        id=id,
        endpoint=sent.endpoint,
        input_file_id=sent.input_file_id,
        completion_window=sent.completion_window,
        created_at=int(now),
        expires_at=int(now) + WINDOWS[sent.completion_window],
        metadata=read_metadata(sent.metadata) or None,
    )
    return BatchRecord(shown, key, None if sent.output_expires_after is None else sent.output_expires_after.seconds)


def encode_batch(record: BatchRecord) -> tuple[bytes, bool]:
    """A record as it is stored, and whether there is work to do for it."""
    return msgspec.msgpack.encode(record), record.under_way


def decode_batch(record: bytes) -> BatchRecord:
    """The record in some bytes. Raises NewerFormat."""
    return decode_record(record, BatchRecord, VERSION)


async def all_of(stored: TenantRecords, tenant: str) -> list[BatchRecord]:
    """A tenant's batches, newest first, but for those of a later release. Raises StoreError."""
    found = list[BatchRecord]()
    for each in (await stored.all(tenant)).values():
        with suppress(NewerFormat):
            found.append(decode_batch(each))
    return sorted(found, key=lambda each: (each.shown.created_at, each.shown.id), reverse=True)


def no_batch(id: str) -> ApiError:
    """404 for a batch that isn't there for this tenant."""
    return ApiError(404, f"No batch found with id '{id[:80]}'.", param="batch_id")


def sum_of(usage: Usage | None, more: Usage | None) -> Usage | None:
    """Two usages together."""
    if usage is None or more is None:
        return usage or more
    return Usage(
        usage.input_tokens + more.input_tokens,
        InputTokensDetails(usage.input_tokens_details.cached_tokens + more.input_tokens_details.cached_tokens),
        usage.output_tokens + more.output_tokens,
        OutputTokensDetails(usage.output_tokens_details.reasoning_tokens + more.output_tokens_details.reasoning_tokens),
        usage.total_tokens + more.total_tokens,
    )
