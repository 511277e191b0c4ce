"""Batches of events as bytes: an event log stores them for a background response, and its followers are sent them.

    version | packing | msgpack of (tokens, cached tokens, runs, log probabilities, outcomes, pieces)
    run     (kind, item, output index, texts)   deltas of one item, one after another
            bytes                               any other event, as JSON

Nearly all events are deltas of one item, which differ in their text and their number alone. The numbers of a log have
no gaps, so the last one gives all. Other events stay JSON: tools hold numbers that msgpack can't.
The tokens that made the events stand beside them, so that another process can go on where this one died: an appended
batch makes both of them last, or neither. So do the outcomes of calls that the service ran, and the text
of a model that doesn't speak Harmony. From 0.1.0 on never change the meaning of a version: each new event, member,
value or kind takes the next one.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from typing import Any, TypeGuard, cast

import msgspec

from service.api import events
from service.api.events import Event
from service.api.outcome import Outcome
from service.engine.port import TokenLogprobs
from service.harmony import tokens
from service.responses.output.reading import Cached, Piece
from store.codec import check_version, squeeze, unsqueeze
from store.errors import NewerFormat

FORMAT = 4
"""The version of a batch's bytes."""

UNKNOWN_TOKEN = tokens.LAST_LEGAL + 1
"""Stands for ids that fit no u32. The machine takes one illegal id as any other."""


class Batch(msgspec.Struct, frozen=True):
    """Events that follow each other, and the tokens that made them.

    `tokens` are little-endian u32 ids: all that were sampled since the batch before, whether or not an event came of
    them. `cached_tokens` is how much of the prompts of all stretches so far the engine had in its cache, once that is
    known. `logprobs` has one a token where the response shows them, and else none. `outcomes` are those of the calls
    that ended since the batch before. `pieces` are what the tokens say, of a model that doesn't speak Harmony.
    """

    events: list[Event]
    tokens: bytes = b""
    cached_tokens: Cached = None
    logprobs: Sequence[TokenLogprobs] = ()
    outcomes: Sequence[Outcome] = ()
    pieces: Sequence[Piece] = ()


class _Deltas(msgspec.Struct, array_like=True, gc=False):
    kind: int
    item: bytes
    """The hex digits of its id, behind the prefix of its kind."""
    output_index: int
    texts: list[str]


class _Written(msgspec.Struct, array_like=True, gc=False):
    tokens: bytes
    cached_tokens: Cached
    runs: list[_Deltas | bytes]
    logprobs: list[TokenLogprobs]
    outcomes: list[Outcome]
    pieces: list[Piece]


_KINDS: tuple[tuple[type[events.Delta], str], ...] = (
    (events.OutputTextDelta, "msg_"),
    (events.ReasoningTextDelta, "rs_"),
    (events.FunctionCallArgumentsDelta, "fc_"),
    (events.SummaryTextDelta, "rs_"),
    (events.CustomToolCallInputDelta, "ctc_"),
    (events.CodeInterpreterCallCodeDelta, "ci_"),
    (events.McpCallArgumentsDelta, "mcp_"),
)
"""Deltas, and how ids of their items begin. The place of a kind is what a batch says: only ever add,
with a new version of a batch.
"""

_OF_PARTS = (events.OutputTextDelta, events.ReasoningTextDelta, events.SummaryTextDelta)
"""Deltas that name a part of their item, which is the first."""

_PLACES = {kind: place for place, (kind, _) in enumerate(_KINDS)}

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(_Written).decode
_json = msgspec.json.Encoder().encode
_read: Any = msgspec.json.Decoder(reduce(lambda one, other: one | other, events.KINDS)).decode


def batch_of(ids: Sequence[int]) -> bytes:
    """Sampled ids as a batch has them."""
    try:
        return tokens.pack(ids)
    except OverflowError:
        return tokens.pack(token if 0 <= token <= tokens.LAST_LEGAL else UNKNOWN_TOKEN for token in ids)


