"""Stored responses: retrieve, delete, and list what a response was asked."""

from typing import Annotated, Literal, cast

from fastapi import APIRouter, Query, Request
from starlette.responses import Response as HttpResponse

from service.creation import Service
from service.endpoints.listing import list_input_items
from service.errors import JsonResponse
from service.gate import Arrival
from service.protocol.errors import InvalidRequest, unsupported

router = APIRouter()

MAX_PAGE_ITEMS = 100


@router.get("/responses/{response_id}", summary="Retrieve a response")
async def retrieve(
    request: Request,
    response_id: str,
    stream: bool = False,
    starting_after: int | None = None,
    include_obfuscation: bool | None = None,
    include: Annotated[list[str] | None, Query(alias="include[]")] = None,
) -> HttpResponse:
    """The response as it was served. Streaming it again comes with background responses."""
    if stream or starting_after is not None:
        raise unsupported("stream", "true", "Only background responses can be streamed again; leave it out.")
    if include:
        raise unsupported("include", ", ".join(include), "Leave it out.")
    service = cast(Service, request.app.state.service)
    return JsonResponse(await service.store.get(_tenant(request), response_id))


@router.delete("/responses/{response_id}", summary="Delete a response")
async def delete(request: Request, response_id: str, erase: bool = False, tree: bool = False) -> HttpResponse:
    """Forget a response. Responses that continue it keep their history.

    With `erase` they go on without what this response and its input added to it. With `tree` the whole conversation
    is forgotten, with every response before and after this one and all forks.
    """
    store, tenant = cast(Service, request.app.state.service).store, _tenant(request)
    if tree:
        await store.forget_tree(tenant, response_id)
    else:
        await store.forget(tenant, response_id, erase=erase)
    return JsonResponse({"id": response_id, "object": "response.deleted", "deleted": True})


@router.post("/responses/{response_id}/cancel", summary="Cancel a background response")
async def cancel(request: Request, response_id: str) -> HttpResponse:
    """Only background responses can be cancelled, and this release serves none: 400 for any that is stored."""
    service = cast(Service, request.app.state.service)
    await service.store.get(_tenant(request), response_id)
    raise InvalidRequest("Cannot cancel a synchronous response. Close its connection instead.", param="response_id")


@router.get("/responses/{response_id}/input_items", summary="List the input items of a response")
async def input_items(
    request: Request,
    response_id: str,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_ITEMS)] = 20,
    order: Literal["asc", "desc"] = "desc",
    after: str | None = None,
    include: Annotated[list[str] | None, Query(alias="include[]")] = None,
) -> HttpResponse:
    """All that the model was given for a response: the conversation before it and its own input, page by page."""
    if include:
        raise unsupported("include", ", ".join(include), "Leave it out.")
    service = cast(Service, request.app.state.service)
    page = await list_input_items(
        service.store, _tenant(request), response_id, limit=limit, ascending=order == "asc", after=after
    )
    return JsonResponse(page)


def _tenant(request: Request) -> str:
    return cast(Arrival, request.scope["arrival"]).tenant
