"""A client that sends all of a body before it reads, as Python's urllib and Java's HttpURLConnection do."""

import http.client
import json
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

SECONDS = 20.0
PIECE = b"x" * 65_536


def send_all_then_read(
    url: str, size: int, path: str, headers: dict[str, str], tls: ssl.SSLContext | None = None
) -> tuple[int, str]:
    """The status and the message of the refusal. Without a length the body is sent in chunks."""
    address = urlsplit(url)
    where = address.hostname or "", address.port
    if tls is None:
        connection = http.client.HTTPConnection(*where, timeout=SECONDS)
    else:
        connection = http.client.HTTPSConnection(*where, timeout=SECONDS, context=tls)
    sent = {"connection": "close", "content-type": "application/json", **headers}
    connection.request("POST", path, _pieces(size), sent, encode_chunked="content-length" not in headers)
    answer = connection.getresponse()
    message = json.loads(answer.read())["error"]["message"]
    connection.close()
    return answer.status, message


def _pieces(size: int) -> Iterator[bytes]:
    while size > 0:
        yield PIECE[:size]
        size -= len(PIECE)
