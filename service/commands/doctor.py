"""`harmonium doctor`: asks the Redis of the settings about itself, and shows what could lose or expose conversations.

store/doctor/doctor.py has the checks. An embedded server is asked while it runs, or else started for the check. Never
change a setting here.
"""

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from urllib.parse import parse_qs, urlsplit

from rich.console import Console
from rich.table import Table
from rich.text import Text

from service.settings.core import is_loopback
from service.settings.settings import Settings, display
from store.doctor.doctor import Expected, Finding, Level, judge, unreachable
from store.doctor.examine import Examined, examine
from store.embedded import EmbeddedServer, address_of
from store.errors import DataFolderBusy, StoreUnavailable
from store.guard import free_bytes
from store.redis import address
from store.redis.address import Kind

COLORS = {Level.OK: "green", Level.WARN: "yellow", Level.UNSAFE: "bold red"}


@dataclass(frozen=True, slots=True)
class Report:
    """What was found at an address, which is shown without its password."""

    redis: str
    findings: list[Finding]

    @property
    def safe(self) -> bool:
        """Whether nothing is unsafe."""
        return all(finding.level is not Level.UNSAFE for finding in self.findings)

    def as_json(self) -> str:
        """All of it as one object."""
        found = [asdict(finding) for finding in self.findings]
        return json.dumps({"safe": self.safe, "redis": self.redis, "findings": found}, indent=2)

    def show(self, console: Console) -> None:
        """A table of all findings, and how many there are of each level."""
        table = Table("", "What", "Now", "Why it matters, and what to do", title=self.redis, show_lines=True)
        for column in table.columns:
            column.overflow = "fold"  # a cut name would be of no use
        for each, nodes in self._alike().items():
            what = "\n".join((each.what, *nodes))
            advice = f"{each.why}:\n{each.remedy}" if each.remedy else ""
            table.add_row(Text(each.level, COLORS[each.level]), Text(what), Text(each.now), Text(advice))
        console.print(table)
        counts = [sum(each.level is level for each in self.findings) for level in Level]
        console.print(", ".join(f"{count} {level}" for count, level in zip(counts, Level, strict=True)))

    def _alike(self) -> dict[Finding, list[str]]:
        """The findings as if there were one node, each with the nodes of which it is true."""
        found: dict[Finding, list[str]] = {}
        for each in self.findings:
            found.setdefault(replace(each, node=""), []).extend([each.node] if each.node else [])
        return found


def diagnose(settings: Settings) -> Report:
    """The report on the settings' Redis. Raises StoreUnavailable or OSError where an embedded one doesn't start."""
    shown = str(display(settings)["redis_url"] or f"embedded in {settings.data_dir}")
    with server_url(settings) as url:
        try:
            examined = asyncio.run(_examined(url, settings))
        except StoreUnavailable as error:
            return Report(shown, [unreachable(str(error))])
    return Report(shown, judge(expected_of(settings), examined))


async def _examined(url: str, settings: Settings) -> Examined:
    """What the Redis reports. Limits don't count where nobody else can have others."""
    limits = settings.store_limits if settings.redis_url and not settings.change_limits else None
    return await examine(url, settings.key_prefix, settings.shards, settings.store_timeout_seconds, limits)


def expected_of(settings: Settings) -> Expected:
    """What the settings expect of the Redis."""
    if not settings.redis_url:
        disk = free_bytes(settings.data_dir) if settings.data_dir.exists() else None
        return Expected(
            Kind.SINGLE,
            settings.shards,
            settings.max_bytes,
            log_bytes=settings.max_log_bytes,
            embedded=True,
            local=True,
            disk_bytes=disk,
        )
    found = address.parse(settings.redis_url)
    parts = [urlsplit(url) for url in found.urls]
    return Expected(
        found.kind,
        settings.shards,
        settings.max_bytes,
        log_bytes=settings.max_log_bytes,
        local=all(part.scheme == "unix" or is_loopback(part.hostname or "localhost") for part in parts),
        replicas=settings.store_replicas,
        password=bool(parts[0].password or "password" in parse_qs(parts[0].query)),
    )


@contextmanager
def server_url(settings: Settings) -> Generator[str]:
    """The Redis that is set; else the embedded server that another process runs, or one of our own meanwhile."""
    if settings.redis_url:
        yield settings.redis_url
        return
    server = EmbeddedServer(settings.data_dir)
    try:
        server.start()
    except DataFolderBusy:
        yield address_of(settings.data_dir)
        return
    try:
        yield server.url
    finally:
        server.stop()
