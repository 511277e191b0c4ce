"""Containers over HTTP: the sessions in which `code_interpreter` runs code, and their files, uploaded within bounds.

service/features/python/containers.py knows what a container is, and when it has expired; here it is put on the wire.
Without a sandbox there are none, and none can be made. Never open a session here, and never read a file without its
container's tenant.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter
from fastapi import Query as InQuery
from starlette.responses import Response, StreamingResponse

from service.api.content import no_such_file
from service.errors import ApiError, not_served, unavailable
from service.features.python.containers import ContainerRecord, Containers, KeptFile, not_found
from service.features.python.interpreter import containers_of
from service.features.python.shapes import (
    ContainerDeleted,
    ContainerFile,
    ContainerFileDeleted,
    ContainerResource,
    ExpiresAfter,
    read_new,
)
from service.features.sandbox.port import Full, SessionGone, Unusable
from service.responses.attachments import AttachedFile
from service.web.entering import Aside, UploadsAside
from service.web.errors import JsonResponse
from service.web.queries import OrderedQuery, page_of
from service.web.received import Received
from service.web.uploads import read_form

RETRY_SECONDS = 30
"""When a client may come back to a sandbox that is full."""

router = APIRouter(prefix="/v1", tags=["Containers"])


class ContainersQuery(OrderedQuery):
    """The query for a page of containers."""

    name: str | None = None


@router.post("/containers", summary="Create a container", operation_id="createContainer")
async def create(request: Aside) -> Response:
    """Create a container with a `name`, where code has its own variables and files, and those of `file_ids`."""
    tenant, sent = request.tenant, read_new(await request.body())
    containers = containers_of(request.service)
    if containers is None or not containers.usable:
        raise not_served("name", sent.name, "This service has no sandbox; its operator can set one up.")
    minutes = (sent.expires_after or ExpiresAfter()).minutes
    files = [await _find_file(request, id, f"file_ids[{place}]") for place, id in enumerate(sent.file_ids or ())]
    try:
        made = await containers.open(
            tenant,
            containers.new_id(tenant),
            name=sent.name,
            minutes=minutes,
            memory_limit=sent.memory_limit,
            files=files,
        )
    except Full as error:
        told = f"No container can be made now: {error}."
        raise ApiError(429, told, type="rate_limit_error", code="containers_full", retry_after=RETRY_SECONDS) from error
    except (SessionGone, Unusable) as error:
        raise unavailable("The sandbox is not available at the moment.", RETRY_SECONDS) from error
    return JsonResponse(_resource_of(containers, made.id, made.record))


async def _find_file(request: Received, id: str, where: str) -> AttachedFile:
    """A file that the caller uploaded. Raises InvalidRequest."""
    found = await request.service.attachments.find(request.exchange.entry, id)
    if found is None:
        raise no_such_file(where, id)
    return found


@router.get("/containers", summary="List containers", operation_id="listContainers")
async def list_containers(request: Aside, query: Annotated[ContainersQuery, InQuery()]) -> Response:
    """All containers, or those with a `name`, in the order of their creation, page by page."""
    shown: list[ContainerResource] = []
    if (containers := containers_of(request.service)) is not None:
        kept = (await containers.all(request.tenant, deleted=True))[:: 1 if query.order == "desc" else -1]
        ids = [id for id, _ in kept]
        if query.after in ids:  # it may have been deleted since its page was read
            kept, query = kept[ids.index(query.after) + 1 :], query.model_copy(update={"after": None})
        wanted = ((id, each) for id, each in kept if not each.deleted and query.name in (None, each.name))
        shown = [_resource_of(containers, id, each) for id, each in wanted]
    return request.with_room(page_of(shown, query, "container"))


@router.get("/containers/{container_id}", summary="Retrieve a container", operation_id="retrieveContainer")
async def retrieve(request: Aside, container_id: str) -> Response:
    """The container, even an expired one."""
    containers = existing(request, container_id)
    record = await containers.record(request.tenant, container_id)
    return JsonResponse(_resource_of(containers, container_id, record))


@router.delete("/containers/{container_id}", summary="Delete a container", operation_id="deleteContainer")
async def delete(request: Aside, container_id: str) -> Response:
    """End a container, and delete its variables and files."""
    await existing(request, container_id).delete(request.tenant, container_id)
    return JsonResponse(ContainerDeleted(container_id))


def existing(request: Received, id: str) -> Containers:
    """The containers, of which one has this id. Raises ApiError 404 where there can be none."""
    containers = containers_of(request.service)
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


@router.post("/containers/{container_id}/files", summary="Upload a file", operation_id="createContainerFile")
async def create_file(request: UploadsAside, container_id: str) -> Response:
    """Put a file into a container: a form with a part `file`."""
    containers, tenant = existing(request, container_id), request.tenant
    await containers.found(tenant, container_id)
    upload = await read_form(await request.body(text=False), request.header(b"content-type"))
    kept = await containers.write(tenant, container_id, upload.name, _whole(upload.content))
    return JsonResponse(_file(container_id, kept))


@router.get("/containers/{container_id}/files", summary="List a container's files", operation_id="listContainerFiles")
async def list_files(request: Aside, query: Annotated[OrderedQuery, InQuery()], container_id: str) -> Response:
    """The files of a container in the order of their last change, page by page."""
    kept = await existing(request, container_id).files(request.tenant, container_id)
    kept.sort(key=lambda each: (each.file.modified, each.file.path), reverse=query.order == "desc")
    shown = [_file(container_id, each) for each in kept]
    return request.with_room(page_of(shown, query, "file"))


@router.get(
    "/containers/{container_id}/files/{file_id}",
    summary="Retrieve a container's file",
    operation_id="retrieveContainerFile",
)
async def retrieve_file(request: Aside, container_id: str, file_id: str) -> Response:
    """A file's name, size and source."""
    kept = await existing(request, container_id).file(request.tenant, container_id, file_id)
    return JsonResponse(_file(container_id, kept))


@router.get(
    "/containers/{container_id}/files/{file_id}/content",
    summary="Download a container's file",
    operation_id="downloadContainerFile",
)
async def content(request: Aside, container_id: str, file_id: str) -> Response:
    """The content of a file."""
    pieces = await existing(request, container_id).read(request.tenant, container_id, file_id)
    headers = {"content-disposition": "attachment"}
    return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)


@router.delete(
    "/containers/{container_id}/files/{file_id}",
    summary="Delete a container's file",
    operation_id="deleteContainerFile",
)
async def delete_file(request: Aside, container_id: str, file_id: str) -> Response:
    """Delete a file."""
    await existing(request, container_id).remove(request.tenant, container_id, file_id)
    return JsonResponse(ContainerFileDeleted(file_id))


def _file(container: str, kept: KeptFile) -> ContainerFile:
    source: Literal["user", "assistant"] = "user" if kept.uploaded else "assistant"
    file = kept.file
    return ContainerFile(kept.id, container, int(file.modified), file.bytes, file.path, source)


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content
