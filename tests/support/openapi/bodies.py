"""What clients send, as types: the wire's own structs, with the type of each member that those keep as JSON.

A reader decodes level by level, so a struct of it says `Raw` where another one reads on. Here that one's type stands in
its place. Kinds of items, hosted tools and tiers are those that the readers know. `test_openapi.py` holds
readers and types against each other. Never describe here what no reader takes.
"""

from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from service.api import content, conversation, history, items, request, steer
from service.api import read as inputs
from service.api.request import CreateBody, TextParam
from service.api.tools import choice, client
from service.api.tools import format as formats
from service.api.tools.client import CustomTool, FunctionTool
from service.api.tools.hosted import HOSTED
from service.api.tools.read import NamespaceTool
from service.features.batches import shapes as batches
from service.features.files.routes import FileExpiry
from service.features.proxy import passed
from service.grammar.grammars import MAX_GRAMMAR_CHARS
from service.harmony.header import CHANNELS
from service.responses.prompt.compaction import CompactBody

Json = dict[str, Any]


def shown(struct: type[Struct], name: str, /, *required: str, tag: str | None = None, **members: Any) -> Any:
    """A struct under its public name, with other types of some `members`; None leaves one out. Of all of these the
    `required` ones must be there. With a `tag` its `type` is that.
    """
    kinds = {member.name: member for member in msgspec.structs.fields(struct)}
    if tag is not None:
        kinds.pop("type", None)
    fields: list[Any] = []
    for member in dict.fromkeys([*kinds, *members]):
        known = kinds.get(member)
        kind = members.get(member, known and known.type)
        wire = known.encode_name if known else member
        if kind is None:
            continue
        if member in required or (known and known.required and member not in members):
            fields.append((member, kind, msgspec.field(name=wire)))
        elif member in members or known is None:
            fields.append((member, kind | None, msgspec.field(default=None, name=wire)))
        else:
            fields.append((member, kind, msgspec.field(default=known.default, name=wire)))
    return msgspec.defstruct(
        name,
        fields,
        namespace={"__doc__": struct.__doc__},
        forbid_unknown_fields=struct.__struct_config__.forbid_unknown_fields,
        tag=tag,
        tag_field="type" if tag else None,
        kw_only=True,
    )


def one_of(*kinds: Any) -> Any:
    """The union of some types."""
    return reduce(or_, kinds)


def camel(kind: str) -> str:
    """The name of a kind as a type has it."""
    return "".join(map(str.capitalize, kind.split("_")))


def named(pattern: str) -> Any:
    """A text that matches all of a pattern."""
    return Annotated[str, Meta(pattern=f"^{pattern}$")]


def short(limit: int, least: int = 0) -> Any:
    """A text of at most so many characters."""
    return Annotated[str, Meta(min_length=least or None, max_length=limit)]


def some(kind: Any, limit: int, least: int = 0) -> Any:
    """A list of at most so many."""
    return Annotated[list[kind], Meta(min_length=least or None, max_length=limit)]


Metadata = Annotated[
    dict[short(64), short(512)],
    Meta(max_length=request.MAX_METADATA_PAIRS, description="Up to 16 pairs: keys to 64 characters, values to 512."),
]


# --- content parts ---

_part = {member.name: member.type for member in msgspec.structs.fields(content.ContentPart)}


class InputText(Struct, tag="input_text"):
    """A text."""

    text: str


class PlainText(Struct, tag="text"):
    """A text, in the form of some clients."""

    text: str


class AnswerText(Struct, tag="output_text"):
    """A text of the assistant's, as it was answered; its other members are dropped."""

    text: str


class Refusal(Struct, tag="refusal"):
    """A refusal of the assistant."""

    refusal: str | None = None


class ReasoningPart(Struct):
    """A text part of earlier reasoning."""

    type: str
    text: str | None = None


class InputImage(Struct, tag="input_image"):
    """An image; a model that doesn't see gets a line in its place."""

    image_url: Annotated[str, Meta(extra_json_schema={"format": "uri"})]
    detail: _part["detail"] = None


class InputFile(Struct, tag="input_file"):
    """A text file or PDF, as base64, a data URL or a file's id."""

    file_data: Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})]
    filename: short(content.MAX_FILE_NAME_CHARS) | None = None