def encode_batch(batch: Batch) -> bytes:
    """The bytes of a batch. Raises ValueError unless the numbers of its events follow each other."""
    written = batch.events
    if written and written[-1].sequence_number - written[0].sequence_number != len(written) - 1:
        raise ValueError(f"{len(written)} events that don't end with number {written[-1].sequence_number}")
    runs, logprobs, outcomes, pieces = _runs(written), list(batch.logprobs), list(batch.outcomes), list(batch.pieces)
    made = _Written(batch.tokens, batch.cached_tokens, runs, logprobs, outcomes, pieces)
    return bytes([FORMAT]) + squeeze(_pack(made))


def _runs(batch: Iterable[Event]) -> list[_Deltas | bytes]:
    runs: list[_Deltas | bytes] = []
    kind: type[Event] | None = None
    item_id, output_index = "", 0
    texts: list[str] = []
    for event in batch:
        if not _is_plain(event):
            kind = None
            runs.append(_json(event))
        elif type(event) is kind and event.item_id == item_id and event.output_index == output_index:
            texts.append(event.delta)
        elif (run := _begin_run(event)) is None:
            kind = None
            runs.append(_json(event))
        else:
            kind, item_id, output_index, texts = type(event), event.item_id, event.output_index, run.texts
            runs.append(run)
    return runs


def _begin_run(delta: events.Delta) -> _Deltas | None:
    """The run that a delta begins, or None where its item has no id of ours."""
    place = _PLACES[type(delta)]
    prefix = _KINDS[place][1]
    try:
        digits = bytes.fromhex(delta.item_id[len(prefix) :])
    except ValueError:
        return None
    if _item_id(prefix, digits) != delta.item_id:
        return None
    return _Deltas(place, digits, delta.output_index, [delta.delta])


def _is_plain(event: Event) -> TypeGuard[events.Delta]:
    """Whether it is a delta of which a run says all there is."""
    kind = type(event)
    if kind is events.OutputTextDelta:
        text = cast(events.OutputTextDelta, event)
        return text.content_index == 0 and not text.logprobs
    if kind is events.ReasoningTextDelta:
        return cast(events.ReasoningTextDelta, event).content_index == 0
    if kind is events.SummaryTextDelta:
        return cast(events.SummaryTextDelta, event).summary_index == 0
    return kind in _PLACES


def decode_batch(blob: bytes, last: int) -> Batch:
    """The batch whose last event has the number `last`, equal to what was encoded. Raises NewerFormat."""
    return _read_batch(blob, lambda written: _events(written, last))


def decode_sampled(blob: bytes) -> Batch:
    """The part of a batch that a replay needs, which makes the events anew. Raises NewerFormat."""
    return _read_batch(blob, lambda _: [])


def _read_batch(blob: bytes, make: Callable[[_Written], list[Event]]) -> Batch:
    check_version(blob, FORMAT)
    try:
        written = _unpack(unsqueeze(blob[1:]))
        made = make(written)
    except (msgspec.ValidationError, IndexError) as error:  # an event, a value or a kind that this release doesn't know
        raise NewerFormat(FORMAT + 1) from error
    sampled = (tuple(written.logprobs), tuple(written.outcomes), tuple(written.pieces))
    return Batch(made, written.tokens, written.cached_tokens, *sampled)


def _events(written: _Written, last: int) -> list[Event]:
    number = last + 1 - sum([1 if type(run) is bytes else len(cast(_Deltas, run).texts) for run in written.runs])
    out: list[Event] = []
    for run in written.runs:
        if isinstance(run, bytes):
            out.append(_read(run))
            number += 1
        else:
            kind, prefix = _KINDS[run.kind]
            part: tuple[int, ...] = (0,) if kind in _OF_PARTS else ()
            of = (_item_id(prefix, run.item), run.output_index, *part)
            make = cast(Callable[..., Event], kind)
            out += [make(*of, text, sequence_number=place) for place, text in enumerate(run.texts, number)]
            number += len(run.texts)
    return out


@lru_cache(maxsize=1024)
def _item_id(prefix: str, digits: bytes) -> str:
    """An item's id; the same object each time, by which encoders know that an item goes on."""
    return prefix + digits.hex()
