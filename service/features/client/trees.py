"""`harmonium ls` and `tree`: trees at a terminal, listed and drawn; and as files, which `export` and `import` have.

A tree is drawn as `git log --graph --oneline` does: the newest turn first, a column for each branch. A file has a JSON
object a line: a head, then the turns, each behind the one that it continues. A turn goes into the file as a service
gives it, with the seal that brings it back; nothing is known here of what is in that.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from shutil import get_terminal_size
from typing import Annotated, BinaryIO

import typer

from service.commands.arguments import EXIT_USAGE, LOOK, SHOWN, SINCE, AsLines, Limit, many, moment_of, option
from service.features.client import printing
from service.features.client.errors import ClientError, RefusedByService
from service.features.client.options import AsJson, Id, talking
from service.features.client.reading import LAST, MOST_TREES, PAGE, TREES, check_id, tree_of, whole_id
from service.features.client.service import Json, RemoteService, object_in

SHOWN_ENDS = 10
"""How many branches that are in the archive alone are named."""

PROGRESS_TREES = 10_000
"""After how many trees of a search it is told how far it is."""

ARCHIVED = "archived"
"""The mark of a tree in a list that is in the archive alone."""

MOST_COLUMNS = 40
"""The most branches that are drawn beside each other; further ones are drawn in the last column."""

EXCERPT_CHARS = 48

SHORT_ID_CHARS = 15
"""How much of an id a list at a terminal has: of 500 trees two begin alike once in 30,000 lists."""

MINUTE_CHARS = 16
"""How much of a time such a list has."""

ARCHIVE_AWAY = {
    "unavailable": "the archive doesn't answer",
    "cataloguing": "the catalogue of the archive is being built, and can't be searched yet",
}
"""The reasons why a list has nothing of the archive."""

TURNS = "/console/api/turns"

FORMAT = "harmonium.tree"
VERSION = 1
"""The head of a tree in a file, and the newest that is read."""

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_TOLD = 10
"""How many times it is told that something is missing, or was refused; all are counted."""

PROGRESS_TURNS = 100
"""After how many turns it is told how far it is."""

UNDER_WAY = ("queued", "in_progress")

app = typer.Typer()


def trees(service: RemoteService, limit: int, filters: dict[str, str | int], after: str | None) -> Iterator[Json]:
    """Pages of at most `limit` trees in all, the one used last first, each once: one that was read may have left memory
    between two pages. Raises ClientError.
    """
    looked_at, told, listed = 0, 0, set[str]()
    while limit > 0:
        page = service.call("GET", TREES, None, limit=min(limit, PAGE), after=after, **filters)
        page["data"] = [tree for tree in page["data"] if tree["id"] not in listed]
        listed.update(tree["id"] for tree in page["data"])
        yield page
        limit -= len(page["data"])
        after = page.get("after")
        if after is None:
            return
        looked_at += page["searched"]["trees"]
        if page["searched"]["stopped"] and looked_at - told >= PROGRESS_TREES:
            told = looked_at
            printing.remark(f"… looked at {told} conversations, back to {printing.when(page['searched']['back_to'])}")


def away_note(page: Json) -> str:
    """The conversations that a page lacks, and the reason."""
    return f"the conversations that are only in the archive: {ARCHIVE_AWAY[page['archive_away']]}"


def unread_note(shards: Sequence[str]) -> str:
    """The shards of the archive of which a list has nothing."""
    return f"missing: {many(len(shards), 'shard')} of the archive, which can't be read: {' '.join(shards)}"


def filters_of(
    metadata: list[str] | None,
    *,
    status: str | None = None,
    model: str | None = None,
    since: str | None = None,
    person: str | None = None,
    text: str | None = None,
) -> dict[str, str | int]:
    """The filters of a list. Raises ClientError."""
    try:
        moment = None if since is None else moment_of(since)
    except ValueError as error:
        raise ClientError(str(error), EXIT_USAGE) from None
    asked = {"status": status, "model": model, "safety_identifier": person, "text": text, "since": moment}
    found: dict[str, str | int] = {name: value for name, value in asked.items() if value is not None}
    for pair in metadata or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise ClientError(f"{printing.excerpt(pair)!r} is not a pair; write KEY=VALUE", EXIT_USAGE)
        if f"metadata[{name}]" in found:
            raise ClientError(f"{printing.excerpt(name)!r} has two values; name each key once", EXIT_USAGE)
        found[f"metadata[{name}]"] = value
    return found


def line_of(tree: Json, columns: int = 0) -> str:
    """A tree in a list: its newest turn, when it was used, how large it is, whether it is in the archive alone, how it
    begins, and what was said last or what was found. In so many `columns` the id is a beginning that `whole_id` finds;
    0 is as many as it takes.
    """
    newest: Json = tree["newest"]
    found: Json = tree["found"] or Json()
    id, used = str(newest["id"]), printing.when(tree["last_used_at"])
    if columns:
        used = used[:MINUTE_CHARS]
        if newest["kind"] == "response":  # others have a mark in front of what tells them apart
            id = id[:SHORT_ID_CHARS]
    texts = (tree["title"] or newest["input"] or "", found.get("text") or newest["output"] or "")
    said = [printing.excerpt(text, EXCERPT_CHARS) for text in texts if text]
    where = [] if tree["in_memory"] else [ARCHIVED]
    line = "  ".join((id, used, turns_text(tree), *where, _status_mark(newest) + "  ".join(said))).rstrip()
    return printing.fitting(line, columns) if columns else line


def turns_text(tree: Json) -> str:
    """How many turns a tree in a list has."""
    return f"{tree['turns']}{'' if tree['turns_complete'] else '+'} turn{'' if tree['turns'] == 1 else 's'}"


def archive_note(tree: Json) -> str:
    """Which branches of a tree are in the archive alone, each of which comes back when its id is asked for; '' where
    there are none.
    """
    away: Json | None = tree.get("archived", {"ends": [], "complete": True})
    if away is None:
        return "archived branches: the archive doesn't answer"
    ends: list[str] = away["ends"]
    more = "" if away["complete"] else " or more"
    if not ends:
        return "branches in the archive" if more else ""
    branches = "branch" if len(ends) == 1 else "branches"
    return f"{len(ends)}{more} {branches} in the archive, with {' '.join(ends[:SHOWN_ENDS])}"


def draw(tree: Json) -> Iterator[str]:
    """The lines of a drawing of a tree."""
    turns: dict[str, Json] = {turn["id"]: turn for turn in tree["turns"] if turn["kind"] != "conversation"}
    names: dict[str, list[str]] = {}
    for turn in tree["turns"]:
        if turn["kind"] == "conversation":
            names.setdefault(str(turn["parent"]), []).append(turn["id"])
    columns: list[str | None] = []
    for turn in newest_first(turns):
        if turn["id"] not in columns:
            columns.append(turn["id"])
        id = str(turn["id"])
        mark = " ".join(names.get(id, []) + (["this one"] if id == tree["asked"] else []))
        head = f"{id} ({mark})" if mark else id
        yield f"{'| ' * min(len(columns) - 1, MOST_COLUMNS)}* {head}  {_turn_text(turn)}"
        columns[-1] = turn["parent"]
        if len(columns) > 1 and columns[-1] == columns[-2]:
            columns.pop()
            yield f"{'| ' * min(len(columns) - 1, MOST_COLUMNS)}|/"
        elif turn["parent"] not in turns:
            columns.pop()


def newest_first(turns: dict[str, Json]) -> Iterator[Json]:
    """Turns, each behind all that continue it; of branches the one with the newest turn first."""
    below: dict[str | None, list[str]] = {}
    newest: dict[str, tuple[int, int]] = {}
    for place, (id, turn) in reversed([*enumerate(turns.items())]):  # parents come before their children
        parent = turn["parent"] if turn["parent"] in turns else None
        below.setdefault(parent, []).append(id)
        newest[id] = max(newest.get(id, (0, 0)), (turn["created_at"], place))
        if parent is not None:
            newest[parent] = max(newest.get(parent, (0, 0)), newest[id])
    waiting = [(id, False) for id in sorted(below.get(None, []), key=lambda each: newest[each])]
    while waiting:
        id, is_done = waiting.pop()
        if is_done or id not in below:
            yield turns[id]
            continue
        waiting.append((id, True))
        waiting += [(each, False) for each in sorted(below[id], key=lambda each: newest[each])]


def _turn_text(turn: Json) -> str:
    """How a turn ended, if not well, what it was told and what it says."""
    told = printing.excerpt(turn["input"], EXCERPT_CHARS) if turn.get("input") else ""
    says = printing.excerpt(turn["output"], EXCERPT_CHARS) if turn.get("output") else ""
    kind = {"items": "[items] ", "omission": "[omits] "}.get(turn["kind"], "")
    return f"{_status_mark(turn)}{kind}{told}{' → ' if told and says else ''}{says}".rstrip()


def _status_mark(turn: Json) -> str:
    """How a turn ended, if not well."""
    return "" if turn["status"] == "completed" else f"[{turn['status']}] "


@dataclass
class ExportCounts:
    """The ids of an export's trees, how many turns it has, and how many times something is missing of them."""

    trees: set[str] = field(default_factory=set[str])
    turns: int = 0
    missing: int = 0

    def lacks(self, what: str) -> None:
        """Something is missing."""
        self.missing += 1
        if self.missing <= MAX_TOLD:
            printing.remark(f"without {what}")


