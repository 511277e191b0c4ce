"""The code of today reads the stored data of each release: compared, continued, repaired, restored and imported.

The releases are in tests/fixtures (tests/support/releases/stored.py). A test that fails here says that somebody who
upgrades loses something: correct the code, never a file of a release that is out.
"""

import json
import re
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from openai import BadRequestError
from redis import Redis

from store.backup import ownership
from store.backup.archiving.parts import key_of
from store.backup.upkeep.backup_file import HEADER_KEY, VERSION
from store.embedded import EmbeddedServer
from store.layout import LAYOUT
from tests.support.archive.opened import REMOTE, Place, place_of
from tests.support.releases.stored import (
    BACKUP,
    DATA,
    EXPORT,
    Release,
    answer_of,
    client_of,
    clock,
    releases,
)
from tests.support.service.beside import ServiceBeside
from tests.support.service.process import MODEL, Served, ServiceProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
"""So they begin early, and in one process of xdist's: each process starts the services anew."""

SLOWLY = 60.0
"""How long a busy machine may take for what was under way."""

HOUR = 3600.0
HALF_A_CHANGE = b"*3\r\n$3\r\nSET\r\n$4\r\nha"
HOLES = bytes(512) + HALF_A_CHANGE
NAME = "What is my name?"
ENDED = ("completed", "incomplete", "failed", "cancelled")


@pytest.fixture(scope="module", params=releases(), ids=lambda release: release.name)
def release(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Release]:
    """A release, at the time of its making. The server that other tests share has begun before, with its own time."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in clock(request.param).items():
            patch.setenv(name, value)
        yield request.param


@pytest.fixture(scope="module")
def letters() -> Iterator[tuple[str, list[bytes]]]:
    """Where a receiver of webhooks is, and the bodies of those that came."""
    bodies: list[bytes] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing of it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hook", bodies
        server.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the service that most tests share."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def served(release: Release, folder: Path, letters: tuple[str, list[bytes]]) -> Iterator[ServiceProcess]:
    """A service on a copy of all that a release has stored, after a power cut that left holes at the end of a file."""
    damage(release.data(folder), HOLES)
    url = f"private+{letters[0]}"
    service = release.serve(folder, webhook_url=url, webhook_secret=release.made("webhook-secret"))
    yield service
    service.stop()


@pytest.fixture
def beside(
    release: Release, tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., ServiceBeside]]:
    """Starts a service on an empty store and the archive in the test's folder, or at a URL, which nobody else can have:
    it watches that for a tenth of the usual time.
    """
    monkeypatch.setattr(ownership, "watch", partial(_watched_shortly, ownership.watch))
    with ExitStack() as started:

        def start(archive: str = "") -> ServiceBeside:
            service = release.beside(tmp_path, redis_url, archive)
            started.callback(service.stop)
            return service

        yield start


async def _watched_shortly(watch: Any, *archive: Any) -> None:
    *whose, seconds = archive
    await watch(*whose, seconds / 10)


@pytest.fixture
def _signals() -> Iterator[None]:
    """A command takes the signals of its process over, which is that of the tests."""
    kept = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def damage(data: Path, end: bytes) -> None:
    """Write behind the end of the append-only file."""
    (file,) = (data / "appendonlydir").glob("*.incr.aof")
    with file.open("ab") as opened:
        opened.write(end)


def differing(release: Release, service: Served, store: str) -> list[tuple[str, Any, Any]]:
    """The answers that aren't those of the release: each path, with the answer then and now."""
    reads = [each for each in release.manifest["reads"] if store in each["in"]]
    assert len(reads) > (10 if store in REMOTE else 50), "the manifest says little of this store"
    then = [(each["path"], {name: each[name] for name in ("status", "answer")}) for each in reads]
    now = [answer_of(service, release.key(each["key"]), each["path"]) for each in reads]
    return [(path, before, after) for (path, before), after in zip(then, now, strict=True) if before != after]


def ask(release: Release, service: Served, asked: Any, **options: Any) -> Any:
    """A response for the tenant that has most of it."""
    return service.client(release.key("acme")).responses.create(model=MODEL, input=asked, **options)


