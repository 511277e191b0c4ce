"""Names: ids, shards, tenants, and every key that the store owns in Redis.

    PREFIX:{SHARD}:clock                   the last score given, so that scores only rise
    PREFIX:{SHARD}:usage                   hash, the counters of the shard
    PREFIX:{SHARD}:usage:COUNTER           zset, the tenants by that counter of theirs
    PREFIX:{SHARD}:leaves:TENANT           zset DIGITS of a tenant's turns without children, by last use
    PREFIX:{SHARD}:conversations:TENANT    zset DIGITS of a tenant's conversations, by the µs at which they began
    PREFIX:{SHARD}:tombstones              zset TENANT/DIGITS of those without children, by the ms of their end
    PREFIX:{SHARD}:trees                   zset TENANT/ROOT of the trees, by last use of any of their turns
    PREFIX:{SHARD}:trees:TENANT            zset ROOT of a tenant's trees, by the same
    PREFIX:{SHARD}:sweeps                  hash, when sweeps were, in µs, and how far trees were compared
    PREFIX:{SHARD}:leases                  zset TENANT/DIGITS of the jobs under way, by the ms at which the lease ends
    PREFIX:{SHARD}:queued:LEVEL            zset TENANT/DIGITS of the jobs that wait, by the ms since which they do
    PREFIX:{SHARD}:turn:LEVEL              zset TENANT of those with waiting jobs, in the order in which they take turns
    PREFIX:{SHARD}:line:LEVEL:TENANT       zset DIGITS of a tenant's waiting jobs, in their order
    PREFIX:{SHARD}:looked                  string, the ms at which somebody last looked for leases that ran out; expires
    PREFIX:{SHARD}:claim:TOKEN             string, the result of one claim, for its retry; expires
    PREFIX:{SHARD}:logs                    zset TENANT/DIGITS of the event logs of what has ended, by the ms of that
    PREFIX:{SHARD}:waiting-bytes           hash, the bytes of logs of jobs that wait and have not begun, by TENANT
    PREFIX:{SHARD}:logged                  string, the bytes of all event logs
    PREFIX:{SHARD}:outbox                  zset TENANT/DIGITS/STATUS of the webhooks that wait, by the ms when due
    PREFIX:{SHARD}:outbox-ages             zset, the same ones by the ms of the end
    PREFIX:{SHARD}:outbox-tries            hash, how often each of them was tried
    PREFIX:{SHARD}:outbox-take:TOKEN       string, the result of one call, for its retry; expires
    PREFIX:{SHARD}:approvals:TENANT        zset DIGITS NUMBER/DIGEST of approvals asked for, NUMBER/ once used; expires
    PREFIX:{SHARD}:approved:TENANT         hash, those used up: DIGITS NUMBER, and the DIGITS of who used it; expires
    PREFIX:{SHARD}:containers:TENANT       hash, the records of a tenant's containers, by their DIGITS; expires
    PREFIX:{SHARD}:keyed:TENANT            hash, a tenant's requests with an Idempotency-Key, by its digits; expires
    PREFIX:{SHARD}:keyed-until:TENANT      zset, the same ones by the ms until which each is known; expires
    PREFIX:{SHARD}:spent:HOUR              hash, the expenses of an hour, by TENANT/KEY/MODEL; expires
    PREFIX:{SHARD}:spent-by:DIGITS         string, that this was counted, for its retry; expires
    PREFIX:{SHARD}:secret                  string, random bytes that all have in common; in shard 00 alone
    PREFIX:{SHARD}:store                   hash, the layout record (layout.py); in shard 00 alone
    PREFIX:{SHARD}:registry                hash, the records of projects, service accounts and keys; in shard 00 alone
    PREFIX:{SHARD}:registry:LIST           zset, their names, in the order in which they were added
    PREFIX:{SHARD}:registry-used           hash, when a key was last used, in seconds, by its record's name
    PREFIX:{SHARD}:audit-entries           zset, the audit log: who changed what, by the µs of that
    PREFIX:{SHARD}:audit-of:SHARE          zset, the µs of the entries in one share of it
    PREFIX:{SHARD}:audit-shares            zset, the shares of tenants, by how many entries each has
    PREFIX:{SHARD}:archive                 string, the ms after which a changed tree is archived; only with an archive
    PREFIX:{SHARD}:unarchived              zset TENANT/ROOT of trees to be archived, as they changed, by the ms when due
    PREFIX:{SHARD}:changes:TENANT/ROOT     zset, the changes to one tree that the archive lacks (lua/unarchived.lua)
    PREFIX:{SHARD}:archive-failed          hash, why a tree could not be archived as it is, by TENANT/ROOT
    PREFIX:{SHARD}:older                   string, the last use up to which trees from before an archive are noted
    PREFIX:{SHARD}:archiver                string, who archives the shard for now; expires
    PREFIX:{SHARD}:archive-swept           string, that what is too old has gone from the archive; expires
    PREFIX:{SHARD}:archive-deletions       string, how often deletions were archived (backup/deletions.py)
    PREFIX:{SHARD}:archive-id              string, which archive the store has (backup/ownership.py); in shard 00 alone
    PREFIX:{SHARD}:archive-away            string, that what an archive lacks may be evicted; expires
    PREFIX:{SHARD}:whole                   never stored; every script names it (redis/scripts.py)
    PREFIX:{SHARD}:fence:TENANT/DIGITS     string, that a turn was deleted and the archive knows; expires
    PREFIX:{SHARD}:fence:TENANT/*ROOT      string, the same of a tree; expires
    PREFIX:{SHARD}:limits:TENANT/SCOPE     hash, the use of a tenant's limits (lua/limits.lua); expires
    PREFIX:{SHARD}:parallel:TENANT/SCOPE   zset DIGITS of its work under way, by the ms until it counts; expires
    PREFIX:{SHARD}:reserved:TENANT         hash, the reservations of its work under way, by DIGITS; expires
    PREFIX:{SHARD}:reservations            zset TENANT/DIGITS of the reservations, by the ms when each is looked at
    PREFIX:{SHARD}:t:TENANT:node:DIGITS      hash, a turn without payload; its fields are in lua/append.lua
    PREFIX:{SHARD}:t:TENANT:messages:DIGITS  string, the messages that the turn added (codec.py)
    PREFIX:{SHARD}:t:TENANT:response:DIGITS  string, the response as served, and its input items (codec.py)
    PREFIX:{SHARD}:t:TENANT:pins:DIGITS      zset, pin token -> the ms at which it stops counting; expires
    PREFIX:{SHARD}:t:TENANT:runs:ROOT        zset, the pins of all turns of one tree; expires
    PREFIX:{SHARD}:t:TENANT:tree:ROOT        set, the DIGITS of the leaves of one tree
    PREFIX:{SHARD}:t:TENANT:job:DIGITS       hash, a response under way; its fields are in lua/submit.lua
    PREFIX:{SHARD}:t:TENANT:spec:DIGITS      string, all that a worker needs for it
    PREFIX:{SHARD}:t:TENANT:log:DIGITS       stream, its events (log.py)
    PREFIX:{SHARD}:t:TENANT:snapshot:DIGITS  string, the fold of its events up to some number
    PREFIX:{SHARD}:t:TENANT:remains:DIGITS   string, the response of a deleted turn, for lists of conversations

and the channels

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
from typing import NewType

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
    archive: Key
    archive_away: Key
    archive_deletions: Key
    archive_failed: Key
    archive_id: Key
    archiver: Key
    archive_swept: Key
    unarchived: Key
    older: Key
    control: Key
    whole: Key
    turns: str

    def key(self, name: str) -> Key:
        """One of the keys by its name, such as `clock`."""
        return getattr(self, name)

    def named(self, name: str) -> Key:
        """The key of the shard with a name that has a part of its own, such as `registry:LIST`."""
        return Key(self.turns.removesuffix("t:") + name)

    def changes_of(self, tenant: str, root: str) -> Key:
        """The key of the changes to a tenant's tree that the archive lacks; `root` has the digits of its root."""
        return self.named(f"changes:{checked_tenant(tenant)}/{root}")

    def fences_of(self, tenant: str, digits: str, root: str) -> tuple[Key, Key]:
        """The keys that say that a tenant's turn, or its tree, was deleted a moment ago."""
        fence = f"{self.all_fences}{checked_tenant(tenant)}/"
        return Key(fence + digits), Key(f"{fence}*{root}")

    @property
    def all_fences(self) -> str:
        """The prefix of all fences of the shard."""
        return self.named("fence:")

    def conversations_of(self, tenant: str) -> Key:
        """The key of a tenant's list of conversations; ValueError for a malformed tenant."""
        return self.named(f"conversations:{checked_tenant(tenant)}")


