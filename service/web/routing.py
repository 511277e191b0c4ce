"""Routes: the endpoint for a method and a path, the way in, and a query as a model.

An endpoint gets its request, its query and the parts of its path, and answers for itself; its refusals go to the gate.
Queries are as strict as bodies: an unknown parameter is refused, as it may be meant to matter.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import msgspec
from pydantic import BaseModel, Field, ValidationError
from starlette.routing import compile_path

from service.decoding import advice
from service.errors import ApiError, InvalidRequest, brief
from service.web.exchange import METHODS, NO_ENDPOINT
from service.web.received import Received

EVERYWHERE = frozenset({"api-version"})
"""Parameters that gateways and SDKs for Azure add to every request. There is one version here."""

FILTER = "metadata"
"""A parameter with names of its own: metadata[key]=value."""

INCLUDE = "include"
"""A parameter that may come several times, also as people write it: include[]=value."""

LIST = "[]"
"""The suffix of parameters that may come several times."""

MAX_PAGE_ITEMS = 100

MAX_SHOWN_PATH = 200
"""How much of a path is shown, and compared with those of routes."""


class Query(BaseModel):
    """The query parameters of a route; this one has none."""

    also: ClassVar[frozenset[str]] = frozenset()
    """Parameters that its endpoint reads by itself."""


class PageQuery(Query):
    """The query for a page of a list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ITEMS)] = 20
    after: str | None = None


class OrderedQuery(Query):
    """The query for a page of a list that has two orders."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ITEMS)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


T = TypeVar("T")


class ListPage(msgspec.Struct, Generic[T]):
    """A page of a list, as the SDKs page through it."""

    data: Sequence[T]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


def read_query(request: Received, kind: type[Query], *, others: bool = False) -> tuple[Query, ...]:
    """The query of a request, as the arguments that an endpoint gets: none where it has no parameters. Raises
    InvalidRequest for a parameter of another kind, and of another name unless `others` are passed over.
    """
    if not request.exchange.scope["query_string"]:
        return () if kind is Query else (kind(),)
    values, names = request.parameters, {field.alias or name for name, field in kind.model_fields.items()}
    known = names | kind.also
    if INCLUDE in names:
        known |= {INCLUDE + LIST}
    for name in () if others else values:
        if name not in known and name not in EVERYWHERE and not (FILTER in known and name.startswith(FILTER)):
            message = f"Unknown query parameter: '{brief(name)}'. {advice(name, known)}"
            raise InvalidRequest(message, code="unknown_parameter", param=brief(name))
    given: dict[str, Any] = {
        name: values.getlist(name) if name.endswith(LIST) else values[name] for name in values if name in names
    }
    if INCLUDE in names:
        given[INCLUDE] = [*values.getlist(INCLUDE), *values.getlist(INCLUDE + LIST)]
    try:
        return () if kind is Query else (kind.model_validate(given),)
    except ValidationError as error:
        raise _invalid_parameter(error.errors()) from None


def _invalid_parameter(errors: Iterable[Any]) -> InvalidRequest:
    """The refusal of a parameter of the wrong kind, by the first of pydantic's errors."""
    first = next(iter(errors))
    param = str(first["loc"][-1])
    return InvalidRequest(
        f"Invalid value for '{param}': {str(first['input'])[:60]!r}. {first['msg']}.", code="invalid_value", param=param
    )


def not_in_list(what: str, id: str, param: str = "after") -> InvalidRequest:
    """The refusal of an `after`, or its like, that is nothing of a list."""
    end = "first_id of the page behind" if param == "before_id" else "last_id of the page before"
    message = f"No {what} '{id}' in this list. Give '{param}' the {end}."
    return InvalidRequest(message, code="invalid_value", param=param)


class Way(Enum):
    """The way in to a route."""

    ASIDE = "with a key, and without a wait: it asks no model"
    ASKS = "with a key, once there is a slot: it asks a model, or queues what does"
    SCRAPED = "with the operator's key for metrics"
    OPEN = "without a key: a probe, which learns only whether the service works, or a page that is the same for all"


Endpoint = Callable[..., Awaitable[object]]
"""The answer of an endpoint is a response, or an object that is sent as JSON."""


class Route(NamedTuple):
    """A route for one method; without an `operation_id` it isn't in the document of the API."""

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    operation_id: str
    tag: str
    query: type[Query] | None
    """The query that it takes; None takes any, and reads nothing of it."""
    way: Way
    uploads: bool
    """Whether it takes a form with a file."""


