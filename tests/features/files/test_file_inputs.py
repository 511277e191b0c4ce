"""Files in inputs: what was read of one stands in the conversation, through every door, and goes on without it."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from openai import AsyncOpenAI, BadRequestError

from service.entrance import Entry
from service.features.files import inputs, pdf
from service.features.files.pdf import PdfReading, UnreadablePdf
from service.features.python.feature import run_in
from service.process import Settings, load_settings
from tests.features.python.test_code_interpreter import OUTPUTS, code, ran
from tests.support.pictures import png, url_of
from tests.support.sandbox.sandboxes import bare
from tests.support.service.background import ended
from tests.support.service.inside import Inside, answer, opened, scripted, serving
from tests.support.service.process import MODEL
from tests.support.service.sockets import socket
from tests.support.service.steered import Paused
from tests.support.waiting import until

NOBODY = "file-" + 24 * "0"
TEXT = b"The word is heron.\n"


def pdf_of(*pages: str, head: bytes = b"%PDF-1.4\n") -> bytes:
    """A PDF with a line of text on each page."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"", b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]
    kids: list[bytes] = []
    for page in pages:
        stream = f"BT /F1 12 Tf 72 720 Td ({page}) Tj ET".encode()
        at = len(objects) + 1
        kids.append(b"%d 0 R" % at)
        resources = b"/Resources<</Font<</F1 3 0 R>>>>/MediaBox[0 0 612 792]"
        objects.append(b"<</Type/Page/Parent 2 0 R%b/Contents %d 0 R>>" % (resources, at + 1))
        objects.append(b"<</Length %d>>stream\n%b\nendstream" % (len(stream), stream))
    objects[1] = b"<</Type/Pages/Count %d/Kids[%b]>>" % (len(kids), b" ".join(kids))
    written, places = bytearray(head), list[int]()
    for number, each in enumerate(objects, 1):
        places.append(len(written))
        written += b"%d 0 obj%b\nendobj\n" % (number, each)
    start = len(written)
    written += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    written += b"".join(b"%010d 00000 n \n" % place for place in places)
    written += b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start)
    return bytes(written)


@pytest.fixture
async def service(settings: Settings) -> AsyncIterator[Inside]:
    async with serving(settings, scripted([answer("Yes.")])) as made:
        yield made


async def upload(
    client: AsyncOpenAI, content: bytes = TEXT, name: str = "notes.txt", purpose: Any = "user_data"
) -> str:
    return (await client.files.create(file=(name, content), purpose=purpose)).id


def named(**part: Any) -> Any:
    return [{"role": "user", "content": [{"type": "input_file", **part}, {"type": "input_text", "text": "What?"}]}]


async def listed(client: AsyncOpenAI, id: str) -> list[dict[str, Any]]:
    items = await client.responses.input_items.list(id)
    return [part for each in items.data for part in each.to_dict()["content"]]  # type: ignore[union-attr]


async def test_a_response_reads_a_file_and_goes_on_when_it_is_gone(service: Inside) -> None:
    async with service.client() as client:
        id = await upload(client)
        first = await client.responses.create(model=MODEL, input=named(file_id=id))
        await client.files.delete(id)
        second = await client.responses.create(model=MODEL, input="And?", previous_response_id=first.id)
        assert first.usage is not None
        assert second.usage is not None
        assert second.usage.input_tokens > first.usage.input_tokens
        (part, _) = await listed(client, first.id)
        assert part["filename"] == "notes.txt"
        assert b64decode(part["file_data"]) == TEXT


@pytest.mark.parametrize("by_id", [True, False])
async def test_a_pdf_is_its_text(service: Inside, by_id: bool) -> None:
    content = pdf_of("The first page.", "The second \\(page\\).")
    async with service.client() as client:
        part = {"file_id": await upload(client, content, "a.pdf")} if by_id else {"filename": "a.pdf"}
        if not by_id:
            part["file_data"] = f"data:application/pdf;base64,{b64encode(content).decode()}"
        response = await client.responses.create(model=MODEL, input=named(**part))
        (shown, _) = await listed(client, response.id)
        assert b64decode(shown["file_data"]).decode() == "[Page 1]\nThe first page.\n\n[Page 2]\nThe second (page).\n\n"


async def test_a_picture_by_its_id_is_as_one_that_was_sent(service: Inside) -> None:
    cat = png(grey=10)
    async with service.client() as client:
        id = await upload(client, cat, "cat.png")
        said: Any = [{"role": "user", "content": [{"type": "input_image", "file_id": id, "detail": "auto"}]}]
        response = await client.responses.create(model=MODEL, input=said)
        (shown,) = await listed(client, response.id)
        assert (shown["image_url"], shown["file_id"]) == (url_of(cat), None)
        text = await upload(client)
        said[0]["content"][0]["file_id"] = text
        with pytest.raises(BadRequestError, match="unreadable picture"):
            await client.responses.create(model=MODEL, input=said)


