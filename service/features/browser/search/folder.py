"""A folder of documents (HTML, Markdown, plain text), searched by SQLite's full-text index.

It needs no internet: it is for documents of one's own, and for trying things out. The index is in memory, of each
process its own, and made anew where a file has changed.
"""

import asyncio
import os
import re
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from urllib.parse import quote

from service.features.browser.browser.html import html_page
from service.features.browser.browser.page import SOURCE, Page, Result, host_of, text_page
from service.features.browser.search.port import RESULTS, SearchFailure, SearchQuery, bound_results, rest
from service.ssrf import is_within

ADDRESS = "https://docs.invalid/"
"""The address of documents, unless the operator names the real one: no host can have this name."""

MAX_FILES = 20_000
MAX_FILE_BYTES = 5 << 20
MAX_TEXT_CHARS = 256 << 20
"""How much text of all files is searched."""

MAX_WORDS = 32
LOOK_SECONDS = 10.0
"""How often changed files are looked for, at most."""

HTML = (".html", ".htm")
TEXTS = (".md", ".markdown", ".txt", ".rst")

_MAKE = "create virtual table documents using fts5(path unindexed, title, body, tokenize='porter unicode61')"
_FIND = (
    "select path, title, snippet(documents, 2, '', '', '…', 24) from documents where documents match ? "
    "order by bm25(documents, 0, 5, 1), path limit ?"
)
_WORD = re.compile(r"\w+")
_HEADING = re.compile(r"^#{1,3}\s+(.+)$", re.MULTILINE)


class Folder:
    """The documents of a folder, with addresses below `url`."""

    def __init__(self, folder: Path, url: str = ADDRESS) -> None:
        self._folder = folder
        self._url = url if url.endswith("/") else f"{url}/"
        self._seen: dict[str, tuple[int, int]] | None = None
        """The files at the last look, and the index of them."""
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        self._looked = 0.0
        self._lock = threading.Lock()
        self._turn = asyncio.Lock()  # else all threads that others need wait while one makes the index

    async def search(self, query: SearchQuery) -> list[Result]:
        """The documents that contain words of the query, best first. Raises SearchFailure."""
        async with self._turn:
            return await asyncio.to_thread(self._search, query)

    async def page(self, url: str, domains: tuple[str, ...] = ()) -> Page:
        """The document at an address. Raises SearchFailure."""
        if not is_within(host_of(url), domains):
            raise SearchFailure("it is not in an allowed domain")
        async with self._turn:
            return await asyncio.to_thread(self._page, url)

    def _search(self, query: SearchQuery) -> list[Result]:
        words = " OR ".join(f'"{word}"' for word in _WORD.findall(query.text)[:MAX_WORDS])
        if not words:
            return []
        with self._lock:
            self._look()
            found = self._index.execute(_FIND, (words, RESULTS)).fetchall()
        return bound_results([Result(self._address(path), title, snippet) for path, title, snippet in found], query)

    def _page(self, url: str) -> Page:
        bare = url.removeprefix(SOURCE).partition("#")[0].partition("?")[0]
        with self._lock:
            paths = {self._address(path): path for path in self._look()}
        if bare not in paths:
            raise SearchFailure("there is no such document")
        source = url.startswith(SOURCE)
        page = self._read(paths[bare], source=source)
        if page is None:
            raise SearchFailure("it can't be read")
        return page

    def _read(self, path: str, *, source: bool = False) -> Page | None:
        """A document as a page; None for one that is gone."""
        url = self._address(path)
        try:
            with (self._folder / path).open("rb") as file:
                text = file.read(MAX_FILE_BYTES).decode("utf-8", "replace")
        except OSError:
            return None
        if source:
            return text_page(f"{SOURCE}{url}", path, text)
        if path.lower().endswith(HTML):
            return html_page(text, url, rest)
        heading = _HEADING.search(text)
        return text_page(url, heading[1] if heading else path, text)

    def _address(self, path: str) -> str:
        return f"{self._url}{quote(path)}"

    def _look(self) -> dict[str, tuple[int, int]]:
        """The files as they are, or were some seconds ago, when the index was made."""
        now = monotonic()
        if self._seen is None or now - self._looked > LOOK_SECONDS:
            files = dict(self._files())
            if files != self._seen:
                self._index_all(files)
            self._looked = now
        return self._seen or {}

    def _index_all(self, files: dict[str, tuple[int, int]]) -> None:
        index = sqlite3.connect(":memory:", check_same_thread=False)
        index.execute(_MAKE)
        left = MAX_TEXT_CHARS
        for path in files:
            page = self._read(path)
            if page is not None and len(page.text) <= left:
                left -= len(page.text)
                body = re.sub(r"【\d+†([^†】]*)(?:†[^】]*)?】", r"\1", page.text.split("\n", 2)[-1])
                index.execute("insert into documents values (?, ?, ?)", (path, page.title, body))
        index.commit()
        self._seen, self._index = files, index

    def _files(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """The documents by their paths, with when each was changed and its size; no link is followed."""
        count = 0
        for folder, folders, names in os.walk(self._folder):
            folders.sort()
            for name in sorted(names):
                path = Path(folder, name)
                relative = path.relative_to(self._folder).as_posix()
                is_text = relative.encode("utf-8", "replace").decode() == relative  # others have parts of characters
                if not name.lower().endswith(HTML + TEXTS) or not is_text:
                    continue
                with suppress(OSError):  # it is gone by now
                    found = path.lstat()
                    if stat.S_ISREG(found.st_mode):
                        if count == MAX_FILES:
                            return
                        count += 1
                        yield relative, (found.st_mtime_ns, found.st_size)
