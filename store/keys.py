"""Names: ids, shards, tenants, and every key that the store owns in Redis.

    PREFIX:{SHARD}:NAME                      what all trees of a shard share
    PREFIX:{SHARD}:t:TENANT:FAMILY:DIGITS    what one turn has
    PREFIX:{SHARD}:t:TENANT:picture:HEX      a picture that turns of the tenant show, by its digest

README.md has a table of all names and families: the type of each, what it holds, and its bound. Beside them there are
channels:

    PREFIX:{SHARD}:control                   for workers: that a job waits, or was cancelled
    PREFIX:{SHARD}:registry-news             for all: which project or key was changed
    PREFIX:{SHARD}:t:TENANT:events:DIGITS    for followers: what is added to a log
    PREFIX:{SHARD}:t:TENANT:keyed:DIGITS     for those who wait: that a request with an Idempotency-Key has ended

DIGITS and ROOT are the 48 hex digits of an id, without `resp_` or `conv_` (ids.py). A conversation with an id of its
own is a turn, whose digits have CONVERSATION_MARK behind the shard (lua/standing.lua). A tree lives in one shard, whose
name is the only hash tag, so one script can change a tree atomically, on a cluster too. Never build a key elsewhere but
in lua/names.lua.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NewType
from zlib import crc32

from store.errors import ConversationNotFound, NotFound

Key = NewType("Key", str)
"""The complete name of a key in Redis."""

ID_PREFIX = "resp_"
CONVERSATION_PREFIX = "conv_"
SHARD_DIGITS = 2
RANDOM_DIGITS = 46
HEX_DIGITS = SHARD_DIGITS + RANDOM_DIGITS
MAX_SHARDS = 16**SHARD_DIGITS

CONVERSATION_MARK = b"conver".hex()
"""Behind the shard in the digits of a conversation."""

BY_HAND_MARK = b"byhand".hex()
"""Behind the shard in the digits of a turn that somebody added by hand: no response has its id."""

OMISSION_MARK = b"omits:".hex()
"""Behind the shard in the digits of a turn that removes messages from a conversation (history/omissions.py)."""

NO_RESPONSES = (CONVERSATION_MARK, BY_HAND_MARK, OMISSION_MARK)
"""The marks in the digits of turns that are no responses."""

COUNTERS = ("responses", "tombstones", "trees", "bytes")
"""The counters of a shard, and of each tenant in it (lua/usage.lua)."""

ARCHIVE = "archive"
"""The field beside the counters of a shard that has an archive (lua/noting.lua)."""

SECRET_BYTES = 32
"""The length of the store's secret: no key that is derived from it can be stronger."""

_ID = re.compile(rf"{ID_PREFIX}([0-9a-f]{{{HEX_DIGITS}}})", re.ASCII)
_CONVERSATION = re.compile(
    rf"{CONVERSATION_PREFIX}([0-9a-f]{{2}}{CONVERSATION_MARK}[0-9a-f]{{{RANDOM_DIGITS - len(CONVERSATION_MARK)}}})",
    re.ASCII,
)
_TENANT = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """The keys that all trees of a shard share, and the prefix of all keys of turns in it."""

    clock: Key
    usage: Key
    leaves: Key
    trees: Key
    leases: Key
    logs: Key
    logged: Key
    outbox: Key
    secret: Key
    store: Key
    registry: Key
    registry_used: Key
    registry_news: Key
    audit_entries: Key
    audit_shares: Key
    reservations: Key
    archive_away: Key
    archive_head: Key
    archive_failed: Key
    archive_id: Key
    archive_user: Key
    archiver: Key
    unarchived: Key
    older: Key
    control: Key
    whole: Key
    turns: str

    def key(self, name: str) -> Key:
        return getattr(self, name)

    def key_named(self, name: str) -> Key:
        """The key of the shard with a name that has a part of its own, such as `registry:LIST`."""
        return Key(self.turns.removesuffix("t:") + name)

    def changes_of(self, tenant: str, root: str) -> Key:
        """The key of the changes to a tenant's tree that the archive lacks; `root` has the digits of its root."""
        return Key(f"{self.all_changes}{checked_tenant(tenant)}/{root}")

    @property
    def all_changes(self) -> str:
        return self.key_named("changes:")

    def fence_of(self, tenant: str, member: str) -> Key:
        """The key that says that a deletion was noted or archived a moment ago, by its member of the changes."""
        return Key(f"{self.all_fences}{checked_tenant(tenant)}/{member}")

    @property
    def all_fences(self) -> str:
        return self.key_named("fence:")

    def conversations_of(self, tenant: str) -> Key:
        """The key of a tenant's list of conversations; ValueError for a malformed tenant."""
        return self.key_named(f"conversations:{checked_tenant(tenant)}")


_SHARED = frozenset(ShardKeys.__dataclass_fields__) - {"turns"}


