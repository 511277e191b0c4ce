"""Plain routes: an endpoint gets its request, its query and the parts of its path, and answers for itself.

FastAPI finds out for each request again what an endpoint gets, and enters an exit stack for it: more work than to read
a stored response. Here a route is Starlette's, and FastAPI does nothing around it: its refusals go to the gate. It has
the words that the document of the API is made of. Queries are as strict as bodies: what nobody knows is refused, as it
may be meant to matter.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import msgspec
from fastapi import FastAPI, Request
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from service.decoding import advice
from service.errors import InvalidRequest, shown
from service.web.errors import JsonResponse

EVERYWHERE = frozenset({"api-version"})
"""Parameters that gateways and SDKs for Azure add to every request. There is one version here."""

FILTER = "metadata"
"""A parameter with names of its own: metadata[key]=value."""

INCLUDE = "include"
"""A parameter that may come several times, also as people write it: include[]=value."""

LIST = "[]"
"""The suffix of parameters that may come several times."""


class Query(BaseModel):
    """The query parameters of a route; this one has none."""

    also: ClassVar[frozenset[str]] = frozenset()
    """Parameters that its endpoint reads by itself."""


MAX_PAGE_ITEMS = 100


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
Q = TypeVar("Q", bound=Query)


class Page(msgspec.Struct, Generic[T]):
    """A page of a list, as the SDKs page through it."""

    data: Sequence[T]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


def read_query(request: Request, kind: type[Q]) -> Q:
    """The query of a request. Raises InvalidRequest for a parameter of another name or kind."""
    if not request.scope["query_string"]:
        return kind()
    values, names = request.query_params, {field.alias or name for name, field in kind.model_fields.items()}
    known = names | kind.also
    _check(request, known | {INCLUDE + LIST} if INCLUDE in names else known)
    given: dict[str, Any] = {
        name: values.getlist(name) if name.endswith(LIST) else values[name] for name in values if name in names
    }
    if INCLUDE in names:
        given[INCLUDE] = [*values.getlist(INCLUDE), *values.getlist(INCLUDE + LIST)]
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise invalid_parameter(error.errors()) from None


def invalid_parameter(errors: Iterable[Any]) -> InvalidRequest:
    """The refusal of a parameter of the wrong kind, by the first of pydantic's errors."""
    first = next(iter(errors))
    param = str(first["loc"][-1])
    return InvalidRequest(
        f"Invalid value for '{param}': {str(first['input'])[:60]!r}. {first['msg']}.", code="invalid_value", param=param
    )


def not_in_list(what: str, after: str) -> InvalidRequest:
    """The refusal of an `after` that is nothing of a list."""
    message = f"No {what} '{after}' in this list. Give 'after' the last_id of the page before."
    return InvalidRequest(message, code="invalid_value", param="after")


def _check(request: Request, known: Set[str]) -> None:
    """Raise InvalidRequest for a parameter that isn't known."""
    for name in request.query_params:
        if name in known or name in EVERYWHERE or (FILTER in known and name.startswith(FILTER)):
            continue
        raise InvalidRequest(
            f"Unknown query parameter: '{shown(name)}'. {advice(name, known)}",
            code="unknown_parameter",
            param=shown(name),
        )


Endpoint = Callable[..., Awaitable[object]]
"""The answer of an endpoint is a response, or an object that is sent as JSON."""


class PlainRoute(Route):
    """A route for one method, whose endpoint PlainFirst calls."""

    def __init__(
        self, method: str, path: str, endpoint: Endpoint, words: dict[str, Any], *, tag: str, query: type[Query]
    ) -> None:
        """`query` says which parameters its query may have; the endpoint gets it if there are any. Without a `tag` the
        route isn't in the document of the API, which has its `words`.
        """
        super().__init__(path, endpoint, methods=[method])
        self.method = method
        self.methods = {method}  # a HEAD is refused, as everywhere
        self.written = endpoint
        self.words, self.tag, self.query = words, tag, query

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match as Starlette's route does, and tell the gate which route it was."""
        match, found = super().matches(scope)
        return match, (found if match is Match.NONE else {**found, "route": self})

    def under(self, prefix: str) -> "PlainRoute":
        """The same route under a prefix."""
        return PlainRoute(self.method, prefix + self.path, self.written, self.words, tag=self.tag, query=self.query)


class PlainFirst:
    """An application of which plain routes are called as they are; FastAPI serves all else, and refuses what is not
    there.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._routes = [each for each in app.router.routes if isinstance(each, PlainRoute)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; what an endpoint raises comes out."""
        method = scope.get("method")
        for route in self._routes:
            if route.method == method and (found := route.matches(scope))[0] is Match.FULL:
                scope.update(found[1], app=self._app)
                request = Request(scope, receive, send)
                read = read_query(request, route.query)
                given = () if route.query is Query else (read,)
                answered = await route.written(request, *given, **request.path_params)
                await (answered if isinstance(answered, Response) else JsonResponse(answered))(scope, receive, send)
                return
        await self._app(scope, receive, send)


class PlainRouter:
    """Plain routes with one tag, in their order. Without a tag the document of the API has none of them."""

    def __init__(self, tag: str = "") -> None:
        self.routes: list[PlainRoute] = []
        self._tag = tag

    def route(
        self, method: str, path: str, summary: str = "", operation_id: str = "", *, query: type[Query] = Query
    ) -> Callable[[Endpoint], Endpoint]:
        """The decorator that makes a function the endpoint of a route."""

        def add(endpoint: Endpoint) -> Endpoint:
            words = {"summary": summary, "operation_id": operation_id}
            self.routes.append(PlainRoute(method, path, endpoint, words, tag=self._tag, query=query))
            return endpoint

        return add
