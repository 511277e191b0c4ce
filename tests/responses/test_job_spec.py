"""A request as a job: what a worker is asked is what this process would have asked, and the parent stays pinned."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace
from starlette.types import Message

from service.api.events import Event, ResponseCreated
from service.api.items import MessageItem
from service.api.request import CreateRequest, read_create
from service.engine.engines import Engines, Member
from service.harmony import tokens
from service.harmony.render import message
from service.loans import Loans
from service.metrics.counters import make_metrics
from service.pacing import Pacing
from service.process import open_tenants
from service.responses.append import AppendSink
from service.responses.drive import Driver, machine_of
from service.responses.output.next_step import next_generation
from service.responses.plan import Plan, decode, encode
from service.responses.prepare import Prepared, prepare
from service.responses.run import Taken
from service.responses.seal import Seals
from service.responses.service import Caller, Service
from service.settings.settings import Settings
from service.tools.toolbox import Toolbox, no_server
from service.web.admission.slots import Admission
from service.web.event_stream import StreamedRun
from service.web.exchange import Admitted, Exchange
from store.errors import ParentNotFound
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.turn import Status, Turn
from tests.support.engine.scripted import ScriptedEngine
from tests.support.service.inside import answer, scripted
from tests.support.service.process import MODEL
from tests.support.tools.interpreter import Interpreter

ACME = Caller("acme", (("traceparent", "00-1-2-03"),))


@pytest.fixture
async def service(settings: Settings) -> AsyncIterator[Service]:
    """What a request needs up to its job, without HTTP; what comes after that is not there."""
    redis, at = connect(settings.redis_url), 1_700_000_000.5
    store = ConversationHistoryStore(redis, prefix=settings.key_prefix, clock=lambda: at)
    members: dict[str, Any] = dict.fromkeys(Service.__struct_fields__)
    members |= {"settings": settings, "store": store, "loans": (loans := Loans(1.0))}
    members |= {"tenants": open_tenants(settings, store, loans), "seals": Seals(["k" * 32], never_asked)}
    members |= {"engine": Engines([Member(scripted([answer("4")]))])}
    members["toolbox"] = Toolbox({}, (), no_server, allowing="")
    yield Service(**members)
    await store.close()


async def never_asked() -> bytes:
    raise AssertionError("the settings have a key")


def engine_of(service: Service) -> ScriptedEngine:
    return cast(ScriptedEngine, service.engine.members[0].engine)


@asynccontextmanager
async def asked(service: Service, caller: Caller = ACME, **body: Any) -> AsyncGenerator[Prepared]:
    """A request of acme's, planned; its parent is let go of behind the block."""
    request = read_create(msgspec.json.encode({"model": MODEL, "input": "What is 2 + 2?", **body}), store=True)
    async with AsyncExitStack() as resources:
        yield await prepare(service, caller, request, resources)


async def planned(service: Service, **body: Any) -> Plan:
    """The plan of a request of acme's, whose parent is let go of again."""
    async with asked(service, **body) as made:
        return made.plan


def run_of(service: Service, made: Prepared) -> Driver:
    return Driver(
        plan=made.plan,
        machine=machine_of(made.plan),
        finish=AppendSink(service, "acme", made).finish,
        engine=service.engine,
        metrics=make_metrics(),
        mode="plain",
        since=0.0,
        seconds=60.0,
        clock=service.store.clock,
    )


async def ran(service: Service, made: Prepared) -> list[Event]:
    """The events of a run in the foreground."""
    heard = Heard()
    await run_of(service, made).make(heard)
    return heard.events


class Heard:
    """An outlet that keeps all events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def put(self, taken: Taken) -> bool:
        self.events += taken.events
        return True

    async def room(self) -> None:
        """See Outlet."""

    async def settle(self) -> None:
        """See Outlet."""


async def pins(service: Service, id: str) -> int:
    """How many runs hold a response of acme's."""
    key = service.store.keyspace.turn("acme", id).key("pins")
    async with contextlib.aclosing(connect(service.settings.redis_url)) as redis:
        return int(await redis.zcard(key))


async def stored(service: Service) -> str:
    """The id of a response that acme may continue."""
    id = service.store.new_id(None)
    await service.store.append("acme", Turn(id, None, Status.COMPLETED, (message("Hello", "user"),), b"{}"))
    return id