Said = str | some(InputText | PlainText | AnswerText | InputImage | InputFile, content.MAX_PARTS)
Answered = str | some(InputText | PlainText | AnswerText | Refusal, content.MAX_PARTS)


# --- tools, the choice among them, and the form of an answer ---

Name = named(client.TOOL_NAME.pattern)

NEVER = Annotated[Any, Meta(extra_json_schema={"type": "boolean", "const": False})]
Function = shown(FunctionTool, "FunctionTool", "name", tag="function", name=Name, async_=NEVER)
AnyInput = shown(client._Text, "CustomToolText", tag="text")
Grammar = shown(
    client._Grammar, "CustomToolGrammar", "definition", tag="grammar", definition=short(MAX_GRAMMAR_CHARS, least=1)
)
Custom = shown(CustomTool, "CustomTool", "name", tag="custom", name=Name, format=AnyInput | Grammar, async_=NEVER)
Namespace = shown(NamespaceTool, "NamespaceTool", "name", tag="namespace", name=Name, tools=list[Function | Custom])


class ClientChoice(Struct):
    """The tool of this type, which the client runs."""


class HostedTool(Struct):
    """A hosted tool of OpenAI's, which is left out of the prompt. Its other members are echoed, but for secrets."""


Skill = shown(client.Skill, "ShellSkill")
Local = shown(client.LocalEnvironment, "LocalEnvironment", tag="local", skills=some(Skill, client.MAX_SKILLS))


class Container(Struct):
    """A container of OpenAI's: a shell with one is left out of the prompt. Its other members are echoed."""


Containers = [shown(Container, f"Container_{kind}", tag=kind) for kind in ("container_auto", "container_reference")]
Shell = shown(client.ShellTool, "ShellTool", tag="shell", environment=one_of(Local, *Containers))
LocalShell = shown(client.LocalShellTool, "LocalShellTool", tag="local_shell")
ApplyPatch = shown(client.ApplyPatchTool, "ApplyPatchTool", tag="apply_patch")
ToolSearch = shown(
    client.ToolSearchTool, "ToolSearchTool", tag="tool_search", execution=Literal["client", "server"], parameters=Json
)

HOSTED_TOOLS = [shown(HostedTool, f"HostedTool_{kind}", tag=kind) for kind in sorted(HOSTED - client.CLIENT)]
Tool = one_of(Function, Custom, Namespace, Shell, LocalShell, ApplyPatch, ToolSearch, *HOSTED_TOOLS)

Specific = (
    shown(choice._Specific, "ToolChoiceFunction", tag="function"),
    shown(choice._Specific, "ToolChoiceCustom", tag="custom"),
)
CLIENT_CHOICES = [shown(ClientChoice, f"ToolChoiceClient_{kind}", tag=kind) for kind in sorted(client.CLIENT)]
HOSTED_CHOICES = [
    shown(choice._Hosted, f"ToolChoiceHosted_{kind}", tag=kind) for kind in sorted(HOSTED - client.CLIENT)
]
Choosable = one_of(
    *Specific, shown(choice._Namespace, "ToolChoiceNamespace", tag="namespace"), *CLIENT_CHOICES, *HOSTED_CHOICES
)
Allowed = shown(
    choice._Allowed,
    "ToolChoiceAllowed",
    "tools",
    tag="allowed_tools",
    tools=some(Choosable, choice.MAX_ALLOWED, least=1),
)
Choice = Literal[choice._MODES] | one_of(*Specific, Allowed, *CLIENT_CHOICES)

Format = (
    shown(formats._Bare, "TextFormat", tag="text")
    | shown(formats._Bare, "JsonObjectFormat", tag="json_object")
    | shown(
        formats._JsonSchema,
        "JsonSchemaFormat",
        *("name", "schema"),
        tag="json_schema",
        name=named(formats.FORMAT_NAME.pattern),
        schema=Json,
    )
)
Text = shown(TextParam, "TextParam", format=Format)
Reasoning = shown(request.ReasoningParam, "ReasoningParam", mode=Literal["standard"])


# --- input items ---

CallId = short(items.MAX_CALL_ID_CHARS, least=1)
CallName = named(items.CALL_NAME.pattern)
REPLAYED: Json = {"id": Any, "status": Any}
"""What clients send with an item as they were given it, and nobody reads."""


class AgentPart(Struct, kw_only=True):
    """A part of the words of one agent to another: a text, or one in the place of what is sealed."""

    type: str
    text: str | None = None
    encrypted_content: str | None = None


