"""Refusals over HTTP: OpenAI's envelope with all four of its keys, and Anthropic's where its API is asked."""

from collections.abc import Mapping

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.decoding import Json
from service.errors import ApiError

PIECE_BYTES = 65_536


class JsonResponse(Response):
    """A JSON body, encoded by msgspec."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return content if isinstance(content, bytes) else msgspec.json.encode(content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it: a long one piece by piece, as the client reads, so that no copy of it waits in the connection."""
        if len(self.body) <= PIECE_BYTES:
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = memoryview(self.body)
        for end in range(PIECE_BYTES, len(body) + PIECE_BYTES, PIECE_BYTES):
            piece = bytes(body[end - PIECE_BYTES : end])
            await send({"type": "http.response.body", "body": piece, "more_body": end < len(body)})


def on_one_line(json: bytes) -> bytes:
    """The same JSON, with escapes for the characters at which clients that read text line by line begin another line:
    httpx, and so OpenAI's, does as Python's `str.splitlines`.
    """
    for end in "\x85\u2028\u2029":
        json = json.replace(end.encode(), b"\\u%04x" % ord(end))
    return json


MESSAGES = "/v1/messages"
MODELS = "/v1/models"
VERSION = b"anthropic-version"
"""The header with which that path is Anthropic's API, too."""


def is_anthropics(path: str, headers: Mapping[bytes, bytes]) -> bool:
    return path.startswith(MESSAGES) or (VERSION in headers and f"{path}/".startswith(f"{MODELS}/"))


_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def of_messages(error: ApiError) -> Json:
    """The error as Anthropic's API tells it in a stream."""
    kind = _KINDS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def envelope(error: ApiError, anthropics: str | None = None) -> JsonResponse:
    """The error as its sender sees it; `anthropics` is the request's id for one of Anthropic's API."""
    headers = {"x-should-retry": "true" if error.retry else "false"}
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    if error.retry_after_ms is not None:
        headers["retry-after-ms"] = str(error.retry_after_ms)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.status == 426:
        headers |= {"upgrade": "websocket", "sec-websocket-version": "13"}
    if error.status in (408, 501):  # nobody waits for the rest of a body, nor knows where that of another coding ends
        headers["connection"] = "close"
    if error.allow:
        headers["allow"] = ", ".join(error.allow)
    if anthropics is not None:
        return JsonResponse(of_messages(error) | {"request_id": anthropics}, error.status, headers)
    body = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return JsonResponse({"error": body}, error.status, headers)