def ended(release: Release, service: ServiceProcess, id: str) -> Any:
    """A background response, once it has ended."""
    client = service.client(release.key("acme"))
    return wait_until(lambda: client.responses.retrieve(id), SLOWLY, wanted=lambda each: each.status in ENDED)


# --- the data folder of a service that was killed ---


def test_all_that_was_stored_is_answered_as_it_was(release: Release, served: ServiceProcess) -> None:
    (began,) = re.findall(r"(?m)^(\S+Z) INFO +listening ", served.log)
    after = datetime.fromisoformat(began).timestamp() - release.manifest["made_at"]
    assert 0 <= after < HOUR, "the service has another time than the release"
    assert "half a change, at the end of the file" in served.log
    assert differing(release, served, "data") == []


def test_a_response_amid_its_answer_goes_on_with_the_same_events(release: Release, served: ServiceProcess) -> None:
    before = release.made("running-events")
    client = served.client(release.key("acme"))
    events = [
        each.to_dict()
        for each in client.responses.retrieve(release.made("running"), stream=True, include_obfuscation=False)
    ]
    assert [without_response(each) for each in events[: len(before)]] == [without_response(each) for each in before]
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"
    assert len(events) > len(before)


def test_a_response_that_had_ended_has_all_of_its_events(release: Release, served: ServiceProcess) -> None:
    client = served.client(release.key("acme"))
    events = client.responses.retrieve(release.made("ended"), stream=True, include_obfuscation=False)
    then = [without_response(each) for each in release.made("ended-events")]
    assert [without_response(each.to_dict()) for each in events] == then
    assert then[-1]["type"] == "response.completed"


@pytest.mark.usefixtures("served")
def test_a_webhook_that_waited_is_sent(release: Release, letters: tuple[str, list[bytes]]) -> None:
    _, bodies = letters
    wait_until(lambda: any(release.made("ended").encode() in body for body in bodies), SLOWLY)


def without_response(event: Any) -> Any:
    """An event without the response that it shows, which says when it was read."""
    return {name: value for name, value in event.items() if name != "response"}


def test_a_response_that_waited_is_made_and_a_steer_that_waited_is_delivered(
    release: Release, served: ServiceProcess
) -> None:
    steered = ended(release, served, release.made("queued")).to_dict()
    assert (steered["status"], steered["incomplete_details"]) == ("incomplete", {"reason": "steered"})
    assert ended(release, served, steered["harmonium"]["succeeded_by"]).output_text.split() == ["1", "2", "3"]


def test_a_batch_under_way_is_made_to_its_end(release: Release, served: ServiceProcess) -> None:
    client = served.client(release.key("acme"))
    batch = wait_until(
        lambda: client.batches.retrieve(release.made("running-batch")), SLOWLY, wanted=lambda each: each.completed_at
    )
    assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == ("completed", 2, 0)


def test_a_call_that_waited_for_an_approval_is_made(release: Release, served: ServiceProcess) -> None:
    yes = {"type": "mcp_approval_response", "approval_request_id": release.made("request"), "approve": True}
    tools: Any = [{"type": "mcp", "server_label": "maths"}]
    made = ask(release, served, [yes], previous_response_id=release.made("waiting"), tools=tools)
    assert [each.output for each in made.output if each.type == "mcp_call"] == ["23"]


def test_conversations_continue_and_fork(release: Release, served: ServiceProcess) -> None:
    for parent in ("newest", "sibling", "told", "with-file"):
        made = ask(release, served, "What is my name?", previous_response_id=release.made(parent))
        assert (parent, "Ada" in made.output_text) == (parent, parent != "with-file")
    for conversation in ("conversation", "fork"):
        made = ask(release, served, "Tell me: what is my name?", conversation=release.made(conversation))
        assert made.output_text == "Your name is Bob."
    gone = ask(release, served, "What is my name?", previous_response_id=release.made("after-secret"))
    assert "1234" not in json.dumps(gone.to_dict())


