"""The store against a plain dict of turns: whatever is appended, forked, read, pinned and forgotten, both agree.

After every step the keys in Redis must add up (audit.py) and the leaves stand in the order of their last use, which is
what eviction will go by. The model shares no code with the store.
"""

import asyncio
import uuid
from dataclasses import dataclass, field

import pytest
from audit import complaints, dump
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sample import TENANT, said, turn

from store.connection import connect
from store.errors import Conflict, NotContinuable, NotFound, ParentNotFound
from store.history import ConversationHistoryStore
from store.turn import Status

STEPS = 40


@dataclass
class Stored:
    """A turn as the model keeps it; `used` counts uses of the whole store, so that it orders them."""

    parent: str | None
    status: Status
    used: int
    deleted: bool = False
    pins: set[str] = field(default_factory=set)


class Model(RuleBasedStateMachine):
    """Rules that do the same to both sides. A turn that is gone from `turns` must be unknown to the store."""

    url: str
    ids = Bundle("ids")
    pins = Bundle("pins")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.run = self.runner.run
        self.prefix = f"test-{uuid.uuid4().hex}"
        self.redis = connect(self.url)
        self.store = ConversationHistoryStore(connect(self.url), prefix=self.prefix)
        self.turns: dict[str, Stored] = {}
        self.uses = 0

    def teardown(self) -> None:
        self.run(self.redis.aclose())
        self.run(self.store.close())
        self.runner.close()

    def use(self) -> int:
        self.uses += 1
        return self.uses

    def readable(self, id: str) -> bool:
        return id in self.turns and not self.turns[id].deleted

    def children(self, id: str) -> list[str]:
        return [child for child, stored in self.turns.items() if stored.parent == id]

    def path(self, id: str) -> list[str]:
        above = self.turns[id].parent
        return [*(self.path(above) if above else []), id]

    def prune(self, id: str | None) -> None:
        while id is not None:
            stored = self.turns[id]
            if not stored.deleted or stored.pins or self.children(id):
                return
            del self.turns[id]
            if stored.parent is not None and not self.children(stored.parent):
                parent = self.turns[stored.parent]
                parent.used = max(parent.used, stored.used)
            id = stored.parent

    @rule(target=ids, status=st.sampled_from(Status))
    def append_a_root(self, status: Status) -> str:
        id = self.store.new_id()
        self.run(self.store.append(TENANT, turn(id, text=id, status=status)))
        self.turns[id] = Stored(None, status, self.use())
        return id

    @rule(target=ids, parent=ids, status=st.sampled_from([Status.COMPLETED, Status.COMPLETED, *Status]))
    def append_a_child(self, parent: str, status: Status) -> str:
        return self.append(parent, status, None)

    @rule(target=ids, pinned=pins)
    def append_a_child_with_a_pin(self, pinned: tuple[str, str]) -> str:
        return self.append(pinned[0], Status.COMPLETED, pinned[1])

    def append(self, parent: str, status: Status, pin: str | None) -> str:
        id = self.store.new_id(parent)
        appending = self.store.append(TENANT, turn(id, parent, text=id, status=status), pin=pin)
        if not self.readable(parent) and (parent not in self.turns or pin not in self.turns[parent].pins):
            with pytest.raises(ParentNotFound):
                self.run(appending)
        elif self.turns[parent].status is Status.FAILED:
            with pytest.raises(NotContinuable):
                self.run(appending)
        else:
            self.run(appending)
            self.turns[id] = Stored(parent, status, self.use())
            self.turns[parent].pins.discard(pin or "")
        return id

    @rule(id=ids)
    def append_again(self, id: str) -> None:
        if id in self.turns:
            stored = self.turns[id]
            self.run(self.store.append(TENANT, turn(id, stored.parent, text=id, status=stored.status)))
            with pytest.raises(Conflict):
                self.run(self.store.append(TENANT, turn(id, stored.parent, text="other")))

    @rule(id=ids)
    def read_a_chain(self, id: str) -> None:
        if not self.readable(id):
            with pytest.raises(ParentNotFound):
                self.run(self.store.chain(TENANT, id))
        elif self.turns[id].status is Status.FAILED:
            with pytest.raises(NotContinuable):
                self.run(self.store.chain(TENANT, id))
        else:
            assert self.run(said(self.store, id)) == self.path(id)
            self.turns[id].used = self.use()

    @rule(target=pins, id=ids)
    def pin(self, id: str) -> tuple[str, str]:
        if not self.readable(id) or self.turns[id].status is Status.FAILED:
            return id, "0" * 24
        chain = self.run(self.store.chain(TENANT, id, pin=True))
        assert chain.pin is not None
        self.turns[id].pins.add(chain.pin)
        self.turns[id].used = self.use()
        return id, chain.pin

    @rule(pinned=pins)
    def unpin(self, pinned: tuple[str, str]) -> None:
        id, pin = pinned
        self.run(self.store.unpin(TENANT, id, pin))
        if id in self.turns:
            self.turns[id].pins.discard(pin)
            self.prune(id)

    @rule(id=ids)
    def read_a_response(self, id: str) -> None:
        if self.readable(id):
            assert self.run(self.store.get(TENANT, id)) == turn(id, text=id).response
            self.turns[id].used = self.use()
            assert list(self.run(self.store.lineage(TENANT, id))) == self.path(id)
        else:
            with pytest.raises(NotFound):
                self.run(self.store.get(TENANT, id))
            with pytest.raises(NotFound):
                self.run(self.store.lineage(TENANT, id))

    @rule(id=ids)
    def forget(self, id: str) -> None:
        if self.readable(id):
            self.run(self.store.forget(TENANT, id))
            self.turns[id].deleted = True
            self.prune(id)
        else:
            with pytest.raises(NotFound):
                self.run(self.store.forget(TENANT, id))

    @invariant()
    def usage_is_the_model_s(self) -> None:
        usage = self.run(self.store.usage(TENANT))
        deleted = [stored.deleted for stored in self.turns.values()]
        roots = [id for id, stored in self.turns.items() if stored.parent is None]
        assert (usage.responses, usage.tombstones, usage.trees) == (deleted.count(False), sum(deleted), len(roots))

    @invariant()
    def keys_add_up_and_leaves_stand_in_the_order_of_use(self) -> None:
        assert self.run(complaints(self.redis, self.prefix)) == []
        scores = self.run(dump(self.redis, self.prefix)).get(f"{self.prefix}:{{00}}:leaves", {})
        stored = [f"resp_{member.decode().split('/')[1]}" for member in sorted(scores, key=lambda m: scores[m])]
        leaves = [id for id in self.turns if not self.children(id)]
        assert stored == sorted(leaves, key=lambda id: self.turns[id].used)


def run_model(url: str, examples: int) -> None:
    """Let the machine take `examples` walks of at most STEPS steps over the server at `url`."""
    machine = type("Walk", (Model,), {"url": url})
    limits = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    run_state_machine_as_test(machine, settings=limits)


@pytest.mark.timeout(600)  # passes in seconds; the rest is for shrinking what fails
def test_the_store_behaves_like_a_plain_dict_of_turns(server_url: str) -> None:
    run_model(server_url, examples=15)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("lost_replies")
def test_the_store_behaves_the_same_where_every_command_is_sent_twice(server_url: str) -> None:
    run_model(server_url, examples=5)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_store_behaves_like_a_plain_dict_of_turns_for_long(server_url: str) -> None:
    run_model(server_url, examples=500)
