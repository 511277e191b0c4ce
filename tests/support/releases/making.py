"""Makes the fixtures of this release: `python -m tests.support.releases.making` writes tests/fixtures/RELEASE anew.

A `harmonium serve` of the demo engine gets a conversation of every kind, from the SDK and from commands, and is killed
amid background responses. Its files, a backup and an export are the fixtures, with the archives of two smaller ones in
Postgres and S3; the manifest has what they answered.
Run it before a release, and after a change of what is stored, as long as the release isn't out.
"""

import os
import re
import shutil
import sqlite3
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import obstore

from service.build import this_build
from store.files.files import PIECE_BYTES
from tests.support import pictures
from tests.support.archive.opened import REMOTE, Place, place_of
from tests.support.archive.servers import postgres_programs
from tests.support.console.samples import WEATHER, said
from tests.support.pictures import png
from tests.support.releases.formats import formats
from tests.support.releases.shapes import shapes
from tests.support.releases.stored import (
    BACKUP,
    DATA,
    DUMP,
    EXPORT,
    FIXTURES,
    MANIFEST,
    OBJECTS,
    STORES,
    Json,
    answer_of,
    bucket_of,
    client_of,
    command,
)
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, ServiceProcess
from tests.support.waiting import wait_until

ADMIN_KEY = "sk-admin-of-the-fixtures-0123456789"
INITECH_KEY = "sk-initech-0123456789"
WEBHOOK_SECRET = f"whsec_{b64encode(b'a key for webhooks that all may know').decode()}"
SEAL_KEY = b64encode(b"a key for seals that all may know").decode()
DAYS = 36_500
"""Stored data of the fixtures is never too old."""

SETTINGS: dict[str, Any] = {
    "api_keys": f"acme:{ACME_KEY},globex:{GLOBEX_KEY},initech:{INITECH_KEY}",
    "admin_key": ADMIN_KEY,
    "seal_keys": SEAL_KEY,
    "idle_days": DAYS,
    "usage_days": 3660,
    "archive_after_seconds": 0,
    "trajectories": True,
    "chats": "remember",
}
"""The settings of each service that serves the fixtures."""

SLOWLY: dict[str, Any] = {"demo_tokens_per_second": 150, "worker_concurrency": 1, "search": "folder"}
"""Those of the one that makes them: one background response is made while another one and a batch wait."""

UNHEARD: dict[str, Any] = {"webhook_url": "private+http://127.0.0.1:9/hook", "webhook_secret": WEBHOOK_SECRET}
"""Those too, so that webhooks wait: nobody listens there."""

PYTHON: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
MATHS: Any = {"type": "mcp", "server_label": "maths"}
KEYED: Any = {"model": MODEL, "input": "Count to 3."}
IDEMPOTENCY_KEY = "made-once"
UNHIDDEN: Any = {"include_obfuscation": False}
"""Without what hides the lengths of pieces, which is drawn anew for each reader."""

