"""Trees as files, one JSON object a line: a head, then its turns, each behind the one that it continues.

What a service says of a turn goes into the file as it is, with the seal that brings it back, and nothing is known here
of what is in that.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from service.commands.client import printing
from service.commands.client.errors import EXIT_USAGE, ClientError, Refused
from service.commands.client.reading import PAGE, checked
from service.commands.client.service import Json, Service
from service.commands.client.trees.shown import TREES, archived, tree_of

TURNS = "/console/api/turns"

FORMAT = "harmonium.tree"
VERSION = 1
"""The head of a tree in a file, and the newest that is read."""

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_TOLD = 10
"""How many times it is told that something is missing, or was refused; all are counted."""

PROGRESS_TURNS = 100
"""After how many turns it is told how far it is."""

_UNDER_WAY = ("queued", "in_progress")


@dataclass
class Exported:
    """What an export came to: how many trees and turns, and how many times something is missing of them."""

    trees: int = 0
    turns: int = 0
    missing: int = 0

    def lacks(self, what: str) -> None:
        """Something is missing."""
        self.missing += 1
        if self.missing <= MAX_TOLD:
            printing.told(f"without {what}")


@dataclass
class Imported:
    """What became of the turns of a file."""

    imported: int = 0
    kept: int = 0
    deleted: int = 0
    """Those that were deleted there since, and stay so."""
    refused: int = 0

    @property
    def turns(self) -> int:
        """How many there were."""
        return self.imported + self.kept + self.deleted + self.refused

    def __str__(self) -> str:
        deleted = f", {self.deleted} stay{'s' if self.deleted == 1 else ''} deleted" if self.deleted else ""
        refused = f", {self.refused} refused" if self.refused else ""
        return f"{self.imported} turns imported, {self.kept} were there{deleted}{refused}"


def every_tree(service: Service) -> Iterator[str]:
    """The id of each tree, the one used last first. Raises ClientError."""
    after: dict[str, str | int] = {}
    while True:
        page = service.call("GET", TREES, None, limit=PAGE, **after)
        yield from (str(tree["id"]) for tree in page["data"])
        if page.get("after") is None:
            return
        after = {"after": page["after"]}


def exported(service: Service, ids: Iterable[str], outcome: Exported) -> Iterator[Json]:
    """The lines of the trees that have these ids, each tree once. Raises ClientError."""
    seen: set[str] = set()
    for id in ids:
        tree = tree_of(service, id)
        if tree["id"] not in seen:
            seen.add(tree["id"])
            yield from _lines_of(service, tree, outcome)


def _lines_of(service: Service, tree: Json, outcome: Exported) -> Iterator[Json]:
    outcome.trees += 1
    head = {"object": FORMAT, "version": VERSION, "id": tree["id"], "turns": len(tree["turns"])}
    away = archived(tree)
    yield head | {"complete": tree["turns_complete"] and not away}
    if not tree["turns_complete"]:
        outcome.lacks(f"older branches of {tree['id']}")
    if away:
        outcome.lacks(f"{away}, of {tree['id']}")
    for turn in tree["turns"]:
        if turn["status"] in _UNDER_WAY:
            outcome.lacks(f"{turn['id']}, which is under way")
            continue
        try:
            whole = service.call("GET", f"{TURNS}/{checked(turn['id'])}")
        except Refused as error:
            if error.status != 404:
                raise
            outcome.lacks(f"{turn['id']}, which can't be read, or was deleted just now")
            continue
        outcome.turns += 1
        if outcome.turns % PROGRESS_TURNS == 0:
            printing.told(f"… {outcome.turns} turns of {outcome.trees} trees")
        yield whole


def imported(service: Service, file: BinaryIO, outcome: Imported) -> None:
    """Bring back the turns of a file, in their order. Raises ClientError for what is no such file."""
    for number, line in enumerate(_lines(file), start=1):
        found = _object(line, number)
        if found.get("object") == FORMAT:
            if found.get("version") != VERSION:
                raise ClientError(
                    f"line {number} begins a tree in version {found.get('version')!r}; this release reads {VERSION}"
                )
            continue
        brought = {name: found.get(name) for name in ("turn", "seal")}
        if not isinstance(brought["turn"], str):
            raise ClientError(f"line {number} is no turn of an export: it has no 'turn'", EXIT_USAGE)
        try:
            said = service.call("POST", TURNS, brought)
        except Refused as error:
            if error.status in (401, 403, 429) or error.status >= 500:
                raise
            outcome.refused += 1
            if outcome.refused <= MAX_TOLD:
                printing.told(f"line {number}: {error}")
            continue
        if said["new"]:
            outcome.imported += 1
        elif said.get("deleted"):
            outcome.deleted += 1
        else:
            outcome.kept += 1
        if outcome.turns % PROGRESS_TURNS == 0:
            printing.told(f"… {outcome.turns} turns")


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file that aren't empty. Raises ClientError for one that is too long."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise ClientError(f"a line has more than {MAX_LINE_BYTES} bytes: that is no export", EXIT_USAGE)
        if line.strip():
            yield line


def _object(line: bytes, number: int) -> Json:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ClientError(f"line {number} is no JSON object: that is no export", EXIT_USAGE)
    return cast(Json, found)