class FoundRoute(NamedTuple):
    """The route of a request, None where there is none, with the parts of its path. The template and the way in are
    those of any route at its path.
    """

    route: Route | None = None
    parts: Mapping[str, str] = MappingProxyType({})
    template: str = NO_ENDPOINT
    way: Way = Way.ASIDE


_NOWHERE = FoundRoute()


NOTHING = "Nothing is there; /openapi.json lists each path."

PASSED_ON = (
    *("/completions", "/embeddings", "/messages", "/count_tokens", "/rerank", "/score", "/decisions"),
    "/transcriptions",
)
NOT_PASSED_ON = (
    "Nothing here passes it on to a server: the engine has none, or HARMONIUM_CHATS is refused. Each engine "
    "serves the Responses API: POST /v1/responses."
)
"""Paths, by their ends, that are there only where an engine has servers for them; and the advice where it has none."""


def no_such_url(method: str, path: str, advice: str = NOTHING, allow: Sequence[str] = ()) -> ApiError:
    """The refusal of a path that isn't there, or is for the methods in `allow`."""
    message = f"Invalid URL ({method} {path[:MAX_SHOWN_PATH]}). {advice}"
    return ApiError(405 if allow else 404, message, allow=allow)


class Routes:
    """All routes of an application. A path without parts goes before those with some; else the first that matches."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._by_path: dict[str, dict[str, Route]] = {}
        for route in routes:
            self._by_path.setdefault(route.path, {}).setdefault(route.method, route)
        self._patterns = [(compile_path(path)[0], here) for path, here in self._by_path.items() if "{" in path]

    def __iter__(self) -> Iterator[Route]:
        return (route for here in self._by_path.values() for route in here.values())

    def find(self, method: str, path: str) -> FoundRoute:
        """The route for a method and a path."""
        found = _NOWHERE
        for here, parts in self._at(path):
            if (route := here.get(method)) is not None:
                return FoundRoute(route, parts, route.path, route.way)
            if found is _NOWHERE:
                other = next(iter(here.values()))
                found = FoundRoute(None, {}, other.path, other.way)
        return found

    def _at(self, path: str) -> Iterator[tuple[dict[str, Route], Mapping[str, str]]]:
        """The routes at a path, by their methods, and its parts."""
        if path in self._by_path:
            yield self._by_path[path], {}
        for pattern, here in self._patterns:
            if (match := pattern.match(path)) is not None:
                yield here, match.groupdict()

    def missing(self, method: str, path: str) -> ApiError:
        """The refusal of a path that isn't there, or not for this method."""
        allow = self._methods(path[:MAX_SHOWN_PATH])
        return no_such_url(method, path, self._advice(path[:MAX_SHOWN_PATH], allow), allow)

    def _methods(self, path: str) -> list[str]:
        """The methods with which there is a route for a path."""
        known = {method for here, _ in self._at(path) for method in here}
        return [method for method in METHODS if method in known]

    def _advice(self, path: str, allow: Sequence[str]) -> str:
        """Where to go instead."""
        if allow:
            *others, last = allow
            return f"It takes {', '.join(others)} and {last}." if others else f"It takes {last}."
        for likely in (path.replace("/v1/v1/", "/v1/", 1), path.rstrip("/"), f"/v1{path}"):
            if likely != path and self._methods(likely):
                return f"Did you mean {likely}?"
        return NOT_PASSED_ON if path.rstrip("/").endswith(PASSED_ON) else NOTHING


class Router:
    """Routes with one tag, in their order."""

    def __init__(self, tag: str = "") -> None:
        self._tag = tag
        self._routes: list[Route] = []

    def route(
        self,
        methods: str,
        path: str,
        summary: str = "",
        operation_id: str = "",
        *,
        query: type[Query] | None = Query,
        way: Way = Way.ASIDE,
        uploads: bool = False,
    ) -> Callable[[Endpoint], Endpoint]:
        """The decorator that makes a function the endpoint of a route. Of several `methods`, one after the other, the
        first is in the document of the API.
        """

        def add(endpoint: Endpoint) -> Endpoint:
            for place, method in enumerate(methods.split()):
                id = "" if place else operation_id
                self._routes.append(Route(method, path, endpoint, summary, id, self._tag, query, way, uploads))
            return endpoint

        return add

    def under(self, prefix: str) -> list[Route]:
        """The routes with a prefix before their paths."""
        return [route._replace(path=prefix + route.path) for route in self._routes]
