"""A service as a client sees it: requests, their answers as JSON, and streams of events that go on after a break.

http.client is enough for one request at a time, and is there in no time. Every wait and every body has a bound.
"""

import http.client
import json
import os
import re
import secrets
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast
from urllib.parse import urlencode, urlsplit

from service.commands.arguments import EXIT_FAILED
from service.features.client.errors import ClientError, RefusedByService, ServiceUnreachable
from service.features.client.printing import Json
from service.features.client.profile import Profile

PIECE_BYTES = 1 << 18
"""How much of a file is read at once to be sent."""

TERMINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed")
TERMINAL_STATUSES = ("completed", "incomplete", "failed", "cancelled")


@dataclass(frozen=True)
class ClientBounds:
    """How long a service is waited for, and how much of it is read."""

    silence_seconds: float = 120.0
    """How long it may say nothing at all: a stream says that it is alive every HARMONIUM_KEEPALIVE_SECONDS."""

    answer_bytes: int = 64 * 1024 * 1024
    """The largest answer, and the largest event."""

    resumes: int = 8
    """How often in a row a stream that broke is asked for again without that anything came of it."""

    resume_seconds: float = 0.5
    """The pause before the first of them; each further one is twice as long."""


BOUNDS = ClientBounds()


class SentForm(NamedTuple):
    """A form to be sent: the mark between its parts, how many bytes it has, and these, piece by piece."""

    mark: str
    size: int
    pieces: Iterable[bytes]


def _form_of(name: str, content: BinaryIO, fields: Mapping[str, str]) -> SentForm:
    """A form (RFC 7578) with a file of this name, and fields."""
    mark, lines = f"harmonium-{secrets.token_hex(16)}", list[str]()
    for field, value in fields.items():
        lines += [f"--{mark}", f'Content-Disposition: form-data; name="{field}"', "", value]
    safe = re.sub(r'[\x00-\x1f"\x7f]', "_", name)
    lines += [f"--{mark}", f'Content-Disposition: form-data; name="file"; filename="{safe}"', "", ""]
    head = "\r\n".join(lines).encode("utf-8", "replace")
    tail = f"\r\n--{mark}--\r\n".encode()
    size = len(head) + os.fstat(content.fileno()).st_size + len(tail)
    return SentForm(mark, size, chain([head], iter(lambda: content.read(PIECE_BYTES), b""), [tail]))


