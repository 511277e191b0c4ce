"""Limits of projects over HTTP: OpenAI's rate limits, of which a project has one, for all models together.

A limit that is null is none; OpenAI has none without a limit, and no name for it. Its own names for what isn't served
here (images, audio, batches) are refused.
"""

from typing import Annotated

import msgspec
from fastapi import Request
from pydantic import Field
from starlette.responses import Response as HttpResponse

from service.errors import invalid_value
from service.tenants.directory import not_found
from service.tenants.limits import Limit, filled
from service.tenants.records import Project
from service.web.admin.projects import MAX_PAGE, actor_of, directory_of
from service.web.admin.shapes import ID, Deleted, LimitShown, Page, read_limits
from service.web.errors import JsonResponse
from service.web.plain import PlainRouter, Query
from service.web.routes.received import body_of, service_of

router = PlainRouter()

_LIMITS = "/organization/projects/{project_id}/rate_limits"
_ONE = f"{_LIMITS}/{{rate_limit_id:path}}"


class LimitsQuery(Query):
    """The query for a page of limits."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = MAX_PAGE
    after: str | None = None
    before: str | None = None


def shown(project: Project, default: Limit) -> LimitShown:
    """The limits of a project on the wire: its own, and the default's where it has none."""
    return LimitShown(**msgspec.structs.asdict(filled(project.limit, default)))


@router.route("GET", _LIMITS, query=LimitsQuery)
async def list_limits(request: Request, query: LimitsQuery, project_id: str) -> HttpResponse:
    """The limits of a project: a list of one."""
    after, before = query.after, query.before
    project = await directory_of(request).project(project_id)
    for name, cursor in (("after", after), ("before", before)):
        if cursor not in (None, ID):
            raise invalid_value(name, cursor, "Give the id of a limit in this list.")
    data = [shown(project, service_of(request).limiter.default)] if after is before is None else []
    first = data[0].id if data else None
    return JsonResponse(Page(data, first, first, has_more=False))


@router.route("GET", _ONE)
async def retrieve_limit(request: Request, project_id: str, rate_limit_id: str) -> HttpResponse:
    """The limits of a project."""
    _check(rate_limit_id)
    project = await directory_of(request).project(project_id)
    return JsonResponse(shown(project, service_of(request).limiter.default))


@router.route("POST", _ONE)
async def update_limit(request: Request, project_id: str, rate_limit_id: str) -> HttpResponse:
    """Change limits of a project; what isn't sent stays."""
    _check(rate_limit_id)
    wished = read_limits(await body_of(request))
    project = await directory_of(request).limit(actor_of(request), project_id, wished)
    return JsonResponse(shown(project, service_of(request).limiter.default))


@router.route("DELETE", _ONE)
async def delete_limit(request: Request, project_id: str, rate_limit_id: str) -> HttpResponse:
    """Take away all limits that a project has of its own."""
    _check(rate_limit_id)
    await directory_of(request).limit(actor_of(request), project_id, None)
    return JsonResponse(Deleted(rate_limit_id, "project.rate_limit.deleted"))


def _check(id: str) -> None:
    """Raise ApiError 404 for the id of no limit."""
    if id != ID:
        raise not_found("rate limit", id)
