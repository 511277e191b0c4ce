"""Pages of the web: which addresses are allowed, and how much of one is read.

The model names addresses, and pages do by their links and redirects, so any of them may want to lead into the
operator's network. Each is judged anew: its host is resolved once, all its addresses have to be public, and the
connection goes to one of these, whatever the name resolves to a moment later. Only GET, no cookies, nothing compressed.

The encodings are those that browsers know (https://encoding.spec.whatwg.org). A server says which, so it is looked up
here and never among Python's codecs: one of those takes an hour for some megabytes (punycode), others give halves of
characters, which nothing can store (utf-7, unicode_escape).
"""

import asyncio
import codecs
import re
import socket
from collections.abc import Collection
from typing import Any, NamedTuple

import aiohttp
import msgspec
from yarl import URL

from service.browser.html import html_page
from service.browser.page import MAX_URL_CHARS, SOURCE, Page, text_page
from service.build import this_build
from service.pinned import Pinned
from service.search.port import SearchFailure, is_within, rest
from service.search.services import BROKEN
from service.ssrf import ForbiddenAddress, Judge, LookUp, look_up, public_addresses

PARSED_AT_ONCE = 2
"""How many pages a process makes texts of at the same time, each in a thread."""

PORTS = (80, 443)
"""The ports of pages. By others an address could have the service speak to something that is no web server."""

SOCKET_BYTES = 32 << 10
"""The kernel's buffer for a page: it is parsed at once, on the event loop, and that takes long where it comes in
pieces of a byte.
"""

HTML = ("text/html", "application/xhtml+xml")
TEXTS = ("application/json", "application/xml", "application/atom+xml", "application/rss+xml", "application/ld+json")
"""Types that count as text beside `text/*`."""

_ALIKE = (
    ("utf-8", "utf-8 utf8 unicode-1-1-utf-8"),
    ("utf-16-le", "utf-16 utf-16le unicode ucs-2 iso-10646-ucs-2"),
    ("utf-16-be", "utf-16be"),
    ("cp1252", "iso-8859-1 iso8859-1 latin1 latin-1 l1 us-ascii ascii"),
    ("cp1254", "iso-8859-9 latin5 l5"),
    ("cp874", "windows-874 iso-8859-11 tis-620"),
    ("iso-8859-8", "iso-8859-8 iso-8859-8-i hebrew visual logical"),
    ("cp866", "ibm866 cp866"),
    ("koi8-r", "koi8-r koi8 koi"),
    ("koi8-u", "koi8-u koi8-ru"),
    ("mac-roman", "macintosh x-mac-roman mac"),
    ("mac-cyrillic", "x-mac-cyrillic x-mac-ukrainian"),
    ("gb18030", "gb18030 gbk gb2312 gb-2312-80 x-gbk chinese"),
    ("big5hkscs", "big5 big5-hkscs x-x-big5 cn-big5"),
    ("euc-jp", "euc-jp x-euc-jp"),
    ("cp932", "shift-jis shift_jis sjis x-sjis ms932 windows-31j"),
    ("iso2022_jp", "iso-2022-jp"),
    ("cp949", "euc-kr korean ks-c-5601-1987 ks_c_5601-1987 windows-949"),
)
_ISO = {
    f"{iso}-{part}": f"iso-8859-{part}"
    for part in (*range(2, 8), 10, *range(13, 17))
    for iso in ("iso-8859", "iso8859")
}
_WINDOWS = {f"{name}{page}": f"cp{page}" for page in range(1250, 1259) for name in ("windows-", "cp")}

CODECS = _ISO | _WINDOWS | {label: codec for codec, labels in _ALIKE for label in labels.split()}
"""Python's codecs, by the name of an encoding, in small letters."""

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_META = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([A-Za-z0-9_-]{1,40})", re.IGNORECASE)
_META_WITHIN = 2_048

DECODED_BYTES = 64 << 10
"""How much is decoded at once: all other threads wait meanwhile."""


class PageLimits(msgspec.Struct, frozen=True):
    """The bounds of opening a page: in seconds, redirects, bytes, and the pieces in which these come. Anything beyond
    the bytes or pieces isn't read.
    """

    seconds: float = 10.0
    redirects: int = 5
    bytes: int = 5 << 20
    pieces: int = 20_000


class _Sent(NamedTuple):
    """A server's answer: its address, its type, its encoding."""

    url: str
    kind: str
    charset: str | None
    body: bytes