def test_a_failed_turn_is_as_it_was_and_is_not_continued(release: Release, served: ServiceProcess) -> None:
    with pytest.raises(BadRequestError) as refusal:
        ask(release, served, "Count to 2.", previous_response_id=release.made("failed"))
    assert refusal.value.code == "previous_response_not_continuable"
    failed = served.client(release.key("acme")).responses.retrieve(release.made("failed"))
    assert (failed.status, failed.error and failed.error.code, bool(failed.output)) == ("failed", "server_error", True)


def test_a_tree_of_two_parts_and_a_file_of_two_pieces_are_continued(release: Release, served: ServiceProcess) -> None:
    options: Any = {"model": MODEL, "input": "Count to 2.", "previous_response_id": release.made("behind-large")}
    made = served.client(release.key("globex")).responses.create(**options)
    assert made.usage
    assert made.usage.input_tokens > 40_000
    content: Any = {"type": "input_file", "file_id": release.made("large-file")}
    question: Any = {"type": "input_text", "text": "Count to 2."}
    with pytest.raises(BadRequestError, match="maximum context length"):  # so it was read
        ask(release, served, [{"role": "user", "content": [content, question]}])


def test_a_client_s_sealed_content_is_opened(release: Release, served: ServiceProcess) -> None:
    question = {"role": "user", "content": "What is my name?"}
    name = {"role": "user", "content": "My name is Dora."}
    assert ask(release, served, [name, *release.made("sealed"), question]).output_text == "Your name is Dora."
    boat = {"role": "user", "content": "What is my boat called?"}
    assert "Vesper" in ask(release, served, [*release.made("compaction"), boat]).output_text


def test_a_chat_that_is_sent_as_a_whole_continues_its_conversation(release: Release, served: ServiceProcess) -> None:
    history = [
        {"role": "user", "content": "My name is Carl."},
        {"role": "assistant", "content": release.made("chat")},
        {"role": "user", "content": "What is my name?"},
    ]
    http = served.http(release.key("acme"))
    assert http.post("/v1/chat/completions", json={"model": MODEL, "messages": history}).status_code == 200
    (tree,) = http.get("/console/api/trees?text=Carl").json()["data"]
    assert tree["turns"] == 2


def test_a_request_that_is_sent_again_is_not_made_again(release: Release, served: ServiceProcess) -> None:
    http = served.http(release.key("acme"))
    again = http.post("/v1/responses", json=release.made("keyed-body"), headers={"idempotency-key": "made-once"})
    assert (again.json()["id"], again.headers["idempotent-replayed"]) == (release.made("keyed"), "true")


def test_a_key_has_the_rights_that_it_had(release: Release, served: ServiceProcess) -> None:
    http = served.http(release.key("reader"))
    assert http.get(f"/v1/responses/{release.made('letters')}").status_code == 200
    refused = http.post("/v1/responses", json={"model": MODEL, "input": "Count to 2."})
    assert (refused.status_code, "api.responses.write" in refused.text) == (403, True)
    http = served.http(release.key("letters"))
    made = http.post("/v1/responses", json={"model": MODEL, "input": "Count to 2."})
    most, left = (int(made.headers[f"x-ratelimit-{what}-requests"]) for what in ("limit", "remaining"))
    assert (most, left < most) == (1_000_000, True)


@pytest.mark.usefixtures("served")
def test_a_tenant_that_was_held_is_not_erased(release: Release, folder: Path) -> None:
    erased = release.command(folder, "archive", "erase", "--project", "globex", "--yes")
    assert "hold" in refused(erased.returncode, erased.stdout, erased.stderr)


def test_fsck_finds_nothing_in_it(release: Release, tmp_path: Path) -> None:
    release.data(tmp_path)
    checked = release.command(tmp_path, "fsck")
    assert (checked.returncode, "nothing is wrong" in checked.stdout) == (0, True), checked.stdout + checked.stderr


