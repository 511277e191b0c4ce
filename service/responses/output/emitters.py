"""Segments to items: which emitter the message with a header gets."""

from collections.abc import Mapping
from typing import Any

import msgspec

from service.api.tools.callee import Callee
from service.browser.page import Display
from service.harmony.header import Header
from service.responses.output.calls import OWN_CALLS
from service.responses.output.citing import citing_of
from service.responses.output.emitter import Emitter, Seal
from service.responses.output.hosted import HOSTED, ApprovalRequestEmitter, undeclared
from service.responses.output.rules import Rules
from service.responses.output.text import CompactionEmitter, MessageEmitter, ReasoningEmitter
from store.turn import Messages


class Making(msgspec.Struct, frozen=True):
    """The parts that all items of a response are made with.

    `seal` takes a kind and a payload (sealed.py), for the tenant; only what `rules` want sealed needs it. `kept` are
    the messages that a compaction item carries beside its summary. `cites` are the parts of outcomes that an answer may
    cite, and `displays` the pages of the browser that it may cite.
    """

    response_id: str
    rules: Rules
    seal: Seal | None = None
    kept: Messages = ()
    cites: tuple[Mapping[str, Any], ...] = ()
    displays: tuple[Display, ...] = ()


def emitter_for(making: Making, header: Header, index: int) -> Emitter:
    """The kind of item that a message with this header becomes, at `index` of the output.

    A recipient decides before the channel does, because models call tools on any channel (`Rules.called`). Where there
    is none, or none that can be meant, analysis is reasoning, final and no channel an answer; commentary and channels
    that don't exist are preambles, so that text for the user stays visible. Of a compacting response, the
    answer is its compaction item.
    """
    rules, response_id = making.rules, making.response_id
    called = rules.called(header.recipient, header.channel)
    if isinstance(called, Callee) and called.hosted is not None and called.hosted.approval:
        return ApprovalRequestEmitter(response_id, index, called.hosted, header.channel)
    if isinstance(called, Callee) and called.hosted is not None:
        return HOSTED[called.hosted.kind](response_id, index, called.hosted)
    if isinstance(called, Callee):
        return OWN_CALLS[called.kind](response_id, index, called)
    if called is not None:
        return undeclared(response_id, index, called)
    if header.channel == "analysis":
        return ReasoningEmitter(
            response_id, index, summarised=rules.summary is not None, seal=making.seal if rules.sealed else None
        )
    answers = header.channel in (None, "final")
    if answers and rules.compacting and making.seal is not None:
        return CompactionEmitter(response_id, index, making.seal, making.kept, rules.newest)
    citing = citing_of(making.cites, making.displays) if answers and rules.answer is None else None
    return MessageEmitter(response_id, index, "final_answer" if answers else "commentary", citing)
