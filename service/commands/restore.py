"""`harmonium restore`: the conversations of a backup, back in the settings' Redis.

store/backup/restore.py does it; this asks for it, and shows what became of each turn. Never show what anybody said.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import DownloadColumn

from service.build import this_build
from service.commands.backup import EXIT_INCOMPLETE, EXIT_WHOLE, about, bar_on, last_of, show_done
from service.commands.doctor import server_url
from service.settings.settings import Settings, variable
from store.backup.restore import Bounds, Done, Restore, Restored
from store.errors import DoesNotFit
from store.redis.connection import connect

DAY_US = 86_400_000_000

SHOWN = 20
"""The most conflicts that are shown as lines; JSON has more."""

SECRETS = {
    "restored": "The store has the backup's secret now",
    "other": "The store keeps the secret that it has: what clients have kept sealed by the backup's can't be opened",
}


def bring_back(
    settings: Settings, path: Path, *, tenant: str | None, tree: str | None, turns_per_second: float, progress: Console
) -> Restored:
    """Restore a file into the settings' Redis; a bar on `progress` where that is a terminal.

    Raises what Restore.run does, and OSError where an embedded server doesn't start.
    """

    async def run(url: str, hear: Callable[[Done], None]) -> Restored:
        restore = Restore(
            connect(url, timeout_seconds=settings.store_timeout_seconds),
            prefix=settings.key_prefix,
            shards=settings.shards,
            timeout_seconds=settings.store_timeout_seconds,
            bounds=Bounds(
                responses=settings.max_responses,
                trees=settings.max_trees,
                bytes=settings.max_bytes,
                idle_us=round(settings.idle_days * DAY_US),
            ),
            turns_per_second=turns_per_second,
            release=str(this_build()),
        )
        try:
            return await last_of(restore.run(path, tenant=tenant, tree=tree), Restored, hear)
        finally:
            await restore.close()

    with path.open("rb"):  # before a server is started for it
        pass
    with server_url(settings) as url, bar_on(progress, DownloadColumn()) as bar:
        task = bar.add_task("checking", total=None)
        return asyncio.run(run(url, lambda step: show_done(bar, task, step)))


def exit_status(restored: Restored) -> int:
    """0 when all that was asked for is in the store, 1 when some of it was refused."""
    return EXIT_WHOLE if restored.whole else EXIT_INCOMPLETE


def why_not(refusal: DoesNotFit) -> str:
    """The reason for a refusal, and the setting to raise."""
    name = variable("shards" if refusal.what == "shards" else f"max_{refusal.what}")
    return f"{refusal}; nothing was restored. Set {name} to at least {refusal.wanted} for it"


def as_json(path: Path, restored: Restored) -> str:
    """All of it as one object."""
    return json.dumps(
        {
            "restored": restored.restored,
            "kept": restored.kept,
            "conflicts": restored.conflict,
            "lost": restored.lost,
            "refused": [{"tenant": tenant, "id": id} for tenant, id in restored.conflicts],
            "secret": restored.secret,
            "seconds": round(restored.seconds, 3),
            "backup": about(path, restored.checked),
        },
        indent=2,
    )


def sentences(restored: Restored) -> list[str]:
    """The outcome of the turns, for people."""
    found = restored.checked
    lines = [
        f"{restored.restored:,} turns restored, {restored.kept:,} were there, of {found.turns:,} in "
        f"{found.trees:,} conversations, {restored.seconds:.1f} s"
    ]
    if restored.conflict:
        lines.append(
            f"{restored.conflict:,} turns not restored, as the store has others with these ids, or continue such:"
        )
        lines += [f"  {tenant} {id}" for tenant, id in restored.conflicts[:SHOWN]]
        lines += ["  …"] if restored.conflict > SHOWN else []
    if restored.lost:
        lines.append(f"{restored.lost:,} turns not restored, as what they continue was deleted in the store")
    return [*lines, *filter(None, [SECRETS.get(restored.secret)])]
