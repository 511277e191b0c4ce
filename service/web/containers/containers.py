"""Containers, made, listed, shown and deleted. Without a sandbox there are none, and none can be made."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Request
from pydantic import Field
from starlette.responses import Response as HttpResponse

from service.api.containers import (
    ContainerDeleted,
    ContainerFile,
    ContainerResource,
    ExpiresAfter,
    read_new,
)
from service.errors import ApiError, unsupported
from service.responses.tools.containers import Containers, Record, not_found
from service.sandbox.port import Full, Gone, Unusable
from service.web.errors import JsonResponse
from service.web.plain import PlainRouter
from service.web.query import Query
from service.web.routes.included import MAX_PAGE_ITEMS
from service.web.routes.input_items import Page
from service.web.routes.received import body_of, exchange_of, service_of
from service.web.routes.stored import with_room

RETRY_SECONDS = 30
"""When a client may come back to a sandbox that is full."""

router = PlainRouter("Containers")


class PageQuery(Query):
    """The query for a page of a list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ITEMS)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


class ContainersQuery(PageQuery):
    """The query for a page of containers."""

    name: str | None = None


@router.route("POST", "/containers", summary="Create a container", operation_id="createContainer")
async def create(request: Request) -> HttpResponse:
    """A container with a `name`, in which code has variables and files of its own."""
    tenant, sent = exchange_of(request).tenant, read_new(await body_of(request))
    containers = _containers(request)
    if containers is None or not containers.usable:
        raise unsupported("name", sent.name, "There is no sandbox here; its operator can set one up.")
    minutes = (sent.expires_after or ExpiresAfter()).minutes
    try:
        made = await containers.open(
            tenant, containers.new_id(tenant), name=sent.name, minutes=minutes, memory_limit=sent.memory_limit
        )
    except (Full, Gone, Unusable) as error:
        raise _no_room(error) from error
    return JsonResponse(_shown(containers, made.id, made.record))


@router.route("GET", "/containers", summary="List containers", operation_id="listContainers", query=ContainersQuery)
async def list_containers(request: Request, query: ContainersQuery) -> HttpResponse:
    """All containers, or those of a `name`, by when they were made, page by page."""
    containers = _containers(request)
    kept = [] if containers is None else await containers.all(exchange_of(request).tenant)
    found = [each for each in kept if query.name in (None, each[1].name)]
    shown = [_shown(containers, id, record) for id, record in found] if containers is not None else []
    return with_room(
        request, JsonResponse(page_of(shown if query.order == "desc" else shown[::-1], query, "container"))
    )


@router.route("GET", "/containers/{container_id}", summary="Retrieve a container", operation_id="retrieveContainer")
async def retrieve(request: Request, container_id: str) -> HttpResponse:
    """The container, also where it has expired."""
    containers = existing(request, container_id)
    record = await containers.record(exchange_of(request).tenant, container_id)
    return JsonResponse(_shown(containers, container_id, record))


@router.route("DELETE", "/containers/{container_id}", summary="Delete a container", operation_id="deleteContainer")
async def delete(request: Request, container_id: str) -> HttpResponse:
    """End a container, and delete its variables and files."""
    await existing(request, container_id).delete(exchange_of(request).tenant, container_id)
    return JsonResponse(ContainerDeleted(container_id))


def _containers(request: Request) -> Containers | None:
    return service_of(request).containers


def existing(request: Request, id: str) -> Containers:
    """The containers, of which one has this id. Raises ApiError 404 where there can be none."""
    containers = _containers(request)
    if containers is None:
        raise not_found(id)
    return containers


def _shown(containers: Containers, id: str, record: Record) -> ContainerResource:
    return ContainerResource(
        id=id,
        created_at=record.created_at,
        name=record.name,
        status="running" if containers.lives(record) else "expired",
        expires_after=ExpiresAfter(record.minutes),
        last_active_at=int(record.active_at),
        memory_limit=record.memory_limit,
    )


def page_of(shown: Sequence[ContainerResource | ContainerFile], query: PageQuery, what: str) -> Page:
    """At most `limit` of what is shown, behind the one with the id `after`. Raises ApiError 400."""
    start, limit, after = 0, query.limit, query.after
    if after is not None:
        start = next((place for place, each in enumerate(shown, 1) if each.id == after), 0)
        if not start:
            raise ApiError(
                400, f"There is no {what} '{after[:80]}' to begin after.", code="invalid_value", param="after"
            )
    some = shown[start : start + limit]
    data = [msgspec.Raw(msgspec.json.encode(each)) for each in some]
    ids: list[Any] = [each.id for each in some] or [None]
    return Page(data, ids[0], ids[-1], has_more=start + limit < len(shown))


def _no_room(error: Exception) -> ApiError:
    """503 or 429: no container can be made now."""
    if isinstance(error, Full):
        return ApiError(
            429,
            f"No container can be made now: {error}.",
            type="rate_limit_error",
            code="containers_full",
            retry_after=RETRY_SECONDS,
        )
    return ApiError(
        503,
        "There is no sandbox at the moment.",
        type="server_error",
        code="service_unavailable",
        retry_after=RETRY_SECONDS,
    )