class RemoteService:
    """The service of a profile. Each call raises ClientError."""

    def __init__(self, profile: Profile, bounds: ClientBounds = BOUNDS) -> None:
        self._profile = profile
        self._bounds = bounds

    @property
    def url(self) -> str:
        """Where it is."""
        return self._profile.url

    def call(self, method: str, path: str, body: Json | None = None, /, **query: str | int | None) -> Json:
        """The JSON that a request is answered with. What is None isn't in the query."""
        with self._answer(method, path, body, query) as answer:
            return object_in(self._whole(answer))

    def upload(self, path: str, file: Path, /, **fields: str) -> Json:
        """The JSON that a form with a file and fields is answered with."""
        try:
            with (
                file.open("rb") as content,
                self._answer("POST", path, _form_of(file.name, content, fields), {}) as answer,
            ):
                return object_in(self._whole(answer))
        except OSError as error:
            raise ClientError(f"can't read {file}: {error.strerror}") from error

    def download(self, path: str, file: Path) -> None:
        """Write the content that is at a path into a file."""
        pieces = self.pieces(path)
        begun = next(pieces, b"")  # what is there stays where nothing comes
        with file.open("wb") as kept:
            kept.writelines(chain([begun], pieces))

    def pieces(self, path: str, header: str = "", /, **query: str | int | None) -> Generator[bytes, None, str | None]:
        """The bytes of an answer as they come; returns a header of it."""
        with self._answer("GET", path, None, query) as answer:
            while piece := answer.read(PIECE_BYTES):
                yield piece
            if answer.length:
                raise http.client.IncompleteRead(b"", answer.length)
            return answer.getheader(header)

    def find(self, path: str) -> Json | None:
        """The JSON that is there, None where nothing is."""
        try:
            return self.call("GET", path)
        except RefusedByService as error:
            if error.status != 404:
                raise
            return None

    def stream(self, method: str, path: str, body: Json | None = None, /, **query: str | int | None) -> Generator[Json]:
        """The events that a request is answered with, as they come. Closing it closes the connection."""
        with self._answer(method, path, body, query) as answer:
            yield from self._events(answer)

    def pages(self, path: str, **query: str | int | None) -> Generator[Json]:
        """The pages of a list of the console's API, each of which says behind what the next one is."""
        after: str | int | None = None
        while True:
            page = self.call("GET", path, None, after=after, **query)
            yield page
            if (after := page.get("after")) is None:
                return

    def follow(self, id: str, after: int | None = None) -> Generator[Json]:
        """The events of a background response up to its end, from the one behind `after` on, even if streams break. An
        end that lies before `after` comes again.
        """
        tries = 0
        while True:
            came = False
            try:
                for event in self.stream("GET", f"/v1/responses/{id}", None, stream="true", starting_after=after):
                    came, tries, after = True, 0, event.get("sequence_number", after)
                    yield event
                    if event.get("type") in TERMINAL_EVENTS:
                        return
                if not came and (ended := self.find(f"/v1/responses/{id}")) and ended["status"] in TERMINAL_STATUSES:
                    kind = "failed" if ended["status"] == "cancelled" else ended["status"]
                    yield {"type": f"response.{kind}", "response": ended, "sequence_number": after}
                    return
                broken = ServiceUnreachable("the stream ended before the response did")
            except ServiceUnreachable as error:
                broken = error
            except RefusedByService as error:
                if error.status < 500:
                    raise
                broken = error
            if tries == self._bounds.resumes:
                raise broken
            time.sleep(self._bounds.resume_seconds * 2**tries)
            tries += 1

    def first_model(self) -> str:
        """The model for a client that names none."""
        if self._profile.model is not None:
            return self._profile.model
        models = self.call("GET", "/v1/models").get("data")
        if not models:
            raise ClientError("the service lists no model; name one with --model")
        return str(models[0]["id"])

    @contextmanager
    def _answer(
        self, method: str, path: str, body: "Json | SentForm | None", query: dict[str, str | int | None]
    ) -> Generator[http.client.HTTPResponse]:
        """The answer to a request, unread, if it is no error."""
        url = urlsplit(self._profile.url)
        assert url.hostname is not None
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        asked = urlencode({name: value for name, value in query.items() if value is not None}, errors="replace")
        where = f"{url.path}{path}" + (f"?{asked}" if asked else "")
        headers = {"user-agent": "harmonium"}
        if self._profile.key is not None:
            headers["authorization"] = f"Bearer {self._profile.key}"
        content: bytes | Iterable[bytes] | None = None
        if isinstance(body, SentForm):
            content = body.pieces
            headers |= {"content-type": f"multipart/form-data; boundary={body.mark}", "content-length": str(body.size)}
        elif body is not None:
            headers["content-type"] = "application/json"
            content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        with closing(kind(url.hostname, url.port, timeout=self._bounds.silence_seconds)) as connection:
            try:
                with suppress(BrokenPipeError, ConnectionResetError):  # some bodies are refused before they are read
                    connection.request(method, where, content, headers)
                answer = connection.getresponse()
                if answer.status >= 400:
                    raise self._refusal(answer)
                if answer.status >= 300:
                    raise ClientError(f"{self._profile.url} redirects (HTTP {answer.status}); give its real URL")
                yield answer
            except TimeoutError:
                seconds = self._bounds.silence_seconds
                raise ServiceUnreachable(f"{self._profile.url} sent nothing for {seconds:g} s") from None
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise ServiceUnreachable(f"can't reach {self._profile.url}: {reason}") from None

    def _whole(self, answer: http.client.HTTPResponse) -> bytes:
        content = answer.read(self._bounds.answer_bytes + 1)
        if len(content) > self._bounds.answer_bytes:
            raise ClientError(f"the answer has more than {self._bounds.answer_bytes} bytes")
        return content

    def _refusal(self, answer: http.client.HTTPResponse) -> RefusedByService:
        """The error in an answer, from OpenAI's envelope."""
        if answer.status == 401 and self._profile.key is None:
            return RefusedByService(401, NO_KEY)
        message: object = None
        with suppress(ClientError, LookupError, TypeError):  # then it is not harmonium's, but of something before it
            message = object_in(self._whole(answer))["error"]["message"]
        said = message if isinstance(message, str) else f"the service answered {answer.reason}"
        return RefusedByService(answer.status, said)

    def _events(self, answer: http.client.HTTPResponse) -> Generator[Json]:
        """The events of a stream, one line of data each (https://html.spec.whatwg.org/multipage/server-sent-events.html),
        but those that keep it alive.
        """
        while line := answer.readline(self._bounds.answer_bytes + 1):
            if len(line) > self._bounds.answer_bytes:
                raise ClientError(f"an event has more than {self._bounds.answer_bytes} bytes")
            field, _, value = line.rstrip(b"\r\n").partition(b":")
            if field == b"data" and (value := value.strip()) != b"[DONE]":
                event = object_in(value)
                if event.get("type") != "keepalive":
                    yield event


NO_KEY = "the service needs a key: put it into HARMONIUM_CLIENT_KEY, or name its variable with --key-env"
NO_HARMONIUM = "the answer is not a JSON object: this is not harmonium, or a proxy answered"


def object_in(content: bytes, otherwise: str = NO_HARMONIUM, exit_status: int = EXIT_FAILED) -> Json:
    """A JSON object. Raises ClientError with `otherwise` for anything else."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):  # it may be nested too deeply to be read
        found = None
    if not isinstance(found, dict):
        raise ClientError(otherwise, exit_status)
    return cast(Json, found)
