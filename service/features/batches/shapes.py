"""Batches on the wire and in the store: the request for one, what is known of it, and how it is shown.

Source of the keys: openai 3.57's `types/batch.py`, `batch_create_params.py`, `batch_error.py`.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from service.api.request import read_metadata
from service.decoding import ABSENT, decode
from store.history.records import RecordKind

WINDOWS = {"2h": 2 * 3600, "8h": 8 * 3600, "24h": 24 * 3600}
"""The seconds that each window has."""

LEAST_KEPT, MOST_KEPT = 3600, 30 * 86_400
"""For how many seconds the files of a batch may be kept."""

BATCHES = RecordKind(
    "batches", "batch_", b"batch:".hex(), most=256, kept_ms=30 * 86_400_000, works="batching", most_open=16
)

BatchStatus = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]
UNDER_WAY: tuple[BatchStatus, ...] = ("validating", "in_progress", "finalizing", "cancelling")


class BatchProblem(msgspec.Struct, frozen=True):
    """Why a batch can't be made: of one line of its input, or of all of it."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class WrittenLines(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lines whose answers are in files: all before `until` in the order of work, and some of those `behind` it.

    `answers` and `failures` are the ids of the files, in order; each has a part of the output, or of the errors. The
    responses of the `last` lines may be there still.
    """

    until: int = 0
    behind: tuple[int, ...] = ()
    answers: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    completed: int = 0
    failed: int = 0
    last: tuple[int, ...] = ()


class BatchRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of a batch. `times` has the moment of each status that it had, in seconds since 1970.

    `holder` works on it until `held_until`.
    """

    endpoint: str
    window: str
    input_file_id: str
    created_at: int
    expires_at: int
    status: BatchStatus = "validating"
    key: str = ""
    metadata: dict[str, str] | None = None
    kept_seconds: int | None = None
    times: dict[str, int] = {}
    problems: tuple[BatchProblem, ...] = ()
    model: str = ""
    total: int = 0
    completed: int = 0
    failed: int = 0
    written: WrittenLines = WrittenLines()
    output_file_id: str = ""
    error_file_id: str = ""
    holder: str = ""
    held_until: float = 0.0

    @property
    def under_way(self) -> bool:
        return self.status in UNDER_WAY


def with_status(record: BatchRecord, status: BatchStatus, now: float) -> BatchRecord:
    """The record with another status since now."""
    return msgspec.structs.replace(record, status=status, times=record.times | {status: int(now)})


# --- as sent ---


class OutputExpiry(msgspec.Struct, forbid_unknown_fields=True):
    """For how long the files of a batch are kept."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Meta(ge=LEAST_KEPT, le=MOST_KEPT)]


class NewBatch(msgspec.Struct, forbid_unknown_fields=True):
    """A batch to be made, as sent."""

    input_file_id: Annotated[str, Meta(max_length=128)]
    endpoint: Annotated[str, Meta(max_length=64)]
    completion_window: Literal["24h", "8h", "2h"]
    metadata: msgspec.Raw = ABSENT
    output_expires_after: OutputExpiry | None = None


def read_batch(body: bytes, tenant_key: str, now: float) -> BatchRecord:
    """The record of a batch that a request asks for. Raises InvalidRequest."""
    sent = decode(body, NewBatch)
    return BatchRecord(
        endpoint=sent.endpoint,
        window=sent.completion_window,
        input_file_id=sent.input_file_id,
        created_at=int(now),
        expires_at=int(now) + WINDOWS[sent.completion_window],
        key=tenant_key,
        metadata=read_metadata(sent.metadata) or None,
        kept_seconds=None if sent.output_expires_after is None else sent.output_expires_after.seconds,
    )


# --- as shown ---


class BatchProblems(msgspec.Struct, frozen=True):
    data: tuple[BatchProblem, ...]
    object: Literal["list"] = "list"


class BatchCounts(msgspec.Struct, frozen=True):
    total: int
    completed: int
    failed: int


class BatchResource(msgspec.Struct, frozen=True):
    """A batch as it is shown."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: BatchStatus
    created_at: int
    expires_at: int
    request_counts: BatchCounts
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


def resource_of(id: str, record: BatchRecord) -> BatchResource:
    """A batch as it is shown. Its files are named once they are whole."""
    over, times = not record.under_way, record.times
    return BatchResource(
        id=id,
        endpoint=record.endpoint,
        input_file_id=record.input_file_id,
        completion_window=record.window,
        status=record.status,
        created_at=record.created_at,
        expires_at=record.expires_at,
        request_counts=BatchCounts(record.total, record.completed, record.failed),
        errors=BatchProblems(record.problems) if record.problems else None,
        model=record.model or None,
        output_file_id=(over and record.output_file_id) or None,
        error_file_id=(over and record.error_file_id) or None,
        metadata=record.metadata,
        in_progress_at=times.get("in_progress"),
        finalizing_at=times.get("finalizing"),
        completed_at=times.get("completed"),
        failed_at=times.get("failed"),
        expired_at=times.get("expired"),
        cancelling_at=times.get("cancelling"),
        cancelled_at=times.get("cancelled"),
    )
