"""Python for `code_interpreter`: a call becomes a cell of a container's session, and the cell an outcome.

A call has one id, by which, with its code, the sandbox knows its cell: a worker that takes over gets the same cell, and
nothing runs twice; a response that is sampled again may have other code in its place, which is a cell of its own. Where
the session is gone, nobody knows whether the call ran, so it has failed. The next one gets another container, and the
model is told that its variables are gone.
"""

import logging
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Literal

from service.api.content import no_such_file
from service.api.outcome import OUTPUTS, HostedCall, Outcome, failed_outcome
from service.api.tools.builtin import PYTHON, python
from service.api.tools.callee import Hosted
from service.entrance import Entry
from service.errors import ApiError
from service.features.python.containers import Containers, OpenedContainer, file_id
from service.features.python.shapes import container_of, read_container
from service.features.sandbox.port import FOLDER, Cell, Full, SessionGone, Unusable
from service.logs import event
from service.responses.attachments import NO_ATTACHMENTS, AttachedFile, Attachments
from service.responses.service import Service
from service.tools.port import Tool
from store.errors import StoreError

TOLD_CHARS = 12_000
"""The most characters of code's output that the model reads, some 4,000 tokens; a longer output loses its middle."""

SHOWN_IMAGE_BYTES = 3 << 20
"""The most bytes of images, all together, that the item of a call shows."""

SHOWN_RESPONSE_BYTES = 16 << 20
"""The most bytes of images in all items of a response."""

_CODE_DIGEST_BYTES = 16

logger = logging.getLogger(__name__)

NOT_KNOWN = "Whether the code ran is not known; it was not run again."
LOST = "The container was lost, with its variables and files. "
_STATUS: dict[str, Literal["completed", "failed", "incomplete"]] = {
    "ok": "completed",
    "raised": "completed",  # the model wrote it, and reads why
    "timeout": "failed",
    "lost": "failed",
    "stopped": "incomplete",
}

_ENDED = {"timeout": "The code took too long and was interrupted.\n", "stopped": "The code was interrupted.\n"}
"""The notices of ends of which the logs have none."""


class CodeInterpreter(Tool):
    """Python in containers."""

    kinds = (PYTHON,)
    declarations = ({"type": "code_interpreter", "container": {"type": "auto"}},)

    def __init__(self, containers: Containers, *, seconds: float, attached: Callable[[], Attachments]) -> None:
        """`seconds` is how long a cell may run; `attached` returns the files that requests name."""
        self.containers, self._attached = containers, attached
        self.builtin = python(read_container, seconds=seconds, drive=FOLDER)

    @property
    def usable(self) -> bool:
        """As the port has it."""
        return self.containers.usable

    async def bind(self, entry: Entry, tool: Hosted, before: str | None) -> str:
        """As the port has it: the container that was asked for, the one `before` where it lives, or a new one."""
        asked, tenant = container_of(tool.options), entry.tenant
        for id in asked.file_ids:
            if await self._attached().find(entry, id) is None:
                raise no_such_file("tools", id)
        if asked.id is not None:
            await self.containers.use(tenant, asked.id)
            return asked.id
        record = await self.containers.find(tenant, before) if before else None
        return before if before and record and self.containers.lives(record) else self.containers.new_id(tenant)

    def names_place(self, tool: Hosted) -> bool:
        """As the port has it: whether the container is named."""
        return container_of(tool.options).id is not None

    def run(self, tenant: str, connections: bytes) -> "PythonRun":
        """As the port has it."""
        return PythonRun(self.containers, tenant, self._attached())


def containers_of(service: Service) -> Containers | None:
    """The containers of a service; None where it has no sandbox."""
    return next((each.containers for each in service.toolbox.tools if isinstance(each, CodeInterpreter)), None)