async def test_a_worker_asks_the_engine_what_the_process_that_accepted_it_would(service: Service) -> None:
    tools = [{"type": "function", "name": "lookup", "parameters": {"maximum": 10**30}}]
    body = {"tools": tools, "max_output_tokens": 50, "prompt_cache_key": "k", "temperature": 0.5}
    job = await planned(service, background=True, **body)
    async with asked(service, **body) as made:
        told = await ran(service, made)
    (foreground,), queued = engine_of(service).generations, await decode(await encode(job))
    machine = machine_of(queued)
    machine.queue()
    background = next_generation(queued.generation, machine)
    created = cast(ResponseCreated, told[0]).response

    assert list(background.prompt) == list(foreground.prompt)
    own = {"prompt": [], "id": "", "response": "", "tenant": "acme"}  # whose it is, the lease says
    assert replace(background, **own) == replace(foreground, **own)
    assert foreground.tenant == "acme"
    assert (background.response, foreground.response) == (job.id, created.id)
    assert replace(job.base, id="") == replace(created, id="", background=True)
    assert background.id == job.id
    assert [callee.recipient for callee in job.rules.callees] == ["functions.lookup"]


async def test_a_job_makes_the_turn_that_the_request_would_have_made(service: Service) -> None:
    job = await planned(service)
    async with asked(service) as made:
        told = await ran(service, made)
    chain = await service.store.chain("acme", cast(ResponseCreated, told[0]).response.id)

    assert job.messages == chain.turns[0][:1]
    assert [item["content"][0]["text"] for item in msgspec.json.decode(job.items)] == ["What is 2 + 2?"]


async def test_a_job_keeps_its_parent_pinned_until_it_is_let_go(service: Service) -> None:
    parent = await stored(service)
    async with asked(service, previous_response_id=parent) as made:
        assert (made.plan.parent, made.parent.id) == (parent, parent)
        await service.store.forget("acme", parent)
        turn = Turn(made.plan.id, parent, Status.COMPLETED, made.plan.messages, b"{}")
        await service.store.append("acme", turn, pin=made.parent.pin)
    with pytest.raises(ParentNotFound):
        await service.store.chain("acme", parent)


async def test_a_run_that_was_stored_has_let_go_of_its_parent_once(service: Service) -> None:
    parent = await stored(service)
    async with asked(service, previous_response_id=parent) as made:
        assert await pins(service, parent) == 1
        await ran(service, made)
        assert (await pins(service, parent), made.parent.pin) == (0, None)


async def test_what_was_read_of_a_request_is_let_go_of_once_its_plan_is_made(service: Service) -> None:
    said = "Said by nobody else."
    async with asked(service, input=[{"role": "user", "content": said}]) as made:
        plan = made.plan
        del made
        gc.collect()
        held = [
            each for each in gc.get_objects() if isinstance(each, CreateRequest | MessageItem) and said in str(each)
        ]
        assert (held, said.encode() in plan.items) == ([], True)


@pytest.mark.parametrize("batches", [1, 100])
async def test_a_stream_that_is_over_has_let_go_of_its_parent(service: Service, batches: int) -> None:
    parent, held = await stored(service), contextlib.AsyncExitStack()
    made = await held.enter_async_context(asked(service, previous_response_id=parent, store=False))
    exchange = Exchange({"type": "http", "path": "/v1/responses", "headers": []}, make_metrics(), "POST", "acme")
    work, admission = await Pacing().begin("acme"), Admission(make_metrics(), requests=1, followers=0, bodies=0)
    slot = held.enter_context(admission.slot("acme"))
    answer = StreamedRun(
        run_of(service, made), Admitted(exchange, slot, work, held), service.settings, obfuscate=False, lasts=False
    )
    sent, gone = list[Message](), asyncio.Event()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)
        if len(sent) > batches:
            gone.set()

    await answer({"type": "http"}, receive, send)

    assert await pins(service, parent) == 0


async def test_a_tool_that_the_model_was_trained_with_is_in_the_prompt_and_its_rules(service: Service) -> None:
    known = Interpreter().builtin
    running = msgspec.structs.replace(
        service, toolbox=Toolbox({}, (), no_server, allowing="", back_ends=[Interpreter()])
    )
    include = ["code_interpreter_call.outputs", "reasoning.encrypted_content"]
    plan = await planned(running, tools=[{"type": "code_interpreter"}], include=include)
    back = await decode(await encode(plan))

    assert f"\n\n# Tools\n\n{known.section}\n\n# Valid channels" in tokens.decode(plan.generation.prompt[3:])
    assert back.rules == plan.rules
    assert plan.rules.hosts
    assert plan.rules.include == {"code_interpreter_call.outputs"}
    assert tokens.decode((await planned(service)).generation.prompt[3:]).count("# Tools") == 0


async def test_a_job_says_whether_it_may_be_continued(service: Service) -> None:
    assert (await planned(service)).stored
    assert not (await planned(service, store=False)).stored


async def test_a_job_says_which_key_asked_for_it(service: Service) -> None:
    async with asked(service, Caller("acme", key="key_1"), background=True) as made:
        back = await decode(await encode(made.plan))
    assert back.key == "key_1"
    assert (await planned(service)).key == ""
