"""The admin API over HTTP: projects with their service accounts, keys and limits; the keys of administrators; the audit
log; and usage, by hours and days.

A project has one of OpenAI's rate limits, for all models together. A limit that is null is none; OpenAI has none
without a limit, and no name for it. Its own names for what isn't served here (images, audio, batches) are refused.
"""

from time import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import Field
from starlette.responses import Response

from service.decoding import Json
from service.errors import invalid_value, missing, not_served
from service.features.tenants import shapes
from service.features.tenants.audit import MAX_TIME, Actor, AuditFilter, page_of_entries
from service.features.tenants.directory import Directory, RecordPage, not_found
from service.features.tenants.entrance import ProjectEntrance, ProjectEntry
from service.features.tenants.records import Key
from service.features.tenants.usage import DAY_HOURS, Bucket, UsageScope, usage_of
from service.web.entering import Aside
from service.web.errors import JsonResponse
from service.web.queries import ListPage, PageQuery, Query
from service.web.received import Received
from store.spending import HOUR_SECONDS, Spender, Sums

router = APIRouter(prefix="/v1", include_in_schema=False)

_PROJECT = "/organization/projects/{project_id}"
_MODELS = f"{_PROJECT}/model_permissions"
_ACCOUNTS = f"{_PROJECT}/service_accounts"
_KEYS = f"{_PROJECT}/api_keys"


class ProjectsQuery(PageQuery):
    include_archived: bool = False


class KeysQuery(PageQuery):
    owner_project_access: Literal["active", "inactive", "any"] = "any"


def projects_of(request: Received) -> ProjectEntrance:
    """The entrance of this service, which has projects."""
    return request.exchange.scope["app"].state.projects


def directory_of(request: Received) -> Directory:
    """The projects, accounts and keys of this service."""
    return projects_of(request).directory


def actor_of(request: Received) -> Actor:
    """The administrator who makes a request."""
    entry = request.exchange.entry
    assert isinstance(entry, ProjectEntry)
    return entry.actor


def page_of(listed: RecordPage[Any], shown: list[Json]) -> ListPage[Json]:
    """A page of a list, as its records are shown."""
    ids = [each.id for each in listed.records]
    last = ids[-1] if ids and not listed.more else listed.last
    return ListPage(shown, ids[0] if ids else None, last, listed.more)


@router.get("/organization/projects")
async def list_projects(request: Aside, query: Annotated[ProjectsQuery, InQuery()]) -> Response:
    """Projects in the order in which they were made."""
    page = await directory_of(request).projects(after=query.after, limit=query.limit, archived=query.include_archived)
    return JsonResponse(page_of(page, [shapes.project_shown(each) for each in page.records]))


@router.post("/organization/projects")
async def create_project(request: Aside) -> Response:
    """A project: a tenant of its own, whose keys see nothing of any other."""
    wished = shapes.read_project(await request.body())
    project = await directory_of(request).create_project(actor_of(request), *wished)
    return JsonResponse(shapes.project_shown(project))


@router.get(_PROJECT)
async def retrieve_project(request: Aside, project_id: str) -> Response:
    """One project."""
    return JsonResponse(shapes.project_shown(await directory_of(request).project(project_id)))


@router.post(_PROJECT)
async def update_project(request: Aside, project_id: str) -> Response:
    """Give a project another `name`, another `weight`, or other notes for trajectories."""
    wished = shapes.read_changed_project(await request.body())
    project = await directory_of(request).update_project(actor_of(request), project_id, wished)
    return JsonResponse(shapes.project_shown(project))


@router.post(f"{_PROJECT}/archive")
async def archive_project(request: Aside, project_id: str) -> Response:
    """End a project for good: its keys open nothing any more."""
    project = await directory_of(request).archive_project(actor_of(request), project_id)
    return JsonResponse(shapes.project_shown(project))


