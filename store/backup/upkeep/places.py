"""Places: what upkeep works on."""

from typing import NamedTuple

from store.archive.archive import Archive
from store.history.history import ConversationHistoryStore


class Alone(NamedTuple):
    """An archive, whether or not there is a Redis."""

    archive: Archive


class Both(NamedTuple):
    """An archive, and the store before it."""

    archive: Archive
    store: ConversationHistoryStore
