"""Query parameters, which are as strict as bodies: what nobody knows is refused, as it may be meant to matter.

Most requests have none, and then an endpoint gets the same values each time, but for those of its path. FastAPI would
find them out again for each request, which takes longer than to read what is asked for: so they are kept.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, get_type_hints

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.responses import Response

from service.api.unknown import advice
from service.errors import InvalidRequest, shown

EVERYWHERE = frozenset({"api-version"})
"""What gateways and SDKs for Azure add to every request. There is one version here."""

FILTER = "metadata"
"""A parameter with names of its own: metadata[key]=value."""


class StrictRoute(APIRoute):
    """A route that refuses query parameters that it doesn't have."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, behind that check."""
        handle = super().get_route_handler()
        known = _parameters(self.dependant)
        plain = _Plain(self.dependant) if _is_plain(self.dependant) else None

        async def strict(request: Request) -> Response:
            if request.scope["query_string"]:
                _check(request, known)
            elif plain is not None:
                return await plain.answer(request)
            return await handle(request)

        return strict


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


def _check(request: Request, known: frozenset[str]) -> None:
    """Raise InvalidRequest for a parameter that isn't known."""
    for name in request.query_params:
        if name in known or name in EVERYWHERE or (FILTER in known and name.startswith(FILTER)):
            continue
        raise InvalidRequest(
            f"Unknown query parameter: '{shown(name)}'. {advice(name, known)}",
            code="unknown_parameter",
            param=shown(name),
        )


def _parameters(dependant: Dependant) -> frozenset[str]:
    own = frozenset(field.alias for field in dependant.query_params)
    return own.union(*map(_parameters, dependant.dependencies))
