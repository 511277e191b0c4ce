"""HTML as the text of a page: the text that people see, with a mark at each link.

    【3†Tides】             a link to the same site
    【4†Harbour†port.fr】   a link to another one

The parser hands out its events and builds no tree: with any tree that we tried, some page of a few hundred
kilobytes takes minutes (nested blocks, a tag with thousands of attributes). So time and memory grow with a page's
length and nothing else. It still takes some milliseconds: never on the event loop.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any
from urllib.parse import urljoin, urlsplit

from service.features.browser.browser.page import (
    MAX_LINKS,
    MAX_LINKS_CHARS,
    MAX_PAGE_CHARS,
    MAX_URL_CHARS,
    Page,
    host_of,
    page_of,
    plain,
)

etree: Any = import_module("lxml.etree")  # it has no types

MAX_LINK_CHARS = 1_000
"""How long the text of a link is at most."""

MAX_LINK_IMAGES = 20
"""How many images are shown of a link that has no text."""

PIECE_BYTES = 16 << 10
"""How much of a page is parsed at once."""

MAX_SEPARATORS = 32_768
"""How many spaces, quotes and slashes a tag or a comment may have, about: a tag has no more attributes, of which lxml
makes a dictionary while nothing else runs. A page ends in front of one with more."""

_SEPARATORS = b" \t\n\f\r/\"'"

_UNSEEN = frozenset(
    (
        *("script", "style", "noscript", "template", "svg", "math", "head", "nav", "footer", "aside", "iframe"),
        *("object", "select", "textarea", "button", "canvas", "audio", "video", "datalist"),
    )
)
"""Elements that aren't text, or aren't the page's own."""

_LINES = (
    *("address", "article", "aside", "body", "blockquote", "center", "dd", "details", "div", "dl", "dt", "fieldset"),
    *("figcaption", "figure", "footer", "form", "header", "hgroup", "legend", "li", "main", "menu", "nav", "section"),
    *("summary", "tbody", "tfoot", "thead", "tr"),
)
_PARAGRAPHS = ("h1", "h2", "h3", "h4", "h5", "h6", "hr", "ol", "p", "pre", "table", "ul")
_BLOCKS = dict.fromkeys(_LINES, 1) | dict.fromkeys(_PARAGRAPHS, 2)
"""How many ends of line stand before and behind an element."""

_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_SCRIPTS = {"sup": "^", "sub": "_"}
_SIMPLE = re.compile(r"[\w-]+")


class _Enough(Exception):
    """The page has all the text that it may have."""


class _Link:
    """A link whose text is being read."""

    def __init__(self, url: str, host: str) -> None:
        self.url = url
        self.host = host
        self.words: list[str] = []
        self.images: list[str] = []
        self.chars = 0


class _Text:
    """A text that grows, with single spaces between words and no more than one empty line."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._chars = 0
        self._breaks = 0
        self._space = False
        self._lead = ""
        """The text before the next words, such as the mark of a list's item."""

    def end_line(self, breaks: int) -> None:
        """The next words stand on a line of their own, behind so many ends of line."""
        self._breaks = max(self._breaks, breaks)
        self._space = False

    def lead(self, mark: str) -> None:
        """Have a mark before the next words."""
        self._lead = mark

    def add(self, text: str, *, exact: bool = False) -> None:
        """Some more text, whose white space counts where it is `exact`. Raises _Enough."""
        words = text if exact else " ".join(text.split())
        if not words:
            self._space = self._space or bool(text)
            return
        space = self._space or (not exact and text[0].isspace())
        before = self._lead
        if self._breaks:
            before = ("\n" * self._breaks if self.pieces else "") + before
        elif space and self.pieces and not before:
            before = " "
        self.pieces.append(before + words)
        self._breaks, self._lead = 0, ""
        self._space = not exact and text[-1].isspace()
        self._chars += len(before) + len(words)
        if self._chars > MAX_PAGE_CHARS:
            raise _Enough


