"""The Files API, as OpenAI's SDKs speak it: uploaded as a form, listed, shown, sent and deleted.

store/files/files.py keeps them. Never answer for a file of another tenant: it is as one that never was.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from fastapi import APIRouter
from fastapi import Query as InQuery
from msgspec import Meta
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from service.decoding import decode
from service.errors import ApiError, ClientGone, InvalidRequest, server_failure, unavailable
from service.features.files.inputs import files_of
from service.features.files.settings import FileSettings
from service.settings.sources import variable
from service.web.entering import Aside, UploadsAside
from service.web.errors import JsonResponse
from service.web.queries import ListPage, Query
from service.web.received import Received
from service.web.uploads import MOST_FIELD_BYTES, UploadForm
from store.files.files import PIECE_BYTES, FileGone, FileRecord, FilesFull, FileTooLarge

MOST_PAGE = 10_000
HELD_BYTES = 2 * PIECE_BYTES
"""About what an upload or a download has in memory."""

MOST_BESIDE = MOST_FIELD_BYTES + PIECE_BYTES
"""The most bytes of a form beside its file."""

MOST_NAME_CHARS = 255
"""Of a longer name its end is kept, which says what the file is."""

MOST_DIGITS = 16
"""Of a number in a field."""

router = APIRouter(prefix="/v1", tags=["Files"])


class FileExpiry(msgspec.Struct, forbid_unknown_fields=True):
    """The seconds after which a file expires."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Meta(ge=3_600, le=2_592_000)]


class UploadFields(msgspec.Struct):
    """The fields beside an uploaded file. A batch makes the files of other purposes itself."""

    purpose: Literal["assistants", "batch", "user_data", "vision"]
    expires_after: FileExpiry | None = None


class FileResource(msgspec.Struct, frozen=True):
    """A file."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    expires_at: int | None = None
    object: Literal["file"] = "file"
    status: Literal["processed"] = "processed"
    status_details: str | None = None


class FileDeleted(msgspec.Struct, frozen=True):
    """A deleted file."""

    id: str
    object: Literal["file"] = "file"
    deleted: bool = True


class FilesQuery(Query):
    """The query for a page of files."""

    limit: Annotated[int, Field(ge=1, le=MOST_PAGE)] = MOST_PAGE
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None
    purpose: str | None = None

    def shows(self, record: FileRecord) -> bool:
        """Whether a file is of these: behind the one with the id `after`, which need not be there any more."""
        after = self.after is None or (record.id > self.after if self.order == "asc" else record.id < self.after)
        return after and self.purpose in (None, record.purpose)


@router.post("/files", summary="Upload a file", operation_id="createFile")
async def create(request: UploadsAside) -> Response:
    """Store a file: a form with a part `file`, a `purpose` and perhaps `expires_after`."""
    limits = FileSettings.of(request.service.settings).file_limits
    announced = request.header(b"content-length")
    if announced.isdecimal() and int(announced[:20]) > limits.file_bytes + MOST_BESIDE:
        raise too_large(limits.file_bytes)
    request.admitted.slot.take_body(HELD_BYTES)
    form = UploadForm(request.header(b"content-type"), _body(request, limits.file_bytes))
    files = files_of(request.service)

    def complete(record: FileRecord) -> FileRecord:
        fields = decode(_as_json(form.fields), UploadFields)
        until = fields.expires_after and record.created_at + fields.expires_after.seconds
        return msgspec.structs.replace(
            record, filename=form.name[-MOST_NAME_CHARS:], purpose=fields.purpose, expires_at=until
        )

    try:
        made = await files.store(request.tenant, FileRecord(), form.file(), complete)
    except FileTooLarge as error:
        raise too_large(error.most) from None
    except FilesFull as error:
        raise _full(error) from None
    except FileGone:
        raise unavailable("The file could not be stored completely. Send it again.") from None
    request.service.metrics.file_bytes.labels("write").inc(made.bytes)
    return JsonResponse(resource_of(made))


@router.get("/files", summary="List files", operation_id="listFiles")
async def list_files(request: Aside, query: Annotated[FilesQuery, InQuery()]) -> Response:
    """All files, or those with a `purpose`, in the order of their upload, page by page."""
    found = [each for each in await files_of(request.service).of(request.tenant) if query.shows(each)]
    page = found[: query.limit] if query.order == "asc" else found[: -query.limit - 1 : -1]
    ids: list[Any] = [each.id for each in page] or [None]
    shown = [resource_of(record) for record in page]
    return request.with_room(ListPage(shown, ids[0], ids[-1], has_more=len(found) > len(page)))


@router.get("/files/{file_id}", summary="Retrieve a file", operation_id="retrieveFile")
async def retrieve(request: Aside, file_id: str) -> Response:
    """A file's name, size and purpose."""
    return JsonResponse(resource_of(await _found(request, file_id)))


