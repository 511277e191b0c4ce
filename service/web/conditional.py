"""Answers that a client may have already: each has an ETag, and a request that names it gets a 304 without a body.

The tag is a hash of the answer as it would be sent, so it is another one once anything in the answer is: a response
goes on, an item of it is erased, the other dialect is asked for, or `include` is. Nothing is answered from memory: the
response is looked up each time, and a 404 once it is deleted. Source: RFC 9110, 8.8.3, 13.1.2 and 15.4.5.
"""

import asyncio
from collections.abc import Iterable
from hashlib import blake2b

from starlette.responses import Response

TAG_BYTES = 16

BYTES_A_STEP = 1 << 20
"""How much is hashed at once, in about a millisecond."""

STORING = b"private, no-cache"
"""Who may keep an answer: the client alone, and it has to ask each time whether it still holds."""


async def unless_known(headers: Iterable[tuple[bytes, bytes]], answer: Response) -> Response:
    """The answer with its ETag, or a 304 without a body if the request's `headers` say that the client has it. A list
    of tags may come in several of them.
    """
    tag = await _tag(answer.body)
    if any(name == b"if-none-match" and _names(value, tag) for name, value in headers):
        answer = Response(status_code=304)
    answer.raw_headers += [(b"etag", tag), (b"cache-control", STORING)]
    return answer


async def _tag(body: bytes | memoryview) -> bytes:
    hashed = blake2b(digest_size=TAG_BYTES)
    for start in range(0, len(body), BYTES_A_STEP):
        if start:
            await asyncio.sleep(0)
        hashed.update(body[start : start + BYTES_A_STEP])
    return b'"%b"' % hashed.hexdigest().encode()


def _names(wanted: bytes, tag: bytes) -> bool:
    """Whether an If-None-Match names the tag: a list of them, of which proxies that compress make weak ones, or `*`. No
    other tag has its quotes in it, so it need not be parsed.
    """
    return tag in wanted or wanted.strip() == b"*"