@pytest.mark.usefixtures("served")
def test_a_damaged_part_of_its_archive_is_made_anew(release: Release, folder: Path) -> None:
    wait_until_archived(release, folder)
    digits = release.made("newest").removeprefix("resp_")
    key = key_of("acme", digits)
    with closing(sqlite3.connect(folder / DATA / "archive" / "00.db", timeout=SLOWLY)) as opened, opened:
        assert opened.execute("UPDATE object SET value = X'00' WHERE key = ?", [key]).rowcount == 1
    repaired = release.command(folder, "archive", "verify", "--all", "--repair")
    assert (repaired.returncode, "all repaired" in repaired.stdout) == (0, True), repaired.stdout + repaired.stderr
    verified(release, folder)


def wait_until_archived(release: Release, folder: Path, **settings: object) -> None:
    """Wait until an archive has all that is stored."""

    def left() -> int:
        told = release.command(folder, "archive", "status", "--quick", "--json", **settings)
        return sum(each["trees"] for each in json.loads(told.stdout)["shards"])

    wait_until(left, SLOWLY, wanted=lambda trees: trees == 0)


def verified(release: Release, folder: Path, **settings: object) -> None:
    """See that nothing is wrong in an archive."""
    checked = release.command(folder, "archive", "verify", "--all", **settings)
    assert (checked.returncode, "nothing is wrong" in checked.stdout) == (0, True), checked.stdout + checked.stderr


@pytest.mark.full
def test_an_append_only_file_that_ends_amid_a_change_has_all_before_it(release: Release, tmp_path: Path) -> None:
    damage(release.data(tmp_path), HALF_A_CHANGE)
    service = release.serve(tmp_path)
    try:
        assert differing(release, service, "data") == []
    finally:
        service.stop()


# --- the backup, the archive alone, the export ---


def test_the_backup_is_restored_into_an_empty_store(release: Release, tmp_path: Path) -> None:
    restored = release.command(tmp_path, "restore", release.copy(BACKUP, tmp_path))
    assert restored.returncode == 0, restored.stdout + restored.stderr
    assert "The store now has the backup's secret" in restored.stdout
    service = release.serve(tmp_path)
    try:
        assert differing(release, service, "backup") == []
    finally:
        service.stop()


def test_the_archive_alone_has_the_conversations(
    release: Release, tmp_path: Path, beside: Callable[[], ServiceBeside]
) -> None:
    release.data(tmp_path, "archive")
    assert differing(release, beside(), "archive") == []


def test_the_export_is_imported_into_an_empty_store(
    release: Release, tmp_path: Path, beside: Callable[[], ServiceBeside]
) -> None:
    service = beside()
    imported = client_of(service.url, release.key("acme"), "import", release.copy(EXPORT, tmp_path / "from"))
    assert imported.returncode == 0, imported.stdout + imported.stderr
    assert differing(release, service, "export") == []


# --- an archive in Postgres, and one in S3 ---


