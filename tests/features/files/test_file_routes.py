"""The Files API by the official client: uploaded as they come, listed, shown, sent, deleted and refused."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIStatusError, AsyncOpenAI, BadRequestError, NotFoundError, OpenAI

from service.features.files.routes import MOST_BESIDE
from service.process import Settings, load_settings
from tests.support.service.background import changed
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.service.process import ServiceProcess

NOBODY = "file-" + 24 * "0"
TEXT = b"a,b\r\n\r\n1,2\n--b\r\n"


@pytest.fixture
async def service(settings: Settings) -> AsyncIterator[Inside]:
    async with serving(settings, scripted([answer("Yes.")])) as made:
        yield made


async def test_a_file_lives_as_the_client_has_it(service: Inside) -> None:
    async with service.client() as client:
        made = await client.files.create(file=("täxt 1.csv", TEXT), purpose="user_data")
        assert (made.object, made.filename, made.bytes) == ("file", "täxt 1.csv", len(TEXT))
        assert (made.purpose, made.status, made.expires_at) == ("user_data", "processed", None)
        assert await client.files.retrieve(made.id) == made
        content = await client.files.content(made.id)
        assert content.read() == TEXT
        assert content.response.headers["content-length"] == str(len(TEXT))
        assert content.response.headers["content-disposition"] == ("attachment; filename*=UTF-8''t%C3%A4xt%201.csv")
        other = await client.files.create(
            file=("batch.jsonl", b"{}"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
        )
        assert other.expires_at == other.created_at + 3600
        assert [file.id async for file in client.files.list()] == [other.id, made.id]
        assert [file.id async for file in client.files.list(order="asc", limit=1)] == [made.id, other.id]
        assert [file.id async for file in client.files.list(purpose="batch")] == [other.id]
        assert (await client.files.delete(made.id)).deleted
        with pytest.raises(NotFoundError):
            await client.files.retrieve(made.id)
        assert [file.id async for file in client.files.list()] == [other.id]


async def test_pages_go_on_behind_a_file_that_is_gone(service: Inside) -> None:
    async with service.client() as client:
        made = [(await client.files.create(file=("a", TEXT), purpose="user_data")).id for _ in range(5)]
        await client.files.create(file=("b", TEXT), purpose="batch")

        first = await client.files.list(limit=2, order="asc", purpose="user_data")
        assert ([file.id for file in first.data], first.has_more) == (made[:2], True)
        await client.files.delete(made[1])
        rest = await client.files.list(after=made[1], limit=3, order="asc", purpose="user_data")
        assert ([file.id for file in rest.data], rest.has_more) == (made[2:], False)
        newest = await client.files.list(limit=2, purpose="user_data")
        assert ([file.id for file in newest.data], newest.has_more) == ([made[4], made[3]], True)


@pytest.mark.parametrize("size", [0, 1, 5 << 20])
async def test_a_file_comes_back_as_it_was_sent(service: Inside, size: int) -> None:
    content = (TEXT * (size // len(TEXT) + 1))[:size]
    async with service.client() as client:
        made = await client.files.create(file=("a.bin", content), purpose="user_data")
        assert made.bytes == size
        assert (await client.files.content(made.id)).read() == content


async def test_a_file_that_is_deleted_while_it_is_sent_breaks_off_and_is_no_fault_of_the_service(
    service: Inside, caplog: pytest.LogCaptureFixture
) -> None:
    async with service.client() as client, httpx.AsyncClient(base_url=service.url) as http:
        made = await client.files.create(file=("a.bin", bytes(32 << 20)), purpose="user_data")
        async with http.stream("GET", f"/v1/files/{made.id}/content") as sent:
            pieces = sent.aiter_raw()
            await anext(pieces)
            await client.files.delete(made.id)
            with pytest.raises(httpx.RemoteProtocolError):
                async for _ in pieces:
                    pass
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def everything(client: AsyncOpenAI, id: str) -> list[Any]:
    """Each thing that can be asked of a file."""
    return [client.files.retrieve(id), client.files.content(id), client.files.delete(id)]


async def test_another_tenants_file_is_as_one_that_never_was(settings: Settings) -> None:
    keys = load_settings(
        redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, api_keys="ada:sk-ada,bob:sk-bob"
    )
    async with serving(keys) as service, service.client("sk-ada") as ada, service.client("sk-bob") as bob:
        made = await ada.files.create(file=("mine.txt", TEXT), purpose="user_data")
        told = list[Any]()
        for id in (made.id, NOBODY, "x" * 300):
            for ask in everything(bob, id):
                with pytest.raises(NotFoundError) as refused:
                    await ask
                body: Any = refused.value.body
                assert (body["type"], body["param"], body["code"]) == ("invalid_request_error", "id", None)
                told.append(body["message"].replace(made.id, NOBODY))
        assert told[:3] == told[3:6]
        assert [each async for each in bob.files.list()] == []
        assert (await ada.files.content(made.id)).read() == TEXT


def form(*parts: bytes) -> bytes:
    return b"".join(b"--b\r\nContent-Disposition: form-data; %b\r\n" % part for part in parts) + b"--b--\r\n"


FILE = b'name="file"; filename="a.txt"\r\n\r\nabc'
PURPOSE = b'name="purpose"\r\n\r\nuser_data'


@pytest.mark.parametrize(
    ("parts", "param", "code"),
    [
        ([PURPOSE], "file", "missing_required_parameter"),
        ([FILE], "purpose", "missing_required_parameter"),
        ([FILE, b'name="purpose"\r\n\r\nfine-tune'], "purpose", "invalid_value"),
        ([FILE, b'name="purpose"\r\n\r\nbatch_output'], "purpose", "invalid_value"),
        ([FILE, FILE, PURPOSE], "file", "invalid_value"),
        ([FILE, PURPOSE, b'name="more"; filename="b.txt"\r\n\r\nabc'], "file", "invalid_value"),
        ([b'name="file"; filename=""\r\n\r\nabc', PURPOSE], "file", "invalid_value"),
        ([b'name="file"; filename="a\x07b"\r\n\r\nabc', PURPOSE], "file", "invalid_value"),
        ([FILE, PURPOSE, b'name="long"\r\n\r\n' + bytes(1 << 20) + b"x"], "file", "invalid_value"),
        ([FILE, PURPOSE, *(b'name="f%d"\r\n\r\n' % number for number in range(70))], "file", "invalid_value"),
        (
            [FILE, PURPOSE, b'name="expires_after[seconds]"\r\n\r\n3600'],
            "expires_after.anchor",
            "missing_required_parameter",
        ),
        ([FILE, PURPOSE, b'name="expires_after"\r\n\r\n3600'], "expires_after", "invalid_type"),
        (
            [FILE, PURPOSE, b'name="expires_after"\r\n\r\n1', b'name="expires_after[seconds]"\r\n\r\n3600'],
            "expires_after",
            "invalid_type",
        ),
        (
            [
                *(FILE, PURPOSE, b'name="expires_after[anchor]"\r\n\r\ncreated_at'),
                b'name="expires_after[seconds]"\r\n\r\n3599',
            ],
            "expires_after.seconds",
            "invalid_value",
        ),
    ],
)
async def test_a_wrong_form_is_refused_and_leaves_nothing(
    service: Inside, parts: list[bytes], param: str, code: str
) -> None:
    async with httpx.AsyncClient(base_url=service.url) as client:
        body = form(*parts)
        answered = await client.post(
            "/v1/files", content=body, headers={"content-type": "multipart/form-data; boundary=b"}
        )
        assert answered.status_code == 400, answered.text
        error = answered.json()["error"]
        assert (error["param"], error["code"]) == (param, code)
        assert (await client.get("/v1/files")).json()["data"] == []


LONG_BOUNDARY = f"multipart/form-data; boundary={'b' * 300}"


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data", LONG_BOUNDARY, "text/plain"])
async def test_what_is_no_form_is_refused(service: Inside, kind: str) -> None:
    async with httpx.AsyncClient(base_url=service.url) as client:
        answered = await client.post("/v1/files", content=b"abc", headers={"content-type": kind})
        assert answered.status_code in (400, 403, 415), answered.text


@pytest.mark.parametrize("cut", [1, 2, 4, 6, 9])
async def test_a_form_without_its_end_is_no_file(service: Inside, cut: int) -> None:
    async with httpx.AsyncClient(base_url=service.url) as client:
        body, kind = form(PURPOSE, FILE), {"content-type": "multipart/form-data; boundary=b"}
        whole = await client.post("/v1/files", content=body.removesuffix(b"\r\n"), headers=kind)
        assert whole.status_code == 200, whole.text
        answered = await client.post("/v1/files", content=body[: -2 - cut], headers=kind)
        assert (answered.status_code, answered.json()["error"]["param"]) == (400, "file")
        assert len((await client.get("/v1/files")).json()["data"]) == 1


async def test_a_form_that_breaks_is_told_to_its_client_and_not_to_the_log(
    service: Inside, caplog: pytest.LogCaptureFixture
) -> None:
    async with httpx.AsyncClient(base_url=service.url) as client:
        answered = await client.post(
            "/v1/files",
            content=b"--b\r\nContent\x07: x\r\n\r\nabc\r\n--b--\r\n",
            headers={"content-type": "multipart/form-data; boundary=b"},
        )
    assert answered.status_code == 400, answered.text
    assert [record.name for record in caplog.records if record.name.startswith("python_multipart")] == []


@pytest.mark.parametrize("begin", [form(PURPOSE, FILE), b""])
async def test_a_form_has_a_bound_beside_its_file(settings: Settings, begin: bytes) -> None:
    small = load_settings(redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, max_file_bytes=1_000)

    async def endless() -> AsyncIterator[bytes]:
        yield begin + b"\r\n" * ((1_000 + MOST_BESIDE - len(begin)) // 2)
        yield b"\r\n"

    async with serving(small) as service, httpx.AsyncClient(base_url=service.url) as client:
        answered = await client.post(
            "/v1/files", content=endless(), headers={"content-type": "multipart/form-data; boundary=b"}
        )
        assert (answered.status_code, answered.json()["error"]["code"]) == (413, "file_too_large")


async def test_bounds_are_refused_with_the_setting_that_changes_them(settings: Settings) -> None:
    few = load_settings(
        redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, max_file_bytes=100, max_tenant_files_bytes=150
    )
    async with serving(few) as service, service.client() as client:
        with pytest.raises(APIStatusError, match="MAX_FILE_BYTES") as refused:
            await client.files.create(file=("a.txt", bytes(101)), purpose="batch")
        assert refused.value.status_code == 413
        await client.files.create(file=("a.txt", bytes(100)), purpose="batch")
        with pytest.raises(BadRequestError, match="MAX_TENANT_FILES_BYTES") as full:
            await client.files.create(file=("a.txt", bytes(100)), purpose="batch")
        assert full.value.code == "too_many_file_bytes"


@pytest.mark.parametrize("name", ["max_file_bytes", "max_tenant_files_bytes"])
async def test_a_bound_of_0_accepts_only_empty_files(settings: Settings, name: str) -> None:
    async with serving(changed(settings, **{name: 0})) as service, service.client() as client:
        assert (await client.files.create(file=("a.txt", b""), purpose="batch")).bytes == 0
        with pytest.raises(APIStatusError):
            await client.files.create(file=("b.txt", b"b"), purpose="batch")


async def test_a_full_store_is_a_507_that_names_what_to_do(settings: Settings) -> None:
    small = load_settings(
        redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, max_bytes=4 << 20, max_chain_bytes=1 << 20
    )
    async with serving(small) as service, service.client() as client:
        kept = await client.files.create(file=("a.txt", bytes(1 << 19)), purpose="batch")
        with pytest.raises(APIStatusError, match="ARCHIVE_URL") as refused:
            await client.files.create(file=("b.txt", bytes(3 << 19)), purpose="batch")
        assert (refused.value.status_code, refused.value.code) == (507, "files_full")
        assert [file.id async for file in client.files.list()] == [kept.id]
        await client.files.delete(kept.id)
        await client.files.create(file=("b.txt", bytes(1 << 19)), purpose="batch")


async def test_an_upload_that_breaks_off_leaves_nothing(service: Inside) -> None:
    async with httpx.AsyncClient(base_url=service.url) as client:

        async def broken() -> AsyncIterator[bytes]:
            yield form(FILE + b"\r\n")[:-9] + bytes(2 << 20)
            await asyncio.sleep(0.2)
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            await client.post(
                "/v1/files", content=broken(), headers={"content-type": "multipart/form-data; boundary=b"}
            )
        assert (await client.get("/v1/files")).json()["data"] == []


def test_with_the_embedded_server_files_are_in_its_archive_and_outlive_it(tmp_path: Path) -> None:
    for number in range(2):
        process = ServiceProcess(tmp_path)
        try:
            with OpenAI(base_url=f"{process.url}/v1", api_key="none", max_retries=0) as client:
                if not number:
                    client.files.create(file=("a.txt", TEXT), purpose="user_data")
                (made,) = client.files.list()
                assert client.files.content(made.id).read() == TEXT
        finally:
            process.stop()
    with closing(sqlite3.connect(next(tmp_path.rglob("other.db")))) as file:
        keys = [key for (key,) in file.execute("SELECT key FROM object WHERE key LIKE 'files/%' ORDER BY key")]
    assert keys == [f"files/v1/t.default/{made.id}/0", f"files/v1/t.default/{made.id}/record"]
