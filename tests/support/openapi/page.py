"""`/docs`: the document as one page for people. It has no scripts, and loads nothing from anywhere."""

import re
from collections.abc import Iterator
from html import escape
from typing import Any

from markdown_it import MarkdownIt

from service.web.routes.welcome import documents
from tests.support.openapi.schemas import REF

Json = dict[str, Any]

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>harmonium {version}: the API</title>
<style>
:root {{ color-scheme: light dark; --line: #8884; --faint: #8881; --link: #2563eb }}
@media (prefers-color-scheme: dark) {{ :root {{ --link: #7aa7ff }} }}
* {{ box-sizing: border-box }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 0; display: grid; grid-template-columns: 17rem minmax(0, 1fr) }}
nav {{ position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 1.5rem 1rem }}
nav {{ border-right: 1px solid var(--line) }}
nav a {{ display: block; color: inherit; padding: .1rem .5rem; border-radius: .3rem; font-size: .87rem }}
nav a:hover {{ background: var(--faint) }}
nav h2 {{ font-size: .75rem; letter-spacing: .06em; text-transform: uppercase; margin: 1.2rem .5rem .3rem }}
main {{ max-width: 62rem; padding: 1.5rem 2.5rem 6rem }}
a {{ color: var(--link); text-decoration: none }}
a:hover {{ text-decoration: underline }}
h1 {{ margin: 0 0 .2rem }}
h3 {{ margin: 2rem 0 .3rem; font-size: 1rem; scroll-margin-top: 1rem }}
h4 {{ margin: 1.2rem 0 .3rem; font-size: .85rem; opacity: .75 }}
code {{ font: .86em ui-monospace, monospace }}
details {{ border: 1px solid var(--line); border-radius: .5rem; margin: .5rem 0 }}
details > div {{ padding: 0 1rem 1rem; scroll-margin-top: 4rem }}
summary {{ cursor: pointer; padding: .5rem .8rem; display: flex; gap: .8rem; align-items: baseline; flex-wrap: wrap }}
summary:hover {{ background: var(--faint) }}
summary span {{ opacity: .75 }}
summary b {{ font: 700 .75rem ui-monospace, monospace; width: 3.6rem; text-align: center; padding: .15rem 0 }}
summary b {{ border-radius: .3rem; color: #fff }}
b.get {{ background: #2563eb }} b.post {{ background: #15803d }} b.delete {{ background: #b91c1c }}
table {{ border-collapse: collapse; width: 100%; font-size: .9rem }}
td {{ border-top: 1px solid var(--line); padding: .3rem .8rem .3rem 0; vertical-align: top }}
td:first-child {{ width: 13rem; overflow-wrap: anywhere }}
td p {{ margin: 0 }} td small, h3 small {{ opacity: .7; font-weight: 400 }}
@media (max-width: 50rem) {{
body {{ display: block }} nav {{ position: static; height: auto; border: 0 }} main {{ padding: 1rem }}
}}
</style>
<nav>
<a href="/"><strong>harmonium</strong> {version}</a>
<a href="/docs/README.md">Documents</a>
{contents}
</nav>
<main>
<h1>Documents</h1>
{documents}
<h1 id="api">The API</h1>
<p>{summary} {about}</p>
<p>For programs and generators of clients: <a href="/openapi.json">/openapi.json</a>.</p>
{operations}
<h2 id="types">Types</h2>
{types}
</main>
</html>
"""


def page(document: Json) -> str:
    """The page of a document."""
    return PAGE.format(
        version=escape(document["info"]["version"]),
        summary=_prose(document["info"]["summary"]),
        about=_prose(document["info"]["description"]),
        documents=_documents(),
        contents="\n".join(_contents(document)),
        operations="\n".join(_operations(document)),
        types="\n".join(_type(name, schema) for name, schema in document["components"]["schemas"].items()),
    )


def _documents() -> str:
    """The list of the documents, as docs/README.md has it, without what isn't served."""
    _, _, text = documents()["README.md"].partition("\n")
    listed = MarkdownIt("commonmark").render(text)
    return re.sub(r'href="(?!https?://|#)', 'href="/docs/', listed)


def _tagged(document: Json, tag: str) -> Iterator[tuple[str, str, Json]]:
    for path, on in document["paths"].items():
        for verb, operation in on.items():
            if tag in operation["tags"]:
                yield verb, path, operation


def _contents(document: Json) -> Iterator[str]:
    for tag in document["tags"]:
        yield f"<h2>{tag['name']}</h2>"
        for _, _, operation in _tagged(document, tag["name"]):
            yield f'<a href="#{operation["operationId"]}">{escape(operation["summary"])}</a>'
    yield '<h2>Types</h2>\n<a href="#types">All types</a>'


def _operations(document: Json) -> Iterator[str]:
    for tag in document["tags"]:
        yield f"<h2>{tag['name']}</h2>\n<p>{_prose(tag['description'])}</p>"
        for verb, path, operation in _tagged(document, tag["name"]):
            yield _operation(document, verb, path, operation)


def _operation(document: Json, verb: str, path: str, operation: Json) -> str:
    id = operation["operationId"]  # inside of what it names, as browsers open what holds the target of a link
    parts = [f"<p>{_prose(operation['description'])}</p>"]
    if parameters := operation.get("parameters"):
        rows = [
            _row(each["name"], each["schema"], each["required"], f"{each['in']}. {each['description']}")
            for each in parameters
        ]
        parts.append(f"<h4>Parameters</h4>\n{_table(rows)}")
    if "requestBody" in operation:
        parts.append(f"<h4>Body</h4>\n<p>{_kinds(operation['requestBody']['content'])}</p>")
    summary = f"{operation['summary']} ({mark})" if (mark := operation.get("x-stability")) else operation["summary"]
    answers = [_answer(document, status, answer) for status, answer in operation["responses"].items()]
    parts.append(f"<h4>Answers</h4>\n{_table(answers)}")
    return (
        f'<details><summary><b class="{verb}">{verb.upper()}</b><code>{escape(path)}</code>'
        f"<span>{escape(summary)}</span></summary>\n"
        f'<div id="{id}">\n{"".join(parts)}\n</div></details>'
    )


def _answer(document: Json, status: str, answer: Json) -> str:
    if "$ref" in answer:
        answer = document["components"]["responses"][status]
    kinds = _kinds(answer.get("content", {}))
    return f"<tr><td><code>{status}</code></td><td>{_prose(answer['description'])} {kinds}</td></tr>"


def _kinds(content: Json) -> str:
    """What may stand in a body, each with its media type where that isn't JSON."""
    return ", or ".join(
        _kind(each["schema"]) + ("" if media == "application/json" else f" as <code>{media}</code>")
        for media, each in content.items()
    )


def _type(name: str, schema: Json) -> str:
    about = _prose(schema.get("description", ""))
    required = schema.get("required", ())
    rows = [_row(member, kind, member in required, "") for member, kind in schema.get("properties", {}).items()]
    body = _table(rows) if rows else "" if schema.get("type") == "object" else f"<p>{_kind(schema)}</p>"
    return f'<h3 id="{name}"><code>{name}</code></h3>\n<p>{about}</p>\n{body}'


def _row(name: str, schema: Json, required: bool, words: str) -> str:
    words = words or schema.get("description", "")
    mark = " <small>required</small>" if required else ""
    about = f"<p><small>{_prose(words)}</small></p>" if words else ""
    return f"<tr><td><code>{escape(name)}</code>{mark}</td><td><p>{_kind(schema)}</p>{about}</td></tr>"


def _table(rows: list[str]) -> str:
    return f"<table>\n{chr(10).join(rows)}\n</table>"


def _kind(schema: Json) -> str:
    """What a value may be, in words."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REF)
        return f'<a href="#{name}">{name}</a>'
    several = schema.get("oneOf") or schema.get("anyOf")
    if several:
        return " | ".join(map(_kind, several))
    if "const" in schema:
        return f"<code>{escape(repr(schema['const']))}</code>"
    if "enum" in schema:
        return " | ".join(f"<code>{escape(repr(each))}</code>" for each in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"list of {_kind(schema['items'])}{_bounds(schema, 'Items', '')}"
        case "object":
            inside = schema.get("additionalProperties")
            if inside in (None, True):
                return "object"
            return f"object of {_kind(inside)}{_bounds(schema, 'Properties', '')}"
        case "string":
            pattern = f" <small>{escape(schema['pattern'])}</small>" if "pattern" in schema else ""
            return f"string{pattern}{_bounds(schema, 'Length', ' characters')}"
        case "integer" | "number" as number:
            least, most = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
            return number + _between(least, most, "")
        case None:
            return "anything"
        case simple:
            return str(simple)


def _bounds(schema: Json, of: str, unit: str) -> str:
    return _between(schema.get(f"min{of}"), schema.get(f"max{of}"), unit)


def _between(least: float | None, most: float | None, unit: str) -> str:
    if most is None:
        return "" if least is None else f" <small>from {least:,}{unit}</small>"
    return f" <small>{f'{least:,} to' if least is not None else 'at most'} {most:,}{unit}</small>"


def _prose(words: str) -> str:
    """Text with its code marked as such."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words, quote=False))
