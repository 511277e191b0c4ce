"""The `tools` of a request: as the prompt shows them, as they are called, and as the Response echoes them.

Functions and custom tools are the caller's to run, and so are some others (client.py). They stand in Harmony
namespaces: those that a request groups itself, and `functions` for all others. Hosted tools are echoed; those that
nobody here runs are left out of the prompt.

Where the client searches for tools itself, those with `defer_loading` are not shown until it has loaded them. Loaded
tools come on top of the declared ones, and stay in the conversation. Their number has no end, so the oldest goes where
there is no more room.

Tools repeat from request to request, so lists that were read once are cached, within named bounds.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from service.api.tools import builtin, client
from service.api.tools.builtin import DECLARED_BY, Builtin
from service.api.tools.callee import FUNCTIONS, Callee, HostedKind
from service.api.tools.hosted import HOSTED, echo_of_hosted
from service.api.tools.offer import McpOffer, Routed, callees
from service.decoding import Json, ObjectKind, decode, decode_list
from service.errors import invalid_value, missing, not_allowed
from service.grammar.schemas import enforced_schema
from service.grammar.tags import schema_content
from service.harmony.typescript import Function, declaration, namespace
from service.steps import cached_steps

CACHED_LIST_BYTES = 65_536
"""Longer lists are read anew each time, so the cache holds at most 4 MiB of them."""

MAX_GRAMMARS = 16
"""The most tools under a grammar or a regex: reading one takes some 15 ms, in steps."""

MAX_LOADED = 1024
"""The most tools that one search may load, and in any case no more than there may be of all."""

LOADED_EARLIER = "previous_response_id"
"""The place of tools that the conversation loaded before this request."""

_SERVED = "Give 'function', 'custom', 'namespace', or one of OpenAI's other types of tools."
_INSIDE = "A namespace holds tools of type 'function' and 'custom'."


class NamespaceTool(msgspec.Struct, forbid_unknown_fields=True):
    """Tools that are called by a common prefix, as sent."""

    type: str
    name: str
    description: client.DESCRIPTION | None = None
    tools: msgspec.Raw = msgspec.Raw(b"[]")


class _Labelled(msgspec.Struct):
    server_label: Any = None
    name: Any = None
    defer_loading: Any = None
    format: Any = None

    @property
    def has_grammar(self) -> bool:
        form: object = self.format
        return isinstance(form, dict) and cast(Json, form).get("type") == "grammar"


class Tools(msgspec.Struct, frozen=True):
    """The tools of a request.

    `callees` are the tools that may be called, `namespaces` those that they stand in, and `section` is their section
    of the prompt ("" for none). `trained` is the section of the tools that the model was trained with. `echo` is for
    the Response. `left_out` are the types of tools that this service can't run, which the prompt doesn't show, and
    `deferred` the recipients of tools that are still to be loaded. `declared` are the callees that any model may be
    told of: all but the trained ones.
    """

    section: str = ""
    echo: tuple[dict[str, Any], ...] = ()
    callees: tuple[Callee, ...] = ()
    left_out: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    trained: str = ""
    deferred: frozenset[str] = frozenset()
    declared: tuple[tuple[Callee, Function], ...] = ()

    @property
    def own(self) -> tuple[Callee, ...]:
        """Those that the caller runs."""
        return tuple(callee for callee in self.callees if callee.hosted is None)

    @property
    def shows_more(self) -> bool:
        """Whether a request may include more of calls of some of them."""
        return any(callee.hosted is not None and callee.hosted.kind != "mcp" for callee in self.callees)


def read_tools(
    raw: msgspec.Raw,
    *,
    max_tools: int,
    max_bytes: int,
    added: Sequence[tuple[str, msgspec.Raw]] = (),
    offers: Sequence[McpOffer] = (),
    builtins: tuple[Builtin, ...] = (),
    loaded: Sequence[tuple[str, msgspec.Raw]] = (),
    routed: Sequence[Routed] = (),
) -> Generator[None, None, Tools]:
    """Read the JSON of `tools`, yielding now and then, and of the lists `added` to it, each with its place. `offers`
    are those of the MCP servers that it declares, `builtins` the tools that this service runs and the model was
    trained with, `loaded` the lists that searches found, the oldest first, and `routed` the types that it declares
    and a server stands for.

    An added tool takes the place of an earlier one of its name, and isn't echoed: the item that brought it is listed.
    All lists together have at most `max_bytes`, and `max_tools` tools: of those that were loaded the newest, but those
    of this request's last search must have room. Raises InvalidRequest, naming the tool by its place.
    """
    lists = (("tools", bytes(raw)), *((where, bytes(more)) for where, more in added))
    size = sum(len(sent) for _, sent in lists)
    check_bytes(size, max_bytes)
    found = _newest(loaded, max_bytes - size)
    size += sum(len(sent) for _, sent in found)
    if size > CACHED_LIST_BYTES or offers or routed:
        return _read(lists, max_tools, builtins, offers, found, routed)
    return _cached(lists, max_tools, builtins, (), found)


def _newest(loaded: Sequence[tuple[str, msgspec.Raw]], room: int) -> tuple[tuple[str, bytes], ...]:
    """The newest of some lists, given the oldest first, that fit into some bytes. Raises InvalidRequest where a
    request's own last one doesn't fit.
    """
    kept: list[tuple[str, bytes]] = []
    for where, raw in reversed(loaded):
        room -= len(memoryview(raw))
        if room < 0:
            if not kept and where != LOADED_EARLIER:
                raise invalid_value(where, f"{len(memoryview(raw))} bytes", "That is too many.")
            break
        kept.append((where, bytes(raw)))
    return tuple(reversed(kept))


def check_bytes(size: int, max_bytes: int) -> None:
    """Raise InvalidRequest if the tools of a request have too many bytes."""
    if size > max_bytes:
        raise not_allowed(
            f"'tools' has {size} bytes, at most {max_bytes} are allowed. Declare fewer or simpler functions.", "tools"
        )


def _read(
    lists: tuple[tuple[str, bytes], ...],
    max_tools: int,
    builtins: tuple[Builtin, ...],
    offers: Sequence[McpOffer] = (),
    loaded: tuple[tuple[str, bytes], ...] = (),
    routed: Sequence[Routed] = (),
) -> Generator[None, None, Tools]:
    """Read lists, each with its place in the request. The first one's tools are echoed."""
    defers = any(_searches(sent, where, max_tools) for where, sent in lists)
    reading = _Reading(max_tools, builtins, offers, routed, defers=defers)
    echo: list[dict[str, Any]] = []
    for place, (where, sent) in enumerate(lists):
        for tool in reading.sent_tools(sent, where, [] if place else echo):
            yield
            yield from reading.take(tool)
    for tool in reading.loaded_tools(loaded):
        yield
        yield from reading.take(tool, loaded=True)
    for where, callee, shown in reading.offered_tools():
        enforced = yield from enforced_schema(shown.parameters or client.ANY_PARAMETERS, where, strict=False)
        reading.add(callee, shown, None if enforced is None else schema_content(enforced))
    sections: list[str] = []
    for name in sorted(reading.namespaces):  # as openai-harmony sorts them
        members: list[str] = []
        for _, function in reading.namespaces[name].values():
            members.append(declaration(function))
            yield
        sections.append(namespace(name, members, reading.about.get(name) or None))
    return reading.tools(sections, echo)