@router.get(_MODELS)
async def retrieve_models(request: Aside, project_id: str) -> Response:
    """Which models a project may use; all but none where nobody said it."""
    return JsonResponse(shapes.models_shown(await directory_of(request).project(project_id)))


@router.post(_MODELS)
async def update_models(request: Aside, project_id: str) -> Response:
    """Say which models a project may use. The others are not there for it."""
    models = shapes.read_models(await request.body())
    project = await directory_of(request).permit_models(actor_of(request), project_id, models)
    return JsonResponse(shapes.models_shown(project))


@router.delete(_MODELS)
async def delete_models(request: Aside, project_id: str) -> Response:
    """Let a project use all models."""
    await directory_of(request).permit_models(actor_of(request), project_id, None)
    return JsonResponse({"deleted": True, "object": "project.model_permissions.deleted"})


@router.get(_ACCOUNTS)
async def list_accounts(request: Aside, query: Annotated[PageQuery, InQuery()], project_id: str) -> Response:
    """The service accounts of a project."""
    page = await directory_of(request).accounts(project_id, after=query.after, limit=query.limit)
    return JsonResponse(page_of(page, [shapes.account_shown(each) for each in page.records]))


@router.post(_ACCOUNTS)
async def create_account(request: Aside, project_id: str) -> Response:
    """A service account, and its first key, whose value is shown here and nowhere else."""
    directory, actor = directory_of(request), actor_of(request)
    name, wish = shapes.read_account(await request.body())
    return JsonResponse(shapes.account_shown(*await directory.create_account(actor, project_id, name, wish)))


@router.get(f"{_ACCOUNTS}/{{account_id}}")
async def retrieve_account(request: Aside, project_id: str, account_id: str) -> Response:
    """One service account."""
    return JsonResponse(shapes.account_shown(await directory_of(request).account(project_id, account_id)))


@router.post(f"{_ACCOUNTS}/{{account_id}}")
async def update_account(request: Aside, project_id: str, account_id: str) -> Response:
    """Give a service account another `name`."""
    name = shapes.read_renamed_account(await request.body())
    account = await directory_of(request).rename_account(actor_of(request), project_id, account_id, name)
    return JsonResponse(shapes.account_shown(account))


@router.delete(f"{_ACCOUNTS}/{{account_id}}")
async def delete_account(request: Aside, project_id: str, account_id: str) -> Response:
    """End a service account, and all of its keys."""
    await directory_of(request).delete_account(actor_of(request), project_id, account_id)
    return JsonResponse(shapes.deletion(account_id, "organization.project.service_account"))


@router.post(f"{_ACCOUNTS}/{{account_id}}/api_keys")
async def create_key(request: Aside, project_id: str, account_id: str) -> Response:
    """Another key of a service account, whose value is shown here and nowhere else."""
    wish = shapes.read_key(await request.body())
    made = await directory_of(request).create_key(actor_of(request), project_id, account_id, wish)
    return JsonResponse(shapes.made_shown(made))


@router.get(_KEYS)
async def list_keys(request: Aside, query: Annotated[KeysQuery, InQuery()], project_id: str) -> Response:
    """The keys of a project, without their values."""
    directory = directory_of(request)
    page = await directory.keys(project_id, after=query.after, limit=query.limit)
    if query.owner_project_access == "inactive":  # whose owner has no access: here a key goes with its owner
        page = RecordPage[Key]([], False, None)
    shown = [shapes.key_shown(*each) for each in await directory.with_use(page.records)]
    return JsonResponse(page_of(page, shown))


@router.get(f"{_KEYS}/{{key_id}}")
async def retrieve_key(request: Aside, project_id: str, key_id: str) -> Response:
    """One key, without its value."""
    directory = directory_of(request)
    return await _key_shown(directory, await directory.key(project_id, key_id))


