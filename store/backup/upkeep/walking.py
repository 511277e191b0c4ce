"""Walking: what there is in an archive, by its keys alone, in their order and page by page."""

import random
import re
from collections.abc import AsyncGenerator
from typing import NamedTuple

import msgspec

from store.archive.archive import Archive
from store.archive.port import MOST_LISTED, ArchiveEntry
from store.ids import TREE_DIGITS, tree_of
from store.keys import SHARD_DIGITS, checked_tenant

ROOT = "v1/"

_SHARD = re.compile(rf"[0-9a-f]{{{SHARD_DIGITS}}}", re.ASCII)
_PART = re.compile(
    rf"v1/([0-9a-f]{{{SHARD_DIGITS}}})/t\.([A-Za-z0-9_.-]{{1,64}})/([0-9a-f]{{{TREE_DIGITS}}})/(0|[1-9][0-9]{{0,8}})",
    re.ASCII,
)


HEARD = 1_000
"""How many values are listed between two reports of progress."""

WALKED = 20_000
"""How many values are listed to choose some trees of all: twenty requests at S3."""

ROWS = 50
"""In how many rows the trees lie that are chosen of more."""


class TreeParts(NamedTuple):
    """A tree as its keys tell: its parts by their numbers."""

    shard: str
    tenant: str
    tree: str
    parts: dict[int, ArchiveEntry]

    @property
    def folder(self) -> str:
        """The prefix of its keys."""
        return f"{ROOT}{self.shard}/t.{self.tenant}/{self.tree}/"

    @property
    def digits(self) -> str:
        """Digits that lead to it."""
        return self.shard + self.tree

    def is_asked(self, tenant: str | None, digits: str | None) -> bool:
        """Whether it is the tenant's, and the turn with these digits would be in it; None is any."""
        at = digits and (digits[:SHARD_DIGITS], tree_of(digits))
        return tenant in (None, self.tenant) and at in (None, (self.shard, self.tree))

    @property
    def listed(self) -> int:
        """How many parts it has by its keys."""
        return max(self.parts) + 1

    @property
    def keys(self) -> list[str]:
        """The keys of its parts, the first one last: as long as that is there, others are asked for."""
        return [self.parts[number].key for number in sorted(self.parts, reverse=True)]

    @property
    def changed(self) -> float:
        """When one of its parts was written last, in seconds since 1970."""
        return max(entry.changed for entry in self.parts.values())

    @property
    def size(self) -> int:
        """The bytes of its values."""
        return sum(entry.size for entry in self.parts.values())


async def entries(archive: Archive, prefix: str, after: str = "") -> AsyncGenerator[ArchiveEntry]:
    """All keys below a folder. Raises ArchiveUnavailable."""
    while page := await archive.list(prefix, after=after):
        for entry in page:
            yield entry
        if len(page) < MOST_LISTED:
            return
        after = page[-1].key


async def marks(archive: Archive, kind: str, tenant: str | None = None) -> AsyncGenerator[tuple[str, bytes]]:
    """The tenants with a mark of a kind (marks.py), or one of them, each with its value. Raises ArchiveUnavailable."""
    async for entry in entries(archive, f"{ROOT}{kind}/"):
        whose = entry.key.removeprefix(f"{ROOT}{kind}/t.")
        if tenant in (None, whose) and (stored := await archive.get(entry.key)) is not None:
            yield whose, stored.value


async def trees(archive: Archive, prefix: str = ROOT, after: str = "") -> AsyncGenerator[TreeParts | ArchiveEntry]:
    """All trees below a folder behind a key, and between them what is no part of one. Raises ArchiveUnavailable."""
    tree: TreeParts | None = None
    async for entry in entries(archive, prefix, after):
        found = _PART.fullmatch(entry.key)
        if tree is not None and (found is None or found.groups()[:3] != tree[:3]):
            yield tree
            tree = None
        if found is None:
            yield entry
            continue
        if tree is None:
            tree = TreeParts(found[1], found[2], found[3], {})
        tree.parts[int(found[4])] = entry
    if tree is not None:
        yield tree


