"""A history that a client sends back is never refused: each kind is read, shown as a text, or left out and named."""

from time import process_time
from typing import Any

import msgspec
import pytest

from service.api.approving import NO_APPROVALS, Approvals
from service.api.content import IMAGE
from service.api.read import ITEMS, READERS
from service.api.replay import CHAT_PARTS, MAX_NAMES, PARTS, UNKNOWN, LeftOut, ReplayFate
from service.errors import InvalidRequest
from service.harmony.messages import text_of
from service.responses.output import sealed
from tests.support import documents
from tests.support.declared import OPENAI, declared
from tests.support.pictures import png, url_of
from tests.support.responses.requests import ENVELOPES, Json, prompt, read

USER: Json = {"role": "user", "content": "Hi"}
SAID: Json = {"role": "assistant", "content": "Hello."}
CALL: Json = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT: Json = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
ELSEWHERE = "gAAAA" + "B" * 80
BROKEN: tuple[Any, ...] = (None, "", 5, [], {}, [None], [{}], "x")
"""The values that clients have where they have none, and others that are of no use."""


def shown(*items: Any, refuses: bool = False, approvals: Approvals = NO_APPROVALS) -> tuple[list[str], list[str]]:
    """The texts that a prompt shows of items, and the kinds that are left out."""
    given = read(input=list(items), refuses=refuses)
    made = prompt(input=list(items), given=given, refuses=refuses, approvals=approvals)
    return [text_of(message) for message in made.messages if message.tokens], list(given.gathered.left_out)


def broken(kind: str, members: list[str]) -> list[Json]:
    """Items, blocks or parts of a type whose members are all of no use, each in its own way."""
    return [{"type": kind}, *({"type": kind} | dict.fromkeys(members, value) for value in BROKEN)]


# --- Responses and Conversations ---


def test_each_type_that_the_sdks_declare_has_its_fate() -> None:
    assert declared(OPENAI["items"]) <= ITEMS.keys()
    assert declared(OPENAI["parts"]) <= PARTS.keys()
    assert declared(OPENAI["chat"]) <= CHAT_PARTS.keys()
    page = documents.read("docs/api.md")
    assert documents.fates_table() in page, "python -m tests.support.documents writes it"


@pytest.mark.parametrize("kind", [*ITEMS, "telepathy", "", "a\nb", "x" * 300])
def test_a_broken_item_of_a_history_takes_nothing_with_it_and_is_never_a_refusal(kind: str) -> None:
    members = [field.name for field in msgspec.structs.fields(READERS[kind].sent)] if kind in READERS else ["content"]
    for item in broken(kind, members):
        for place in (1, 2):  # amid the history, and right behind the model's words
            items = [USER, SAID, USER, SAID, USER]
            items.insert(place, item)
            texts, _ = shown(*items)
            assert [text for text in texts if text in ("Hi", "Hello.")] == ["Hi", "Hello.", "Hi", "Hello.", "Hi"]


@pytest.mark.parametrize("junk", [None, "hi", 5, [], {}, {"role": "robot", "content": "x"}, {"content": "x"}])
def test_what_is_no_item_at_all_is_left_out_as_well_and_refused_where_that_is_asked_for(junk: Any) -> None:
    texts, left_out = shown(USER, junk, SAID, USER)
    assert (texts, len(left_out)) == (["Hi", "Hello.", "Hi"], 1)
    for refused in (
        [USER, SAID, junk, USER],
        [USER, junk],
        [junk, {"role": "assistant", "content": [{"type": "weird"}]}],
    ):
        with pytest.raises(InvalidRequest):
            shown(*refused)
    with pytest.raises(InvalidRequest):
        shown(USER, junk, SAID, USER, refuses=True)


def test_a_part_that_cannot_be_read_leaves_its_line_and_its_neighbours_stay() -> None:
    for kind, fate in ({**PARTS, "telepathy": ReplayFate.LEFT_OUT}).items():
        if fate is ReplayFate.READ:
            continue
        part = {"type": kind, **({"text": "words"} if fate is ReplayFate.TEXT else {"data": "AAAA"})}
        near = [{"type": "input_text", "text": "before "}, part, {"type": "input_text", "text": "behind"}]
        texts, left_out = shown({"role": "user", "content": near}, SAID, USER)
        assert texts[0].startswith("before "), kind
        assert texts[0].endswith("behind"), kind
        assert ("words" in texts[0], left_out) == ((True, []) if fate is ReplayFate.TEXT else (False, [kind])), kind
        assert ("You can't read it" in texts[0]) == (fate is not ReplayFate.TEXT and kind != "encrypted_content"), kind


