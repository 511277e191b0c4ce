"""Pictures of a request: their formats by their bytes, their sizes by their heads, and where they go."""

import hashlib
import struct
from io import BytesIO
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from service.api.content import IMAGE, USUAL_BOUNDS, PictureBounds, PictureHead, head_of
from service.api.items import Gathered, InputItem
from service.api.read import read_input
from service.errors import InvalidRequest
from service.steps import in_one_go
from store.turn import PICTURES
from tests.support.lengths import lengths
from tests.support.pictures import gif, jpeg, png, said, url_of, webp
from tests.support.responses.requests import prompt

HEADS = {
    "png": (png(300, 2), PictureHead("png", 300, 2)),
    "gif": (gif(7, 9), PictureHead("gif", 7, 9)),
    "jpeg": (jpeg(640, 480), PictureHead("jpeg", 640, 480)),
    "lossy": (webp(b"VP8 ", 100, 50), PictureHead("webp", 100, 50)),
    "lossless": (webp(b"VP8L", 16_384, 3), PictureHead("webp", 16_384, 3)),
    "extended": (webp(b"VP8X", 1 << 24, 2), PictureHead("webp", 1 << 24, 2)),
}
DOT = png()
HEX = hashlib.blake2b(DOT, digest_size=32).hexdigest()


def read(words: Any, bounds: PictureBounds = USUAL_BOUNDS) -> tuple[list[InputItem], Gathered]:
    gathered = Gathered(bounds)
    raw = msgspec.Raw(msgspec.json.encode(words))
    return in_one_go(read_input(raw, gathered, max_items=4096)), gathered


def test_a_format_is_known_by_the_bytes_and_the_size_by_the_head() -> None:
    for data, head in HEADS.values():
        assert head_of(data) == head


def test_no_size_hides_behind_another() -> None:
    """Pillow makes such pictures as large as what is hidden, though their head says that they are one pixel."""
    small, large = png(1, 1), png(9_000, 1)
    head = slice(8, 33)  # of a PNG
    with pytest.raises(ValueError, match="two heads"):
        head_of(small[:33] + large[head] + small[33:])
    frame = b"," + struct.pack("<HHHHB", 10, 0, 9_000, 9_000, 0)
    for before in (b"", b"!\xfe\0", b"!\xf9\x04abcd\0", b"!\xfe\x02ab\x01c\0", b"\0"):
        assert head_of(gif(1, 1) + before + frame) == PictureHead("gif", 9_010, 9_000)
    colours = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x81, 0, 0) + b";" * 12
    assert head_of(colours + frame) == PictureHead("gif", 9_010, 9_000)
    with pytest.raises(ValueError, match="without a frame"):
        head_of(jpeg(1, 1, before=2_000))
    small, large = jpeg(8, 8)[26:-2], jpeg(9_000, 9_000)[26:-2]  # frames alone
    with pytest.raises(ValueError, match="two frames"):
        head_of(b"\xff\xd8" + small + large + b"\xff\xda")
    comment = b"\xff\xfe" + struct.pack(">H", 0xBFF1) + b"a" * 0xBFEF  # it ends where FF C0 00 as a length says
    filled = b"\xff\xd8\xff" + large.replace(b"\xc2", b"\xc0", 1) + comment + small + b"\xff\xda"
    with pytest.raises(ValueError, match="two frames"):
        head_of(filled)
    assert head_of(filled.replace(small, b"")) == PictureHead("jpeg", 9_000, 9_000)
    for lead in (b"\xff\xd0", b"\xff\x01", b"\0"):  # which have no length
        with pytest.raises(ValueError, match="something other than segments"):
            head_of(jpeg(8, 8)[:26] + lead + large + b"\xff\xda")
    for hidden, fault in ((b"!\xf9\0", "empty extension"), (b"\0" * 9_000, "first 8,192 blocks")):
        with pytest.raises(ValueError, match=fault):
            head_of(gif(1, 1) + hidden + frame)


@given(st.sampled_from(sorted(HEADS)), st.data())
def test_whatever_bytes_there_are_they_have_a_head_or_are_refused(name: str, data: st.DataObject) -> None:
    whole = bytearray(HEADS[name][0])
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=6)):
        whole[place] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        found = head_of(cut)
    except ValueError:
        return
    assert found.width > 0 < found.height


def drawn(kind: str, **how: Any) -> list[bytes]:
    """Pictures of a kind in two sizes, as Pillow writes them."""
    found: list[bytes] = []
    for size in ((9, 7), (700, 650)):
        out = BytesIO()
        Image.new(how.pop("mode", "RGB"), size, 3).save(out, kind, **how)
        found.append(out.getvalue())
    return found


