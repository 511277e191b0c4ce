"""The header Idempotency-Key: what its sender calls a request, so that it may be sent again."""

import re
from collections.abc import Iterable

from service.errors import InvalidRequest

HEADER = b"idempotency-key"
MOST_CHARS = 255
_KEY = re.compile(rb"[\x20-\x7e]{1,%d}" % MOST_CHARS)


def key_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The key of a request, None where it has none. Raises InvalidRequest for two, and for what can't be one."""
    found = [value for name, value in headers if name == HEADER]
    if not found:
        return None
    if len(found) > 1:
        raise InvalidRequest(
            "The header 'Idempotency-Key' came more than once. Send it once.", code="invalid_idempotency_key"
        )
    if not _KEY.fullmatch(found[0]):
        raise InvalidRequest(
            f"The header 'Idempotency-Key' has {len(found[0])} bytes. Send 1 to {MOST_CHARS} printable characters of "
            "ASCII, such as a UUID.",
            code="invalid_idempotency_key",
        )
    return found[0]
