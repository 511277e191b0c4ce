"""A program whose processes kill themselves at a chosen step of what they do, as a crash there would.

It reads orders as lines of JSON (mortals.py), gives each to a new process of its own, and writes that one's id.
"""

import asyncio
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from service import app
from service.api.conversation import New
from service.background.control import cancel, steer
from service.background.tasks import Background
from service.engine.port import Between, Engine, Generation, Take
from service.entrance import Entry
from service.errors import InvalidRequest
from service.features.archive import feature as archiving
from service.features.browser.search import web
from service.features.demo.engine import DemoEngine
from service.features.mcp import session, transports
from service.features.sandbox import remote
from service.harmony.tokens import decode
from service.process import Settings, load_settings, open_service
from service.responses import edit_conversation as by_hand
from service.responses.conversation_hold import joining
from service.responses.make import NO_KEY
from service.responses.service import Caller, Service
from service.settings.core import DEFAULT_TENANT
from service.web import idempotency
from store.backup.archiving.store_archive import StoreArchive
from tests.support.archive.steps import ARCHIVING, ASKING, NOTING, tell_of_steps
from tests.support.chaos.inside import CARD, queue, respond
from tests.support.chaos.watched import watched
from tests.support.service.inside import serving

IMPORTED_ONCE = (remote, session, transports, web)
"""What a service imports when it has tools, and each process of this program would."""

CALLER = Caller(Entry(DEFAULT_TENANT))

STEPS = (
    "claimed",  # and not yet begun
    "writing",  # the first entry, which says that it began
    "written",
    "writing again",  # in the middle of the answer
    "written again",
    "finishing",
    "finished",  # nothing is left to do
    "handing back",
    "handed back",
    "cancelling",  # by an API, before it has said so
    "cancelled",  # and after that, before the response is closed
)
"""The steps of a job at which one may die; of those that end in `again`, the second time."""

STEERED_STEPS = (
    "steering",  # by an API, before it is accepted
    "steered",  # and after that, before it has said so
    "claimed",  # by a worker that was told of it
    "finishing",  # which knows of nothing that was said
    "told of steers",
    "succeeding",  # the one ends and the other begins
    "succeeded",
)
"""The steps of a job that is steered while it waits."""

CALL_STEPS = (
    "noting a call",  # in the log, before its tool is called
    "calling",
    "opening",  # of code: the session of its container
    "opened",  # before the store knows of the container
    "recorded",
    "running",  # the sandbox is asked for the cell
    "ran",
    "called",
    "keeping an outcome",  # in the log, with what its item shows
    "kept an outcome",
)
"""The steps of a call of a tool."""

KEYED_STEPS = (
    "taking",  # a request with a key, of which nothing is known
    "taken",
    "naming",  # before it is known as what it will be stored
    "named",
    "ending",  # stored, and not known to be
    "ended",  # and not answered
)
"""The steps of a request with an Idempotency-Key, between which its response is made and stored."""

LIMITED_STEPS = (
    "admitting",
    "admitted",  # what it may take is reserved
    "appending",
    "appended",  # stored, and not settled
    "settling",
    "settled",  # and nobody knows it here
)
"""The steps of a response in the foreground that is within limits."""

QUEUED_STEPS = (
    "submitting",  # what it may take is reserved
    "submitted",
    "finishing",
    "finished",
    "settling",
    "settled",
)
"""The same of one in the background, which the process that dies takes up itself."""

KEYED_SECONDS = 2.0
"""For how long a process of this program may be silent, until others make what it was asked for with a key."""


AT_THE_END = {
    *CALL_STEPS,
    *("finishing", "finished", "using up", "used up", "adding", "added"),
    *("appending", "appended", "appending again", "appended again", "counting", "counted"),
    *("ending", "ended", "settling", "settled"),
    *(ARCHIVING, NOTING, ASKING),
}
UNHURRIED_TOKENS_PER_SECOND = 5
"""How quickly one answers that dies before its end, however long a busy machine holds it up."""

POISON = "poison"
"""A word that no engine of this program survives."""

QUESTION = "Count to 5."
"""What a process adds to a conversation."""


SAID = "Be brief."
STEER = json.dumps({"input": SAID}).encode()
"""What a process says to a response."""


def die() -> None:
    """End as by a power cut."""
    os.kill(os.getpid(), signal.SIGKILL)