class _Reader:
    """Takes the parser's events: elements that begin and end, and text."""

    def __init__(self, url: str) -> None:
        self.title: list[str] = []
        self.links: dict[str, int] = {}
        self.text = _Text()
        self.told = False
        """Whether the parser has handed anything out; it does nothing of the kind amid a tag."""
        self._base = url
        self._based = False
        self._host = host_of(url)
        self._depth = 0
        self._unseen_from: int | None = None
        """The depth of the element of which nothing is shown."""
        self._in_title = False
        self._pre_from: int | None = None
        self._link: _Link | None = None
        self._images = 0
        self._links_chars = 0
        self._script = ""
        self._in_row = False

    def start(self, tag: str, attributes: Any) -> None:
        self.told = True
        self._depth += 1
        self._script = ""
        if tag == "title" and not self.title and not self.text.pieces:
            self._in_title = True
        if tag == "base" and not self._based and attributes.get("href"):
            self._based = True
            self._base = (self._address(attributes["href"]) or (self._base,))[0]
        if self._unseen_from is not None:
            return
        if tag in _UNSEEN or "hidden" in attributes:
            self._unseen_from = self._depth
            self._end_line(_BLOCKS.get(tag, 0))
        elif tag == "a":
            self.close()
            address = self._address(attributes.get("href"))
            self._link = _Link(*address) if address is not None else None
        elif tag == "img":
            self._image(attributes.get("alt") or attributes.get("title") or "")
        elif tag == "br":
            self._end_line(1)
        elif tag in ("td", "th"):
            if self._in_row:
                self.text.lead(" | ")
            self._in_row = True
        elif tag in _SCRIPTS:
            self._script = _SCRIPTS[tag]
        elif tag in _BLOCKS:
            self._block(tag)

    def end(self, tag: str) -> None:
        self.told = True
        self._script = ""
        self._in_title = False
        if self._unseen_from == self._depth:
            self._unseen_from = None
        elif self._unseen_from is None:
            if tag == "a":
                self.close()
            elif tag in _BLOCKS:
                self._end_line(_BLOCKS[tag])
        if self._pre_from == self._depth:
            self._pre_from = None
        self._depth -= 1

    def data(self, text: str) -> None:
        self.told = True
        text = plain(text)
        if self._in_title:
            self.title.append(text[:MAX_LINK_CHARS])
        if self._unseen_from is not None:
            return
        if self._script and _SIMPLE.fullmatch(text):
            text = f"{self._script}{{{text}}}"
        if self._link is None:
            self.text.add(text, exact=self._pre_from is not None)
        elif self._link.chars < MAX_LINK_CHARS:
            self._link.words.append(text)
            self._link.chars += len(text)

    def _block(self, tag: str) -> None:
        self._end_line(_BLOCKS[tag])
        if tag == "pre":
            self._pre_from = self._depth
        elif tag == "tr":
            self._in_row = False
        elif self._link is None:
            if tag == "li":
                self.text.lead("  * ")
            elif tag == "hr":
                self.text.add("* * *")
                self.text.end_line(2)
            elif tag in _HEADINGS:
                self.text.lead(_HEADINGS[tag])

    def _end_line(self, breaks: int) -> None:
        if self._link is None:
            self.text.end_line(breaks)
        else:
            self._link.words.append(" ")

    def _image(self, about: str) -> None:
        about = plain(" ".join(about.split()))[:MAX_LINK_CHARS]
        shown = f"[Image {self._images}: {about}]" if about else f"[Image {self._images}]"
        self._images += 1
        if self._link is None:
            self.text.add(shown)
        elif len(self._link.images) < MAX_LINK_IMAGES:
            self._link.images.append(shown)

    def close(self) -> None:
        """The link's mark is put into the text; a link without a text, as around an image, is none."""
        link, self._link = self._link, None
        if link is None:
            return
        said = "".join(link.words)
        text = " ".join(said.split()).replace("†", "‡")[:MAX_LINK_CHARS]
        if not text:
            for image in link.images:
                self.text.add(image)
            return
        if link.url not in self.links:
            self._links_chars += len(link.url)
            if len(self.links) >= MAX_LINKS or self._links_chars > MAX_LINKS_CHARS:
                self.text.add(said)
                return
        number = self.links.setdefault(link.url, len(self.links))
        before, behind = (" " if said[0].isspace() else ""), (" " if said[-1].isspace() else "")
        host = "" if link.host == self._host else f"†{plain(link.host)}"
        self.text.add(f"{before}【{number}†{text}{host}】{behind}")

    def _address(self, href: str | None) -> tuple[str, str] | None:
        """The address that a link leads to, and its host; None for one that leads to no page, or stays on this one."""
        href = (href or "").strip()
        if not href or href.startswith("#") or len(href) > MAX_URL_CHARS:
            return None
        try:
            url = href if href.startswith(("https://", "http://")) else urljoin(self._base, href)
            parts = urlsplit(url)
        except ValueError:
            return None
        leads = parts.scheme in ("http", "https") and parts.netloc and "\\" not in parts.netloc
        return (url, parts.netloc.rpartition("@")[2]) if leads and len(url) <= MAX_URL_CHARS else None


def html_page(html: str, url: str, rest: Callable[[], object]) -> Page:
    """The page of some HTML that was found at `url`, whatever it is like.

    `rest` is called between two pieces, for other threads: lxml lets go of the interpreter and takes it again for each
    element, so quickly that another thread may find it taken for a fifth of a second.
    """
    reader = _Reader(url)
    parser = etree.HTMLParser(target=reader, recover=True, no_network=True, encoding="utf-8")
    encoded, silent = html.replace("\0", "").encode("utf-8", "replace"), 0
    with suppress(_Enough, etree.ParserError, etree.XMLSyntaxError):  # all the text that it may have, or none at all
        for at in range(0, len(encoded), PIECE_BYTES):
            piece, reader.told = encoded[at : at + PIECE_BYTES], False
            parser.feed(piece)
            silent = 0 if reader.told else silent + len(piece) - len(piece.translate(None, _SEPARATORS))
            if silent > MAX_SEPARATORS:
                raise _Enough
            rest()
        parser.close()
    return page_of(url, "".join(reader.title), "".join(reader.text.pieces).strip("\n"), tuple(reader.links))
