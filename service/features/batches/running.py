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
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec

from service import logs
from service.api.request import CreateRequest, read_create
from service.api.response import Response, ResponseStatus, decode_response
from service.background.control import cancel
from service.background.submit import submit
from service.backoff import Backoff
from service.engine.port import EngineError
from service.entrance import Entry, Reservation
from service.errors import ApiError, InvalidRequest
from service.features.batches.lines import BatchLine, LineReader, scan
from service.features.batches.shapes import BatchProblem, BatchRecord, Tokens, Written, moved
from service.responses.make import Maker, Queued, make
from service.responses.refusals import refusal_of
from service.responses.service import Caller, Service
from service.steps import in_steps
from service.store_away import tolerate
from service.web.dialect import OPENAI, Dialect, Translate
from store.errors import Conflict, NotCancellable, NotFound, NotTerminal, StoreError
from store.files.files import FileRecord, Files
from store.history.batches import StoredBatches
from store.keys import digits_of, id_of
from store.turn import TERMINAL

logger = logging.getLogger(__name__)

HELD_SECONDS = 20.0
"""For how long a batch is held without a sign of its holder."""

RENEWAL_SECONDS = 4.0
SAFE_SECONDS = 12.0
"""After so many seconds without a renewal its holder queues nothing more: the rest is for an operation under way."""

LOOK_SECONDS = 2.0
"""How often a process looks for batches that nobody holds, and for answers from other processes."""

AT_ONCE = 8
"""The most batches that one process holds."""

WINDOW = 512
"""The most lines of a batch between the first that isn't in a file and the last that is queued."""

QUEUED = 256
"""The most lines of a batch that wait or run."""

PART_LINES, PART_BYTES = 128, 1 << 20
"""So many answers, or bytes of them, make a file of a part."""

MOST_TRIES = 5
"""After so many holders in a row that have written nothing, a batch fails."""

PAUSES = Backoff(0.5, 20.0)
"""The pauses before a line is queued again that was refused for now: the queue is full, or a limit is used up."""

LATER = frozenset({408, 409, 429})
"""Refusals below 500 that may be over in a while."""

HOUR = 3600


class BatchLost(Exception):
    """Another process holds the batch, or it was deleted."""


class LineUnderWay(NamedTuple):
    """A line whose response is queued or made."""

    place: int
    custom_id: str
    dialect: Dialect
    keeps: bool
    """Whether its response stays when its answer is in a file."""


class Part:
    """Answers that are in no file yet, and the places of their lines."""

    def __init__(self) -> None:
        self.answers, self.failures = bytearray(), bytearray()
        self.places, self.ids = list[int](), list[str]()
        self.failed = 0
        self.tokens = Counter[str]()

    @property
    def is_full(self) -> bool:
        return len(self.places) >= PART_LINES or len(self.answers) + len(self.failures) >= PART_BYTES


