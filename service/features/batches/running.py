"""The work on batches: each is held by one process at a time, which queues its lines and gathers their answers.

    input ─▶ lines ─▶ queued, WINDOW at once ─▶ workers ─▶ answers ─▶ files of a part each ─▶ output, errors

The id of a line's response is made of the batch and the line's place, so a line that is queued again by whoever takes
over is the same response. A response is kept until its answer is in a file whose id the record has, and only then
deleted, unless its line asked for `store`. So kills between any two of these lose nothing and make nothing twice. A
holder that can't renew its hold in time stops before another may begin.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import NamedTuple

import msgspec

from service import logs
from service.api.request import CreateBody, CreateRequest, Window, read_create
from service.api.response import Response, ResponseStatus, decode_response
from service.background.control import cancel
from service.background.submit import submit
from service.backoff import Backoff
from service.engine.port import EngineError
from service.entrance import Entry, Reservation
from service.errors import ApiError, not_served, server_failure
from service.features.batches.lines import BatchLine, LineReader, scan
from service.features.batches.shapes import BATCHES, BatchProblem, BatchRecord, BatchStatus, WrittenLines, with_status
from service.responses.make import Maker, Queued, make
from service.responses.refusals import refusal_of
from service.responses.service import Caller, Service
from service.settings.core import CoreSettings
from service.steps import in_steps
from service.store_away import tolerate
from service.web.dialect import OPENAI, Dialect, Translate, TranslatedBody
from service.web.errors import envelope
from store.errors import Conflict, NotCancellable, NotFound, NotTerminal, StoreError
from store.files.files import Files
from store.history.records import TenantRecords
from store.keys import digits_of
from store.turn import TERMINAL

logger = logging.getLogger(__name__)

HELD, RENEWED, SAFE = 2.0, 0.4, 1.2
"""For how many leases of a job a batch is held without a sign of its holder; how often that gives one; and after how
many without one it queues nothing more, so that the rest is for an operation under way.
"""

LOOK_SECONDS = 2.0
"""How often a process looks for batches that nobody holds, and for answers from other processes."""

AT_ONCE = 32
"""The most batches that one process holds: one of each tenant, so that none keeps others out."""

WINDOW = 512
"""The most lines of a batch between the first that isn't in a file and the last that is queued."""

QUEUED = 256
"""The most lines of a batch that wait or run."""

PART_LINES, PART_BYTES = 128, 1 << 20
"""So many answers, or bytes of them, make a file of a part."""

PAUSES = Backoff(0.5, 20.0)
"""The pauses before a line is queued again that was refused for now: the queue is full, or a limit is used up."""

HOUR = 3600

PART_PURPOSE = ".part"
"""The purpose of a file that has a part of the answers: nobody is shown one."""

OUTPUT_PURPOSE = "batch_output"
PART_KEPT_SECONDS = 30 * 86_400

OWN = "/v1/responses"
"""The endpoint that needs no translation."""


class BatchLost(Exception):
    """Another process holds the batch, or it was deleted."""


class LineUnderWay(NamedTuple):
    """A line whose response is queued or made."""

    place: int
    custom_id: str
    dialect: Dialect
    keeps: bool
    """Whether its response stays when its answer is in a file."""


class AnswerPart:
    """Answers that are in no file yet, and the places of their lines."""

    def __init__(self) -> None:
        self.answers, self.failures = bytearray(), bytearray()
        self.places, self.ids = list[int](), list[str]()
        self.failed = 0

    @property
    def is_full(self) -> bool:
        return len(self.places) >= PART_LINES or len(self.answers) + len(self.failures) >= PART_BYTES

    def note(self, place: int, *, failed: bool = False) -> None:
        """The line of this place is in it."""
        self.places.append(place)
        self.failed += failed


