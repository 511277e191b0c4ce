"""A create request's JSON members, read: its items, tools, choice and formats, and the rules that follow from them.

Reading comes before building (prompt/build.py): items may refer to stored ones, which are fetched in between.
Nothing here looks at a chain.
"""

from collections.abc import Generator, Sequence
from functools import partial

import msgspec

from service.api.content import USUAL_BOUNDS, PictureBounds, ReadPictures
from service.api.history import Earlier, read_previous
from service.api.items import Configuration, Gathered, InputItem
from service.api.read import read_input
from service.api.request import CreateRequest, Effort
from service.api.tools.builtin import Builtin
from service.api.tools.choice import Chosen, read_choice
from service.api.tools.format import WHERE, AnswerFormat, read_format
from service.api.tools.offer import McpOffer, Routed
from service.api.tools.read import LOADED_EARLIER, MAX_LOADED, Tools, read_tools
from service.decoding import ABSENT, decode_list
from service.errors import InvalidRequest, invalid_value, not_served
from service.responses.output.rules import Rules
from service.responses.output.sealed import Opener

NOTHING_SET = Configuration()

PARALLEL_CALLS = 16
"""The most calls that one response makes side by side."""


MAX_HOSTED_CALLS = 64
"""The most calls that the service runs for one response."""


SHOWN_OF_CALLS = frozenset(
    {
        "code_interpreter_call.outputs",
        "file_search_call.results",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)
"""The values of `include` for calls that the service makes."""


MAX_ITEMS = 4096
MAX_TOOLS = 512
MAX_TOOLS_BYTES = 1_048_576
"""The most input items, tools, and bytes of the tools' JSON in one request."""


class Read(msgspec.Struct, frozen=True):
    """The members of a request, read.

    `references` are the ids of stored items that `build_prompt` needs, and `ids` those that the items came with.
    `effort` and `format` are those in force, after all updates among the items. `earlier` is the history that the
    client keeps itself, `opener` opens what is sealed, and `bounds` are those of pictures, None where images, and tools
    that OpenAI runs, are refused, in stored items too. `pictures` are those of its items, and `gathered` has the images
    whose pictures are still to be fetched, and the kinds that are left out.
    """

    tools: Tools
    chosen: Chosen
    items: list[InputItem]
    references: tuple[str, ...]
    ids: set[str]
    effort: Effort
    format: AnswerFormat
    rules: Rules
    earlier: list[Earlier]
    opener: Opener
    bounds: PictureBounds | None = USUAL_BOUNDS
    pictures: ReadPictures = msgspec.field(default_factory=ReadPictures)
    gathered: Gathered = msgspec.field(default_factory=Gathered)


def read_request(
    request: CreateRequest,
    opener: Opener,
    standing: Configuration = NOTHING_SET,
    offers: Sequence[McpOffer] = (),
    builtins: tuple[Builtin, ...] = (),
    loaded: Sequence[bytes] = (),
    routed: Sequence[Routed] = (),
    *,
    bounds: PictureBounds | None = USUAL_BOUNDS,
) -> Generator[None, None, Read]:
    """Read the members of a request that are still JSON, yielding between pieces of a few milliseconds.

    The `standing` configuration of its conversation overrides the request's, and its own items override both. `offers`
    are the tools of the servers that it declares, `builtins` those that the model was trained with and that run here,
    `loaded` the lists of tools that searches found in what it continues, the oldest first, and `routed` the types of
    tools that it declares and a server stands for. Without `bounds` of pictures, images and tools that OpenAI runs are
    refused. Raises InvalidRequest, naming the member.
    """
    gathered = Gathered(bounds, begins_at=request.begins_at)
    items = yield from read_input(request.input, gathered, max_items=MAX_ITEMS)
    earlier_found = [(LOADED_EARLIER, msgspec.Raw(tools)) for tools in loaded]
    known = {"max_tools": MAX_TOOLS, "max_bytes": MAX_TOOLS_BYTES, "offers": offers, "builtins": builtins}
    read = partial(read_tools, request.tools, **known, routed=routed)
    try:
        tools = yield from read(added=gathered.added, loaded=[*earlier_found, *gathered.loaded])
    except InvalidRequest:
        if not gathered.replayed_at:
            raise
        added = yield from _readable(gathered.added, gathered)
        tools = yield from read(
            added=added, loaded=[*earlier_found, *(yield from _readable(gathered.loaded, gathered))]
        )
    if tools.left_out and bounds is None:
        raise not_served("tools", tools.left_out[0], "This service can't run it. Leave it out.")
    chosen = read_choice(request.tool_choice, tools)
    asked = request.format if standing.format == ABSENT else standing.format
    try:
        form = yield from read_format(*(gathered.format or (asked, WHERE)))
    except InvalidRequest:
        if gathered.format is None or gathered.format[1] not in gathered.replayed_at:
            raise
        gathered.left_out.add("configuration_update")
        form = yield from read_format(asked, WHERE)
    if form.content is not None and request.stop:
        raise invalid_value("stop", "given with text.format", "An answer cut at a stop would not match its format.")
    earlier = yield from read_previous(request.previous_input_messages, max_messages=MAX_ITEMS)
    return Read(
        tools=tools,
        chosen=chosen,
        items=items,
        references=tuple(gathered.references),
        ids=gathered.ids,
        effort=gathered.effort or standing.effort or request.effort,
        format=form,
        rules=_rules(request, tools, chosen, form, compacting=gathered.trigger is not None),
        earlier=earlier,
        opener=opener,
        bounds=bounds,
        pictures=gathered.pictures,
        gathered=gathered,
    )


def _readable(
    lists: Sequence[tuple[str, msgspec.Raw]], gathered: Gathered
) -> Generator[None, None, list[tuple[str, msgspec.Raw]]]:
    """The lists of tools without those tools of a history that can't be read, which are left out."""
    kept: list[tuple[str, msgspec.Raw]] = []
    for where, raw in lists:
        if where in gathered.replayed_at:
            tools: list[bytes] = []
            for tool in decode_list(raw, MAX_LOADED, where):
                alone = b"[%b]" % bytes(tool)
                try:
                    yield from read_tools(msgspec.Raw(alone), max_tools=MAX_TOOLS, max_bytes=MAX_TOOLS_BYTES)
                    tools.append(bytes(tool))
                except InvalidRequest:
                    gathered.left_out.add("tool")
            raw = msgspec.Raw(b"[%b]" % b",".join(tools))
        kept.append((where, raw))
    return kept


def _rules(request: CreateRequest, tools: Tools, chosen: Chosen, form: AnswerFormat, *, compacting: bool) -> Rules:
    """The rules of the response. A compaction calls nothing, and its text has no format."""
    several = request.parallel_tool_calls and not chosen.parallel_one
    return Rules(
        callees=tools.callees,
        choice="none" if compacting else chosen.choice,
        allowed=None if compacting else chosen.allowed,
        parallel=PARALLEL_CALLS if several else 1,
        answer=None if compacting else form.content,
        top_logprobs=request.top_logprobs if request.shows_logprobs and not compacting else None,
        sealed="reasoning.encrypted_content" in request.include,
        summary=request.summary,
        stop=() if compacting else request.stop,
        harmony=request.response_messages,
        compacting=compacting,
        hosted_calls=min(request.max_tool_calls or MAX_HOSTED_CALLS, MAX_HOSTED_CALLS),
        include=request.include & SHOWN_OF_CALLS if tools.shows_more else frozenset(),
    )