@dataclass(frozen=True, slots=True)
class TurnKeys:
    """The keys of one turn of a tenant, by their families, and those of its shard."""

    shard: ShardKeys
    tenant: str
    digits: str

    def key(self, name: str) -> Key:
        """The turn's key of a family, such as `node`, or the shard's of that name, such as `clock`."""
        return self.shard.key(name) if hasattr(self.shard, name) else Key(self.family(name) + self.digits)

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
        self.shards = shards
        self._shards = [_shard_keys(f"{prefix}:{{{shard:02x}}}") for shard in range(shards)]

    def digits(self, id: str) -> str:
        """The digits of a turn's id. Raises NotFound for one that no store with these shards can have made."""
        return self._matched(_ID, id)

    def shard(self, digits: str) -> ShardKeys:
        """The keys shared by the trees of this turn's shard."""
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
            return self.keys(tenant, self._matched(_CONVERSATION, id))
        except NotFound as error:
            raise ConversationNotFound(id) from error

    def keys(self, tenant: str, digits: str) -> TurnKeys:
        """The keys of a turn by its digits; ValueError for a malformed tenant."""
        return TurnKeys(self.shard(digits), checked_tenant(tenant), digits)

    def all_shards(self) -> list[ShardKeys]:
        """The shared keys of every shard, in order."""
        return self._shards

    def _matched(self, form: re.Pattern[str], id: str) -> str:
        match = form.fullmatch(id)
        if match is None or int(match[1][:SHARD_DIGITS], 16) >= self.shards:
            raise NotFound(id)
        return match[1]


