"""A background response as a job: all that any worker needs to make it, as it stands in the queue.

    version | packing | msgpack of JobSpec

What was asked is read, checked and rendered once, by the process that accepted it: a prompt holds the day on which it
was asked, and a worker may be of another day or have other settings. Never put a key or a tenant's name into a spec:
whose it is, says where it is kept. Never change what a version means: add the next one.
"""

import asyncio

import msgspec

from service.api.ids import MAX_OUTPUT_ITEMS
from service.api.response import Response, decode_response
from service.api.tools.callee import Callee
from service.engine.port import Generation, Sampling
from service.harmony import tokens
from service.responses.output.items.emitter import Seal
from service.responses.output.machine import Machine
from service.responses.rules import Rules
from store.codec import THREAD_FROM_BYTES, check_version, squeeze, unsqueeze
from store.turn import Messages

FORMAT = 2
_VERSION = bytes([FORMAT])


class JobSpec(msgspec.Struct, frozen=True):
    """A response that is to be made: what the engine is asked, and what the turn gets beside the answer.

    `prompt` is the rendered prompt as little-endian u32 ids; `sampling.max_tokens` counts from its end. `base` is the
    response as it is created, as JSON, as tools hold numbers that msgpack can't. `messages` are the new ones and
    `items` the input as listed, JSON as in a Turn. `stored` says whether the response can be continued later, and
    `rules` what holds for the answer.
    """

    id: str
    parent: str | None
    stored: bool
    prompt: bytes
    sampling: Sampling
    model: str
    affinity: str
    cache_salt: str | None
    trace: tuple[tuple[str, str], ...]
    functions: frozenset[str]
    """What the first release's specs had in place of `rules`."""
    base: bytes
    messages: Messages
    items: bytes
    rules: Rules | None = None
    priority: int = 0

    @property
    def response(self) -> Response:
        """The response as it is created."""
        return decode_response(self.base)

    @property
    def size(self) -> int:
        """About how many bytes it takes before it is compressed."""
        again = (*self.rules.kept_messages, *self.rules.newest) if self.rules is not None else ()
        said = sum(len(message.tokens) for message in (*self.messages, *again))
        return len(self.prompt) + len(self.base) + len(self.items) + said


_decoder = msgspec.msgpack.Decoder(JobSpec)


async def encode(spec: JobSpec) -> bytes:
    """The bytes of a spec, by a thread where it takes long."""
    if spec.size > THREAD_FROM_BYTES:
        return await asyncio.to_thread(_encode, spec)
    return _encode(spec)


def _encode(spec: JobSpec) -> bytes:
    return _VERSION + squeeze(msgspec.msgpack.encode(spec))


async def decode(blob: bytes) -> JobSpec:
    """The spec of some bytes, by a thread where it takes long. Raises NewerFormat."""
    check_version(blob, FORMAT)
    if len(blob) > THREAD_FROM_BYTES:
        return await asyncio.to_thread(_decode, blob)
    return _decode(blob)


def _decode(blob: bytes) -> JobSpec:
    return _decoder.decode(unsqueeze(blob[1:]))


def machine_of(spec: JobSpec, seal: Seal | None = None) -> Machine:
    """A machine at the beginning of the response: `queued`, `start` and what was sampled so far are still to come."""
    rules = spec.rules or _rules_of_the_first(spec)
    return Machine(spec.response, rules, len(spec.prompt) // tokens.BYTES_A_TOKEN, seal)


def _rules_of_the_first(spec: JobSpec) -> Rules:
    callees = tuple(Callee(name) for name in sorted(spec.functions))
    return Rules(callees, parallel=MAX_OUTPUT_ITEMS if spec.response.parallel_tool_calls else 1)


def generation_of(spec: JobSpec) -> Generation:
    """What the engine is asked at the beginning; course.py has what it is asked later on."""
    return Generation(
        id=spec.id,
        prompt=tokens.unpack(spec.prompt),
        sampling=spec.sampling,
        model=spec.model,
        affinity=spec.affinity,
        cache_salt=spec.cache_salt,
        priority=spec.priority,
        trace=spec.trace,
    )
