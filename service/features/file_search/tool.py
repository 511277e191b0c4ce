"""A search of files by an operator's MCP server that stands for `file_search`: its options in a request, the arguments
of its tool, and the answer for the client and the model.

    queries of the model, options of the request ─▶ the server's tool ─▶ results ─▶ outcome

docs/tools.md has the contract. The model chooses its queries and nothing else: the request says which stores are
searched. A search only reads, so it is made again where nobody knows whether it was made.
"""

import logging
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.api.outcome import HostedCall, Outcome, failed_outcome
from service.api.tools.callee import FILE_SEARCH, MSEARCH
from service.api.tools.hosted import MAX_QUERIES, queries_of
from service.api.tools.offer import Routed
from service.decoding import decode
from service.errors import InvalidRequest, invalid_value, not_served
from service.harmony.typescript import Function
from service.logs import event
from service.tools.port import ListedTool, ProtocolFailure, ToolFailure, ToolServer

logger = logging.getLogger(__name__)

RESULTS = "file_search_call.results"
"""A request includes this to be shown the results."""

MAX_STORES = 32
MAX_RESULTS = 50
"""The most results of a search, as at OpenAI."""

MAX_CONDITIONS = 64
"""The most conditions of a filter, those that join others included."""

TEXT_CHARS = 32_000
"""The characters of found texts that are shown and told, all results together."""

NEEDED = ("queries", "vector_store_ids")
"""The arguments that a server's tool has to take; it may take those in `_OPTIONAL`."""

_OPTIONAL = ("filters", "max_num_results", "ranking_options")
_ABOUT = "Search the user's files for each of the queries. It gives the passages that fit best."
_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "queries": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "maxItems": MAX_QUERIES,
            "description": "What is searched for, each in words of its own.",
        }
    },
    "required": ["queries"],
    "additionalProperties": False,
}

_Text = Annotated[str, Meta(max_length=512)]
_Share = Annotated[float, Meta(ge=0, le=1)]
_Scalar = _Text | int | float | bool


class _Condition(msgspec.Struct, forbid_unknown_fields=True):
    """A condition on an attribute, or several that are joined."""

    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "and", "or"]
    key: _Text | UnsetType = UNSET
    value: _Scalar | Annotated[list[_Scalar], Meta(max_length=MAX_CONDITIONS)] | UnsetType = UNSET
    filters: "list[_Condition] | UnsetType" = UNSET


class _Hybrid(msgspec.Struct, forbid_unknown_fields=True):
    embedding_weight: float
    text_weight: float