@router.post(f"{_KEYS}/{{key_id}}")
async def update_key(request: Aside, project_id: str, key_id: str) -> Response:
    """Give a key other `scopes`, or have it expire."""
    wished, directory = shapes.read_changed_key(await request.body()), directory_of(request)
    return await _key_shown(directory, await directory.change_key(actor_of(request), project_id, key_id, wished))


@router.delete(f"{_KEYS}/{{key_id}}")
async def delete_key(request: Aside, project_id: str, key_id: str) -> Response:
    """End a key: it opens nothing any more, within a second in all processes."""
    await directory_of(request).delete_key(actor_of(request), project_id, key_id)
    return JsonResponse(shapes.deletion(key_id, "organization.project.api_key"))


async def _key_shown(directory: Directory, key: Key) -> Response:
    (found,) = await directory.with_use([key])
    return JsonResponse(shapes.key_shown(*found))


# --- limits of projects ---

_LIMITS = "/organization/projects/{project_id}/rate_limits"
_ONE = f"{_LIMITS}/{{rate_limit_id:path}}"


class LimitsQuery(PageQuery):
    before: str | None = None


@router.get(_LIMITS)
async def list_limits(request: Aside, query: Annotated[LimitsQuery, InQuery()], project_id: str) -> Response:
    """The limits of a project: a list of one."""
    after, before = query.after, query.before
    project = await directory_of(request).project(project_id)
    for name, cursor in (("after", after), ("before", before)):
        if cursor not in (None, shapes.LIMITS_ID):
            raise invalid_value(name, cursor, "Give the id of a limit in this list.")
    data = [shapes.limits_shown(project, projects_of(request).limiter.default)] if after is before is None else []
    first = shapes.LIMITS_ID if data else None
    return JsonResponse(ListPage(data, first, first, has_more=False))


@router.get(_ONE)
async def retrieve_limit(request: Aside, project_id: str, rate_limit_id: str) -> Response:
    """The limits of a project."""
    _check(rate_limit_id)
    project = await directory_of(request).project(project_id)
    return JsonResponse(shapes.limits_shown(project, projects_of(request).limiter.default))


@router.post(_ONE)
async def update_limit(request: Aside, project_id: str, rate_limit_id: str) -> Response:
    """Change limits of a project; what isn't sent stays."""
    _check(rate_limit_id)
    wished = shapes.read_limits(await request.body())
    project = await directory_of(request).limit(actor_of(request), project_id, wished)
    return JsonResponse(shapes.limits_shown(project, projects_of(request).limiter.default))


@router.delete(_ONE)
async def delete_limit(request: Aside, project_id: str, rate_limit_id: str) -> Response:
    """Take away all limits that a project has of its own."""
    _check(rate_limit_id)
    await directory_of(request).limit(actor_of(request), project_id, None)
    return JsonResponse(shapes.deletion(rate_limit_id, "project.rate_limit"))


def _check(id: str) -> None:
    if id != shapes.LIMITS_ID:
        raise not_found("rate limit", id)


# --- administrators' keys, and the audit log ---

_ADMIN_KEYS = "/organization/admin_api_keys"

Time = Annotated[int, Field(ge=1, le=MAX_TIME)]
Names = list[str] | None


class AdminKeysQuery(PageQuery):
    order: Literal["asc", "desc"] = "asc"


class EntriesQuery(PageQuery):
    event_types: Names = Field(None, alias="event_types[]")
    project_ids: Names = Field(None, alias="project_ids[]")
    actor_ids: Names = Field(None, alias="actor_ids[]")
    resource_ids: Names = Field(None, alias="resource_ids[]")
    above: Time | None = Field(None, alias="effective_at[gt]")
    first: Time | None = Field(None, alias="effective_at[gte]")
    below: Time | None = Field(None, alias="effective_at[lt]")
    last: Time | None = Field(None, alias="effective_at[lte]")
    before: str | None = None


