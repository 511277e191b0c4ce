"""The store as a plain dict of turns, and rules that do the same to both: append, fork, read, pin, forget, erase,
expire and evict. Both have to agree, victims included, of three tenants that share the caps.

After every step the keys in Redis must add up (audit.py), and the leaves of each tenant stand in the order of their
last use, which is what eviction goes by. The model shares no code with the store. Only the cap on bytes isn't modelled
(test_caps.py). What it knows of jobs is in model_jobs.py.
"""

import asyncio
import math
import uuid
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from redis.asyncio import Redis

from store.errors import ChainTooLong, Conflict, NotContinuable, NotFound, NotTerminal, ParentNotFound, StoreFull
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.keys import is_conversation
from store.redis.connection import connect
from store.turn import CONTINUABLE, TERMINAL, Status, Turn, digest_of
from tests.support.store.audit import complaints, dump
from tests.support.store.counted import usage
from tests.support.store.sample import TENANT, said, set_use, turn, with_pictures, with_words
from tests.support.store.servers import sweep

STEPS = 40
ENDED = sorted(TERMINAL)
TENANTS = (TENANT, "globex", "initech")
WORDS = [blake2b(b"%d" % number, digest_size=16).digest() for number in range(3)]
"""The words of turns that are stored at once."""

CAPS = {
    "no caps": Caps(responses=0, bytes=0, idle_grace_seconds=0, touch_seconds=0),
    "responses": Caps(responses=4, idle_grace_seconds=0, touch_seconds=0),
    "trees": Caps(trees=2, idle_grace_seconds=0, touch_seconds=0),
    "both": Caps(responses=5, trees=3, idle_grace_seconds=0, touch_seconds=0),
}


PICTURES = (b"cat" * 100, b"dog" * 200)
SHOWN = ((), PICTURES[:1], PICTURES[1:], PICTURES)
"""The pictures that turns show, by their ids."""


def shown_by(id: str) -> tuple[bytes, ...]:
    """The pictures of a turn."""
    return SHOWN[int(id[-2], 16) % len(SHOWN)] if not is_conversation(id) else ()


def pictured(turn: Turn) -> Turn:
    """The turn with its pictures, which others show, too."""
    return with_pictures(turn, *shown_by(turn.id))


def spoken(id: str, parent: str | None, status: Status) -> Turn:
    """A turn with words that others have, too."""
    return with_words(pictured(turn(id, parent, text=id, status=status)), WORDS[int(id[-1], 16) % len(WORDS)])


@dataclass
class Stored:
    """A turn as the model keeps it; `used` counts uses of the whole store, so that it orders them."""

    parent: str | None
    root: str
    status: Status
    used: int
    tenant: str = TENANT
    under_way: bool = False
    fleeting: bool = False
    deleted: bool = False
    erased: bool = False
    pins: set[str] = field(default_factory=set)