CALLED: Json = {"call_id": CallId, "name": CallName, "namespace": CallName, "status": Any}

MEMBERS: dict[str, tuple[tuple[str, ...], Json]] = {
    "message": (
        ("role", "content"),
        {
            "role": Literal["user", "system", "developer"],
            "content": Said,
            "phase": Literal["commentary", "final_answer"] | None,
        },
    ),
    "agent_message": (
        ("author", "recipient", "content"),
        {"content": some(AgentPart, content.MAX_PARTS) | None},
    ),
    "function_call": (("call_id", "name"), CALLED),
    "function_call_output": (("call_id", "output"), {"call_id": CallId, "output": Said}),
    "custom_tool_call": (("call_id", "name"), CALLED),
    "custom_tool_call_output": (("call_id", "output"), {"call_id": CallId, "output": Said}),
    "reasoning": (
        (),
        {"content": some(ReasoningPart, content.MAX_PARTS), "summary": some(ReasoningPart, content.MAX_PARTS)},
    ),
    "item_reference": (("id",), {"id": short(inputs.MAX_ITEM_ID_CHARS, least=1)}),
    "additional_tools": (("tools",), {"tools": list[Tool] | None}),
    "configuration_update": ((), {"reasoning": Reasoning, "text": Text}),
    "code_interpreter_call": ((), {"outputs": some(shown(inputs._CodeOutput, "CodeOutput"), inputs.MAX_CODE_OUTPUTS)}),
    "mcp_call": ((), {"error": Any}),
    "shell_call": (("call_id", "action"), {"call_id": CallId, "action": inputs.ShellAction, "environment": Json}),
    "shell_call_output": (
        ("call_id", "output"),
        {"call_id": CallId, "output": some(shown(inputs._ShellOutput, "ShellOutput"), inputs.MAX_COMMANDS) | None},
    ),
    "local_shell_call": (("call_id", "action"), {"call_id": CallId, "action": inputs.ExecAction}),
    "local_shell_call_output": ((), {"id": CallId, "call_id": CallId}),
    "apply_patch_call": (("call_id",), {"call_id": CallId}),
    "apply_patch_call_output": (("call_id",), {"call_id": CallId}),
    "tool_search_call": (("arguments",), {"call_id": CallId, "arguments": Json}),
    "tool_search_output": (("tools",), {"call_id": CallId, "tools": list[Tool] | None}),
}
"""Of the readers' structs: which members of other types must be there, and what those are read as."""


def input_item(kind: str) -> Any:
    """An item of a kind, as its reader takes it."""
    required, members = MEMBERS.get(kind, ((), {}))
    struct = inputs.READERS[kind].sent
    if kind in items.FOREIGN:
        members = dict.fromkeys(items.FOREIGN[kind].members, Any)
    replayed = {name: kind for name, kind in REPLAYED.items() if name not in struct.__struct_fields__}
    return shown(struct, f"Input{camel(kind)}", *required, tag=kind, **{**replayed, **members})


class InputAnswer(Struct, tag="message", kw_only=True):
    """An earlier message of the assistant."""

    role: Literal["assistant"]
    content: Answered
    phase: Literal["commentary", "final_answer"] | None = None
    id: Any = None
    status: Any = None


ITEMS = {kind: input_item(kind) for kind in inputs.READERS}
Item = one_of(*ITEMS.values())
Input = str | list[Item]


# --- bodies ---

Role = Literal["user", "assistant", "tool", "system", "developer"]
Called = shown(history._Function, "PreviousFunction", "name", name=CallName)
Earlier = shown(
    history._Sent,
    "PreviousMessage",
    role=Role,
    content=Said,
    author=shown(history._Author, "PreviousAuthor", "role", role=Role),
    channel=Literal[tuple(sorted(CHANNELS))],
    recipient=CallName,
    name=CallName,
    call_id=CallId,
    tool_call_id=CallId,
    tool_calls=some(
        shown(history._ToolCall, "PreviousToolCall", "function", id=CallId, function=Called), history.MAX_CALLS
    ),
)
SERVED: Json = {
    "input": Input,
    "tools": list[Tool],
    "tool_choice": Choice,
    "text": Text,
    "reasoning": Reasoning,
    "metadata": Metadata,
    "client_metadata": Json,
    "prompt_cache_retention": Literal["in_memory", "24h"],  # "in-memory" is the same, and to generators of one name
    "service_tier": Literal[tuple(request.TIERS)],
    "stop": short(request.MAX_STOP_CHARS, least=1) | some(short(request.MAX_STOP_CHARS, least=1), request.MAX_STOPS),
    "prompt": shown(request.PromptParam, "PromptParam", variables=Json),
    "previous_input_messages": list[Earlier],
    "chat_template_kwargs": dict[str, request.TemplateOption],
}
Model = Annotated[str, Meta(min_length=1)]
Create = shown(CreateBody, "CreateResponse", model=Model, **SERVED, **dict.fromkeys(request.UNSERVED))

