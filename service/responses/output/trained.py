"""Calls of tools that the model was trained with, Python and a browser, as items: where this service runs them.

What becomes of a call is in its outcome's `shown`, by the names of the item's members. A call that nobody runs is in
undeclared.py.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from service.api import events
from service.api.events import Event
from service.api.outcome import Outcome
from service.api.response import CodeInterpreterCall, FileSearchCall, ItemStatus, Logprob, WebSearchCall
from service.api.tools.callee import FILE_SEARCH, Hosted, HostedKind
from service.api.tools.hosted import queries_of
from service.responses.output.hosted import HostedCallEmitter, ServerCallEmitter
from service.responses.output.undeclared import action_of


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


class PythonCallEmitter(HostedCallEmitter):
    """Code that runs in a container."""

    kind = "code_interpreter_call"
    in_progress = events.CodeInterpreterCallInProgress
    completed = events.CodeInterpreterCallCompleted

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """A code delta."""
        self._pieces.append(delta)
        return [events.CodeInterpreterCallCodeDelta(self._id, self._index, delta)]

    def call(self) -> list[Event]:
        """The code is whole, and runs."""
        return [*super().call(), events.CodeInterpreterCallInterpreting(self._id, self._index)]

    def _item(self, status: ItemStatus) -> CodeInterpreterCall:
        return CodeInterpreterCall(self._id, self._said, status, self.tool.server)

    def _written(self) -> list[Event]:
        return [events.CodeInterpreterCallCodeDone(self._id, self._index, self._said)]

    def _ended(self, outcome: Outcome) -> CodeInterpreterCall:
        item = msgspec.structs.replace(self._item("in_progress"), status=outcome.status)
        return msgspec.structs.replace(item, **outcome.shown)


class BrowserCallEmitter(HostedCallEmitter):
    """A call of one of the browser's tools; what it was to do is shown at the end."""

    kind = "web_search_call"
    in_progress = events.WebSearchCallInProgress
    completed = events.WebSearchCallCompleted

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """Nothing: the API has no event for it."""
        self._pieces.append(delta)
        return []

    def call(self) -> list[Event]:
        """It is known what the model wants, and that is done."""
        return [*super().call(), events.WebSearchCallSearching(self._id, self._index)]

    def _item(self, status: ItemStatus) -> WebSearchCall:
        action = msgspec.UNSET if status == "in_progress" else action_of(self.tool.tool, self._said)
        return WebSearchCall(self._id, status, action)

    def _written(self) -> list[Event]:
        return []

    def _ended(self, outcome: Outcome) -> WebSearchCall:
        item = msgspec.structs.replace(self._item("completed"), status=outcome.status)
        return msgspec.structs.replace(item, **outcome.shown)


_EMITTERS: Mapping[HostedKind, Callable[[str, int, Hosted], HostedCallEmitter]] = MappingProxyType(
    {
        "mcp": ServerCallEmitter,
        "python": PythonCallEmitter,
        "browser": BrowserCallEmitter,
        "file_search": FileSearchCallEmitter,
    }
)


def hosted_emitter(response_id: str, index: int, tool: Hosted) -> HostedCallEmitter:
    """The emitter of a call of a tool that the service runs."""
    return _EMITTERS[tool.kind](response_id, index, tool)