class _Ranking(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    ranker: _Text | None = None
    score_threshold: _Share | None = None
    hybrid_search: _Hybrid | None = None


class _FileSearchTool(msgspec.Struct, forbid_unknown_fields=True):
    """A search of files, as sent."""

    type: Literal["file_search"]
    vector_store_ids: Annotated[list[Annotated[str, Meta(min_length=1, max_length=256)]], Meta(max_length=MAX_STORES)]
    filters: _Condition | None = None
    max_num_results: Annotated[int, Meta(ge=1, le=MAX_RESULTS)] | None = None
    ranking_options: _Ranking | None = None


class _Result(msgspec.Struct):
    """A passage that was found, in the server's form."""

    file_id: Annotated[str, Meta(max_length=256)]
    filename: Annotated[str, Meta(max_length=1_024)]
    text: str
    score: float
    attributes: Annotated[dict[Annotated[str, Meta(max_length=64)], _Scalar], Meta(max_length=16)] | None = None


class _Found(msgspec.Struct):
    results: list[_Result]


_FOUND = msgspec.json.Decoder(_Found)
_OPTIONS = msgspec.json.Decoder(dict[str, Any])


def route(label: str, tool: ListedTool, description: str | None) -> Routed:
    """The search that a server's tool stands for, as a request declares it and the model is shown it. Raises ValueError
    for a tool that can't stand for one.
    """
    properties = tool.schema.get("properties")
    takes = frozenset(cast(dict[str, Any], properties)) if isinstance(properties, dict) else frozenset[str]()
    for name in NEEDED:
        if name not in takes:
            raise ValueError(f"Its tool '{tool.name}' does not take '{name}', which every {FILE_SEARCH} call sends.")
    about = f"{_ABOUT}\n{description or tool.description}".strip()
    shown = Function(MSEARCH, about, _PARAMETERS)
    return Routed(FILE_SEARCH, label, tool.name, shown, partial(read_options, takes=takes))


def read_options(sent: msgspec.Raw, where: str, *, takes: frozenset[str]) -> str:
    """The arguments for a server beside the queries, from the tool at `where`. Raises InvalidRequest."""
    tool = decode(sent, _FileSearchTool, where)
    if not tool.vector_store_ids:
        raise invalid_value(f"{where}.vector_store_ids", "[]", "Name at least one store.")
    if tool.filters is not None:
        _check_conditions(tool.filters, f"{where}.filters")
    options: dict[str, Any] = {"vector_store_ids": tool.vector_store_ids}
    for name in _OPTIONAL:
        value = getattr(tool, name)
        if value is None:
            continue
        if name not in takes:
            raise not_served(
                f"{where}.{name}", value, "The server that searches files doesn't support it. Leave it out."
            )
        options[name] = value
    return msgspec.json.encode(options).decode()


def _check_conditions(outer: _Condition, where: str) -> None:
    """Raise InvalidRequest for a condition with too few or too many members, or for too many conditions."""
    for number, (each, at) in enumerate(_conditions(outer, where), 1):
        if number > MAX_CONDITIONS:
            raise InvalidRequest(
                f"Invalid value for '{where}': at most {MAX_CONDITIONS} conditions are possible.",
                code="invalid_value",
                param=where,
            )
        joins = each.type in ("and", "or")
        given = [name for name in ("key", "value", "filters") if getattr(each, name) is not UNSET]
        if given != (["filters"] if joins else ["key", "value"]):
            wanted = "'filters' and nothing else" if joins else "'key' and 'value'"
            raise invalid_value(f"{at}.type", each.type, f"It needs {wanted}.")
        if isinstance(each.value, list) != (each.type in ("in", "nin")):
            raise invalid_value(f"{at}.value", each.value, "'in' and 'nin' take a list, all others one value.")


def _conditions(outer: _Condition, where: str) -> Iterator[tuple[_Condition, str]]:
    """A condition, and those that it joins, each with its place."""
    yield outer, where
    if not isinstance(outer.filters, UnsetType):
        for place, each in enumerate(outer.filters):
            yield from _conditions(each, f"{where}.filters[{place}]")


async def search(call: HostedCall, server: ToolServer) -> Outcome:
    """Search by a server's tool. Returns the outcome, also of a failed search."""
    queries, options = queries_of(call.arguments), _OPTIONS.decode(call.tool.options)
    if not queries:
        return failed_outcome(f"The arguments are no object with 'queries', a list of 1 to {MAX_QUERIES} texts.")
    try:
        answer = await server.call(call.tool.tool, {"queries": queries} | options, repeatable=call.tool.repeatable)
    except ToolFailure as failure:
        _log(call, f"it answers with error {failure.code}" if isinstance(failure, ProtocolFailure) else str(failure))
        return failed_outcome(str(failure))
    if answer.failed:
        _log(call, "its tool failed")
        return failed_outcome(answer.text)
    try:
        found = _FOUND.decode(answer.whole).results
    except (msgspec.DecodeError, RecursionError) as error:
        _log(call, f"its answer is not a list of results: {error}")
        return failed_outcome(f"The server's answer is not a list of results: {error}.")
    results = list(_show(found[: options.get("max_num_results", MAX_RESULTS)]))
    shown = {"results": results} if RESULTS in call.include else {}
    return Outcome("completed", msgspec.json.encode(results).decode(), shown=shown)


def _log(call: HostedCall, why: str) -> None:
    """Log the reason of a failure, which the item has no place for, without a word of the server's."""
    event(logger, logging.WARNING, "a search of files failed", tool_server=call.tool.server, reason=why)


def _show(found: list[_Result]) -> Iterator[dict[str, Any]]:
    """Results as OpenAI shows them, as far as there is room for their texts."""
    left = TEXT_CHARS
    for each in found:
        if left <= 0:
            return
        yield msgspec.to_builtins(
            msgspec.structs.replace(each, text=each.text[:left], attributes=each.attributes or {})
        )
        left -= len(each.text)
