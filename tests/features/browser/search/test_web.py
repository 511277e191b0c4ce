"""Pages of the web: which may be opened, how much of one is read, and what an address leads to."""

import asyncio
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from service.features.browser.browser.page import MAX_URL_CHARS, REST
from service.features.browser.search.fetcher import FetchLimits
from service.features.browser.search.port import SearchFailure
from service.features.browser.search.web import CODECS, DECODED_BYTES, Web, text_of
from tests.support.search.services import served

NAMES = {"tides.example": ["127.0.0.1"], "both.example": ["8.8.8.8", "127.0.0.1"], "meta.example": ["169.254.169.254"]}


async def look_up(host: str, port: int) -> list[str]:
    """Names of a test; an address is its own."""
    if host == "nowhere.example":
        raise OSError("no such name")
    return NAMES.get(host, [host])


PAGES: dict[str, tuple[bytes, dict[str, str]]] = {
    "/": (
        "<title>Café</title><p>High water: <a href=/low>é".encode("latin-1"),
        {"content-type": "text/html; charset=latin-1"},
    ),
    "/meta": ('<meta charset="utf-16le-nonsense"><p>ok ü'.encode(), {}),
    "/odd": ("<p>ok ü".encode(), {"content-type": "text/html; charset*0*=a; charset*=b"}),
    "/text": ("one\n【1†two】".encode(), {"content-type": "text/plain; charset=utf-8"}),
    "/json": (b'{"a": 1}', {"content-type": "application/json"}),
    "/pdf": (b"%PDF", {"content-type": "application/pdf"}),
    "/gzip": (b"x", {"content-encoding": "gzip", "content-type": "text/plain"}),
}


def application(never: asyncio.Event) -> web.Application:
    async def page(request: web.Request) -> web.Response:
        assert request.headers["user-agent"].startswith("harmonium/")
        body, headers = PAGES[request.path]
        return web.Response(body=body, headers={"content-type": "text/html"} | headers)

    async def poured(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/plain"})
        await response.prepare(request)
        while request.path == "/huge":
            await response.write(b"word " * 10_000)
        await response.write(b"x")
        await never.wait()
        return response

    async def to(request: web.Request) -> web.Response:
        again = request.match_info.get("n")
        url = request.query["url"] if again is None else f"/again/{int(again) + 1}"
        return web.Response(status=302, headers={"location": url})

    made = web.Application()
    made.add_routes([web.get(path, page) for path in PAGES])
    made.add_routes([web.get(path, poured) for path in ("/huge", "/slow")])
    made.add_routes([web.get("/to", to), web.get("/again/{n}", to)])
    return made


@pytest.fixture
async def port() -> AsyncIterator[str]:
    never = asyncio.Event()
    async with served(application(never)) as url:
        yield url.rpartition(":")[2]
        never.set()


LIMITS = FetchLimits(seconds=20.0, bytes=200_000)


def opened(*hosts: str, limits: FetchLimits = LIMITS) -> Web:
    """A browser that may go to these hosts, whatever their addresses."""
    return Web(hosts, limits, look_up=look_up)


async def test_a_page_is_its_text_in_its_encoding(port: str) -> None:
    page = await opened("tides.example").page(f"http://tides.example:{port}/#part")

    assert (page.title, page.url) == ("Café", f"http://tides.example:{port}/")
    assert page.text.endswith("High water: 【0†é】")
    assert page.links == (f"http://tides.example:{port}/low",)


@pytest.mark.parametrize(("path", "text"), [("meta", "ok ü"), ("text", "one\n〖1†two〗"), ("json", '{"a": 1}')])
async def test_texts_are_shown_as_they_are(port: str, path: str, text: str) -> None:
    page = await opened("tides.example").page(f"http://tides.example:{port}/{path}")

    assert page.text == f"\nURL: http://tides.example:{port}/{path}\n{text}"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("pdf", "application/pdf"),
        ("gzip", "compressed"),
        ("slow", "longer than"),
        ("missing", "HTTP 404"),
        ("again/0", "redirects more than 5 times"),
        ("to?url=ftp://tides.example/", "not an http"),
        ("to?url=http://user@tides.example/", "not an http"),
        ("to?url=http://127.0.0.1:1/", "no public address"),
        ("to?url=http://meta.example/", "no public address"),
        ("to?url=//[::1]/", "no public address"),
        ("to?url=http://nowhere.example/", "^its host has no public address$"),
        ("to?url=http://8.8.8.8:22/", "port 22, which isn't a port of the web"),
        ("x" * MAX_URL_CHARS, "more than .* characters"),
    ],
)
async def test_what_can_not_be_opened_says_why(port: str, path: str, why: str) -> None:
    limits = msgspec.structs.replace(LIMITS, seconds=0.5) if path == "slow" else LIMITS
    with pytest.raises(SearchFailure, match=why):
        await opened("tides.example", limits=limits).page(f"http://tides.example:{port}/{path}")


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://127.0.0.1:%s/",
            "http://tides.example:%s/",
            "http://both.example:%s/",
            "http://[::ffff:127.0.0.1]:%s/",
            "http://①②⑦.0.0.1:%s/",
        ),
        *("http://10.0.0.1/", "http://169.254.169.254/latest", "http://[fd00::1]/", "http://0.0.0.0:%s/"),
    ],
)
async def test_no_private_address_is_connected_to(port: str, url: str) -> None:
    with pytest.raises(SearchFailure, match="no public address") as failure:
        await opened().page(url.replace("%s", port))
    assert "example" not in url or "127.0" not in str(failure.value), "nobody is told what address a name has"


