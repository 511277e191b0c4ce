"""Readers of the items that change the request rather than say something: other tools, another effort or format, a
compaction or the wish for one, and references to stored items.
"""

from typing import Any, Literal

import msgspec
from msgspec import Raw

from service.protocol.create_body import ReasoningParam, TextParam
from service.protocol.decoding import decode, decode_list, decoder_of
from service.protocol.errors import invalid_value
from service.protocol.gathering import Gathered, Reading, decode_step
from service.protocol.hosted_tools import HOSTED, echo_of_hosted
from service.protocol.input_items import (
    AdditionalToolsItem,
    CompactionItem,
    CompactionTriggerItem,
    ConfigurationUpdateItem,
    ItemReference,
)

MAX_ITEM_ID_CHARS = 256
MAX_ADDED_TOOLS = 1024
"""The most tools that one item may add; tools.py holds all of them together to its own limit."""

_ABSENT = Raw(b"null")


class _Compaction(msgspec.Struct):
    encrypted_content: str


class _AdditionalTools(msgspec.Struct):
    tools: Raw
    role: Literal["developer"] = "developer"


class _ConfigurationUpdate(msgspec.Struct):
    reasoning: ReasoningParam | None = None
    text: TextParam | None = None


class _Reference(msgspec.Struct):
    id: str


class _Tool(msgspec.Struct):
    type: str | None = None


_COMPACTION = decoder_of(_Compaction)
_ADDITIONAL_TOOLS = decoder_of(_AdditionalTools)
_CONFIGURATION_UPDATE = decoder_of(_ConfigurationUpdate)
_REFERENCE = decoder_of(_Reference)
_TOOL = decoder_of(_Tool)
_ANY_OBJECT = decoder_of(dict[str, Any])


def read_compaction(raw: Raw, where: str, gathered: Gathered) -> Reading[CompactionItem]:
    sent: _Compaction = yield from decode_step(raw, _COMPACTION, where)
    return CompactionItem(sent.encrypted_content)


def read_compaction_trigger(raw: Raw, where: str, gathered: Gathered) -> Reading[CompactionTriggerItem]:
    gathered.trigger = gathered.trigger or where
    yield from ()
    return CompactionTriggerItem()


def read_additional_tools(raw: Raw, where: str, gathered: Gathered) -> Reading[AdditionalToolsItem]:
    """Hosted tools are listed as they are echoed: a key of somebody's server isn't kept."""
    sent: _AdditionalTools = yield from decode_step(raw, _ADDITIONAL_TOOLS, where)
    at = f"{where}.tools"
    listed: list[Any] = []
    for place, tool in enumerate(decode_list(sent.tools, MAX_ADDED_TOOLS, at)):
        hosted = decode(tool, _TOOL, f"{at}[{place}]").type in HOSTED
        listed.append(echo_of_hosted(decode(tool, _ANY_OBJECT, f"{at}[{place}]"), f"{at}[{place}]") if hosted else tool)
        yield
    gathered.added.append((at, sent.tools))
    return AdditionalToolsItem(listed)


def read_configuration_update(raw: Raw, where: str, gathered: Gathered) -> Reading[ConfigurationUpdateItem]:
    sent: _ConfigurationUpdate = yield from decode_step(raw, _CONFIGURATION_UPDATE, where)
    item = ConfigurationUpdateItem()
    if sent.reasoning is not None and sent.reasoning.effort is not None:
        gathered.effort = sent.reasoning.effort
        item.reasoning = {"effort": sent.reasoning.effort}
    if sent.text is not None and sent.text.format != _ABSENT:
        gathered.format = (sent.text.format, f"{where}.text.format")
        item.text = {"format": sent.text.format}
    return item


def read_item_reference(raw: Raw, where: str, gathered: Gathered) -> Reading[ItemReference]:
    sent: _Reference = yield from decode_step(raw, _REFERENCE, where)
    if not 1 <= len(sent.id) <= MAX_ITEM_ID_CHARS:
        raise invalid_value(f"{where}.id", sent.id, f"It has 1 to {MAX_ITEM_ID_CHARS} characters.")
    if sent.id in gathered.references:
        raise invalid_value(f"{where}.id", sent.id, "This item is in the input already; refer to each item once.")
    gathered.references[sent.id] = None
    return ItemReference(reference=sent.id)
