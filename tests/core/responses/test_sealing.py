"""Seals: only their tenant opens them, any change is noticed, the same is always sealed the same, and what is none of
the kind that it should be is refused in words.
"""

import asyncio
import random
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.responses.output import sealed
from service.responses.output.sealed import COMPACTION, MAX_PAYLOAD_BYTES, REASONING, TooLong, Unsealable
from service.responses.seal import MAX_KIND_BYTES, TAG, Sealer, Seals
from store.errors import ArchiveUnavailable, StoreUnavailable
from store.turn import StoredMessage

OLD, NEW = b"o" * 32, b"n" * 32
PAYLOAD = b"The user wants a joke."
FORMAT_1 = "hs_AW_PE2Gc1WY1uS_oTIR3spptFrNh6igTVPFE6rhcdXF381nD43BlOrFuAyPNsvBk8HTByZU"
"""PAYLOAD as it is sealed for ever, since clients keep such texts for as long as they like."""


def sealer(tenant: str = "acme", *keys: bytes) -> Sealer:
    return Sealer(tenant, keys or (OLD,))


async def nobody() -> bytes:
    raise AssertionError("nobody may be asked")


@given(kind=st.text("abc-_.", min_size=1, max_size=MAX_KIND_BYTES), payload=st.binary(max_size=200))
def test_what_was_sealed_is_opened_as_it_was(kind: str, payload: bytes) -> None:
    text = sealer().seal(kind, payload)

    assert sealer().open(text) == (kind, payload)
    assert re.fullmatch(r"hs_[A-Za-z0-9_-]+", text)


def test_the_same_is_always_sealed_the_same_and_something_else_is_not() -> None:
    texts = [sealer().seal("reasoning", payload) for payload in (PAYLOAD, PAYLOAD, PAYLOAD + b"!")]

    assert texts[0] == texts[1] != texts[2]
    assert sealer().seal("compaction", PAYLOAD) != texts[0]
    assert texts[0] == FORMAT_1


def test_no_other_tenant_opens_a_seal() -> None:
    with pytest.raises(Unsealable, match="not sealed by this service for you"):
        sealer("other").open(sealer("acme").seal("reasoning", PAYLOAD))


def test_the_first_key_seals_and_all_open() -> None:
    old, new = sealer("acme", OLD).seal("reasoning", PAYLOAD), sealer("acme", NEW).seal("reasoning", PAYLOAD)
    both = sealer("acme", NEW, OLD)

    assert both.seal("reasoning", PAYLOAD) == new
    assert both.open(old) == both.open(new) == ("reasoning", PAYLOAD)
    with pytest.raises(Unsealable):
        sealer("acme", NEW).open(old)


def test_no_bit_of_a_seal_can_be_changed() -> None:
    text = sealer().seal("reasoning", PAYLOAD)
    blob = urlsafe_b64decode(text[len(TAG) :] + "==")
    for place in range(len(blob) * 8):
        changed = bytearray(blob)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(Unsealable):
            sealer().open(TAG + urlsafe_b64encode(changed).decode().rstrip("="))


@given(text=st.text(max_size=80) | st.text("ABCabc019-_=", max_size=80).map(lambda body: TAG + body))
def test_nothing_else_is_a_seal(text: str) -> None:
    with pytest.raises(Unsealable):
        sealer().open(text)


def test_a_seal_is_written_in_one_way_alone() -> None:
    text = sealer().seal("reasoning", PAYLOAD + b"..")
    chance = random.Random(1)
    forms = [
        text + "=",
        text + "\n",
        text.replace("_", "/"),
        text[:-1],
        text[1:],
        f" {text}",
        text[:9] + "\n" + text[9:],
    ]
    forms += [text[:place] + "!" + text[place:] for place in chance.sample(range(len(text)), 20)]
    forms += [text[:-1] + last for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if last != text[-1]]
    for form in forms:
        with pytest.raises(Unsealable):
            sealer().open(form)


