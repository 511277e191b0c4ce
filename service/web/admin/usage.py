"""Usage over HTTP: what projects, keys and models used, in hours and days."""

from time import time
from typing import Annotated, Literal

import msgspec
from fastapi import Request
from pydantic import Field
from starlette.responses import Response as HttpResponse

from service.errors import invalid_value, missing, unsupported
from service.tenants.usage import DAY_HOURS, Bucket, UsageScope, usage_of
from service.web.admin.organization import MAX_TIME, Names, Time
from service.web.errors import JsonResponse
from service.web.plain import PlainRouter, Query
from service.web.routes.received import service_of
from store.registry.spending import HOUR_SECONDS, Spender, Sums

router = PlainRouter()

MOST_NAMED = 100
MAX_NAME_CHARS = 256
"""The most projects, keys or models that a request may name, and how long a name may be."""

LIMITS = {1: (24, 168), DAY_HOURS: (7, 31)}
"""How many buckets of so many hours are in an answer, unless it is said, and at most."""

FIELDS = {"project_id": "tenant", "api_key_id": "key", "model": "model", "batch": ""}
"""The fields by which usage may be grouped, with the store's names. Nothing here is a batch."""

PAGE_PREFIX = "page_"


class UsageQuery(Query):
    """The query for usage."""

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


class ResultShown(msgspec.Struct):
    """The usage of a group in a bucket; fields by which it wasn't grouped are null."""

    input_tokens: int
    input_cached_tokens: int
    input_uncached_tokens: int
    output_tokens: int
    num_model_requests: int
    project_id: str | None
    user_id: None
    api_key_id: str | None
    model: str | None
    batch: bool | None
    service_tier: None
    object: Literal["organization.usage.completions.result"] = "organization.usage.completions.result"


class BucketShown(msgspec.Struct):
    """An hour or a day, or what was asked for of it; times are in seconds."""

    start_time: int
    end_time: int
    results: list[ResultShown]
    object: Literal["bucket"] = "bucket"


class UsagePage(msgspec.Struct):
    """Buckets in their order; `next_page` is for those behind them."""

    data: list[BucketShown]
    has_more: bool
    next_page: str | None
    object: Literal["page"] = "page"


@router.route("GET", "/organization/usage/completions", query=UsageQuery)
async def completions(request: Request, query: UsageQuery) -> HttpResponse:
    """Tokens and requests, in buckets; of hours that are over or have begun."""
    if query.start_time is None:
        raise missing("start_time", "Give the seconds since 1970 from which usage is wanted.")
    if query.bucket_width == "1m":
        raise unsupported("bucket_width", query.bucket_width, "Hours are what is kept. Use 1h or 1d.")
    width = 1 if query.bucket_width == "1h" else DAY_HOURS
    usual, most = LIMITS[width]
    if query.limit is not None and query.limit > most:
        raise invalid_value("limit", query.limit, f"There may be {most} buckets of {query.bucket_width} at most.")
    first, end = _hours(query.start_time, query.end_time, query.page, width)
    asked = UsageScope(
        first=first,
        end=end,
        width=width,
        most=query.limit or usual,
        tenants=_named("project_ids[]", query.project_ids),
        keys=_named("api_key_ids[]", query.api_key_ids),
        models=_named("models[]", query.models),
        by=_grouping(query.group_by),
    )
    usage = await usage_of(service_of(request).spending, asked)
    goes_on = None if usage.goes_on is None else f"{PAGE_PREFIX}{usage.goes_on * HOUR_SECONDS}"
    shown = [_bucket_shown(bucket, query.batch, tells_batch="" in asked.by) for bucket in usage.buckets]
    return JsonResponse(UsagePage(shown, goes_on is not None, goes_on))


def _named(param: str, names: list[str] | None) -> frozenset[str]:
    """The names in a request. Raises InvalidRequest."""
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
            raise unsupported("group_by[]", name, "Usage is kept by project, key and model.")
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
            raise invalid_value("page", page, "Give the next_page of an answer, and all else as it was asked for.")
        first = hour
    return first, end


def _bucket_shown(bucket: Bucket, batch: bool | None, *, tells_batch: bool) -> BucketShown:
    results = [] if batch else sorted(bucket.results.items())
    return BucketShown(
        bucket.first * HOUR_SECONDS,
        bucket.end * HOUR_SECONDS,
        [_result_shown(spender, sums, tells_batch=tells_batch) for spender, sums in results],
    )


def _result_shown(spender: Spender, sums: Sums, *, tells_batch: bool) -> ResultShown:
    return ResultShown(
        input_tokens=sums.input_tokens,
        input_cached_tokens=sums.cached_tokens,
        input_uncached_tokens=sums.input_tokens - sums.cached_tokens,
        output_tokens=sums.output_tokens,
        num_model_requests=sums.requests,
        project_id=spender.tenant or None,
        user_id=None,
        api_key_id=spender.key or None,
        model=spender.model or None,
        batch=False if tells_batch else None,
        service_tier=None,
    )
