"""The response that a request continues, with its history, kept from being evicted until the end of a run.

request ─▶ named by it, or recognised by its words ─▶ the chain, pinned ─▶ Continuation
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from itertools import chain as chain_of
from typing import NamedTuple

import msgspec

from service import spans
from service.api.items import CONFIGURATION, Configuration
from service.api.outcome import ASKED, waiting
from service.api.request import CreateRequest
from service.decoding import ABSENT
from service.harmony.calls import CUT_CALL, pair
from service.harmony.pictures import with_pictures
from service.responses.conversation_hold import ConversationHold, joining
from service.responses.plan import CONTAINER
from service.responses.prompt.drafts import LOADED
from service.responses.prompt.read import NOTHING_SET
from service.responses.refusals import unstored_parent
from service.responses.running import ELSEWHERE_SECONDS
from service.responses.seen import Seen
from service.responses.service import Caller, Service
from service.shares import aside
from service.steps import in_steps
from store.errors import NotContinuable, ParentNotFound, StoreUnavailable
from store.keys import digits_of
from store.turn import PICTURES, Chain, Picture, Status, StoredMessage

SERVER = "mcp_server"
"""The role of a note that a conversation has shown the tools of a server."""


class Remembered(msgspec.Struct, frozen=True):
    """A response, by the chain that it ends, with the pictures of that where it isn't stored. `size` is about how many
    bytes of memory that takes.
    """

    chain: Chain
    stored: bool
    size: int
    pictures: tuple[Picture, ...] = ()

    @property
    def id(self) -> str | None:
        return self.chain.tip


Recall = Callable[[str], Remembered | None]
"""The look-up of a remembered response by its id."""


class Parent:
    """The response that a request continues, if it does, and the pin that keeps its history until the end of a run.

    A pin is released once: with the store of the next turn, or else where it was taken.
    """

    def __init__(
        self,
        chain: Chain,
        standing: Configuration = NOTHING_SET,
        *,
        remembers: bool = False,
        pictures: tuple[Picture, ...] = (),
    ) -> None:
        """`standing` is the configuration in effect in the conversation that a request continues; `remembers` is
        whether its history stays in memory for the request after this one, and `pictures` are those of it that aren't
        stored.
        """
        self.id = chain.tip
        self.pin = chain.pin
        self._remembers = remembers
        self.pictures = pictures
        self._messages, self._notes = chain.part()
        notes = self._notes
        if PICTURES in notes:
            self._messages = with_pictures(chain_of.from_iterable(chain.turns))
        self.servers = frozenset(note.name for note in notes.get(SERVER, ()))
        """The servers whose tools the conversation has shown."""
        self.waiting = waiting(notes) if ASKED in notes else []
        """The requests for approval that wait in the conversation."""
        self.cut_calls = notes.get(CUT_CALL, [])
        """The notes of its calls that were cut short."""
        self.responses = chain.ids
        """The responses of the conversation, oldest first."""
        self.loaded = [(note.name or "[]").encode() for note in notes.get(LOADED, ())]
        """The lists of tools that searches found in it, the oldest first."""
        self.container = (notes[CONTAINER][-1].name or None) if CONTAINER in notes else None
        """The container in which the conversation last ran code."""
        self.disarming: list[StoredMessage] = []
        """The notes by which nobody who continues the next turn finds what that has not inherited."""
        self.root = chain.ids[0] if chain.ids else None
        """The first response of the conversation."""
        self.cut = chain.cut
        """Whether messages of the conversation are left out, or were erased."""
        self.standing = standing
        self.chain = chain
        """The conversation so far, where it is remembered."""

    def disarm(self, containers: Collection[str]) -> None:
        """Let go of all that acts: whoever is known by words alone answers no request for approval, and runs nothing in
        the conversation's container, unless its client has the id of that among these. So do those who go on from it.
        """
        self.disarming = [each.answer_note for each in self.waiting]
        self.waiting = []
        if self.container is not None and self.container not in containers:
            self.disarming.append(StoredMessage(CONTAINER, b"", name=""))
            self.container = None

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
            self.chain, self._notes = Chain(), {}
        return pair(messages) if self.cut else messages

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
        yield Parent(remembered.chain, remembers=True, pictures=remembered.pictures)
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


class Continuation(NamedTuple):
    """A request with its parent."""

    request: CreateRequest
    """It names its parent, and its input begins behind what the conversation has, also where it was recognised."""
    parent: Parent
    joined: ConversationHold | None = None
    """The conversation that the response will be added to."""
    recognised: bool = False
    said: bytes = b""
    """The digest of all that its client has said by now, where conversations are recognised."""
    together: str = ""
    """The name of the conversations that are in one shard with this one."""


async def continuation_of(
    service: Service, caller: Caller, request: CreateRequest, resources: AsyncExitStack, recall: Recall | None
) -> Continuation:
    """A request with its parent, kept as long as its `resources`: the one that it names, or the one by whose words it
    begins, or none. Raises ApiError, StoreError.
    """
    tenant, seen, recogniser = caller.tenant, None, service.recogniser
    if recogniser is not None and _names_nothing(request):
        with _passing_over(request):
            opener = await service.seals.of(tenant)
            seen = await in_steps(recogniser.see(opener, request, caller.entry.key, caller.user))
    if seen is None:
        parent, joined = await _named_parent(service, tenant, request, resources, recall)
        return Continuation(request, parent, joined)
    together, known = f"{tenant}/{seen.beginning}", None
    if seen.ends:
        with _passing_over(request):
            known = await _recognise(service, tenant, seen, together, resources, recall)
    parent, place = known or (Parent(Chain(), remembers=recall is not None), 0)
    said = seen.said if seen.claims < place else b""
    if known is None:
        return Continuation(request, parent, said=said, together=together)
    rest = await in_steps(seen.rest(place, parent.calls()))
    request = msgspec.structs.replace(request, previous_response_id=parent.id, input=rest, begins_at=place)
    return Continuation(request, parent, recognised=True, said=said, together=together)


def _names_nothing(request: CreateRequest) -> bool:
    """Whether a request may bring its whole history: it names nothing that it continues, and no template."""
    named = (request.previous_response_id, request.conversation, request.prompt, request.continuation_id)
    return all(each is None for each in named) and request.previous_input_messages == ABSENT and request.generate


@contextmanager
def _passing_over(request: CreateRequest) -> Generator[None, None, None]:
    """Passes over a store that is away for a request that needs none: with its whole history, and not to be stored."""
    try:
        yield
    except StoreUnavailable:
        if request.store:
            raise


async def _named_parent(
    service: Service, tenant: str, request: CreateRequest, resources: AsyncExitStack, recall: Recall | None
) -> tuple[Parent, ConversationHold | None]:
    """The parent that a request names, and the conversation that its response will be added to. One that isn't stored
    reads its conversation, and is not added. Waits for the end of one that is being made. Raises StoreError.
    """
    id, remembers = request.conversation, recall is not None
    if id is not None:
        joined = await resources.enter_async_context(joining(service, tenant, id)) if request.store else None
        with spans.current.get().child("store.chain"):
            chain = await service.conversations.chain(tenant, id)
        return Parent(chain, configuration_of(chain), remembers=remembers), joined
    before = request.previous_response_id
    remembered = recall(before) if recall is not None and before is not None else None
    if before is None:
        return Parent(Chain(), remembers=remembers), None
    if remembered is not None and not remembered.stored:
        if request.store:
            raise unstored_parent(before)
        service.store.refuse_long(remembered.chain)
    if remembered is None and not await service.running.ended(tenant, before):
        raise NotContinuable(before, Status.IN_PROGRESS)
    with spans.current.get().child("store.chain"):
        for pause in (*ELSEWHERE_SECONDS, None):
            kept = continuing(service, tenant, before, remembered, remembers=remembers)
            try:
                return await resources.enter_async_context(kept), None
            except ParentNotFound:
                if pause is None or not service.store.ids.made(digits_of(before)):
                    raise
            async with aside.get()():
                await asyncio.sleep(pause)
    raise ParentNotFound(before)


async def _recognise(
    service: Service, tenant: str, seen: Seen, together: str, resources: AsyncExitStack, recall: Recall | None
) -> tuple[Parent, int] | None:
    """The response by whose words a history begins, without what acts, and the place of the first item behind them.
    Raises StoreUnavailable.
    """
    with spans.current.get().child("store.recognise") as span:
        known = None
        digests = [digest for digest, _ in seen.ends]
        found = await service.store.recognise(tenant, together, digests, forks=seen.is_named)
        if found is not None:
            number, id = found
            async with AsyncExitStack() as kept:
                try:
                    parent = await kept.enter_async_context(
                        continuing(service, tenant, id, remembers=recall is not None)
                    )
                except (ParentNotFound, NotContinuable):  # it was deleted meanwhile, or is too long
                    parent = None
                if parent is not None and not parent.cut:
                    resources.push_async_exit(kept.pop_all())
                    parent.disarm(seen.containers)
                    known = parent, seen.ends[number][1]
        share = known[1] / len(seen.items) if known is not None else 0.0
        service.metrics.recognised_ratio.observe(share)
        span.note({"harmonium.recognised.ratio": share})
    return known