async def test_an_unknown_id_is_refused_as_another_tenants_is(settings: Settings) -> None:
    keys = load_settings(
        redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, api_keys="ada:sk-ada,bob:sk-bob"
    )
    async with (
        serving(keys, scripted([answer("Yes.")])) as service,
        service.client("sk-ada") as ada,
        service.client("sk-bob") as bob,
    ):
        id, told = await upload(ada), list[str]()
        for asked in (id, NOBODY):
            with pytest.raises(BadRequestError) as refused:
                await bob.responses.create(model=MODEL, input=named(file_id=asked))
            body: Any = refused.value.body
            assert (body["param"], body["code"]) == ("input[0].content[0].file_id", "invalid_value")
            told.append(body["message"].replace(asked, "X"))
        assert told[0] == told[1]
        await ada.responses.create(model=MODEL, input=named(file_id=id))


async def test_chats_and_messages_read_files(settings: Settings) -> None:
    made = load_settings(redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, chats="remember")
    async with (
        serving(made, scripted([answer("Yes.")])) as service,
        service.client() as client,
        service.http() as http,
    ):
        id = await upload(client)
        part: Any = {"type": "file", "file": {"file_id": id}}
        chat = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [part]}])
        other = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
        assert chat.usage is not None
        assert other.usage is not None
        assert chat.usage.prompt_tokens > other.usage.prompt_tokens
        block = {"type": "document", "source": {"type": "file", "file_id": id}}
        body = {"model": MODEL, "max_tokens": 50, "messages": [{"role": "user", "content": [block]}]}
        message = (await http.post("/v1/messages", json=body)).json()
        assert message["usage"]["input_tokens"] >= chat.usage.prompt_tokens - 5, message
        block["source"]["file_id"] = NOBODY  # type: ignore[index]
        refused = (await http.post("/v1/messages", json=body)).json()
        assert "messages[0].content[0].source.file_id" in refused["error"]["message"], refused
        part["file"]["file_id"] = NOBODY
        with pytest.raises(BadRequestError) as error:
            await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [part]}])
        assert error.value.param == "messages[0].content[0].file.file_id"


async def test_a_conversations_items_have_what_was_read(service: Inside) -> None:
    async with service.client() as client:
        id = await upload(client)
        made = await client.conversations.create(items=named(file_id=id))
        await client.files.delete(id)
        items = await client.conversations.items.list(made.id)
        part: Any = items.data[0].to_dict()["content"][0]  # type: ignore[index]
        assert b64decode(part["file_data"]) == TEXT
        with pytest.raises(BadRequestError) as refused:
            await client.conversations.items.create(made.id, items=named(file_id=id))
        assert refused.value.param == "items[0].content[0].file_id"


async def test_a_steer_reads_files_through_both_doors(settings: Settings) -> None:
    paused, again = Paused(opened("One")), Paused(opened("One"))
    engine = scripted(paused, [answer("Yes.")], again, [answer("Yes.")])
    async with (
        serving(settings, engine) as service,
        service.client() as client,
        service.http() as http,
        socket(service.url) as ws,
    ):
        first = await client.responses.create(model=MODEL, input="Count.", background=True)
        await paused.reached.wait()
        id = await upload(client)
        for asked, status in ((NOBODY, 400), (id, 200)):
            told = await http.post(f"/v1/responses/{first.id}/steer", json={"input": named(file_id=asked)})
            assert told.status_code == status, told.text
        made: Any = (await ended(client, first.id)).to_dict()["harmonium"]
        await ended(client, made["succeeded_by"])
        parts = await listed(client, made["succeeded_by"])
        assert [b64decode(part["file_data"]) for part in parts if part["type"] == "input_file"] == [TEXT]

        await ws.ask("Count.")
        begun = await ws.next()
        await again.reached.wait()
        await ws.send("response.steer", previous_response_id=begun["response"]["id"], input=named(file_id=id))
        frames = [*await ws.rest(), *await ws.rest()]
        assert "response.steer.accepted" in {frame["type"] for frame in frames}
        parts = await listed(client, frames[-1]["response"]["id"])
        assert [b64decode(part["file_data"]) for part in parts if part["type"] == "input_file"] == [TEXT]


