"""The lines of a batch's input: where each is, in which order they are made, and what is wrong with them.

All lines are looked at before the first is made. They are then made in the order in which they stand, but those that
begin alike (model, instructions, tools, first message) one after the other, so that the engine finds what they share in
its cache. The order depends on the file alone, so whoever takes a batch over has the same.
"""

import asyncio
from codecs import BOM_UTF8
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from service.decoding import ABSENT, decode
from service.errors import ApiError
from service.features.batches.shapes import BatchProblem
from store.files.files import PIECE_BYTES, FileGone, FileRecord, Files

MOST_LINES = 50_000
MOST_PROBLEMS = 100
"""The most problems that are shown."""

MAX_ID_CHARS = 512
MAX_MODEL_BYTES = 256
"""The longest name of a model that a batch shows."""

DIGEST_BYTES = 12


class BatchLine(msgspec.Struct):
    """A line as sent: a request with a name of its own."""

    custom_id: Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS)]
    method: Literal["POST"]
    url: str
    body: msgspec.Raw


class LinePlace(NamedTuple):
    """The place of a line among the bytes of an input. Lines that begin alike are of one `group`, those for the same
    model have one `model`.
    """

    group: int
    start: int
    size: int
    model: int


class _Beginning(msgspec.Struct):
    """The members of a request that say how its prompt begins."""

    model: msgspec.Raw = ABSENT
    instructions: msgspec.Raw = ABSENT
    tools: msgspec.Raw = ABSENT
    input: msgspec.Raw = ABSENT
    messages: msgspec.Raw = ABSENT
    stream: bool | None = None


class LineScanner:
    """Reads an input piece by piece: `feed` all pieces, then `finish`. Takes milliseconds a piece, in any thread."""

    def __init__(self, endpoint: str, most_bytes: int) -> None:
        """`most_bytes` is the longest line."""
        self.places, self.problems, self.model = list[LinePlace](), list[BatchProblem](), ""
        self.goes_on = True
        """Whether the rest of the input matters."""
        self._endpoint, self._most = endpoint, most_bytes
        self._rest, self._at, self._number = b"", 0, 0
        self._ids, self._groups, self._models = set[bytes](), dict[bytes, int](), dict[bytes, int]()

    def feed(self, piece: bytes) -> None:
        *whole, self._rest = (self._rest + piece).split(b"\n")
        for line in whole:
            self._take(line)
            self._at += len(line) + 1
        if len(self._rest) > self._most:
            self._take(self._rest)

    def finish(self) -> None:
        """The input ends here: the last line needs no end, and the order of all is known."""
        self._take(self._rest)
        if not self.places and not self.problems:
            self._note("empty_file", "The file has no lines.", None)
        self.places.sort()

    def _take(self, line: bytes) -> None:
        end = self._at + len(line)
        if self._at == 0:
            line = line.removeprefix(BOM_UTF8)  # tools on Windows begin a file with it
        self._number += 1
        if self.goes_on and len(line) > self._most:
            self._note("line_too_long", f"A line has at most {self._most} bytes.", self._number)
            self.goes_on = False
        if not self.goes_on or not line.strip():
            return
        if len(self.places) >= MOST_LINES:
            self._note("too_many_lines", f"A batch has at most {MOST_LINES} lines.", self._number)
            self.goes_on = False
            return
        try:
            line.decode()  # parts of it are echoed as they came, and nothing else checks those
            sent = decode(line, BatchLine)
            beginning = decode(bytes(sent.body), _Beginning, "body")
        except (ApiError, UnicodeDecodeError) as error:
            message, param = (error.message, error.param) if isinstance(error, ApiError) else ("It is not UTF-8.", None)
            self._note("invalid_line", message, self._number, param)
            return
        name = blake2b(sent.custom_id.encode(), digest_size=DIGEST_BYTES).digest()
        if name in self._ids:
            message = f"The custom_id '{sent.custom_id[:80]}' names an earlier line, too."
            self._note("duplicate_custom_id", message, self._number, "custom_id")
        if sent.url != self._endpoint:
            message = f"The url '{sent.url[:80]}' is not the endpoint of the batch, '{self._endpoint}'."
            self._note("mismatched_url", message, self._number, "url")
        if beginning.stream:
            self._note("invalid_line", "A line of a batch can't stream.", self._number, "body.stream")
        self._ids.add(name)
        group = self._groups.setdefault(_digest_of(beginning), len(self._groups))
        named = self._models.setdefault(_digest_of(_Beginning(beginning.model)), len(self._models))
        self.places.append(LinePlace(group, end - len(line), len(line), named))
        model = memoryview(beginning.model)
        if not self.model and len(model) <= MAX_MODEL_BYTES and bytes(model[:1]) == b'"':
            self.model = msgspec.json.decode(beginning.model, type=str)

    def _note(self, code: str, message: str, line: int | None, param: str | None = None) -> None:
        self.problems.append(BatchProblem(code, message, line, param))
        self.goes_on = len(self.problems) < MOST_PROBLEMS


def _digest_of(beginning: _Beginning) -> bytes:
    """The digest of how a prompt begins."""
    first = beginning.messages if beginning.messages != ABSENT else beginning.input
    if bytes(memoryview(first)[:1]) == b"[":
        first = next(iter(msgspec.json.decode(first, type=list[msgspec.Raw])), ABSENT)
    digest = blake2b(digest_size=DIGEST_BYTES)
    for part in (beginning.model, beginning.instructions, beginning.tools, first):
        digest.update(b"%d " % len(part))
        digest.update(part)
    return digest.digest()


class LineReader:
    """Reads the lines of an input in the order of work."""

    def __init__(self, files: Files, tenant: str, file: FileRecord, places: Sequence[LinePlace]) -> None:
        self._files, self._tenant, self._file, self._places = files, tenant, file, places
        self.order = [*range(len(places))]
        """The numbers of the lines as they are made; a number is a line's own, whenever that is."""
        self._pieces = dict[int, bytes]()
        """The two pieces that were read last."""

    def model(self, place: int) -> int:
        """The model of the line that is made in this place."""
        return self._places[self.order[place]].model

    def put_off(self, place: int, model: int) -> None:
        """Have the lines for a model come last among those from a place on."""
        self.order[place:] = sorted(self.order[place:], key=lambda number: self._places[number].model == model)

    async def read(self, place: int) -> BatchLine:
        """The line that is made in this place. Raises StoreError, ArchiveUnavailable."""
        _, start, size, _ = self._places[self.order[place]]
        first, last = start // PIECE_BYTES, (start + size - 1) // PIECE_BYTES
        content = b"".join([await self._piece(each) for each in range(first, last + 1)])
        behind = start - first * PIECE_BYTES
        return msgspec.json.decode(content[behind : behind + size], type=BatchLine)

    async def _piece(self, number: int) -> bytes:
        if number not in self._pieces:
            piece = await self._files.piece(self._tenant, self._file, number)
            if piece is None:
                raise FileGone(self._file.id)
            self._pieces = dict([*self._pieces.items()][-1:]) | {number: piece}
        return self._pieces[number]


async def scan(files: Files, tenant: str, file: FileRecord, endpoint: str, most_bytes: int) -> LineScanner:
    """The lines of an input. Raises StoreError, ArchiveUnavailable."""
    scanner = LineScanner(endpoint, most_bytes)
    async for piece in files.read(tenant, file):
        await asyncio.to_thread(scanner.feed, piece)
        if not scanner.goes_on:
            break
    await asyncio.to_thread(scanner.finish)
    return scanner