@pytest.fixture(params=REMOTE)
def place(
    request: pytest.FixtureRequest, release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """A server of today with the archive that a release had in one, for a service and commands of today."""
    for name in clock(release):
        monkeypatch.delenv(name)
    with place_of(request.param, tmp_path) as place:
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
        release.fill(place)
        yield place


def test_an_archive_with_a_server_is_read_continued_and_sound(
    release: Release, place: Place, tmp_path: Path, redis_url: str, beside: Callable[..., ServiceBeside]
) -> None:
    made, service = release.manifest["elsewhere"][place.kind], beside(place.url)
    assert differing(release, service, place.kind) == []
    assert ask(release, service, NAME, previous_response_id=made["newest"]).output_text == "Your name is Ada."
    assert ask(release, service, NAME, conversation=made["conversation"]).output_text == "Your name is Bob."

    def listed(text: str) -> list[Any]:
        return service.http(release.key("acme")).get(f"/console/api/trees?text={text}").json()["data"]

    (tree,) = wait_until(lambda: listed("Ada"))
    assert (tree["turns"], listed("1234")) == (5, [])
    settings = {"archive_url": place.url, "redis_url": redis_url, "redis_prefix": service.settings.redis_prefix}
    wait_until_archived(release, tmp_path, **settings)
    verified(release, tmp_path, **settings)
    erased = release.command(tmp_path, "archive", "erase", "--project", "globex", "--yes", **settings)
    assert "hold" in refused(erased.returncode, erased.stdout, erased.stderr)


# --- what a later release has written ---


def refused(status: int, stdout: str, stderr: str) -> str:
    """The error of a command that can't read what it was given."""
    assert status in (1, 2), stdout
    assert "Traceback" not in stderr, stderr
    return stderr


def refused_here(release: Release, folder: Path, *arguments: str | Path) -> str:
    """The error of an operator's command that can't read the data in a folder."""
    done = release.here(folder, *arguments)
    return refused(done.exit_code, done.stdout, done.stderr)


@pytest.mark.usefixtures("_signals")
def test_a_later_layout_is_refused_with_the_remedy(release: Release, tmp_path: Path) -> None:
    with EmbeddedServer(release.data(tmp_path)) as server, Redis.from_url(server.url) as redis:
        redis.hset("harmonium:{00}:store", mapping={"layout": LAYOUT + 1, "release": "9.9.9"})
    told = refused_here(release, tmp_path, "serve", "--port", "0")
    assert f"the store has layout {LAYOUT + 1}, written by 9.9.9, and this release knows layout {LAYOUT}" in told
    assert "upgrade this process, or go back to a backup from before the upgrade (docs/upgrading.md)" in told


def later(database: Path) -> int:
    """The later format that a file of the archive has from now on."""
    with closing(sqlite3.connect(database)) as opened:
        (known,) = opened.execute("PRAGMA user_version").fetchone()
        opened.execute(f"PRAGMA user_version = {known + 1}")
        return known + 1


@pytest.mark.usefixtures("_signals")
def test_an_archive_of_a_later_format_is_refused_with_the_remedy(release: Release, tmp_path: Path) -> None:
    newer = later(release.data(tmp_path) / "archive" / "00.db")
    told = refused_here(release, tmp_path, "serve", "--port", "0")
    assert f"HARMONIUM_ARCHIVE_URL names a newer archive: a stored value has format version {newer}" in told
    assert "docs/upgrading.md" in told


def test_a_catalogue_of_a_later_format_is_left_alone_and_all_else_is_served(
    release: Release, tmp_path: Path, beside: Callable[[], ServiceBeside], caplog: pytest.LogCaptureFixture
) -> None:
    later(release.data(tmp_path, "archive") / "archive" / "catalogue.db")
    found = beside().client(release.key("acme")).responses.retrieve(release.made("newest"))
    assert found.status == "completed"

    def reasons() -> list[str]:
        return [str(getattr(each, "fields", {}).get("reason")) for each in caplog.records]

    told = "catalogue.db was written by a later release; remove it"
    wait_until(reasons, wanted=lambda each: any(told in reason for reason in each))


def test_a_backup_of_a_later_version_is_refused_whole(release: Release, tmp_path: Path) -> None:
    backup = release.copy(BACKUP, tmp_path)
    with closing(sqlite3.connect(backup)) as opened, opened:
        (header,) = opened.execute("SELECT value FROM object WHERE key = ?", (HEADER_KEY,)).fetchone()
        changed = json.dumps(json.loads(header) | {"version": VERSION + 1}).encode()
        opened.execute("UPDATE object SET value = ? WHERE key = ?", (changed, HEADER_KEY))
    for command in (("restore", backup), ("backup", "--verify", backup)):
        assert f"has format version {VERSION + 1}" in refused_here(release, tmp_path, *command)


def test_an_export_of_a_later_version_is_refused_whole(
    release: Release, tmp_path: Path, beside: Callable[[], ServiceBeside]
) -> None:
    export = release.copy(EXPORT, tmp_path)
    known = release.manifest["formats"]["service/features/client/trees.py VERSION"]
    export.write_text(export.read_text().replace(f'"version": {known}', f'"version": {known + 1}'))
    service = beside()
    done = client_of(service.url, release.key("acme"), "import", export)
    told = refused(done.returncode, done.stdout, done.stderr)
    assert f"begins a tree in version {known + 1}; this release reads" in told
    assert service.http(release.key("acme")).get("/console/api/trees").json()["data"] == []
