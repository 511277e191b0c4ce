"""Query parameters, which are as strict as bodies: what nobody knows is refused, as it may be meant to matter."""

from collections.abc import Iterable, Set
from typing import Any, ClassVar, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from service.api.unknown import advice
from service.errors import InvalidRequest, shown

EVERYWHERE = frozenset({"api-version"})
"""What gateways and SDKs for Azure add to every request. There is one version here."""

FILTER = "metadata"
"""A parameter with names of its own: metadata[key]=value."""

INCLUDE = "include"
"""A parameter that may come several times, also as people write it: include[]=value."""

LIST = "[]"
"""What the names of others end with that may come several times."""


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
