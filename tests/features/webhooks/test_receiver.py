"""The receiver of webhooks: what is asked of it, where, and what of its answer counts."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress

import pytest
import trustme
from aiohttp import web

from service.features.webhooks.deliver import retry_after, sign
from service.features.webhooks.settings import signing_key
from service.process import load_settings
from service.settings.sources import SettingsError
from store.turn import Status
from tests.support.waiting import until
from tests.support.webhooks.desk import SECRET, Desk, unwrapped
from tests.support.webhooks.inbox import Answer, endless, inbox, status

ENDS = [Status.COMPLETED, Status.FAILED, Status.INCOMPLETE, Status.CANCELLED]
LONG_SECONDS = 30.0


def test_the_signature_is_that_of_the_standard() -> None:
    signature = sign(signing_key(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("end", ENDS)
async def test_the_official_client_takes_the_event_from_what_is_delivered(desk: Desk, end: Status) -> None:
    id = await desk.end(status=end)
    async with inbox() as box, desk.delivering(box.url) as delivering:
        await delivering.settled()
    (letter,) = box.letters
    event = unwrapped(letter)
    assert type(event).__name__ == f"Response{end.capitalize()}WebhookEvent"
    assert (event.type, event.object, event.data.id) == (f"response.{end}", "event", id)
    assert abs(event.created_at - int(letter.headers["webhook-timestamp"])) < 60
    assert (letter.path, letter.headers["content-type"]) == ("/hook", "application/json")
    assert await desk.waiting() == 0


@pytest.mark.parametrize("code", [302, 308])
async def test_nobody_is_asked_where_a_receiver_points_to(desk: Desk, code: int) -> None:
    await desk.end()
    async with inbox() as box, inbox("127.0.0.2") as inside:
        box.answers = [status(code, location=inside.url)]
        async with desk.delivering(box.url) as delivering:
            await delivering.settled(2)
    assert (delivering.delivered, delivering.failed, inside.letters) == (1, 1, [])


def test_a_pause_is_read_as_seconds_or_a_date_within_bounds() -> None:
    known = {"7": 7, "999999999": 3600, "9" * 400: 3600, "": 0, "-5": 0, "1.5": 0, "soon": 0}
    known |= {"Fri, 20 Nov 2026 00:00:30 GMT": 30, "Thu, 19 Nov 2026 00:00:00 GMT": 0}
    known |= {"Fri, 20 Nov 99999999999999999999 00:00:30 GMT": 0}
    assert {header: retry_after(header, now=1_795_132_800.0) for header in known} == known


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433"])
async def test_a_private_receiver_is_never_asked_unless_that_is_allowed(
    desk: Desk, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await desk.end()
    async with inbox() as box, desk.delivering(box.at(host), privately=False) as delivering:
        await delivering.settled()
    assert (box.letters, delivering.delivered) == ([], 0)
    reasons = {each.__dict__["fields"]["reason"] for each in caplog.records if "fields" in each.__dict__}
    assert any("not a public address; private+ before HARMONIUM_WEBHOOK_URL" in reason for reason in reasons)


async def test_a_name_that_leads_inward_is_not_followed(desk: Desk) -> None:
    async def found(host: str, port: int) -> list[str]:
        assert host == "hooks.example.com"
        return ["::ffff:127.0.0.1"]

    await desk.end()
    async with inbox() as box:
        url, given = box.at("hooks.example.com"), {"look_up": found}
        async with desk.delivering(url, privately=False, given=given) as delivering:
            await delivering.settled(2)
    assert (box.letters, delivering.delivered) == ([], 0)


async def test_a_name_is_looked_up_once_for_each_delivery_and_that_is_where_it_goes(desk: Desk) -> None:
    found = iter([["127.0.0.1"], ["127.0.0.2"]])

    async def rebinding(host: str, port: int) -> list[str]:
        return next(found)

    await desk.end()
    async with (
        inbox() as box,
        inbox("127.0.0.2", box.port) as inside,
        desk.delivering(box.at("rebound.example"), given={"look_up": rebinding}) as delivering,
    ):
        await delivering.settled()
        assert (len(box.letters), len(inside.letters)) == (1, 0)
        await desk.end()
        await delivering.settled(2)
    assert (len(box.letters), len(inside.letters), delivering.delivered) == (1, 1, 2)


async def test_a_proxy_of_the_environment_is_not_asked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.end()
    async with inbox() as box, inbox("127.0.0.2") as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.2:{proxy.port}")
        async with desk.delivering(box.url) as delivering:
            await delivering.settled()
    assert (len(box.letters), proxy.letters) == (1, [])


async def stalled(request: web.Request) -> web.StreamResponse:
    """The head of an answer, and no more."""
    await web.StreamResponse().prepare(request)
    await asyncio.Event().wait()
    raise AssertionError("nobody wakes it")


@pytest.mark.parametrize("answer", [endless, stalled])
async def test_an_answer_without_end_is_not_read_to_it(desk: Desk, answer: Answer) -> None:
    await desk.end()
    async with inbox() as box:
        box.answers = [answer]
        async with desk.delivering(box.url, given={"seconds": LONG_SECONDS}) as delivering:
            await delivering.settled()
            await until(lambda: not box.under_way)
    assert delivering.delivered == 1


HEADS: dict[str, Callable[[], bytes]] = {
    "more and more lines": lambda: b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000,
    "a line without end": lambda: b"HTTP/1.1 200 OK\r\nx: " + b"y" * 1_000_000,
    "one that is always about to come": lambda: b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000,
    "another protocol": lambda: b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "no HTTP": lambda: bytes(range(256)) * 4_000,
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("head", HEADS)
async def test_an_answer_whose_head_does_not_end_is_none(desk: Desk, head: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):
            writer.write(HEADS[head]())
            await writer.drain()
            await reader.read()  # until it is left
        writer.close()

    await desk.end()
    talker = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with talker:
        url = f"http://127.0.0.1:{talker.sockets[0].getsockname()[1]}/"
        async with desk.delivering(url, given={"seconds": 0.5}) as delivering:
            await delivering.settled()
    assert (delivering.delivered, delivering.given_up, await desk.waiting()) == (0, 0, 1)


@pytest.mark.parametrize(
    ("host", "trusts", "delivered"),
    [("hooks.example.com", True, 1), ("other.example.com", True, 0), ("hooks.example.com", False, 0)],
)
async def test_a_certificate_must_be_that_of_the_host_in_the_url_and_vouched_for(
    desk: Desk, host: str, trusts: bool, delivered: int
) -> None:
    authority, served = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("hooks.example.com").configure_cert(served)
    trusted = ssl.create_default_context()
    if trusts:
        authority.configure_trust(trusted)

    async def found(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    await desk.end()
    given = {"look_up": found, "tls": trusted}
    async with inbox(tls=served) as box, desk.delivering(box.at(host), given=given) as delivering:
        await delivering.settled()
    assert (delivering.delivered, len(box.letters)) == (delivered, delivered)


def test_a_url_that_nobody_can_be_asked_at_is_refused_at_the_start() -> None:
    for url, reason in (
        ("ftp://hooks.example.com/", "should be a URL"),
        ("https://user:word@hooks.example.com/", "should have no user"),
        ("https://hooks.example.com:99999/", "should be a URL whose port is a number up to 65535"),
    ):
        with pytest.raises(SettingsError, match=f"--webhook-url: {reason}"):
            load_settings(webhook_url=url, webhook_secret=SECRET)
