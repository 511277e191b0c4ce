"""Query parameters, which are as strict as bodies: what nobody knows is refused, as it may be meant to matter."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, ClassVar, TypeVar

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from service.api.decoding import advice
from service.errors import InvalidRequest, shown

EVERYWHERE = frozenset({"api-version"})
"""What gateways and SDKs for Azure add to every request. There is one version here."""

FILTER = "metadata"
"""A parameter with names of its own: metadata[key]=value."""

INCLUDE = "include"
"""A parameter that may come several times, also as people write it: include[]=value."""


class Query(BaseModel):
    """The query parameters of a route; this one has none."""

    also: ClassVar[frozenset[str]] = frozenset()
    """Parameters that its endpoint reads by itself."""


Q = TypeVar("Q", bound=Query)


def read_query(request: Request, kind: type[Q]) -> Q:
    """The query of a request. Raises InvalidRequest for a parameter of another name or kind."""
    if not request.scope["query_string"]:
        return kind()
    values, fields = request.query_params, kind.model_fields
    known = frozenset(fields) | kind.also
    _check(request, known | {f"{INCLUDE}[]"} if INCLUDE in fields else known)
    given: dict[str, Any] = {name: values[name] for name in values if name in fields}
    if INCLUDE in fields:
        given[INCLUDE] = [*values.getlist(INCLUDE), *values.getlist(f"{INCLUDE}[]")]
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
