"""Queries as models, pages of lists, and the refusals of what a query says wrongly.

FastAPI reads a query into its model. Queries are as strict as bodies: an unknown parameter is refused, as it may be
meant to matter.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Literal, Protocol, TypeVar

import msgspec
from pydantic import BaseModel, Field, ValidationError, model_validator
from starlette.datastructures import QueryParams

from service.decoding import advice
from service.errors import InvalidRequest, brief

EVERYWHERE = frozenset({"api-version"})
"""Parameters that gateways and SDKs for Azure add to every request. There is one version here."""

FILTER = "metadata"
"""A parameter with names of its own: metadata[key]=value."""

INCLUDE = "include"
"""A parameter that may come several times, also as people write it: include[]=value."""

LIST = "[]"
"""The suffix of parameters that may come several times."""

MAX_PAGE_ITEMS = 100


class Query(BaseModel):
    """The query parameters of a route."""

    also: ClassVar[frozenset[str]] = frozenset()
    """Parameters that its endpoint reads by itself."""

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, given: dict[str, Any]) -> dict[str, Any]:
        if not given:
            return given
        names = {field.alias or name for name, field in cls.model_fields.items()}
        if INCLUDE in names and INCLUDE + LIST in given:
            more = given.pop(INCLUDE + LIST)
            given[INCLUDE] = [*given.get(INCLUDE, ()), *([more] if isinstance(more, str) else more)]
        refuse_unknown(given, names | cls.also)
        return {name: value for name, value in given.items() if name in names}


class PageQuery(Query):
    """The query for a page of a list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ITEMS)] = 20
    after: str | None = None


class OrderedQuery(Query):
    """The query for a page of a list that has two orders."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ITEMS)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


class MessagesQuery(Query):
    """The query of Anthropic's paths: its clients send this beside the header that names the features."""

    beta: bool | None = None


T = TypeVar("T")


class ListPage(msgspec.Struct, Generic[T]):
    """A page of a list, as the SDKs page through it."""

    data: Sequence[T]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


class WithId(Protocol):
    """An object of a list."""

    @property
    def id(self) -> str: ...


Listed = TypeVar("Listed", bound=WithId)


def page_of(shown: Sequence[Listed], query: PageQuery | OrderedQuery, what: str) -> ListPage[Listed]:
    """At most `limit` of the shown objects, behind the one with the id `after`. Raises InvalidRequest."""
    ids = [each.id for each in shown]
    if query.after is not None and query.after not in ids:
        raise not_in_list(what, query.after[:80])
    start = 0 if query.after is None else ids.index(query.after) + 1
    page, on_it = shown[start : start + query.limit], ids[start : start + query.limit] or [None]
    return ListPage(page, on_it[0], on_it[-1], has_more=start + query.limit < len(shown))


Q = TypeVar("Q", bound=Query)


def read_query(given: QueryParams, kind: type[Q]) -> Q:
    """A query as a model; of its parameters `include` alone may come several times. Raises InvalidRequest."""
    values = {name: given.getlist(name) if name in (INCLUDE, INCLUDE + LIST) else given[name] for name in given}
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise invalid_parameter(error.errors()) from None


@cache
def empty(kind: type[Q]) -> Q:
    """A query that says nothing; never change it."""
    return kind()


def parameters_of(part: str, kind: type[Query]) -> list[dict[str, Any]]:
    """A part of a path and a query in OpenAPI's words, for a route that reads them by itself."""
    schemas = kind.model_json_schema()["properties"]
    schema = {"type": "string", "title": part.replace("_", " ").title()}
    return [
        {"name": part, "in": "path", "required": True, "schema": schema},
        *({"name": name, "in": "query", "required": False, "schema": each} for name, each in schemas.items()),
    ]


def refuse_unknown(given: Iterable[str], known: Collection[str]) -> None:
    """Refuse a parameter that isn't known. Raises InvalidRequest."""
    for name in given:
        if name not in known and name not in EVERYWHERE and not (FILTER in known and name.startswith(FILTER)):
            message = f"Unknown query parameter: '{brief(name)}'. {advice(name, known)}"
            raise InvalidRequest(message, code="unknown_parameter", param=brief(name))


def invalid_parameter(errors: Iterable[Any]) -> InvalidRequest:
    """The refusal of a parameter of the wrong kind, by the first of pydantic's errors."""
    first = next(iter(errors))
    param = str(first["loc"][-1])
    return InvalidRequest(
        f"Invalid value for '{param}': {str(first['input'])[:60]!r}. {first['msg']}.", code="invalid_value", param=param
    )


def not_in_list(what: str, id: str, param: str = "after") -> InvalidRequest:
    """The refusal of an `after`, or its like, that is nothing of a list."""
    end = "first_id of the next page" if param == "before_id" else "last_id of the previous page"
    message = f"No {what} '{id}' in this list. Give '{param}' the {end}."
    return InvalidRequest(message, code="invalid_value", param=param)
