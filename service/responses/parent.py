"""The response that a request continues, with its history, kept from being evicted until the end of a run."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from service.api.approval import waiting
from service.api.items import CONFIGURATION, Configuration
from service.harmony.calls import pair
from service.responses.plan import CONTAINER
from service.responses.prompt.drafts import LOADED
from service.responses.prompt.read import NOTHING_SET
from service.responses.remembered import Remembered
from service.responses.service import Service
from store.turn import Chain, StoredMessage

SERVER = "mcp_server"
"""The role of a note that a conversation has shown the tools of a server."""


class Parent:
    """The response that a request continues, if it does, and the pin that keeps its history until the end of a run.

    A pin is released once: with the store of the next turn, or else where it was taken.
    """

    def __init__(self, chain: Chain, standing: Configuration = NOTHING_SET, *, remembers: bool = False) -> None:
        """`standing` is the configuration in effect in the conversation that a request continues; `remembers` is
        whether its history stays in memory for the request after this one.
        """
        self.id = chain.tip
        self.pin = chain.pin
        self._remembers = remembers
        self._messages, self._notes = chain.part()
        notes = self._notes
        self.servers = frozenset(note.name for note in notes.get(SERVER, ()))
        """The servers whose tools the conversation has shown."""
        self.waiting = waiting(notes)
        """The requests for approval that wait in the conversation."""
        self.responses = chain.ids
        """The responses of the conversation, oldest first."""
        self.loaded = [(note.name or "[]").encode() for note in notes.get(LOADED, ())]
        """The lists of tools that searches found in it, the oldest first."""
        self.container = notes[CONTAINER][-1].name if CONTAINER in notes else None
        """The container in which the conversation last ran code."""
        self.root = chain.ids[0] if chain.ids else None
        """The first response of the conversation."""
        self.cut = chain.cut
        """Whether messages of the conversation are left out, or were erased."""
        self.standing = standing
        self._chain = chain

    def notes(self, role: str) -> list[StoredMessage]:
        """The notes of this role in the conversation so far. Ask before its history is taken."""
        return self._notes.get(role, [])

    def calls(self) -> list[str]:
        """The ids of the client's calls in the conversation so far, oldest first. Ask before its history is taken."""
        made = (each for each in self._messages if each.role == "assistant" and each.recipient is not None)
        return [each.call_id for each in made if each.call_id is not None]

    def take_history(self) -> list[StoredMessage]:
        """The messages of the conversation so far, oldest first. They are let go of here: take them once."""
        messages, self._messages = self._messages, []
        if not self._remembers:
            self._chain, self._notes = Chain(), {}
        return pair(messages) if self.cut else messages

    @property
    def chain(self) -> Chain:
        """The conversation so far, where it is remembered."""
        return self._chain

    def released(self) -> None:
        """The pin went with the turn that was stored."""
        self.pin = None


@asynccontextmanager
async def continuing(
    service: Service, tenant: str, id: str, remembered: Remembered | None = None, *, remembers: bool = False
) -> AsyncGenerator[Parent, None]:
    """The response `id`, pinned until the end of the block: it can be continued even if somebody deletes it meanwhile.
    Where it is `remembered`, it is read only if messages of its tree were erased; one that isn't stored has no pin.

    Raises ParentNotFound, NotContinuable, ChainTooLong, StoreUnavailable.
    """
    if remembered is not None and not remembered.stored:
        yield Parent(remembered.chain, remembers=True)
        return
    store, pin = service.store, service.store.token()

    read = partial(store.chain, tenant, id, pin=pin)

    async def pin_known(known: Chain) -> Chain:
        return await read() if await store.pin(tenant, id, pin) else msgspec.structs.replace(known, pin=pin)

    take = read if remembered is None else partial(pin_known, remembered.chain)
    async with service.loans.on_loan(take, partial(store.unpin, tenant, id, pin)) as loan:
        parent = Parent(loan.taken, remembers=remembers)
        try:
            yield parent
        finally:
            loan.over = parent.pin is None


def configuration_of(chain: Chain) -> Configuration:
    """The settings that a conversation with this chain has by now."""
    found = Configuration()
    for note in chain.notes().get(CONFIGURATION, ()):
        found = found.then(msgspec.json.decode(note.name or "{}", type=Configuration))
    return found