@router.get("/files/{file_id}/content", summary="Download a file", operation_id="downloadFile")
async def content(request: Aside, file_id: str) -> Response:
    """The content of a file."""
    record = await _found(request, file_id)
    request.admitted.slot.take_body(HELD_BYTES)
    pieces = files_of(request.service).read(request.tenant, record)
    try:
        first = await anext(pieces, b"")  # what fails before anything is sent has a status of its own
    except FileGone:
        raise no_file(file_id) from None

    async def whole() -> AsyncGenerator[bytes]:
        sent = request.service.metrics.file_bytes.labels("read")
        sent.inc(len(first))
        yield first
        async for piece in pieces:
            sent.inc(len(piece))
            yield piece

    headers = {
        "content-length": str(record.bytes),
        "content-disposition": f"attachment; filename*=UTF-8''{quote(record.filename, safe='')}",
        "x-content-type-options": "nosniff",
    }
    return StreamingResponse(whole(), media_type="application/octet-stream", headers=headers)


@router.delete("/files/{file_id}", summary="Delete a file", operation_id="deleteFile")
async def delete(request: Aside, file_id: str) -> Response:
    """Delete a file. Conversations keep the text that they read from it."""
    if not await files_of(request.service).delete(request.tenant, file_id):
        raise no_file(file_id)
    return JsonResponse(FileDeleted(file_id))


def resource_of(record: FileRecord) -> FileResource:
    """A file."""
    return FileResource(record.id, record.bytes, record.created_at, record.filename, record.purpose, record.expires_at)


async def _found(request: Received, id: str) -> FileRecord:
    """The record of a file. Raises ApiError 404."""
    record = await files_of(request.service).find(request.tenant, id)
    if record is None:
        raise no_file(id)
    return record


def _as_json(fields: Iterable[tuple[str, str]]) -> bytes:
    """Fields as an object; one with a name such as `a[b]` is a member of another."""
    made: dict[str, Any] = {}
    for name, value in fields:
        outer, _, inner = name.partition("[")
        members = made.setdefault(outer, {}) if inner else None
        if isinstance(members, dict):
            sent = int(value) if value.isdecimal() and len(value) < MOST_DIGITS else value
            members[inner.rstrip("]")] = sent
        else:
            made[outer] = value
    return msgspec.json.encode(made)


async def _body(request: Received, most: int) -> AsyncGenerator[bytes]:
    """The body with a file of `most` bytes as it comes, at least as fast as any other has to. Raises ApiError 408 and
    413, ClientGone.
    """
    settings, size = request.service.settings, 0
    began = asyncio.get_running_loop().time()
    while True:
        allowed = settings.send_seconds * (1 + size // settings.max_body_bytes)
        try:
            async with asyncio.timeout_at(began + allowed):
                message = await request.receive()
        except TimeoutError:
            raise ApiError(
                408, f"The file didn't arrive within {allowed:g} s. Send it faster.", code="request_timeout"
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > most + MOST_BESIDE:
            raise too_large(most)
        yield chunk
        if not message.get("more_body", False):
            return


def no_file(id: str) -> ApiError:
    """404 for a file that isn't there for this tenant, in OpenAI's words."""
    return ApiError(404, f"No such File object: {id[:80]}", param="id")


def too_large(most: int) -> ApiError:
    """413 for a file that is too long."""
    told = f"A file can have at most {most} bytes ({variable('max_file_bytes')}). Split it."
    return ApiError(413, told, code="file_too_large", param="file")


def _full(error: FilesFull) -> ApiError:
    """The refusal where there is no room for a file."""
    if error.bound == "files":
        told = "The limit for the files of a project is reached. Delete some."
        return InvalidRequest(told, code="too_many_files", param="file")
    if error.bound == "bytes":
        told = f"The limit for the bytes of your files ({variable('max_tenant_files_bytes')}) is reached. Delete some."
        return InvalidRequest(told, code="too_many_file_bytes", param="file")
    setting = variable("max_bytes")
    if error.bound == "held":
        told = f"The files of all tenants have reached their limit in Redis, a quarter of {setting}."
    else:
        told = "The server of the store has too little memory for more files: raise its maxmemory."
    told = f"{told} Set {variable('archive_url')} to an archive, which then stores them, or delete some."
    return server_failure(told, status=507, code="files_full")
