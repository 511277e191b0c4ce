"""Ids: the digits of new ones, which say where a turn is and whether this store has made them.

    a response                          SHARD 2 | TREE 18 | RANDOM 24 | CHECK 4
    what has a mark, as a conversation  SHARD 2 | MARK 12 | TREE 18 | RANDOM 12 | CHECK 4

A turn takes the tree of the one that it continues, so that wherever trees are kept as a whole, each is found by any id
in it without an index. The check is a keyed digest of the rest but the mark, under the store's secret (layout.py): of
65,536 guesses one passes. A process that has not read the secret yet makes random checks.

An id only tells that two turns are of one tree. It is no secret: the tenant decides who may read a turn.
"""

from collections.abc import Callable
from hashlib import blake2b

from store.keys import CONVERSATION_MARK, HEX_DIGITS, NO_RESPONSES, SHARD_DIGITS, Keyspace, mark_of

TREE_DIGITS = 18
"""72 bits: among ten thousand million trees of a tenant two have the same in one case of a hundred, and even then no
turn is taken for another, as each is found by all of its digits."""

CHECK_DIGITS = 4

ENTROPY_BYTES = 27
"""9 for a tree, 12 for a turn, 2 for a check that can't be made yet, 4 for a shard."""

_PERSON = b"harmonium id 1"
"""The digest's purpose, as the same secret has other uses."""


class Ids:
    """Makes the digits of new ids. Reads no clock, and asks no server."""

    def __init__(self, keyspace: Keyspace, entropy: Callable[[int], bytes]) -> None:
        self._keyspace = keyspace
        self._entropy = entropy
        self._secret = b""

    def prove_by(self, secret: bytes) -> None:
        """Have all ids from now on carry a check under the store's secret."""
        self._secret = secret

    @property
    def proves(self) -> bool:
        return bool(self._secret)

    def new(self, beside: str = "", *, mark: str = "", shard: int | None = None, seed: bytes = b"") -> str:
        """The digits of a new id: in the shard and tree of the turn with the digits `beside`, or else in a new tree, in
        `shard` or any. `mark` is that of its kind (keys.py). The same `seed` makes the same id again.
        """
        entropy = blake2b(seed, digest_size=ENTROPY_BYTES).digest() if seed else self._entropy(ENTROPY_BYTES)
        random = entropy.hex()
        if beside:
            place = beside[:SHARD_DIGITS]
        else:
            place = f"{int.from_bytes(entropy[-4:]) % self._keyspace.shards if shard is None else shard:02x}"
        tree = tree_of(beside) if beside else _without_mark(random[:TREE_DIGITS])
        left = HEX_DIGITS - len(place) - len(mark) - TREE_DIGITS - CHECK_DIGITS
        own = random[TREE_DIGITS : TREE_DIGITS + left]
        check = self._check(place, tree, own) if self.proves else random[-CHECK_DIGITS - 8 : -8]
        return place + mark + tree + own + check

    def made(self, digits: str) -> bool:
        """Whether these digits pass the check, as those of every id do that was made with the secret known."""
        at = _behind_mark(digits)
        tree, own = digits[at : at + TREE_DIGITS], digits[at + TREE_DIGITS : -CHECK_DIGITS]
        return self.proves and self._check(digits[:SHARD_DIGITS], tree, own) == digits[-CHECK_DIGITS:]

    def _check(self, shard: str, tree: str, own: str) -> str:
        content = (shard + tree + own).encode()
        return blake2b(content, key=self._secret, digest_size=CHECK_DIGITS // 2, person=_PERSON).hexdigest()


def tree_of(digits: str) -> str:
    """The part of a turn's digits that it has in common with its tree."""
    at = _behind_mark(digits)
    return digits[at : at + TREE_DIGITS]


def with_mark(digits: str, mark: str) -> str:
    """The digits of a turn with another mark: in the same tree, and with the same check."""
    return digits[:SHARD_DIGITS] + mark + digits[SHARD_DIGITS + len(CONVERSATION_MARK) :]


def _behind_mark(digits: str) -> int:
    return SHARD_DIGITS + len(CONVERSATION_MARK) * (mark_of(digits) in NO_RESPONSES)


def _without_mark(tree: str) -> str:
    """A random tree, which is no mark: as text, every mark begins with a letter, and none with a digit of 0."""
    return "0" + tree[1:] if tree.startswith(NO_RESPONSES) else tree