class Web:
    """Pages at public addresses, and at the hosts that the operator named."""

    def __init__(
        self,
        hosts: Collection[str] = (),
        limits: PageLimits | None = None,
        *,
        look_up: LookUp = look_up,
        may_reach: Judge | None = None,
    ) -> None:
        """`hosts` may have any address and port: each a host, or a host and a port. `may_reach` judges the addresses of
        others.
        """
        self._hosts = frozenset(hosts)
        self._limits = limits or PageLimits()
        self._look_up = look_up
        self._may_reach = may_reach
        self._parsing = asyncio.Semaphore(PARSED_AT_ONCE)
        self._headers = {
            "user-agent": f"harmonium/{this_build().version} (web_search)",
            "accept": "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.8",
            "accept-encoding": "identity",
        }

    async def page(self, url: str, domains: tuple[str, ...] = ()) -> Page:
        """The page at an address. Raises SearchFailure."""
        limits = self._limits
        try:
            async with asyncio.timeout(limits.seconds):
                sent = await self._send(url.removeprefix(SOURCE), domains)
        except TimeoutError:
            raise SearchFailure(f"it took longer than {limits.seconds:g} s") from None
        except ForbiddenAddress:  # which address it is, is the operator's own matter
            raise SearchFailure("it leads to what is not a public address") from None
        except BROKEN as error:
            raise SearchFailure(f"it can't be reached ({type(error).__name__})") from None
        async with self._parsing:
            return await asyncio.to_thread(_page, sent, source=url.startswith(SOURCE))

    async def _send(self, url: str, domains: tuple[str, ...]) -> _Sent:
        """The answer at an address, or where that redirects to."""
        for _ in range(self._limits.redirects + 1):
            target = _target(url, domains)
            connector = aiohttp.TCPConnector(
                resolver=Pinned(await self._addresses(target)),
                socket_factory=_socket,
                force_close=True,  # an open connection would outlive the look-up that permitted it
            )
            jar, unlimited = aiohttp.DummyCookieJar(), aiohttp.ClientTimeout(total=None, sock_connect=None)
            async with (
                aiohttp.ClientSession(
                    connector=connector, timeout=unlimited, auto_decompress=False, cookie_jar=jar
                ) as session,
                session.get(target, headers=self._headers, allow_redirects=False) as response,
            ):
                if response.status in (301, 302, 303, 307, 308) and "location" in response.headers:
                    url = str(target.join(URL(response.headers["location"])))
                    continue
                return await self._read(response, str(target))
        raise SearchFailure(f"it redirects more than {self._limits.redirects} times")

    async def _read(self, response: aiohttp.ClientResponse, url: str) -> _Sent:
        if response.status != 200:
            raise SearchFailure(f"it answers with HTTP {response.status}")
        kind = response.content_type.lower()
        if not (kind.startswith("text/") or kind in HTML or kind in TEXTS):
            raise SearchFailure(f"it is {kind[:100]}, which this browser can't show")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise SearchFailure("it is compressed, which nobody asked for")
        left, parts = self._limits.bytes, list[bytes]()
        async for part, _ in response.content.iter_chunks():
            parts.append(part[:left])
            left -= len(part)
            if left <= 0 or len(parts) == self._limits.pieces:
                break
        return _Sent(url, kind, response.charset, b"".join(parts))

    async def _addresses(self, target: URL) -> list[str]:
        host, port = target.raw_host or "", target.port or 0
        if host in self._hosts or f"{host}:{port}" in self._hosts:
            return await self._look_up(host, port)
        addresses = await public_addresses(host, port, self._look_up, self._may_reach)
        if port not in PORTS:
            raise SearchFailure(f"it is at port {port}, where no page of the web is")
        return addresses


def _socket(address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(*address[:3])
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
    return made


def _target(url: str, domains: tuple[str, ...]) -> URL:
    """An address that may be asked, without its fragment. Raises SearchFailure."""
    try:
        target = URL(url)
        host, port = target.raw_host, target.port
    except ValueError:
        host, port, target = None, None, URL()
    if target.scheme not in ("http", "https") or not host or not port or target.user or target.password:
        raise SearchFailure("it is no http:// or https:// address of a page")
    if len(str(target)) > MAX_URL_CHARS:
        raise SearchFailure(f"its address has more than {MAX_URL_CHARS} characters")
    if not is_within(host, domains):
        raise SearchFailure("it is not among the domains that were allowed")
    return target.with_fragment(None)


def _page(sent: _Sent, *, source: bool) -> Page:
    """The page made of an answer. It takes milliseconds, and for some pages seconds: never on the event loop."""
    text = text_of(sent.body, sent.charset, html=sent.kind in HTML)
    if sent.kind in HTML and not source:
        return html_page(text, sent.url, rest)
    return text_page(f"{SOURCE}{sent.url}" if source else sent.url, "", text)


def text_of(body: bytes, said: str | None, *, html: bool) -> str:
    """The text of a body: by the mark at its beginning, by what was `said` of it, by what some HTML says of itself, or
    else as UTF-8. Bytes that can't be decoded are replaced.
    """
    for mark, codec in _MARKS:
        if body.startswith(mark):
            return _text(body[len(mark) :], codec)
    codec = CODECS.get((said or "").strip().lower())
    if codec is None and html and (itself := _META.search(body[:_META_WITHIN])):
        codec = CODECS.get(itself[1].decode().lower(), "utf-8")
        codec = "utf-8" if codec.startswith("utf-16") else codec  # else this could not have been read
    return _text(body, codec or "utf-8")


def _text(body: bytes, codec: str) -> str:
    parts = (body[start : start + DECODED_BYTES] for start in range(0, len(body), DECODED_BYTES))
    return "".join(codecs.iterdecode(parts, codec, "replace"))
