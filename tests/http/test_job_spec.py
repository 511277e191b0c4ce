"""A request as a job: what a worker is asked is what this process would have asked, and the parent stays pinned."""

from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from service.api.events import ResponseCreated
from service.api.request import read_create
from service.errors import ApiError
from service.harmony.render import message
from service.responses import course
from service.responses.plan import decode, encode, generation_of, machine_of
from service.responses.prepare import Caller, Creation, Service, begin
from service.responses.read import Limits
from service.responses.rules import Rules
from service.responses.seal import Seals
from service.responses.templates import Templates
from service.settings.settings import Settings
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.turn import Status, Turn
from tests.engine.scripted import ScriptedEngine
from tests.http.inside import answer, scripted
from tests.http.process import MODEL

ACME = Caller("acme", (("traceparent", "00-1-2-03"),))


@pytest.fixture
async def service(settings: Settings) -> AsyncIterator[Service]:
    """What a request needs up to its job, without HTTP; what comes after that is not there."""
    store = ConversationHistoryStore(connect(settings.redis_url), prefix=settings.key_prefix)
    members: dict[str, Any] = dict.fromkeys(Service.__struct_fields__)
    members |= {"settings": settings, "store": store, "engine": scripted([answer("4")]), "limits": Limits()}
    members |= {"seals": Seals(["k" * 32], never_asked), "templates": Templates("")}
    members["clock"] = lambda: 1_700_000_000.5
    yield Service(**members)
    await store.close()


async def never_asked() -> bytes:
    raise AssertionError("the settings have a key")


def engine_of(service: Service) -> ScriptedEngine:
    return cast(ScriptedEngine, service.engine)


async def asked(service: Service, **body: Any) -> Creation:
    """A request of acme's."""
    request = read_create(msgspec.json.encode({"model": MODEL, "input": "What is 2 + 2?", **body}), store=True)
    return await begin(service, ACME, request)


async def stored(service: Service) -> str:
    """The id of a response that acme may continue."""
    id = service.store.new_id(None)
    await service.store.append("acme", Turn(id, None, Status.COMPLETED, (message("Hello", "user"),), b"{}"))
    return id


async def test_a_worker_asks_the_engine_what_the_process_that_accepted_it_would(service: Service) -> None:
    tools = [{"type": "function", "name": "lookup", "parameters": {"maximum": 10**30}}]
    body = {"tools": tools, "max_output_tokens": 50, "prompt_cache_key": "k", "temperature": 0.5}
    job = await (await asked(service, background=True, **body)).spec()
    run = await (await asked(service, **body)).build()
    told = [event async for batch in run.events() for event in batch]
    (foreground,), queued = engine_of(service).generations, await decode(await encode(job))
    machine = machine_of(queued)
    machine.queued()
    background = course.asked(generation_of(queued), machine)
    created = cast(ResponseCreated, told[0]).response

    assert list(background.prompt) == list(foreground.prompt)
    assert replace(background, prompt=[], id="") == replace(foreground, prompt=[], id="")
    assert replace(job.response, id="") == replace(created, id="", background=True)
    assert (background.id, job.id) == (job.response.id, job.response.id)
    assert [callee.recipient for callee in cast(Rules, job.rules).callees] == ["functions.lookup"]


async def test_a_job_makes_the_turn_that_the_request_would_have_made(service: Service) -> None:
    job = await (await asked(service)).spec()
    run = await (await asked(service)).build()
    told = [event async for batch in run.events() for event in batch]
    chain = await service.store.chain("acme", cast(ResponseCreated, told[0]).response.id)

    assert job.messages == chain.turns[0][:1]
    assert [item["content"][0]["text"] for item in msgspec.json.decode(job.items)] == ["What is 2 + 2?"]


async def test_a_job_keeps_its_parent_pinned_until_it_is_let_go(service: Service) -> None:
    creation = await asked(service, previous_response_id=(parent := await stored(service)))
    job = await creation.spec()
    assert (job.parent, creation.parent) == (parent, parent)
    assert creation.pin is not None
    await service.store.forget("acme", parent)
    await service.store.append(
        "acme", Turn(creation.id, parent, Status.COMPLETED, job.messages, b"{}"), pin=creation.pin
    )
    await creation.release()

    assert creation.pin is None


async def test_a_request_that_is_refused_lets_go_of_its_parent(service: Service) -> None:
    creation = await asked(service, previous_response_id=await stored(service), input=[{"type": "nonsense"}])
    with pytest.raises(ApiError):
        await creation.spec()

    assert creation.pin is None


async def test_a_job_says_whether_it_may_be_continued(service: Service) -> None:
    assert (await (await asked(service)).spec()).stored
    assert not (await (await asked(service, store=False)).spec()).stored
