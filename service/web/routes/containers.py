"""Containers over HTTP: the sessions in which `code_interpreter` runs code, and their files, uploaded within bounds.

service/tools/containers.py knows what a container is, and when it has expired; here it is put on the wire.
Without a sandbox there are none, and none can be made. Never open a session here, and never read a file without its
container's tenant.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, TypeVar

from starlette.responses import StreamingResponse

from service.api.containers import (
    ContainerDeleted,
    ContainerFile,
    ContainerFileDeleted,
    ContainerResource,
    ExpiresAfter,
    read_new,
)
from service.errors import ApiError, not_served, unavailable
from service.sandbox.port import Full, SessionGone, Unusable
from service.tools.containers import ContainerRecord, Containers, KeptFile, not_found
from service.web.form import read_form
from service.web.received import Received
from service.web.routing import ListPage, OrderedQuery, Router

RETRY_SECONDS = 30
"""When a client may come back to a sandbox that is full."""

router = Router("Containers")

R = TypeVar("R", ContainerResource, ContainerFile)


class ContainersQuery(OrderedQuery):
    """The query for a page of containers."""

    name: str | None = None


@router.route("POST", "/containers", "Create a container", "createContainer")
async def create(request: Received) -> object:
    """A container with a `name`, in which code has variables and files of its own."""
    tenant, sent = request.tenant, read_new(await request.body())
    containers = _containers(request)
    if containers is None or not containers.usable:
        raise not_served("name", sent.name, "There is no sandbox here; its operator can set one up.")
    minutes = (sent.expires_after or ExpiresAfter()).minutes
    try:
        made = await containers.open(
            tenant, containers.new_id(tenant), name=sent.name, minutes=minutes, memory_limit=sent.memory_limit
        )
    except (Full, SessionGone, Unusable) as error:
        raise _no_room(error) from error
    return _resource_of(containers, made.id, made.record)


@router.route("GET", "/containers", "List containers", "listContainers", query=ContainersQuery)
async def list_containers(request: Received, query: ContainersQuery) -> object:
    """All containers, or those of a `name`, by when they were made, page by page."""
    shown: list[ContainerResource] = []
    if (containers := _containers(request)) is not None:
        kept = await containers.all(request.tenant)
        shown = [_resource_of(containers, id, record) for id, record in kept if query.name in (None, record.name)]
    page = page_of(shown if query.order == "desc" else shown[::-1], query, "container")
    return request.with_room(page)


@router.route("GET", "/containers/{container_id}", "Retrieve a container", "retrieveContainer")
async def retrieve(request: Received, container_id: str) -> object:
    """The container, also where it has expired."""
    containers = existing(request, container_id)
    record = await containers.record(request.tenant, container_id)
    return _resource_of(containers, container_id, record)


@router.route("DELETE", "/containers/{container_id}", "Delete a container", "deleteContainer")
async def delete(request: Received, container_id: str) -> object:
    """End a container, and delete its variables and files."""
    await existing(request, container_id).delete(request.tenant, container_id)
    return ContainerDeleted(container_id)


def _containers(request: Received) -> Containers | None:
    return request.service.toolbox.containers


def existing(request: Received, id: str) -> Containers:
    """The containers, of which one has this id. Raises ApiError 404 where there can be none."""
    containers = _containers(request)
    if containers is None:
        raise not_found(id)
    return containers


def _resource_of(containers: Containers, id: str, record: ContainerRecord) -> ContainerResource:
    return ContainerResource(
        id=id,
        created_at=record.created_at,
        name=record.name,
        status="running" if containers.lives(record) else "expired",
        expires_after=ExpiresAfter(record.minutes),
        last_active_at=int(record.active_at),
        memory_limit=record.memory_limit,
    )


def page_of(shown: Sequence[R], query: OrderedQuery, what: str) -> ListPage[R]:
    """At most `limit` of the shown objects, behind the one with the id `after`. Raises ApiError 400."""
    start, limit, after = 0, query.limit, query.after
    if after is not None:
        start = next((place for place, each in enumerate(shown, 1) if each.id == after), 0)
        if not start:
            raise ApiError(
                400, f"There is no {what} '{after[:80]}' to begin after.", code="invalid_value", param="after"
            )
    some = shown[start : start + limit]
    ids: list[Any] = [each.id for each in some] or [None]
    return ListPage(some, ids[0], ids[-1], has_more=start + limit < len(shown))


def _no_room(error: Exception) -> ApiError:
    """503 or 429: no container can be made now."""
    if isinstance(error, Full):
        message = f"No container can be made now: {error}."
        return ApiError(429, message, type="rate_limit_error", code="containers_full", retry_after=RETRY_SECONDS)
    return unavailable("There is no sandbox at the moment.", RETRY_SECONDS)


@router.route("POST", "/containers/{container_id}/files", "Upload a file", "createContainerFile", uploads=True)
async def create_file(request: Received, container_id: str) -> object:
    """Put a file into a container: a form with a part `file`."""
    containers, exchange = existing(request, container_id), request.exchange
    await containers.found(exchange.tenant, container_id)
    kind, body = exchange.headers.get(b"content-type", b""), await request.body(text=False)
    upload = await read_form(body, kind)
    kept = await containers.write(exchange.tenant, container_id, upload.name, _whole(upload.content))
    return _file(container_id, kept)


@router.route(
    "GET", "/containers/{container_id}/files", "List a container's files", "listContainerFiles", query=OrderedQuery
)
async def list_files(request: Received, query: OrderedQuery, container_id: str) -> object:
    """The files of a container by when they were last written, page by page."""
    kept = await existing(request, container_id).files(request.tenant, container_id)
    kept.sort(key=lambda each: (each.file.modified, each.file.path), reverse=query.order == "desc")
    shown = [_file(container_id, each) for each in kept]
    return request.with_room(page_of(shown, query, "file"))


@router.route(
    "GET", "/containers/{container_id}/files/{file_id}", "Retrieve a container's file", "retrieveContainerFile"
)
async def retrieve_file(request: Received, container_id: str, file_id: str) -> object:
    """A file's name, size and source."""
    kept = await existing(request, container_id).file(request.tenant, container_id, file_id)
    return _file(container_id, kept)


@router.route(
    "GET", "/containers/{container_id}/files/{file_id}/content", "Download a container's file", "downloadContainerFile"
)
async def content(request: Received, container_id: str, file_id: str) -> object:
    """The content of a file, as it is."""
    pieces = await existing(request, container_id).read(request.tenant, container_id, file_id)
    headers = {"content-disposition": "attachment"}
    return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)


@router.route(
    "DELETE", "/containers/{container_id}/files/{file_id}", "Delete a container's file", "deleteContainerFile"
)
async def delete_file(request: Received, container_id: str, file_id: str) -> object:
    """Delete a file."""
    await existing(request, container_id).remove(request.tenant, container_id, file_id)
    return ContainerFileDeleted(file_id)


def _file(container: str, kept: KeptFile) -> ContainerFile:
    source: Literal["user", "assistant"] = "user" if kept.uploaded else "assistant"
    file = kept.file
    return ContainerFile(kept.id, container, int(file.modified), file.bytes, file.path, source)


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content