async def trees_of(archive: Archive, tenant: str | None, digits: str | None = None) -> AsyncGenerator[TreeParts]:
    """The trees of an archive, or those of a tenant, or with the turn of some `digits`, or both. Raises
    ArchiveUnavailable, and ValueError for a malformed tenant.
    """
    name = None if tenant is None else f"t.{checked_tenant(tenant)}/"
    if digits is not None:
        shard = f"{ROOT}{digits[:SHARD_DIGITS]}/"
        names = [name] if name else [f"{each}/" for each in await _folders(archive, shard)]
        folders = [f"{shard}{each}{tree_of(digits)}/" for each in names]
    else:
        folders = [ROOT] if name is None else [f"{ROOT}{shard}/{name}" for shard in await shards(archive)]
    for folder in folders:
        async for found in trees(archive, folder):
            if isinstance(found, TreeParts):
                yield found


async def listed_at(archive: Archive, folder: str) -> TreeParts | None:
    """The tree of a folder as it is now. Raises ArchiveUnavailable."""
    async for found in trees(archive, folder):
        if isinstance(found, TreeParts):
            return found
    return None


async def shards(archive: Archive) -> list[str]:
    """The shards that have something. Raises ArchiveUnavailable."""
    return [name for name in await _folders(archive, ROOT) if _SHARD.fullmatch(name)]


async def sample(archive: Archive, most: int, choose: random.Random) -> AsyncGenerator[TreeParts]:
    """Up to so many trees at random, by one walk. Of an archive with more than WALKED values they are some rows of
    trees, each behind a random place: in any shard of any of its tenants, whatever they have. Raises
    ArchiveUnavailable.
    """
    chosen, number, values = list[TreeParts](), 0, 0
    async for each in trees(archive):
        if not isinstance(each, TreeParts):
            continue
        number, values = number + 1, values + len(each.parts)
        if values > WALKED:
            break
        at = len(chosen) if len(chosen) < most else choose.randrange(number)
        if at < most:
            chosen[at : at + 1] = [each]
    else:
        for each in chosen:
            yield each
        return
    seen, places = set[str](), await _places(archive)
    for _ in range(ROWS):
        after, left = f"{choose.choice(places)}{choose.getrandbits(4 * TREE_DIGITS):0{TREE_DIGITS}x}", -(-most // ROWS)
        async for each in trees(archive, after=after):
            if not isinstance(each, TreeParts) or left == 0 or len(seen) == most:
                break
            left -= 1
            if each.folder not in seen:
                seen.add(each.folder)
                yield each


async def _places(archive: Archive) -> list[str]:
    """The folders of tenants in all shards."""
    return [
        f"{ROOT}{shard}/{name}/"
        for shard in await shards(archive)
        for name in await _folders(archive, f"{ROOT}{shard}/")
        if name.startswith("t.")
    ]


async def _folders(archive: Archive, prefix: str) -> list[str]:
    """The names of the folders in a folder, each found by one question."""
    names: list[str] = []
    after = ""
    while page := await archive.list(prefix, after=after, limit=1):
        name, folder, _ = page[0].key.removeprefix(prefix).partition("/")
        if folder:
            names.append(name)
        after = f"{prefix}{name}0" if folder else page[0].key  # 0 follows the slash: behind all that it has
    return names


class Counts(msgspec.Struct):
    """The counts of an archive: values and their bytes, trees, tenants; and values outside of trees, such as marks."""

    values: int = 0
    bytes: int = 0
    trees: int = 0
    other: int = 0


async def counts(archive: Archive) -> AsyncGenerator[Counts]:
    """Yields the counts of an archive, so far and in the end. It lists all keys: a thousand for each request. Raises
    ArchiveUnavailable.
    """
    found, heard = Counts(), 0
    async for each in trees(archive):
        is_tree = isinstance(each, TreeParts)
        found.trees += is_tree
        found.other += not is_tree
        found.values += len(each.parts) if isinstance(each, TreeParts) else 1
        found.bytes += each.size
        if found.values - heard >= HEARD:
            heard = found.values
            yield found
    yield found