def test_a_file_that_is_no_text_is_refused_while_it_is_new_and_leaves_a_line_afterwards_or_from_a_tool() -> None:
    pdf = {"type": "input_file", "filename": "plan.pdf", "file_data": "JVBERi0xLjcK"}
    asked = {"role": "user", "content": [pdf, {"type": "input_text", "text": "What is it?"}]}
    line = "[A file, plan.pdf, was here. You can't read it; say so if it matters.]"
    with pytest.raises(InvalidRequest, match="not UTF-8 text"):
        shown(asked)
    assert shown(asked, SAID, USER)[0][0] == f"{line}\nWhat is it?"
    assert shown(USER, CALL, OUTPUT | {"output": [pdf]}) == (["Hi", "{}", f"{line}\n"], ["input_file"])
    assert shown(USER, CALL, OUTPUT, asked)[1] == ["input_file"]


def test_a_call_that_cannot_be_shown_takes_its_output_along_and_a_stale_half_of_a_pair_is_left_out() -> None:
    wild = CALL | {"name": "<|start|>"}
    for items, left_out in (
        ([USER, wild, OUTPUT], ["function_call", "function_call_output"]),
        ([USER, OUTPUT, SAID, USER], ["function_call_output"]),
        ([USER, CALL, OUTPUT, OUTPUT, SAID, USER], ["function_call_output"]),
        ([USER, CALL, USER, SAID, USER], ["function_call"]),
        ([USER, CALL, SAID, USER], ["function_call"]),
        ([USER, OUTPUT, CALL, SAID, USER], ["function_call_output", "function_call"]),
        ([USER, CALL, USER, {"role": "assistant", "phase": 5}, USER], ["message", "function_call"]),
        (
            [USER, {**CALL, "call_id": ""}, {**OUTPUT, "call_id": ""}, SAID, USER],
            ["function_call", "function_call_output"],
        ),
    ):
        assert shown(*items)[1] == left_out, items
        with pytest.raises(InvalidRequest):
            shown(*items, refuses=True)
    for items in ([USER, OUTPUT], [USER, CALL, USER], [USER, CALL, OUTPUT, OUTPUT]):
        with pytest.raises(InvalidRequest):
            shown(*items)


def test_reasoning_sealed_elsewhere_is_what_can_be_read_beside_it_or_left_out() -> None:
    def reasoning(**members: Any) -> Json:
        return {"type": "reasoning", "summary": [], "encrypted_content": ELSEWHERE, **members}

    content, summary = [{"type": "reasoning_text", "text": "Hm."}], [{"type": "summary_text", "text": "In short."}]
    for item, texts in (
        (reasoning(), []),
        (reasoning(content=content), ["Hm."]),
        (reasoning(summary=summary), ["In short."]),
        (reasoning(content=content, encrypted_content=""), ["Hm."]),
        (reasoning(encrypted_content=""), []),
    ):
        made, left_out = shown(USER, item, CALL, OUTPUT)
        assert made == ["Hi", *texts, "{}", "done"]
        assert left_out == (["reasoning"] if not texts and item["encrypted_content"] else [])
    with pytest.raises(InvalidRequest) as refused:
        shown(USER, reasoning(content=content), refuses=True)
    assert refused.value.code == "invalid_encrypted_content"


def test_a_compaction_sealed_elsewhere_is_left_out_and_one_of_ours_that_does_not_open_is_refused() -> None:
    ours = ENVELOPES.seal(sealed.COMPACTION, sealed.compaction("So far."))
    for kind in ("compaction", "compaction_summary", "context_compaction"):
        texts, left_out = shown(USER, {"type": kind, "encrypted_content": ours}, USER)
        assert (any("So far." in text for text in texts), texts.count("Hi"), left_out) == (True, 1, [])
        assert shown(USER, {"type": kind, "encrypted_content": ELSEWHERE}, USER) == (["Hi", "Hi"], [kind])
    broken = ENVELOPES.seal(sealed.REASONING, sealed.reasoning("Hm."))
    for refuses, content in ((False, broken), (True, ELSEWHERE)):
        with pytest.raises(InvalidRequest) as refused:
            shown({"type": "compaction", "encrypted_content": content}, USER, refuses=refuses)
        assert refused.value.code == "invalid_encrypted_content"