@dataclass
class ImportCounts:
    """The outcomes of a file's turns."""

    imported: int = 0
    kept: int = 0
    deleted: int = 0
    """The turns that were deleted there since, and stay so."""
    refused: int = 0

    @property
    def turns(self) -> int:
        """How many there were."""
        return self.imported + self.kept + self.deleted + self.refused

    def __str__(self) -> str:
        deleted = f", {self.deleted} stay{'s' if self.deleted == 1 else ''} deleted" if self.deleted else ""
        refused = f", {self.refused} refused" if self.refused else ""
        return f"{many(self.imported, 'turn')} imported, {self.kept} already stored{deleted}{refused}"


def export_lines(service: RemoteService, ids: list[str], outcome: ExportCounts) -> Iterator[Json]:
    """The lines of the trees that have these ids, or without any of all that there are. Raises ClientError."""
    for id in ids:
        tree = tree_of(service, whole_id(service, id))
        if tree["id"] not in outcome.trees:
            yield from _lines_of(service, tree, outcome)
    for listed in () if ids else _all_trees(service, outcome):
        if listed["id"] in outcome.trees:
            continue
        if found := listed_tree(service, listed):
            yield from _lines_of(service, found, outcome)


def _all_trees(service: RemoteService, outcome: ExportCounts) -> Iterator[Json]:
    """All trees, then those used since that began: these may have been at the front when their place came."""
    begun: int | None = None
    for _ in range(2):
        since = begun
        for page in service.pages(TREES, limit=PAGE, since=since):
            for tree in page["data"]:
                begun = tree["last_used_at"] if begun is None else begun
                yield tree
            if page["archive_away"] and since is None:
                outcome.lacks(away_note(page))


