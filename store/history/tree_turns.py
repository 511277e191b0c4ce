"""The turns of one tree, newest first, and their payloads for display.

A tree is walked some turns a script call, from its ends up to turns that were seen before; then payloads are read by
MGET. Never read all payloads of a tree at once: one turn may have megabytes.

Also a tenant's background responses that wait or run, over all shards, for callers without an id.

Each shard is asked once, and for no more than is wanted of all of them. Reading a tree doesn't count as use.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from store import codec
from store.errors import NewerFormat, NotFound
from store.history.elsewhere import AwayBranches
from store.history.history import ConversationHistoryStore
from store.history.listing import SHARDS_AT_ONCE
from store.history.read import mget
from store.keys import CONVERSATION_MARK, CONVERSATION_PREFIX, TurnKeys, digits_of, id_of, mark_of, name_of
from store.redis import scripts

MOST_TURNS = 5_000
"""The most turns of a tree that are returned, those of its newest branches."""

MOST_TIPS = 10_000
"""The most turns without children that are searched for the newest."""

MOST_AWAY = 100
"""The most branches that are returned of those that left the store."""

TIPS_AT_ONCE = 250
TURNS_AT_ONCE = 150
"""The most that one script call looks at: half a millisecond."""

SHOWN_AT_ONCE = 25
"""How many payloads are read at once, at the most."""

READ_BYTES = 8 << 20
"""And how many bytes of them, beside the last one."""

SHOWN_BYTES = 4 << 20
"""The most bytes of one response and its input to be shown among others: room for a picture."""

ALL_SHOWN_BYTES = 32 << 20
"""The most bytes of all responses that are read one after the other: some 50 ms."""


class TreeNode(NamedTuple):
    """A turn in its tree; times are in µs since 1970."""

    digits: str
    parent: str | None
    depth: int
    status: str
    created: int
    used: int
    children: int
    size: int
    """The bytes of its response as it is stored."""
    deleted: bool
    priority: int = 0
    """Its job's, while it is under way."""

    @property
    def id(self) -> str:
        """Its id; that of a conversation where it is one."""
        return name_of(self.digits)

    @property
    def is_conversation(self) -> bool:
        """Whether it is no turn but a conversation that stands at its parent."""
        return mark_of(self.digits) == CONVERSATION_MARK

    @classmethod
    def of(cls, row: bytes) -> "TreeNode":
        digits, parent, depth, status, *numbers, deleted = row.decode().split(" ")
        created, used, children, size = map(int, numbers)
        above = None if parent == "-" else parent
        return cls(digits, above, int(depth), status, created, used, children, size, deleted == "D")


class TreeTurns(NamedTuple):
    """The turns of a tree, parents before their children and else the older first."""

    id: str
    """The id of the root, by which the tree is called."""
    used: int
    """The last use of any turn, in µs since 1970."""
    nodes: list[TreeNode]
    whole: bool
    """Whether these are all. Where not, some parents are missing among them."""


async def turns_of(
    history: ConversationHistoryStore, tenant: str, id: str, *, most: int = MOST_TURNS, brings_back: bool = True
) -> TreeTurns:
    """The tree of a response, of a turn or of a conversation; doesn't count as use. One that left the store comes back,
    if it `brings_back`. Raises NotFound, also for the id of another tenant, ConversationNotFound, StoreUnavailable.
    """
    keyspace = history.keyspace
    keys = keyspace.conversation(tenant, id) if id.startswith(CONVERSATION_PREFIX) else keyspace.turn(tenant, id)
    found = partial(_tips, history, keys, id)
    root, used, tips, whole = await (history.at_hand(keys, found) if brings_back else found())
    nodes: dict[str, TreeNode] = {}
    left = [digits for digits, _ in sorted(tips.items(), key=lambda tip: -tip[1])]
    while left and len(nodes) < most:
        branches = [node.digits for node in nodes.values() if node.children > 1]
        _, rest, *rows = await history.server.run(
            scripts.climb,
            keys.shard,
            tenant=tenant,
            ends=" ".join(left[:TURNS_AT_ONCE]),
            seen=" ".join(branches),
            most=min(TURNS_AT_ONCE, most - len(nodes)),
        )
        nodes |= {node.digits: node for node in map(TreeNode.of, rows)}
        left = [*rest.decode().split(), *left[TURNS_AT_ONCE:]]
    in_order = sorted(nodes.values(), key=lambda node: (node.depth, node.created))
    return TreeTurns(id_of(root), used, in_order, whole and not left)


