"""What each operation takes and answers, by its id; its path, its parameters and its words are those of its route."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from service.api import conversation, response
from service.features.batches import shapes as batches
from service.features.files import routes as files
from service.features.python import shapes as containers
from service.responses.prompt.compaction import Compacted
from service.web.routes.create import InputTokens
from tests.support.openapi import answers, bodies

EVERYWHERE = (400, 403, 500)
"""Refusals that any request may get: a header that comes twice, another host than localhost, a bug."""

BODY = (408, 413, 415)
"""Refusals of a body: it comes too slowly, is too long, or says that it is no JSON."""

MEANINGS = {
    400: "The request is wrong: the message says why, and what to do.",
    401: "No API key, or a wrong one.",
    403: "A service without keys got a Host other than localhost.",
    404: "No such object for this key.",
    408: "The body didn't arrive in time.",
    409: "The object has ended.",
    413: "The body is too long.",
    415: "The body is not declared as JSON.",
    422: "The Idempotency-Key was used with another body; or the engine's server rejects the request.",
    426: "This route opens a WebSocket, and the request asks for none.",
    429: "The queue is full.",
    500: "The service or the engine failed.",
    503: "The store or the engine is unavailable, or there is no room: retry.",
    504: "The time was up before any output.",
    507: "The disk of the store is nearly full.",
}
"""What each status says; docs/errors.md has the codes."""


class Operation(NamedTuple):
    """What an operation takes, a type or None for nothing; what it answers, by status; and the statuses of error
    envelopes besides those that any request may get.

    With `streams` events may be the answer, of the type that it names, else those of a response; `open` ones need no
    key; `texts` are other media types of the answer; `parameters` are those of which FastAPI knows nothing. What is
    taken may be a `form` in the place of JSON. What is `validated` has an ETag, and is a 304 for who has it already.
    Parameters that are `not_ours` are read of requests to another API alone.
    """

    takes: Any = None
    answers: Mapping[int, Any] = {}
    refusals: tuple[int, ...] = ()
    says: str = "The answer."
    streams: bool | str = False
    open: bool = False
    texts: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    form: bool = False
    validated: bool = False
    not_ours: tuple[str, ...] = ()


_RESPONSE = {200: response.Response}
_CONVERSATION = {200: conversation.Conversation}
_CONTAINER = {200: containers.ContainerResource}
_FILE = {200: containers.ContainerFile}
_BATCH = {200: batches.BatchResource}
_ITEMS = {200: answers.ItemList}
_PASSED = {200: answers.PassedOn}
_EVENTS = "The answer in that API's form, or with `stream` its events."
_KEYED = ("Idempotency-Key",)
_STREAM = "The response, or with `stream` its events, each as the `data` of a server-sent event."

LINKS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "createResponse": (
        {"response_id": "$response.body#/id"},
        ("retrieveResponse", "listInputItems", "steerResponse", "cancelResponse", "deleteResponse"),
    ),
    "createConversation": (
        {"conversation_id": "$response.body#/id"},
        (
            *("retrieveConversation", "updateConversation", "createConversationItems", "listConversationItems"),
            "deleteConversation",
        ),
    ),
    "createConversationItems": (
        {"conversation_id": "$request.path.conversation_id", "item_id": "$response.body#/first_id"},
        ("retrieveConversationItem", "deleteConversationItem"),
    ),
}
"""What an answer gives to other operations: their parameters, and which operations these are."""

OPERATIONS: dict[str, Operation] = {
    "createResponse": Operation(
        bodies.Create,
        _RESPONSE,
        (404, *BODY, 422, 429, 504, 507),
        _STREAM,
        streams=True,
        parameters=(*_KEYED, "X-Harmonium-Detach"),
    ),
    "openWebSocket": Operation(None, {101: None}, (426,), "A WebSocket is open: docs/websocket.md."),
    "compactConversation": Operation(
        bodies.Compact, {200: Compacted}, (404, *BODY, 504), "The compacted conversation."
    ),
    "countInputTokens": Operation(bodies.Create, {200: InputTokens}, (404, *BODY), "The length of the prompt."),
    "retrieveResponse": Operation(
        None, _RESPONSE, (404,), _STREAM, streams=True, validated=True, parameters=("If-None-Match",)
    ),
    "deleteResponse": Operation(None, {200: answers.ResponseDeleted}, (404,), "The object is deleted."),
    "cancelResponse": Operation(None, _RESPONSE, (404, 415), "The response as it ended."),
    "steerResponse": Operation(
        bodies.Steer, {200: answers.SteerAccepted}, (404, *BODY, 429), "The steer is stored.", parameters=_KEYED
    ),
    "listInputItems": Operation(None, _ITEMS, (404,), "A page of items."),
    "createConversation": Operation(
        bodies.NewConversation, _CONVERSATION, (404, *BODY, 422, 507), "The new conversation.", parameters=_KEYED
    ),
    "listConversations": Operation(
        None, {200: answers.ConversationList}, (), "A page of conversations.", parameters=("metadata",)
    ),
    "retrieveConversation": Operation(None, _CONVERSATION, (404,), "The conversation."),
    "updateConversation": Operation(bodies.ChangedConversation, _CONVERSATION, (404, *BODY, 507), "The conversation."),
    "deleteConversation": Operation(None, {200: conversation.ConversationDeleted}, (404,), "The object is deleted."),
    "createConversationItems": Operation(
        bodies.AddedItems, _ITEMS, (404, *BODY, 422, 507), "The items that were added.", parameters=_KEYED
    ),
    "listConversationItems": Operation(None, _ITEMS, (404,), "A page of items."),
    "retrieveConversationItem": Operation(None, {200: answers.ListedItem}, (404,), "The item."),
    "deleteConversationItem": Operation(None, _CONVERSATION, (404, 507), "The conversation."),
    "createContainer": Operation(containers.NewContainer, _CONTAINER, (*BODY, 429, 503), "The new container."),
    "listContainers": Operation(None, {200: answers.ContainerList}, (), "A page of containers."),
    "retrieveContainer": Operation(None, _CONTAINER, (404,), "The container."),
    "deleteContainer": Operation(None, {200: containers.ContainerDeleted}, (404,), "The object is deleted."),
    "createContainerFile": Operation(bodies.Upload, _FILE, (404, *BODY, 503), "The file.", form=True),
    "listContainerFiles": Operation(None, {200: answers.ContainerFileList}, (404, 503), "A page of files."),
    "retrieveContainerFile": Operation(None, _FILE, (404, 503), "The file."),
    "downloadContainerFile": Operation(
        None, {200: None}, (404, 503), "The file's content.", texts=("application/octet-stream",)
    ),
    "deleteContainerFile": Operation(
        None, {200: containers.ContainerFileDeleted}, (404, 503), "The object is deleted."
    ),
    "createFile": Operation(
        bodies.FileUpload,
        {200: files.FileResource},
        (*BODY, 503, 507),
        "The file.",
        form=True,
    ),
    "listFiles": Operation(None, {200: answers.FileList}, (503,), "A page of files."),
    "retrieveFile": Operation(None, {200: files.FileResource}, (404, 503), "The file."),
    "downloadFile": Operation(
        None, {200: None}, (404, 503), "The file's content.", texts=("application/octet-stream",)
    ),
    "deleteFile": Operation(None, {200: files.FileDeleted}, (404, 503), "The object is deleted."),
    "createBatch": Operation(bodies.NewBatch, _BATCH, (*BODY, 429, 503), "The batch, which is validated next."),
    "listBatches": Operation(None, {200: answers.BatchList}, (), "A page of batches."),
    "retrieveBatch": Operation(None, _BATCH, (404,), "The batch."),
    "cancelBatch": Operation(None, _BATCH, (404, 409, *BODY), "The batch, which ends soon."),
    "listTrajectories": Operation(
        None, {200: None}, (404, 503), "Trajectories, a line of JSON each.", texts=("application/octet-stream",)
    ),
    "listModels": Operation(
        None, {200: answers.ModelList}, (), "The models.", not_ours=("limit", "after_id", "before_id")
    ),
    "retrieveModel": Operation(None, {200: answers.Model}, (404,), "The model."),
    "createChatCompletion": Operation(bodies.Chat, _PASSED, (404, *BODY, 422, 504), _EVENTS, streams="PassedOn"),
    "createCompletion": Operation(bodies.Completion, _PASSED, (404, *BODY, 422, 504), _EVENTS, streams="PassedOn"),
    "createEmbedding": Operation(bodies.Embedding, _PASSED, (404, *BODY, 422, 504), "The server's answer."),
    "createMessage": Operation(bodies.Messages, _PASSED, (404, *BODY, 422, 504), _EVENTS, streams="PassedOn"),
    "countMessageTokens": Operation(bodies.CountedMessages, _PASSED, (404, *BODY, 422, 504), "The server's answer."),
    "createRerank": Operation(bodies.Ranked, _PASSED, (404, *BODY, 422, 504), "The server's answer."),
    "createScore": Operation(bodies.Scored, _PASSED, (404, *BODY, 422, 504), "The server's answer."),
    "createDecision": Operation(bodies.Decided, _PASSED, (404, *BODY, 422, 504), "The server's answer."),
    "createTranscription": Operation(
        *(bodies.Sound, _PASSED, (404, *BODY, 422, 504), _EVENTS), streams="PassedOn", form=True, texts=("text/plain",)
    ),
    "welcome": Operation(None, {200: answers.Welcome}, (), "The service.", open=True, texts=("text/html",)),
    "health": Operation(None, {200: answers.Health}, (), "It is alive.", open=True),
    "ready": Operation(
        None, {200: answers.Readiness, 503: answers.Readiness}, (), "The states of the service's parts.", open=True
    ),
    "metrics": Operation(None, {200: None}, (), "The metrics.", texts=("text/plain", "application/openmetrics-text")),
}