def shard_of(digits: str) -> int:
    """The shard that a turn lives in, as its id says."""
    return int(digits[:SHARD_DIGITS], 16)


def mark_of(digits: str) -> str:
    """The digits in the place of a mark."""
    return digits[SHARD_DIGITS : SHARD_DIGITS + len(CONVERSATION_MARK)]


def id_of(digits: str) -> str:
    """The id of a turn; of a response, as clients see it."""
    return ID_PREFIX + digits


def ids_of(path: Iterable[str]) -> tuple[str, ...]:
    """The ids of turns: for a thousand of them in half of the time that `id_of` takes."""
    return tuple([ID_PREFIX + digits for digits in path])


def digits_of(id: str) -> str:
    """The digits of an id of any kind."""
    return id.partition("_")[2]


def conversation_id(digits: str) -> str:
    """The id of a conversation as clients see it."""
    return CONVERSATION_PREFIX + digits


def name_of(digits: str) -> str:
    """The id of a turn or a conversation with these digits, for reports."""
    return conversation_id(digits) if mark_of(digits) == CONVERSATION_MARK else id_of(digits)


def split_path(path: bytes) -> list[str]:
    """The digits that a script gives in one string, newest first, as a list with the root first."""
    text = path.decode()
    return [text[at : at + HEX_DIGITS] for at in range(len(text) - HEX_DIGITS, -1, -HEX_DIGITS)]


def checked_tenant(tenant: str) -> str:
    """`tenant` itself; ValueError if it isn't 1 to 64 characters of A-Z a-z 0-9 _ . -"""
    if not _TENANT.fullmatch(tenant):
        raise ValueError(f"tenant {tenant!r} must be 1 to 64 characters of A-Z a-z 0-9 _ . -")
    return tenant


def _shard_keys(base: str) -> ShardKeys:
    named = [name for name in ShardKeys.__dataclass_fields__ if name != "turns"]
    return ShardKeys(turns=f"{base}:t:", **{name: Key(f"{base}:{name.replace('_', '-')}") for name in named})
