"""The keys of administrators, and the audit log, over HTTP."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response as HttpResponse

from service.tenants.audit import Wanted, page_of_entries
from service.web.admin.projects import Limit, actor_of, directory_of, page_of
from service.web.admin.shapes import Deleted, Page, admin_key_shown, read_admin_key
from service.web.errors import JsonResponse
from service.web.query import StrictRoute
from service.web.routes.received import body_of

router = APIRouter(route_class=StrictRoute, include_in_schema=False)

_KEYS = "/organization/admin_api_keys"

MAX_TIME = 1 << 40
"""The latest time that somebody may ask for, in seconds."""


@router.get(_KEYS)
async def list_keys(
    request: Request, limit: Limit = 20, after: str | None = None, order: Literal["asc", "desc"] = "asc"
) -> HttpResponse:
    """The keys of administrators, without their values; not the one in the settings."""
    directory = directory_of(request)
    page = await directory.admin_keys(after=after, limit=limit, ascending=order == "asc")
    used = await directory.last_used(page.records)
    return page_of(page, [admin_key_shown(*each) for each in zip(page.records, used, strict=True)])


@router.post(_KEYS)
async def create_key(request: Request) -> HttpResponse:
    """A key of an administrator, whose value is shown here and nowhere else."""
    made = await directory_of(request).create_admin_key(actor_of(request), read_admin_key(await body_of(request)))
    return JsonResponse(admin_key_shown(made.key, None, made.value))


@router.get(f"{_KEYS}/{{key_id}}")
async def retrieve_key(request: Request, key_id: str) -> HttpResponse:
    """One key of an administrator, without its value."""
    directory = directory_of(request)
    key = await directory.admin_key(key_id)
    (used,) = await directory.last_used([key])
    return JsonResponse(admin_key_shown(key, used))


@router.delete(f"{_KEYS}/{{key_id}}")
async def delete_key(request: Request, key_id: str) -> HttpResponse:
    """End a key of an administrator."""
    await directory_of(request).delete_admin_key(actor_of(request), key_id)
    return JsonResponse(Deleted(key_id, "organization.admin_api_key.deleted"))


@router.get("/organization/audit_logs")
async def list_entries(
    request: Request,
    event_types: Annotated[list[str] | None, Query(alias="event_types[]")] = None,
    project_ids: Annotated[list[str] | None, Query(alias="project_ids[]")] = None,
    actor_ids: Annotated[list[str] | None, Query(alias="actor_ids[]")] = None,
    resource_ids: Annotated[list[str] | None, Query(alias="resource_ids[]")] = None,
    above: Annotated[int | None, Query(ge=1, le=MAX_TIME, alias="effective_at[gt]")] = None,
    first: Annotated[int | None, Query(ge=1, le=MAX_TIME, alias="effective_at[gte]")] = None,
    below: Annotated[int | None, Query(ge=1, le=MAX_TIME, alias="effective_at[lt]")] = None,
    last: Annotated[int | None, Query(ge=1, le=MAX_TIME, alias="effective_at[lte]")] = None,
    limit: Limit = 20,
    after: str | None = None,
    before: str | None = None,
) -> HttpResponse:
    """Who did what, the newest first."""
    begin = [each for each in (None if above is None else above + 1, first) if each is not None]
    end = [each for each in (None if below is None else below - 1, last) if each is not None]
    wanted = Wanted(
        *(tuple(each or ()) for each in (event_types, project_ids, actor_ids, resource_ids)),
        first=max(begin, default=None),
        last=min(end, default=None),
    )
    page = await page_of_entries(directory_of(request).registry, wanted, after=after, before=before, limit=limit)
    return JsonResponse(Page(page.shown, page.first, page.last, page.more))