class Death:
    """The step at which this process dies."""

    def __init__(self, step: str, after: float, times: int = 1) -> None:
        """It dies within so many seconds after the step, when it comes to that for the time with this number."""
        self._step = step.removesuffix(" again")
        self._left = 2 if step.endswith(" again") else times
        self._after = after
        self._hands_back = step.startswith("hand")
        self.leave = asyncio.Event()
        """Set once a worker is to leave, which is a step too."""

    async def at(self, step: str) -> None:
        if step == "written" and self._hands_back:
            self.leave.set()
        if step != self._step:
            return
        self._left -= 1
        if not self._left and self._after:
            asyncio.get_running_loop().call_later(random.uniform(0, self._after), die)
        elif not self._left:
            die()


class PoisonedEngine(DemoEngine):
    """A demo engine that a word kills, and the whole process with it."""

    async def sample(self, generation: Generation, take: Take, between: Between) -> None:
        if POISON in decode(generation.prompt):
            die()
        await super().sample(generation, take, between)


async def work(service: Service, death: Death) -> None:
    background = Background(service, works=True)
    working = asyncio.create_task(background.run())
    await death.leave.wait()
    background.stop()
    await working


async def add(service: Service, conversation: str, item: object) -> None:
    """Add an item to a conversation by hand; one that can't be added is refused."""
    try:
        sent = msgspec.Raw(json.dumps([item]).encode())
        await by_hand.add_items(service, CALLER, conversation, sent, NO_KEY.name, tell=lambda tools, items: None)
    except InvalidRequest:
        assert item != asked()


def asked() -> object:
    return {"role": "user", "content": QUESTION}


async def omit(service: Service, conversation: str) -> None:
    """Delete the first item of a conversation."""
    async with joining(service, DEFAULT_TENANT, conversation) as joined:
        turns = await service.conversations.lineage(DEFAULT_TENANT, conversation)
        ((_, items),) = await service.store.items(DEFAULT_TENANT, turns[:1])
        first = msgspec.json.decode(items)[0]["id"]
        await by_hand.omit_item(service.conversations, joined, DEFAULT_TENANT, turns, first)


async def fork(service: Service, source: str) -> None:
    """Begin a conversation with all that another one has."""
    new = New(msgspec.Raw(b"null"), {}, source)
    await by_hand.begin(service, CALLER, new, NO_KEY.name, tell=lambda tools, items: None)


async def serve(settings: Settings, port: int, engine: Engine, death: Death) -> None:
    def opened(*given: Any) -> Service:
        return watched(open_service(*given), death.at)

    app.open_service, idempotency.KEYED_LEASES = opened, KEYED_SECONDS / settings.lease_seconds
    async with serving(settings, engine, port=port):
        await asyncio.Event().wait()


async def carry_out(order: dict[str, Any]) -> None:
    """Do what is ordered, to the step at which this process dies."""
    settings, step, about = load_settings(**order["settings"]), order["step"], order["about"]
    hurries = not step or step in AT_THE_END
    speed = settings.demo_tokens_per_second if hurries else UNHURRIED_TOKENS_PER_SECOND
    death, engine = Death(step, order["after"], order["times"]), PoisonedEngine(CARD, speed)
    open_archive = archiving.open_store_archive

    def opened(*given: Any) -> StoreArchive | None:
        if (archive := open_archive(*given)) is not None:
            tell_of_steps(archive, death.at)
        return archive

    archiving.open_store_archive = opened
    service = watched(open_service(settings, engine), death.at)
    await engine.start()
    deeds: dict[str, Callable[[], Awaitable[object]]] = {
        "work": lambda: work(service, death),
        "cancel": lambda: cancel(service, DEFAULT_TENANT, about),
        "steer": lambda: steer(service, CALLER.entry, about, STEER),
        "respond": lambda: respond(service, QUESTION, about),
        "queue": lambda: queue(service, QUESTION, about),
        "add": lambda: add(service, about, asked()),
        "add what can't be": lambda: add(service, about, {"type": "compaction_trigger"}),
        "omit": lambda: omit(service, about),
        "fork": lambda: fork(service, about),
        "read": lambda: service.store.chain(DEFAULT_TENANT, about),
        "forget": lambda: service.store.forget(DEFAULT_TENANT, about),
        "forget a tree": lambda: service.store.forget_tree(DEFAULT_TENANT, about),
        "serve": lambda: serve(settings, int(about), engine, death),
    }
    await deeds[order["deed"]]()
    if order["times"] > 1:  # it came to the step less often: to die when all is done is to die after the last one
        die()
    await asyncio.Event().wait()  # it dies soon, or whoever ordered it waits in vain


def main() -> None:
    """Carry out orders until there are no more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the dead
    for line in sys.stdin:
        order = json.loads(line)
        if child := os.fork():
            print(child, flush=True)
            continue
        try:
            asyncio.run(carry_out(order))
        except Exception:
            traceback.print_exc()
        signal.pause()  # nobody takes for dead at a step what ended otherwise


if __name__ == "__main__":
    main()
