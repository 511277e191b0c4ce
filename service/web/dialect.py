"""The dialect of the wire in which a request is answered, and nothing else differs by it.

Answers are OpenAI's where nothing says another: a router of a feature's does, for its own paths. All are made here, at
the edge, of the same responses and the same events: what is stored, queued, logged and counted knows no dialect.
"""

from collections.abc import Callable, Generator
from typing import NamedTuple

from service.api.request import CreateBody
from service.errors import ApiError
from service.settings.core import CoreSettings
from service.web.errors import JsonResponse
from service.web.sse import Encoder


class Dialect:
    """OpenAI's, and what others differ in."""

    name = "openai"
    prefix = "/v1"
    stable = True

    def answer(self, content: object) -> JsonResponse:
        """The JSON answer of a Response or anything else, whether still to be encoded or as bytes."""
        return JsonResponse(content)

    def encoder(self, *, obfuscate: bool) -> Encoder:
        return Encoder(obfuscate=obfuscate)

    def word(self, refusal: ApiError) -> None:
        """Have a refusal name parameters as the client knows them."""


OPENAI = Dialect()


class TranslatedBody(NamedTuple):
    """A request of another API as one for a response: its body, the kind of that, and the dialect of its answer."""

    body: bytes
    kind: type[CreateBody]
    dialect: Dialect


Translate = Callable[[bytes, CoreSettings], Generator[None, None, TranslatedBody]]
"""Translates a body in steps. Raises InvalidRequest."""


def no_translation(body: bytes, settings: CoreSettings) -> Generator[None, None, TranslatedBody]:
    """A body of the Responses API."""
    yield from ()
    return TranslatedBody(body, CreateBody, OPENAI)
