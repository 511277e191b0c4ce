"""One response from its beginning to its end, as a client sees it: made, retrieved, continued, deleted, each timed."""

from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from service.commands.client.errors import ClientError
from service.commands.client.load.clients import METADATA
from service.commands.client.service import Json, Service

TOKENS = 64
"""The most of each answer: it need not be whole."""


class Step(NamedTuple):
    """What was done, how long it took, and why it failed, '' if it did not."""

    done: str
    seconds: float
    error: str = ""


def one_response(service: Service) -> list[Step]:
    """The steps up to one that fails. What was made is deleted all the same."""
    steps: list[Step] = []

    def tried(done: str, step: Callable[[], Json]) -> Json | None:
        began = monotonic()
        try:
            found = step()
            if found.get("status") == "failed":
                error: Json = found.get("error") or {}
                raise ClientError(f"it failed: {error.get('message')}")
        except ClientError as refusal:
            steps.append(Step(done, monotonic() - began, str(refusal)))
            return None
        steps.append(Step(done, monotonic() - began))
        return found

    def asked(words: str, before: str | None = None) -> Json:
        body: Json = {"model": service.first_model(), "input": words, "max_output_tokens": TOKENS, "metadata": METADATA}
        return service.call("POST", "/v1/responses", body | {"previous_response_id": before})

    made = tried("made", lambda: asked("Count to 2."))
    if made is None:
        return steps
    id = str(made["id"])
    path = f"/v1/responses/{id}"
    if tried("retrieved", lambda: service.call("GET", path)):
        tried("continued", lambda: asked("Count to 3.", id))
    tried("deleted", lambda: service.call("DELETE", path, None, tree="true"))
    return steps
