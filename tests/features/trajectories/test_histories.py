"""`harmonium import` of other products' files: their turns, forks, calls and times, each once."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from service.features.trajectories.reading import BegunFile, stories
from tests.support.service.beside import ServiceBeside
from tests.support.service.commands import run, said
from tests.support.service.process import MODEL

AT = 1_760_000_000

USER, MODELS = "How is the weather in Rome?", "It rains in Rome."


def chat_gpt() -> Any:
    def node(id: str, parent: str | None, role: str, text: str, **more: Any) -> dict[str, Any]:
        content = {"content_type": "text", "parts": [text]}
        message = {"id": id, "author": {"role": role}, "create_time": AT, "content": content, "recipient": "all"} | more
        return {"id": id, "message": message, "parent": parent, "children": []}

    return {
        "conversation_id": "c-1",
        "title": "Weather",
        "create_time": AT,
        "mapping": {
            "root": {"id": "root", "message": None, "parent": None, "children": ["u"]},
            "u": node("u", "root", "user", USER),
            "call": node("call", "u", "assistant", "weather('Rome')", recipient="python"),
            "out": node("out", "call", "tool", "rain"),
            "a": node("a", "out", "assistant", MODELS, metadata={"model_slug": "gpt-4o"}),
            "b": node("b", "u", "assistant", "I don't know."),
            "u2": node("u2", "a", "user", "Thanks!"),
            "c": node("c", "u2", "assistant", "You are welcome."),
        },
    }


def anthropic() -> Any:
    def message(id: str, sender: str, text: str) -> dict[str, Any]:
        content = [{"type": "text", "text": text}]
        return {"uuid": id, "sender": sender, "text": text, "content": content, "created_at": "2025-10-09T08:53:20Z"}

    return {
        "uuid": "k-1",
        "name": "Weather",
        "chat_messages": [message("1", "human", USER), message("2", "assistant", MODELS)],
    }


def open_webui() -> Any:
    messages = {
        "1": {"id": "1", "parentId": None, "role": "user", "content": USER, "timestamp": AT},
        "2": {"id": "2", "parentId": "1", "role": "assistant", "content": MODELS, "model": "llama", "timestamp": AT},
        "3": {"id": "3", "parentId": "1", "role": "assistant", "content": "No idea.", "timestamp": AT},
    }
    return {"id": "w-1", "title": "Weather", "chat": {"title": "Weather", "history": {"messages": messages}}}


SHARE_GPT = {"conversations": [{"from": "human", "value": USER}, {"from": "gpt", "value": MODELS}]}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
FINE_TUNING = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": USER},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "assistant", "content": MODELS},
    ]
}
ATIF = {
    "schema_version": "ATIF-v1.7",
    "session_id": "s-1",
    "agent": {"name": "agent", "version": "1", "model_name": "qwen"},
    "steps": [
        {"step_id": 1, "source": "user", "message": USER, "timestamp": "2025-10-09T08:53:20Z"},
        {
            "step_id": 2,
            "source": "agent",
            "message": "",
            "reasoning_content": "They want weather.",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "weather", "arguments": {"city": "Rome"}}],
            "observation": {"results": [{"source_call_id": "c1", "content": "rain"}]},
        },
        {"step_id": 3, "source": "agent", "message": MODELS},
    ],
}


def codex() -> Iterator[dict[str, Any]]:
    def item(**payload: Any) -> dict[str, Any]:
        return {"timestamp": "2025-10-09T08:53:20Z", "type": "response_item", "payload": payload}

    yield {"timestamp": "2025-10-09T08:53:20Z", "type": "session_meta", "payload": {"id": "x-1", "cwd": "/"}}
    yield {"type": "turn_context", "payload": {"model": "gpt-5"}}
    yield item(type="message", role="user", content=[{"type": "input_text", "text": USER}])
    yield item(type="reasoning", summary=[{"type": "summary_text", "text": "Weather."}], encrypted_content="…")
    yield item(type="function_call", name="weather", arguments='{"city":"Rome"}', call_id="c1")
    yield item(type="function_call_output", call_id="c1", output="rain")
    yield item(type="message", role="assistant", content=[{"type": "output_text", "text": MODELS}])
    yield {"type": "event_msg", "payload": {"type": "token_count"}}


def command_line() -> Iterator[dict[str, Any]]:
    def line(id: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
        message = {"role": role, "content": content} | more
        return {
            "type": role,
            "uuid": id,
            "parentUuid": parent,
            "sessionId": "y-1",
            "timestamp": "2025-10-09T08:53:20.000Z",
            "message": message,
        }

    yield {"type": "summary", "summary": "Weather", "leafUuid": "4"}
    yield line("1", None, "user", USER)
    use = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Rome"}}
    yield line("2", "1", "assistant", [{"type": "thinking", "thinking": "Hm.", "signature": ""}], model="m")
    yield line("2b", "2", "assistant", [use], model="m")
    yield line("3", "2b", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "rain"}])
    yield line("4", "3", "assistant", [{"type": "text", "text": MODELS}], model="m")


def lines(values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


FILES: dict[str, tuple[str, int, int]] = {
    "ChatGPT's export": (json.dumps([chat_gpt()]), 5, 2),
    "Anthropic's export": (json.dumps([anthropic()], indent=2), 1, 1),
    "Open WebUI's chats": (json.dumps([open_webui()]), 3, 2),
    "ShareGPT": (lines([SHARE_GPT]), 1, 1),
    "OpenAI's fine-tuning JSONL": (lines([FINE_TUNING]), 2, 1),
    "ATIF": (json.dumps(ATIF, indent=1), 2, 1),
    "a Codex rollout": (lines(codex()), 2, 1),
    "sessions of Anthropic's command line": (lines(command_line()), 2, 1),
}
"""A file of each form, the number of its turns, and that of the ends of its tree."""


@pytest.fixture
def service(beside: Callable[..., ServiceBeside], monkeypatch: pytest.MonkeyPatch) -> ServiceBeside:
    made = beside(archive_url="sqlite")  # as a service has it by default
    monkeypatch.setenv("HARMONIUM_URL", made.url)
    return made


@pytest.mark.parametrize("form", FILES)
def test_a_history_becomes_a_tree_that_can_be_found_and_continued(
    service: ServiceBeside, tmp_path: Path, form: str
) -> None:
    text, turns, ends = FILES[form]
    file = tmp_path / "history.json"
    file.write_text(text)
    told = run("import", str(file))
    assert told.stdout == f"{turns} turn{'s' * (turns > 1)} imported, 0 already stored\n", told.stderr
    again = run("import", "-", stdin=text)
    assert again.stdout == f"0 turns imported, {turns} already stored\n"
    (tree,) = json.loads("[" + said("ls", "--text", "rome", "--json").strip() + "]")
    assert (tree["turns"], tree["metadata"]["imported_from"]) == (turns, form)
    drawn = json.loads(said("tree", tree["id"], "--json"))
    parents = {turn["parent"] for turn in drawn["turns"]}
    leaves = [turn for turn in drawn["turns"] if turn["id"] not in parents]
    assert len(leaves) == ends
    if form not in ("ShareGPT", "OpenAI's fine-tuning JSONL"):
        assert {turn["created_at"] for turn in drawn["turns"]} <= {AT, 0}
    found = next(turn["id"] for turn in drawn["turns"] if turn["output"] == MODELS)
    items = [*service.client().responses.input_items.list(found).data]
    if turns > 1 and ends == 1:
        assert items[0].type == "function_call_output"
    answer = service.client().responses.create(model=MODEL, input="Thanks!", previous_response_id=found)
    assert answer.status == "completed"
    rollout = service.http().get("/v1/trajectories", params={"id": found}).text
    assert MODELS in rollout


def test_no_turn_is_stored_as_one_of_the_future(service: ServiceBeside) -> None:
    """It would be none from before an erasure of its project, and stay."""
    at = round(time.time()) + 1_000_000
    item = {"type": "message", "role": "user", "content": "Hello"}
    with service.http() as http:
        made = http.post("/console/api/histories", json={"history": "h", "id": "1", "created_at": at, "items": [item]})
        id = made.json()["id"]
        assert http.get(f"/v1/responses/{id}").json()["created_at"] == at
        assert http.get(f"/console/api/turns/{id}").json()["created_at"] <= time.time()


def test_branches_become_forks(service: ServiceBeside, tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([chat_gpt()]))
    run("import", str(file))
    both = [json.loads(line) for line in service.http().get("/v1/trajectories").text.splitlines()]
    said_by_users = [[step["message"] for step in each["steps"] if step["source"] == "user"] for each in both]
    assert sorted(said_by_users) == [[USER], [USER, "Thanks!"]]
    answers = {each["steps"][-1]["message"] for each in both}
    assert answers == {"I don't know.", "You are welcome."}
    longest = max(both, key=lambda each: len(each["steps"]))
    call = next(step for step in longest["steps"] if step.get("tool_calls"))
    assert call["tool_calls"][0]["arguments"] == {"input": "weather('Rome')"}
    assert call["observation"]["results"][0]["content"] == "rain"


def test_a_broken_line_is_counted_and_stops_nothing(service: ServiceBeside, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    other = {"conversations": [{"from": "human", "value": "1?"}, {"from": "gpt", "value": "2."}]}
    file.write_text(lines([SHARE_GPT]) + '{"conversations": [{"from"\n' + lines([{"conversations": 3}, other]))
    told = run("import", str(file))
    assert told.exit_code == 1, told.output
    assert told.stdout == "2 turns imported, 0 already stored\n"
    assert told.stderr.splitlines() == ["without broken conversations: 1", "without broken lines: 1"]


@pytest.mark.parametrize("odd", [{"uuid": ["1"]}, {"parent_message_uuid": {}}, {"created_at": 10**400}])
def test_a_conversation_with_an_odd_value_is_a_broken_one(odd: dict[str, Any]) -> None:
    broken = anthropic()
    broken["chat_messages"][1] |= odd
    lost = Counter[str]()
    found = [*stories(BegunFile(BytesIO(lines([broken, anthropic()]).encode())), lost)]
    assert ([story.id for story in found], +lost) == (["k-1"], Counter({"broken conversations": 1}))


def test_messages_in_a_circle_are_counted() -> None:
    value = open_webui()
    messages = value["chat"]["history"]["messages"]
    for id, parent in (("4", "5"), ("5", "4"), ("6", "5")):
        messages[id] = messages["1"] | {"id": id, "parentId": parent}
    (story,) = stories(BegunFile(BytesIO(lines([value]).encode())), lost := Counter[str]())
    assert len(story.turns) == 3
    assert +lost == Counter({"messages that continue one another in a circle": 3})


@pytest.mark.parametrize("form", FILES)
def test_a_byte_order_mark_is_no_part_of_a_file(form: str) -> None:
    (story,) = stories(BegunFile(BytesIO(FILES[form][0].encode("utf-8-sig"))), lost := Counter[str]())
    assert (story.form, lost["broken lines"]) == (form, 0)


def test_what_is_lost_is_counted_and_said(service: ServiceBeside, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]},
        {"role": "tool", "tool_call_id": "c0", "content": "nobody asked"},
        {"role": "assistant", "content": "A cat.", "tool_calls": [CALL]},
    ]
    file.write_text(lines([{"messages": messages}]))
    told = json.loads(run("import", str(file), "--json").stdout)
    assert told["without"] == {"calls without an output": 1, "outputs without a call": 1, "pictures and files": 1}
    assert told["imported"] == 1


@pytest.mark.parametrize("content", ["", "[]", "{}", "hello", '{"a": 1}\n', "[1, 2]"])
def test_any_other_file_gets_a_list_of_what_is_known(service: ServiceBeside, tmp_path: Path, content: str) -> None:
    file = tmp_path / "file"
    file.write_text(content)
    told = run("import", str(file))
    assert told.exit_code == 2, told.output
    assert all(form in told.stderr.replace("\n", " ") for form in FILES), told.stderr


def test_a_large_file_is_read_conversation_by_conversation(tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    filler = 'é"\\\n{[' * 1000
    with file.open("w") as opened:
        opened.write("[")
        for number in range(300):
            each = chat_gpt() | {"conversation_id": f"c-{number}", "filler": filler}
            opened.write((", \n" if number else "") + json.dumps(each, ensure_ascii=number % 2 == 0))
        opened.write("]")
    lost = Counter[str]()
    with file.open("rb") as opened:
        assert [story.id for story in stories(BegunFile(opened), lost)] == [f"c-{number}" for number in range(300)]
    assert not +lost


def test_a_long_text_is_not_read_again_with_each_piece() -> None:
    class Counting(BytesIO):
        reads = 0

        def read(self, most: int | None = -1) -> bytes:
            self.reads += 1
            return super().read(most)

    long = {"conversations": [{"from": "human", "value": "x" * 20_000_000}, {"from": "gpt", "value": "y"}]}
    file = Counting(json.dumps([long]).encode())
    (story,) = stories(BegunFile(file), Counter[str]())
    assert len(story.turns[0].items[0]["content"][0]["text"]) == 20_000_000
    assert file.reads < 10