DRAWN = [
    *(drawn("JPEG"), drawn("JPEG", progressive=True, comment=b"a" * 99), drawn("PNG"), drawn("WEBP")),
    *(
        drawn("WEBP", lossless=True),
        drawn("WEBP", mode="RGBA", exif=b"a" * 9),
        drawn("GIF"),
        drawn("GIF", comment=b"a"),
    ),
]
LEADS = [
    b"\xff",
    b"\xff\xff",
    b"\0",
    *(bytes((0xFF, each)) for each in range(0xC0, 256)),
    b"!\xfe",
    b"!\xf9",
    b",",
    b";",
]


def hurt(samples: list[bytes], random: Random) -> bytes:
    """A small picture with pieces of a large one in it, pieces of it twice or not at all, and bytes that begin
    something.
    """
    made, large = bytearray(samples[0]), samples[1]
    for _ in range(random.randint(1, 4)):
        at, begin = random.randrange(min(len(made), 700)), random.randrange(min(len(large), 700))
        leads = [place for place in range(len(made)) if made[place] in b"\xff,!"]
        at = random.choice(leads) if leads and random.random() < 0.5 else at
        length = random.choice((1, 2, 4, 10, 19, 25))
        kind = random.randrange(5)
        if kind == 0:
            made[at : at + random.randint(0, length)] = large[begin : begin + length]
        elif kind == 1:
            frames = [place for place in range(len(large)) if large[place : place + 2] in (b"\xff\xc0", b"\xff\xc2")]
            made[at:at] = large[frames[0] : frames[0] + 19] if frames else large[8:33]
        elif kind == 2:
            made[at:at] = random.choice(LEADS)
        elif kind == 3:
            made[at] = random.randrange(256)
        else:
            del made[at : at + length]
        made = made or bytearray(samples[0])
    return bytes(made)


@pytest.mark.parametrize("number", lengths(500, 25_000))
def test_pillow_finds_no_more_pixels_than_a_head_says(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which reads the picture behind a server of vLLM's."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    read = 0
    for seed in range(number):
        for samples in DRAWN:
            data = hurt(samples, Random(seed))
            try:
                head = head_of(data)
                with Image.open(BytesIO(data)) as opened:
                    pixels = opened.width * opened.height
            except (ValueError, OSError, SyntaxError, struct.error, EOFError, OverflowError, IndexError):
                continue
            read += 1
            assert pixels <= head.width * head.height, data.hex()
    assert read > number


FEW = PictureBounds(bytes=10_000, pixels=2_000, request=2)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (url_of(b"<svg/>", "svg+xml"), "no PNG, JPEG, WebP or GIF"),
        (url_of(DOT[:20]), "cut off"),
        (url_of(png(0, 4)), "no pixels"),
        (url_of(png(50, 50)), "50 x 50 pixels, more than 2,000"),
        (url_of(png(comment=b"a" * 10_000)), "more than 10,000 bytes"),
        (url_of(DOT)[:-8] + "@@@@" + url_of(DOT)[-4:], "base64"),
        ("file:///etc/passwd", "data URL"),
    ],
)
def test_a_picture_that_can_not_be_taken_is_refused_by_its_place(url: str, words: str) -> None:
    message = [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]
    with pytest.raises(InvalidRequest, match=words) as refused:
        read(message, FEW)
    assert refused.value.param == "input[0].content[0].image_url"


def test_a_request_has_only_so_many_pictures_each_as_often_as_it_is_shown() -> None:
    read(said(DOT, DOT), FEW)
    with pytest.raises(InvalidRequest, match="more than 2") as refused:
        read([*said(DOT), *said("and", DOT, DOT)], FEW)
    assert refused.value.param == "input[1].content[2].image_url"


def test_base64_that_is_padded_in_its_middle_is_refused() -> None:
    padded = url_of(png(comment=b"a" * 200_000))
    end = padded.index(",") + 1 + 131_072
    with pytest.raises(InvalidRequest, match="base64"):
        read(
            [
                {
                    "role": "user",
                    "content": [{"type": "input_image", "image_url": f"{padded[: end - 4]}YQ=={padded[end:]}"}],
                }
            ]
        )


def test_a_long_picture_is_read_in_steps() -> None:
    raw = msgspec.Raw(msgspec.json.encode(said(png(comment=b"a" * 4_000_000))))
    assert sum(1 for _ in read_input(raw, Gathered(), max_items=8)) > 30


def test_a_prompt_in_harmony_has_a_line_as_ever_and_a_note_that_nobody_writes() -> None:
    shown = prompt(input=said("Before", DOT, "after"))
    told = prompt(input=f"Before\n{IMAGE}\nafter")
    assert list(shown.tokens) == list(told.tokens)
    message, note = shown.messages
    assert (note.role, note.tokens, note.item) == (PICTURES, b"", message.item)
    assert [each.digest.hex() for each in shown.pictures] == [HEX]
    assert prompt(input=f"Before\n{IMAGE}\nafter").pictures == ()