def test_what_one_agent_tells_another_is_read_sealed_by_nobody_and_left_out_sealed_elsewhere() -> None:
    head = {"type": "input_text", "text": "Message Type: NEW_TASK\nSender: /root\nPayload:\n"}
    for content, text, left_out in (
        (
            [head, {"type": "encrypted_content", "encrypted_content": "Count ☃."}],
            f"Message from /root:\n{head['text']}Count ☃.",
            [],
        ),
        ([{"type": "input_text", "text": "Done."}], "Message from /root:\nDone.", []),
        (
            [head, {"type": "encrypted_content", "encrypted_content": ELSEWHERE}],
            f"Message from /root:\n{head['text']}",
            ["encrypted_content"],
        ),
    ):
        item = {"type": "agent_message", "author": "/root", "recipient": "worker", "content": content}
        assert shown(item) == ([text], left_out)


def test_a_broken_part_of_what_one_agent_tells_another_is_refused_while_it_is_new_and_left_out_afterwards() -> None:
    told = {"type": "agent_message", "author": "/root", "recipient": "worker"}
    for junk in (None, 5, {"text": "no type"}):
        item = told | {"content": [{"type": "input_text", "text": "Go."}, junk]}
        with pytest.raises(InvalidRequest, match=r"input\[0\]\.content\[1\]"):
            shown(item)
        assert shown(item, SAID)[0][0] == "Message from /root:\nGo."


def test_the_newest_pictures_are_shown_and_older_ones_of_a_history_make_room() -> None:
    def picture(number: int) -> Json:
        return {"type": "input_image", "image_url": url_of(png(number + 1, 1))}

    outputs = [[CALL | {"call_id": f"c{n}"}, OUTPUT | {"call_id": f"c{n}", "output": [picture(n)]}] for n in range(25)]
    given = read(input=[USER, *(item for pair in outputs for item in pair)])
    assert len(given.pictures) == 20
    assert [IMAGE in str(item) for pair in zip(*[iter(given.items[1:])] * 2, strict=True) for item in pair[1:]] == [
        True
    ] * 5 + [False] * 20
    with pytest.raises(InvalidRequest, match="Too many pictures"):
        read(input=[{"role": "user", "content": [picture(n) for n in range(25)]}])


def test_an_id_that_comes_again_and_references_to_what_is_gone_end_no_session() -> None:
    assert shown(USER, CALL | {"name": "<|x|>"}, OUTPUT, SAID, USER, CALL, OUTPUT)[0][-2:] == ["{}", "done"]
    assert shown(USER, CALL, OUTPUT | {"output": 5}, OUTPUT, SAID, USER)[0] == ["Hi", "{}", "done", "Hello.", "Hi"]
    assert shown(USER, {"type": "item_reference", "id": "msg_gone"}, USER) == (["Hi", "Hi"], ["item_reference"])
    with pytest.raises(InvalidRequest, match="No item"):
        shown(USER, {"type": "item_reference", "id": "msg_gone"})


def test_what_is_large_in_a_history_is_looked_at_briefly() -> None:
    lists = [[]] * 400_000
    large = [{"type": "x", "id": lists}, {"type": lists}, {"role": lists}, {"type": "x", "call_id": lists}]
    line = {"role": "system", "content": "x-anthropic-billing-header:" + " " * 100_000}
    began = process_time()
    assert shown(USER, *large, SAID, line)[1] == ["x", UNKNOWN]
    assert process_time() - began < 2


def test_names_are_few_and_fit_into_a_header() -> None:
    names = LeftOut([f"kind_{number}" for number in range(100)])
    assert len(list(names)) == MAX_NAMES
    assert list(LeftOut(["a\r\nset-cookie: x", "é", "", "x" * 65])) == [UNKNOWN]


CUT = '{"path": "a.t'
"""The arguments of a call that broke off."""
LONG: Json = {"call_id": "c" * 256}


def test_what_other_services_let_pass_is_read_in_its_place() -> None:
    long = ("a" * 1400, USER), ("b" * 1400, CALL | LONG), ("c" * 1400, OUTPUT | LONG)
    spoken = {"content": [{"type": "input_text", "text": "Hello."}]}
    for items, texts in (
        ([item | {"id": id} for id, item in long], ["Hi", "{}", "done"]),
        ([USER, CALL, USER, OUTPUT], ["Hi", "{}", "Hi", "done"]),
        ([USER, CALL | {"arguments": CUT}, OUTPUT], ["Hi", CUT, "done"]),
        ([USER, SAID | {"type": "message"}, USER], ["Hi", "Hello.", "Hi"]),
        ([USER, SAID | spoken, USER], ["Hi", "Hello.", "Hi"]),
    ):
        for refuses in (False, True):
            assert shown(*items, refuses=refuses) == (texts, [])
