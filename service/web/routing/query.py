"""Query parameters, which are as strict as bodies: what nobody knows is refused, as it may be meant to matter."""

from collections.abc import Callable, Coroutine
from typing import Any

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

        async def strict(request: Request) -> Response:
            if request.scope["query_string"]:
                _check(request, known)
            return await handle(request)

        return strict


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