class Batches:
    """The batches that this process works on."""

    def __init__(self, service: Service, files: Files, translations: Mapping[str, Translate]) -> None:
        """`translations` are the readers of bodies that aren't the Responses API's, by their endpoints."""
        self.service, self.files, self.translations = service, files, translations
        self.stored = StoredBatches(service.store)
        self._runs = dict[str, BatchRun]()
        self._awake = asyncio.Event()

    @property
    def endpoints(self) -> list[str]:
        return ["/v1/responses", *self.translations]

    def wake(self) -> None:
        """Look for batches now. Never blocks."""
        self._awake.set()

    def ended(self, id: str) -> None:
        """A response has ended in this process. Never blocks."""
        for run in self._runs.values():
            run.note_end(id)

    async def run(self) -> None:
        """Work on batches until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._awake.clear()
                with tolerate(self.service.store, "no batch is begun"):
                    await self.service.know_ids()
                    for tenant, id in await self.stored.under_way():
                        if id not in self._runs and len(self._runs) < AT_ONCE:
                            self._runs[id] = run = BatchRun(self, tenant, id)
                            group.create_task(self._work(run))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._awake.wait(), LOOK_SECONDS * random.uniform(0.5, 1))

    async def _work(self, run: "BatchRun") -> None:
        try:
            await run.work()
        except* BatchLost:
            pass
        except* (StoreError, EngineError) as errors:
            reason = str(errors.exceptions[0])
            logs.event(logger, logging.WARNING, "a batch waits", batch=run.id, reason=reason)
        except* Exception:
            logger.exception("work on a batch failed", extra={"fields": {"batch": run.id}})
        finally:
            del self._runs[run.id]


class BatchRun:
    """The work of this process on one batch, from taking it to its end."""

    def __init__(self, batches: Batches, tenant: str, id: str) -> None:
        self.id = id
        self._batches, self._service, self._files = batches, batches.service, batches.files
        self._store, self._tenant = batches.service.store, tenant
        self._token = self._store.token()
        self._changing = asyncio.Lock()
        self._record, self._encoded = BatchRecord("", "", "", 0, 0), b""
        self._safe_until = 0.0
        self._under_way = dict[str, LineUnderWay]()
        self._ended, self._awake = set[str](), asyncio.Event()
        self._part = Part()

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
        finally:
            if self._record.under_way:
                with suppress(BatchLost, StoreError):
                    await self._change(lambda record: msgspec.structs.replace(record, holder="", held_until=0.0))

    # --- holding it ---

    async def _take(self) -> bool:
        """Whether this process holds it now."""
        encoded = await self._batches.stored.get(self._tenant, self.id)
        if encoded is None:
            return False
        record, now = msgspec.msgpack.decode(encoded, type=BatchRecord), await self._store.now()
        if not record.under_way or (record.holder and record.held_until > now):
            return False
        self._record, self._encoded = msgspec.structs.replace(record, holder=self._token), encoded
        taken = msgspec.structs.replace(record, holder=self._token, held_until=now + HELD_SECONDS, tries=record.tries + 1)
        return await self._keep(taken)

    async def _keep(self, record: BatchRecord) -> bool:
        encoded, began = msgspec.msgpack.encode(record), asyncio.get_running_loop().time()
        keep = self._batches.stored.keep
        if not await keep(self._tenant, self.id, encoded, self._encoded, under_way=record.under_way):
            return False
        self._record, self._encoded, self._safe_until = record, encoded, began + SAFE_SECONDS
        return True

    async def _change(self, change: Callable[[BatchRecord], BatchRecord]) -> None:
        """Change the record, and hold the batch for a while longer. Raises BatchLost, StoreError."""
        async with self._changing:
            held_until = await self._store.now() + HELD_SECONDS
            while not await self._keep(change(msgspec.structs.replace(self._record, held_until=held_until))):
                encoded = await self._batches.stored.get(self._tenant, self.id)  # somebody wants it cancelled
                record = msgspec.msgpack.decode(encoded, type=BatchRecord) if encoded is not None else self._record
                if encoded in (None, self._encoded) or record.holder != self._token:
                    raise BatchLost
                self._record, self._encoded = record, encoded or b""

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEWAL_SECONDS)
            failed, made = self._part.failed, len(self._part.places) - self._part.failed
            await self._change(
                lambda record: msgspec.structs.replace(
                    record, completed=record.written.completed + made, failed=record.written.failed + failed
                )
            )
            self._awake.set()

    @property
    def _is_safe(self) -> bool:
        return asyncio.get_running_loop().time() < self._safe_until

    # --- making it ---

    async def _make(self) -> None:
        """Make what is not made yet. Raises BatchLost, StoreError, EngineError."""
        record, file = self._record, await self._files.find(self._tenant, self._record.input_file_id)
        if record.tries > MOST_TRIES:
            await self._fail(BatchProblem("server_error", "The service failed on this batch. Its log has the reason."))
        elif record.status == "finalizing":
            await self._finish("completed")
        elif file is None:
            await self._fail(BatchProblem("file_gone", "The input file was deleted, or has expired."))
        else:
            most = self._service.settings.max_body_bytes
            scanned = await scan(self._files, self._tenant, file, record.endpoint, most)
            if scanned.problems:
                await self._fail(*scanned.problems)
                return
            self._reader = LineReader(self._files, self._tenant, file, scanned.places)
            self._entry = await self._service.tenants.entrance.returning(self._tenant, record.key)
            await self._change(partial(_begun, total=len(scanned.places), model=scanned.model, now=self._store.clock()))
            await self._make_lines()

    async def _make_lines(self) -> None:
        """Queue the lines and gather their answers, until all are in files, or it is cancelled or too late."""
        written, failures = self._record.written, 0
        doubtful = written.until + WINDOW if self._record.tries > 1 else 0  # an earlier holder may have queued them
        left = deque(sorted(set(range(written.until, self._record.total)).difference(written.behind)))
        while (left or self._under_way) and not self._is_stopped:
            if left and left[0] < self._record.written.until + WINDOW and len(self._under_way) < QUEUED:
                if await self._queue(left[0], doubts=left[0] < doubtful):
                    left.popleft()
                    failures = 0
                    if not self._ended:
                        continue
                else:
                    failures += 1
            await self._gather(PAUSES.seconds(failures) if failures else LOOK_SECONDS)
        cancelled = self._record.status == "cancelling"
        if left or self._under_way:
            for place in left:
                if place < doubtful:
                    await self._resume(place)
            await self._stop(left, cancelled=cancelled)
        await self._finish("cancelled" if cancelled else "expired" if left else "completed")

    @property
    def _is_stopped(self) -> bool:
        return self._record.status == "cancelling" or self._store.clock() >= self._record.expires_at

    async def _queue(self, place: int, *, doubts: bool) -> bool:
        """Queue a line, unless it `doubts` and it is there; False where that has to wait. Raises StoreError."""
        if asyncio.get_running_loop().time() >= self._safe_until:
            return False
        line = await self._reader.read(place)
        id = ""
        try:
            translated = await in_steps(self._translate(bytes(line.body), self._service.settings))
            request, dialect = self._request_of(translated), translated.dialect
            id = self._id_of(place, request)
            self._under_way[id] = LineUnderWay(place, line.custom_id, dialect, keeps=_keeps(line))
            if not (doubts and await self._is_there(id)):
                await self._submit(request, id)
        except Conflict:
            return True  # an earlier holder has queued it
        except (ApiError, EngineError, StoreError) as error:
            self._under_way.pop(id, None)
            refusal = refusal_of(error)
            if refusal.retry:
                return False
            self._note_failure(place, line.custom_id, refusal)
        return True

    def _id_of(self, place: int, request: CreateRequest | None = None) -> str:
        """The id of a line's response: always the same. Raises ParentNotFound."""
        parent, seed = request and request.previous_response_id, f"{self._tenant}/{self.id}/{place}".encode()
        return self._store.new_id(parent, together=f"{self._tenant}/{self.id}", seed=seed)

    def _request_of(self, translated: Translation) -> CreateRequest:
        """The request of a line, as it is queued. Raises ApiError."""
        request = read_create(translated.body, store=True, kind=translated.kind)
        if request.conversation is not None:
            advice = "A conversation has an order, and the lines of a batch have none; see previous_response_id."
            raise not_served("conversation", request.conversation, advice)
        left = self._record.expires_at - self._store.clock()
        window: Window = "8h" if left > 8 * HOUR else "2h" if left > HOUR else "soonest"
        return msgspec.structs.replace(
            request, background=True, store=True, stream=False, tier="default", window=window, continuation_id=self.id
        )

    async def _submit(self, request: CreateRequest, id: str) -> None:
        """Queue the response of a line. Raises ApiError, EngineError, StoreError."""
        caller = Caller(self._entry, response_id=id)
        async with AsyncExitStack() as resources:
            made = await make(Maker(self._service, caller, self._reserve), lambda: request, resources)
            assert isinstance(made, Queued)
            await submit(Maker(self._service, caller, self._reserve), made)

    async def _reserve(
        self, resources: AsyncExitStack, model: str, id: str, *, reads: int, writes: int
    ) -> Reservation | None:
        reserving = self._service.tenants.entrance.reserving
        return await resources.enter_async_context(reserving(self._entry, model, id, reads=reads, writes=writes))

    async def _is_there(self, id: str) -> bool:
        try:
            await self._store.find(self._tenant, id, touches=False)
        except NotFound:
            return False
        return True

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
            found = await self._store.find(self._tenant, id, touches=False)
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
            body = line.dialect.answer(found.response).body
        except ApiError as failure:
            self._note_failure(line.place, line.custom_id, failure)
            return
        self._part.answers += _line_of(self._name(line.place), line.custom_id, 200, bytes(body))
        self._part.note(line.place, response.usage)

    def _note_failure(self, place: int, custom_id: str, failure: ApiError | None) -> None:
        """A line has no answer, as it failed; or the batch is over before it."""
        body = None if failure is None else bytes(envelope(failure).body)
        status = 0 if failure is None else failure.status
        self._part.failures += _line_of(self._name(place), custom_id, status, body)
        self._part.note(place, None, failed=True)

    def _name(self, place: int) -> str:
        return f"batch_req_{digits_of(self._id_of(place))}"

    async def _write(self) -> None:
        """Put the answers that were taken into files. Raises BatchLost, StoreError."""
        part = self._part
        answers, failures = [await self._keep_part(each) for each in (part.answers, part.failures)]
        if part.places:
            await self._change(lambda record: _with_part(record, part, answers, failures))
        self._part = Part()
        for id in part.ids:
            with suppress(NotFound, NotTerminal):
                await self._store.forget(self._tenant, id)

    async def _keep_part(self, content: bytearray) -> tuple[str, ...]:
        """The id of the file with this content, if there is any; it goes by itself where nobody comes for it."""
        if not content:
            return ()
        until = int(self._store.clock()) + PART_KEPT_SECONDS
        kept = await self._files.create(
            self._tenant, self.id, PART_PURPOSE, _in_one(bytes(content)), expires_at=until
        )
        return (kept.id,)

    # --- its end ---

    async def _stop(self, left: Collection[int], *, cancelled: bool) -> None:
        """Cancel all that is under way; those that are `left` have no answers. Raises BatchLost, StoreError."""
        for id in [*self._under_way]:
            with suppress(NotFound, NotCancellable):
                await cancel(self._service, self._tenant, id)
        while self._under_way:
            self._poll_at = 0.0
            await self._gather(PAUSES.first)
        for place in () if cancelled else left:
            self._note_failure(place, (await self._reader.read(place)).custom_id, None)
            if self._part.is_full:
                await self._write()

    async def _finish(self, status: BatchStatus) -> None:
        """Make the files whole, and end. Raises BatchLost, StoreError."""
        await self._write()
        named = self._record.output_file_id or self._files.new_id(self._tenant)
        errors = self._record.error_file_id or self._files.new_id(self._tenant)
        final = "finalizing" if status == "completed" else self._record.status
        now = self._store.clock
        await self._change(
            lambda record: msgspec.structs.replace(
                moved(record, final, now()), output_file_id=named, error_file_id=errors
            )
        )
        written, kept = self._record.written, self._record.kept_seconds
        expires_at = None if kept is None else int(now()) + kept
        for id, kind, parts in ((named, "output", written.answers), (errors, "error", written.failures)):
            if parts:
                name = f"{self.id}_{kind}.jsonl"
                content = self._joined(parts)
                await self._files.create(
                    self._tenant, name, "batch_output", content, expires_at=expires_at, id=id
                )
        await self._change(
            lambda record: msgspec.structs.replace(
                moved(record, status, now()),
                output_file_id=named if written.answers else "",
                error_file_id=errors if written.failures else "",
                completed=written.completed,
                failed=written.failed,
                written=Written(tokens=written.tokens),
                holder="",
            )
        )
        self._log()
        for id in (*written.answers, *written.failures):
            await self._files.delete(self._tenant, id)

    async def _fail(self, *problems: BatchProblem) -> None:
        now = self._store.clock()
        await self._change(
            lambda record: msgspec.structs.replace(moved(record, "failed", now), problems=problems, holder="")
        )
        self._log()

    async def _joined(self, parts: Sequence[str]) -> AsyncIterator[bytes]:
        for id in parts:
            file = await self._files.find(self._tenant, id)
            if file is None:
                raise FilesLost(self.id)
            async for piece in self._files.read(self._tenant, file):
                yield piece

    def _log(self) -> None:
        record = self._record
        counts = {"lines": record.total, "completed": record.completed, "failed": record.failed}
        logs.event(logger, logging.INFO, "batch ended", batch=self.id, status=record.status, **counts)
