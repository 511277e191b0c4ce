"""The erasure of what a service keeps of one person: all conversations that name them, in memory and in the archive."""

import json
from collections.abc import Iterator
from typing import Annotated

import typer

from service.commands.arguments import LOOK, flag, many, option
from service.features.client import printing
from service.features.client.errors import EXIT_USAGE, ClientError, RefusedByService
from service.features.client.options import AsJson, confirm, talking
from service.features.client.reading import PAGE, TREES
from service.features.client.service import Json, RemoteService
from service.features.client.trees import filters_of, unread_note

MOST_PAGES = 100_000
"""How many pages are asked for at most."""

app = typer.Typer()


@app.command(rich_help_panel=LOOK)
@talking
def erase(
    service: RemoteService,
    metadata: Annotated[
        list[str] | None, option("KEY=VALUE", "Conversations with a turn that has this metadata.")
    ] = None,
    safety_identifier: Annotated[str | None, option("NAME", "Conversations with a turn for this person.")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only list the conversations.")] = False,
    yes: Annotated[bool, flag("--yes", "-y", "Don't ask.")] = False,
    as_json: AsJson = False,
) -> int:
    """Erase the conversations of one person, with all forks, in memory and in the archive.

    The metadata, `safety_identifier` or `user` of any turn names the person. Earlier backups still contain the
    conversations: delete them, or run this again after a restore.
    """
    filters = filters_of(None, None, None, metadata or [])
    if safety_identifier:
        filters["safety_identifier"] = safety_identifier
    if not filters:
        raise ClientError("name the person: --metadata KEY=VALUE or --safety-identifier NAME", EXIT_USAGE)
    # a second time, as a tree that was used meanwhile has moved to the front of the list
    unread = set[str]()
    found = {tree["id"]: tree for _ in range(2) for tree in _found(service, filters, unread)}
    for tree in found.values() if dry_run or not yes else ():
        printing.remark(f"{tree['newest']['id']}  {printing.excerpt(tree['title'] or '')}")
    if not dry_run and found and not yes and not confirm(f"Erase {many(len(found), 'conversation')}?"):
        raise ClientError("nothing was erased")
    reasons = {} if dry_run else {str(tree["newest"]["id"]): _erase(service, tree) for tree in found.values()}
    left = {id: reason for id, reason in reasons.items() if reason}
    done = len(reasons) - len(left)
    outcome = {"found": len(found), "erased": done, "left": list(left), "unread_shards": sorted(unread)}
    printing.out(json.dumps(outcome) if as_json else f"{len(found)} found, {done} erased")
    for id, reason in left.items():
        printing.remark(f"{id} stays: {reason}")
    if unread:
        printing.remark(unread_note(sorted(unread)))
    return 1 if left or unread else 0


def _found(service: RemoteService, filters: dict[str, str | int], unread: set[str]) -> Iterator[Json]:
    """All trees that are so; it adds to `unread` the shards whose trees nobody can read. Raises ClientError where they
    are more than can be asked for.
    """
    after = None
    for _ in range(MOST_PAGES):
        page = service.call("GET", TREES, None, limit=PAGE, after=after, **filters)
        yield from page["data"]
        if page["archive_away"]:
            raise ClientError("the archive doesn't answer and may have more; nothing was erased. Run this again")
        unread.update(page["unread_shards"])
        after = page["after"]
        if after is None:
            return
    raise ClientError("one run finds only a part of these conversations; run this again")


def _erase(service: RemoteService, tree: Json) -> str:
    """The reason why a tree is still there; empty where it is gone now."""
    at, responses = tree["newest"]["id"], [tree["newest"]["id"]]
    try:
        if tree["newest"]["kind"] != "response":  # such a turn is deleted with a response of its tree
            turns = service.call("GET", f"{TREES}/{at}", None)["turns"]
            responses = [turn["id"] for turn in turns if turn["kind"] == "response" and turn["status"] != "deleted"]
        if responses:
            service.call("DELETE", f"/v1/responses/{responses[0]}", None, tree="true")
        else:
            service.call("DELETE", f"/v1/conversations/{tree['conversation']}", None)
    except RefusedByService as error:
        if error.status >= 500:
            raise
        return "" if error.status == 404 else str(error)
    return ""
