"""Limits of projects over HTTP: OpenAI's rate limits, one for each model, and one for all models together.

A limit that is null is none; OpenAI has none without a limit, and no name for it. Its own names for what isn't served
here (images, audio, batches) are refused.
"""

from typing import Annotated, Any

import msgspec
from fastapi import Request
from pydantic import Field
from starlette.responses import Response as HttpResponse

from service.errors import invalid_value
from service.tenants.directory import not_found
from service.tenants.limits import ALL_MODELS, Limit, filled
from service.tenants.records import Project
from service.web.admin.projects import MAX_PAGE, actor_of, directory_of
from service.web.admin.shapes import ID_PREFIX, Deleted, LimitShown, Page, read_limits
from service.web.errors import JsonResponse
from service.web.plain import PlainRouter, Query
from service.web.routes.received import body_of, service_of

router = PlainRouter()

_LIMITS = "/organization/projects/{project_id}/rate_limits"


class LimitsQuery(Query):
    """The query for a page of limits."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = MAX_PAGE
    after: str | None = None
    before: str | None = None


def shown(project: Project, model: str, default: Limit) -> LimitShown:
    """The limits of a model on the wire: its own; of all models together, the default's where it has none."""
    limits = filled(project.limits, default) if model == ALL_MODELS else project.limits
    values: dict[str, Any] = msgspec.structs.asdict(limits.get(model, Limit()))
    return LimitShown(id=ID_PREFIX + model, model=model, **values)


@router.route("GET", _LIMITS, query=LimitsQuery)
async def list_limits(request: Request, query: LimitsQuery, project_id: str) -> HttpResponse:
    """The limits of all models together, of each that is served, and of others that have some."""
    service, limit, after, before = service_of(request), query.limit, query.after, query.before
    project = await directory_of(request).project(project_id)
    served = [offer.names[0] for offer in service.engine.offers() if offer.names]
    models = list(dict.fromkeys([ALL_MODELS, *served, *project.limits]))
    ids = [ID_PREFIX + model for model in models]
    for name, cursor in (("after", after), ("before", before)):
        if cursor is not None and cursor not in ids:
            raise invalid_value(name, cursor, "Give the id of a limit in this list.")
    first = 0 if after is None else ids.index(after) + 1
    end = len(ids) if before is None else ids.index(before)
    if before is not None and after is None:
        first = max(0, end - limit)
    page = models[first : min(end, first + limit)]
    data = [shown(project, model, service.limiter.default) for model in page]
    last = data[-1].id if data else None
    return JsonResponse(Page(data, data[0].id if data else None, last, first + limit < end))


@router.route("GET", f"{_LIMITS}/{{rate_limit_id:path}}")
async def retrieve_limit(request: Request, project_id: str, rate_limit_id: str) -> HttpResponse:
    """The limits of one model, or of all together."""
    model = _model(request, rate_limit_id)
    project = await directory_of(request).project(project_id)
    return JsonResponse(shown(project, model, service_of(request).limiter.default))


@router.route("POST", f"{_LIMITS}/{{rate_limit_id:path}}")
async def update_limit(request: Request, project_id: str, rate_limit_id: str) -> HttpResponse:
    """Change limits of a model, or of all together; what isn't sent stays."""
    model, wished = _model(request, rate_limit_id), read_limits(await body_of(request))
    project = await directory_of(request).limit(actor_of(request), project_id, model, wished)
    return JsonResponse(shown(project, model, service_of(request).limiter.default))


@router.route("DELETE", f"{_LIMITS}/{{rate_limit_id:path}}")
async def delete_limit(request: Request, project_id: str, rate_limit_id: str) -> HttpResponse:
    """Take away all limits that the project has of a model, or of all together."""
    model = _model(request, rate_limit_id)
    await directory_of(request).limit(actor_of(request), project_id, model, None)
    return JsonResponse(Deleted(rate_limit_id, "project.rate_limit.deleted"))


def _model(request: Request, id: str) -> str:
    """The model that a limit is of, by its first name. Raises ApiError 404 for one that isn't served."""
    name = id.removeprefix(ID_PREFIX)
    if id.startswith(ID_PREFIX):
        if name == ALL_MODELS:
            return name
        for offer in service_of(request).engine.offers():
            if name in offer.names:
                return offer.names[0]
    raise not_found("rate limit", id)