@router.get(_ADMIN_KEYS)
async def list_admin_keys(request: Aside, query: Annotated[AdminKeysQuery, InQuery()]) -> Response:
    """The keys of administrators, without their values; not the one in the settings."""
    directory = directory_of(request)
    page = await directory.admin_keys(after=query.after, limit=query.limit, ascending=query.order == "asc")
    shown = [shapes.admin_key_shown(key, used) for key, _, used in await directory.with_use(page.records)]
    return JsonResponse(page_of(page, shown))


@router.post(_ADMIN_KEYS)
async def create_admin_key(request: Aside) -> Response:
    """A key of an administrator, whose value is shown here and nowhere else."""
    made = await directory_of(request).create_admin_key(actor_of(request), shapes.read_admin_key(await request.body()))
    return JsonResponse(shapes.admin_key_shown(made.key, None, made.value))


@router.get(f"{_ADMIN_KEYS}/{{key_id}}")
async def retrieve_admin_key(request: Aside, key_id: str) -> Response:
    """One key of an administrator, without its value."""
    directory = directory_of(request)
    ((key, _, used),) = await directory.with_use([await directory.key("", key_id)])
    return JsonResponse(shapes.admin_key_shown(key, used))


@router.delete(f"{_ADMIN_KEYS}/{{key_id}}")
async def delete_admin_key(request: Aside, key_id: str) -> Response:
    """End a key of an administrator."""
    await directory_of(request).delete_key(actor_of(request), "", key_id)
    return JsonResponse(shapes.deletion(key_id, "organization.admin_api_key"))


@router.get("/organization/audit_logs")
async def list_entries(request: Aside, query: Annotated[EntriesQuery, InQuery()]) -> Response:
    """The audit log, the newest entry first."""
    named = (query.event_types, query.project_ids, query.actor_ids, query.resource_ids)
    wanted = AuditFilter(
        *(tuple(each or ()) for each in named),
        first=max(query.first or 0, (query.above or -1) + 1),
        last=min(query.last or MAX_TIME, (query.below or MAX_TIME) - 1),
    )
    page = await page_of_entries(
        directory_of(request).registry, wanted, after=query.after, before=query.before, limit=query.limit
    )
    return JsonResponse(ListPage(page.shown, page.first, page.last, page.more))


# --- usage ---

MOST_NAMED = 100
MAX_NAME_CHARS = 256
"""The most projects, keys or models that a request may name, and how long a name may be."""

LIMITS = {1: (24, 168), DAY_HOURS: (7, 31)}
"""How many buckets of so many hours are in an answer, unless it is said, and at most."""

FIELDS = {"project_id": "tenant", "api_key_id": "key", "model": "model", "batch": ""}
"""The fields by which usage may be grouped, with the store's names. Nothing here is a batch."""

PAGE_PREFIX = "page_"


class UsageQuery(Query):
    start_time: Time | None = None
    end_time: Time | None = None
    bucket_width: Literal["1m", "1h", "1d"] = "1d"
    project_ids: Names = Field(None, alias="project_ids[]")
    api_key_ids: Names = Field(None, alias="api_key_ids[]")
    models: Names = Field(None, alias="models[]")
    group_by: Names = Field(None, alias="group_by[]")
    batch: bool | None = None
    limit: Annotated[int | None, Field(ge=1)] = None
    page: str | None = None


