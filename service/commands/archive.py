"""The options of `harmonium archive`, and how its results are printed."""

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Never, TypeVar

import msgspec
import typer
from rich.console import Console

from service.commands.signals import be_interruptible
from service.settings.settings import Settings, SettingsError, display, load_settings
from store.errors import StoreError
from store.keys import HEX_DIGITS, digits_of

if TYPE_CHECKING:
    from rich.console import Console

EXIT_WHOLE = 0
EXIT_FAULTS = 1
EXIT_FAILED = 2

SAMPLE = 1_000
"""How many trees `verify` looks at unless it is told otherwise."""

archive = typer.Typer(
    no_args_is_help=True,
    help="The archive behind Redis: look at it, check, export, bring back, erase, hold it. The settings are those of "
    "`serve`, and all of it may run while the service does.",
)

AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON object instead of sentences.")]
Tenant = Annotated[str, typer.Option("--tenant", metavar="NAME", help="Whose it is.", show_default=False)]
T = TypeVar("T")


@archive.command("status")
def status(
    quick: Annotated[bool, typer.Option("--quick", metavar="", help="Without counting what is in it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Where the archive is, whether it can be used, what waits to be archived, and how much is in it.

    Its store is probed with a value of its own. Counting lists all keys: a request for each thousand, and looks at all
    keys of Redis for what was deleted within the last minute, which nobody brings back. Trees that could not be
    archived are named, with why.

    The exit status is 0 where it can be used, 1 where the store can't be an archive, 2 where nothing could be asked.
    """
    from service.commands import archive_work as work

    settings = _load()
    found = _do(lambda: work.status(settings, _progress(), quick=quick))
    kept = found.stored
    if as_json:
        shards = [_row(each) for each in found.waiting]
        told = {
            "archive": display(work.settled(settings))["archive_url"],
            "usable": found.unfit is None,
            "unfit": found.unfit,
            "warnings": found.warnings,
            "redis": found.unreached,
            "shards": shards,
            "failed": [each._asdict() for each in found.failed],
            "stored": None if kept is None else _row(kept),
        }
        typer.echo(json.dumps(told, indent=2))
    else:
        typer.echo(f"archive: {display(work.settled(settings))['archive_url']}")
        typer.echo(f"probe: {found.unfit or 'passed'}")
        for warning in found.warnings:
            typer.echo(f"warning: {warning}")
        for line in _waiting(found.waiting, found.unreached):
            typer.echo(line)
        for each in found.failed:
            typer.echo(f"not archived: tenant {each.tenant}, {each.root}: {each.reason}")
        if kept is not None:
            typer.echo(f"in the archive: {kept.trees:,} trees, {kept.values:,} values, {kept.bytes:,} bytes")
    raise typer.Exit(EXIT_WHOLE if found.unfit is None else EXIT_FAULTS)


@archive.command("verify")
def verify(
    whole: Annotated[bool, typer.Option("--all", metavar="", help="All trees, in the archive and in Redis.")] = False,
    sample: Annotated[
        int, typer.Option("--sample", min=1, max=1_000_000, metavar="N", help="About so many of each, at random.")
    ] = SAMPLE,
    alone: Annotated[bool, typer.Option("--alone", metavar="", help="The archive alone, without Redis.")] = False,
    repair: Annotated[bool, typer.Option("--repair", metavar="", help="Mend what can be mended.")] = False,
    turns_per_second: Annotated[
        float, typer.Option(min=0, metavar="N", help="Pace at which Redis is read. 0 is as fast as it answers.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Check that what is archived can be read and is whole, and that it has what Redis has.

    Without `--repair` it changes nothing. A repair copies a damaged value below v1/damaged/ before it puts an empty one
    in its place, has the service archive again what the archive lacks, and deletes again in Redis what was deleted.
    docs/archive.md lists the faults. Of what was said, nothing is shown.

    The exit status is 0 if nothing is wrong, 1 if something is, 2 if the check could not be done, or if a later release
    wrote some of it.
    """
    from service.commands import archive_work as work
    from service.commands.archive_work import lines_of, object_of

    settings, most = _load(), None if whole else sample
    found = _do(
        lambda: work.verify(
            settings, _progress(), most=most, repair=repair, alone=alone, turns_per_second=turns_per_second
        )
    )
    if as_json:
        typer.echo(json.dumps(object_of(found), indent=2))
    else:
        for line in lines_of(found, repair=repair):
            typer.echo(line)
        if found.unjudged and not alone:
            numbers = ", ".join(f"{number:02x}" for number in found.unjudged)
            typer.echo(f"Redis was not compared in shard {numbers}: it has no archive there yet, or not for all of it")
        if found.moved:
            typer.echo(f"Damaged values that were moved away: {found.moved:,}")
        if found.left and not repair:
            typer.echo("`harmonium archive verify --repair` mends what can be; see docs/archive.md")
    raise typer.Exit(EXIT_FAILED if found.newer else EXIT_FAULTS if found.left else EXIT_WHOLE)


@archive.command("export")
def export(
    tenant: Tenant,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="A new file, compressed if it ends with .zst; - is stdout.")
    ] = "-",
    tree: Annotated[
        str | None,
        typer.Option("--tree", metavar="ID", help="Only the tree with this response.", show_default=False),
    ] = None,
) -> None:
    """Write what a tenant has in the archive as lines of JSON, one for each turn; deleted ones are left out.

    docs/archive.md has their form. It lacks turns that changed a moment ago and are in Redis alone.

    The exit status is 0 if all is in it, 1 if something could not be read, 2 if it could not be done.
    """
    from service.commands import archive_work as work

    settings = _load()
    if tree is not None and not _is_id(tree):
        _fail(f"--tree {tree[:80]}: should be the id of a response, or of a conversation")

    def write() -> Any:
        if file == "-":
            return work.export(settings, sys.stdout.buffer, tenant, tree, _progress())
        path = Path(file)
        with open(path, "xb", opener=_own) as opened, work.packed(opened, path) as packed:
            return work.export(settings, packed, tenant, tree, _progress())

    done = _do(write)
    typer.echo(f"{done.turns:,} turns of {done.trees:,} trees", err=True)
    if done.unreadable:
        typer.echo(f"{done.unreadable:,} values could not be read: see `harmonium archive verify`", err=True)
    raise typer.Exit(EXIT_FAULTS if done.unreadable else EXIT_WHOLE)


@archive.command("restore")
def restore(
    into_memory: Annotated[
        bool, typer.Option("--into-memory", metavar="", help="Bring trees back into Redis now, the newest first.")
    ] = False,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Only what this tenant has.", show_default=False)
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--since", formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"], help="Only what was archived since, UTC."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say how an empty Redis gets back what the archive has: by itself, as it is read. Or bring it back now.

    Point the service at an empty Redis and at the archive: each conversation comes back when its id is asked for. With
    `--into-memory` the newest come back now, up to 100,000 trees, as far as there is room: nothing is evicted for it.

    The exit status is 0 if all that was asked for is back, 1 if some is not, 2 if it could not be done.
    """
    from service.commands import archive_work as work

    settings = _load()
    if not into_memory:
        _do(lambda: work.settled(settings))
        typer.echo("Nothing has to be copied: what is archived comes back from there when its id is asked for.")
        typer.echo("`harmonium archive restore --into-memory` brings back the newest now, as far as there is room.")
        return
    moment = 0.0 if since is None else since.replace(tzinfo=UTC).timestamp()
    done = _do(lambda: work.fill(settings, _progress(), tenant=tenant, since=moment))
    if as_json:
        typer.echo(json.dumps(_row(done), indent=2))
    else:
        typer.echo(f"{done.trees:,} of {done.wanted:,} trees are in Redis, with {done.turns:,} turns")
        if done.no_room:
            typer.echo(f"No room for {done.no_room:,}: they come back when they are read")
        if done.unreadable:
            typer.echo(f"{done.unreadable:,} could not be brought back: see `harmonium archive verify`")
    raise typer.Exit(EXIT_FAULTS if done.no_room or done.unreadable else EXIT_WHOLE)


@archive.command("erase")
def erase(
    tenant: Tenant,
    yes: Annotated[
        bool, typer.Option("--yes", metavar="", help="Do it; without this it only says what it would.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Erase all that a tenant has, in the archive and in Redis, for good.

    A mark comes first: what the tenant had until now is neither archived nor told any more, whoever still has it. What
    the tenant makes from then on is kept. Keys and limits stay: `harmonium projects archive` ends those. Where it was
    interrupted, or a response was under way, run it again. Conversations on hold are not erased.

    The exit status is 0 if all is gone, 1 if some is under way, 2 if it could not be done.
    """
    from service.commands import archive_work as work

    settings = _load()
    if not yes:
        _fail(f"this erases all that tenant {tenant} has, in the archive and in Redis, for good; say --yes to do it")
    gone = _do(lambda: work.erase(settings, tenant))
    if as_json:
        told = {"tenant": tenant, **_row(gone.archive), "trees_in_redis": gone.trees, "under_way": gone.under_way}
        typer.echo(json.dumps(told, indent=2))
    else:
        typer.echo(f"erased: {gone.trees:,} trees in Redis, {gone.archive.deleted:,} values in the archive")
        if gone.under_way:
            typer.echo(f"{gone.under_way:,} trees have a response under way: run it again when those have ended")
    raise typer.Exit(EXIT_FAULTS if gone.under_way else EXIT_WHOLE)


@archive.command("hold")
def hold(
    tenant: Tenant,
    release: Annotated[bool, typer.Option("--release", metavar="", help="End the hold.")] = False,
) -> None:
    """Hold what a tenant has in the archive: it is not deleted for its age, nor erased as a whole.

    Users go on deleting single responses and conversations: a hold doesn't stop that.
    """
    from service.commands import archive_work as work

    settings = _load()
    before = _do(lambda: work.hold(settings, tenant, release=release))
    if release:
        typer.echo(f"tenant {tenant} is no longer on hold" if before else f"tenant {tenant} was not on hold")
    else:
        typer.echo(f"tenant {tenant} was on hold already" if before else f"tenant {tenant} is on hold")


def _waiting(shards: list[Any], unreached: str | None) -> list[str]:
    """Lines on the trees that wait to be archived, shard by shard."""
    if unreached is not None:
        return [f"Redis: {unreached}"]
    lines: list[str] = []
    for each in shards:
        if not each.noted:
            lines.append(f"shard {each.shard:02x}: no service has told it of an archive yet")
        elif each.trees:
            waits = f"{each.trees:,} trees wait, the oldest for {each.oldest_seconds:,.0f} s"
            failed = f", {each.failed:,} of them could not be archived" if each.failed else ""
            lines.append(f"shard {each.shard:02x}: {waits}{failed}")
        if each.behind:
            lines.append(f"shard {each.shard:02x}: it went back in time, and has what was deleted since")
        if each.fences:
            lines.append(f"shard {each.shard:02x}: {each.fences:,} deletions were archived within the last minute")
    where = f"{len(shards)} shard{'' if len(shards) == 1 else 's'}"
    if not any(each.trees or not each.noted for each in shards):
        lines.insert(0, f"nothing waits to be archived, in {where}")
    return lines


def _row(value: Any) -> dict[str, Any]:
    """A value by the names of its fields, but for faults."""
    return {name: field for name, field in msgspec.structs.asdict(value).items() if name != "faults"}


def _is_id(text: str) -> bool:
    digits = digits_of(text)
    return len(digits) == HEX_DIGITS and all(mark in "0123456789abcdef" for mark in digits)


def _own(path: str, flags: int) -> int:
    """A file that its owner alone may read: it has what was said."""
    return os.open(path, flags, 0o600)


def _progress() -> "Console":
    return Console(stderr=True)


def _do(deed: Callable[[], T]) -> T:
    """The result of a deed on the settings' archive. An error ends the command."""
    be_interruptible()
    try:
        return deed()
    except (StoreError, OSError, ValueError, TypeError) as error:
        _fail(f"the archive: {error}")


def _load() -> Settings:
    try:
        return load_settings()
    except SettingsError as error:
        _fail(str(error))


def _fail(message: str) -> Never:
    typer.echo(f"harmonium: {message}", err=True)
    raise typer.Exit(EXIT_FAILED)
