"""What the service answers, as types: the wire's own structs, and those members of theirs that are kept as JSON or
hold an echo. An answer's members are all there but for those that may be left out (`UnsetType`).
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from service.api import conversation, events, items, response
from service.features.batches import shapes as batches
from service.features.files import routes as files
from service.features.python import shapes as containers
from service.responses.prompt.compaction import Compacted
from service.web.routes.create import InputTokens
from tests.support.openapi import bodies

Json = dict[str, Any]
Left = msgspec.UnsetType
UNSET = msgspec.UNSET


# --- what has no struct of its own ---


class ErrorDetail(Struct):
    """A message for people, a code for programs, and the parameter."""

    message: str
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    param: str | None
    code: str | None


class Error(Struct):
    """The error envelope."""

    error: ErrorDetail


class MessagesErrorDetail(Struct):
    """The kind of error, and a message for people."""

    type: str
    message: str


class MessagesError(Struct):
    """The error envelope of Anthropic's API."""

    type: Literal["error"]
    error: MessagesErrorDetail
    request_id: str


class PassedOn(Struct):
    """An answer of the engine's server, or harmonium's in the same API, or an event of its stream."""

    model: str | Left = UNSET


class ResponseDeleted(Struct):
    """A deleted response."""

    id: str
    object: Literal["response.deleted"]
    deleted: bool


class SteerAccepted(Struct):
    """The steer is stored for the response's next boundary."""

    steer: response.SteerShown
    type: Literal["response.steer.accepted"]


class Architecture(Struct):
    """The kinds of input that a model takes, and of its output."""

    input_modalities: list[Literal["text", "image"]]
    output_modalities: list[Literal["text"]]


class Model(Struct):
    """A model under one of its names, the first of which is its `root`. Without a `max_model_len`, which is also its
    `context_length`, no server of it has been up yet, and what it can do isn't known either.
    """

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    max_model_len: int | Left = UNSET
    context_length: int | Left = UNSET
    max_output_tokens: int | Left = UNSET
    markup: str | Left = UNSET
    architecture: Architecture | Left = UNSET
    capabilities: list[Literal["completion", "tools", "thinking", "vision"]] | Left = UNSET
    supported_parameters: (
        list[Literal["reasoning", "tools", "tool_choice", "structured_outputs", "logprobs", "top_logprobs"]] | Left
    ) = UNSET


class ModelList(Struct):
    """The models for create requests."""

    object: Literal["list"]
    data: list[Model]


class Health(Struct):
    """The process is alive."""

    status: Literal["ok"]


class Backlog(Struct):
    """How many conversations wait for the archive, how long the first has waited in seconds, and whether the archive
    is usable.
    """

    waiting: int
    oldest_seconds: float
    usable: bool
    reason: Literal["archive_full"] | Left = UNSET


class Readiness(Struct):
    """Whether the process can serve: the states of its store, engine and worker."""

    status: Literal["ok", "unavailable"]
    store: Literal["ok", "read-only", "mismatch", "unconfirmed", "unavailable"]
    engine: Literal["ok", "unavailable"]
    store_evicts: str | Left = UNSET
    engine_waits: str | Left = UNSET
    engine_releases: list[str] | Left = UNSET
    engine_lacks: list[str] | Left = UNSET
    worker: Literal["ok", "paused", "broken"] | Left = UNSET
    archive: Backlog | Left = UNSET


class Welcome(Struct):
    """What this is, and where to go."""

    name: str
    version: str
    base_urls: dict[str, str]
    links: dict[str, str]
    engine: Literal["demo"] | Left = UNSET


# --- items as they are listed ---


class ListedImage(Struct, tag="input_image"):
    """An image."""

    detail: Literal["low", "high", "auto", "original"]
    image_url: str | None
    file_id: str | None


Told = bodies.InputText | ListedImage | bodies.InputFile
Listed = Told | response.OutputText | bodies.Refusal

_LISTED = [
    *(items.MessageItem, items.ReasoningItem, items.FunctionCallItem, items.FunctionCallOutputItem),
    *(items.CustomToolCallItem, items.CustomToolCallOutputItem, items.CompactionItem, items.CompactionTriggerItem),
    *(items.AdditionalToolsItem, items.ConfigurationUpdateItem, items.CodeInterpreterCallItem, items.McpCallItem),
    *(items.McpApprovalRequestItem, items.McpApprovalResponseItem, items.ToolSearchCallItem),
    *(items.ToolSearchOutputItem, items.ShellCallItem, items.ShellCallOutputItem, items.LocalShellCallItem),
    *(items.AgentMessageItem, items.CompactionSummaryItem, items.ContextCompactionItem),
    *(items.LocalShellCallOutputItem, items.ApplyPatchCallItem, items.ApplyPatchCallOutputItem),
]
ListedItem = bodies.one_of(*_LISTED, *map(items.foreign_kind, items.FOREIGN))


def page(name: str, kind: Any, says: str) -> Any:
    """A page of some kind of thing."""
    ends: list[Any] = [("first_id", str | None), ("last_id", str | None), ("has_more", bool)]
    fields = [("data", list[kind]), *ends, ("object", Literal["list"])]
    return msgspec.defstruct(name, fields, namespace={"__doc__": says}, module=__name__)


ItemList = page("ItemList", ListedItem, "A page of items.")
ContainerList = page("ContainerList", containers.ContainerResource, "A page of containers.")
ContainerFileList = page("ContainerFileList", containers.ContainerFile, "A page of a container's files.")
BatchList = page("BatchList", batches.BatchResource, "A page of batches.")
FileList = page("FileList", files.FileResource, "A page of files.")
ConversationList = page("ConversationList", conversation.Conversation, "A page of conversations.")

OutputItem = response.Item
StreamEvent = bodies.one_of(*events.KINDS, events.Keepalive)

READ: dict[tuple[type[Struct], str], Any] = {
    (response.OutputText, "logprobs"): list[response.Logprob],
    (events.OutputTextDone, "logprobs"): list[events.StreamedLogprob],
    (response.SteerShown, "input"): bodies.Steer.__annotations__["input"],
    (response.Response, "tools"): list[bodies.Tool],
    (response.Response, "tool_choice"): bodies.Choice,
    (Compacted, "output"): list[ListedItem],
    (items.MessageItem, "content"): list[Listed],
    (items.AgentMessageItem, "content"): list[bodies.InputText],
    (items.FunctionCallOutputItem, "output"): str | list[Told],
    (items.CustomToolCallOutputItem, "output"): str | list[Told],
    (items.ReasoningItem, "content"): list[response.ReasoningText],
    (items.ReasoningItem, "summary"): list[response.SummaryText],
    (items.AdditionalToolsItem, "tools"): list[bodies.Tool],
    (items.ToolSearchCallItem, "arguments"): bodies.Json,
    (items.ToolSearchOutputItem, "tools"): list[bodies.Tool],
}
"""Members that the structs keep as JSON, and what that is."""

ALL: tuple[Any, ...] = (
    *(StreamEvent, response.Response, Compacted, InputTokens, ResponseDeleted, SteerAccepted, ItemList),
    *(conversation.Conversation, ConversationList, conversation.ConversationDeleted, Model, ModelList),
    *(containers.ContainerResource, ContainerList, containers.ContainerDeleted),
    *(containers.ContainerFile, ContainerFileList, containers.ContainerFileDeleted),
    *(files.FileResource, FileList, files.FileDeleted),
    *(batches.BatchResource, BatchList),
    *(Health, Readiness, Welcome, Error, MessagesError, PassedOn),
)