ADDER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    known, result = {"jsonrpc": "2.0", "id": asked["id"]}, {}
    if asked["method"] == "initialize":
        info = {"name": "maths", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if asked["method"] == "tools/list":
        numbers = {"a": {"type": "integer"}, "b": {"type": "integer"}}
        schema = {"type": "object", "properties": numbers, "required": ["a", "b"]}
        result = {"tools": [{"name": "add", "description": "Adds two numbers.", "inputSchema": schema}]}
    if asked["method"] == "tools/call":
        given = asked["params"]["arguments"]
        result = {"content": [{"type": "text", "text": str(given["a"] + given["b"])}]}
    print(json.dumps(known | {"result": result}), flush=True)
"""
MCP_SERVERS = f"[maths]\ncommand = ['python3', '-c', '''{ADDER}''']\n"
"""The MCP server whose calls have to be approved: an approval is for a server at its address, which has to stay."""

SHAREGPT = """{"id": "old", "conversations": [{"from": "human", "value": "My name is Eve."},
{"from": "gpt", "value": "Hello Eve."}]}""".replace("\n", " ")
ALL_LIMITS = {
    f"max_{what}_per_1_{period}": 1_000_000 for what in ("requests", "tokens") for period in ("minute", "month")
} | {"max_parallel_responses": 8}
LARGE = ("large", "behind-large")
"""Turns of another tenant, so that the export stays short."""

APART = ("globex", *LARGE, "letters", "secret", "left", "cut", "forgotten", "erased", "cancelled")
"""Responses that not all stores answer, and not all in the same way."""

MUCH = "internationalization " * 40_000
"""Input that is more than a part of an archive has, in few tokens, and is stored in few bytes."""

TWO_PIECES = b"The moon makes the tides.\n" * (PIECE_BYTES // 26 + 1)
"""The content of a file that is more than a piece."""

ONCE: Any = {"type": "array", "items": {"type": "integer", "enum": [1]}, "minItems": 2, "uniqueItems": True}
"""A schema that nothing matches, which is noticed at the end of an answer."""

SESSION = re.compile(r"(?m)^\\(?:un)?restrict .*\n")
"""Lines with a random word that newer pg_dump write for psql, which an older one doesn't know."""

EVENTS_BEFORE_THE_END = 12
ARCHIVED_SECONDS = 60.0
PROGRAM = b"\r\n$8\r\nFUNCTION\r\n"


class Making:
    """A service that is filled, and what has come of it so far."""

    def __init__(self, service: ServiceProcess) -> None:
        self.service = service
        self.client = service.client(ACME_KEY)
        self.made: dict[str, Json] = {}
        self.reads: list[dict[str, Json]] = []

    def ask(self, name: str, asked: Any, parent: str = "", **options: Any) -> Any:
        """A response that is known by a name, behind the one of another name."""
        before = self.made[parent] if parent else None
        response = self.client.responses.create(model=MODEL, input=asked, previous_response_id=before, **options)
        self.made[name] = response.id
        return response

    def post(self, path: str, body: Json, key: str = ACME_KEY, **headers: str) -> Json:
        """The JSON that a POST answers."""
        answered = self.service.http(key).post(path, json=body, headers=headers)
        assert answered.status_code == 200, answered.text
        return answered.json()

    def read(self, path: str, stores: Sequence[str] = STORES, holder: str = "acme", key: str = ACME_KEY) -> None:
        """Note what a GET answers, from each of these stores."""
        self.reads.append({"path": path, "key": holder, "in": list(stores)} | answer_of(self.service, key, path))


def fill_a_chain(making: Making) -> None:
    """A conversation with words, a picture, calls of every kind, approvals, forks and a deletion."""
    picture = f"data:image/png;base64,{b64encode(png(grey=90)).decode()}"
    table = f"data:text/csv;base64,{b64encode(b'a,b').decode()}"
    parts = [
        {"type": "input_text", "text": "What is in both?"},
        {"type": "input_image", "image_url": picture},
        {"type": "input_file", "filename": "table.csv", "file_data": table},
    ]
    making.ask("ada", "My name is Ada.", instructions="Be brief.", metadata={"customer": "4711"})
    making.ask("seen", [{"role": "user", "content": parts}], "ada")
    asked = making.ask("called", "What is the weather in Paris?", "seen", tools=[WEATHER])
    (call,) = [each for each in asked.output if each.type == "function_call"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"}
    making.ask("told", [output], "called", tools=[WEATHER])
    making.ask("searched", "Search for the moon.", "told", tools=[{"type": "web_search"}])
    making.ask("computed", "Use python: print(6 * 7)", "searched", tools=[PYTHON])
    (request,) = approvals(making.ask("approving", "Add 2 and 3.", "computed", tools=[MATHS]))
    yes = {"type": "mcp_approval_response", "approval_request_id": request, "approve": True}
    making.ask("approved", [yes], "approving", tools=[MATHS])
    making.ask("logprobs", "Count to 2.", "approved", top_logprobs=2, include=["message.output_text.logprobs"])
    making.ask("shaped", "Count to 4.", "logprobs", text=shaped({"type": "integer"}))
    failed = making.ask("failed", "Count to 4.", "shaped", text=shaped(ONCE))
    assert (failed.status, bool(failed.output)) == ("failed", True)
    making.ask("cut", "Write a story of 100 words.", "shaped", max_output_tokens=16)
    making.ask("sibling", "Count to 8.", "shaped")
    making.ask("left", "Count to 5.", "cut")
    making.ask("right", "Count to 6.", "cut")
    making.ask(
        "compacted", "Count to 7.", "right", context_management=[{"type": "compaction", "compact_threshold": 1000}]
    )
    making.ask("newest", "What is my name?", "compacted")
    making.client.responses.delete(making.made["left"])
    making.client.responses.delete(making.made["cut"])


def shaped(number: Json) -> Any:
    """The format of an answer with this schema of its one member."""
    schema = {"type": "object", "properties": {"n": number}, "required": ["n"], "additionalProperties": False}
    return {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}


def fill_others(making: Making) -> None:
    """Conversations with an id, erased words, chats, an import, sealed content, a request with a key, a tree that is
    forgotten, a response that is cancelled, a tree that an archive has in two parts.
    """
    made, client = making.made, making.client
    making.ask("secret", "My secret is 1234.")
    making.ask("after-secret", "Count to 2.", "secret")
    making.service.http(ACME_KEY).delete(f"/v1/responses/{made['secret']}?erase=true")
    conversation = client.conversations.create(
        metadata={"topic": "names"}, items=[{"role": "user", "content": "My name is Bob."}]
    )
    made["conversation"] = conversation.id
    client.responses.create(model=MODEL, input="What is my name?", conversation=conversation.id)
    fork = client.conversations.create(metadata={"reward": "1"}, extra_body={"harmonium": {"fork_of": conversation.id}})
    made["fork"] = fork.id
    last = client.responses.create(model=MODEL, input="Count to 3.", conversation=fork.id)
    counted = client.conversations.items.list(fork.id).data[0].id
    client.conversations.items.delete(str(counted), conversation_id=fork.id)
    client.conversations.update(fork.id, metadata={"reward": "2"})
    made["in-fork"] = last.id
    chat = making.post(
        "/v1/chat/completions", {"model": MODEL, "messages": [{"role": "user", "content": "My name is Carl."}]}
    )
    made["chat"] = chat["choices"][0]["message"]["content"]
    sealed = client.responses.create(
        model=MODEL, input="My name is Dora.", store=False, include=["reasoning.encrypted_content"]
    )
    made["sealed"] = [each.to_dict() for each in sealed.output]
    made["compaction"] = making.post("/v1/responses/compact", {"model": MODEL, "input": "My boat is called Vesper."})[
        "output"
    ]
    made["keyed-body"] = KEYED
    made["keyed"] = making.post("/v1/responses", KEYED, **{"idempotency-key": IDEMPOTENCY_KEY})["id"]
    made["globex"] = said(making.service, "My name is Gil.", key=GLOBEX_KEY)
    made["large"] = said(making.service, f"{MUCH} Count to 2.", key=GLOBEX_KEY)
    made["behind-large"] = said(making.service, "Count to 3.", made["large"], key=GLOBEX_KEY)
    making.ask("forgotten", "My name is Ira.")
    making.service.http(ACME_KEY).delete(f"/v1/responses/{made['forgotten']}?tree=true")
    made["cancelled"] = client.responses.create(model=MODEL, input="Count to 3000.", background=True).id
    client.responses.cancel(made["cancelled"])
    wait_until(lambda: client.responses.retrieve(made["cancelled"]).status == "cancelled")


def fill_files(making: Making) -> None:
    """A file that is read by its id, one of two pieces, and one that expires; batches: with an answer and an error,
    cancelled, and of a file that is none; a container that is deleted.
    """
    client, made = making.client, making.made
    note = client.files.create(file=("note.txt", b"The moon makes the tides."), purpose="user_data")
    made["file"] = note.id
    content: Any = [{"type": "input_text", "text": "What is in it?"}, {"type": "input_file", "file_id": note.id}]
    making.ask("with-file", [{"role": "user", "content": content}])
    made["large-file"] = client.files.create(file=("moon.txt", TWO_PIECES), purpose="user_data").id
    made["batch"] = batch(making, {"input": "Count to 2."}, {"input": "Count to 2.", "temperature": 7})
    wait_until(lambda: client.batches.retrieve(made["batch"]).status == "completed")
    made["cancelled-batch"] = batch(making, {"input": "Count to 2000."}, {"input": "Count to 2000."})
    client.batches.cancel(made["cancelled-batch"])
    made["failed-batch"] = batch_of(making, b"not JSON", metadata={"customer": "4711"})
    wait_until(lambda: client.batches.retrieve(made["failed-batch"]).status == "failed")
    wait_until(lambda: client.batches.retrieve(made["cancelled-batch"]).status == "cancelled")
    brief = client.files.create(
        file=("brief.txt", b"Soon gone."), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 86400}
    )
    made["brief-file"] = brief.id
    made["container"] = client.containers.create(name="gone").id
    client.containers.delete(made["container"])


def batch(making: Making, *bodies: dict[str, Any]) -> str:
    """The id of a batch of these requests."""
    lines = [
        {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/responses", "body": {"model": MODEL} | body}
        for number, body in enumerate(bodies)
    ]
    return batch_of(making, b"\n".join(map(msgspec.json.encode, lines)))


def batch_of(making: Making, content: bytes, **options: Any) -> str:
    """The id of a batch of a file with this content."""
    file = making.client.files.create(file=("asked.jsonl", content), purpose="batch")
    created = making.client.batches.create(
        input_file_id=file.id, endpoint="/v1/responses", completion_window="24h", **options
    )
    return created.id


def fill_the_registry(making: Making, folder: Path) -> dict[str, str]:
    """A project with keys, limits and models, one that is archived; a key of an administrator, one that is none, a
    tenant that is erased, and one that is held. The keys' values.
    """

    def told(*arguments: str) -> Json:
        return msgspec.json.decode(output_of(command(folder, SETTINGS, *arguments, "--json")))

    project = told("projects", "create", "Letters", "--weight", "2")["id"]
    key = told("keys", "create", project, "--account", "mailer")
    reader = told("keys", "create", project, "--account", "reader", "--scope", "api.responses.read", "--days", "3650")
    told("projects", "limits", project, *(f"--set={name}={most}" for name, most in ALL_LIMITS.items()))
    making.post(f"/v1/organization/projects/{project}/api_keys/{key['id']}", {"limits": ALL_LIMITS}, ADMIN_KEY)
    told("projects", "models", project, "--allow", MODEL)
    told("projects", "archive", told("projects", "create", "Trial")["id"], "--yes")
    making.made["letters"] = said(making.service, "My name is Lea.", key=key["value"])
    making.made["project"] = project
    admin = making.post("/v1/organization/admin_api_keys", {"name": "second"}, ADMIN_KEY)
    assert making.service.http("sk-of-a-stranger").get("/v1/models").status_code == 401
    making.made["erased"] = said(making.service, "My name is Hal.", key=INITECH_KEY)
    told("archive", "erase", "--project", "initech", "--yes")
    output_of(command(folder, SETTINGS, "archive", "hold", "--project", "globex"))
    return {"letters": key["value"], "reader": reader["value"], "second-admin": admin["value"]}


def output_of(done: Any) -> str:
    """The output of a command that went well."""
    assert done.returncode == 0, (done.args, done.stdout, done.stderr)
    return done.stdout


def approvals(response: Any) -> list[str]:
    """The ids of the calls that a response asks somebody to approve."""
    return [each.id for each in response.output if each.type == "mcp_approval_request"]


def note_reads(making: Making, keys: dict[str, str]) -> None:
    """Note what all of it answers."""
    made = making.made
    backed_up = [store for store in STORES if store != "export"]
    for name in ("secret", "left", "cut", "forgotten"):
        making.read(f"/v1/responses/{made[name]}")
    making.read(f"/v1/responses/{made['erased']}", STORES, "initech", INITECH_KEY)
    making.read(f"/v1/responses/{made['cancelled']}", backed_up)
    ids = [value for value in made.values() if isinstance(value, str) and value.startswith("resp_")]
    for id in ids:
        if id not in [made[name] for name in APART]:
            making.read(f"/v1/responses/{id}")
            making.read(f"/v1/responses/{id}/input_items?limit=5")
            making.read(f"/console/api/turns/{id}/tokens")
    for id in (made["conversation"], made["fork"]):
        making.read(f"/v1/conversations/{id}")
        making.read(f"/v1/conversations/{id}/items?order=asc")
    making.read(f"/v1/trajectories?id={made['newest']}")
    making.read(f"/v1/trajectories?id={made['after-secret']}&format=gym")
    making.read(f"/v1/trajectories?id={made['fork']}", ["data"])  # notes of other branches are of those in memory
    for id in (made["newest"], made["conversation"]):
        making.read(f"/console/api/trees/{id}", ["data"])
    for name in ("globex", *LARGE):
        making.read(f"/v1/responses/{made[name]}", backed_up, "globex", GLOBEX_KEY)
        making.read(f"/v1/responses/{made[name]}/input_items?limit=5", backed_up, "globex", GLOBEX_KEY)
        making.read(f"/console/api/turns/{made[name]}/tokens", backed_up, "globex", GLOBEX_KEY)
    making.read(f"/v1/responses/{made['globex']}")
    making.read(f"/v1/files/{made['brief-file']}", backed_up)
    for name in ("file", "large-file"):
        making.read(f"/v1/files/{made[name]}", backed_up)
        making.read(f"/v1/files/{made[name]}/content", backed_up)
    done = making.client.batches.retrieve(made["batch"])
    for name in ("batch", "cancelled-batch", "failed-batch"):
        making.read(f"/v1/batches/{made[name]}", ["data"])
    making.read(f"/v1/containers/{made['container']}", ["data"])
    for file in (done.input_file_id, done.output_file_id, done.error_file_id):
        making.read(f"/v1/files/{file}/content", ["data"])
    making.read(f"/v1/responses/{made['letters']}", ["data"], "letters", keys["letters"])
    for path in ("projects?include_archived=true", f"projects/{made['project']}/rate_limits"):
        making.read(f"/v1/organization/{path}", ["data"], "admin", ADMIN_KEY)
    for part in ("model_permissions", "service_accounts", "api_keys"):
        making.read(f"/v1/organization/projects/{made['project']}/{part}", ["data"], "admin", ADMIN_KEY)
    making.read("/v1/organization/admin_api_keys", ["data"], "second-admin", keys["second-admin"])


def leave_work(making: Making) -> None:
    """Work that has not ended: a webhook of a response that has, a call that waits for an approval, a response amid its
    answer, one that waits with a steer, a batch that lacks one of its answers.
    """
    made, client = making.made, making.client
    events = client.responses.create(
        model=MODEL, input="Count to 4.", background=True, stream=True, stream_options=UNHIDDEN
    )
    made["ended-events"] = [event.to_dict() for event in events]
    made["webhook-secret"] = WEBHOOK_SECRET
    made["ended"] = made["ended-events"][0]["response"]["id"]
    (made["request"],) = approvals(making.ask("waiting", "Add 20 and 3.", tools=[MATHS]))
    made["running-batch"] = batch(making, {"input": "Count to 2."}, {"input": "Count to 1000."})
    wait_until(lambda: client.batches.retrieve(made["running-batch"]).request_counts.completed == 1)
    stream = client.responses.create(
        model=MODEL, input="Write a story of 400 words.", background=True, stream=True, stream_options=UNHIDDEN
    )
    made["running-events"] = [event.to_dict() for event, _ in zip(stream, range(EVENTS_BEFORE_THE_END), strict=False)]
    made["running"] = made["running-events"][0]["response"]["id"]
    queued = client.responses.create(model=MODEL, input="Count to 3000.", background=True)
    made["queued"] = queued.id
    made["steer"] = making.post(f"/v1/responses/{queued.id}/steer", {"input": "Count to 3."})["steer"]["id"]
    assert client.responses.retrieve(made["running"]).status == "in_progress"
    assert client.responses.retrieve(queued.id).status == "queued"


def wait_until_archived(folder: Path, settings: Mapping[str, Any] = SETTINGS) -> None:
    """Wait until the archive has all of it."""

    def left() -> int:
        status = command(folder, settings, "archive", "status", "--quick", "--json")
        return sum(each["trees"] for each in msgspec.json.decode(output_of(status))["shards"])

    wait_until(lambda: left() == 0, ARCHIVED_SECONDS)


def fill_elsewhere(making: Making) -> None:
    """Conversations for an archive with a server: a fork, a picture, a deletion, erased words, an id, a file; and what
    it answers.
    """
    made, client = making.made, making.client
    making.ask("ada", "My name is Ada.", metadata={"customer": "4711"})
    making.ask("seen", pictures.said("What is it?", png(grey=90)), "ada")
    making.ask("sibling", "Count to 3.", "ada")
    making.ask("left", "Count to 4.", "seen")
    making.ask("newest", "What is my name?", "left")
    client.responses.delete(made["left"])
    making.ask("secret", "My secret is 1234.")
    making.ask("after-secret", "Count to 2.", "secret")
    making.service.http(ACME_KEY).delete(f"/v1/responses/{made['secret']}?erase=true")
    made["conversation"] = client.conversations.create(metadata={"topic": "names"}).id
    client.responses.create(model=MODEL, input="My name is Bob.", conversation=made["conversation"])
    made["file"] = client.files.create(file=("note.txt", b"The moon makes the tides."), purpose="user_data").id
    made["globex"] = said(making.service, "My name is Gil.", key=GLOBEX_KEY)


def read_elsewhere(making: Making, kind: str) -> None:
    """Note what all of it answers."""
    for name in ("ada", "seen", "sibling", "left", "newest", "secret", "after-secret"):
        making.read(f"/v1/responses/{making.made[name]}", [kind])
        making.read(f"/v1/responses/{making.made[name]}/input_items?limit=5", [kind])
    for path in ("", "/items?order=asc"):
        making.read(f"/v1/conversations/{making.made['conversation']}{path}", [kind])
    for path in ("", "/content"):
        making.read(f"/v1/files/{making.made['file']}{path}", [kind])
    making.read(f"/v1/responses/{making.made['globex']}", [kind], "globex", GLOBEX_KEY)


def make_elsewhere(kind: str, folder: Path, target: Path) -> dict[str, Json]:
    """Make the archive of a service with a server for it, and keep what that has; the ids and the answers."""
    folder.mkdir()
    with place_of(kind, folder) as place:
        os.environ.update(place.environment)
        settings = SETTINGS | {"archive_url": place.url}
        service = ServiceProcess(folder, **settings)
        try:
            making = Making(service)
            fill_elsewhere(making)
            output_of(command(folder, settings, "archive", "hold", "--project", "globex"))
            wait_until_archived(folder, settings)
            read_elsewhere(making, kind)
        finally:
            service.stop()
        keep_elsewhere(place, target)
    return {"made": making.made, "reads": making.reads}


def keep_elsewhere(place: Place, target: Path) -> None:
    """Keep what a server has of an archive."""
    if place.kind == "postgres":
        programs = postgres_programs()
        assert programs is not None
        told = [programs / "pg_dump", "--no-owner", "--no-privileges", place.url]
        dumped = subprocess.run(told, check=True, capture_output=True, text=True)
        (target / DUMP).write_text(SESSION.sub("", dumped.stdout))
        return
    bucket = bucket_of(place)
    keys = sorted(each["path"] for page in obstore.list(bucket) for each in page)
    lines = [encoded([key, b64encode(bytes(obstore.get(bucket, key).bytes())).decode()]) for key in keys]
    (target / OBJECTS).write_text("\n".join(lines) + "\n")


def keep_data(data: Path, kept: Path) -> None:
    """Keep the files of a data folder that a server reads back, without the release's own programs: a service loads its
    own. Databases have their last changes in the file.
    """
    for database in data.rglob("*.db"):
        with closing(sqlite3.connect(database)) as opened:
            opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for part in ("appendonlydir", "archive"):
        shutil.copytree(data / part, kept / part, ignore=shutil.ignore_patterns("*-wal", "*-shm", "lock"))
    for file in (kept / "appendonlydir").glob("*.incr.aof"):
        file.write_bytes(
            b"".join(each for each in changes(file.read_bytes()) if PROGRAM not in each[: 2 * len(PROGRAM)])
        )


def changes(written: bytes) -> Iterator[bytes]:
    """The commands of an append-only file: `*COUNT`, and COUNT times `$LENGTH` and so many bytes."""
    at = 0
    while at < len(written):
        begin, end = at, written.index(b"\r\n", at)
        count, at = int(written[at + 1 : end]), end + 2
        for _ in range(count):
            end = written.index(b"\r\n", at)
            at = end + 2 + int(written[at + 1 : end]) + 2
        yield written[begin:at]


def write_manifest(path: Path, manifest: dict[str, Json]) -> None:
    """Write a manifest with a line for each answer, so that a change of one is a line's."""
    *others, (last, reads) = manifest.items()
    lines = [f'"{name}": {encoded(value)},\n' for name, value in others]
    path.write_text("{\n" + "".join(lines) + f'"{last}": [\n' + ",\n".join(map(encoded, reads)) + "\n]\n}\n")


def encoded(value: Json) -> str:
    """The JSON of a value, in a line."""
    return msgspec.json.encode(value).decode()


def make(folder: Path, target: Path) -> None:
    """Make the fixtures in a new folder."""
    (documents := folder / "documents").mkdir()
    (documents / "moon.md").write_text("# The moon\n\nIt makes high water.")
    (servers := folder / "mcp.toml").write_text(MCP_SERVERS)
    tools = {"search_dir": documents, "search_url": "https://docs.example.com", "mcp_servers": servers}
    service = ServiceProcess(folder, **SETTINGS, **SLOWLY, **UNHEARD, **tools, sandbox="local")
    try:
        with service.redis() as redis:
            server = redis.info("server")["process_id"]
        making = Making(service)
        keys = fill(making, folder)
        output_of(command(folder, SETTINGS, "backup", target / BACKUP))
        (target / EXPORT).write_text(output_of(client_of(service.url, ACME_KEY, "export", "--all")))
        leave_work(making)
        making.read("/v1/organization/audit_logs", ["data"], "admin", ADMIN_KEY)
    finally:
        service.kill()
    wait_until(lambda: not Path(f"/proc/{server}").exists())
    keep_data(folder / DATA, target / DATA)
    elsewhere = {kind: make_elsewhere(kind, folder / kind, target) for kind in REMOTE}
    manifest = {
        "release": this_build().version,
        "made_at": int(time.time()),
        "formats": formats(),
        "shapes": shapes(),
        "settings": SETTINGS,
        "mcp_servers": MCP_SERVERS,
        "keys": {"acme": ACME_KEY, "globex": GLOBEX_KEY, "initech": INITECH_KEY, "admin": ADMIN_KEY} | keys,
        "made": making.made,
        "elsewhere": {kind: each["made"] for kind, each in elsewhere.items()},
        "reads": [*making.reads, *(read for each in elsewhere.values() for read in each["reads"])],
    }
    write_manifest(target / MANIFEST, manifest)


def fill(making: Making, folder: Path) -> dict[str, str]:
    """Have all that ends, and note what it answers; the keys that were made."""
    fill_a_chain(making)
    fill_others(making)
    fill_files(making)
    keys = fill_the_registry(making, folder)
    (history := folder / "history.jsonl").write_text(SHAREGPT + "\n")
    output_of(client_of(making.service.url, ACME_KEY, "import", history))
    wait_until_archived(folder)
    note_reads(making, keys)
    return keys


def main() -> None:
    """Make them, in the place of those of the same release."""
    target = FIXTURES / this_build().version
    with TemporaryDirectory() as folder:
        work, made = Path(folder) / "work", Path(folder) / "made"
        work.mkdir()
        made.mkdir()
        make(work, made)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target, copy_function=shutil.copyfile)
    print(f"{target}: {sum(path.stat().st_size for path in target.rglob('*') if path.is_file()):,} bytes")


if __name__ == "__main__":
    main()