def listed_tree(service: RemoteService, listed: Json) -> Json | None:
    """A tree of a list, None where it was deleted just now."""
    return _tree_at(service, listed["newest"]["id"]) or _tree_at(service, listed["id"])


def with_branches(service: RemoteService, tree: Json) -> Iterator[Json]:
    """A tree as it is, and then with each of its branches in the archive, which come back one by one."""
    ends = set[str]()
    more: Json | None = tree
    while more is not None:
        tree, more = more, None
        yield tree
        archived: Json = tree["archived"] or {}  # the archive may not say
        for end in archived.get("ends", ()):
            if end not in ends and more is None:
                ends.add(end)
                more = _tree_at(service, end)


def _tree_at(service: RemoteService, id: str) -> Json | None:
    """The tree of a response, None where it was deleted just now."""
    return service.find(f"{TREES}/{check_id(id)}")


def _lines_of(service: RemoteService, tree: Json, outcome: ExportCounts) -> Iterator[Json]:
    """The lines of a tree, with its branches in the archive."""
    outcome.trees.add(tree["id"])
    yield {"object": FORMAT, "version": VERSION, "id": tree["id"]}
    written = set[str]()
    for whole in with_branches(service, tree):
        tree = whole
        yield from _turns_of(service, [turn for turn in tree["turns"] if turn["id"] not in written], outcome)
        written.update(turn["id"] for turn in tree["turns"])
    if not tree["turns_complete"]:
        outcome.lacks(f"older branches of {tree['id']}")
    elif not (tree["archived"] and tree["archived"]["complete"]):
        outcome.lacks(f"{archive_note(tree)}, of {tree['id']}")


def _turns_of(service: RemoteService, turns: list[Json], outcome: ExportCounts) -> Iterator[Json]:
    for turn in turns:
        if turn["status"] in UNDER_WAY:
            outcome.lacks(f"{turn['id']}, which is still running")
            continue
        whole = service.find(f"{TURNS}/{check_id(turn['id'])}")
        if whole is None:
            outcome.lacks(f"{turn['id']}, which is unreadable, or was deleted just now")
            continue
        outcome.turns += 1
        if outcome.turns % PROGRESS_TURNS == 0:
            printing.remark(f"… {many(outcome.turns, 'turn')} of {many(len(outcome.trees), 'tree')}")
        yield whole


