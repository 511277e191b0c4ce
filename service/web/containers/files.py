"""The files of containers: uploaded, listed, shown, downloaded and deleted."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

from fastapi import Request
from starlette.responses import Response as HttpResponse
from starlette.responses import StreamingResponse

from service.api.containers import ContainerFile, ContainerFileDeleted
from service.responses.tools.containers import KeptFile
from service.web.containers.containers import PageQuery, existing, page_of
from service.web.containers.upload import read_upload
from service.web.errors import JsonResponse
from service.web.plain import PlainRouter
from service.web.routes.received import body_of, exchange_of
from service.web.routes.stored import with_room

PARSED_IN_THREAD_BYTES = 65_536
"""Forms from this size on are read in a thread."""

router = PlainRouter("Containers")


@router.route("POST", "/containers/{container_id}/files", summary="Upload a file", operation_id="createContainerFile")
async def create_file(request: Request, container_id: str) -> HttpResponse:
    """Put a file into a container: a form with a part `file`."""
    containers, exchange = existing(request, container_id), exchange_of(request)
    await containers.found(exchange.tenant, container_id)
    kind, body = exchange.headers.get(b"content-type", b""), await body_of(request, text=False)
    if len(body) > PARSED_IN_THREAD_BYTES:
        upload = await asyncio.to_thread(read_upload, body, kind)
    else:
        upload = read_upload(body, kind)
    kept = await containers.write(exchange.tenant, container_id, upload.name, _whole(upload.content))
    return JsonResponse(_file(container_id, kept))


@router.route(
    "GET",
    "/containers/{container_id}/files",
    summary="List a container's files",
    operation_id="listContainerFiles",
    query=PageQuery,
)
async def list_files(request: Request, query: PageQuery, container_id: str) -> HttpResponse:
    """The files of a container by when they were last written, page by page."""
    kept = await existing(request, container_id).files(exchange_of(request).tenant, container_id)
    kept.sort(key=lambda each: (each.file.modified, each.file.path), reverse=query.order == "desc")
    shown = [_file(container_id, each) for each in kept]
    return with_room(request, JsonResponse(page_of(shown, query, "file")))


@router.route(
    "GET",
    "/containers/{container_id}/files/{file_id}",
    summary="Retrieve a container's file",
    operation_id="retrieveContainerFile",
)
async def retrieve_file(request: Request, container_id: str, file_id: str) -> HttpResponse:
    """What is known of a file."""
    kept = await existing(request, container_id).file(exchange_of(request).tenant, container_id, file_id)
    return JsonResponse(_file(container_id, kept))


@router.route(
    "GET",
    "/containers/{container_id}/files/{file_id}/content",
    summary="Download a container's file",
    operation_id="downloadContainerFile",
)
async def content(request: Request, container_id: str, file_id: str) -> HttpResponse:
    """What a file has, as it is."""
    pieces = await existing(request, container_id).read(exchange_of(request).tenant, container_id, file_id)
    headers = {"content-disposition": "attachment"}
    return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)


@router.route(
    "DELETE",
    "/containers/{container_id}/files/{file_id}",
    summary="Delete a container's file",
    operation_id="deleteContainerFile",
)
async def delete_file(request: Request, container_id: str, file_id: str) -> HttpResponse:
    """Delete a file."""
    await existing(request, container_id).remove(exchange_of(request).tenant, container_id, file_id)
    return JsonResponse(ContainerFileDeleted(file_id))


def _file(container: str, kept: KeptFile) -> ContainerFile:
    source: Literal["user", "assistant"] = "user" if kept.uploaded else "assistant"
    file = kept.file
    return ContainerFile(kept.id, container, int(file.modified), file.bytes, file.path, source)


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content
