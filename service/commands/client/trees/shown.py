"""Trees: listed, and one drawn as `git log --graph --oneline` does: the newest turn first, a column for each branch."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from service.commands.client import printing
from service.commands.client.errors import EXIT_USAGE, ClientError
from service.commands.client.reading import PAGE, checked
from service.commands.client.service import Json, Service

TREES = "/console/api/trees"

SHOWN_ENDS = 10
"""How many branches that are in the archive alone are named."""

MOST_COLUMNS = 40
"""The most branches that are drawn beside each other; further ones are drawn in the last column."""

EXCERPT_CHARS = 48

_AGO = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def trees(service: Service, limit: int, filters: dict[str, str | int], after: str | None) -> Iterator[Json]:
    """Pages of at most `limit` trees in all, the one used last first. Raises ClientError."""
    while limit > 0:
        query = filters | ({} if after is None else {"after": after})
        page = service.call("GET", TREES, None, limit=min(limit, PAGE), **query)
        yield page
        limit -= len(page["data"])
        after = page.get("after")
        if after is None or page["searched"].get("stopped"):
            return


def filters_of(status: str | None, model: str | None, since: str | None, metadata: list[str]) -> dict[str, str | int]:
    """What a list is asked for. Raises ClientError."""
    asked = {"status": status, "model": model}
    found: dict[str, str | int] = {name: value for name, value in asked.items() if value is not None}
    if since is not None:
        found["since"] = moment_of(since)
    for pair in metadata:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ClientError(f"{printing.excerpt(pair)!r} is no pair; write KEY=VALUE", EXIT_USAGE)
        found[f"metadata[{name}]"] = value
    return found


def moment_of(text: str, now: datetime | None = None) -> int:
    """The second since 1970 of a date, a date and time, or so long ago. Raises ClientError."""
    if match := _AGO.fullmatch(text):
        return max(0, int((now or datetime.now(UTC)).timestamp()) - int(match[1]) * _UNITS[match[2]])
    try:
        return max(0, int(datetime.fromisoformat(text).astimezone().timestamp()))
    except (ValueError, OverflowError):
        raise ClientError(
            f"{printing.excerpt(text)!r} is no time; write 2026-11-23, 2026-11-23T10:00, or 30m, 2h or 7d",
            EXIT_USAGE,
        ) from None


def line_of(tree: Json) -> str:
    """A tree in a list: its newest turn, when it was used, how large it is, and what was said last."""
    newest: Json = tree["newest"]
    more = "" if tree["turns_complete"] else "+"
    turns = f"{tree['turns']}{more} turn{'' if tree['turns'] == 1 else 's'}"
    return "  ".join((newest["id"], printing.when(tree["last_used_at"]), turns, _said(newest)))


def searched(page: Json) -> str:
    """What a search looked at that stopped, or that there is more; '' where it has come to its end."""
    found, after = page["searched"], page.get("after")
    if after is None:
        return ""
    if found.get("stopped"):
        back = printing.when(found.get("back_to"))
        return f"… looked at {found['trees']} trees, back to {back}; --after {after} goes on"
    return f"… --after {after} shows more"


def tree_of(service: Service, id: str) -> Json:
    """The tree of a response. Raises ClientError."""
    return service.call("GET", f"{TREES}/{checked(id)}")


def archived(tree: Json) -> str:
    """Which branches of a tree are in the archive alone, each of which comes back when its id is asked for; '' where
    there are none.
    """
    away: Json | None = tree.get("archived", {"ends": [], "complete": True})
    if away is None:
        return "branches that the archive doesn't tell of"
    ends: list[str] = away["ends"]
    more = "" if away["complete"] else " or more"
    if not ends:
        return "branches in the archive" if more else ""
    return (
        f"{len(ends)}{more} branch{'' if len(ends) == 1 else 'es'} in the archive, with {' '.join(ends[:SHOWN_ENDS])}"
    )


def drawn(tree: Json) -> Iterator[str]:
    """The lines of a drawing of a tree."""
    turns: dict[str, Json] = {turn["id"]: turn for turn in tree["turns"] if turn["kind"] != "conversation"}
    names: dict[str, list[str]] = {}
    for turn in tree["turns"]:
        if turn["kind"] == "conversation":
            names.setdefault(str(turn["parent"]), []).append(turn["id"])
    columns: list[str | None] = []
    for turn in newest_first(turns):
        if turn["id"] not in columns:
            columns.append(turn["id"])
        id = str(turn["id"])
        mark = " ".join(names.get(id, []) + (["this one"] if id == tree["asked"] else []))
        head = f"{id} ({mark})" if mark else id
        yield f"{'| ' * min(len(columns) - 1, MOST_COLUMNS)}* {head}  {_said(turn)}"
        columns[-1] = turn["parent"]
        if len(columns) > 1 and columns[-1] == columns[-2]:
            columns.pop()
            yield f"{'| ' * min(len(columns) - 1, MOST_COLUMNS)}|/"
        elif turn["parent"] not in turns:
            columns.pop()


def newest_first(turns: dict[str, Json]) -> Iterator[Json]:
    """Turns, each behind all that continue it; of branches the one with the newest turn first."""
    below: dict[str | None, list[str]] = {}
    newest: dict[str, tuple[int, int]] = {}
    for place, (id, turn) in reversed([*enumerate(turns.items())]):  # parents come before their children
        parent = turn["parent"] if turn["parent"] in turns else None
        below.setdefault(parent, []).append(id)
        newest[id] = max(newest.get(id, (0, 0)), (turn["created_at"], place))
        if parent is not None:
            newest[parent] = max(newest.get(parent, (0, 0)), newest[id])
    waiting = [(id, False) for id in sorted(below.get(None, []), key=lambda each: newest[each])]
    while waiting:
        id, is_done = waiting.pop()
        if is_done or id not in below:
            yield turns[id]
            continue
        waiting.append((id, True))
        waiting += [(each, False) for each in sorted(below[id], key=lambda each: newest[each])]


def _said(turn: Json) -> str:
    """How a turn ended, if not well, what it was told and what it says."""
    told = printing.excerpt(turn["input"], EXCERPT_CHARS) if turn.get("input") else ""
    says = printing.excerpt(turn["output"], EXCERPT_CHARS) if turn.get("output") else ""
    status = "" if turn["status"] == "completed" else f"[{turn['status']}] "
    kind = {"items": "[items] ", "omission": "[omits] "}.get(turn["kind"], "")
    return f"{status}{kind}{told}{' → ' if told and says else ''}{says}".rstrip()
