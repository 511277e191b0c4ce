"""Refusals over HTTP: OpenAI's envelope with all four of its keys, always."""

import msgspec
from starlette.responses import Response

from service.errors import ApiError


class JsonResponse(Response):
    """A JSON body, encoded by msgspec."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Encode the content."""
        return content if isinstance(content, bytes) else msgspec.json.encode(content)


def envelope(error: ApiError) -> JsonResponse:
    """The error as its sender sees it. SDKs read whether a retry makes sense."""
    headers = {"x-should-retry": "true" if error.retry else "false"}
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.allow:
        headers["allow"] = ", ".join(error.allow)
    body = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return JsonResponse({"error": body}, error.status, headers)
