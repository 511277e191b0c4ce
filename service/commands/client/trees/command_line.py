"""The options of `harmonium ls`, `tree`, `export` and `import`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from service.commands.client import printing
from service.commands.client.errors import EXIT_USAGE, ClientError
from service.commands.client.options import AsJson, Id, talking
from service.commands.client.service import Json, Service
from service.commands.client.trees import shown, transfer

app = typer.Typer()


@app.command()
@talking
def ls(
    service: Service,
    limit: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="How many at most.")] = 20,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="Only those whose newest turn is so.", show_default=False)
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those whose newest turn is of this.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only those used since a date, or 2h or 7d ago.", show_default=False),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Only those whose newest turn has this.", show_default=False),
    ] = None,
    after: Annotated[str | None, typer.Option(metavar="CURSOR", help="Go on there.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print a JSON object a line.")] = False,
) -> None:
    """List conversations by their newest turns, the one used last first. `harmonium tree ID` draws the tree of one."""
    page: Json | None = None
    for page in shown.trees(service, limit, shown.filters_of(status, model, since, metadata or []), after):
        for tree in page["data"]:
            printing.out(json.dumps(tree) if as_json else shown.line_of(tree))
    if page is not None and (more := shown.searched(page)):
        printing.told(more)


@app.command()
@talking
def tree(
    service: Service,
    id: Id,
    as_json: AsJson = False,
) -> None:
    """Draw the tree of a response: all that was said before it, after it and beside it, the newest first."""
    found = shown.tree_of(service, id)
    if as_json:
        printing.out(json.dumps(found))
        return
    for line in shown.drawn(found):
        printing.out(line)
    if not found["turns_complete"]:
        printing.told("… and older branches")
    if away := shown.archived(found):
        printing.told(f"… and {away}")


@app.command()
@talking
def export(
    service: Service,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="A response, an item or a conversation of each tree.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", metavar="", help="All trees that the key sees.")] = False,
) -> int:
    """Print whole trees as lines of JSON, for `harmonium import`: each turn with its ids, its tokens and a seal."""
    if everything == bool(ids):
        raise ClientError("give the id of a response, or --all", EXIT_USAGE)
    outcome = transfer.Exported()
    for line in transfer.exported(service, ids or transfer.every_tree(service), outcome):
        printing.out(json.dumps(line))
    printing.told(f"{outcome.turns} turns of {outcome.trees} tree{'' if outcome.trees == 1 else 's'}")
    return 1 if outcome.missing else 0


@app.command(name="import")
@talking
def import_(
    service: Service,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What was exported; - is stdin.", show_default=False)],
    as_json: AsJson = False,
) -> int:
    """Bring back what was exported, under the ids that it had. What is there stays as it is.

    A response that was deleted there, and that others continue, stays deleted.
    """
    outcome = transfer.Imported()
    try:
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as opened:
            transfer.imported(service, opened, outcome)
    except OSError as error:
        raise ClientError(f"can't read {file}: {error.strerror}", EXIT_USAGE) from None
    if as_json:
        printing.out(json.dumps(asdict(outcome)))
    else:
        printing.out(str(outcome))
    return 1 if outcome.refused else 0
