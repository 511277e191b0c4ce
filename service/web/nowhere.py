"""The answer where no route is: 404, or 405 where a path has other methods. A caller is asked for its key first, as
anywhere, unless the path needs none.
"""

from collections.abc import Iterable, Iterator, Sequence

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from service.errors import ApiError
from service.web.entering import aside, enter, enter_open, is_open, process_of
from service.web.exchange import METHODS, NO_ENDPOINT
from service.web.received import EXCHANGE

MAX_SHOWN_PATH = 200
"""How much of a path is shown, and compared with those of routes."""

NOTHING = "There is no such path; /openapi.json lists all."

PASSED_ON = (
    *("/completions", "/embeddings", "/messages", "/count_tokens", "/rerank", "/score", "/decisions"),
    "/transcriptions",
)
NOT_PASSED_ON = (
    "This service doesn't pass it on: the engine has no server, or HARMONIUM_CHATS=refuse. Each engine serves the "
    "Responses API: POST /v1/responses."
)
"""Paths, by their ends, that are there only where an engine has servers for them; and the advice where it has none."""

CHATS = ("/chat/completions", "/messages", "/count_tokens")
ANSWERED_HERE = " Set HARMONIUM_CHATS=remember to have chat completions and messages answered here."
"""Those of them that can be answered without such a server, and the advice for them."""


def no_such_url(method: str, path: str, advice: str = NOTHING, allow: Sequence[str] = ()) -> ApiError:
    """The refusal of a path that isn't there, or is for the methods in `allow`."""
    message = f"Invalid URL ({method} {path[:MAX_SHOWN_PATH]}). {advice}"
    return ApiError(405 if allow else 404, message, allow=allow)


class Nowhere(BaseRoute):
    """The route behind all others. It has every path, also those with line breaks, which `{path:path}` hasn't."""

    def __init__(self, routers: Iterable[APIRouter]) -> None:
        self._routes = [each for router in routers for each in router.routes if isinstance(each, APIRoute)]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return Match.FULL if scope["type"] == "http" else Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request. Raises ApiError."""
        exchange, process = scope[EXCHANGE], process_of(scope)
        other = next(self._at(scope["path"]), None)
        if other is not None and is_open(other):
            enter_open(scope)
            exchange.endpoint = other.path
        else:
            await enter(scope, body=False)
            await exchange.take(await aside(process, exchange))
            exchange.endpoint = NO_ENDPOINT if other is None else other.path
        raise self.refusal(exchange.method, scope["path"])

    def refusal(self, method: str, path: str) -> ApiError:
        path = path[:MAX_SHOWN_PATH]
        if allow := self._methods(path):
            *others, last = allow
            advice = f"It takes {', '.join(others)} and {last}." if others else f"It takes {last}."
            return no_such_url(method, path, advice, allow)
        for likely in (path.replace("/v1/v1/", "/v1/", 1), path.rstrip("/"), f"/v1{path}"):
            if likely != path and self._methods(likely):
                return no_such_url(method, path, f"Did you mean {likely}?")
        if not path.rstrip("/").endswith(PASSED_ON):
            return no_such_url(method, path)
        return no_such_url(method, path, NOT_PASSED_ON + ANSWERED_HERE * path.rstrip("/").endswith(CHATS))

    def _at(self, path: str) -> Iterator[APIRoute]:
        return (each for each in self._routes if each.path_regex.match(path))

    def _methods(self, path: str) -> list[str]:
        known = {method for each in self._at(path) for method in each.methods or ()}
        return [method for method in METHODS if method in known]
