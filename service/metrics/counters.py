"""The metrics of a process, each declared once, with its labels and its meaning.

docs/metrics.md is this file as a table, which a test holds to it. A label is never a tenant, an id, a path as it was
asked for or anything else that a client can make up: each of its values is a time series that Prometheus keeps. Count
once a request, a response or a batch, never once a token: that costs a microsecond.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any, Literal, get_type_hints

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from service.api.events import Event, OutputItemAdded
from service.api.response import Response
from service.engine.port import EngineError, EngineOverloaded, EngineRefused, EngineUnavailable
from service.metrics.processes import folder_of

PREFIX = "harmonium_"

Mode = Literal["plain", "stream", "background"]
MODES: tuple[Mode, ...] = ("plain", "stream", "background")
OUTCOMES = ("completed", "incomplete", "cancelled", "failed")
ENGINE_ERRORS = ("refused", "overloaded", "unavailable", "failed")
DOUBTS = ("clock", "gap")
REMOVALS = ("responses", "trees", "bytes", "memory", "idle")
STORE_ERRORS = ("timeout", "error", "unconfirmed")
CONFIRMS = ("met", "unmet")
REFUSALS = ("requests", "followers", "sockets", "bodies", "queue")
STEERED: tuple[Mode, ...] = ("stream", "background")
CALLS = ("completed", "failed", "incomplete")
STEERS = ("accepted", "refused", "applied", "pending", "failed")
REPEATS = ("returned", "waited", "taken_over", "refused")
WEBHOOKS = ("delivered", "failed", "given_up")
BATCHES = ("completed", "failed", "expired", "cancelled")
LINES = ("completed", "failed")
RELOADS = ("applied", "refused")
LOOKS = ("hit", "miss", "failed", "refused")
ARCHIVE_ERRORS = ("unavailable", "refused")
DIRECTIONS = ("read", "write")

REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
FIRST_TOKEN_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
WAIT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
PER_TOKEN_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1)
QUEUE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600, 14_400, 86_400)
RUN_BUCKETS = (0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14_400)
OPERATION_BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)
CONFIRM_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SHARE_BUCKETS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
CANCEL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
"""Upper bounds in seconds, from what an idle machine takes to where the limits of the settings are."""

Kind = Counter | Gauge | Histogram

AnswerCounts = tuple[Callable[[], None], Callable[[float], None]]
"""Counts an answer, and the seconds that it took."""

disable_created_metrics()  # a second series beside each, with the time at which it began, that nobody asks for

_DECLARED = "declared"

_FAILURES: Sequence[tuple[type[EngineError], str]] = (
    (EngineRefused, "refused"),
    (EngineOverloaded, "overloaded"),
    (EngineUnavailable, "unavailable"),
    (EngineError, "failed"),
)
"""The most special first."""

LOOK_SECONDS = 0.25
"""How often it is looked how late the event loop is. Never more often: each look wakes a process that may have nothing
to do."""


class Description:
    """A metric as it is declared: its name, what it tells, and the values that each of its labels may have.

    Where all values are known they are given, and there from the start, at 0: another value is refused. A label whose
    values aren't known has none; with one of its values come all series that may be of it.
    """

    def __init__(self, name: str, tells: str, buckets: tuple[float, ...] = (), **labels: tuple[str, ...]) -> None:
        self.name = PREFIX + name
        self.tells = tells
        self.buckets = buckets
        self.labels = labels

    def make(self, kind: type[Kind], registry: CollectorRegistry) -> Kind:
        """The metric itself, in `registry`. A gauge of several processes is the sum over those that live; of
        times it is the greatest.
        """
        more: dict[str, Any] = {"buckets": self.buckets} if self.buckets else {}
        if kind is Gauge:
            more["multiprocess_mode"] = "livemax" if self.name.endswith("_seconds") else "livesum"
        metric = kind(self.name, self.tells, tuple(self.labels), registry=registry, **more)
        declared = tuple(self.labels.values())
        if not any(declared):
            return metric
        find, made = metric.labels, set[tuple[str, ...]]()

        def labels(*values: str) -> Kind:
            if values not in made:
                rows = set(product(*(known or (value,) for known, value in zip(declared, values, strict=True))))
                if values not in rows:
                    raise ValueError(f"{self.name} has no series for {values}: declare the values in counters.py")
                for row in rows:
                    find(*row)
                made.update(rows)
            return find(*values)

        if all(declared):
            labels(*(known[0] for known in declared))
        setattr(metric, "labels", labels)  # noqa: B010 (the type has a method there)
        return metric


def metric(name: str, tells: str, buckets: tuple[float, ...] = (), **labels: tuple[str, ...]) -> Any:
    """A field of Metrics, as its Description says."""
    return field(metadata={_DECLARED: Description(name, tells, buckets, **labels)})


class Pace:
    """When a response's first token came, if it has: what its events say of how soon and how fast the engine is."""

    def __init__(self, since: float) -> None:
        """`since` is when it was asked for, on the monotonic clock, in seconds."""
        self.since = since
        self.first: float | None = None

    def note(self, batch: Iterable[Event]) -> None:
        if self.first is None and any(isinstance(event, OutputItemAdded) for event in batch):
            self.first = monotonic()


