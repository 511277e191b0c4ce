"""Servers that are programs: one process for each session, which is spoken to by its standard input and output.

The `mcp` package's own transport for these keeps a line of any length, searches it again with every piece of it, and
hands on the program's complaints. So the pipes are ours (decision 60), with the bounds that answers over HTTP have.
A program is always killed at the end of its session, with all processes that it began and that stayed in its group.
Only an operator names programs, never a request.
"""

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, cast

import anyio
import mcp_types as types
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage

from service.logs import event
from service.settings.mcp import Connection, Program
from service.shares import Share
from service.tools.guard import Weight
from service.tools.port import Heard, ToolLimits, Unreachable
from service.tools.redaction import Redaction

logger = logging.getLogger(__name__)

STOP_SECONDS = 1.0
"""The time that a program has to end by itself, once no more requests come."""

COMPLAINT_BYTES = 500
"""The bytes of a program's standard error that are kept, and logged where it can't be spoken to."""

PIECE_BYTES = 4_096

PROCESSES = 32
"""The most programs that run at once, one for each response that uses such a server: each may take tens of MiB."""


class Processes:
    """The places for programs in this process of the service, which tenants share."""

    def __init__(self, most: int, *, several: Callable[[], bool]) -> None:
        self._share = Share(most, several=several)

    @contextmanager
    def place(self, tenant: str) -> Generator[None]:
        """A place for one more program. Raises Unreachable."""
        if not self._share.fits(tenant, 1):
            raise Unreachable(
                f"No place is free for another program: this process of the service has {self._share.limit}. Try again "
                "in a moment."
            )
        self._share.take(tenant, 1)
        try:
            yield
        finally:
            self._share.give_back(tenant, 1)


class Pipes(Heard):
    """A program and its pipes, as the client of the `mcp` package wants them."""

    def __init__(self, connection: Connection, program: Program, limits: ToolLimits, redaction: Redaction) -> None:
        super().__init__()
        self._label = connection.label
        self._program = program
        self._limits = limits
        self._redaction = redaction
        self._complaint = b""
        self._messages = 0
        """The messages that came since the last request."""

    def forget(self) -> None:
        """Forget the last request, as another one begins."""
        super().forget()
        self._messages = 0

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[tuple[Any, Any]]:
        """The program's output and input; it runs until the end of the block."""
        process = await self._start()
        say, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        send, to_send = anyio.create_memory_object_stream[SessionMessage](0)
        work = [
            asyncio.create_task(each)
            for each in (self._read(process, say), self._write(process, to_send, say), self._listen(process))
        ]
        try:
            async with say, heard, send, to_send:
                yield heard, send
        finally:
            await _stop(process, work)
            if not self.answered:
                self._log("a server of tools could not be spoken to")

    async def _start(self) -> Process:
        program = self._program
        try:
            return await asyncio.create_subprocess_exec(
                *program.command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=dict(program.env),
                cwd=program.cwd,
                start_new_session=True,
                limit=self._limits.answer_bytes,
            )
        except OSError as error:
            self.failure = f"its program can't be started: {error.strerror or error}"
            self._log("a server of tools could not be started")
            raise Unreachable(self.failure) from error

    def _log(self, what: str) -> None:
        said = self._redaction.text(self._complaint.decode(errors="replace"))
        event(logger, logging.WARNING, what, server=self._label, reason=self.failure, said=said)

    async def _read(self, process: Process, say: "ObjectSendStream[SessionMessage | Exception]") -> None:
        """Hand on the program's messages, until it ends or says too much. A line that isn't JSON isn't meant for us."""
        assert process.stdout is not None
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with say:
                while self.failure is None:
                    line = await self._line(process.stdout)
                    with suppress(ValueError):
                        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                        self.answered = True
                        await say.send(SessionMessage(message))

    async def _line(self, stdout: asyncio.StreamReader) -> bytes:
        """One line; b"" for one that is too much, and behind the last one."""
        limits, weight = self._limits, Weight(self._limits.answer_values, None)
        try:
            line = await stdout.readline()
        except ValueError:
            self.failure = f"its answer has more than {limits.answer_bytes} bytes"
            return b""
        self._messages += 1
        weight.refusal(line)
        if not line:
            self.failure = "its program ended"
        elif self._messages > limits.answer_events:
            self.failure = f"its answer has more than {limits.answer_events} events"
        else:
            self.failure = weight.refusal_at_end()
        return b"" if self.failure else line

    async def _write(
        self,
        process: Process,
        to_send: "ObjectReceiveStream[SessionMessage]",
        say: "ObjectSendStream[SessionMessage | Exception]",
    ) -> None:
        """Write the messages to the program, until it no longer reads."""
        assert process.stdin is not None
        try:
            async for asked in to_send:
                process.stdin.write(asked.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await process.stdin.drain()
        except (OSError, anyio.ClosedResourceError):
            await say.aclose()

    async def _listen(self, process: Process) -> None:
        """Keep the last of the program's complaints, and read them all, so that it never waits for a reader."""
        assert process.stderr is not None
        while piece := await process.stderr.read(PIECE_BYTES):
            self._complaint = (self._complaint + piece)[-COMPLAINT_BYTES:]


async def _stop(process: Process, work: list[asyncio.Task[None]]) -> None:
    """End a program: first by the end of its input, and then by a kill of its whole group."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        await _gone(process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for each in work:
            each.cancel()
        try:
            await asyncio.gather(*work, return_exceptions=True)
            await _gone(process)
        finally:  # a process that left the group may hold the pipes, and nothing else closes them
            cast(Any, process)._transport.close()


async def _gone(process: Process) -> None:
    """Wait until a program has ended and let go of its pipes, or the time is up."""
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
