"""`harmonium export` and `import`: conversations as files, whole for another service, or as trainers read them."""

import json
import re
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, cast

import typer

from service.commands.arguments import EXIT_USAGE, LOOK, SINCE, argument, command_line, flag, many, option
from service.features.client import printing
from service.features.client.errors import ClientError
from service.features.client.options import AsJson, talking
from service.features.client.reading import whole_id
from service.features.client.service import Json, RemoteService
from service.features.client.trees import (
    UNDER_WAY,
    ExportCounts,
    ImportCounts,
    bring,
    export_lines,
    filters_of,
    import_file,
    listed_tree,
    trees,
    with_branches,
)
from service.features.trajectories.reading import BegunFile, Story, stories

TRAJECTORIES = "/v1/trajectories"
AFTER = "x-harmonium-after"

MOST = 1 << 40
"""As many trees as there are."""

HISTORIES = "/console/api/histories"

_OWN = re.compile(rb'\s*\{"(object": ?"harmonium\.tree"|id": "[a-z]+_[0-9a-f]{48}", "kind"|turn")')

app = command_line()


@app.command(rich_help_panel=LOOK)
@talking
def export(
    service: RemoteService,
    ids: Annotated[list[str] | None, argument("ID", "A response, an item or a conversation of each tree.")] = None,
    everything: Annotated[bool, flag("--all", "All trees of the key, archived ones too.")] = False,
    form: Annotated[
        Literal["tree", "atif", "gym"],
        typer.Option("--format", metavar="tree|atif|gym", help="The form; atif, gym (experimental)."),
    ] = "tree",
    model: Annotated[
        str | None, option("NAME", "Trajectories of trees with a turn of this model (experimental).")
    ] = None,
    since: Annotated[str | None, option("TIME", f"Trajectories (experimental) of trees used {SINCE}")] = None,
    metadata: Annotated[
        list[str] | None, option("KEY=VALUE", "Those of trees with this metadata (experimental).")
    ] = None,
    after: Annotated[str | None, option("CURSOR", "Those used since this cursor; 0 begins (experimental).")] = None,
) -> int:
    """Print whole trees as lines of JSON, for `harmonium import`: each turn with its ids, its tokens and a seal.

    With `--format atif` or `gym` a line is a trajectory: the turns from the first to one without a continuation.
    """
    filters = filters_of(metadata, model=model, since=since)
    if (everything or bool(filters)) + bool(ids) + (after is not None) != 1:
        raise ClientError("give the id of a response, or --all", EXIT_USAGE)
    if form == "tree":
        if filters or after is not None:
            raise ClientError("a filter or a cursor needs --format atif or gym", EXIT_USAGE)
        outcome = ExportCounts()
        for line in export_lines(service, ids or [], outcome):
            printing.out(json.dumps(line))
        printing.remark(f"{many(outcome.turns, 'turn')} of {many(len(outcome.trees), 'tree')}")
        return 1 if outcome.missing else 0
    if after is not None:
        pieces = _since(service, after, form)
    else:
        listed = (tree for page in trees(service, MOST, filters, None) for tree in page["data"])
        wanted = (
            (whole_id(service, id) for id in ids) if ids else (id for tree in listed for id in _tops(service, tree))
        )
        pieces = (each for id in wanted for each in service.pieces(TRAJECTORIES, AFTER, id=id, format=form))
    number = 0
    for piece in pieces:
        number += piece.count(b"\n")
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    printing.remark(f"{number:,} {'trajectory' if number == 1 else 'trajectories'}")
    return 0


def _tops(service: RemoteService, listed: Json) -> Iterator[str]:
    """The first responses of a listed tree, one of which each of its trajectories has: more than one only where the
    root was deleted.
    """
    found = listed_tree(service, listed)
    turns, below = list[Json](), set[str]()
    for tree in () if found is None else with_branches(service, found):
        turns = tree["turns"]
    for turn in turns:
        if turn["parent"] not in below:
            if turn["kind"] != "response" or turn["status"] in ("deleted", *UNDER_WAY):
                continue
            yield turn["id"]
        below.add(turn["id"])


def _since(service: RemoteService, after: str, form: str) -> Generator[bytes]:
    """The trajectories of all pages behind a cursor, and where to go on."""
    last = None
    while after != last:
        last = after
        after = (yield from service.pieces(TRAJECTORIES, AFTER, after=last, format=form)) or last
    if _has_archive(service):
        printing.remark("without conversations that are only in the archive; --all includes them")
    printing.remark(f"… --after {after} continues")


def _has_archive(service: RemoteService) -> bool:
    """Whether the service has an archive, as far as it says so."""
    with suppress(ClientError):
        return "archive" in service.call("GET", "/ready")
    return True


@app.command(name="import", rich_help_panel=LOOK)
@talking
def import_(
    service: RemoteService,
    file: Annotated[Path, argument("FILE", "An exported file, or another product's; - is stdin.")],
    as_json: AsJson = False,
) -> int:
    """Store an export again, under its ids, or the conversations of another product. Existing turns stay as they are.

    A deleted response stays deleted if the store has an archive, or if other responses continue it.
    """
    outcome, lost = ImportCounts(), Counter[str]()
    try:
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as opened:
            begun = BegunFile(opened)
            if _OWN.match(begun.head):
                import_file(service, cast(BinaryIO, begun), outcome)
            else:
                for story in stories(begun, lost):
                    _bring(service, story, outcome)
    except OSError as error:
        raise ClientError(f"can't read {file}: {error.strerror}", EXIT_USAGE) from None
    for what, count in sorted((+lost).items()):
        printing.remark(f"without {what}: {count:,}")
    told = asdict(outcome) | ({"without": dict(+lost)} if +lost else {})
    printing.out(json.dumps(told) if as_json else str(outcome))
    return 1 if outcome.refused or any(what.startswith("broken") for what in +lost) else 0


def _bring(service: RemoteService, story: Story, outcome: ImportCounts) -> None:
    """Have the turns of a story stored."""
    roots = dict[str, str]()
    for turn in story.turns:
        roots[turn.id] = root = turn.id if turn.parent is None else roots[turn.parent]
        metadata = {"imported_from": story.form, "history": story.id} | ({"title": story.title} if story.title else {})
        row: Json = {"history": f"{story.form}/{story.id}/{root}", "id": turn.id, "parent": turn.parent}
        row |= {"created_at": turn.at, "items": turn.items, "output": turn.output, "metadata": metadata}
        bring(service, HISTORIES, row | ({"model": turn.model} if turn.model else {}), outcome, story.id)
