"""Requests that say nothing in a query, on their short way to an endpoint.

FastAPI asks each router in turn for a route, finds out what the endpoint gets, and enters five middlewares and two exit
stacks, again for each request: more work than to read a stored response. Without a query an endpoint gets the same
values each time, but for those of its path. So they are kept with its route, and the routes in a table. All else takes
FastAPI's way, where the answer is the same: what has a query, what has no route, and what gets anything else.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, get_type_hints

from fastapi import FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIRouter
from starlette.convertors import StringConvertor
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

Handlers = Mapping[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]]
"""What answers for an exception; one for Exception itself answers for nothing here, as that is a bug."""


class _Entry(NamedTuple):
    """A route in the table; without an endpoint, what it matches takes FastAPI's way."""

    pattern: re.Pattern[str]
    route: APIRoute
    endpoint: "_Plain | None"


class _Way(NamedTuple):
    """What a request has found: its endpoint, the route to it, and the parts of its path that have names."""

    endpoint: "_Plain"
    route: APIRoute
    named: dict[str, str]


class Direct:
    """An application, and in front of it the table of its routes."""

    def __init__(self, app: FastAPI, routers: Iterable[tuple[str, APIRouter]], handlers: Handlers) -> None:
        """`routers` are those of the application, with their prefixes and in its order."""
        self._app = app
        self._handlers = handlers
        self._table: dict[tuple[str, int], list[_Entry]] = {}
        for prefix, router in routers:
            for route in router.routes:
                if isinstance(route, APIRoute):
                    self._add(prefix, route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        way = self._find(scope)
        if way is None:
            await self._app(scope, receive, send)
            return
        scope["app"], scope["route"], scope["path_params"] = self._app, way.route, way.named
        request, begun = Request(scope, receive, send), False

        async def noted(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            response = await way.endpoint.answer(request)
            await response(scope, receive, noted)
        except Exception as error:
            handle = self._handler(error)
            if handle is None:
                raise
            if begun:
                raise RuntimeError("a request failed whose answer had begun") from error
            response = await handle(request, error)
            await response(scope, receive, send)

    def _add(self, prefix: str, route: APIRoute) -> None:
        path = prefix + route.path
        pattern, _, convertors = compile_path(path)
        if not all(isinstance(each, StringConvertor) for each in convertors.values()):
            return
        entry = _Entry(pattern, route, _Plain(route.dependant) if _is_plain(route.dependant) else None)
        for method in route.methods or ():
            self._table.setdefault((method, path.count("/")), []).append(entry)

    def _find(self, scope: Scope) -> _Way | None:
        """The short way of a request, if it has one: that of the first route that its path matches."""
        if scope["type"] != "http" or scope["query_string"] or scope.get("root_path"):
            return None
        path = scope["path"]
        for entry in self._table.get((scope["method"], path.count("/")), ()):
            if found := entry.pattern.match(path):
                return entry.endpoint and _Way(entry.endpoint, entry.route, found.groupdict())
        return None

    def _handler(self, error: Exception) -> Callable[[Request, Any], Coroutine[Any, Any, Response]] | None:
        for kind in type(error).__mro__[: type(error).__mro__.index(Exception)]:
            if kind in self._handlers:
                return self._handlers[kind]
        return None


class _Plain:
    """An endpoint, and what it gets where there is no query."""

    def __init__(self, dependant: Dependant) -> None:
        assert dependant.call is not None
        self._dependant, self._call = dependant, dependant.call
        self._values: Mapping[str, Any] | None = None

    async def answer(self, request: Request) -> Response:
        """What the endpoint answers."""
        if self._values is None:
            self._values = await _defaults(self._dependant)
        given = {self._dependant.request_param_name: request} if self._dependant.request_param_name else {}
        return await self._call(**given, **request.path_params, **self._values)


def _is_plain(dependant: Dependant) -> bool:
    """Whether an endpoint needs nothing but its path where there is no query, and answers for itself."""
    call = dependant.call
    if not inspect.iscoroutinefunction(call) or not issubclass(get_type_hints(call).get("return", object), Response):
        return False
    as_they_are = all(
        field.field_info.annotation is str and not field.field_info.metadata for field in dependant.path_params
    )
    return as_they_are and _takes_only_queries(dependant, of_path=True)


def _takes_only_queries(dependant: Dependant, *, of_path: bool = False) -> bool:
    """Whether all that it gets is a part of the query that may be left out; and for an endpoint of the path, or the
    request.
    """
    others = (dependant.header_params, dependant.cookie_params, dependant.body_params)
    named = (
        *(dependant.websocket_param_name, dependant.http_connection_param_name, dependant.response_param_name),
        *(dependant.background_tasks_param_name, dependant.security_scopes_param_name),
    )
    if any(others) or any(named) or (not of_path and (dependant.path_params or dependant.request_param_name)):
        return False
    return all(not field.field_info.is_required() for field in dependant.query_params) and all(
        each.name and _takes_only_queries(each) for each in dependant.dependencies
    )


async def _defaults(dependant: Dependant) -> dict[str, Any]:
    """What it gets besides its path and the request."""
    values = {field.name: field.get_default() for field in dependant.query_params}
    for each in dependant.dependencies:
        assert each.call is not None
        made = each.call(**await _defaults(each))
        values[str(each.name)] = await made if isinstance(made, Awaitable) else made
    return values