class Batches:
    """The batches that this process works on."""

    def __init__(self, service: Service, files: Files, translations: Mapping[str, Translate]) -> None:
        """`translations` are the readers of bodies that aren't the Responses API's, by their endpoints."""
        self.service, self.files, self.translations = service, files, translations
        self.stored = TenantRecords(service.store, BATCHES)
        self._runs = dict[str, BatchRun]()
        """By their tenants."""

    def ended(self, id: str) -> None:
        """A response has ended in this process. Never blocks."""
        for run in self._runs.values():
            run.note_end(id)

    async def run(self) -> None:
        """Work on batches until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                with tolerate(self.service.store, "no batch is begun"):
                    await self.service.know_ids()
                    for tenant, id in await self.stored.under_way():
                        if tenant not in self._runs and len(self._runs) < AT_ONCE:
                            self._runs[tenant] = run = BatchRun(self, tenant, id)
                            group.create_task(self._work(run))
                await asyncio.sleep(LOOK_SECONDS * random.uniform(0.5, 1))

    async def _work(self, run: "BatchRun") -> None:
        try:
            await run.work()
        except* BatchLost:
            pass  # whoever holds it goes on
        except* (StoreError, EngineError) as errors:
            logs.event(logger, logging.WARNING, "a batch waits", batch=run.id, reason=str(errors.exceptions[0]))
        except* Exception:
            logger.exception("work on a batch failed", extra={"fields": {"batch": run.id}})
        finally:
            del self._runs[run.tenant]


class BatchRun:
    """The work of this process on one batch, from taking it to its end."""

    def __init__(self, batches: Batches, tenant: str, id: str) -> None:
        self.tenant, self.id = tenant, id
        self._batches, self._files = batches, batches.files
        # a line says itself what it continues
        self._service = msgspec.structs.replace(batches.service, recogniser=None)
        self._store = batches.service.store
        self._entry = Entry(tenant)
        self._token, self._lease = self._store.token(), batches.service.jobs.limits.lease_seconds
        self._changing = asyncio.Lock()
        self._record, self._encoded = BatchRecord("", "", "", 0, 0), b""
        self._safe_until = 0.0
        self._under_way = dict[str, LineUnderWay]()
        self._ended, self._awake = set[str](), asyncio.Event()
        self._poll_at = 0.0
        self._part = AnswerPart()
        self._reader: LineReader

    def note_end(self, id: str) -> None:
        """A response has ended. Never blocks."""
        if id in self._under_way:
            self._ended.add(id)
            self._awake.set()

    async def work(self) -> None:
        """Work on the batch until it has ended, unless another process does. Raises an ExceptionGroup with BatchLost,
        StoreError, EngineError.
        """
        if not await self._take():
            return
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._renew())
                await self._make()
                renewing.cancel()
        except asyncio.CancelledError:  # this process stops, and another one can go on at once
            with suppress(BatchLost, StoreError):
                await self._change(lambda record: msgspec.structs.replace(record, holder=""))
            raise

    # --- holding it ---

    async def _take(self) -> bool:
        """Whether this process holds it now."""
        encoded = await self._batches.stored.get(self.tenant, self.id)
        if encoded is None:
            return False
        record, now = msgspec.msgpack.decode(encoded, type=BatchRecord), await self._store.now()
        if not record.under_way or (record.holder and record.held_until > now):
            return False
        self._record, self._encoded = msgspec.structs.replace(record, holder=self._token), encoded
        held_until = now + HELD * self._lease
        return await self._keep(msgspec.structs.replace(record, holder=self._token, held_until=held_until))

    async def _keep(self, record: BatchRecord) -> bool:
        encoded, began = msgspec.msgpack.encode(record), asyncio.get_running_loop().time()
        keep = self._batches.stored.keep
        if not await keep(self.tenant, self.id, encoded, self._encoded, under_way=record.under_way):
            return False
        self._record, self._encoded, self._safe_until = record, encoded, began + SAFE * self._lease
        return True

    async def _change(self, change: Callable[[BatchRecord], BatchRecord]) -> None:
        """Change the record, and hold the batch for a while longer. Raises BatchLost, StoreError."""
        async with self._changing:
            held_until = await self._store.now() + HELD * self._lease
            while not await self._keep(change(msgspec.structs.replace(self._record, held_until=held_until))):
                encoded = await self._batches.stored.get(self.tenant, self.id)  # somebody wants it cancelled
                record = msgspec.msgpack.decode(encoded, type=BatchRecord) if encoded is not None else self._record
                if encoded in (None, self._encoded) or record.holder != self._token:
                    raise BatchLost
                self._record, self._encoded = record, encoded or b""

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEWED * self._lease)
            await self._change(partial(_with_counts, part=self._part))
            self._awake.set()

    # --- making it ---

    async def _make(self) -> None:
        """Make what is not made yet. Raises BatchLost, StoreError, EngineError."""
        record, file = self._record, await self._files.find(self.tenant, self._record.input_file_id)
        if self._store.clock() > record.expires_at + HOUR:
            message = "The service failed on this batch. Its log has the reason."
            await self._fail(BatchProblem("server_error", message))
        elif record.status == "finalizing":
            await self._finish("completed")
        elif file is None:
            await self._fail(BatchProblem("file_gone", "The input file was deleted, or has expired."))
        else:
            most = self._service.settings.max_body_bytes
            scanned = await scan(self._files, self.tenant, file, record.endpoint, most)
            if scanned.problems:
                await self._fail(*scanned.problems)
                return
            self._reader = LineReader(self._files, self.tenant, file, scanned.places)
            self._entry = await self._service.tenants.entrance.returning(self.tenant, record.key)
            await self._change(
                partial(_with_lines, total=len(scanned.places), model=scanned.model, now=self._store.clock())
            )
            await self._make_lines(resumes="in_progress" in record.times)

    async def _make_lines(self, *, resumes: bool) -> None:
        """Queue the lines and gather their answers, until all are in files, or it is cancelled or too late. With
        `resumes` an earlier holder may have queued some.
        """
        written, failures = self._record.written, 0
        left = deque(sorted(set(range(written.until, self._record.total)).difference(written.behind)))
        if resumes:
            await self._forget(written.last)
            left = deque([place for place in left if not await self._resume(place, written.until + WINDOW)])
        while (left or self._under_way) and not self._is_stopped:
            room = bool(left) and left[0] < self._record.written.until + WINDOW and len(self._under_way) < QUEUED
            if room and await self._queue(left[0]):
                left.popleft()
                failures = 0
                if not self._ended:
                    continue
            elif room:
                failures += 1
            await self._gather(PAUSES.seconds(failures) if failures else LOOK_SECONDS)
        cancelled = self._record.status == "cancelling"
        is_whole = not (left or self._under_way)
        if not is_whole:
            await self._stop(() if cancelled else left)
        late = not is_whole or "expired" in self._record.times  # an earlier holder may have begun to say so
        await self._finish("cancelled" if cancelled else "expired" if late else "completed")

    @property
    def _is_stopped(self) -> bool:
        return self._record.status == "cancelling" or self._store.clock() >= self._record.expires_at

    async def _resume(self, place: int, before: int) -> bool:
        """Whether an earlier holder has queued this line, which may be of those `before` a place. Raises StoreError."""
        if place >= before:
            return False
        line = await self._reader.read(place)
        try:
            request, dialect = await self._read(line)
            id = self._id_of(place, request)
            await self._store.find(self.tenant, id, touches=False)
        except (ApiError, NotFound):
            return False
        self._under_way[id] = LineUnderWay(place, line.custom_id, dialect, keeps=_keeps(line))
        return True

    async def _forget(self, places: Iterable[int]) -> None:
        """Delete the responses of lines that an earlier holder may have kept, when it died. Raises StoreError."""
        for place in places:
            line = await self._reader.read(place)
            with suppress(ApiError, NotFound, NotTerminal):  # a line that was refused has none
                request, _ = await self._read(line)
                if not _keeps(line):
                    await self._store.forget(self.tenant, self._id_of(place, request))

    async def _queue(self, place: int) -> bool:
        """Queue a line, or note why it can't be made; False where it has to wait."""
        if asyncio.get_running_loop().time() >= self._safe_until:
            return False
        line, id = await self._reader.read(place), ""
        try:
            request, dialect = await self._read(line)
            id = self._id_of(place, request)
            self._under_way[id] = LineUnderWay(place, line.custom_id, dialect, keeps=_keeps(line))
            await self._submit(request, id)
        except Exception as error:
            self._under_way.pop(id, None)
            refusal = refusal_of(error)
            if not isinstance(error, ApiError | EngineError | StoreError):
                logger.exception("a line of a batch can't be queued", extra={"fields": {"batch": self.id}})
            elif refusal.retry:
                return False
            self._note_failure(place, line.custom_id, refusal)
        return True

    async def _read(self, line: BatchLine) -> tuple[CreateRequest, Dialect]:
        """The request of a line as it is queued, and the dialect of its answer. Raises ApiError."""
        translate = self._batches.translations.get(self._record.endpoint, as_it_is)
        translated = await in_steps(translate(bytes(line.body), self._service.settings))
        request = read_create(translated.body, store=True, kind=translated.kind)
        if request.conversation is not None:
            advice = "A conversation has an order, and the lines of a batch have none; see previous_response_id."
            raise not_served("conversation", request.conversation, advice)
        left = self._record.expires_at - self._store.clock()
        window: Window = "8h" if left > 8 * HOUR else "2h" if left > HOUR else "soonest"
        request = msgspec.structs.replace(
            request, background=True, store=True, stream=False, tier="default", window=window, continuation_id=self.id
        )
        return request, translated.dialect

    def _id_of(self, place: int, request: CreateRequest | None = None) -> str:
        """The id of a line's response: always the same. Raises ParentNotFound."""
        parent, seed = request and request.previous_response_id, f"{self.tenant}/{self.id}/{place}".encode()
        return self._store.new_id(parent, together=f"{self.tenant}/{self.id}", seed=seed)

    async def _submit(self, request: CreateRequest, id: str) -> None:
        """Queue the response of a line. Raises ApiError, EngineError, StoreError."""
        caller = Caller(self._entry, response_id=id)
        async with AsyncExitStack() as resources:
            maker = Maker(self._service, caller, self._reserve)
            made = await make(maker, lambda: request, resources)
            assert isinstance(made, Queued)  # it is a background response
            with suppress(Conflict):  # an earlier holder has queued it
                await submit(maker, made)

    async def _reserve(
        self, resources: AsyncExitStack, model: str, id: str, *, reads: int, writes: int
    ) -> Reservation | None:
        reserving = self._service.tenants.entrance.reserving
        return await resources.enter_async_context(reserving(self._entry, model, id, reads=reads, writes=writes))

    # --- its answers ---

    async def _gather(self, seconds: float) -> None:
        """Take the answers that there are, once one is there or after a while. Raises BatchLost, StoreError."""
        self._awake.clear()
        if not self._ended:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._awake.wait(), seconds)
        looked, now = [*self._ended], asyncio.get_running_loop().time()
        if now >= self._poll_at:
            looked, self._poll_at = [*self._under_way], now + LOOK_SECONDS
        self._ended.clear()
        for id in looked:
            await self._settle(id)
            if self._part.is_full:
                await self._write()

    async def _settle(self, id: str) -> None:
        """Take the answer of a response, if it has ended. Raises StoreError."""
        line = self._under_way.get(id)
        if line is None:
            return
        try:
            found = await self._store.find(self.tenant, id, touches=False)
        except NotFound:
            gone = ApiError(410, "The response was deleted before its answer was written.", code="response_gone")
            self._note_failure(line.place, line.custom_id, gone)
            del self._under_way[id]
            return
        if found.under_way or found.status not in TERMINAL:
            return
        del self._under_way[id]
        if not line.keeps:
            self._part.ids.append(id)
        response = decode_response(found.response)
        if response.status is ResponseStatus.CANCELLED and self._is_stopped:
            if self._record.status != "cancelling":
                self._note_failure(line.place, line.custom_id, None)
            return
        try:
            if response.status in (ResponseStatus.FAILED, ResponseStatus.CANCELLED):
                raise _failure_of(response)
            body = line.dialect.answer(msgspec.structs.replace(response, store=line.keeps)).body
        except ApiError as failure:
            self._note_failure(line.place, line.custom_id, failure)
            return
        self._part.answers += _line_of(self._name(line.place), line.custom_id, (200, bytes(body)))
        self._part.note(line.place)

    def _note_failure(self, place: int, custom_id: str, failure: ApiError | None) -> None:
        """A line has no answer, as it failed; or the batch is over before it."""
        response = None if failure is None else (failure.status, bytes(envelope(failure).body))
        self._part.failures += _line_of(self._name(place), custom_id, response)
        self._part.note(place, failed=True)

    def _name(self, place: int) -> str:
        return f"batch_req_{digits_of(self._id_of(place))}"

    async def _write(self) -> None:
        """Put the answers that were taken into files. Raises BatchLost, StoreError."""
        part = self._part
        answers, failures = [await self._keep_part(each) for each in (part.answers, part.failures)]
        if part.places:
            await self._change(lambda record: _with_part(record, part, answers, failures))
        self._part = AnswerPart()
        for id in part.ids:
            with suppress(NotFound, NotTerminal):
                await self._store.forget(self.tenant, id)

    async def _keep_part(self, content: bytearray) -> tuple[str, ...]:
        """The id of the file with this content, if there is any; it goes by itself where nobody comes for it."""
        if not content:
            return ()
        until = int(self._store.clock()) + PART_KEPT_SECONDS
        name, whole = f"{self.id}_part", _in_one(bytes(content))
        return ((await self._files.create(self.tenant, name, PART_PURPOSE, whole, expires_at=until)).id,)

    # --- its end ---

    async def _stop(self, left: Collection[int]) -> None:
        """Cancel all that is under way; those that are `left` expire. Raises BatchLost, StoreError."""
        for id in reversed([*self._under_way]):  # those that wait before those that run, or a worker begins them
            with suppress(NotFound, NotCancellable):
                await cancel(self._service, self.tenant, id)
        while self._under_way:
            self._poll_at = 0.0
            await self._gather(PAUSES.first)
        if left:
            expired = self._record.times | {"expired": int(self._store.clock())}
            await self._change(lambda record: msgspec.structs.replace(record, times=expired))
        for place in left:
            self._note_failure(place, (await self._reader.read(place)).custom_id, None)
            if self._part.is_full:
                await self._write()

    async def _finish(self, status: BatchStatus) -> None:
        """Make the files whole, and end. Raises BatchLost, StoreError."""
        await self._write()
        if status == "completed":
            await self._change(lambda record: with_status(record, "finalizing", self._store.clock()))
        written, record = self._record.written, self._record
        output = await self._whole("output", record.output_file_id, written.answers)
        await self._change(lambda record: msgspec.structs.replace(record, output_file_id=output))
        errors = await self._whole("error", record.error_file_id, written.failures)
        now = self._store.clock()
        await self._change(
            lambda record: msgspec.structs.replace(
                with_status(record, status, now),
                output_file_id=output,
                error_file_id=errors,
                completed=written.completed,
                failed=written.failed,
                written=WrittenLines(),
                holder="",
            )
        )
        self._log()
        for id in (*written.answers, *written.failures):
            await self._files.delete(self.tenant, id)

    async def _whole(self, kind: str, id: str, parts: Sequence[str]) -> str:
        """The id of the file with all of these parts, which an earlier holder may have made; empty where none are."""
        if not parts or (id and await self._files.find(self.tenant, id) is not None):
            return id if parts else ""
        kept = self._record.kept_seconds
        until = None if kept is None else int(self._store.clock()) + kept
        name, whole = f"{self.id}_{kind}.jsonl", self._pieces_of(parts)
        return (await self._files.create(self.tenant, name, OUTPUT_PURPOSE, whole, expires_at=until)).id

    async def _fail(self, *problems: BatchProblem) -> None:
        now = self._store.clock()
        await self._change(
            lambda record: msgspec.structs.replace(with_status(record, "failed", now), problems=problems, holder="")
        )
        self._log()

    async def _pieces_of(self, parts: Sequence[str]) -> AsyncIterator[bytes]:
        for id in parts:
            file = await self._files.find(self.tenant, id)
            if file is None:
                raise BatchLost(f"a part of the answers of {self.id} is gone")
            async for piece in self._files.read(self.tenant, file):
                yield piece

    def _log(self) -> None:
        record = self._record
        counts = {"lines": record.total, "completed": record.completed, "failed": record.failed}
        logs.event(logger, logging.INFO, "batch ended", batch=self.id, status=record.status, **counts)