class PythonRun:
    """The calls of one response of a tenant."""

    def __init__(self, containers: Containers, tenant: str, attached: Attachments = NO_ATTACHMENTS) -> None:
        self._containers, self._attached = containers, attached
        self._tenant = tenant
        self._instead: dict[str, str] = {}
        """The containers that were replaced, each with the one in its place."""
        self._found: dict[str, OpenedContainer] = {}
        """Containers that lived when they were last looked up; while that is fresh, the store isn't asked again."""
        self._room = SHOWN_RESPONSE_BYTES

    async def aclose(self) -> None:
        """As the port has it: containers live on."""

    async def call(self, call: HostedCall) -> Outcome:
        """As the port has it."""
        planned = call.tool.server
        id = self._instead.get(planned, planned)
        try:
            opened, lost = await self._open_container(id, call)
            if opened is None:
                return _failed_call(id, f"{LOST}{NOT_KNOWN}", call)
            self._instead[planned] = opened.id
            try:
                cell = await self._cell(opened, call)
            except SessionGone:
                await self._lose(opened.id)
                if call.begun or lost:
                    return _failed_call(opened.id, f"{LOST}{NOT_KNOWN}", call)
                opened, lost = await self._open(call), LOST
                self._instead[planned] = opened.id
                cell = await self._cell(opened, call)
            if cell is None:
                return _failed_call(opened.id, f"The sandbox is gone. {NOT_KNOWN}", call)
            await self._note(cell, opened)
        except (Full, Unusable, SessionGone) as error:
            return _failed_call(id, f"The code was not run: {error}.", call)
        except StoreError:
            return _failed_call(id, "The code was not run: no container is known for it.", call)
        told = "" if opened.folder == FOLDER else f"Files of {FOLDER} are in {opened.folder} here.\n"
        return self._outcome(cell, opened.id, call, told + lost)

    async def _open_container(self, id: str, call: HostedCall) -> tuple[OpenedContainer | None, str]:
        """The container of a call, and a notice to the model; None where it was lost during the call."""
        containers, tenant = self._containers, self._tenant
        found = self._found.get(id)
        if found is not None and containers.is_fresh(found.record):
            return found, ""
        record = await containers.touch(tenant, id)
        if record is None:
            return await self._open(call, id), ""
        if containers.lives(record):
            self._found[id] = OpenedContainer(id, record, FOLDER)
            return self._found[id], ""
        return (None, "") if call.begun else (await self._open(call), LOST)

    async def _open(self, call: HostedCall, id: str = "") -> OpenedContainer:
        """A new container with this id, or with a new one, in the place of one that was lost."""
        id = id or self._containers.new_id(self._tenant)
        wanted = container_of(call.tool.options)
        files = [await self._file(each) for each in wanted.file_ids]
        try:
            opened = await self._containers.open(self._tenant, id, memory_limit=wanted.memory_limit, files=files)
        except ApiError as error:
            raise Full(error.message.rstrip(".")) from error
        self._found[id] = opened._replace(folder=FOLDER)  # the model is told once where its files are
        return opened

    async def _file(self, id: str) -> AttachedFile:
        """An uploaded file. Raises Full."""
        found = await self._attached.find(Entry(self._tenant), id)
        if found is None:
            raise Full(f"the file {id} is gone")
        return found

    async def _cell(self, opened: OpenedContainer, call: HostedCall) -> Cell | None:
        """The cell of a call's code; None where the sandbox is gone. Raises Full, SessionGone."""
        digest = blake2b(call.arguments.encode("utf-8", "replace"), digest_size=_CODE_DIGEST_BYTES).hexdigest()
        with suppress(Unusable):
            return await self._containers.sandbox.run(opened.id, f"{call.id}-{digest}", call.arguments)

    async def _note(self, cell: Cell, opened: OpenedContainer) -> None:
        """Note that a container was used, or is lost with this cell. The cell counts even if the note fails."""
        try:
            if cell.ended == "lost":
                await self._lose(opened.id)
            elif not self._containers.is_fresh(opened.record):
                await self._containers.touch(self._tenant, opened.id, ran=True)
        except StoreError as error:
            event(logger, logging.WARNING, "a container's use was not noted", reason=str(error))

    async def _lose(self, id: str) -> None:
        self._found.pop(id, None)
        await self._containers.lose(self._tenant, id)

    def _outcome(self, cell: Cell, container: str, call: HostedCall, before: str) -> Outcome:
        """The outcome of a call, by its cell. The item shows the figures that there is room for, the first ones first,
        and the model is told the text `before` ahead of the output.
        """
        room = min(SHOWN_IMAGE_BYTES, self._room) if OUTPUTS in call.include else 0
        drawn, left_out, told = list[dict[str, Any]](), "", ""
        for image in cell.images:
            size = len(image.data)
            named = f"[image/{image.format}, {size:,} bytes"
            told += f"{named}]\n"
            if size > room:
                left_out += f"{named}: too large to be shown]\n"
            else:
                room, self._room = room - size, self._room - size
                url = f"data:image/{image.format};base64,{b64encode(image.data).decode()}"
                drawn.append({"type": "image", "url": url})
        files = {
            path: {"container_id": container, "file_id": file_id(container, path), "filename": path.rpartition("/")[2]}
            for path in cell.files
        }
        nothing = "" if cell.logs or cell.images else "(no output)"
        return Outcome(
            _STATUS[cell.ended],
            before + _cut(_ENDED.get(cell.ended, nothing) + cell.logs) + told,
            shown=_item_members(cell.logs + left_out, drawn, container, call),
            cites={"files": files} if files else {},
        )


def _item_members(logs: str, drawn: list[dict[str, Any]], container: str, call: HostedCall) -> dict[str, Any]:
    """The members of the item. The output of code is in them if the request asked for it."""
    shown: dict[str, Any] = {"container_id": container}
    if OUTPUTS in call.include:
        shown["outputs"] = [*([{"type": "logs", "logs": logs}] if logs else []), *drawn]
    return shown


def _cut(text: str) -> str:
    """A text without its middle, where it is long."""
    if len(text) <= TOLD_CHARS:
        return text
    half = TOLD_CHARS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def _failed_call(container: str, why: str, call: HostedCall) -> Outcome:
    outcome = failed_outcome(why)
    return Outcome("failed", outcome.told, shown=_item_members(f"{why}\n", [], container, call))
