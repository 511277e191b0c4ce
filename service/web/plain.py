"""Plain routes: an endpoint gets its request, its query and the parts of its path, and answers for itself.

FastAPI finds out for each request again what an endpoint gets, and enters an exit stack for it: more work than to read
a stored response. Here a route is Starlette's. It has the words that the document of the API is made of. Queries are as
strict as bodies: what nobody knows is refused, as it may be meant to matter.
"""

from collections.abc import Awaitable, Callable, Iterable, Set
from typing import Any, ClassVar, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from service.decoding import advice
from service.errors import InvalidRequest, shown

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


Q = TypeVar("Q", bound=Query)


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


Endpoint = Callable[..., Awaitable[Response]]


class PlainRoute(Route):
    """A route for one method."""

    def __init__(
        self, method: str, path: str, endpoint: Endpoint, query: type[Query], tag: str, words: dict[str, Any]
    ) -> None:
        """`query` says which parameters its query may have; the endpoint gets it if there are any. The document of the
        API has its `words`; without a `tag` the route isn't in that.
        """

        async def answer(request: Request) -> Response:
            read = read_query(request, query)
            given = () if query is Query else (read,)
            return await endpoint(request, *given, **request.path_params)

        super().__init__(path, answer, methods=[method])
        self.method = method
        self.methods = {method}  # a HEAD is refused, as everywhere
        self.written, self.query, self.tag, self.words = endpoint, query, tag, words

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match as Starlette's route does, and tell the gate which route it was."""
        match, found = super().matches(scope)
        return match, (found if match is Match.NONE else {**found, "route": self})

    def under(self, prefix: str) -> "PlainRoute":
        """The same route under a prefix."""
        return PlainRoute(self.method, prefix + self.path, self.written, self.query, self.tag, self.words)


class PlainRouter:
    """Plain routes with one tag, in their order. Without a tag the document of the API has none of them."""

    def __init__(self, tag: str = "") -> None:
        self.routes: list[PlainRoute] = []
        self._tag = tag

    def route(
        self, method: str, path: str, *, query: type[Query] = Query, **words: str
    ) -> Callable[[Endpoint], Endpoint]:
        """The decorator that makes a function the endpoint of a route. `words` are its `summary` and `operation_id`."""

        def add(endpoint: Endpoint) -> Endpoint:
            self.routes.append(PlainRoute(method, path, endpoint, query, self._tag, words))
            return endpoint

        return add
