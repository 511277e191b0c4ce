"""Trees and turns as the console's API shows them, with excerpts of what was said. Pure. Times are in seconds since
1970.

Excerpts are cut from responses and inputs as they are stored: JSON of any release, so what isn't as expected has none.
"""

from collections.abc import Iterator
from typing import Any, Literal, cast

import msgspec

from store.history.listing import Tree
from store.history.tree_turns import Node
from store.keys import BY_HAND_MARK, CONVERSATION_MARK, OMISSION_MARK, digits_of, mark_of, name_of

EXCERPT_CHARS = 120


class Usage(msgspec.Struct, frozen=True):
    """The tokens of a response."""

    input_tokens: int = 0
    output_tokens: int = 0


class _Response(msgspec.Struct, frozen=True):
    """The fields that are read of a stored response; a turn that was added by hand has none of them."""

    model: str | None = None
    usage: Usage | None = None
    metadata: dict[str, str] | None = None
    output: list[msgspec.Raw] = []


class Excerpt(msgspec.Struct, frozen=True):
    """The excerpt of a turn."""

    model: str | None
    usage: Usage
    metadata: dict[str, str]
    input: str
    output: str


_RESPONSE = msgspec.json.Decoder(_Response)
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def excerpt_of(response: bytes, items: bytes) -> Excerpt:
    """The excerpt of a turn with this response and these input items, both JSON. Raises msgspec's errors for JSON that
    is no response.
    """
    found = _RESPONSE.decode(response)
    return Excerpt(
        model=found.model,
        usage=found.usage or Usage(),
        metadata=found.metadata or {},
        input=_first(_ITEMS.decode(items)),
        output=_first(found.output),
    )


def _first(items: list[msgspec.Raw]) -> str:
    """The beginning of the first text among items, or of the first call where there is none."""
    calls = ""
    for item in map(_object, map(msgspec.json.decode, items)):
        for text in _texts(item):
            if text.strip():
                return " ".join(text[: 8 * EXCERPT_CHARS].split())[:EXCERPT_CHARS]
        calls = calls or _call(item)
    return calls[:EXCERPT_CHARS]


def _texts(item: dict[str, Any]) -> Iterator[str]:
    """The texts of an item: of a message what it says, of a call's output that."""
    if item.get("type") == "reasoning":
        return
    for member in ("content", "output"):
        found = item.get(member)
        if isinstance(found, str):
            yield found
        elif isinstance(found, list):
            texts = (_object(part).get("text") for part in cast(list[object], found))
            yield from (text for text in texts if isinstance(text, str))


def _call(item: dict[str, Any]) -> str:
    """How a call is shown: by its name and what it passes."""
    name, passed = item.get("name"), item.get("arguments", item.get("input"))
    return f"{name}({passed if isinstance(passed, str) else ''})" if isinstance(name, str) else ""


def _object(found: object) -> dict[str, Any]:
    """The members of what is an object; of anything else none."""
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


US = 1_000_000

Kind = Literal["response", "items", "omission", "conversation"]
"""The kind of a turn: a response; items that somebody added to a conversation, or that it goes on without; or a
conversation that stands at its parent.
"""

_KINDS: dict[str, Kind] = {BY_HAND_MARK: "items", OMISSION_MARK: "omission", CONVERSATION_MARK: "conversation"}


class ShownTurn(msgspec.Struct):
    """A turn. A null field isn't known: the turn was deleted, or is too large to be read among others."""

    id: str
    kind: Kind
    status: str
    created_at: int
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input: str | None = None
    output: str | None = None
    parent: str | None = None
    depth: int | None = None
    used_at: int | None = None


class ShownTree(msgspec.Struct):
    """A tree in a list."""

    id: str
    last_used_at: int
    turns: int
    turns_complete: bool
    under_way: int
    conversation: str | None
    newest: ShownTurn
    metadata: dict[str, str]
    object: str = "console.tree"


class Searched(msgspec.Struct):
    """The extent of a page's search: so many trees, back to that use. `stopped` says what ended it where it had neither
    as many as were asked for nor come to the end; `unread` counts those that were too large to read.
    """

    trees: int
    back_to: int | None
    stopped: Literal["rows", "time", "bytes"] | None
    unread: int


class TreePage(msgspec.Struct):
    """A page of a list; `after` is what the next one is asked with."""

    data: list[ShownTree]
    has_more: bool
    after: str | None
    searched: Searched
    has_archive: bool = False
    """Whether there may be more in an archive, which no list has."""
    object: str = "list"


class Archived(msgspec.Struct):
    """The branches of a tree that are in the archive alone, by the ids of their ends, the newest first: a branch comes
    back where the tree is asked for by its end. Where they are more, `complete` is false.
    """

    ends: list[str]
    complete: bool


class WholeTree(msgspec.Struct):
    """A tree with its turns, parents before their children."""

    id: str
    asked: str
    """The turn or conversation that the id in the path named."""
    last_used_at: int
    turns: list[ShownTurn]
    turns_complete: bool
    excerpts_complete: bool
    archived: Archived | None
    """None where the archive doesn't say."""
    object: str = "console.tree"


def kind_of(digits: str) -> Kind:
    """The kind of a turn, by its digits."""
    return _KINDS.get(mark_of(digits), "response")


def shown_turn(node: Node, excerpt: Excerpt | None) -> ShownTurn:
    """A turn in its tree."""
    return with_excerpt(
        ShownTurn(
            node.id,
            kind_of(node.digits),
            "deleted" if node.deleted else node.status,
            node.created // US,
            parent=None if node.parent is None else name_of(node.parent),
            depth=node.depth,
            used_at=node.used // US,
        ),
        None if node.is_conversation else excerpt,
    )


def shown_tree(tree: Tree, excerpt: Excerpt | None) -> ShownTree:
    """A tree in a list."""
    newest = ShownTurn(tree.newest, kind_of(digits_of(tree.newest)), tree.status, tree.created // US)
    return ShownTree(
        id=tree.id,
        last_used_at=tree.used // US,
        turns=tree.turns,
        turns_complete=tree.whole,
        under_way=tree.under_way,
        conversation=tree.conversation,
        newest=with_excerpt(newest, excerpt),
        metadata={} if excerpt is None else excerpt.metadata,
    )


def with_excerpt(turn: ShownTurn, excerpt: Excerpt | None) -> ShownTurn:
    """The turn, with what is shown of it where that is known."""
    if excerpt is not None:
        turn.model, turn.input, turn.output = excerpt.model, excerpt.input, excerpt.output
        turn.input_tokens, turn.output_tokens = excerpt.usage.input_tokens, excerpt.usage.output_tokens
    return turn
