"""`GET /`: what this is and where to go, for a first visitor; a page for browsers, JSON for all others.
`GET /docs` and `GET /openapi.json` describe each route, for people and for generators of clients. Each document is
under its path in docs/, as a page for browsers and as Markdown for all others; `GET /docs/llms.txt` lists them.

Open without a key, so never anything here that an operator chose: no model, no tenant, no number of anything; but that
the demo engine answers, whose words nobody should take for a model's.
"""

import asyncio
import re
from functools import lru_cache
from html import escape
from itertools import pairwise
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response

from service.build import this_build
from service.errors import ApiError
from service.settings.engines import DEMO
from service.web.dialect import OPENAI
from service.web.entering import Open
from service.web.errors import JsonResponse
from service.web.received import Received

router = APIRouter(tags=["Service"])

PLACES = {
    "models": ("/v1/models", "what is served"),
    "health": ("/health", "is the process alive?"),
    "ready": ("/ready", "can it serve?"),
    "metrics": ("/metrics", "for Prometheus"),
    "docs": ("/docs", "the documents and every route, for people"),
    "openapi": ("/openapi.json", "every route, for programs"),
}
"""Where to go, by what is there, and the page's description of it."""

PAGES = Path(__file__).parents[1] / "pages"
OPENAPI, DOCS = PAGES / "openapi.json", PAGES / "docs.html"
"""Files that are made of the routes and the wire's types (tests/support/openapi/document.py), so that serving them
costs no more than sending a file.
"""

DOCUMENTS = next((path for path in (PAGES / "documents", PAGES.parents[2] / "docs") if path.is_dir()), None)
"""The folder of the documents: the wheel has copies (setup.py), a checkout the files themselves."""

INDEX = "llms.txt"
MAX_DOCUMENTS = 200
MAX_DOCUMENT_BYTES = 1 << 20
"""The most documents that are served, and the most bytes of one: they stay in memory, and so do their pages."""

MARKDOWN = "text/markdown; charset=utf-8"
_LINK = re.compile(r"!?\[([^\]]*)\]\((?!https?://|#)([^)#]*)(#[^)]*)?\)")

_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)

HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "vary": "accept",
}

FRAME = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 3rem auto; padding: 0 1rem }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; padding: .75rem; border: 1px solid #8886; border-radius: .5rem }}
table {{ border-collapse: collapse; display: block; overflow-x: auto }}
td, th {{ text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-top: 1px solid #8886 }}
</style>
{body}
</html>
"""

PAGE = """<h1>harmonium {version}</h1>
<p>It speaks the OpenAI Responses API over open models and stores every conversation. Point an SDK at
<code>{base}</code> of this address:</p>
<pre>from openai import OpenAI

client = OpenAI(
    base_url="{address}{base}",
    api_key="YOUR_KEY",
)
answer = client.responses.create(
    model=client.models.list().data[0].id,
    input="Count to 3.",
)
print(answer.output_text)</pre>
{demo}<ul>
{links}
</ul>"""

DOCUMENT = """<p><a href="/docs/README.md">All documents</a> · <a href="/docs">Every route</a></p>
{text}"""

DEMO_ANSWERS = "<p>The demo engine answers here; it is not a real model.</p>\n"


@router.head("/", include_in_schema=False)
@router.get("/", summary="What is this?", operation_id="welcome")
async def welcome(request: Open) -> Response:
    """The name, the version and where to go."""
    version, first = this_build().version, request.service.engine.offers()[0].card
    demo, places = first is not None and not first.real, {**request.process.places, **PLACES}
    if "text/html" in request.header(b"accept"):
        listed = "\n".join(f'<li><a href="{path}">{path}</a> {what}</li>' for path, what in places.values())
        shown = {"version": escape(version), "address": escape(_address(request)), "base": OPENAI.prefix}
        body = PAGE.format(**shown, demo=DEMO_ANSWERS if demo else "", links=listed)
        return HTMLResponse(FRAME.format(title="harmonium", body=body), headers=HEADERS)
    urls = {dialect.name: dialect.prefix for dialect in request.process.dialects}
    links = {what: path for what, (path, _) in places.items()}
    found: dict[str, object] = {"name": "harmonium", "version": version, "base_urls": urls, "links": links}
    if demo:
        found["engine"] = DEMO
    return JsonResponse(found, headers={"vary": "accept"})


def _address(request: Received) -> str:
    """The address to paste: this one, but a placeholder, as for the key, where a proxy may have changed the scheme."""
    host = request.header(b"host")
    return f"http://{host}" if _LOOPBACK.fullmatch(host) else "THIS_ADDRESS"


@router.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
async def docs(_: Open) -> FileResponse:
    """A page with the list of the documents, and about each route."""
    return FileResponse(DOCS, headers=HEADERS)


@router.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
async def openapi(_: Open) -> FileResponse:
    """The OpenAPI document."""
    return FileResponse(OPENAPI)


@router.api_route("/docs/{name:path}", methods=["GET", "HEAD"], include_in_schema=False)
async def document(request: Open, name: str) -> Response:
    """A document as a page or as Markdown, or the list of all."""
    text = (await asyncio.to_thread(documents)).get(name)
    if text is None:
        raise ApiError(404, f"There is no such document. GET /docs/{INDEX} lists them.")
    if name == INDEX:
        return PlainTextResponse(text, media_type="text/plain; charset=utf-8")
    if "text/html" in request.header(b"accept"):
        return HTMLResponse(await asyncio.to_thread(page_of, text), headers=HEADERS)
    return PlainTextResponse(text, media_type=MARKDOWN, headers={"vary": "accept"})


@lru_cache(MAX_DOCUMENTS)
def page_of(text: str) -> str:
    """The page of a document, whose headings have the names that links to them use."""
    from markdown_it import MarkdownIt  # here, as a start has no time for it

    markdown = MarkdownIt("commonmark").enable("table")
    tokens = markdown.parse(text)
    for opening, heading in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", re.sub(r"[^\w -]", "", heading.content.lower()).replace(" ", "-"))
    body = DOCUMENT.format(text=markdown.renderer.render(tokens, markdown.options, {}))
    return FRAME.format(title=f"harmonium: {escape(_title(text))}", body=body)


@lru_cache(1)
def documents() -> dict[str, str]:
    """The documents by their paths, and the list of them. A link to what isn't served is only its words."""
    if DOCUMENTS is None:
        return {}
    paths = sorted(DOCUMENTS.glob("**/*.md"))[:MAX_DOCUMENTS]
    found = {path.relative_to(DOCUMENTS).as_posix(): path for path in paths if path.stat().st_size < MAX_DOCUMENT_BYTES}

    def with_links(text: str, folder: Path) -> str:
        def link_or_words(link: re.Match[str]) -> str:
            leads_to = (folder / link[2]).resolve()
            return link[0] if leads_to in known and not link[0].startswith("!") else link[1]

        return _LINK.sub(link_or_words, text)

    known = {path.resolve() for path in found.values()}
    texts = {name: with_links(path.read_text("utf-8"), path.parent) for name, path in found.items()}
    rows = [f"- [{_title(text)}](/docs/{name})" for name, text in texts.items()]
    about = "It speaks the OpenAI Responses API over open models and stores every conversation."
    return texts | {INDEX: "\n".join(["# harmonium", "", f"> {about}", "", "## Documents", "", *rows, ""])}


def _title(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")
