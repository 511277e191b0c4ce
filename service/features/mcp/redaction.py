"""Takes credentials out of all that a server says. A server that quotes them in an error would hand them to every
reader of the response, and they would be stored. Only their form as sent is found, not an encoded one.
"""

import base64
import binascii
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from service.api.tools.hosted import REDACTED, is_secretive
from service.features.mcp.settings import MAX_HEADER_CHARS, McpConnection
from service.tools.port import ToolListing

LEAST_SECRET_CHARS = 8
"""A shorter value of a header is no secret, but a word that may stand anywhere."""


MAX_SECRETS = 32
"""The most values that are looked for, the longest ones: each takes a fraction of a millisecond in a large answer."""


class Redaction:
    """Takes secrets out of texts: the values of a connection's headers, those of its URL's query, and the variables of
    a program whose names say that they are secret. In `Bearer …` the rest is secret, and in `Basic …` the decoded rest.
    """

    def __init__(self, connection: McpConnection) -> None:
        found = {each for each in _secrets(connection) if len(each) >= LEAST_SECRET_CHARS}
        self._secrets = sorted(found, key=len, reverse=True)[:MAX_SECRETS]

    def text(self, said: str) -> str:
        """A text without secrets."""
        for secret in self._secrets:
            said = said.replace(secret, REDACTED)
        return said

    def beginning(self, said: str, chars: int) -> str:
        """The beginning of a text, without secrets, of at most so many characters. Behind that, no more is read than a
        secret's length.
        """
        if len(said) <= chars + MAX_HEADER_CHARS:
            return self.text(said)[:chars]
        return self.text(said[: chars + MAX_HEADER_CHARS])[:-MAX_HEADER_CHARS][:chars]

    def end(self, said: str, chars: int) -> str:
        """The end of a text, in the way of `beginning`."""
        if len(said) <= chars + MAX_HEADER_CHARS:
            return self.text(said)[-chars:]
        return self.text(said[-chars - MAX_HEADER_CHARS :])[MAX_HEADER_CHARS:][-chars:]

    def listing(self, listing: ToolListing) -> ToolListing:
        """A list of tools without secrets."""
        tools = (
            msgspec.structs.replace(
                tool,
                name=self.text(tool.name),
                description=self.text(tool.description),
                schema=self._value(tool.schema),
            )
            for tool in listing.tools
        )
        return ToolListing(tuple(tools), self.text(listing.instructions))

    def data(self, said: bytes) -> bytes:
        """JSON, or a text, without secrets."""
        redacted = said
        for secret in self._secrets:
            for written in (json.dumps(secret), json.dumps(secret, ensure_ascii=False)):
                redacted = redacted.replace(written[1:-1].encode(), REDACTED.encode())
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if redacted != said and not _is_json(redacted):  # a number had one in it
                return msgspec.json.encode(self._value(msgspec.json.decode(said)))
        return redacted

    def _value(self, value: Any) -> Any:
        """A value of JSON without secrets; a number that has one in it becomes a text."""
        if isinstance(value, dict):
            return {self.text(name): self._value(each) for name, each in cast(dict[str, Any], value).items()}
        if isinstance(value, list):
            return [*map(self._value, cast(list[Any], value))]
        said = value if isinstance(value, str) else str(value)
        return value if (redacted := self.text(said)) == said else redacted


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _secrets(connection: McpConnection) -> Iterator[str]:
    """The values that may be secret."""
    if connection.program is not None:
        yield from (value for name, value in connection.program.env if is_secretive(name))
    for _, value in parse_qsl(urlsplit(connection.url).query):
        yield value
        yield quote(value, safe="")
    for _, value in connection.headers:
        yield value
        scheme, _, rest = value.partition(" ")
        if rest and scheme.isalpha():
            yield rest
        if scheme.lower() == "basic":
            with suppress(binascii.Error, UnicodeDecodeError):
                pair = base64.b64decode(rest, validate=True).decode()
                yield from (pair, pair.partition(":")[2])