_cached = cached_steps(64)(_read)


def _searches(sent: bytes, where: str, max_tools: int) -> bool:
    """Whether a list has a search for tools that the client does."""
    if b"tool_search" not in sent:
        return False
    for place, raw in enumerate(decode_list(sent, max_tools, where)):
        at = f"{where}[{place}]"
        if client.searches(raw, decode(raw, ObjectKind, at).type, at):
            return True
    return False


class _Sent(NamedTuple):
    """A tool as sent, where it stands, its namespace, and the list that its echo belongs to."""

    raw: msgspec.Raw
    kind: str
    where: str
    namespace: str | None
    echo: list[dict[str, Any]]


def _name(tool: _Sent, named: _Labelled) -> str:
    """The recipient of a tool, or the name in its place: its kind, and for a server its label."""
    if tool.kind in ("function", "custom"):
        return f"{tool.namespace or FUNCTIONS}.{named.name}"
    if tool.kind in client.CLIENT:
        return client.recipient_of(tool.kind)
    return str(named.server_label) if tool.kind == "mcp" else tool.kind


class _Reading:
    """The tools that have been read so far, by namespace and name."""

    def __init__(
        self,
        max_tools: int,
        builtins: Sequence[Builtin],
        offers: Sequence[McpOffer],
        routed: Sequence[Routed],
        *,
        defers: bool,
    ) -> None:
        self._max_tools = max_tools
        self._builtins = {each.kind: each for each in builtins}
        self._trained: dict[HostedKind, tuple[Builtin, str]] = {}
        """Those that are declared, and their options."""
        self._defers = defers
        self._deferred: dict[str, None] = {}
        """The recipients and labels of servers that are to be loaded before they are shown."""
        self._offers = {offer.label: offer for offer in offers}
        self._routed = {each.type: each for each in routed}
        self._standing: dict[str, tuple[str, Callee, Function]] = {}
        """The declared types that a server stands for: each with its place, its callee, and its form in the prompt."""
        self._servers: dict[str, str] = {}
        """The place at which each offered server was declared, by its label."""
        self.namespaces: dict[str, dict[str, tuple[Callee, Function]]] = {}
        self.about: dict[str, str] = {}
        self._left_out: dict[str, None] = {}
        self._read = 0
        self._grammars = 0
        self._here: set[str] = set()
        """The recipients of the list that is being read, and the kinds of its tools that run here."""

    def sent_tools(
        self,
        tools: bytes | msgspec.Raw,
        where: str,
        echo: list[dict[str, Any]],
        namespace: str | None = None,
        *,
        counts: bool = True,
    ) -> Iterator[_Sent]:
        """The tools of the list at `where`, those of its namespaces among them, one after the other."""
        if namespace is None:
            self._here = set()
        for place, raw in enumerate(decode_list(tools, self._max_tools if counts else MAX_LOADED, where)):
            at = f"{where}[{place}]"
            kind = decode(raw, ObjectKind, at).type
            if kind is None:
                raise missing(f"{at}.type", _SERVED if namespace is None else _INSIDE)
            if kind != "namespace" or namespace is not None:
                if counts:
                    self._count()
                yield _Sent(raw, kind, at, namespace, echo)
                continue
            group = decode(raw, NamespaceTool, at)
            client.check_name(group.name, at, "namespace")
            self.about[group.name] = self.about.get(group.name) or group.description or ""
            inside: list[dict[str, Any]] = []
            echo.append({"type": kind, "name": group.name, "description": group.description, "tools": inside})
            yield from self.sent_tools(group.tools, f"{at}.tools", inside, group.name, counts=counts)

    def loaded_tools(self, lists: Sequence[tuple[str, bytes]]) -> list[_Sent]:
        """The tools of lists that were loaded, the oldest first. Of several of one name the newest counts; a tool that
        a request declares for all to see is newer still. Where there is no room for all, the newest are taken. Raises
        InvalidRequest.
        """
        kept: list[_Sent] = []
        known: set[str] = set()
        grammars = self._grammars
        for age, (where, sent) in enumerate(reversed(lists)):
            strict = age == 0 and where != LOADED_EARLIER
            for tool in reversed(list(self.sent_tools(sent, where, [], counts=False))):
                named = decode(tool.raw, _Labelled, tool.where)
                name = _name(tool, named)
                if name in known or (where == LOADED_EARLIER and self._shows(name)):
                    continue
                known.add(name)
                has_grammar = tool.kind == "custom" and named.has_grammar
                grammars += has_grammar
                if grammars > MAX_GRAMMARS and where == LOADED_EARLIER and has_grammar:
                    continue
                if name not in self._deferred and name not in self._servers and not self._shows(name):
                    if self._read == self._max_tools and not strict:
                        break
                    self._count()
                kept.append(tool)
        self._here = set()
        return kept[::-1]

    def _shows(self, name: str) -> bool:
        """Whether a tool with this recipient is declared for all to see."""
        namespace, _, member = name.partition(".")
        return member in self.namespaces.get(namespace, ())

    def take(self, tool: _Sent, *, loaded: bool = False) -> Generator[None, None, None]:
        """Read a tool and add it. One that is deferred isn't shown before it is `loaded`. A namespace called
        `functions` is like none. Raises InvalidRequest.
        """
        declared = None
        if tool.kind in ("function", "custom") or (tool.namespace is None and tool.kind in client.CLIENT):
            inside = None if tool.namespace == FUNCTIONS else tool.namespace
            declared = client.read_own(tool.raw, tool.kind, tool.where, inside)
        if declared is None:
            if tool.namespace is not None or tool.kind not in HOSTED:
                raise invalid_value(f"{tool.where}.type", tool.kind, _SERVED if tool.namespace is None else _INSIDE)
            self._note_hosted(tool)
            tool.echo.append(echo_of_hosted(decode(tool.raw, Json, tool.where), tool.where))
            return
        self._grammars += declared.callee.kind == "custom" and not declared.callee.wrapped
        if self._grammars > MAX_GRAMMARS:
            raise invalid_value(f"{tool.where}.format", "a grammar", f"At most {MAX_GRAMMARS} tools may have one.")
        content = yield from declared.content
        callee = declared.callee
        if callee.recipient in self._here:
            raise invalid_value(f"{tool.where}.name", callee.name, "Two tools have the same name. Rename one of them.")
        self._here.add(callee.recipient)
        if callee.kind == "function":
            declared.echo["strict"] = content is not None
        tool.echo.append(declared.echo)
        if self._defers and not loaded and declared.echo.get("defer_loading") is True:
            self._deferred[callee.recipient] = None
            return
        self._deferred.pop(callee.recipient, None)
        self.add(callee, declared.shown, content)

    def add(self, callee: Callee, shown: Function, content: str | None) -> None:
        """Add a tool that is shown and whose calls must match a content."""
        known = msgspec.structs.replace(callee, content=content)
        self.namespaces.setdefault(callee.namespace or FUNCTIONS, {})[callee.name] = (known, shown)

    def _note_hosted(self, tool: _Sent) -> None:
        """Leave a hosted tool out, unless it is a server with an offer, a trained tool that runs here, or a type that a
        server stands for. Raises InvalidRequest.
        """
        if (kind := DECLARED_BY.get(tool.kind)) in self._builtins:
            self._once(kind, tool)
            self._trained[kind] = self._builtins[kind], self._builtins[kind].read(tool.raw, tool.where)
            return
        if tool.kind in self._routed and tool.where.startswith("tools"):
            known = self._routed[tool.kind]
            self._once(known.type, tool)
            self._standing[known.type] = tool.where, known.callee(known.read(tool.raw, tool.where)), known.shown
            return
        sent = decode(tool.raw, _Labelled, tool.where)
        label = sent.server_label if tool.kind == "mcp" and isinstance(sent.server_label, str) else None
        if label in self._offers and tool.where.startswith("tools"):
            self._servers[label] = tool.where
            if self._defers and sent.defer_loading is True:
                self._deferred[label] = None
        elif label in self._deferred:
            del self._deferred[label]
        else:
            self._left_out[tool.kind] = None

    def _once(self, kind: HostedKind, tool: _Sent) -> None:
        if kind in self._here:
            raise invalid_value(f"{tool.where}.type", tool.kind, "It is declared twice. Declare it once.")
        self._here.add(kind)

    def offered_tools(self) -> Iterator[tuple[str, Callee, Function]]:
        """The tools of the servers that were declared, and of those that stand for a type, and where their server or
        type was. Raises InvalidRequest.
        """
        for label, where in self._servers.items():
            if label in self._deferred:
                continue
            offer = self._offers[label]
            if label in self.namespaces or label in self.about:
                raise invalid_value(f"{where}.server_label", label, "A namespace has the same name. Take another one.")
            self.about[label] = offer.description
            for callee, shown in callees(offer):
                self._count()
                yield where, callee, shown
        for type, (where, callee, shown) in self._standing.items():
            if type in self.namespaces or type in self.about:
                raise invalid_value(f"{where}.type", type, "A namespace has the same name. Take another one for it.")
            yield where, callee, shown

    def tools(self, sections: Sequence[str], echo: Sequence[dict[str, Any]]) -> Tools:
        order = sorted(self.namespaces)
        trained = [callee for kind, (_, options) in self._trained.items() for callee in builtin.callees(kind, options)]
        own = {callee.recipient for named in self.namespaces.values() for callee, _ in named.values()}
        if taken := own & {each.recipient for each in trained}:
            raise invalid_value("tools", min(taken), "The model knows another tool by this name. Take another one.")
        return Tools(
            section="\n\n".join(sections),
            echo=tuple(echo),
            callees=(*(callee for name in order for callee, _ in self.namespaces[name].values()), *trained),
            left_out=tuple(self._left_out),
            namespaces=tuple(order),
            trained=builtin.section(known for known, _ in self._trained.values()),
            deferred=frozenset(self._deferred),
            declared=tuple(each for name in order for each in self.namespaces[name].values()),
        )

    def _count(self) -> None:
        self._read += 1
        if self._read > self._max_tools:
            raise not_allowed(
                f"Too many tools: at most {self._max_tools} are allowed, those in namespaces included.", "tools"
            )
