"""A client that openapi-python-client makes of the service's own document, without a warning: every operation of it."""

import json
import os
import subprocess
import sys
from importlib import import_module
from io import BytesIO
from itertools import count
from pathlib import Path

URL = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")
MODEL = os.environ["MODEL"]
BIN = Path(sys.executable).parent

OPTIONS = ("--meta", "none", "--output-path", "made", "--fail-on-warning")
subprocess.run(
    [BIN / "openapi-python-client", "generate", "--url", f"{URL}/openapi.json", *OPTIONS],
    env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"},  # it formats what it makes by ruff
    check=True,
)
sys.path.insert(0, os.getcwd())
models = import_module("made.models")
client = import_module("made.client").Client(base_url=URL)
called = set()
numbers = count()


def call(operation, *arguments, **members):
    """What an operation answers, parsed; `responses.create_response` is one."""
    called.add(operation)
    answer = import_module(f"made.api.{operation}").sync_detailed(*arguments, client=client, **members)
    assert answer.status_code == 200, answer.content
    return answer.parsed


def create(**members):
    return call("responses.create_response", body=models.CreateResponse(model=MODEL, **members))


def conversation():
    return call("conversations.create_conversation", body=models.CreateConversation(items=[said()]))


def said():
    return models.InputMessage(role=models.InputMessageRole.USER, content=f"Hi {next(numbers)}.")


def text_of(response):
    (message,) = [item for item in response.output if isinstance(item, models.Message)]
    return message.content[0].text


def test_a_response_is_made_continued_retrieved_and_deleted():
    first = create(input_="My boat is called Vesper.")
    assert isinstance(first, models.ResponseObject)
    assert first.status == models.ResponseStatus.COMPLETED
    second = create(
        input_=[said()],
        previous_response_id=first.id,
        metadata=models.CreateResponseMetadataType0.from_dict({"a": "b"}),
    )
    assert text_of(second)
    found = call("responses.retrieve_response", second.id, include=[models.Include.REASONING_ENCRYPTED_CONTENT])
    assert found.previous_response_id == first.id
    items = call("responses.list_input_items", second.id, limit=2, order=models.ListInputItemsOrder.ASC)
    assert isinstance(items.data[0], models.MessageItem)
    assert call("responses.delete_response", second.id).deleted is True


def test_a_tool_is_called_and_its_output_taken():
    schema = models.FunctionToolParametersType0.from_dict(
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    )
    tool = models.FunctionTool(name="get_weather", type_="function", parameters=schema, strict=True)
    first = create(input_="What is the weather in Paris? Use the tool.", tools=[tool])
    (made,) = [item for item in first.output if isinstance(item, models.FunctionCall)]
    told = models.InputFunctionCallOutput(
        type_="function_call_output", call_id=made.call_id, output=f"18 degrees in {json.loads(made.arguments)['city']}"
    )
    assert "18" in text_of(create(input_=[told], previous_response_id=first.id, tools=[tool]))


def test_a_background_response_is_cancelled_and_another_one_steered():
    waiting = create(input_="Count to 100000.", background=True)
    body = models.SteerResponse(input_="Stop at 10.")
    steered = call("responses.steer_response", waiting.id, body=body)
    assert steered.steer.previous_response_id == waiting.id
    other = create(input_="Count to 100000.", background=True)
    assert call("responses.cancel_response", other.id).status == "cancelled"


def test_tokens_are_counted_and_a_conversation_is_compacted():
    body = models.CreateResponse(input_="Hi.")
    assert call("responses.count_input_tokens", body=body).input_tokens > 10
    compacted = call("responses.compact_conversation", body=models.CompactConversation(model=MODEL, input_=[said()]))
    assert isinstance(compacted.output[-1], models.CompactionItem)


def test_a_conversation_is_made_changed_and_listed():
    made = conversation()
    assert call("conversations.retrieve_conversation", made.id) == made
    metadata = models.UpdateConversationMetadataType0.from_dict({"topic": made.id})
    changed = call("conversations.update_conversation", made.id, body=models.UpdateConversation(metadata=metadata))
    assert changed.metadata["topic"] == made.id
    assert call("conversations.list_conversations", limit=1).data[0].id == made.id
    assert call("conversations.delete_conversation", made.id).deleted is True


def test_items_of_a_conversation_are_added_retrieved_and_deleted():
    made = conversation()
    added = call("conversations.create_conversation_items", made.id, body=models.AddItems(items=[said()]))
    assert len(call("conversations.list_conversation_items", made.id).data) == 2
    item = call("conversations.retrieve_conversation_item", made.id, added.first_id)
    assert isinstance(item, models.MessageItem)
    assert call("conversations.delete_conversation_item", made.id, added.first_id).id == made.id