def test_the_most_that_can_be_sealed_can_be_opened_and_no_more_is_sealed() -> None:
    kind, most = "k" * MAX_KIND_BYTES, bytes(MAX_PAYLOAD_BYTES)

    assert sealer().open(sealer().seal(kind, most)) == (kind, most)
    with pytest.raises(TooLong, match="can't be sealed"):
        sealer().seal(kind, most + b"x")


def test_a_refusal_shows_nothing_of_what_was_sent() -> None:
    with pytest.raises(Unsealable) as caught:
        sealer().open("my secret thoughts")
    assert "thoughts" not in str(caught.value)


@pytest.mark.parametrize("kind", ["", "k" * (MAX_KIND_BYTES + 1), "a\0b"])
def test_a_kind_that_could_not_be_told_from_the_payload_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="can't be sealed"):
        sealer().seal(kind, b"")


async def test_where_keys_are_set_the_store_is_not_asked_for_its_own() -> None:
    assert (await Seals([OLD.decode()], nobody).of("acme")).seal("r", b"") == sealer("acme", OLD).seal("r", b"")


async def test_without_keys_the_store_is_asked_once_by_however_many() -> None:
    asked: list[int] = []

    async def fetch() -> bytes:
        asked.append(1)
        await asyncio.sleep(0)
        return OLD

    seals = Seals([], fetch)
    found = await asyncio.gather(*(seals.of(tenant) for tenant in ("acme", "other") * 10))

    assert len(asked) == 1
    assert found[0].seal("r", b"") == sealer("acme").seal("r", b"")
    assert found[1].seal("r", b"") == sealer("other").seal("r", b"")


@pytest.mark.parametrize("away", [StoreUnavailable, ArchiveUnavailable])
async def test_a_store_that_is_down_harms_those_alone_who_need_a_key_and_is_asked_again(away: type[Exception]) -> None:
    answers: list[bytes] = []

    async def fetch() -> bytes:
        if not answers:
            raise away("down")
        return answers.pop()

    seals = Seals([], fetch)
    without = await seals.of("acme")
    for use in (lambda: without.seal("r", b""), lambda: without.open("hs_x")):
        with pytest.raises(StoreUnavailable):
            use()
    answers.append(OLD)
    assert (await seals.of("acme")).open(sealer().seal("r", b"x")) == ("r", b"x")


class Clear:
    """An opener of what was never closed."""

    def __init__(self, kind: str, payload: bytes) -> None:
        self.opened = kind, payload

    def open(self, text: str) -> tuple[str, bytes]:
        assert text == "sealed"
        return self.opened


def test_one_kind_is_not_taken_for_the_other() -> None:
    with pytest.raises(Unsealable, match="the content of a compaction item, not of a reasoning item"):
        sealed.open_reasoning("sealed", Clear(COMPACTION, sealed.compaction("x")))
    with pytest.raises(Unsealable, match="the content of a reasoning item, not of a compaction item"):
        sealed.open_compaction("sealed", Clear(REASONING, sealed.reasoning("x")))


def test_what_a_later_release_sealed_is_refused() -> None:
    payload = b"\xff" + sealed.reasoning("x")[1:]

    for kind, open_sealed in ((REASONING, sealed.open_reasoning), (COMPACTION, sealed.open_compaction)):
        with pytest.raises(Unsealable, match="by a later release"):
            open_sealed("sealed", Clear(kind, payload))


class Later(StoredMessage, frozen=True, array_like=True):
    """A message with another field at its end."""

    more: str | None = None


def test_the_bytes_of_a_payload_stay_what_they_are() -> None:
    message = StoredMessage("assistant", b"\1\0\0\0", "analysis")

    assert sealed.reasoning("so") == b"\x01\xa2so"
    assert sealed.reasoning(message) == b"\x01\x97\xa9assistant\xc4\x04\x01\x00\x00\x00\xa8analysis\xc0\xc0\xc0\xc0"
    assert sealed.compaction("so", [message]) == b"\x01\x93\xa2so\x91" + sealed.reasoning(message)[1:] + b"\x90"
    more = Later(*msgspec.structs.astuple(message), "a field of a later release")
    assert sealed.reasoning(more) == sealed.reasoning(message)