@dataclass(frozen=True)
class Metrics:
    """All metrics of a process. Made once, by `make_metrics`."""

    registry: CollectorRegistry
    folder: Path | None
    """The folder in which it counts together with others that share a port."""

    requests: Counter = metric(
        "requests_total",
        "Answered HTTP requests, by path template, method and status.",
        endpoint=(),
        method=(),
        status=(),
    )
    requests_in_progress: Gauge = metric(
        "requests_in_progress", "Running HTTP requests, with open streams, without probes and scrapes."
    )
    requests_waiting: Gauge = metric(
        "requests_waiting", "Requests for a response that wait for one of MAX_CONCURRENT_REQUESTS."
    )
    wait_seconds: Histogram = metric(
        "request_wait_duration_seconds",
        "Waiting time of these requests; a request that starts at once is not counted.",
        WAIT_BUCKETS,
    )
    request_seconds: Histogram = metric(
        "request_duration_seconds",
        "Time from a request's head to the last byte of its answer, or the end of its stream.",
        REQUEST_BUCKETS,
        endpoint=(),
        method=(),
    )
    refused: Counter = metric(
        "admission_refused_total",
        "Requests refused by a limit of this process (MAX_CONCURRENT_REQUESTS, followers, WebSockets, bytes of bodies) "
        "or by the queue.",
        limit=REFUSALS,
    )
    responses: Counter = metric(
        "responses_total", "Ended responses, by mode, outcome and model.", mode=MODES, outcome=OUTCOMES, model=()
    )
    first_token_seconds: Histogram = metric(
        "time_to_first_token_seconds",
        "Time from the request, or the claim of a background response, to the first token.",
        FIRST_TOKEN_BUCKETS,
        mode=MODES,
        model=(),
    )
    per_token_seconds: Histogram = metric(
        "time_per_output_token_seconds",
        "Mean time per token of a response after the first one.",
        PER_TOKEN_BUCKETS,
        mode=MODES,
        model=(),
    )
    input_tokens: Counter = metric("input_tokens_total", "Tokens of prompts, cached ones included.", model=())
    cached_tokens: Counter = metric(
        "cached_tokens_total", "Tokens of prompts that the engine's prefix cache held.", model=()
    )
    output_tokens: Counter = metric("output_tokens_total", "Sampled tokens, reasoning included.", model=())
    engine_errors: Counter = metric(
        "engine_errors_total",
        "Failures of the engine, by kind and model; without a model where none was found.",
        kind=ENGINE_ERRORS,
        model=(),
    )
    store_errors: Counter = metric(
        "store_errors_total",
        "Failed operations of the store: no answer in time, an error after all retries, or no confirmation in time.",
        kind=STORE_ERRORS,
    )
    store_seconds: Histogram = metric(
        "store_operation_duration_seconds",
        "Time of successful operations of the store, including the wait for a connection.",
        OPERATION_BUCKETS,
    )
    store_confirms: Counter = metric(
        "store_confirms_total",
        "Waits for replicas (STORE_REPLICAS) and the disk (STORE_FSYNC), each for all turns that waited together.",
        outcome=CONFIRMS,
    )
    store_confirm_seconds: Histogram = metric(
        "store_confirm_duration_seconds", "Time of these waits, met or not.", CONFIRM_BUCKETS
    )
    turns_removed: Counter = metric(
        "turns_removed_total",
        "Turns evicted by a limit or for the server's memory, or unused for IDLE_DAYS. They are lost without an "
        "archive, or with ARCHIVE_WHEN_DOWN=evict.",
        reason=REMOVALS,
    )
    expiry_doubted: Counter = metric(
        "expiry_doubted_total",
        "Sweeps that expired nothing because of a doubtful clock: it differed from the process's own (clock), or the "
        "last sweep was over an hour ago (gap).",
        reason=DOUBTS,
    )
    prefix_read: Counter = metric(
        "prefix_read_tokens_total",
        "Tokens of continued conversations up to the last sampled one, for models with a chat template.",
    )
    prefix_kept: Counter = metric(
        "prefix_kept_tokens_total",
        "The part of these tokens with which the next prompt begins, so the engine has it cached.",
    )
    recognised_ratio: Histogram = metric(
        "recognised_ratio",
        "Share of a history's items that were recognised, with HARMONIUM_CHATS=remember.",
        SHARE_BUCKETS,
    )
    loop_lag_seconds: Histogram = metric(
        "loop_lag_seconds",
        "Delay of the process's event loop, measured four times a second.",
        LAG_BUCKETS,
    )
    followers: Gauge = metric("followers", "Open streams that follow a background response.")
    sockets: Gauge = metric("sockets", "Open WebSockets.")
    tool_calls: Counter = metric(
        "tool_calls_total",
        "Calls of tools by the service, by outcome.",
        outcome=CALLS,
    )
    tool_seconds: Histogram = metric(
        "tool_call_duration_seconds", "Time of the service's calls of tools.", REQUEST_BUCKETS
    )
    steers: Counter = metric(
        "steers_total",
        "Steers (experimental), by the response's mode: first accepted or refused; then applied, failed, or over a "
        "WebSocket pending until the client sends its calls' outputs.",
        mode=STEERED,
        outcome=STEERS,
    )

    repeats: Counter = metric(
        "idempotent_repeats_total",
        "Requests whose Idempotency-Key an earlier one had: answered with its response, at once (returned) or after a "
        "wait (waited); made in its place, as it had died or failed (taken_over); refused.",
        outcome=REPEATS,
    )

    jobs_submitted: Counter = metric("jobs_submitted_total", "Queued background responses.")
    jobs_claimed: Counter = metric(
        "jobs_claimed_total", "Claims of background responses by workers; a response can be claimed more than once."
    )
    jobs_rescued: Counter = metric("jobs_rescued_total", "Background responses taken over from a silent worker.")
    jobs_handed_back: Counter = metric(
        "jobs_handed_back_total",
        "Background responses that a worker handed back because it stopped, the engine failed, or another tenant "
        "waited.",
    )
    leases_lost: Counter = metric(
        "leases_lost_total",
        "Background responses that a worker lost to another worker in the middle, without cancelled ones.",
    )
    attempts_exhausted: Counter = metric(
        "jobs_attempts_exhausted_total", "Background responses that failed after MAX_ATTEMPTS without progress."
    )
    tokens_replayed: Counter = metric(
        "tokens_replayed_total", "Tokens of earlier attempts, read from event logs instead of sampled."
    )
    queue_seconds: Histogram = metric(
        "job_queue_duration_seconds",
        "Time from the submission of a background response, or the end of its completion window, to its first claim.",
        QUEUE_BUCKETS,
    )
    run_seconds: Histogram = metric(
        "job_run_duration_seconds",
        "Time that workers spent on each background response that was started.",
        RUN_BUCKETS,
    )
    cancel_seconds: Histogram = metric(
        "job_cancel_duration_seconds",
        "Time from a request to cancel a background response to the reply.",
        CANCEL_BUCKETS,
    )
    event_log_writes: Counter = metric(
        "event_log_writes_total", "Writes to event logs of background responses, each of one or more events."
    )
    event_log_bytes: Counter = metric("event_log_written_bytes_total", "Bytes written to event logs.")
    webhooks: Counter = metric(
        "webhook_attempts_total",
        "Attempts to deliver a webhook: delivered, failed with a retry to come, or given up.",
        outcome=WEBHOOKS,
    )
    batches: Counter = metric("batches_total", "Ended batches, by outcome.", outcome=BATCHES)
    batch_lines: Counter = metric("batch_lines_total", "Lines of batches in files, by outcome.", outcome=LINES)
    file_bytes: Counter = metric(
        "file_bytes_total", "Bytes of files that clients downloaded (read) and uploaded (write).", direction=DIRECTIONS
    )
    engine_pauses: Counter = metric("engine_pauses_total", "Pauses of a worker because the engine was down or full.")
    reloads: Counter = metric(
        "config_reloads_total",
        "Times that the files of keys and engines were read again on SIGHUP, and applied or refused.",
        outcome=RELOADS,
    )

    archive_reads: Counter = metric(
        "archive_reads_total",
        "Reads of the archive for turns outside memory: found, missing, failed, or refused because too many ran.",
        outcome=LOOKS,
    )
    archive_trees: Counter = metric("archive_trees_total", "Times that a tree's changes were archived.")
    archive_bytes: Counter = metric(
        "archive_bytes_total", "Bytes of values read from the archive and written to it.", direction=DIRECTIONS
    )
    archive_errors: Counter = metric(
        "archive_errors_total",
        "Failed calls of the archive: no valid answer in time, or refused until an operator acts.",
        kind=ARCHIVE_ERRORS,
    )
    archive_waiting: Gauge = metric(
        "archive_waiting_trees", "Trees with changes that the archive lacks, in the shards that this process archives."
    )
    archive_lag_seconds: Gauge = metric(
        "archive_lag_seconds",
        "How long the oldest of these changes has been due: the archive's lag behind ARCHIVE_AFTER_SECONDS.",
    )

    answers: dict[tuple[str, str, int], AnswerCounts] = field(default_factory=dict[tuple[str, str, int], AnswerCounts])
    """By template, method and status of the answers that there were: to look both up takes longer than to count."""

    def answered(self, endpoint: str, method: str, status: int, seconds: float) -> None:
        kind = endpoint, method, status
        if kind not in self.answers:
            counted = self.requests.labels(endpoint, method, str(status)).inc
            self.answers[kind] = counted, self.request_seconds.labels(endpoint, method).observe
        count, observe = self.answers[kind]
        count()
        observe(seconds)

    def ended(self, mode: Mode, model: str, response: Response, pace: Pace) -> None:
        """Count a response of a served model that has ended, once, with its tokens and their pace."""
        self.responses.labels(mode, response.status.value, model).inc()
        self.engine_errors.labels("failed", model)  # which is there at 0 from now on
        if pace.first is not None:
            self.first_token_seconds.labels(mode, model).observe(pace.first - pace.since)
        usage = response.usage
        if usage is None:
            return
        self.took(model, usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens)
        if pace.first is not None and usage.output_tokens > 1:
            self.per_token_seconds.labels(mode, model).observe((monotonic() - pace.first) / (usage.output_tokens - 1))

    def took(self, model: str, read: int, cached: int, sampled: int) -> None:
        """Count the tokens that a served model read and sampled."""
        self.input_tokens.labels(model).inc(read)
        self.cached_tokens.labels(model).inc(cached)
        self.output_tokens.labels(model).inc(sampled)

    def tool_called(self, outcome: str, seconds: float) -> None:
        self.tool_calls.labels(outcome).inc()
        self.tool_seconds.observe(seconds)

    def engine_failed(self, failure: EngineError) -> None:
        kind = next(word for kind, word in _FAILURES if isinstance(failure, kind))
        self.engine_errors.labels(kind, failure.model).inc()


def declarations() -> Iterator[tuple[str, type[Kind], Description]]:
    kinds = get_type_hints(Metrics)
    for each in fields(Metrics):
        if _DECLARED in each.metadata:
            yield each.name, kinds[each.name], each.metadata[_DECLARED]


def make_metrics(workers: int = 1) -> Metrics:
    """All metrics, in a registry of their own. Those of several `workers` count together."""
    folder = folder_of(workers)
    registry = CollectorRegistry()
    made: dict[str, Any] = {name: description.make(kind, registry) for name, kind, description in declarations()}
    return Metrics(registry=registry, folder=folder, **made)


@asynccontextmanager
async def lag_counted(metrics: Metrics) -> AsyncGenerator[None]:
    """Count, until the end of the block, how late this loop wakes a task: everybody on it waits for that."""
    looking = asyncio.create_task(_look(metrics))
    try:
        yield
    finally:
        looking.cancel()


async def _look(metrics: Metrics) -> None:
    while True:
        began = monotonic()
        await asyncio.sleep(LOOK_SECONDS)
        metrics.loop_lag_seconds.observe(max(0.0, monotonic() - began - LOOK_SECONDS))
