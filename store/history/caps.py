"""Caps: how much the store keeps, in each shard, over all tenants.

A turn that would pass a cap first evicts the least recently used leaf or tree (lua/eviction.lua). The turns of a chain
that a run continues stay. Never shorten a history for a cap.
"""

from dataclasses import dataclass

GIB = 1 << 30
DAY_SECONDS = 86_400

EVICT_BATCH = 100
"""The most turns that one script call removes, so that others are served in between: a millisecond or two."""

EVICT_CALLS = 300
"""The most such calls before one turn is stored: thirty thousand turns, about half a second."""

TREE_CALLS = 100
"""The most calls that delete one tree at once: ten thousand turns, some tenths of a second."""

ROOM_BYTES = 6_000
"""An upper bound of a turn's node with its entries in the leaves and the trees, and a path (lua/walk.lua)."""


IDLE_SHARE = 0.01
"""The use of a turn that is read again within this share of `idle_seconds` is not noted again."""


@dataclass(frozen=True, slots=True)
class Caps:
    """The most of each in one shard; 0 is no cap.

    `bytes` are those that the server holds for the shard's turns, by its account. A chain with `chain_messages`
    messages can't be continued. The use of a turn that a process reads again is noted once in `touch_seconds`. A tree
    that nobody used for `idle_seconds` is unknown from then on, and deleted when another `idle_grace_seconds` have
    passed; nothing expires before sweeps have followed each other for as long. A tree with a conversation goes
    after `named_idle_seconds`, no fewer, or never where that is 0. In a shard with an archive an idle tree stays
    known, and only leaves memory once the archive has it. `evict_calls` and `tree_calls` bound how many calls one
    operation makes to remove turns. The expenses of responses are known for `spent_seconds`, and not counted where
    that is 0.
    """

    responses: int = 1_000_000
    trees: int = 0
    bytes: int = 4 * GIB
    chain_messages: int = 20_000
    idle_seconds: float = 30 * DAY_SECONDS
    idle_grace_seconds: float = DAY_SECONDS
    named_idle_seconds: float = 0
    evict_calls: int = EVICT_CALLS
    tree_calls: int = TREE_CALLS
    spent_seconds: int = 90 * DAY_SECONDS
    touch_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Raises ValueError for a cap below 0."""
        for name in self.__slots__:
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive, or 0 for no cap")
        if self.named_idle_seconds and not 0 < self.idle_seconds <= self.named_idle_seconds:
            raise ValueError(f"{self.named_idle_seconds=} must be 0, or no less than {self.idle_seconds=}")

    @property
    def idle_us(self) -> int:
        """The microseconds that a tree may be unused; 0 for ever."""
        return round(self.idle_seconds * 1_000_000)

    @property
    def noted_seconds(self) -> float:
        """How long the use of a turn that is read again need not be noted anew."""
        return min(self.touch_seconds, self.idle_seconds * IDLE_SHARE if self.idle_seconds else self.touch_seconds)

    @property
    def named_us(self) -> int:
        """The microseconds that a tree with a conversation may be unused; 0 for ever."""
        return round(self.named_idle_seconds * 1_000_000)

    @property
    def idle_grace_us(self) -> int:
        """The microseconds that an unused tree is kept although it is unknown."""
        return round(self.idle_grace_seconds * 1_000_000)


UNBOUNDED = Caps(responses=0, trees=0, bytes=0, chain_messages=0, idle_seconds=0)


def room(payload: int) -> int:
    """The most bytes that the server may hold for a turn with so many bytes of messages and response.

    Its allocator rounds a block up by at most a quarter.
    """
    return payload + payload // 4 + ROOM_BYTES