def import_file(service: RemoteService, file: BinaryIO, outcome: ImportCounts) -> None:
    """Bring back the turns of a file, in their order. Raises ClientError for what is no such file."""
    for number, line in enumerate(_lines(file), start=1):
        found = object_in(line, f"line {number} is not a JSON object, so this is not an export", EXIT_USAGE)
        if found.get("object") == FORMAT:
            if (version := found.get("version")) != VERSION:
                raise ClientError(f"line {number} begins a tree in version {version!r}; this release reads {VERSION}")
            continue
        brought = {name: found.get(name) for name in ("turn", "seal")}
        if not isinstance(brought["turn"], str):
            raise ClientError(f"line {number} is not a turn of an export: it has no 'turn'", EXIT_USAGE)
        bring(service, TURNS, brought, outcome, f"line {number}")


def bring(service: RemoteService, path: str, turn: Json, outcome: ImportCounts, where: str) -> None:
    """Have a turn stored, and count the outcome. Raises ClientError."""
    try:
        said = service.call("POST", path, turn)
    except RefusedByService as error:
        if error.status in (401, 403, 429) or error.status >= 500:
            raise
        outcome.refused += 1
        if outcome.refused <= MAX_TOLD:
            printing.remark(f"{where}: {error}")
        return
    if said["new"]:
        outcome.imported += 1
    elif said.get("deleted"):
        outcome.deleted += 1
    else:
        outcome.kept += 1
    if outcome.turns % PROGRESS_TURNS == 0:
        printing.remark(f"… {outcome.turns} turns")


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file that aren't empty. Raises ClientError for one that is too long."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise ClientError(f"a line has more than {MAX_LINE_BYTES} bytes, so this is not an export", EXIT_USAGE)
        if line.strip():
            yield line


@app.command(rich_help_panel=LOOK)
@talking
def ls(
    service: RemoteService,
    limit: Limit = SHOWN,
    status: Annotated[str | None, option("STATUS", "Only conversations whose newest turn has this status.")] = None,
    model: Annotated[str | None, option("NAME", "Only conversations with a turn of this model.")] = None,
    since: Annotated[str | None, option("TIME", f"Only conversations used {SINCE}")] = None,
    metadata: Annotated[
        list[str] | None, option("KEY=VALUE", "Only conversations with a turn that has this metadata.")
    ] = None,
    safety_identifier: Annotated[str | None, option("NAME", "Only conversations with a turn for this person.")] = None,
    text: Annotated[str | None, option("WORDS", "Only conversations with a turn that has all these words.")] = None,
    after: Annotated[str | None, option("CURSOR", "Continue a list after this cursor.")] = None,
    as_json: AsLines = False,
) -> None:
    """List conversations, most recently used first, each with the id of its newest turn. `harmonium tree ID` draws
    its tree.

    A conversation that is only in the archive is marked; `tree ID` returns it to memory.
    """
    filters = filters_of(metadata, status=status, model=model, since=since, person=safety_identifier, text=text)
    found_again = not (filters or after) and limit <= MOST_TREES  # by the beginnings of their ids
    columns = get_terminal_size().columns if found_again and sys.stdout.isatty() else 0
    page, is_empty = Json(), True
    for page in trees(service, limit, filters, after):
        for tree in page["data"]:
            is_empty = False
            printing.out(json.dumps(tree) if as_json else line_of(tree, columns), mark=text or "")
    if page["after"] is not None:
        printing.remark(f"… --after {page['after']} shows more")
    elif page["archive_away"]:
        printing.remark(f"… without {away_note(page)}")
    elif page["unread_shards"]:
        printing.remark(f"… {unread_note(page['unread_shards'])}")
    elif is_empty:
        printing.remark("no conversation matches" if filters or after else "no conversations")


@app.command(rich_help_panel=LOOK)
@talking
def tree(service: RemoteService, id: Id = LAST, as_json: AsJson = False) -> None:
    """Draw the tree of a response: all turns before it, after it and beside it, the newest first."""
    found = tree_of(service, id)
    if as_json:
        printing.out(json.dumps(found))
        return
    for line in draw(found):
        printing.out(line)
    if not found["turns_complete"]:
        printing.remark("… and older branches")
    if away := archive_note(found):
        printing.remark(f"… and {away}")