class Model(RuleBasedStateMachine):
    """Rules that do the same to both sides. A turn that is gone from `turns` must be unknown to the store."""

    url: str
    caps: Caps
    ids = Bundle("ids")
    pins = Bundle("pins")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.run = self.runner.run
        self.prefix = f"test-{uuid.uuid4().hex}"
        self.redis = cast(Redis, connect(self.url))
        self.store = ConversationHistoryStore(
            connect(self.url), prefix=self.prefix, caps=self.caps, timeout_seconds=15.0
        )
        self.turns: dict[str, Stored] = {}
        self.trees: dict[str, int] = {}  # by root, when any of their turns was used last
        self.expired: set[str] = set()  # roots of trees that nobody knows any more
        self.uses = 0
        self.owners: dict[str, str] = {}
        self.speakers: dict[tuple[str, bytes], list[str]] = {}  # by tenant and words, those that had these together

    def teardown(self) -> None:
        self.run(sweep(self.redis, self.prefix))
        self.run(self.redis.aclose())
        self.run(self.store.close())
        self.runner.close()

    def owner_of(self, id: str) -> str:
        """Whose a turn is, or was, or was to be."""
        return self.owners.get(id, TENANT)

    def use(self, id: str) -> None:
        self.uses += 1
        self.turns[id].used = self.trees[self.turns[id].root] = self.uses
        self.expired.discard(self.turns[id].root)  # it may have been, with a job in it

    def at_work(self, root: str) -> bool:
        """Whether a tree has a job."""
        return any(stored.under_way for stored in self.turns.values() if stored.root == root)

    def gone(self, root: str) -> bool:
        return root in self.expired and not self.at_work(root)

    def readable(self, id: str) -> bool:
        return id in self.turns and not self.turns[id].deleted and not self.gone(self.turns[id].root)

    def continuable(self, id: str) -> bool:
        stored = self.turns[id]
        return stored.status in CONTINUABLE and not stored.under_way and not stored.fleeting

    def children(self, id: str) -> list[str]:
        return [child for child, stored in self.turns.items() if stored.parent == id]

    def path(self, id: str) -> list[str]:
        above = self.turns[id].parent
        return [*(self.path(above) if above else []), id]

    def too_long(self, id: str) -> bool:
        """Whether a child of it would have a chain of more turns than may be stored at all."""
        return 0 < self.caps.responses <= len(self.path(id))

    def leaves(self, root: str | None = None) -> list[str]:
        """The leaves, of one tree or of all, least recently used first."""
        found = [id for id in self.turns if not self.children(id) and root in (None, self.turns[id].root)]
        return sorted((id for id in found if not self.turns[id].under_way), key=lambda id: self.turns[id].used)

    def remove(self, id: str) -> str | None:
        """Take a leaf away; its parent."""
        stored = self.turns.pop(id)
        if stored.parent is None:
            del self.trees[id]
            self.expired.discard(id)
        elif not self.children(stored.parent):
            parent = self.turns[stored.parent]
            parent.used = max(parent.used, stored.used)
        return stored.parent

    def prune(self, id: str | None) -> None:
        while id is not None and self.turns[id].deleted and not self.turns[id].pins and not self.children(id):
            id = self.remove(id)

    def evicts_enough(self, tenant: str, trees: int, kept: str | None) -> bool:
        """Take away what stands in the way of one more turn of a tenant, and of so many more trees; whether that was
        enough.
        """

        def goes(id: str) -> bool:
            return id != kept and not self.turns[id].pins

        def tree_goes(root: str) -> bool:
            kept_root = self.turns[kept].root if kept else None
            pinned = any(each.pins for each in self.turns.values() if each.root == root)
            return root != kept_root and not pinned and not self.at_work(root)

        while True:
            readable = sum(not stored.deleted for stored in self.turns.values())
            if 0 < self.caps.trees < len(self.trees) + trees:
                has = Counter(self.turns[root].tenant for root in self.trees)
                over = givers(has + Counter({tenant: trees}), self.caps.trees)
                roots = sorted(filter(tree_goes, self.trees), key=lambda root: self.trees[root])
                theirs = [root for root in roots if self.turns[root].tenant in over]
                theirs = theirs or [root for root in roots if self.turns[root].tenant == tenant]
                victims = [id for root in theirs for id in self.leaves(root)]
            elif 0 < self.caps.responses < readable + 1:
                has = Counter(stored.tenant for stored in self.turns.values() if not stored.deleted) + Counter([tenant])
                over = sorted(givers(has, self.caps.responses), key=lambda each: self.rank(each, has, tenant))
                order = [each for each in over if each != tenant or has[each]] + [tenant]
                alive = [id for id in self.leaves() if not self.turns[id].deleted and goes(id)]
                victims = [id for each in order for id in alive if self.turns[id].tenant == each]
            else:
                return True
            if not victims:
                return False
            self.prune(self.remove(victims[0]))

    def rank(self, tenant: str, has: Counter[str], appending: str) -> tuple[int, bool, float]:
        """By what tenants give room in order: who has most, the one that needs it, whose first leaf is the oldest."""
        alive = [self.turns[id] for id in self.leaves() if not self.turns[id].deleted]
        leaves = [each.used for each in alive if each.tenant == tenant]
        return -has[tenant], tenant != appending, min(leaves, default=math.inf)

    @rule(target=ids, tenant=st.sampled_from(TENANTS), status=st.sampled_from(ENDED))
    def append_a_root(self, tenant: str, status: Status) -> str:
        id = self.store.new_id()
        self.owners[id] = tenant
        self.store_turn(id, None, status, None)
        return id

    @rule(target=ids, parent=ids, status=st.sampled_from([Status.COMPLETED, Status.COMPLETED, *ENDED]))
    def append_a_child(self, parent: str, status: Status) -> str:
        return self.append(parent, status, None)

    @rule(target=ids, pinned=pins)
    def append_a_child_with_a_pin(self, pinned: tuple[str, str]) -> str:
        return self.append(pinned[0], Status.COMPLETED, pinned[1])

    def append(self, parent: str, status: Status, pin: str | None) -> str:
        id = self.store.new_id(parent)
        self.owners[id] = self.owner_of(parent)
        appending = self.store.append(self.owner_of(id), spoken(id, parent, status), pin=pin)
        if refusal := self.refusal(parent, pin):
            with pytest.raises(refusal):
                self.run(appending)
        else:
            appending.close()
            self.store_turn(id, parent, status, pin)
        return id

    def refusal(self, parent: str, pin: str | None) -> type[Exception] | None:
        """Why a turn can't have a child, if it can't."""
        stored = self.turns.get(parent)
        if stored is None or self.gone(stored.root) or (stored.deleted and pin not in stored.pins):
            return ParentNotFound
        if not self.continuable(parent):
            return NotContinuable
        return ChainTooLong if self.too_long(parent) else None

    def store_turn(self, id: str, parent: str | None, status: Status, pin: str | None) -> None:
        appending = self.store.append(self.owner_of(id), spoken(id, parent, status), pin=pin)
        if not self.evicts_enough(self.owner_of(id), trees=parent is None, kept=parent):
            with pytest.raises(StoreFull):
                self.run(appending)
            return
        self.run(appending)
        root = id if parent is None else self.turns[parent].root
        self.turns[id] = Stored(parent, root, status, 0, tenant=self.owner_of(id))
        self.use(id)
        self.note_words(spoken(id, parent, status))
        if parent is not None:
            self.turns[parent].pins.discard(pin or "")

    def note_words(self, said: Turn) -> None:
        """A turn was stored with words; without any where it can't be continued."""
        if said.status in CONTINUABLE:
            before = self.speakers.get(words := (self.owner_of(said.id), said.said), [])
            self.speakers[words] = [*(before if any(map(self.has_words, before)) else []), said.id]

    def has_words(self, id: str) -> bool:
        """Whether a turn has the words that it had: nobody deleted it, and no sweep has taken it yet."""
        return id in self.turns and not self.turns[id].deleted

    @rule(id=ids)
    def append_again(self, id: str) -> None:
        if id in self.turns and not self.turns[id].under_way:
            stored = self.turns[id]
            again = pictured(turn(id, stored.parent, text=id, status=stored.status))
            self.run(self.store.append(self.owner_of(id), again))
            with pytest.raises(Conflict):
                self.run(self.store.append(self.owner_of(id), turn(id, stored.parent, text="other")))

    @rule(id=ids)
    def read_a_chain(self, id: str) -> None:
        if not self.readable(id):
            with pytest.raises(ParentNotFound):
                self.run(self.store.chain(self.owner_of(id), id))
        elif not self.continuable(id):
            with pytest.raises(NotContinuable):
                self.run(self.store.chain(self.owner_of(id), id))
        else:
            assert self.run(said(self.store, id, self.owner_of(id))) == [
                each for each in self.path(id) if not self.turns[each].erased
            ]
            self.use(id)

    @rule(target=pins, id=ids)
    def pin(self, id: str) -> tuple[str, str]:
        if not self.readable(id) or not self.continuable(id):
            return id, "0" * 24
        if self.too_long(id):
            with pytest.raises(ChainTooLong):
                self.run(self.store.chain(self.owner_of(id), id, pin=self.store.token()))
            return id, "0" * 24
        chain = self.run(self.store.chain(self.owner_of(id), id, pin=self.store.token()))
        assert chain.pin is not None
        self.turns[id].pins.add(chain.pin)
        self.use(id)
        return id, chain.pin

    @rule(pinned=pins)
    def unpin(self, pinned: tuple[str, str]) -> None:
        id, pin = pinned
        self.run(self.store.unpin(self.owner_of(id), id, pin))
        if id in self.turns:
            self.turns[id].pins.discard(pin)
            self.prune(id)

    @rule(id=ids)
    def read_a_response(self, id: str) -> None:
        if self.readable(id):
            assert self.run(self.store.get(self.owner_of(id), id)) == turn(id, text=id).response
            if not self.turns[id].under_way:
                self.use(id)
            assert list(self.run(self.store.lineage(self.owner_of(id), id))) == self.path(id)
        else:
            with pytest.raises(NotFound):
                self.run(self.store.get(self.owner_of(id), id))
            with pytest.raises(NotFound):
                self.run(self.store.lineage(self.owner_of(id), id))

    @rule(id=ids, erase=st.booleans())
    def forget(self, id: str, erase: bool) -> None:
        if self.readable(id) and self.turns[id].under_way:
            with pytest.raises(NotTerminal):
                self.run(self.store.forget(self.owner_of(id), id, erase=erase))
            return
        if self.readable(id):
            self.run(self.store.forget(self.owner_of(id), id, erase=erase))
        else:
            with pytest.raises(NotFound):
                self.run(self.store.forget(self.owner_of(id), id, erase=erase))
        if id in self.turns and not self.gone(self.turns[id].root):
            self.turns[id].deleted = True
            self.turns[id].erased |= erase
            self.drop_log(id)
            self.prune(id)

    def drop_log(self, id: str) -> None:
        """A turn is deleted, and may stay as a tombstone: its events don't."""

    def take_tree(self, root: str) -> None:
        self.turns = {id: stored for id, stored in self.turns.items() if stored.root != root}
        self.expired.discard(root)
        del self.trees[root]

    @rule(id=ids)
    def forget_a_tree(self, id: str) -> None:
        if self.readable(id) and self.at_work(self.turns[id].root):
            with pytest.raises(NotTerminal):
                self.run(self.store.forget_tree(self.owner_of(id), id))
        elif self.readable(id):
            self.run(self.store.forget_tree(self.owner_of(id), id))
            self.take_tree(self.turns[id].root)
        else:
            with pytest.raises(NotFound):
                self.run(self.store.forget_tree(self.owner_of(id), id))

    @rule(id=ids)
    def expire_a_tree(self, id: str) -> None:
        """Its last use moves to long ago, behind the store's back."""
        if id in self.turns:
            root = self.turns[id].root
            self.expired.add(root)
            self.uses += 1
            self.trees[root] = self.uses - 10**9
            self.run(set_use(self.redis, self.prefix, self.uses, root, tenant=self.owner_of(root)))

    @rule()
    def sweep(self) -> None:
        self.run(self.store.sweep())
        for root in sorted(self.expired, key=lambda root: self.trees[root]):
            if self.at_work(root):  # it counts as used now, so that the sweep comes to the others
                self.uses += 1
                self.trees[root] = self.uses
                self.expired.discard(root)
            else:
                self.take_tree(root)

    @invariant()
    def the_only_turn_with_some_words_is_recognised_by_its_tenant_alone(self) -> None:
        self.speakers = {words: ids for words, ids in self.speakers.items() if any(map(self.has_words, ids))}
        shared = WORDS[self.uses % len(WORDS)]
        for tenant, words in {*[*self.speakers][-2:], *((tenant, shared) for tenant in TENANTS)}:
            ids = self.speakers.get((tenant, words), [])
            found = (0, ids[0]) if len(ids) == 1 and self.readable(ids[0]) and self.continuable(ids[0]) else None
            assert self.run(self.store.recognise(tenant, "key", [words], forks=True)) == found

    @invariant()
    def a_picture_is_there_for_its_tenant_as_long_as_a_turn_shows_it(self) -> None:
        digests = {digest_of(data): data for data in PICTURES}
        for tenant in TENANTS:
            turns = [id for id, each in self.turns.items() if each.tenant == tenant and not each.erased]
            shown = {data for id in turns for data in shown_by(id)}
            found = self.run(self.store.pictures(tenant, f"resp_{'0' * 48}", digests))
            assert found == {digest: data for digest, data in digests.items() if data in shown}

    @invariant()
    def usage_is_the_model_s(self) -> None:
        for tenant in TENANTS:
            used = self.run(usage(self.store, tenant))
            turns = [stored for stored in self.turns.values() if stored.tenant == tenant]
            assert used.tombstones == sum(stored.deleted for stored in turns)
            assert used.responses == len(turns) - used.tombstones
            assert used.trees == sum(stored.parent is None for stored in turns)

    @invariant()
    def keys_add_up_and_leaves_and_trees_stand_in_the_order_of_use(self) -> None:
        assert self.run(complaints(self.redis, self.prefix)) == []
        found = self.run(dump(self.redis, self.prefix))
        alive = [id for id in self.leaves() if not self.turns[id].deleted]
        for tenant in TENANTS:
            leaves = _members(found.get(f"{self.prefix}:{{00}}:leaves:{tenant}", {}))
            assert leaves == [id for id in alive if self.turns[id].tenant == tenant]
        tombstones = _members(found.get(f"{self.prefix}:{{00}}:tombstones", {}))
        assert set(tombstones) == set(self.leaves()).difference(alive)
        roots = sorted(self.trees, key=lambda root: self.trees[root])
        assert _members(found.get(f"{self.prefix}:{{00}}:trees", {})) == roots


def _members(scores: dict[bytes, float]) -> list[str]:
    """The ids in a zset, lowest score first."""
    return [f"resp_{member.decode().rpartition('/')[2]}" for member in sorted(scores, key=lambda m: scores[m])]


def givers(has: Counter[str], cap: int) -> set[str]:
    """The tenants that have more than their share of a cap."""
    return {tenant for tenant, number in has.items() if number > cap / len(has)}


def run_model(kind: type[RuleBasedStateMachine], examples: int, steps: int = STEPS, **own: object) -> None:
    """Let a machine take `examples` walks of at most so many steps, over the server at its `url`."""
    shrinks = set(Phase) if issubclass(kind, Model) else {Phase.generate}
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=shrinks,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(cast(type[RuleBasedStateMachine], type("Walk", (kind,), own)), settings=limits)
