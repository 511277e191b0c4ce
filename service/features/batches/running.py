"""The work on batches: each is held by one process at a time, which queues its lines and takes their answers in order.

    input ─▶ lines ─▶ queued, WINDOW at once ─▶ workers ─▶ answers ─▶ behind those in the output, or in the errors

The id of a line's response is made of the batch and the line's number, so a line that is queued again by whoever takes
over is the same response. A response is kept until the record counts the bytes of its answer, and only then deleted,
unless its line asked for `store`. So kills between any two of these lose nothing and make nothing twice. A holder that
can't renew its hold in time stops before another may begin.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from service import logs
from service.api.request import CreateRequest, Window, read_create
from service.api.response import ResponseError, ResponseStatus, Usage, decode_response
from service.background.control import cancel
from service.background.submit import reserve, submit
from service.backoff import Backoff
from service.decoding import ABSENT
from service.engine.port import EngineError
from service.errors import ApiError, not_served, server_failure
from service.features.batches.lines import BatchLine, LineReader, scan
from service.features.batches.shapes import (
    BATCHES,
    BatchCounts,
    BatchProblem,
    BatchProblems,
    BatchRecord,
    BatchResource,
    BatchStatus,
    OpenFile,
    decode_batch,
    encode_batch,
    sum_of,
)
from service.loans import renew_for_ever
from service.process import features
from service.responses.make import Maker, Queued, make
from service.responses.refusals import refusal_of
from service.responses.service import Caller, Service
from service.steps import in_steps
from service.store_away import tolerate
from service.web.dialect import OPENAI, Dialect, Translate, no_translation
from service.web.errors import envelope, on_one_line
from store.errors import Conflict, NewerFormat, NotCancellable, NotFound, NotTerminal, StoreError
from store.files.files import FileGone, FileRecord, Files, new_id
from store.history.records import TenantRecords
from store.turn import TERMINAL

logger = logging.getLogger(__name__)

HELD, RENEWED, SAFE = 2.0, 0.4, 1.2
"""For how many leases of a job a batch is held without a sign of its holder; how often that gives one; and after how
many without one it stops, so that the rest is for an operation under way.
"""

LOOK_SECONDS = 2.0
"""How often a process looks for batches that nobody holds, and for answers from other processes."""

AT_ONCE = 32
"""The most batches that one process holds: one of each tenant, so that none keeps others out."""

WINDOW = 512
"""The most lines of a batch that are queued or made, and whose answers are in no file."""

PART_LINES, PART_BYTES, PART_SECONDS = 128, 1 << 20, 5.0
"""So many answers, or bytes of them, or so old ones, are written to files together."""

PAUSES = Backoff(0.5, 20.0)
"""The pauses before a line is queued again that was refused for now: the queue is full, or a limit is used up."""

HOUR = 3600
MOST_HELD = 2 * HOUR
"""The longest that a batch is held, with the longest lease. A longer hold is of a clock that was ahead."""

AWAY_SECONDS = 60.0
"""A longer pause between two looks for batches is one in which nobody could work on any."""

OUTPUT_PURPOSE = "batch_output"


GONE = BatchProblem("file_gone", "The input file was deleted, or has expired.")
TOO_DEEP = BatchProblem("invalid_line", "A line is nested too deeply.")
"""The scan may read one that its reader can't, as less may be called within a call here than in the scan's thread."""


class BatchLost(Exception):
    """Another process holds the batch, or it was deleted."""


class LineAnswer(NamedTuple):
    """The answer of a line: the status and the body that its request would have."""

    status: int
    body: bytes


_late = ApiError(410, "The batch's time was over before this line was answered.", code="batch_expired")
LATE = LineAnswer(_late.status, msgspec.json.encode({"code": _late.code, "message": _late.message}))
"""Of a line that has none. Its body is the error of the line itself."""


class LineUnderWay(NamedTuple):
    """A line whose response is queued or made, or that has an answer without one. Many are in memory, so never a
    request, nor an exception, whose frames have one.
    """

    custom_id: str
    id: str
    dialect: Dialect
    keeps: bool
    """Whether its response stays when its answer is in a file."""
    answer: LineAnswer | None


class AnswerPart:
    """Answers of some lines that are in no file yet, and the ids of responses that are deleted once they are."""

    def __init__(self) -> None:
        self.answers, self.failures, self.ids = bytearray(), bytearray(), list[str]()
        self.lines = self.completed = self.failed = 0
        self.usage: Usage | None = None
        self._since = asyncio.get_running_loop().time()

    @property
    def is_due(self) -> bool:
        """Whether it should be written."""
        much = self.lines >= PART_LINES or len(self.answers) + len(self.failures) >= PART_BYTES
        return much or (self.lines > 0 and asyncio.get_running_loop().time() > self._since + PART_SECONDS)

    def add(self, id: str, custom_id: str, answer: LineAnswer) -> None:
        """A line of the output, or of the errors."""
        shown: dict[str, Any] = {"id": id, "custom_id": custom_id, "response": None, "error": None}
        if answer is LATE:
            shown["error"] = msgspec.Raw(answer.body)
        else:
            shown["response"] = {"status_code": answer.status, "request_id": id, "body": msgspec.Raw(answer.body)}
        kept = self.answers if answer.status == 200 else self.failures
        kept += on_one_line(msgspec.json.encode(shown)) + b"\n"
        self.completed += kept is self.answers
        self.failed += kept is self.failures

    def behind(self, record: BatchRecord, output: OpenFile, errors: OpenFile) -> BatchRecord:
        """The record once the files have the part."""
        known = record.shown.request_counts
        counts = BatchCounts(known.total, known.completed + self.completed, known.failed + self.failed)
        written = replace(record, until=record.until + self.lines, output=output, errors=errors)
        return written.showing(request_counts=counts, usage=sum_of(record.shown.usage, self.usage))


class Batches:
    """The batches that this process works on."""

    def __init__(self, service: Service, files: Files, endpoints: Mapping[str, Translate]) -> None:
        """`endpoints` have the readers of bodies."""
        self.service, self.files, self.endpoints = service, files, endpoints
        self.stored = TenantRecords(service.store, BATCHES)
        self._runs = dict[str, BatchRun]()
        """By their tenants."""
        self._newer = set[str]()
        """The ids of those that only a later release can work on."""
        self._looked = self.since = 0.0
        """When this process looked for batches last, and since when it has done so without a longer pause."""

    def ended(self, id: str) -> None:
        """A response has ended in this process. Never blocks."""
        for run in self._runs.values():
            run.note_end(id)

    async def run(self) -> None:
        """Work on batches until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                with tolerate(self.service.store, "batches can't be started"):
                    await self.service.know_ids()
                    found = await self.stored.under_way()
                    before, self._looked = self._looked, self.service.store.clock()
                    self.since = self._looked if self._looked > before + AWAY_SECONDS else self.since
                    self._newer &= {id for _, id in found}
                    for tenant, id in random.sample(found, len(found)):  # others may hold some of a tenant's
                        if id not in self._newer and tenant not in self._runs and len(self._runs) < AT_ONCE:
                            self._runs[tenant] = run = BatchRun(self, tenant, id)
                            group.create_task(self._work(run))
                await asyncio.sleep(LOOK_SECONDS * random.uniform(0.5, 1))

    async def _work(self, run: "BatchRun") -> None:
        try:
            await run.work()
        except* BatchLost:
            pass  # whoever holds it goes on
        except* NewerFormat:
            self._newer.add(run.id)
            logs.event(logger, logging.WARNING, "a batch needs a later release", batch_id=run.id)
        except* (StoreError, EngineError, TimeoutError) as errors:
            logs.event(logger, logging.WARNING, "a batch waits", batch_id=run.id, reason=str(errors.exceptions[0]))
        except* Exception:
            logger.exception("work on a batch failed", extra={"fields": {"batch_id": run.id}})
        finally:
            del self._runs[run.tenant]


