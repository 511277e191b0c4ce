"""Looking at what is stored: one response, the chain behind it, and what waits or runs: one response, or all of
them, listed once or watched until somebody has seen enough.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from shutil import get_terminal_size

from service.commands.arguments import EXIT_NOT_FOUND, EXIT_USAGE, many
from service.features.client import printing
from service.features.client.errors import ClientError
from service.features.client.service import TERMINAL_STATUSES, Json, RemoteService
from store.ids import TREE_DIGITS
from store.ids import tree_of as digits_of_tree
from store.keys import SHARD_DIGITS

TREES = "/console/api/trees"

PAGE = 100
MAX_ITEMS = 10_000
"""How many items of one response are listed."""

POLL_SECONDS = 0.5
"""How soon a response without an event log is looked at again."""

MOST_JOBS = 500
"""How many are looked at: as many as the service lists at once."""

NOTHING_RUNS = "nothing is waiting or running"

WATCH_SECONDS = 1.0
"""How soon they are looked at again."""

LAST = "@last"
"""The newest response, in place of an id."""

MOST_TREES = 500
"""How many of the conversations used last are looked through for the beginning of an id."""

MOST_CANDIDATES = 5
"""How many ids are named that begin alike."""

FEWEST_DIGITS = 4
"""The fewest digits of the beginning of an id."""

_BEGIN = re.compile(r"(?:resp_)?([0-9a-f]{1,47})")
_DIGITS = re.compile(r"[0-9a-f]{48}")
_SHARED = SHARD_DIGITS + TREE_DIGITS
"""How many digits the ids of all responses of a tree have in common."""


def whole_id(service: RemoteService, id: str) -> str:
    """The id that is meant: by itself, by its beginning, or by LAST. A beginning that all turns of a tree have in
    common means the newest response. Raises ClientError where none of the trees looked through has it, or several have.
    """
    begins = _BEGIN.fullmatch(id)
    if begins is None and id != LAST:
        return f"resp_{id}" if _DIGITS.fullmatch(id) else check_id(id)
    if begins and len(begins[1]) < FEWEST_DIGITS:
        raise ClientError(
            f"{id!r} is too short: the beginning of an id has at least {FEWEST_DIGITS} digits", EXIT_USAGE
        )
    pages = service.pages(TREES, limit=PAGE)
    trees: list[Json] = [tree for page in islice(pages, MOST_TREES // PAGE if begins else 1) for tree in page["data"]]
    if begins is None:
        return _last(service, trees)
    begin = begins[1]
    found = [tree for tree in trees if _shared_digits(tree).startswith(begin[:_SHARED])]
    ids = [str(tree["newest"]["id"]) for tree in found]
    if len(found) == 1:
        turns = _responses(service, found[0])
        ids = [str(turn["id"]) for turn in turns if turn["id"].startswith(f"resp_{begin}")]
        if len(begin) <= _SHARED:
            ids = ids and [str(max(turns, key=_creation_order)["id"])]
    if len(ids) == 1:
        return ids[0]
    if not ids:
        among = f"the {many(len(trees), 'conversation')} used last; give the whole id"
        raise ClientError(f"no id begins with 'resp_{begin}' in {among}", EXIT_NOT_FOUND)
    more = f" and {len(ids) - MOST_CANDIDATES} more" if len(ids) > MOST_CANDIDATES else ""
    raise ClientError(f"'resp_{begin}' begins {', '.join(ids[:MOST_CANDIDATES])}{more}; give more digits", EXIT_USAGE)


def _last(service: RemoteService, trees: Sequence[Json]) -> str:
    """The response of some trees that was made last; to read one uses its tree, too. Raises ClientError."""
    newest: Json | None = None
    for tree in trees:
        if newest is not None and tree["last_used_at"] <= newest["created_at"]:
            break
        newest = max((*_responses(service, tree), *([newest] if newest else [])), key=_creation_order, default=None)
    if newest is None:
        raise ClientError(f"there is no response yet for {LAST}", EXIT_NOT_FOUND)
    return str(newest["id"])


def _responses(service: RemoteService, tree: Json) -> list[Json]:
    """The responses of a tree in a list that are not deleted; of several at one depth, the one made last is first."""
    turns: list[Json] = tree_of(service, tree["newest"]["id"])["turns"]
    return [turn for turn in reversed(turns) if turn["kind"] == "response" and turn["status"] != "deleted"]


def _creation_order(turn: Json) -> tuple[int, int]:
    """When a turn was made: of one second, the deeper turn is later, and of one depth the first of `_responses`."""
    return turn["created_at"], turn["depth"] or 0


def _shared_digits(tree: Json) -> str:
    """The digits that the ids of all responses of a tree have in common."""
    digits = str(tree["newest"]["id"]).partition("_")[2]
    return digits[:SHARD_DIGITS] + digits_of_tree(digits)


def tree_of(service: RemoteService, id: str) -> Json:
    """The tree of a response. Raises ClientError."""
    return service.call("GET", f"{TREES}/{check_id(id)}")


def response_of(service: RemoteService, id: str) -> Json:
    """A response. Raises ClientError."""
    return service.call("GET", f"/v1/responses/{check_id(id)}")


def check_id(id: str) -> str:
    """An id, which may stand in a path. Raises ClientError."""
    if not id.isascii() or not id.replace("_", "").replace("-", "").isalnum():
        raise ClientError(f"{printing.excerpt(id)!r} is not an id, which is resp_ and 48 hex digits", 2)
    return id


def items(service: RemoteService, path: str, order: str = "asc") -> Iterator[Json]:
    """The items of a list, page by page. Raises ClientError."""
    after: str | None = None
    for _ in range(MAX_ITEMS // PAGE):
        page = service.call("GET", path, None, limit=PAGE, order=order, after=after)
        yield from page["data"]
        if not page.get("has_more"):
            return
        after = page["last_id"]
    printing.remark(f"… more than {MAX_ITEMS} items")


def paragraphs_of(service: RemoteService, id: str) -> Iterator[str]:
    """A response as paragraphs: what it was told, and what it says."""
    response = response_of(service, id)
    yield printing.head_of(response)
    if response.get("instructions"):
        yield f"instructions: {printing.text_of({'type': 'message', 'content': response['instructions']})}"
    yield from printing.transcript(items(service, f"/v1/responses/{id}/input_items"))
    yield from printing.transcript(response.get("output", ()))


def token_lines(page: Json) -> Iterator[str]:
    """The tokens of a page: a line about each message where it begins, and a line for each token of it.

    A text is in quotes, a special token is not: nothing that anybody wrote looks as one.
    """
    for message in page["messages"]:
        if message["first"] == 0:
            said = [str(message[each]) for each in ("role", "name", "channel") if message[each]]
            to = f" to {message['recipient']}" if message["recipient"] else ""
            yield f"{'/'.join(said)}{to} ({message['length']} tokens)"
        for token in message["tokens"]:
            yield f"  {token['id']:>6} {_spelling(token)}".rstrip()


def _spelling(token: Json) -> str:
    if token["text"] is not None:
        return str(token["text"]) if token.get("special") else json.dumps(token["text"], ensure_ascii=False)
    return " ".join(f"{byte:02X}" for byte in token.get("bytes") or ())


def tokens_told(page: Json) -> str:
    """How many tokens a response added, and what of its prompt was cached."""
    own = f"{page['length']} tokens"
    if page["input_tokens"] is None:
        return own
    cached = "" if page["cached_tokens"] is None else f" ({page['cached_tokens']} cached)"
    return f"{own}; the model read {page['input_tokens']}{cached}"


def differing(service: RemoteService, one: str, other: str) -> tuple[int, list[Json], list[Json]]:
    """How many items two responses have in common, from the first on, and the further items of each.

    Where both continue the same response, items of that have the same ids. Raises ClientError.
    """
    ones, others = said_in(service, one), said_in(service, other)
    same = 0
    for first, second in zip(ones, others, strict=False):
        if first.get("id") != second.get("id"):
            break
        same += 1
    return same, ones[same:], others[same:]


def said_in(service: RemoteService, id: str) -> list[Json]:
    """All items of the conversation up to a response, its own among them. Raises ClientError."""
    output: list[Json] = response_of(service, id)["output"]
    return [*items(service, f"/v1/responses/{id}/input_items"), *output]


def chain(service: RemoteService, id: str, limit: int) -> Iterator[tuple[Json, str]]:
    """A response and those before it, the newest first, each with the beginning of what it was told."""
    at: str | None = id
    for _ in range(limit):
        if at is None:
            return
        response = response_of(service, id) if at == id else service.find(f"/v1/responses/{check_id(at)}")
        if response is None:
            printing.remark(f"{at} no longer exists")
            return
        newest = service.call("GET", f"/v1/responses/{at}/input_items", None, limit=1, order="desc")["data"]
        yield response, printing.text_of(newest[0]) if newest else ""
        at = response.get("previous_response_id")
    if at is not None:
        printing.remark("… --limit shows more")


def waited_for(service: RemoteService, id: str, seconds: float | None) -> Json:
    """A response once it has ended, or after so many seconds as it is then. Raises ClientError."""
    until = None if seconds is None else time.monotonic() + seconds
    response = response_of(service, id)
    while response.get("status") not in TERMINAL_STATUSES:
        left = POLL_SECONDS if until is None else until - time.monotonic()
        if left <= 0:
            raise ClientError(f"{id} is still {response.get('status')} after {seconds:g} s")
        time.sleep(min(POLL_SECONDS, left))
        response = response_of(service, id)
    return response


def jobs_of(service: RemoteService, limit: int = MOST_JOBS) -> tuple[list[Json], bool]:
    """At most `limit` of the batches and jobs that wait or run, the newest first, and whether there are more. Raises
    ClientError.
    """
    page = service.call("GET", "/console/api/jobs", None, limit=MOST_JOBS)  # of fewer the newest may not be among them
    batches = service.find("/v1/batches?limit=100") or {"data": []}
    found = [*filter(_is_batch_under_way, batches["data"]), *page["data"]]
    return found[:limit], bool(page["has_more"]) or len(found) > limit


def _is_batch_under_way(batch: Json) -> bool:
    return batch["status"] in ("validating", "in_progress", "finalizing", "cancelling")


def line_of(job: Json) -> str:
    """A response or a batch under way, on a line."""
    parts = [str(job["id"]), printing.when(job.get("created_at")), str(job.get("status")), str(job.get("model") or "")]
    if window := job.get("completion_window"):
        parts.append(f"within {window}")
    if counts := job.get("request_counts"):
        parts.append(f"{counts['completed']} of {counts['total']} answered, {counts['failed']} failed")
    parts.append(printing.excerpt(str(job.get("input") or "")))
    return "  ".join(part for part in parts if part)


def changes(service: RemoteService, wait: Callable[[], None]) -> Iterator[Json]:
    """Each response under way as it is now, then each change: a response that comes, begins, or has ended, with its
    status by then, which is `deleted` where it is gone. Between two looks it waits. Raises ClientError.
    """
    known: dict[str, Json] = {}
    while True:
        found = {str(job["id"]): job for job in jobs_of(service)[0]}
        for id, job in reversed(found.items()):
            if id not in known or known[id].get("status") != job.get("status"):
                yield job
        for id, job in known.items():
            if id not in found:
                response = service.find(f"/v1/{'batches' if 'request_counts' in job else 'responses'}/{id}")
                yield job | {"status": "deleted" if response is None else str(response.get("status"))}
        known = found
        wait()


def draw(service: RemoteService, wait: Callable[[], None]) -> None:
    """Draw the jobs that wait or run, again and again in the same place of a terminal. Raises ClientError."""
    drawn = 0
    while True:
        found, more = jobs_of(service)
        columns, rows = get_terminal_size()
        lines = [line_of(job) for job in found] or [NOTHING_RUNS]
        if more or len(lines) >= rows:
            lines = [*lines[: rows - 2], "… and more"]
        printing.redrawn([printing.fitting(line, columns - 1) for line in lines], drawn)
        drawn = len(lines)
        wait()


def pause() -> None:
    """Wait until it is time to look again."""
    time.sleep(WATCH_SECONDS)