async def test_a_request_names_so_many_files(service: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    async with service.client() as client:
        id = await upload(client)
        monkeypatch.setattr(inputs, "MOST_FILES", 1)
        with pytest.raises(BadRequestError, match="can name 1 files") as many:
            await client.responses.create(model=MODEL, input=named(file_id=id) * 2)
        monkeypatch.setattr(inputs, "MOST_FILES", 2)
        monkeypatch.setattr(inputs, "MOST_BYTES", 2 * len(TEXT) - 1)
        with pytest.raises(BadRequestError, match="can name 2 files") as large:
            await client.responses.create(model=MODEL, input=named(file_id=id) * 2)
        assert (many.value.code, large.value.code) == ("too_many_files", "too_many_file_bytes")
        await client.responses.create(model=MODEL, input=named(file_id=id))


async def test_a_file_that_is_no_text_is_refused(service: Inside) -> None:
    async with service.client() as client:
        id = await upload(client, b"\xff\xfe\0\1")
        with pytest.raises(BadRequestError, match="not UTF-8 text") as refused:
            await client.responses.create(model=MODEL, input=named(file_id=id))
        assert refused.value.param == "input[0].content[0].file_id"


# --- PDFs ---


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"%PDF-1.7\n", "damaged"),
        (b"%PDF-1.7\n" + bytes(range(256)) * 99, "damaged"),
        (pdf_of("x")[:-200], "damaged|no text"),
        (pdf_of(""), "no text"),
        (pdf_of(*[""] * (pdf.MOST_PAGES + 1)), "more than 500 pages"),
    ],
)
async def test_a_pdf_that_cannot_be_read_is_refused_with_the_reason(content: bytes, why: str) -> None:
    with pytest.raises(UnreadablePdf, match=why):
        await PdfReading().text(content)


async def test_a_pdf_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(UnreadablePdf, match=r"longer than 0\.01 s"):
        await PdfReading(0.01).text(pdf_of("x"))


async def test_a_broken_pdf_is_a_fault_of_the_request(service: Inside) -> None:
    async with service.client() as client:
        id = await upload(client, b"%PDF-1.7\nnothing")
        with pytest.raises(BadRequestError, match="damaged") as refused:
            await client.responses.create(model=MODEL, input=named(file_id=id))
        assert (refused.value.code, refused.value.param) == ("invalid_file", "input[0].content[0].file_id")


# --- containers ---


async def test_a_container_is_made_with_copies_of_files(settings: Settings) -> None:
    with bare() as sandbox:
        async with serving(settings, compose=partial(run_in, sandbox)) as service, service.client() as client:
            id = await upload(client)
            made = await client.containers.create(name="sums", file_ids=[id])
            await client.files.delete(id)
            (file,) = [each async for each in client.containers.files.list(made.id)]
            assert (file.path, file.source) == ("/mnt/data/notes.txt", "user")
            content = await client.containers.files.content.retrieve(file.id, container_id=made.id)
            assert content.read() == TEXT
            with pytest.raises(BadRequestError) as refused:
                await client.containers.create(name="none", file_ids=[id])
            assert refused.value.param == "file_ids[0]"
            assert [each.id async for each in client.containers.list()] == [made.id]


async def test_a_new_container_of_a_response_has_copies_of_files(settings: Settings) -> None:
    engine = scripted([code("open('notes.txt').read()")], [answer("Heron.")])
    with bare() as sandbox:
        async with serving(settings, engine, compose=partial(run_in, sandbox)) as service, service.client() as client:
            id = await upload(client)
            tool: Any = {"type": "code_interpreter", "container": {"type": "auto", "file_ids": [id]}}
            response = await client.responses.create(model=MODEL, input="Read.", tools=[tool], include=OUTPUTS)
            assert ran(response)[0].outputs[0].logs == f"{TEXT.decode()!r}\n"
            await client.files.delete(id)
            with pytest.raises(BadRequestError, match="no file with this id"):
                await client.responses.create(model=MODEL, input="Read.", tools=[tool])


async def test_no_tenant_keeps_others_from_having_their_files_read(settings: Settings) -> None:
    """A slow PDF takes its time in each of many requests, and another tenant's text is read meanwhile."""
    keys = load_settings(
        redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, api_keys="ada:sk-ada,bob:sk-bob"
    )
    begun, goes_on = list[str](), asyncio.Event()

    async def slow(self: PdfReading, content: bytes) -> bytes:
        begun.append("")
        await goes_on.wait()
        return b"text"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PdfReading, "text", slow)
        async with (
            serving(keys, scripted([answer("Yes.")])) as inside,
            inside.client("sk-ada") as ada,
            inside.client("sk-bob") as bob,
        ):
            asked = named(filename="a.pdf", file_data=b64encode(pdf_of("a")).decode())
            slow_ones = [
                asyncio.create_task(ada.responses.create(model=MODEL, input=asked)) for _ in range(inputs.AT_ONCE + 1)
            ]
            await until(lambda: len(begun) >= inputs.AT_ONCE - 1)
            made = await bob.responses.create(model=MODEL, input=named(file_id=await upload(bob)))
            assert made.status == "completed"
            goes_on.set()
            assert {each.status for each in await asyncio.gather(*slow_ones)} == {"completed"}


async def test_items_that_are_nested_too_deeply_are_left_to_whoever_reads_them() -> None:
    deep = msgspec.Raw(b'[{"content":[{"file_id":%b1%b}]}]' % (b"[" * 200_000, b"]" * 200_000))
    attachments = inputs.StoredAttachments(cast(Any, None), several=lambda: False)
    assert await attachments.read_into(Entry("acme"), deep) is deep