class BatchRun:
    """The work of this process on one batch, from taking it to its end."""

    def __init__(self, batches: Batches, tenant: str, id: str) -> None:
        self.tenant, self.id = tenant, id
        self._batches, self._files = batches, batches.files
        # a line says itself what it continues
        self._service = replace(batches.service, recogniser=None)
        self._store, self._entrance = batches.service.store, batches.service.tenants.entrance
        self._token, self._lease = self._store.token(), batches.service.jobs.limits.lease_seconds
        self._changing, self._safe = asyncio.Lock(), asyncio.timeout(SAFE * self._lease)
        self._waiting = deque[LineUnderWay]()
        self._look, self._look_at = asyncio.Event(), 0.0
        """Set when the first of those may have ended, and when it is looked at anyway."""
        self._part = AnswerPart()
        self._record: BatchRecord
        self._reader: LineReader

    @property
    def _shown(self) -> BatchResource:
        return self._record.shown

    @property
    def _is_stopped(self) -> bool:
        return self._shown.status == "cancelling" or self._store.clock() >= self._shown.expires_at

    def note_end(self, id: str) -> None:
        """A response has ended. Never blocks."""
        if self._waiting and self._waiting[0].id == id:
            self._look.set()

    # --- holding it ---

    async def work(self) -> None:
        """Work on the batch until it has ended. Raises an ExceptionGroup with BatchLost, StoreError, EngineError, and
        TimeoutError where it could not be held.
        """
        try:
            async with self._safe, asyncio.TaskGroup() as group:
                await self._take()
                renewing = group.create_task(renew_for_ever(partial(self._change, _as_it_is), RENEWED * self._lease))
                await self._make()
                renewing.cancel()
        except asyncio.CancelledError:  # this process stops, and another one can go on at once
            with suppress(BatchLost, StoreError):
                await self._edit(lambda record: replace(record, holder=""))
            raise

    async def _take(self) -> None:
        """Hold it, unless another process does. Raises BatchLost, StoreError."""
        now = await self._store.now()

        def take(record: BatchRecord) -> BatchRecord:
            if not record.under_way or (record.holder and now < record.held_until <= now + MOST_HELD):
                raise BatchLost
            return replace(record, holder=self._token)

        await self._change(take, takes=True)

    async def _change(self, change: Callable[[BatchRecord], BatchRecord], *, takes: bool = False) -> None:
        """Change the record, and hold the batch for a while longer. Raises BatchLost, StoreError."""
        began, until = asyncio.get_running_loop().time(), await self._store.now() + HELD * self._lease
        await self._edit(lambda record: replace(change(record), held_until=until), takes=takes)
        if self._safe.expired():
            raise BatchLost
        self._safe.reschedule(began + SAFE * self._lease)

    async def _edit(self, change: Callable[[BatchRecord], BatchRecord], *, takes: bool = False) -> None:
        def edit(before: bytes) -> tuple[bytes, bool]:
            known = decode_batch(before)
            if known.holder != self._token and not takes:
                raise BatchLost
            self._record = change(known)
            return encode_batch(self._record)

        async with self._changing:
            if await self._batches.stored.change(self.tenant, self.id, edit) is None:
                raise BatchLost

    # --- making it ---

    async def _make(self) -> None:
        """Make what is not made yet. Raises BatchLost, StoreError, EngineError."""
        shown, file = self._shown, await self._files.find(self.tenant, self._shown.input_file_id)
        now = self._store.clock()
        if now > max(shown.expires_at, self._batches.since) + HOUR:
            await self._fail(BatchProblem("server_error", "The service failed on this batch. Its log has the reason."))
        elif shown.status == "finalizing":
            await self._finish("completed")
        elif file is None:
            await self._fail(GONE)
        else:
            try:
                await self._make_from(file, now)
            except FileGone:
                if await self._files.find(self.tenant, file.id) is not None:
                    raise  # it's an output that was lost
                await self._write()
                await self._fail(GONE)
            except RecursionError:
                await self._write()
                await self._fail(TOO_DEEP)

    async def _make_from(self, file: FileRecord, now: float) -> None:
        shown = self._shown
        scanned = await scan(self._files, self.tenant, file, shown.endpoint, self._service.settings.max_body_bytes)
        if scanned.problems:
            await self._fail(*scanned.problems)
            return
        self._reader = LineReader(self._files, self.tenant, file, scanned.places)
        for place, model in self._record.put_off:
            self._reader.put_off(place, model)
        resumes = shown.in_progress_at is not None
        begin = partial(_begin_lines, lines=len(scanned.places), model=scanned.model, now=now)
        del scanned  # it has the names of all lines, for as long as this goes on
        if not resumes:
            await self._change(begin)
        await self._make_lines(self._record.until + WINDOW if resumes else 0)

    async def _make_lines(self, begun: int) -> None:
        """Queue the lines and take their answers, until all are in files, or it is cancelled. An earlier holder may
        have queued those before the place `begun`.
        """
        number, total, waiting = self._record.until, self._shown.request_counts.total, self._waiting
        refused, is_stopped = 0, False
        for place in range(max(0, number - PART_LINES), number if begun else 0):
            await self._forget(place)
        while number < total or waiting:
            if self._is_stopped and not is_stopped:
                is_stopped = True
                for line in reversed(waiting):  # those that wait before those that run, or a worker begins them
                    await self._cancel(line.id)
            if is_stopped and self._shown.status == "cancelling" and number >= begun:
                total = number
            pause = LOOK_SECONDS
            if number < min(total, self._record.until + WINDOW):
                line = await self._begin(number, may_be_there=number < begun)
                if line is None:
                    refused += 1
                    pause = PAUSES.seconds(refused)
                else:
                    number, refused, pause = number + 1, 0, 0.0
                    waiting.append(line)
                    if is_stopped and line.answer is None:
                        await self._cancel(line.id)
            await self._gather(pause)
        is_late = self._store.clock() >= self._shown.expires_at
        await self._finish("cancelled" if self._shown.status == "cancelling" else "expired" if is_late else "completed")

    async def _begin(self, place: int, *, may_be_there: bool) -> LineUnderWay | None:
        """Queue the line of a place, unless it is there; None where it has to wait. Raises BatchLost, StoreError."""
        line, id, dialect, answer = await self._reader.read(place), "", OPENAI, None
        try:
            if self._is_stopped and not may_be_there:
                answer = LATE
            else:
                request, dialect = await self._read(line)
                id = self._id_of(self._reader.order[place], _members(line).parent)
                if may_be_there and await self._is_there(id):
                    pass
                elif self._is_stopped:
                    answer = LATE
                else:
                    await self._submit(request, id)
        except Exception as error:
            if not isinstance(error, ApiError | EngineError | StoreError):
                logger.exception("a line of a batch can't be queued", extra={"fields": {"batch_id": self.id}})
            elif _passes(error):  # a batch has hours
                if isinstance(error, EngineError):
                    await self._put_off(place)
                return None
            answer = _failure_of(error)
        return LineUnderWay(line.custom_id, id, dialect, _members(line).keeps, answer)

    async def _put_off(self, place: int) -> None:
        """Have the lines for a model whose engine is away come last, once. Raises BatchLost, StoreError."""
        model, known = self._reader.model(place), self._record.put_off
        if all(model != each for _, each in known):
            await self._change(lambda record: replace(record, put_off=(*known, (place, model))))
            self._reader.put_off(place, model)

    async def _read(self, line: BatchLine) -> tuple[CreateRequest, Dialect]:
        """The request of a line as it is queued, and the dialect of its answer. Raises ApiError."""
        translate = self._batches.endpoints[self._shown.endpoint]
        translated = await in_steps(translate(bytes(line.body), self._service.settings))
        request = read_create(translated.body, store=True, kind=translated.kind)
        if request.conversation is not None:
            advice = "The lines of a batch have no order, and a conversation needs one; use previous_response_id."
            raise not_served("conversation", request.conversation, advice)
        left = self._shown.expires_at - self._store.clock()
        window: Window = "8h" if left > 8 * HOUR else "2h" if left > HOUR else "soonest"
        wanted: dict[str, Any] = {"background": True, "store": True, "stream": False, "tier": "default"}
        request = replace(request, **wanted, window=window, continuation_id=self.id, announced=False)
        return request, translated.dialect

    def _id_of(self, number: int, parent: str | None) -> str:
        """The id of a line's response, which may continue another: always the same. Raises ParentNotFound."""
        together = f"{self.tenant}/{self.id}"
        return self._store.new_id(parent, together=together, seed=f"{together}/{number}".encode())

    async def _submit(self, request: CreateRequest, id: str) -> None:
        """Queue the response of a line, with what its batch's key may do by now. Raises ApiError, EngineError,
        StoreError.
        """
        entry = await self._entrance.returning(self.tenant, self._record.key)
        async with AsyncExitStack() as resources:
            maker = Maker(self._service, Caller(entry, response_id=id), partial(reserve, self._entrance, entry))
            made = await make(maker, lambda: request, resources)
            assert isinstance(made, Queued)  # it is a background response
            with suppress(Conflict):  # an earlier holder has queued it
                await submit(maker, made)

    async def _is_there(self, id: str) -> bool:
        try:
            await self._store.find(self.tenant, id, touches=False)
        except NotFound:
            return False
        return True

    async def _cancel(self, id: str) -> None:
        with suppress(NotFound, NotCancellable):  # it was refused, or has ended
            await cancel(self._service, self.tenant, id)

    async def _forget(self, place: int) -> None:
        """Delete the response of a line that an earlier holder may have kept, when it died. Raises StoreError."""
        line = await self._reader.read(place)
        with suppress(NotFound, NotTerminal):  # a line that was refused has none
            if not _members(line).keeps:
                await self._store.forget(self.tenant, self._id_of(self._reader.order[place], _members(line).parent))

    # --- its answers ---

    async def _gather(self, seconds: float) -> None:
        """Take the answers that there are by now of the lines that wait the longest; where there is none, wait for one
        as long. Raises BatchLost, StoreError.
        """
        clock = asyncio.get_running_loop().time
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._look.wait()
        while self._waiting and (self._look.is_set() or clock() >= self._look_at or self._waiting[0].answer):
            self._look.clear()
            if not await self._settle(self._waiting[0]):
                self._look_at = clock() + LOOK_SECONDS
                break
            self._waiting.popleft()
            self._look.set()  # the next one may have ended, too
            if self._part.is_due:
                await self._write()
        if not self._waiting:
            self._look.clear()
        if self._part.is_due:
            await self._write()

    async def _settle(self, line: LineUnderWay) -> bool:
        """Take the answer of the first line that waits, unless it hasn't ended. Raises StoreError."""
        part, answer = self._part, line.answer
        if answer is None:
            try:
                found = await self._store.find(self.tenant, line.id, touches=False)
            except NotFound:
                gone = ApiError(410, "The response was deleted before its answer was written.", code="response_gone")
                answer = _failure_of(gone)
            else:
                if found.under_way or found.status not in TERMINAL:
                    return False
                if not line.keeps:
                    part.ids.append(line.id)
                answer = self._answer_of(found.response, line)
        if answer is not LATE or self._shown.status != "cancelling":
            part.add(f"{self.id}_{self._record.until + part.lines}", line.custom_id, answer)
        part.lines += 1
        return True

    def _answer_of(self, stored: bytes, line: LineUnderWay) -> LineAnswer:
        """The answer that a line has by its response."""
        response = decode_response(stored)
        if response.status is ResponseStatus.CANCELLED and self._is_stopped:
            return LATE
        if response.error is not None or response.status is ResponseStatus.CANCELLED:
            why = response.error or ResponseError("cancelled", "The response was cancelled.")
            return _failure_of(server_failure(why.message, code=why.code))
        self._part.usage = sum_of(self._part.usage, response.usage)
        return LineAnswer(200, bytes(line.dialect.answer(replace(response, store=line.keeps)).body))

    async def _write(self) -> None:
        """Put the answers that were taken into files. Raises BatchLost, StoreError."""
        part, record, self._part = self._part, self._record, AnswerPart()
        output = await self._append(record.output, part.answers)
        errors = await self._append(record.errors, part.failures)
        await self._change(partial(part.behind, output=output, errors=errors))
        lines = self._service.metrics.batch_lines.labels
        lines("completed").inc(part.completed)
        lines("failed").inc(part.failed)
        for id in part.ids:
            with suppress(NotFound, NotTerminal):
                await self._store.forget(self.tenant, id)

    async def _append(self, file: OpenFile, content: bytearray) -> OpenFile:
        if not content:
            return file
        size = await self._files.append(self.tenant, file.id, file.bytes, content, lease_ms=BATCHES.kept_ms)
        return OpenFile(file.id, size)

    # --- its end ---

    async def _finish(self, status: BatchStatus) -> None:
        """Make the files whole, and end. Raises BatchLost, StoreError."""
        await self._write()
        if status == "completed":
            await self._change(lambda record: record.with_status("finalizing", self._store.clock()))
        output = await self._whole("output", self._record.output)
        errors = await self._whole("error", self._record.errors)
        await self._end(status, output_file_id=output, error_file_id=errors)

    async def _whole(self, kind: str, file: OpenFile) -> str | None:
        """The id of a file that is whole, which an earlier holder may have seen to; None where it has nothing."""
        if file.bytes and await self._files.find(self.tenant, file.id) is None:
            now, kept, name = int(self._store.clock()), self._record.kept_seconds, f"{self.id}_{kind}.jsonl"
            until = None if kept is None else now + kept
            await self._files.finish(self.tenant, FileRecord(file.id, name, OUTPUT_PURPOSE, file.bytes, now, until))
        return file.id if file.bytes else None

    async def _fail(self, *problems: BatchProblem) -> None:
        """End with the answers so far, and delete the responses of other lines, but for those that continue others or
        were put off.
        """
        until = self._record.until
        for number in range(until, min(until + WINDOW, self._shown.request_counts.total)):
            await self._cancel(id := self._id_of(number, None))
            with suppress(NotFound, NotTerminal):
                await self._store.forget(self.tenant, id)
        output = errors = None
        with suppress(FileGone):  # they may be what was lost
            output = await self._whole("output", self._record.output)
            errors = await self._whole("error", self._record.errors)
        await self._end("failed", errors=BatchProblems(problems), output_file_id=output, error_file_id=errors)

    async def _end(self, status: BatchStatus, **shown: object) -> None:
        now = self._store.clock()
        await self._change(lambda record: replace(record.with_status(status, now).showing(**shown), holder=""))
        self._service.metrics.batches.labels(status).inc()
        done = self._shown.request_counts
        counts = {"lines": done.total, "completed_lines": done.completed, "failed_lines": done.failed}
        logs.event(logger, logging.INFO, "batch ended", batch_id=self.id, batch_status=status, **counts)