_created = {member.name: member.type for member in msgspec.structs.fields(Create)}
Compact = shown(
    CompactBody,
    "CompactConversation",
    "model",
    **{name: _created.get(name) for name in CompactBody.__struct_fields__} | {"model": Model},
)

Fork = shown(conversation._Extensions, "ConversationExtensions")
NewConversation = shown(
    conversation._New, "CreateConversation", items=some(Item, conversation.MAX_ITEMS), metadata=Metadata, harmonium=Fork
)


Binary = Annotated[str, Meta(extra_json_schema={"format": "binary"})]


class Upload(Struct):
    """A form with a file."""

    file: Binary


class FileUpload(Struct):
    """A form with a file and its purpose."""

    file: Binary
    purpose: Literal["assistants", "batch", "user_data", "vision"]
    expires_after: FileExpiry | None = None


NewBatch = shown(batches.NewBatch, "CreateBatch", metadata=Metadata)

ChangedConversation = shown(conversation._Changed, "UpdateConversation", "metadata", metadata=Metadata | None)
AddedItems = shown(conversation._Added, "AddItems", "items", items=some(Item, conversation.MAX_ITEMS, least=1))

UserMessage = shown(
    steer._UserMessage,
    "SteerMessage",
    *("role", "content"),
    content=str | some(InputText | InputImage | InputFile, content.MAX_PARTS),
)
Steer = shown(
    steer._Posted,
    "SteerResponse",
    "input",
    input=short(steer.MAX_STEER_BYTES, least=1) | some(UserMessage, steer.MAX_STEER_MESSAGES, least=1),
)


def _passed_on(name: str, says: str, endpoint: passed.Endpoint, *required: str) -> Any:
    """A request that is passed on, whose members the server knows; those are described that are read here."""
    known = {field.name: field.type for field in msgspec.structs.fields(passed._Ours)}
    must = ("model", *required)
    others = sorted((passed.MEMBERS[endpoint] | passed.OURS) - set(must))
    kinds = {"model": str, "file": Binary}
    fields: list[Any] = [(member, kinds.get(member, Any)) for member in must]
    for member in others:
        field = msgspec.field(name=member, default=None)  # a form has names with brackets
        fields.append((member.removesuffix("[]"), known.get(member, Any), field))
    return msgspec.defstruct(name, fields, namespace={"__doc__": says}, forbid_unknown_fields=True, kw_only=True)


_TO = passed.Endpoint
_CHATS, _SERVER = "A conversation as {} has it.", "for the engine's server to"
Chat = _passed_on("CreateChatCompletion", _CHATS.format("Chat Completions"), _TO.CHAT, "messages")
Completion = _passed_on("CreateCompletion", f"A text {_SERVER} go on from.", _TO.COMPLETIONS, "prompt")
Embedding = _passed_on("CreateEmbedding", f"Texts {_SERVER} make embeddings of.", _TO.EMBEDDINGS, "input")
Messages = _passed_on("CreateMessage", _CHATS.format("Anthropic's API"), _TO.MESSAGES, "messages", "max_tokens")
CountedMessages = _passed_on("CountMessageTokens", _CHATS.format("Anthropic's API"), _TO.COUNT, "messages")
Ranked = _passed_on("CreateRerank", f"Documents {_SERVER} rank.", _TO.RERANK, "query", "documents")
Scored = _passed_on("CreateScore", f"Texts {_SERVER} compare.", _TO.SCORE)
Decided = _passed_on("CreateDecision", f"Questions {_SERVER} decide.", _TO.DECISIONS, "input", "questions")
Sound = _passed_on("CreateTranscription", f"A form with audio {_SERVER} transcribe.", _TO.TRANSCRIBE, "file")
