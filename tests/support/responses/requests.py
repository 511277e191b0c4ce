"""Prompts of create requests, as tests ask for them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from service.api.approving import NO_APPROVALS, Approvals
from service.api.content import USUAL_BOUNDS
from service.api.request import CreateRequest, read_create
from service.responses.output.sealed import ForeignSeal, Opener
from service.responses.prompt.build import Prompt, build_prompt
from service.responses.prompt.read import Read, read_request
from service.steps import in_one_go
from store.turn import StoredMessage

Json = dict[str, Any]
CONTEXT_TOKENS = 131_072
DATE = "2025-06-28"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "get_weather", "description": "The weather now.", "parameters": SCHEMA},
    {"type": "function", "name": "lookup", "parameters": None},
]


class Envelopes:
    """Seals that anybody can open: the kind and the payload in hexadecimal."""

    def seal(self, kind: str, payload: bytes) -> str:
        return f"{kind}:{payload.hex()}"

    def open(self, text: str) -> tuple[str, bytes]:
        kind, separator, payload = text.partition(":")
        if not separator:
            raise ForeignSeal("it is not sealed content of this service")
        return kind, bytes.fromhex(payload)


ENVELOPES = Envelopes()


def read(*, refuses: bool = False, opener: Opener = ENVELOPES, **body: Any) -> Read:
    """What the members of a create request say."""
    return read_checked(_request(body), opener, refuses=refuses)


def read_checked(request: CreateRequest, opener: Opener = ENVELOPES, *, refuses: bool = False) -> Read:
    """What the members of a request say whose body was checked."""
    return in_one_go(read_request(request, opener, bounds=None if refuses else USUAL_BOUNDS))


def prompt(
    chain: Sequence[StoredMessage] = (),
    limit: int = CONTEXT_TOKENS,
    *,
    refuses: bool = False,
    opener: Opener = ENVELOPES,
    stored: Mapping[str, Any] | None = None,
    given: Read | None = None,
    approvals: Approvals = NO_APPROVALS,
    **body: Any,
) -> Prompt:
    """The prompt of a create request on top of a chain, where the items in `stored` are stored. `given` is what its
    members say, where they were read.
    """
    given = given or read(refuses=refuses, opener=opener, **body)
    resolved = {id: msgspec.Raw(msgspec.json.encode(item)) for id, item in (stored or {}).items()}
    return in_one_go(build_prompt(given, _request(body), chain, limit, DATE, resolved, approvals=approvals))


def _request(body: dict[str, Any]) -> CreateRequest:
    return read_create(msgspec.json.encode({"model": "m", **body}), store=True)
