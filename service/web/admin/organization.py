"""The keys of administrators, and the audit log, over HTTP."""

from typing import Annotated, Literal

from fastapi import Request
from pydantic import Field
from starlette.responses import Response as HttpResponse

from service.tenants.audit import Wanted, page_of_entries
from service.web.admin.projects import Limit, PageQuery, actor_of, directory_of, page_of
from service.web.admin.shapes import Deleted, Page, admin_key_shown, read_admin_key
from service.web.errors import JsonResponse
from service.web.plain import PlainRouter, Query
from service.web.routes.received import body_of

router = PlainRouter()

_KEYS = "/organization/admin_api_keys"

MAX_TIME = 1 << 40
"""The latest time that somebody may ask for, in seconds."""

Time = Annotated[int, Field(ge=1, le=MAX_TIME)]
Names = list[str] | None


class KeysQuery(PageQuery):
    """The query for a page of the keys of administrators."""

    order: Literal["asc", "desc"] = "asc"


class EntriesQuery(Query):
    """The query for a page of the audit log."""

    event_types: Names = Field(None, alias="event_types[]")
    project_ids: Names = Field(None, alias="project_ids[]")
    actor_ids: Names = Field(None, alias="actor_ids[]")
    resource_ids: Names = Field(None, alias="resource_ids[]")
    above: Time | None = Field(None, alias="effective_at[gt]")
    first: Time | None = Field(None, alias="effective_at[gte]")
    below: Time | None = Field(None, alias="effective_at[lt]")
    last: Time | None = Field(None, alias="effective_at[lte]")
    limit: Limit = 20
    after: str | None = None
    before: str | None = None


@router.route("GET", _KEYS, query=KeysQuery)
async def list_keys(request: Request, query: KeysQuery) -> HttpResponse:
    """The keys of administrators, without their values; not the one in the settings."""
    directory = directory_of(request)
    page = await directory.admin_keys(after=query.after, limit=query.limit, ascending=query.order == "asc")
    used = await directory.last_used(page.records)
    return page_of(page, [admin_key_shown(*each) for each in zip(page.records, used, strict=True)])


@router.route("POST", _KEYS)
async def create_key(request: Request) -> HttpResponse:
    """A key of an administrator, whose value is shown here and nowhere else."""
    made = await directory_of(request).create_admin_key(actor_of(request), read_admin_key(await body_of(request)))
    return JsonResponse(admin_key_shown(made.key, None, made.value))


@router.route("GET", f"{_KEYS}/{{key_id}}")
async def retrieve_key(request: Request, key_id: str) -> HttpResponse:
    """One key of an administrator, without its value."""
    directory = directory_of(request)
    key = await directory.admin_key(key_id)
    (used,) = await directory.last_used([key])
    return JsonResponse(admin_key_shown(key, used))


@router.route("DELETE", f"{_KEYS}/{{key_id}}")
async def delete_key(request: Request, key_id: str) -> HttpResponse:
    """End a key of an administrator."""
    await directory_of(request).delete_admin_key(actor_of(request), key_id)
    return JsonResponse(Deleted(key_id, "organization.admin_api_key.deleted"))


@router.route("GET", "/organization/audit_logs", query=EntriesQuery)
async def list_entries(request: Request, query: EntriesQuery) -> HttpResponse:
    """The audit log, the newest entry first."""
    begin = [each for each in (None if query.above is None else query.above + 1, query.first) if each is not None]
    end = [each for each in (None if query.below is None else query.below - 1, query.last) if each is not None]
    named = (query.event_types, query.project_ids, query.actor_ids, query.resource_ids)
    wanted = Wanted(
        *(tuple(each or ()) for each in named),
        first=max(begin, default=None),
        last=min(end, default=None),
    )
    page = await page_of_entries(
        directory_of(request).registry, wanted, after=query.after, before=query.before, limit=query.limit
    )
    return JsonResponse(Page(page.shown, page.first, page.last, page.more))
