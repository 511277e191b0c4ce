"""The documents as tests read them: fenced blocks, tables, links, and the settings table as it has to stand.

A document shows real output with `…` for what differs from one run to the next; `shows` compares the two. Never
loosen a comparison here because one document is wrong: correct the document.

`python -m tests.support.documents` brings the rows of settings in all documents up to date, the metrics, the fates of
a history's items, and the diagram of states.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import Counter, Gauge, Histogram
from pydantic import SecretStr
from typer.main import get_command

from service.api.read import ITEMS
from service.api.replay import BLOCKS, CHAT_PARTS, PARTS
from service.commands.command_line import app
from service.metrics.counters import declarations
from service.metrics.scrape import SCRAPED
from service.process import Settings, also_spoken
from service.settings.sources import file_variable, in_files, variable
from service.settings.units import unit_of, with_unit
from service.stability import EXPERIMENTAL
from store.turn import MOVES, TERMINAL
from tests.support import ROOT
from tests.support.service.routes import all_routes

DOCUMENTS = [*sorted(ROOT.glob("*.md")), ROOT / "store" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(r"(?ms)^```([^\n]*)\n(.*?)^```$")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SETTING = re.compile(r"(?m)^\| `(HARMONIUM_\w+)` \|.*\n(?!\| ---)")
"""A row of a setting; the head of a table that begins with its name is none."""

_METRICS = re.compile(r"(\| Metric \| Kind \|.*\n\| ---.*\n)\| `(harmonium_\w+)`(?:.*\n)(?:\| `harmonium_.*\n)*")
"""A table of metrics: its head, and the first metric in it."""

_SECTIONS = re.compile(r"(?ms)^### .*?(?=^## )")
_ELLIPSIS = "…"
_MARK = "(experimental)"
_FIELDS = Settings.model_fields


class Block(NamedTuple):
    """A fenced block: what stands behind the opening fence, and the text."""

    label: str
    text: str


def read(name: str) -> str:
    """The text of a document, by its path from the root."""
    return (ROOT / name).read_text()


def section(text: str, heading: str) -> str:
    """What stands under a heading of the second level."""
    return re.split(r"(?m)^## ", text.split(f"\n## {heading}\n", 1)[1])[0]


def blocks(text: str) -> list[Block]:
    """Its fenced blocks, in order."""
    return [Block(label, body.rstrip("\n")) for label, body in _BLOCK.findall(text)]


def block(name: str, label: str) -> str:
    """The text of a document's one block with this label."""
    (found,) = [each.text for each in blocks(read(name)) if each.label == label]
    return found


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    return _BLOCK.sub("", text)


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, heads and rules left out."""
    lines = re.findall(r"(?m)^\|.*\|$(?!\n\| ---)", text)
    return [[cell.strip() for cell in line[1:-1].split(" | ")] for line in lines if not line.startswith("| ---")]


def links(text: str) -> list[str]:
    return _LINK.findall(prose(text))


def anchors(text: str) -> set[str]:
    """What a link behind # may name: the headings as a browser sees them."""
    headings = re.findall(r"(?m)^#+ (.+)$", prose(text))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shows(shown: str, real: str) -> bool:
    """Whether `real` is what a document shows, where `…` stands for anything."""
    return re.fullmatch(re.escape(shown).replace(_ELLIPSIS, ".*?"), real, re.DOTALL) is not None


def settings_table() -> list[str]:
    """A row for each setting, made from its description: what docs/configuration.md has to hold."""
    cells = (
        (f"`{variable(name)}`", _default(name), Settings.allowed_values(name), Settings.description(name) + _file(name))
        for name in Settings.model_fields
    )
    return [f"| {' | '.join(row)} |" for row in cells]


def settings_sections() -> str:
    table = {row.split("`")[1]: row for row in settings_table()}
    head = "| Setting | Default | Allowed | What it is |\n| --- | --- | --- | --- |\n"
    sections = {heading: [table[variable(name)] for name in names] for heading, names in Settings.by_heading().items()}
    return "\n".join(
        f"### {heading}\n\n{head}" + "".join(f"{row}\n" for row in rows) for heading, rows in sections.items()
    )


def _file(name: str) -> str:
    """That a secret may be in a file."""
    return f" `{file_variable(name)}` names a file with it." if name in in_files(Settings) else ""


def _default(name: str) -> str:
    if name == "data_dir":  # it depends on whose home it is
        return "`~/.local/share/harmonium`"
    value = Settings.model_fields[name].default
    value = ",".join(value) if isinstance(value, tuple) else value
    if value in ("", {}) or isinstance(value, SecretStr):
        return "empty"
    if unit_of(name) == "_bytes":
        return f"`{with_unit(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`".replace(".0`", "`")


def with_settings(document: Path) -> str:
    """A document with its rows of settings anew: all in docs/configuration.md, elsewhere those that are shown."""
    text = document.read_text()
    if document.name == "configuration.md":
        return _SECTIONS.sub(lambda _: settings_sections() + "\n", text)
    table = {row.split("`")[1]: f"{row}\n" for row in settings_table()}
    return _SETTING.sub(lambda row: table.get(row[1], row[0]), text)


