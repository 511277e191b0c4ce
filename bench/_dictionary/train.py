"""The dictionary of this release, made of samples.py.

`python -m bench._dictionary.train` writes its file anew: the same bytes each time, with the zstandard that the
lock files pin. A dictionary that a release has shipped never changes: for another one, count NUMBER up first, and leave
the former file where it is.
"""

from typing import Any

import zstandard

from bench._dictionary.samples import Samples
from store.codec import NEWEST, file_of

BYTES = 16_384
"""On text that it wasn't trained with, four times as much spares nothing more, and half as much 3 % less."""

SEGMENT_BYTES, WORD_BYTES = 3_000, 6
"""The parameters k and d of zstd's COVER algorithm: long segments, as responses have long stretches in common."""


def trained() -> bytes:
    samples: list[Any] = list(Samples().blobs())
    made = zstandard.train_dictionary(BYTES, samples, k=SEGMENT_BYTES, d=WORD_BYTES, dict_id=NEWEST)
    return made.as_bytes()


def main() -> None:
    file_of(NEWEST).write_bytes(trained())


if __name__ == "__main__":
    main()
