"""The pictures of responses, which items, prompts and queued jobs have by their digests alone (service/pictures.py).

A picture is put in where items are listed, and where a server is asked: never before, and never twice. One at a URL of
http is fetched as its request is read, and is from then on as if its data URL had been sent.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

import msgspec

from service.api.content import USUAL_BOUNDS, PictureBounds, data_url, take_picture
from service.api.items import Gathered, PictureElsewhere, too_many_pictures
from service.engine.port import EngineUnavailable
from service.errors import InvalidRequest, unavailable
from service.logs import event
from service.pictures import sizes_in
from service.shares import Room, aside
from service.ssrf import FetchFailure, is_within
from service.steps import in_steps
from service.store_away import retry
from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.turn import MOST_PICTURE_BYTES, Picture

logger = logging.getLogger(__name__)

_REFERENCE = re.compile(rb'"image_url":"picture:([0-9a-f]{64})"')
"""A reference in an item with content parts, in which nobody else writes the names of members."""


class _Kind(msgspec.Struct):
    type: str = ""


_kind = msgspec.json.Decoder(_Kind)


async def with_data_urls(
    store: ConversationHistoryStore, tenant: str, turn: str, items: Sequence[msgspec.Raw]
) -> list[msgspec.Raw]:
    """The items of a turn with data URLs in the place of references; null for a picture that is there no more. Raises
    StoreUnavailable.
    """
    wanted = dict.fromkeys(digest for item in items for digest in _references(item))
    if not wanted:
        return [*items]
    found = await store.pictures(tenant, turn, [bytes.fromhex(digest.decode()) for digest in wanted])
    return await with_these(items, found)


async def with_these(items: Sequence[msgspec.Raw], pictures: Mapping[bytes, bytes]) -> list[msgspec.Raw]:
    """The items with data URLs of these pictures, which are by their digests."""
    urls = {digest.hex().encode(): b'"%b"' % await in_steps(data_url(data)) for digest, data in pictures.items()}
    made: list[msgspec.Raw] = []
    for item in items:
        if _references(item):
            put = _REFERENCE.sub(lambda found: b'"image_url":%b' % urls.get(found[1], b"null"), bytes(item))
            item = msgspec.Raw(put)
        made.append(item)
    return made


def _references(item: msgspec.Raw) -> list[bytes]:
    """The digests of the pictures to which an item refers, in hex."""
    found = _REFERENCE.findall(memoryview(item))
    with_parts = ("message", "function_call_output", "custom_tool_call_output")
    return found if found and _kind.decode(item).type in with_parts else []


ROOM_BYTES = 256 << 20
"""The most bytes of pictures of all prompts that are at engines: about four times as much is in memory then."""


class Pictures:
    """The pictures of a response's prompts as data URLs: those that came with its request, and stored ones."""

    def __init__(
        self,
        room: Room,
        store: ConversationHistoryStore,
        tenant: str,
        id: str,
        given: Sequence[Picture],
        patience: float,
    ) -> None:
        """`given` are those that came with the request for the response `id`, and prompts share the `room`. The store
        may be away for `patience` seconds.
        """
        self._room = partial(room.space, tenant)
        self._read = partial(store.pictures, tenant, id)
        self._patience, self._id = patience, id
        self._given = {each.digest: each.data for each in given}

    @asynccontextmanager
    async def urls(self, messages: bytes, made: Sequence[Picture] = ()) -> AsyncGenerator[Mapping[bytes, bytes]]:
        """The data URLs to which the messages of a transcript refer, by digests in hex, until the end of the block; one
        that is there no more is left out. The response itself has `made` some, which nobody has stored yet. Waits for
        room. Raises EngineUnavailable while the store is away.
        """
        sizes = sizes_in(messages)
        if not sizes:
            yield {}
            return
        self._given |= {each.digest: each.data for each in made}
        async with self._room(sum(size for _, size in sizes)):
            yield await self._urls({digest: bytes.fromhex(digest.decode()) for digest, _ in sizes})

    async def _urls(self, wanted: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
        stored = [key for key in wanted.values() if key not in self._given]
        try:
            found = await retry(partial(self._read, stored), self._patience) if stored else {}
        except StoreUnavailable as error:
            raise EngineUnavailable("the store is away, and the prompt has pictures") from error
        found |= self._given
        if gone := [digest for digest, key in wanted.items() if key not in found]:
            event(
                logger, logging.WARNING, "pictures of a conversation are gone", response_id=self._id, pictures=len(gone)
            )
        return {digest: await in_steps(data_url(found[key])) for digest, key in wanted.items() if key in found}


FETCHED_BYTES = 256 << 20
"""The most bytes of pictures that are fetched, or that runs hold which were."""

FETCHED_PARTS = 4
"""So many tenants have to fetch at once for another one to wait: each has such a part of them at most."""

FETCH_SECONDS = 20.0
"""How long the pictures of one request may take together."""

ROOM_SECONDS = 10.0
"""How long they wait for room."""

ANY_HOST = "*"
_ADVICE = "Send the picture itself, as a data URL."

Fetch = Callable[[str, tuple[str, ...]], Awaitable[bytes]]
"""The bytes at a URL, within these domains if there are any. Raises FetchFailure."""


async def fetch_nothing(url: str, domains: tuple[str, ...]) -> bytes:
    """No bytes at all, where the operator names no host of pictures. Raises FetchFailure."""
    raise FetchFailure("no host is allowed")


class PictureFetcher:
    """Fetches the pictures of requests from the hosts that the bounds name."""

    def __init__(self, fetch: Fetch, room: Room) -> None:
        """Requests share the `room`."""
        self._fetch, self._room = fetch, room

    async def take(
        self,
        tenant: str,
        gathered: Gathered,
        resources: AsyncExitStack,
        may_begin: Callable[[], Awaitable[None]],
        *,
        refuses: bool,
    ) -> None:
        """Take the pictures of a request that are elsewhere, which are in memory as long as its `resources`, once
        `may_begin` has refused nothing. Those of other hosts leave their line, or are refused where it `refuses` them.
        Raises InvalidRequest, ApiError 503, and as `may_begin`.
        """
        bounds, wanted = gathered.bounds or USUAL_BOUNDS, list[PictureElsewhere]()
        for each in gathered.elsewhere:
            if _is_allowed(each.part["image_url"], bounds):
                wanted.append(each)
            elif refuses and not each.replayed:
                said = (
                    f"The picture of '{each.where}' is not fetched, because the operator doesn't allow its host. "
                    f"{_ADVICE}"
                )
                raise InvalidRequest(said, code="invalid_image_url", param=each.where)
        while wanted and gathered.shown + len(wanted) > bounds.request:
            if gathered.replayed:
                gathered.make_room()
            elif wanted[0].replayed:
                gathered.leave_out(wanted.pop(0).part)
            else:
                raise too_many_pictures(wanted[-1].where, bounds)
        if not wanted:
            return
        await may_begin()
        most = min(len({each.part["image_url"] for each in wanted}) * bounds.bytes, MOST_PICTURE_BYTES)
        async with aside.get()():
            try:
                async with asyncio.timeout(ROOM_SECONDS):
                    keep = await resources.enter_async_context(self._room.space(tenant, most))
            except TimeoutError:
                raise unavailable("This process fetches too many pictures. Try again in a moment.") from None
            keep(await self._fetch_all(wanted, gathered, bounds))

    async def _fetch_all(self, wanted: Sequence[PictureElsewhere], gathered: Gathered, bounds: PictureBounds) -> int:
        """Fetch pictures one after another, each URL once; the bytes of them all. Raises InvalidRequest."""
        found = dict[str, Picture]()
        domains = () if ANY_HOST in bounds.urls else bounds.urls
        until = asyncio.get_running_loop().time() + FETCH_SECONDS
        for part, where, replayed in wanted:
            url = part["image_url"]
            gathered.leaving_out = gathered.left_out if replayed else None
            try:
                async with asyncio.timeout_at(until):
                    if url not in found:
                        found[url] = await asyncio.to_thread(Picture.of, await self._fetch(url, domains))
                gathered.take(take_picture(part, found[url], where, bounds), part, where, bounds)
            except (FetchFailure, TimeoutError, InvalidRequest) as error:
                if replayed:
                    gathered.leave_out(part)
                    continue
                if isinstance(error, InvalidRequest):
                    raise
                fault = str(error) or f"the pictures took more than {FETCH_SECONDS:g} s"
                said = f"The picture of '{where}' could not be downloaded: {fault}. {_ADVICE}"
                raise InvalidRequest(said, code="failed_to_download_image", param=where) from None
        return sum(len(each.data) for each in found.values())


def _is_allowed(url: str, bounds: PictureBounds) -> bool:
    """Whether a URL's host is one from which pictures are fetched."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return False
    return host is not None and (ANY_HOST in bounds.urls or (bounds.urls != () and is_within(host, bounds.urls)))