def endpoints_of(service: Service) -> Mapping[str, Translate]:
    """The endpoints whose requests a batch may have, with the readers of their bodies."""
    translations = [feature.translations(service.settings) for feature in features()]
    return {"/v1/responses": no_translation} | {path: reads for each in translations for path, reads in each.items()}


def _passes(error: Exception) -> bool:
    """Whether a line that is refused so may be queued later. Whoever keeps the refusal itself keeps the line in memory,
    by its traceback.
    """
    refusal = refusal_of(error)
    return refusal.retry or refusal.retry_after is not None


def _failure_of(error: Exception) -> LineAnswer:
    """The answer of a line that is refused, or has failed."""
    refusal = refusal_of(error)
    return LineAnswer(refusal.status, bytes(envelope(refusal).body))


def _as_it_is(record: BatchRecord) -> BatchRecord:
    return record


def _begin_lines(record: BatchRecord, *, lines: int, model: str, now: float) -> BatchRecord:
    """The record once its lines are known, and its files have ids."""
    shown = record if record.shown.status == "cancelling" else record.with_status("in_progress", now)
    ids = [OpenFile(new_id(round(now * 1e6))) for _ in range(2)]
    known = shown.showing(request_counts=BatchCounts(lines), model=model or None)
    return replace(known, output=ids[0], errors=ids[1])


class _Sent(msgspec.Struct):
    """The members of a line's request that say how its response is stored, whatever they are."""

    store: msgspec.Raw = ABSENT
    previous_response_id: msgspec.Raw = ABSENT

    @property
    def keeps(self) -> bool:
        return bytes(self.store) == b"true"

    @property
    def parent(self) -> str | None:
        sent = bytes(self.previous_response_id)
        return msgspec.json.decode(sent, type=str) or None if sent.startswith(b'"') else None


def _members(line: BatchLine) -> _Sent:
    return msgspec.json.decode(line.body, type=_Sent)