async def away_from(
    history: ConversationHistoryStore, tenant: str, tree: TreeTurns, *, most: int = MOST_AWAY
) -> AwayBranches:
    """The branches of a tree that have left the store, by their ends; a request for one brings it back. Raises
    StoreUnavailable, ArchiveUnavailable, ArchiveDamaged, NewerFormat.
    """
    if not tree.whole:
        return AwayBranches(whole=False)
    here = {node.digits for node in tree.nodes}
    return await history.elsewhere.away(tenant, digits_of(tree.id), here, most)


async def _tips(history: ConversationHistoryStore, keys: TurnKeys, id: str) -> tuple[str, int, dict[str, int], bool]:
    """The digits of a tree's root, its last use, its ends by their last use, and whether these are all."""
    tips: dict[str, int] = {}
    cursor = "0"
    while True:
        word, *detail = await history.server.run(
            scripts.tips, keys, cursor=cursor, most=TIPS_AT_ONCE, idle_us=history.caps.idle_us
        )
        if word == b"missing":
            raise NotFound(id)
        root, used, cursor, found = (each.decode() for each in detail)
        tips |= {digits: int(score) for digits, _, score in (each.partition("=") for each in found.split())}
        if cursor == "0" or len(tips) >= MOST_TIPS:
            return root, int(float(used)), tips, cursor == "0"


async def shown_of(
    history: ConversationHistoryStore, tenant: str, sizes: Mapping[str, int], *, most_bytes: int = ALL_SHOWN_BYTES
) -> AsyncGenerator[tuple[str, bytes, bytes]]:
    """The digits, the response and the input items (both JSON) of turns of one shard, some read at a time.

    `sizes` has the bytes of their responses as they are stored, by their digits. It leaves out turns that have no
    response by now, were written by a later release, are larger than SHOWN_BYTES, or come after `most_bytes` of others.
    Raises StoreUnavailable.
    """
    left, size = [digits for digits, stored in sizes.items() if 0 < stored <= SHOWN_BYTES], 0
    while left:
        sums = accumulate(sizes[digits] for digits in left[:SHOWN_AT_ONCE])
        most = 1 + sum(1 for each in sums if each < READ_BYTES)
        some, left = left[:most], left[most:]
        names = [history.keyspace.keys(tenant, each).key("response") for each in some]
        blobs = await history.server.run(mget, names)
        for each, blob in zip(some, blobs, strict=True):
            if blob is None or (own := codec.response_size(blob)) > SHOWN_BYTES:
                continue
            size += own
            if size > most_bytes:
                return
            try:
                yield each, *(await codec.unpack_response(blob))
            except NewerFormat:
                continue


async def under_way(history: ConversationHistoryStore, tenant: str, most: int) -> tuple[list[TreeNode], bool]:
    """At most `most` responses of a tenant under way, the newest first, and whether these are all. Raises
    StoreUnavailable.
    """
    shards, run = history.keyspace.all_shards(), history.server.run
    found: list[TreeNode] = []
    whole = True
    for at in range(0, len(shards), SHARDS_AT_ONCE):
        some = (run(scripts.jobs_of, shard, tenant=tenant, most=most) for shard in shards[at : at + SHARDS_AT_ONCE])
        for _, all_of_them, *rows in await asyncio.gather(*some):
            for priority, _, row in (each.partition(b" ") for each in rows):
                found.append(TreeNode.of(row)._replace(priority=int(priority)))
            whole = whole and bool(int(all_of_them))
    found.sort(key=lambda each: (-each.created, each.digits))
    return found[:most], whole and len(found) <= most
