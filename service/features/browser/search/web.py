"""Pages of the web, as fetcher.py fetches them.

The encodings are those that browsers know (https://encoding.spec.whatwg.org). A server says which, so it is looked up
here and never among Python's codecs: one of those takes an hour for some megabytes (punycode), others give halves of
characters, which nothing can store (utf-7, unicode_escape).
"""

import asyncio
import codecs
import re
from collections.abc import Collection

from service.features.browser.browser.html import html_page
from service.features.browser.browser.page import SOURCE, Page, text_page
from service.features.browser.search.fetcher import Fetched, Fetcher, FetchLimits
from service.features.browser.search.port import SearchFailure, rest
from service.ssrf import Judge, LookUp, look_up

PARSED_AT_ONCE = 2
"""How many pages a process makes texts of at the same time, each in a thread."""

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


class Web:
    """Pages at public addresses, and at the hosts that the operator named."""

    def __init__(
        self,
        hosts: Collection[str] = (),
        limits: FetchLimits | None = None,
        *,
        look_up: LookUp = look_up,
        may_reach: Judge | None = None,
    ) -> None:
        """`hosts` may have any address and port: each a host, or a host and a port. `may_reach` judges the addresses of
        others.
        """
        accept = "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.8"
        self._fetcher = Fetcher("web_search", accept, hosts, limits, look_up=look_up, may_reach=may_reach)
        self._parsing = asyncio.Semaphore(PARSED_AT_ONCE)

    async def page(self, url: str, domains: tuple[str, ...] = ()) -> Page:
        """The page at an address. Raises SearchFailure."""
        sent = await self._fetcher.fetch(url.removeprefix(SOURCE), domains, _check_kind)
        async with self._parsing:
            return await asyncio.to_thread(_page, sent, source=url.startswith(SOURCE))


def _check_kind(kind: str) -> None:
    if not (kind.startswith("text/") or kind in HTML or kind in TEXTS):
        raise SearchFailure(f"it is {kind[:100]}, which this browser can't show")


def _page(sent: Fetched, *, source: bool) -> Page:
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
