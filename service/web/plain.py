"""Plain routes: an endpoint gets its request, its query and the parts of its path, and answers for itself.

FastAPI finds out for each request again what an endpoint gets, and enters an exit stack for it: more work than to read
a stored response. Here a route is Starlette's. It has the words that the document of the API is made of.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from service.web.query import Query, read_query

Endpoint = Callable[..., Awaitable[Response]]


class PlainRoute(Route):
    """A route for one method."""

    def __init__(
        self,
        method: str,
        path: str,
        endpoint: Endpoint,
        *,
        summary: str,
        operation_id: str,
        tag: str,
        query: type[Query],
    ) -> None:
        """`query` says which parameters its query may have; the endpoint gets it if there are any. Without a `tag` the
        route isn't in the document of the API.
        """

        async def answer(request: Request) -> Response:
            read = read_query(request, query)
            given = () if query is Query else (read,)
            return await endpoint(request, *given, **request.path_params)

        super().__init__(path, answer, methods=[method])
        self.method = method
        self.methods = {method}  # a HEAD is refused, as everywhere
        self.written = endpoint
        self.words: dict[str, Any] = {"summary": summary, "operation_id": operation_id}
        self.tag, self.query = tag, query

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As Starlette's, and the gate learns which route it was."""
        match, found = super().matches(scope)
        return match, (found if match is Match.NONE else {**found, "route": self})

    def under(self, prefix: str) -> "PlainRoute":
        """The same route under a prefix."""
        return PlainRoute(self.method, prefix + self.path, self.written, **self.words, tag=self.tag, query=self.query)


class PlainRouter:
    """Plain routes with one tag, in their order. Without a tag the document of the API has none of them."""

    def __init__(self, tag: str = "") -> None:
        self.routes: list[PlainRoute] = []
        self._tag = tag

    def route(
        self, method: str, path: str, *, summary: str = "", operation_id: str = "", query: type[Query] = Query
    ) -> Callable[[Endpoint], Endpoint]:
        """What makes a function the endpoint of a route."""

        def add(endpoint: Endpoint) -> Endpoint:
            words = {"summary": summary, "operation_id": operation_id}
            self.routes.append(PlainRoute(method, path, endpoint, **words, tag=self._tag, query=query))
            return endpoint

        return add
