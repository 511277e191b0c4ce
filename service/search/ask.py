"""Questions to services that search: one request, one bounded answer of JSON.

The operator named the service, so it may have any address. Its key goes to it and nowhere else.
"""

import asyncio
from typing import Any, TypeVar

import aiohttp
import msgspec

from service.build import this_build
from service.search.port import SearchFailure

SECONDS = 15.0
"""How long an answer may take."""

MAX_BYTES = 1 << 20
"""The largest answer: 20 results have some 50 KB, and reading it keeps the event loop."""

BROKEN = (aiohttp.ClientError, OSError, ValueError)
_UNLIMITED = aiohttp.ClientTimeout(total=None, sock_connect=None)

T = TypeVar("T")


async def answer(
    kind: type[T],
    method: str,
    url: str,
    *,
    headers: dict[str, str] | None = None,
    params: dict[str, str] | None = None,
    body: dict[str, Any] | None = None,
) -> T:
    """The answer of a service, as this kind. Raises SearchFailure, which has nothing of the request in it."""
    try:
        async with (
            asyncio.timeout(SECONDS),
            aiohttp.ClientSession(timeout=_UNLIMITED, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(
                method,
                url,
                params=params,
                json=body,
                headers={"user-agent": f"harmonium/{this_build().version}", "accept": "application/json"}
                | (headers or {}),
                allow_redirects=False,
            ) as response,
        ):
            if response.status != 200:
                raise SearchFailure(f"the search service answers with HTTP {response.status}")
            return msgspec.json.decode(await bounded(response, MAX_BYTES), type=kind)
    except TimeoutError:
        raise SearchFailure(f"the search service did not answer within {SECONDS:g} s") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise SearchFailure("the search service gave an answer that it should not") from None
    except BROKEN as error:
        raise SearchFailure(f"the search service can't be reached ({type(error).__name__})") from None


async def bounded(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body of an answer. Raises SearchFailure where it has more bytes."""
    parts: list[bytes] = []
    async for part in response.content.iter_chunked(65_536):
        parts.append(part)
        most -= len(part)
        if most < 0:
            raise SearchFailure("the search service says too much")
    return b"".join(parts)