def rewrite_settings() -> None:
    """Write each row of a setting anew."""
    for document in DOCUMENTS:
        document.write_text(with_settings(document))


def state_diagram() -> str:
    """The states of a background response and who moves it from one to the next, as Mermaid draws it."""
    moves = [f"{before} --> {after}: {move.script}" for before, row in MOVES.items() for after, move in row.items()]
    ends = [f"{status} --> [*]" for status in sorted(TERMINAL)]
    return "\n    ".join(["stateDiagram-v2", "[*] --> queued: submit", *moves, *ends])


def rewrite_diagram() -> None:
    """Write the diagram of states in docs/architecture.md anew."""
    document = ROOT / "docs" / "architecture.md"
    drawn = f"```mermaid\n{state_diagram()}\n```"
    document.write_text(re.sub(r"(?s)```mermaid\n.*?\n```", drawn, document.read_text()))


def experimental() -> dict[str, str]:
    """The kinds of all that is marked as experimental, by its name."""
    marked = {variable(name): "setting" for name, each in _FIELDS.items() if each.json_schema_extra == EXPERIMENTAL}
    for route in all_routes():
        if route.include_in_schema and route.openapi_extra == EXPERIMENTAL:
            marked |= {f"{method} {route.path}": "route" for method in route.methods or ()}
    marked |= {about.name: "metric" for _, _, about in declarations() if _MARK in about.tells}
    marked |= {dialect.prefix: "dialect" for dialect in also_spoken() if not dialect.stable}
    for command in vars(get_command(app))["commands"].values():
        marked |= {f"harmonium {name}": kind for name, kind, words in _helps(command) if _MARK in words}
    return marked


def _helps(command: Any) -> Iterator[tuple[str, str, str]]:
    """The names, the kinds and the help of a command and of its options."""
    yield command.name, "command", command.help or ""
    for each in command.params:
        yield f"{command.name} {each.opts[0]}", "option", getattr(each, "help", None) or ""
    for inner in getattr(command, "commands", {}).values():
        yield from ((f"{command.name} {name}", kind, words) for name, kind, words in _helps(inner))


def with_experimental(text: str) -> str:
    """The text of docs/configuration.md with the table of all that is experimental anew."""
    rows = "".join(f"| {kind} | `{name}` |\n" for name, kind in experimental().items())
    head = r"(\| Kind \| Experimental \|\n\| --- \| --- \|\n)(?:\|.*\n)*"
    return re.sub(head, lambda found: found[1] + rows, text)


def fates_table() -> str:
    """A row for each kind of item, part and block in a history: what docs/api.md has to hold."""
    doors = {
        "item of Responses and Conversations": ITEMS,
        "part of an item": PARTS,
        "block of Messages": BLOCKS,
        "part of Chat Completions": CHAT_PARTS,
    }
    rows = [(kind, what, fate.value) for what, kinds in doors.items() for kind, fate in kinds.items()]
    return "".join(f"| `{kind}` | {what} | {fate} |\n" for kind, what, fate in rows)


def with_fates(text: str) -> str:
    """The text of docs/api.md with that table anew."""
    pattern = r"(?m)(?<=^\| Kind \| What it is \| In a history \|\n\| --- \| --- \| --- \|\n)(?:^\|.*\n)*"
    return re.sub(pattern, lambda _: fates_table(), text)


def metrics_rows() -> list[str]:
    """A row for each metric, in the order in which they are declared: docs/metrics.md has to hold them."""
    kinds = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}
    counted = [(kinds[kind], about) for _, kind, about in declarations()]
    found: list[str] = []
    for kind, about in (*counted, *(("gauge", about) for about in SCRAPED)):
        labels = [f"`{name}`: {', '.join(values)}" if values else f"`{name}`" for name, values in about.labels.items()]
        found.append(f"| `{about.name}` | {kind} | {'; '.join(labels)} | {about.tells} |\n")
    return found


def with_metrics(text: str) -> str:
    """The text of docs/metrics.md with its tables anew: each has the metrics from its first one to the next table's."""
    rows = metrics_rows()
    heads = re.findall(_METRICS, text)
    begins = [next(at for at, row in enumerate(rows) if row.startswith(f"| `{first}` ")) for _, first in heads]
    tables = iter(["".join(rows[start:end]) for start, end in pairwise([0, *begins[1:], len(rows)])])
    return re.sub(_METRICS, lambda found: found[1] + next(tables), text)


if __name__ == "__main__":
    (ROOT / "docs" / "api.md").write_text(with_fates(read("docs/api.md")))
    (ROOT / "docs" / "metrics.md").write_text(with_metrics(read("docs/metrics.md")))
    (ROOT / "docs" / "configuration.md").write_text(with_experimental(read("docs/configuration.md")))
    rewrite_settings()
    rewrite_diagram()