def test_a_container_and_its_files_are_made_listed_and_deleted():
    made = call("containers.create_container", body=models.NewContainer(name="python"))
    assert call("containers.retrieve_container", made.id).name == "python"
    assert made.id in [each.id for each in call("containers.list_containers", limit=5).data]
    file = import_module("made.types").File(payload=BytesIO(b"1,2"), file_name="sums.csv")
    sent = call("containers.create_container_file", made.id, body=models.Upload(file=file))
    assert sent.path == "/mnt/data/sums.csv"
    assert call("containers.list_container_files", made.id).data == [sent]
    assert call("containers.retrieve_container_file", made.id, sent.id) == sent
    assert call("containers.download_container_file", made.id, sent.id) == b"1,2"
    assert call("containers.delete_container_file", made.id, sent.id).deleted is True
    assert call("containers.delete_container", made.id).deleted is True


def test_a_batch_is_made_of_an_uploaded_file_and_its_answers_are_downloaded():
    line = {"custom_id": "first", "method": "POST", "url": "/v1/responses", "body": {"model": MODEL, "input": "Hi."}}
    file = import_module("made.types").File(payload=BytesIO(json.dumps(line).encode()), file_name="lines.jsonl")
    sent = call("files.create_file", body=models.FileUpload(file=file, purpose=models.FileUploadPurpose.BATCH))
    assert sent.filename == "lines.jsonl"
    assert call("files.retrieve_file", sent.id) == sent
    assert sent in call("files.list_files", limit=5).data
    asked = {"input_file_id": sent.id, "endpoint": "/v1/responses", "completion_window": "24h"}
    made = call("batches.create_batch", body=models.CreateBatch.from_dict(asked))
    assert made.id in [each.id for each in call("batches.list_batches", limit=5).data]
    while made.status != models.BatchResourceStatus.COMPLETED:
        made = call("batches.retrieve_batch", made.id)
        assert made.status not in ("failed", "expired", "cancelled")
    answered = json.loads(call("files.download_file", made.output_file_id))
    assert answered["custom_id"] == "first"
    other = call("batches.create_batch", body=models.CreateBatch.from_dict(asked))
    assert call("batches.cancel_batch", other.id).status in ("cancelling", "cancelled")
    assert call("files.delete_file", sent.id).deleted is True


def test_a_trajectory_has_its_response():
    made = create(input_="Count to 2.")
    assert json.loads(call("trajectories.list_trajectories", id=made.id))["trajectory_id"] == made.id


def test_the_models_and_the_state_of_the_service_are_told():
    assert MODEL in [model.id for model in call("models.list_models").data]
    assert call("models.retrieve_model", MODEL).object_ == "model"
    assert call("service.welcome").name == "harmonium"
    assert call("service.health").status == "ok"
    assert call("service.ready").store == "ok"
    assert "harmonium_build_info" in call("service.metrics")


def test_a_refusal_is_an_envelope():
    answer = import_module("made.api.responses.retrieve_response").sync_detailed("resp_unknown", client=client)
    assert answer.status_code == 404
    assert answer.parsed.error.type_ == "invalid_request_error"
    answer = import_module("made.api.responses.open_web_socket").sync_detailed(client=client)
    assert answer.status_code == 426


def test_what_would_be_passed_on_is_refused_where_no_server_is_behind():
    said = {"model": MODEL, "messages": [{"role": "user", "content": "Hi."}]}
    file = import_module("made.types").File(payload=BytesIO(b"RIFF"), file_name="a.wav")
    for operation, body, status in (
        # those of chats and messages are made here
        ("create_chat_completion", models.CreateChatCompletion.from_dict(said), 200),
        ("create_message", models.CreateMessage.from_dict({**said, "max_tokens": 9}), 200),
        ("count_message_tokens", models.CountMessageTokens.from_dict(said), 200),
        ("create_message", models.CreateMessage.from_dict({**said, "model": "unknown", "max_tokens": 9}), 404),
        ("create_completion", models.CreateCompletion.from_dict({"model": MODEL, "prompt": "Hi."}), 404),
        ("create_embedding", models.CreateEmbedding.from_dict({"model": MODEL, "input": "Hi."}), 404),
        ("create_rerank", models.CreateRerank.from_dict({"model": MODEL, "query": "Hi.", "documents": ["Ho."]}), 404),
        ("create_score", models.CreateScore.from_dict({"model": MODEL, "text_1": "Hi.", "text_2": "Ho."}), 404),
        ("create_decision", models.CreateDecision.from_dict({"model": MODEL, "input": "Hi.", "questions": []}), 404),
        ("create_transcription", models.CreateTranscription(model=MODEL, file=file), 404),
    ):
        answer = import_module(f"made.api.passed_on.{operation}").sync_detailed(client=client, body=body)
        assert answer.status_code == status, operation
