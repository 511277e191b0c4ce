"""What the model of the store (model.py) knows of conversations: begun, held, moved, forked, listed, and deleted.

A conversation is a turn below its tip there, too, so what the model says of eviction, idle trees and deletion holds for
it. Runs hold it by pins.
"""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, invariant, rule

from store.errors import (
    ChainTooLong,
    ConversationHeld,
    ConversationMoved,
    ConversationNotFound,
    NotContinuable,
    NotFound,
    ParentNotFound,
    StoreFull,
)
from store.history.conversations import Conversations
from store.keys import conversation_id, id_of
from store.turn import Status, Turn
from tests.support.store.model import TENANTS, Model, Stored, pictured
from tests.support.store.sample import turn

HELD_SECONDS = 600.0
RUNS = (1, 2)
"""So many runs want the same conversation."""
"""The names of two runs that want the same conversations."""


Creating = Callable[[Turn], Coroutine[Any, Any, None]]
"""Begins a conversation in the store with a turn."""


def hold_of(id: str, run: int) -> str:
    """What holds a conversation for a run. No two runs have the same, and no run holds two conversations."""
    return blake2b(f"{run} {id}".encode(), digest_size=12).hexdigest()


class ConversationModel(Model):
    """The same rules, and those of conversations, which stand among `turns` as turns that nobody reads."""

    conversations = Bundle("conversations")
    ids = Model.ids

    def __init__(self) -> None:
        super().__init__()
        self.named = Conversations(self.store)
        self.began: list[str] = []

    def node(self, id: str) -> str:
        """How `turns` calls a conversation."""
        return id_of(id.removeprefix("conv_"))

    def tip(self, id: str) -> str:
        """The turn at which a conversation stands."""
        return str(self.turns[self.node(id)].parent)

    def make(self, id: str, first: str, parent: str | None, created: Creating) -> bool:
        """Begin a conversation with a turn, on both sides; whether there was room for both."""
        tenant, caps = self.owner_of(first), self.caps
        said = pictured(turn(first, parent, text=first))
        if caps.responses > 1:
            self.caps = replace(caps, responses=caps.responses - 1)  # there are two turns to make room for
        has_room = self.evicts_enough(tenant, trees=parent is None, kept=parent)
        self.caps = caps
        if not has_room:
            with pytest.raises(StoreFull):
                self.run(created(said))
            return False
        self.run(created(said))
        root = first if parent is None else self.turns[parent].root
        self.turns[first] = Stored(parent, root, Status.COMPLETED, 0, tenant=tenant)
        self.turns[self.node(id)] = Stored(first, root, Status.COMPLETED, 0, tenant=tenant)
        self.use(first)
        self.turns[self.node(id)].used = self.uses
        self.began.append(id)
        return True

    @rule(target=conversations, tenant=st.sampled_from(TENANTS))
    def begin(self, tenant: str) -> tuple[str, str]:
        id, first = self.named.new_id(), self.store.new_id()
        self.owners |= {self.node(id): tenant, first: tenant}
        self.make(id, first, None, lambda said: self.named.create(tenant, id, said, b"{}"))
        return id, first

    @rule(conversation=conversations, run=st.sampled_from(RUNS))
    def hold(self, conversation: tuple[str, str], run: int) -> None:
        id, node, hold = conversation[0], self.node(conversation[0]), hold_of(conversation[0], run)
        holding = self.named.hold(self.owner_of(node), id, hold, HELD_SECONDS)
        if not self.readable(node):
            with pytest.raises(ConversationNotFound):
                self.run(holding)
        elif self.turns[node].pins - {hold}:
            with pytest.raises(ConversationHeld):
                self.run(holding)
        else:
            self.run(holding)
            self.turns[node].pins.add(hold)
            self.use(node)

    @rule(conversation=conversations, run=st.sampled_from(RUNS))
    def release(self, conversation: tuple[str, str], run: int) -> None:
        id, node, hold = conversation[0], self.node(conversation[0]), hold_of(conversation[0], run)
        self.run(self.named.release(self.owner_of(node), id, hold))
        if node in self.turns:
            self.turns[node].pins.discard(hold)
            self.prune(node)

    @rule(target=ids, conversation=conversations, run=st.sampled_from(RUNS), stale=st.booleans())
    def advance(self, conversation: tuple[str, str], run: int, stale: bool) -> str:
        (id, first), node, hold = conversation, self.node(conversation[0]), hold_of(conversation[0], run)
        new, tenant = self.store.new_id(), self.owner_of(node)
        self.owners[new] = tenant
        parent = first if stale or node not in self.turns else self.tip(id)
        advancing = self.named.advance(tenant, id, pictured(turn(new, parent, text=new)), hold=hold)
        if refusal := self.bars(node, parent, hold):
            with pytest.raises(refusal):
                self.run(advancing)
        elif self.gone(self.turns[node].root) or self.too_long(parent):
            with pytest.raises(ParentNotFound if self.gone(self.turns[node].root) else ChainTooLong):
                self.run(advancing)
            self.let_go(id, parent, hold)
        else:
            self.move(id, parent, new, hold, advancing)
        return new

    def bars(self, node: str, parent: str, hold: str) -> type[Exception] | None:
        """Why a run that began at `parent` can't add to a conversation, if it can't."""
        if node not in self.turns or self.turns[node].deleted:
            return ConversationNotFound
        if self.turns[node].parent != parent or self.turns[node].pins - {hold}:
            return ConversationMoved
        return None

    def move(self, id: str, parent: str, new: str, hold: str, advancing: Coroutine[Any, Any, None]) -> None:
        """Add a turn, on both sides; what is held or continued stays while there is made room for it."""
        node = self.node(id)
        for each in (node, parent):
            self.turns[each].pins.add(hold)
        has_room = self.evicts_enough(self.owner_of(new), trees=0, kept=parent)
        if not has_room:
            with pytest.raises(StoreFull):
                self.run(advancing)
            self.let_go(id, parent, hold)
            return
        self.run(advancing)
        self.turns[new] = Stored(parent, self.turns[parent].root, Status.COMPLETED, 0, tenant=self.owner_of(new))
        self.turns[node].parent = new
        self.use(new)
        self.turns[node].used = self.uses
        for each in (node, parent):
            self.turns[each].pins.discard(hold)

    def let_go(self, id: str, parent: str, hold: str) -> None:
        """End what a refused run holds, for its second is not over yet."""
        node = self.node(id)
        self.run(self.named.release(self.owner_of(node), id, hold))
        self.run(self.store.unpin(self.owner_of(node), parent, hold))
        for each in (node, parent):
            self.turns[each].pins.discard(hold)
        self.prune(parent)

    @rule(target=conversations, conversation=conversations)
    def fork(self, conversation: tuple[str, str]) -> tuple[str, str]:
        return self.fork_of(conversation[0], self.node(conversation[0]))

    @rule(target=conversations, id=ids)
    def fork_a_response(self, id: str) -> tuple[str, str]:
        return self.fork_of(id, id)

    def fork_of(self, source: str, node: str) -> tuple[str, str]:
        tenant = self.owner_of(node)
        id, first = self.named.new_id(source), self.store.new_id()
        self.owners |= {self.node(id): tenant, first: tenant}
        refusal: type[Exception] | None = None
        if not self.readable(node):
            refusal = NotFound
        elif not self.continuable(node):
            refusal = NotContinuable
        elif self.too_long(node):
            refusal = ChainTooLong
        if refusal is not None:
            with pytest.raises(refusal):
                self.run(self.named.branch(tenant, source, self.named.history.token()))
            return id, first
        chain = self.run(self.named.branch(tenant, source, self.named.history.token()))
        parent, pin = str(chain.tip), str(chain.pin)
        assert list(chain.ids) == [each for each in self.path(node) if self.is_turn(each)]
        self.use(node)
        self.turns[parent].pins.add(pin)
        made = self.make(id, first, parent, lambda said: self.named.create(tenant, id, said, b"{}", pin=pin))
        if not made:
            self.run(self.store.unpin(tenant, parent, pin))
        self.turns[parent].pins.discard(pin)
        self.prune(parent)
        return id, first

    def is_turn(self, id: str) -> bool:
        return conversation_id(id.removeprefix("resp_")) not in self.began

    @rule(conversation=conversations)
    def read(self, conversation: tuple[str, str]) -> None:
        id, node = conversation[0], self.node(conversation[0])
        tenant = self.owner_of(node)
        if not self.readable(node):
            for reading in (self.named.get, self.named.chain, self.named.lineage):
                with pytest.raises(ConversationNotFound):
                    self.run(reading(tenant, id))
            return
        turns = self.path(node)[:-1]
        messages = self.run(self.named.chain(tenant, id)).messages()
        self.use(node)
        words = [message.tokens.rstrip(b"\0").decode() for message in messages]
        assert words == [each for each in turns if not self.turns[each].erased]
        assert list(self.run(self.named.lineage(tenant, id))) == turns

    @rule(conversation=conversations)
    def delete(self, conversation: tuple[str, str]) -> None:
        id, node = conversation[0], self.node(conversation[0])
        deleting = self.named.delete(self.owner_of(node), id)
        if self.readable(node):
            self.run(deleting)
        else:
            with pytest.raises(ConversationNotFound):
                self.run(deleting)
        if node in self.turns and not self.gone(self.turns[node].root):
            self.turns[node].deleted = True
            self.prune(node)

    @rule(id=ids)
    def expire_a_tree(self, id: str) -> None:
        """One in which a conversation stands is never idle."""
        root = self.turns[id].root if id in self.turns else None
        nodes = [self.turns[self.node(each)] for each in self.began if self.node(each) in self.turns]
        if not any(node.root == root and not node.deleted for node in nodes):
            super().expire_a_tree(id)

    @invariant()
    def conversations_are_listed_in_the_order_in_which_they_began(self) -> None:
        for tenant in TENANTS:
            known = [id for id in self.began if self.readable(self.node(id)) and self.owner_of(self.node(id)) == tenant]
            for ascending in (True, False):
                listed = self.run(self.named.listing(tenant, ascending=ascending).some(200))
                found = [each.id for each in listed if each.shown is not None]
                assert found == (known if ascending else known[::-1])
