"""Calls of a search of files as items, where an operator's server stands for one. Nobody is told what the model writes
before it is complete: the API has no event for that.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from service.api import events
from service.api.events import Event
from service.api.response import FileSearchCall, ItemStatus, Logprob
from service.api.tools.callee import FILE_SEARCH
from service.api.tools.outcome import Outcome
from service.responses.output.items.hosted import HostedCallEmitter

MAX_QUERIES = 8
MAX_QUERY_CHARS = 2_000
"""What of a call's queries is searched for."""


class _Asked(msgspec.Struct):
    queries: Annotated[list[str], Meta(max_length=MAX_QUERIES)]


_ASKED = msgspec.json.Decoder(_Asked)


def queries_of(arguments: str) -> list[str]:
    """The queries of a call, none where they can't be read."""
    try:
        return [query[:MAX_QUERY_CHARS] for query in _ASKED.decode(arguments).queries]
    except (msgspec.DecodeError, RecursionError):
        return []


class FileSearchCallEmitter(HostedCallEmitter):
    """A search of files; what was searched for is shown at the end."""

    kind = f"{FILE_SEARCH}_call"
    in_progress = events.FileSearchCallInProgress
    completed = events.FileSearchCallCompleted

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """Nothing."""
        self._pieces.append(delta)
        return []

    def call(self) -> list[Event]:
        """It is known what the model wants, and that is searched for."""
        return [*super().call(), events.FileSearchCallSearching(self._id, self._index)]

    def _item(self, status: ItemStatus) -> FileSearchCall:
        return FileSearchCall(self._id, [] if status == "in_progress" else queries_of(self._said), status)

    def _written(self) -> list[Event]:
        return []

    def _ended(self, outcome: Outcome) -> FileSearchCall:
        item = msgspec.structs.replace(self._item("completed"), status=outcome.status)
        return msgspec.structs.replace(item, **outcome.shown)
