"""The Containers API by the official client: containers and their files, made, listed, shown and deleted."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from time import process_time
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import APIStatusError, AsyncOpenAI, BadRequestError, NotFoundError

from service.errors import InvalidRequest
from service.features.python.feature import run_in
from service.features.sandbox.local import LocalSandbox
from service.process import Settings, load_settings
from service.web.uploads import read_form
from tests.features.python.test_code_interpreter import OUTPUTS, code, ran
from tests.support.sandbox.sandboxes import bare
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL

NOBODY = "cntr_" + 48 * "0"


@pytest.fixture
def sandbox() -> Iterator[LocalSandbox]:
    with bare() as made:
        yield made


async def test_a_container_and_its_files_live_as_the_client_has_them(settings: Settings, sandbox: LocalSandbox) -> None:
    engine = scripted(
        [code("open('/mnt/data/in.csv').read()")], [code("open('out.txt', 'w').write('5')")], [answer("5")]
    )
    async with serving(settings, engine, compose=partial(run_in, sandbox)) as service, service.client() as client:
        made = await client.containers.create(name="sums", expires_after={"anchor": "last_active_at", "minutes": 5})
        assert (made.object, made.name, made.status) == ("container", "sums", "running")
        assert made.expires_after is not None
        assert made.expires_after.minutes == 5
        sent = await client.containers.files.create(made.id, file=("in.csv", b"a,b\r\n\r\n2,3\n"))
        assert (sent.path, sent.bytes, sent.source) == ("/mnt/data/in.csv", 11, "user")
        tool: Any = {"type": "code_interpreter", "container": made.id}
        response = await client.responses.create(model=MODEL, input="Sum.", tools=[tool], include=OUTPUTS)
        assert ran(response)[0].outputs[0].logs == "'a,b\\n\\n2,3\\n'\n"

        files = [file async for file in client.containers.files.list(made.id, order="asc")]
        assert [(file.path, file.source) for file in files] == [
            ("/mnt/data/in.csv", "user"),
            ("/mnt/data/out.txt", "assistant"),
        ]
        assert (await client.containers.files.retrieve(files[1].id, container_id=made.id)).bytes == 1
        content = await client.containers.files.content.retrieve(files[0].id, container_id=made.id)
        assert content.read() == b"a,b\r\n\r\n2,3\n"
        await client.containers.files.delete(files[0].id, container_id=made.id)
        with pytest.raises(NotFoundError):
            await client.containers.files.retrieve(files[0].id, container_id=made.id)

        other = await client.containers.create(name="other")
        assert {each.id async for each in client.containers.list(limit=1)} == {made.id, other.id}
        assert [each.id async for each in client.containers.list(extra_query={"name": "sums"})] == [made.id]
        assert (await client.containers.retrieve(made.id)).id == made.id
        await client.containers.delete(made.id)
        with pytest.raises(NotFoundError):
            await client.containers.retrieve(made.id)
        assert [each.id async for each in client.containers.list()] == [other.id]


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_containers_can_be_deleted_while_they_are_listed(
    order: Literal["asc", "desc"], settings: Settings, sandbox: LocalSandbox
) -> None:
    async with (
        serving(settings, scripted([answer("No.")]), compose=partial(run_in, sandbox)) as service,
        service.client() as client,
    ):
        made = {(await client.containers.create(name=f"c{number}")).id for number in range(3)}
        listed = set[str]()
        async for each in client.containers.list(limit=1, order=order):
            await client.containers.delete(each.id)
            listed.add(each.id)
        assert listed == made


async def test_what_is_gone_is_expired_and_what_never_was_is_unknown(settings: Settings, sandbox: LocalSandbox) -> None:
    async with (
        serving(settings, scripted([answer("No.")]), compose=partial(run_in, sandbox)) as service,
        service.client() as client,
    ):
        made = await client.containers.create(name="short")
        await sandbox.close(made.id)
        with pytest.raises(BadRequestError, match="Container is expired"):
            await client.containers.files.list(made.id)
        assert (await client.containers.retrieve(made.id)).status == "expired"
        tool: Any = {"type": "code_interpreter", "container": made.id}
        with pytest.raises(BadRequestError, match="Container is expired"):
            await client.responses.create(model=MODEL, input="Run.", tools=[tool])
        for ask in everything(client, NOBODY):
            with pytest.raises(NotFoundError):
                await ask


def everything(client: AsyncOpenAI, id: str) -> list[Any]:
    """Each thing that can be asked of a container."""
    files = client.containers.files
    return [
        client.containers.retrieve(id),
        client.containers.delete(id),
        files.list(id),
        files.create(id, file=("a.txt", b"a")),
        files.retrieve("cfile_1", container_id=id),
        files.delete("cfile_1", container_id=id),
        files.content.retrieve("cfile_1", container_id=id),
    ]


async def test_another_tenants_container_looks_as_if_it_were_none(settings: Settings, sandbox: LocalSandbox) -> None:
    keys = load_settings(
        redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, api_keys="ada:sk-ada,bob:sk-bob"
    )
    async with (
        serving(keys, scripted([answer("No.")]), compose=partial(run_in, sandbox)) as service,
        service.client("sk-ada") as ada,
        service.client("sk-bob") as bob,
    ):
        made = await ada.containers.create(name="mine")
        for ask in everything(bob, made.id):
            with pytest.raises(NotFoundError):
                await ask
        assert [each async for each in bob.containers.list()] == []
        assert (await ada.containers.retrieve(made.id)).status == "running"


def form(content: bytes, name: str = "a.bin", part: str = "file") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{part}"; filename="{name}"\r\nContent-Type: x/y\r\n\r\n'
    return head.encode() + content + b"\r\n--b--\r\n"


KIND = 'multipart/form-data; boundary="b"'


@given(st.binary(max_size=300))
async def test_any_bytes_come_through_a_form(content: bytes) -> None:
    if b"\r\n--b" not in b"\r\n" + content:
        assert await read_form(form(content), KIND) == ("a.bin", "x/y", content, ())


@pytest.mark.parametrize(
    "body",
    [
        b"--b\r\n\r\n\r\n" * 300_000 + b"--b--\r\n",
        form(b"\n" * 4_000_000),
        form(b"x").replace(b"x/y", b"\r\na: b" * 500_000),
        form(b"x", name="x; a*0=" * 500),
        b"".join(
            b"--%d\r\nContent-Type: multipart/mixed; boundary=%d\r\n\r\n" % (each, each + 1) for each in range(3_000)
        ),
    ],
    ids=["parts", "lines", "headers", "options", "forms in forms"],
)
@pytest.mark.timeout(20)
async def test_no_form_takes_long(body: bytes) -> None:
    begun = process_time()
    with suppress(InvalidRequest):
        await read_form(body, KIND)

    assert process_time() - begun < 1


@pytest.mark.parametrize(("name", "kept"), [("../../etc/passwd", "passwd"), ("é.txt", "é.txt")])
async def test_a_files_name_is_the_last_of_its_path(name: str, kept: str) -> None:
    assert (await read_form(form(b"x", name), KIND)).name == kept


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (form(b"x"), "application/json"),
        (form(b"x", part="other"), KIND),
        (b"", KIND),
        (form(b"x"), "multipart/form-data"),
        (form(b"YQ==").replace(b"x/y", b"x/y\r\nContent-Transfer-Encoding: base64"), KIND),
        *((form(b"x").replace(b"a.bin", f"a{each}n.bin".encode()), KIND) for each in "\x1b\x7f\u202e\u2028"),
    ],
)
async def test_a_form_without_a_file_is_refused(body: bytes, kind: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await read_form(body, kind)

    assert refused.value.param == "file"


async def test_a_tenant_has_no_more_than_its_share(settings: Settings, sandbox: LocalSandbox) -> None:
    async with (
        serving(settings, scripted([answer("No.")]), compose=partial(run_in, sandbox)) as service,
        service.client() as client,
    ):
        for number in range(3):
            await client.containers.create(name=str(number))
        with pytest.raises(APIStatusError) as refused:
            await client.containers.create(name="one more")

    assert (refused.value.status_code, refused.value.code) == (429, "containers_full")


async def test_without_a_sandbox_there_are_none_and_none_can_be_made(settings: Settings) -> None:
    async with serving(settings, scripted([answer("No.")])) as service, service.client() as client:
        assert [each async for each in client.containers.list()] == []
        with pytest.raises(BadRequestError, match="no sandbox"):
            await client.containers.create(name="none")
        with pytest.raises(NotFoundError):
            await client.containers.retrieve(NOBODY)