@router.get("/organization/usage/completions")
async def completions(request: Aside, query: Annotated[UsageQuery, InQuery()]) -> Response:
    """Tokens and requests, in buckets; of hours that are over or have begun."""
    if query.start_time is None:
        raise missing("start_time", "Send the beginning of the usage in seconds since 1970.")
    if query.bucket_width == "1m":
        raise not_served("bucket_width", query.bucket_width, "Usage is stored by the hour. Use 1h or 1d.")
    width = 1 if query.bucket_width == "1h" else DAY_HOURS
    usual, most = LIMITS[width]
    if query.limit is not None and query.limit > most:
        raise invalid_value("limit", query.limit, f"At most {most} buckets of {query.bucket_width} are allowed.")
    first, end = _hours(query.start_time, query.end_time, query.page, width)
    asked = UsageScope(
        first=first,
        end=end,
        width=width,
        most=query.limit or usual,
        tenants=_names("project_ids[]", query.project_ids),
        keys=_names("api_key_ids[]", query.api_key_ids),
        models=_names("models[]", query.models),
        by=_grouping(query.group_by),
    )
    usage = await usage_of(projects_of(request).tally.spending, asked)
    goes_on = None if usage.goes_on is None else f"{PAGE_PREFIX}{usage.goes_on * HOUR_SECONDS}"
    shown = [_bucket_shown(bucket, query.batch, tells_batch="" in asked.by) for bucket in usage.buckets]
    page = {"data": shown, "has_more": goes_on is not None, "next_page": goes_on, "object": "page"}
    return JsonResponse(page)


def _names(param: str, names: list[str] | None) -> frozenset[str]:
    named = frozenset(names or ())
    if len(named) > MOST_NAMED:
        raise invalid_value(param, len(named), f"It should name {MOST_NAMED} at most.")
    for name in named:
        if not 0 < len(name) <= MAX_NAME_CHARS:
            raise invalid_value(param, name, f"A name has 1 to {MAX_NAME_CHARS} characters.")
    return named


def _grouping(names: list[str] | None) -> tuple[str, ...]:
    """The store's names of the fields to group by. Raises InvalidRequest."""
    for name in names or ():
        if name in ("user_id", "service_tier", "api_source"):
            raise not_served("group_by[]", name, "Usage is stored by project, key and model.")
        if name not in FIELDS:
            raise invalid_value("group_by[]", name, f"Use {', '.join(FIELDS)}.")
    return tuple(dict.fromkeys(FIELDS[name] for name in names or ()))


def _hours(start_time: int, end_time: int | None, page: str | None, width: int) -> tuple[int, int]:
    """The first hour of an answer, and the one behind all that is asked for. Raises InvalidRequest."""
    if end_time is None:
        end_time = max(int(time()), start_time) + 1
    elif end_time <= start_time:
        raise invalid_value("end_time", end_time, "It should be later than start_time.")
    first, end = start_time // HOUR_SECONDS, -(-end_time // HOUR_SECONDS)
    if page is not None:
        digits = page.removeprefix(PAGE_PREFIX)
        place = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= len(str(MAX_TIME)) else 0
        hour, rest = divmod(place, HOUR_SECONDS)
        if rest or digits == page or hour % width or not first < hour < end:
            raise invalid_value(
                "page", page, "Send the next_page of the last answer, with all other parameters unchanged."
            )
        first = hour
    return first, end


def _bucket_shown(bucket: Bucket, batch: bool | None, *, tells_batch: bool) -> Json:
    """An hour or a day, or what was asked for of it; times are in seconds."""
    results = [] if batch else sorted(bucket.results.items())
    return {
        "start_time": bucket.first * HOUR_SECONDS,
        "end_time": bucket.end * HOUR_SECONDS,
        "results": [_result_shown(spender, sums, tells_batch=tells_batch) for spender, sums in results],
        "object": "bucket",
    }


def _result_shown(spender: Spender, sums: Sums, *, tells_batch: bool) -> Json:
    """The usage of a group in a bucket; fields by which it wasn't grouped are null."""
    return {
        "input_tokens": sums.input_tokens,
        "input_cached_tokens": sums.cached_tokens,
        "input_uncached_tokens": sums.input_tokens - sums.cached_tokens,
        "output_tokens": sums.output_tokens,
        "num_model_requests": sums.requests,
        "project_id": spender.tenant or None,
        "user_id": None,
        "api_key_id": spender.key or None,
        "model": spender.model or None,
        "batch": False if tells_batch else None,
        "service_tier": None,
        "object": "organization.usage.completions.result",
    }
