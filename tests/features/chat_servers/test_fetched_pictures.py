"""Pictures at URLs of http: which are fetched, how much of them, and what a client is told of those that aren't."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from aiohttp import web
from openai import BadRequestError

from service.api.content import IMAGE
from service.process import Settings
from tests.core.background.test_steering import accepted, successor_of
from tests.features.chat_servers.test_pictures import CAT, DOG, HELLO, TOOL, Seeing, seeing
from tests.support.chat.standin import Say, answer, spoken, stall
from tests.support.pictures import gif, png, said, url_of
from tests.support.search.services import served
from tests.support.service.background import ended
from tests.support.waiting import until


class Site(NamedTuple):
    """A site with pictures."""

    url: str
    asked: Counter[str]
    """How often each path was asked for."""
    gate: asyncio.Event
    """Opens what is slow."""

    def at(self, path: str) -> dict[str, Any]:
        return {"type": "input_image", "image_url": f"{self.url}/{path}"}

    def said(self, *paths: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": [self.at(path) for path in paths]}]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    asked, gate = Counter[str](), asyncio.Event()
    found: dict[str, tuple[bytes, dict[str, str]]] = {
        "cat.png": (CAT, {"content-type": "image/png"}),
        "dog": (DOG, {"content-type": "text/html; charset=nonsense"}),
        "page": (b"<html>", {"content-type": "image/png"}),
        "packed": (CAT, {"content-encoding": "gzip"}),
        "vast": (gif(65_535, 65_535), {}),
        "large": (png(comment=bytes(4_000)), {}),
        "empty": (b"", {}),
    }

    async def get(request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        asked[path] += 1
        if path == "to":
            return web.Response(status=302, headers={"location": request.query["url"]})
        if path == "slow":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(CAT[:9])
            await gate.wait()
            return response
        if path not in found:
            raise web.HTTPNotFound
        return web.Response(body=found[path][0], headers=found[path][1])

    application = web.Application()
    application.router.add_get("/{path}", get)
    async with served(application) as url:
        yield Site(url.replace("127.0.0.1", "localhost"), asked, gate)
        gate.set()


@asynccontextmanager
async def fetching(settings: Settings, site: Site, *answers: Say, **more: Any) -> AsyncIterator[Seeing]:
    """A service that fetches pictures from localhost alone."""
    hosts = ("localhost",)
    named: dict[str, Any] = (
        {"allowed_private_hosts": hosts} | more | {"pictures": {"urls": hosts} | more.get("pictures", {})}
    )
    async with seeing(settings, *answers, **named) as asked:
        yield asked


async def test_a_picture_is_fetched_once_and_shown_listed_and_stored_as_if_it_had_been_sent(
    settings: Settings, site: Site
) -> None:
    async with fetching(settings, site) as asked:
        first = await asked.ask(site.said("cat.png", "dog", "cat.png"))
        assert asked.shown() == [url_of(CAT), url_of(DOG), url_of(CAT)]
        await asked.ask("And?", first)
        assert asked.shown()[:3] == [url_of(CAT), url_of(DOG), url_of(CAT)]
        assert await asked.listed(first.id) == [url_of(CAT), url_of(DOG), url_of(CAT)]
        assert len(await asked.kept()) == 2
        await asked.client.responses.delete(first.id)
    assert site.asked == {"cat.png": 1, "dog": 1}


async def test_a_background_response_has_its_picture_by_the_time_it_is_accepted(settings: Settings, site: Site) -> None:
    async with fetching(settings, site) as asked:
        accepted = await asked.ask(site.said("cat.png"), background=True)
        assert site.asked == {"cat.png": 1}
        await ended(asked.client, accepted.id)
        assert asked.shown() == [url_of(CAT)]


async def test_outputs_of_functions_and_items_by_hand_show_pictures_at_urls(settings: Settings, site: Site) -> None:
    async with fetching(settings, site) as asked:
        conversation = await asked.client.conversations.create(items=site.said("cat.png"))
        await asked.ask("What is it?", conversation=conversation.id)
        assert asked.shown() == [url_of(CAT), "What is it?"]
        call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "c", "output": [site.at("dog")]}
        await asked.ask(["Look.", call, output][1:], tools=[TOOL])
        assert asked.shown()[-1] == url_of(DOG)
        with pytest.raises(BadRequestError) as refused:
            await asked.client.conversations.items.create(conversation.id, items=site.said("none"))
        assert refused.value.param == "items[0].content[0].image_url"


async def test_other_dialects_show_pictures_at_urls_and_a_known_history_is_not_fetched_again(
    settings: Settings, site: Site
) -> None:
    async with fetching(settings, site, chats="remember") as asked, asked.service.http() as http:
        image = {"type": "image_url", "image_url": {"url": f"{site.url}/cat.png"}}
        words: list[Any] = [{"role": "user", "content": [image]}]
        await asked.client.chat.completions.create(model="llama-4", messages=words)
        assert asked.shown() == [url_of(CAT)]
        words += [{"role": "assistant", "content": "A cat."}, {"role": "user", "content": "And?"}]
        await asked.client.chat.completions.create(model="llama-4", messages=words)
        assert asked.shown() == [url_of(CAT), "A cat.", "And?"]
        assert site.asked == {"cat.png": 1}
        content = [{"type": "image", "source": {"type": "url", "url": f"{site.url}/dog"}}]
        body = {"model": "llama-4", "max_tokens": 50, "messages": [{"role": "user", "content": content}]}
        assert (await http.post("/v1/messages", json=body)).status_code == 200
        assert asked.shown() == [url_of(DOG)]
        content[0]["source"]["url"] = f"{site.url}/none"
        refused = await http.post("/v1/messages", json=body)
        assert (refused.status_code, "messages[0].content[0].source" in refused.text) == (400, True)


FAILURES = {
    "none": ("failed_to_download_image", "HTTP 404"),
    "packed": ("failed_to_download_image", "compressed"),
    "large": ("failed_to_download_image", "bytes"),
    "to?url=http://127.0.0.1:1/": ("failed_to_download_image", "not in an allowed domain"),
    "to?url=/to%3Furl%3Dftp://localhost/x": ("failed_to_download_image", "not an http"),
    "to?url=to": ("failed_to_download_image", "HTTP 500"),
    "page": ("invalid_image", "no PNG"),
    "empty": ("invalid_image", "no PNG"),
    "vast": ("invalid_image", "65,535 x 65,535 pixels"),
}


@pytest.mark.parametrize("path", FAILURES)
async def test_a_picture_that_cannot_be_taken_is_refused_with_the_reason(
    settings: Settings, site: Site, path: str
) -> None:
    async with fetching(settings, site, pictures={"bytes": 2_000}) as asked:
        with pytest.raises(BadRequestError) as refused:
            await asked.ask([*said("Look"), *site.said("cat.png", path)])
        assert (refused.value.code, refused.value.param) == (FAILURES[path][0], "input[1].content[1].image_url")
        assert FAILURES[path][1] in refused.value.message
        assert await asked.kept() == []
        assert asked.server.chats == []


async def test_an_allowed_host_with_a_private_address_is_refused_without_that(settings: Settings, site: Site) -> None:
    async with fetching(settings, site, allowed_private_hosts=()) as asked:
        with pytest.raises(BadRequestError, match="no public address") as refused:
            await asked.ask(site.said("cat.png"))
        assert not {"127.0.0.1", "::1"} & set(refused.value.message.split())
    assert not site.asked


@pytest.mark.parametrize("urls", [(), ("other.example",)])
async def test_a_url_of_another_host_is_refused_for_a_model_that_sees_and_leaves_a_line_for_others(
    settings: Settings, site: Site, urls: tuple[str, ...]
) -> None:
    async with fetching(settings, site, pictures={"urls": urls}) as asked:
        with pytest.raises(BadRequestError) as refused:
            await asked.ask(site.said("cat.png"))
        assert (refused.value.code, refused.value.param) == ("invalid_image_url", "input[0].content[0].image_url")
    async with fetching(settings, site, pictures={"urls": urls}, sees=False) as asked:
        raw = await asked.client.responses.with_raw_response.create(model="llama-4", input=site.said("cat.png"))
        assert raw.headers["x-harmonium-items-left-out"] == "input_image"
        assert asked.shown() == [IMAGE]
    assert not site.asked


async def test_nothing_is_fetched_for_a_model_that_does_not_see(settings: Settings, site: Site) -> None:
    async with fetching(settings, site, sees=False) as asked:
        raw = await asked.client.responses.with_raw_response.create(model="llama-4", input=site.said("cat.png", "none"))
        assert raw.headers["x-harmonium-items-left-out"] == "input_image"
        assert asked.shown() == [f"{IMAGE}\n{IMAGE}"]
    assert not site.asked


async def test_a_tenant_over_its_limit_has_nothing_fetched_and_what_reserves_nothing_counts_where_it_fetches(
    settings: Settings, site: Site
) -> None:
    limits = {"max_requests_per_1_minute": 2}
    async with fetching(settings, site, tenant_limits=limits) as asked, asked.service.http() as http:
        conversation = await asked.client.conversations.create()
        asking = {"model": "llama-4", "input": site.said("cat.png")}
        items = f"/v1/conversations/{conversation.id}/items"
        bodies = {"/v1/responses": asking, "/v1/responses/input_tokens": asking, items: {"items": asking["input"]}}
        statuses = [(await http.post(path, json=body)).status_code for path, body in [*bodies.items()] * 2]
        assert statuses == [200, 200, 429, 429, 429, 429]
        unread = await http.post("/v1/responses/input_tokens", json={"model": "llama-4", "input": "Hi"})
        assert unread.status_code == 200
    assert site.asked == {"cat.png": 2}


async def test_a_successor_whose_picture_is_fetched_takes_the_place_of_the_one_before(
    settings: Settings, site: Site
) -> None:
    limits, says = {"max_parallel_responses": 1}, (lambda _: [*spoken(HELLO), stall], lambda _: answer(HELLO))
    async with fetching(settings, site, *says, tenant_limits=limits) as asked:
        id = (await asked.ask("Hi", background=True)).id
        await until(lambda: asked.server.chats)
        await accepted(asked.service, id, site.said("cat.png"))
        await ended(asked.client, await successor_of(asked.client, id))
        assert asked.shown()[-1] == url_of(CAT)


async def test_any_host_may_be_allowed(settings: Settings, site: Site) -> None:
    async with fetching(settings, site, pictures={"urls": ("*",)}) as asked:
        await asked.ask(site.said(f"to?url={site.url}/cat.png"))
        assert asked.shown() == [url_of(CAT)]


async def test_too_many_urls_are_refused_before_any_is_fetched(settings: Settings, site: Site) -> None:
    async with fetching(settings, site, pictures={"request": 3}) as asked:
        with pytest.raises(BadRequestError, match="Too many pictures") as refused:
            await asked.ask([*said(DOG), *site.said("cat.png", "cat.png", "cat.png")])
    assert refused.value.code == "too_many_images"
    assert not site.asked


async def test_slow_pictures_are_given_up_and_their_room_is_free_again(
    settings: Settings, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.process.FETCHED_BYTES", 10 << 20)
    async with fetching(settings, site) as asked:
        with monkeypatch.context() as hasty:
            hasty.setattr("service.responses.pictures.FETCH_SECONDS", 0.3)
            for _ in range(3):
                with pytest.raises(BadRequestError, match=r"more than 0\.3 s") as refused:
                    await asked.ask(site.said("slow"))
                assert refused.value.code == "failed_to_download_image"
        await asked.ask(site.said("cat.png"))


async def test_requests_wait_for_room_for_what_is_fetched(
    settings: Settings, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.process.FETCHED_BYTES", 10 << 20)
    monkeypatch.setattr("service.responses.pictures.ROOM_SECONDS", 0.2)
    async with fetching(settings, site) as asked, asked.service.http() as http:
        body = {"model": "llama-4", "input": site.said("slow")}
        asking = [asyncio.create_task(http.post("/v1/responses", json=body)) for _ in range(4)]
        await until(lambda: sum(task.done() for task in asking) == 2)
        site.gate.set()
        answers = await asyncio.gather(*asking)
    refused = [each.text for each in answers if each.status_code == 503]
    assert len(refused) == 2
    assert all("fetches too many pictures" in text for text in refused)
    assert site.asked["slow"] == 2


async def test_an_unknown_file_id_is_refused_by_name(settings: Settings) -> None:
    image = {"type": "input_image", "file_id": "file_1", "detail": "low"}
    async with seeing(settings) as asked, asked.client.responses.connect() as socket:
        for more in ({}, {"image_url": url_of(CAT)}):
            with pytest.raises(BadRequestError, match="no file with this id") as refused:
                await asked.ask([*said("Look"), {"role": "user", "content": [image | more]}])
            assert (refused.value.code, refused.value.param) == ("invalid_value", "input[1].content[0].file_id")
        conversation = await asked.client.conversations.create()
        with pytest.raises(BadRequestError) as refused:
            await asked.client.conversations.items.create(conversation.id, items=[{"role": "user", "content": [image]}])
        assert refused.value.param == "items[0].content[0].file_id"
        await socket.response.create(model="llama-4", input=[{"role": "user", "content": [image]}])
        async for event in socket:
            assert event.type == "error"
            assert event.to_dict()["error"]["param"] == "input[0].content[0].file_id"
            break