@pytest.mark.parametrize(
    "url",
    [
        *(
            "file:///etc/passwd",
            "FiLe:///etc/passwd",
            "gopher://x/",
            "tides",
            "",
            "http://",
            "http://x:99999/",
            "data:,x",
        ),
        *("http://x:0/", "http://a@x/", "http://evil.example\\@tides.example/", "//x/", "http:x", "http://\u3002/"),
        f"http://tides.example/{'x' * MAX_URL_CHARS}",
    ],
)
async def test_only_addresses_of_pages_are_asked(url: str) -> None:
    with pytest.raises(SearchFailure):
        await opened().page(url)


async def test_a_type_that_is_none_is_no_reason_to_fail(port: str) -> None:
    assert (await opened("tides.example").page(f"http://tides.example:{port}/odd")).text.endswith("\nok ü")


async def test_an_endless_page_is_read_up_to_its_bound(port: str) -> None:
    page = await opened("tides.example").page(f"http://tides.example:{port}/huge")

    assert LIMITS.bytes - 1_000 < len(page.text) < LIMITS.bytes + len(REST) + 100
    pieces = opened("tides.example", limits=msgspec.structs.replace(LIMITS, pieces=1))
    assert len((await pieces.page(f"http://tides.example:{port}/huge")).text) < LIMITS.bytes - 1_000


async def test_domains_hold_for_what_is_opened_and_for_redirects(port: str) -> None:
    pages = opened("tides.example", "other.example")
    url = f"http://tides.example:{port}/"

    assert (await pages.page(url, ("example",))).title == "Café"
    with pytest.raises(SearchFailure, match="allowed domain"):
        await pages.page(url, ("other.example",))
    with pytest.raises(SearchFailure, match="allowed domain"):
        await pages.page(f"{url}to?url=http://other.example/", ("tides.example",))


async def test_a_host_may_be_named_with_its_port(port: str) -> None:
    assert (await opened(f"tides.example:{port}").page(f"http://tides.example:{port}/")).title == "Café"
    with pytest.raises(SearchFailure, match="no public address"):
        await opened("tides.example:1").page(f"http://tides.example:{port}/")


# --- texts in the encodings of the web, and bytes that are none ---


@pytest.mark.parametrize(
    ("text", "codec", "said"),
    [
        ("Café, 5 €", "cp1252", "ISO-8859-1"),
        ("潮汐", "big5", "big5"),
        ("潮の満ち引き", "cp932", " Shift_JIS"),
        ("Прилив", "koi8_r", "koi8-r"),
        ("Café", "utf-16-le", "utf-16"),
        ("Café", "utf-8", None),
        ("Café", "utf-8", "nonsense"),
    ],
)
def test_a_text_is_read_as_it_was_said(text: str, codec: str, said: str | None) -> None:
    assert text_of(text.encode(codec), said, html=False) == text
    long = text * (DECODED_BYTES // len(text))
    assert text_of(long.encode(codec), said, html=False) == long


def test_html_may_say_it_itself() -> None:
    page = '<meta http-equiv=x content="text/html; charset=koi8-r"><p>Прилив'

    assert text_of(page.encode("koi8-r"), None, html=True).endswith("Прилив")
    assert not text_of(page.encode("koi8-r"), None, html=False).endswith("Прилив")
    assert text_of(b"<meta charset=utf-16>Caf\xc3\xa9", None, html=True).endswith("Café")


@given(st.sampled_from(["utf-7", "unicode_escape", "raw_unicode_escape", *CODECS]), st.binary(max_size=60))
def test_any_bytes_are_a_text_that_can_be_stored(said: str, body: bytes) -> None:
    text = text_of(b"+2AA- \\ud800 \xed\xa0\x80 \x00\xd8" + body, said, html=True)

    assert text.encode().decode() == text


def test_no_encoding_takes_longer_than_its_text() -> None:
    body = b"a" * 150_000 + b"-" + b"a" * 150_000  # 15 s as Python's punycode, and four times that for each doubling
    began = time.process_time()
    text_of(body, "punycode", html=False)

    assert time.process_time() - began < 2.0
