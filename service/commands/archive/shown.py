"""What a check of an archive came to, as lines and as one object, for `archive verify` and `fsck`. Never show what was
said.
"""

from typing import Any

import msgspec

from store.backup.upkeep.faults import MEANINGS, Verified

SHOWN = 100
"""The most faults that are shown one by one; JSON has up to a thousand."""


def lines_of(found: Verified, *, repair: bool) -> list[str]:
    """The faults, each in three lines, and the result."""
    lines: list[str] = []
    for fault, repaired in list(found.faults.items())[:SHOWN]:
        done = f"; {'repaired' if repaired else 'not repaired'}" if repair else ""
        lines.append(fault.id or fault.key)
        detail = f": {fault.detail}" if fault.detail else ""
        lines.append(f"    {fault.what}: {MEANINGS[fault.what].says}{detail}")
        lines.append(f"    tenant {fault.tenant}, {fault.key}{done}")
    if found.found > min(SHOWN, len(found.faults)):
        lines.append(f"… and more: {found.found:,} faults in all")
    result = f"{found.found:,} faults" if found.found else "nothing is wrong"
    if found.found and repair:
        result += f", {found.left:,} of them left" if found.left else ", all repaired"
    read = f"{found.trees:,} trees with {found.turns:,} turns in the archive"
    return [*lines, f"{read}, {found.compared:,} trees of Redis: {result}"]


def object_of(found: Verified) -> dict[str, Any]:
    """All of it by names."""
    faults = [{**fault._asdict(), "repaired": repaired} for fault, repaired in found.faults.items()]
    fields = {name: field for name, field in msgspec.structs.asdict(found).items() if name != "faults"}
    return {**fields, "left": found.left, "faults": faults}
