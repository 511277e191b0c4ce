"""The vocabularies of tiktoken, where programs look for them before they ask the network; bpe-openai carries them."""

import gzip
import hashlib
from importlib.util import find_spec
from pathlib import Path

SOURCE = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
"""Where tiktoken would fetch one; its cache has files named by a hash of that."""


def write_vocabulary(name: str, folder: Path) -> None:
    """Put one into the folder that TIKTOKEN_CACHE_DIR names."""
    package = find_spec("bpe_openai")
    assert package is not None
    assert package.origin is not None
    content = gzip.decompress((Path(package.origin).parent / f"data/{name}.tiktoken.gz").read_bytes())
    source = SOURCE.format(name).encode()
    (folder / hashlib.sha1(source, usedforsecurity=False).hexdigest()).write_bytes(content)
