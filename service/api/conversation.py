"""Conversations on the wire: the object, the bodies of its routes, and its items as they are added.

Source of the shapes: openai 3.54's `types/conversations`.
"""

from typing import Literal, NamedTuple

import msgspec
from msgspec import Raw

from service.api.request import read_metadata
from service.decoding import ABSENT, decode
from service.errors import missing

MAX_ITEMS = 20
"""The most items that are added by one request."""


class Conversation(msgspec.Struct, frozen=True):
    """A conversation."""

    id: str
    created_at: int
    metadata: dict[str, str]
    object: Literal["conversation"] = "conversation"


class ConversationDeleted(msgspec.Struct, frozen=True):
    """A deleted conversation."""

    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: bool = True


class Omitted(msgspec.Struct, frozen=True):
    """An item that was deleted from a conversation, as the turn that notes it keeps it."""

    omits: str


class _New(msgspec.Struct, forbid_unknown_fields=True):
    items: Raw = ABSENT
    metadata: Raw = ABSENT
    harmonium: Raw = ABSENT


class _Extensions(msgspec.Struct, forbid_unknown_fields=True):
    """harmonium's extensions of a new conversation."""

    fork_of: str | None = None


class _Changed(msgspec.Struct, forbid_unknown_fields=True):
    metadata: Raw | msgspec.UnsetType = msgspec.UNSET


class _Added(msgspec.Struct, forbid_unknown_fields=True):
    items: Raw = ABSENT


class New(NamedTuple):
    """A conversation to be made: its first items, still JSON, its metadata, and the source of a fork."""

    items: Raw
    metadata: dict[str, str]
    fork_of: str | None


def read_new(body: bytes) -> New:
    """The conversation that a request asks for. Raises InvalidRequest."""
    sent = decode(body, _New)
    extensions = decode(sent.harmonium, _Extensions | None, "harmonium") or _Extensions()
    return New(sent.items, read_metadata(sent.metadata), extensions.fork_of)


def read_changed(body: bytes) -> dict[str, str]:
    """The metadata that a conversation has from now on. Raises InvalidRequest."""
    sent = decode(body, _Changed).metadata
    if isinstance(sent, msgspec.UnsetType):
        raise missing("metadata", "Send all metadata, which replaces the existing one; null removes it.")
    return read_metadata(sent)


def read_added(body: bytes) -> Raw:
    """The items, still JSON, that are added to a conversation. Raises InvalidRequest."""
    sent = decode(body, _Added)
    if sent.items == ABSENT:
        raise missing("items", f"Give 1 to {MAX_ITEMS} of them.")
    return sent.items


def decode_conversation(json: bytes) -> Conversation:
    """The conversation of the store's `json`. It is ours, so a fault is msgspec.DecodeError, and no request's."""
    return msgspec.json.decode(json, type=Conversation)