@dataclass(frozen=True, slots=True)
class TurnKeys:
    """The keys of one turn of a tenant, by their families, and those of its shard."""

    shard: ShardKeys
    tenant: str
    digits: str

    def key(self, name: str) -> Key:
        """The turn's key of a family, such as `node`, or the shard's of that name, such as `clock`."""
        return getattr(self.shard, name) if name in _SHARED else Key(self.family(name) + self.digits)

    def family(self, name: str) -> str:
        """The prefix of the keys of a family; the digits of a turn of the same tenant and shard complete it."""
        return f"{self.shard.turns}{self.tenant}:{name}:"


class Keyspace:
    """All names under one prefix, for a number of shards. Pure."""

    def __init__(self, prefix: str, shards: int) -> None:
        """Raises ValueError for a prefix that could break a hash tag, or not 1 to 256 shards."""
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"key prefix {prefix!r} must be 1 to 64 characters of A-Z a-z 0-9 _ . : -")
        if not 1 <= shards <= MAX_SHARDS:
            raise ValueError(
                f"shards is {shards} and must be from 1 to {MAX_SHARDS}, as an id has two hex digits for it"
            )
        self.prefix = prefix
        self.shards = self.placed = shards
        """By how many shards that is placed which has no id of a turn: as many as the store had at first, as its layout
        record says.
        """
        self._shards = [_shard_keys(f"{prefix}:{{{shard:02x}}}") for shard in range(shards)]

    def digits(self, id: str) -> str:
        """The digits of a turn's id. Raises NotFound for one that no store with these shards can have made."""
        return self._match(_ID, id)

    def shard(self, digits: str) -> ShardKeys:
        return self._shards[shard_of(digits)]

    def turn(self, tenant: str, id: str) -> TurnKeys:
        """The keys of a turn by its id. Raises NotFound as `digits` does, and ValueError for a malformed tenant."""
        return self.keys(tenant, self.digits(id))

    def response(self, tenant: str, id: str) -> TurnKeys:
        """The keys of a turn that is a response. Raises as `turn` does, and NotFound for a turn that is none."""
        keys = self.turn(tenant, id)
        if mark_of(keys.digits) in NO_RESPONSES:
            raise NotFound(id)
        return keys

    def conversation(self, tenant: str, id: str) -> TurnKeys:
        """The keys of a conversation by its id. Raises ConversationNotFound, ValueError."""
        try:
            return self.keys(tenant, self._match(_CONVERSATION, id))
        except NotFound as error:
            raise ConversationNotFound(id) from error

    def keys(self, tenant: str, digits: str) -> TurnKeys:
        """The keys of a turn by its digits; ValueError for a malformed tenant."""
        return TurnKeys(self._shards[shard_of(digits)], checked_tenant(tenant), digits)

    def place_of(self, name: str) -> int:
        """The number of the shard that has all of a name, as a tenant's."""
        return crc32(name.encode()) % self.placed

    def all_shards(self) -> list[ShardKeys]:
        return self._shards

    def _match(self, form: re.Pattern[str], id: str) -> str:
        match = form.fullmatch(id)
        if match is None or int(match[1][:SHARD_DIGITS], 16) >= self.shards:
            raise NotFound(id)
        return match[1]


def shard_of(digits: str) -> int:
    return int(digits[:SHARD_DIGITS], 16)


def mark_of(digits: str) -> str:
    """The digits in the place of a mark."""
    return digits[SHARD_DIGITS : SHARD_DIGITS + len(CONVERSATION_MARK)]


def is_conversation(id: str) -> bool:
    """Whether the turn with this id is a conversation's own."""
    return mark_of(digits_of(id)) == CONVERSATION_MARK


def id_of(digits: str) -> str:
    return ID_PREFIX + digits


def ids_of(path: Iterable[str]) -> tuple[str, ...]:
    """The ids of turns: for a thousand of them in half of the time that `id_of` takes."""
    return tuple([ID_PREFIX + digits for digits in path])


def digits_of(id: str) -> str:
    return id.partition("_")[2]


def conversation_id(digits: str) -> str:
    return CONVERSATION_PREFIX + digits


def name_of(digits: str) -> str:
    """The id of a turn or a conversation with these digits, for reports."""
    return conversation_id(digits) if mark_of(digits) == CONVERSATION_MARK else id_of(digits)


def split_path(path: bytes) -> list[str]:
    """The digits that a script gives in one string, newest first, as a list with the root first."""
    text = path.decode()
    return [text[at : at + HEX_DIGITS] for at in range(len(text) - HEX_DIGITS, -1, -HEX_DIGITS)]


@lru_cache
def checked_tenant(tenant: str) -> str:
    """`tenant` itself; ValueError if it isn't 1 to 64 characters of A-Z a-z 0-9 _ . -"""
    if not _TENANT.fullmatch(tenant):
        raise ValueError(f"tenant {tenant!r} must be 1 to 64 characters of A-Z a-z 0-9 _ . -")
    return tenant


def _shard_keys(base: str) -> ShardKeys:
    return ShardKeys(turns=f"{base}:t:", **{name: Key(f"{base}:{name.replace('_', '-')}") for name in _SHARED})