async def _in_one(content: bytes) -> AsyncIterator[bytes]:
    yield content


def as_it_is(body: bytes, settings: CoreSettings) -> Generator[None, None, TranslatedBody]:
    """A body of the Responses API."""
    yield from ()
    return TranslatedBody(body, CreateBody, OPENAI)


class _Kept(msgspec.Struct):
    store: bool | None = None


def _keeps(line: BatchLine) -> bool:
    """Whether the response of a line is kept, which it says itself: a batch shouldn't push conversations out."""
    return msgspec.json.decode(line.body, type=_Kept).store is True


def _with_lines(record: BatchRecord, *, total: int, model: str, now: float) -> BatchRecord:
    """The record, once all of its lines are known."""
    known = msgspec.structs.replace(record, total=total, model=model)
    return with_status(known, "in_progress", now) if record.status == "validating" else known


def _failure_of(response: Response) -> ApiError:
    """The error in which a response has ended."""
    if response.error is None:
        return server_failure("The response was cancelled.", code="cancelled")
    return server_failure(response.error.message, code=response.error.code)


def _line_of(name: str, custom_id: str, response: tuple[int, bytes] | None) -> bytes:
    """A line of an output, or of the errors: the status and the body of an answer, or None where it came too late."""
    shown: dict[str, object] = {"id": name, "custom_id": custom_id, "response": None, "error": None}
    if response is None:
        shown["error"] = {"code": "batch_expired", "message": "The batch was over before this line was made."}
    else:
        status, body = response
        shown["response"] = {"status_code": status, "request_id": name, "body": msgspec.Raw(body)}
    return msgspec.json.encode(shown) + b"\n"


def _with_part(
    record: BatchRecord, part: AnswerPart, answers: tuple[str, ...], failures: tuple[str, ...]
) -> BatchRecord:
    """The record once a part is in these files."""
    before, until = record.written, record.written.until
    behind = {*before.behind, *part.places}
    while until in behind:
        behind.remove(until)
        until += 1
    written = WrittenLines(
        until=until,
        behind=tuple(sorted(behind)),
        answers=before.answers + answers,
        failures=before.failures + failures,
        completed=before.completed + len(part.places) - part.failed,
        failed=before.failed + part.failed,
        last=tuple(part.places),
    )
    return msgspec.structs.replace(record, written=written, completed=written.completed, failed=written.failed)


def _with_counts(record: BatchRecord, part: AnswerPart) -> BatchRecord:
    """The record with the answers that are in no file yet among its counts."""
    completed = record.written.completed + len(part.places) - part.failed
    return msgspec.structs.replace(record, completed=completed, failed=record.written.failed + part.failed)
