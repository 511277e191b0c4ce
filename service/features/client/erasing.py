"""The erasure of what a service keeps of one person: all conversations that name them, in memory and in the archive."""

import asyncio
import json
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from service.commands.arguments import EXIT_USAGE, LOOK, Yes, flag, many, option
from service.features.client import printing
from service.features.client.errors import ClientError, RefusedByService
from service.features.client.options import AsJson, confirm, talking
from service.features.client.reading import PAGE, TREES
from service.features.client.service import Json, RemoteService
from service.features.client.trees import ARCHIVE_AWAY, filters_of, unread_note

MOST_PAGES = 100_000
"""How many pages are asked for at most."""

app = typer.Typer()


@app.command(rich_help_panel=LOOK)
@talking
def erase(
    service: RemoteService,
    metadata: Annotated[
        list[str] | None, option("KEY=VALUE", "Conversations with this metadata, their own or a turn's.")
    ] = None,
    safety_identifier: Annotated[str | None, option("NAME", "Conversations with a turn for this person.")] = None,
    backups: Annotated[
        Path | None, option("FOLDER", "Name the backups there that still have the conversations.")
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only list the conversations.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> int:
    """Erase the conversations of one person, with all forks, in memory and in the archive.

    The person is named by the metadata, `safety_identifier` or `user` of any turn, or by a conversation's metadata.
    Earlier backups may still contain the conversations: `--backups` names these backups with their dates. Delete them,
    or run this command again after a restore.
    """
    if backups and not backups.is_dir():
        raise ClientError(f"{backups} is no folder", EXIT_USAGE)
    filters = filters_of(metadata, person=safety_identifier)
    if not filters:
        raise ClientError("name the person: --metadata KEY=VALUE or --safety-identifier NAME", EXIT_USAGE)
    # a second time, as a tree that was used meanwhile has moved to the front of the list
    looks = [list(_pages(service, filters)) for _ in range(2)]
    found = {tree["id"]: tree for look in looks for page in look for tree in page["data"]}
    unread = sorted({shard for look in looks for page in look for shard in page["unread_shards"]})
    too_large = max(sum(page["searched"]["unread"] for page in look) for look in looks)
    for tree in found.values() if dry_run or not yes else ():
        printing.remark(f"{tree['newest']['id']}  {printing.excerpt(tree['title'] or '')}")
    if not dry_run and found and not yes and not confirm(f"Erase {many(len(found), 'conversation')}?"):
        raise ClientError("nothing was erased")
    reasons = {} if dry_run else {str(tree["newest"]["id"]): _erase(service, tree) for tree in found.values()}
    left = {id: reason for id, reason in reasons.items() if reason}
    done = len(reasons) - len(left)
    kept = asyncio.run(_in_backups(sorted(filter(Path.is_file, backups.iterdir())), found)) if backups else []
    outcome = {"found": len(found), "erased": done, "left": list(left), "too_large": too_large, "unread_shards": unread}
    outcome |= {"backups": kept} if backups else {}
    printing.out(json.dumps(outcome) if as_json else f"{len(found)} found, {done} erased")
    for id, reason in left.items():
        printing.remark(f"{id} stays: {reason}")
    for each in kept:
        told = f"of {each['made']} still has {each['has']} of them" if each["made"] else "can't be read as a backup"
        printing.remark(f"{each['file']} {told}")
    if found and not backups:
        printing.remark("Earlier backups may still have them: --backups FOLDER names these")
    if too_large:
        printing.remark(
            f"missing: {many(too_large, 'conversation')} too large to be searched, which may name the person"
        )
    if unread:
        printing.remark(unread_note(unread))
    return 1 if left or too_large or unread else 0


def _pages(service: RemoteService, filters: dict[str, str | int]) -> Iterator[Json]:
    """The pages of all trees that are so. Raises ClientError where they are more than can be asked for."""
    after = None
    for _ in range(MOST_PAGES):
        page = service.call("GET", TREES, None, limit=PAGE, after=after, **filters)
        yield page
        if page["archive_away"]:
            raise ClientError(f"{ARCHIVE_AWAY[page['archive_away']]}; nothing was erased. Run this again later")
        after = page["after"]
        if after is None:
            return
    raise ClientError("one run finds only a part of these conversations; run this again")


def _erase(service: RemoteService, tree: Json) -> str:
    """The reason why a tree is still there; empty where it is gone now."""
    id = tree["newest"]["id"]
    try:
        if tree["newest"]["status"] == "deleted":  # other turns or a conversation are there, by which it was found
            turns = service.call("GET", f"{TREES}/{tree['found']['id']}", None)["turns"]
            there = (turn["id"] for turn in turns if turn["kind"] != "conversation" and turn["status"] != "deleted")
            id = next(there, id)
        service.call("DELETE", f"/v1/responses/{id}", None, tree="true")
    except RefusedByService as error:
        if error.status >= 500:
            raise
        return "" if error.status == 404 else str(error)
    return ""


async def _in_backups(paths: Iterable[Path], ids: Collection[str]) -> list[Json]:
    """Those of some files that still have trees with these ids, or that can't be read as a backup: when each was made,
    and how many of the trees it has.
    """
    # of no use to other commands, which begin without the store's modules
    from store.backup.upkeep.backup_file import HEADER_KEY, header_in, reading, turns_of
    from store.backup.upkeep.walking import trees_of
    from store.errors import StoreError
    from store.keys import digits_of

    found = list[Json]()
    for path in paths:
        made, has = "", 0
        try:
            async with reading(path) as (file, _):
                if (head := await file.get(HEADER_KEY)) is not None:
                    made = datetime.fromtimestamp(header_in(head.value).created / 1e6, UTC).isoformat(
                        timespec="seconds"
                    )
                    for id in ids:
                        there = [tree async for tree in trees_of(file, None, digits_of(id))]
                        has += any([not turn.deleted for tree in there async for turn in turns_of(file, tree)])
        except (StoreError, ValueError, OSError):
            made = ""
        if has or not made:
            found.append({"file": str(path), "made": made, "has": has})
    return found
