"""All tools that the service runs, an object for each kind: a request asks those that it declares, and no other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from service.api.approving import NO_APPROVALS, Approvals
from service.api.citing import Cite, cite_nothing
from service.api.outcome import HostedCall, Outcome, display_role, failed_outcome
from service.api.tools.builtin import Builtin
from service.api.tools.callee import Callee, HostedKind
from service.entrance import Entry
from service.tools.port import Runner, Tool, ToolCatalog
from store.turn import StoredMessage


class HostedTools:
    """The tools of a service, the approvals of their calls, and the citations of their outcomes."""

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        *,
        approvals: Approvals = NO_APPROVALS,
        cite: Cite = cite_nothing,
    ) -> None:
        self.tools, self.approvals, self.cite = tools, approvals, cite
        self._by_kind: dict[HostedKind, Tool] = {kind: tool for tool in tools for kind in tool.kinds}

    @property
    def builtins(self) -> tuple[Builtin, ...]:
        """The tools that the model was trained with and that run here."""
        return tuple(each.builtin for each in self.tools if each.builtin is not None and each.usable)

    async def look_up(
        self, tenant: str, tools: msgspec.Raw, max_tools: int, may_begin: Callable[[], Awaitable[None]]
    ) -> ToolCatalog:
        """The catalogs of the tools that the `tools` of a request declare, once `may_begin` has refused nothing; it is
        called where a server is asked. Raises ApiError, and as `may_begin`.
        """
        sent, found = bytes(tools), ToolCatalog()
        for tool in self.tools:
            if any(type.encode() in sent for type in tool.types):
                found += await tool.look_up(tenant, tools, max_tools, may_begin)
        return found

    def names_place(self, callees: Iterable[Callee]) -> bool:
        """Whether a request names the place of its calls, for any of these."""
        return any(
            tool.names_place(callee.hosted) for callee in callees if callee.hosted and (tool := self._of(callee))
        )

    async def bind(self, entry: Entry, callees: tuple[Callee, ...], before: str | None) -> tuple[Callee, ...]:
        """The callees of a response, each with the place of its calls. `before` is the container of its conversation.
        Raises ApiError, StoreError.
        """
        bound = list[Callee]()
        for callee in callees:
            if callee.hosted is not None and (tool := self._of(callee)) is not None:
                place = await tool.bind(entry, callee.hosted, before)
                callee = msgspec.structs.replace(callee, hosted=msgspec.structs.replace(callee.hosted, server=place))
            bound.append(callee)
        return tuple(bound)

    def displays(self, callees: Iterable[Callee], notes: Callable[[str], Sequence[StoredMessage]]) -> tuple[Any, ...]:
        """The displays of the tools of these callees in a conversation, whose `notes` are by their roles."""
        kinds: Iterable[HostedKind] = dict.fromkeys(callee.hosted.kind for callee in callees if callee.hosted)
        return tuple(
            display
            for kind in kinds
            if (tool := self._by_kind.get(kind)) is not None and (kept := notes(display_role(kind)))
            for display in tool.displays(kept)
        )

    def run(self, tenant: str, connections: bytes = b"") -> "HostedRun":
        """The runner of one response's calls. `connections` are those of its catalog."""
        return HostedRun(self._by_kind, tenant, connections)

    def _of(self, callee: Callee) -> Tool | None:
        return None if callee.hosted is None else self._by_kind.get(callee.hosted.kind)


class HostedRun:
    """The calls of one response, by the tools that it calls."""

    def __init__(self, tools: Mapping[HostedKind, Tool], tenant: str, connections: bytes) -> None:
        self._tools, self._tenant, self._connections = tools, tenant, connections
        self._runners: dict[Tool, Runner] = {}

    async def call(self, call: HostedCall) -> Outcome:
        tool = self._tools.get(call.tool.kind)
        if tool is None:
            return failed_outcome(f"This process can't run {call.tool.kind}.")
        if tool not in self._runners:
            self._runners[tool] = tool.run(self._tenant, self._connections)
        return await self._runners[tool].call(call)

    async def aclose(self) -> None:
        runners, self._runners = self._runners.values(), {}
        await asyncio.gather(*(each.aclose() for each in runners))
