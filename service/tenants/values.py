"""The values of keys: made, recognised by their checksum, and named without saying them.

    sk-hm-        43 letters and digits, 256 bits of chance · 6 of their CRC-32       a project's
    sk-hm-admin-  the same                                                            an administrator's

The checksum lets a scanner for secrets know a key that was published, and turns a typing error away before any look-up.
A value is shown once, when it is made. Only its digest is stored: a fast one will do, as a value has so much chance.
Pure, but for the chance.
"""

import re
import secrets
from hashlib import sha256
from string import ascii_letters, digits
from zlib import crc32

PREFIX = "sk-hm-"
ADMIN_PREFIX = "sk-hm-admin-"

CHANCE_CHARS = 43
"""62 to this power is more than 2 to the 256th."""

CHECK_CHARS = 6
ALPHABET = digits + ascii_letters

SHOWN_START, SHOWN_END = len(PREFIX) + 3, 4
"""How many characters of a key are shown of its start and of its end, which tell it from others."""

_FORM = re.compile(rb"(sk-hm-(?:admin-)?[0-9A-Za-z]{%d})([0-9A-Za-z]{%d})" % (CHANCE_CHARS, CHECK_CHARS))


def new_value(prefix: str = PREFIX) -> str:
    """A key that nobody else has."""
    body = prefix + "".join(secrets.choice(ALPHABET) for _ in range(CHANCE_CHARS))
    return body + _check(body.encode())


def is_whole(value: bytes) -> bool:
    """Whether a value can be one that was made here: it has the form, and its checksum."""
    match = _FORM.fullmatch(value)
    return match is not None and match[2].decode() == _check(match[1])


def is_admins(value: bytes) -> bool:
    """Whether a value that is whole was made for an administrator."""
    return value.startswith(ADMIN_PREFIX.encode())


def digest_of(value: bytes) -> str:
    """The digest of a value, which is stored in its place: SHA-256 in hex."""
    return sha256(value).hexdigest()


def redacted(value: str) -> str:
    """The part of a value by which its owner knows it."""
    start = SHOWN_START if value.startswith(PREFIX) else 0
    return f"{value[:start]}...{value[-SHOWN_END:]}"


def _check(body: bytes) -> str:
    number, text = crc32(body), ""
    for _ in range(CHECK_CHARS):
        number, digit = divmod(number, len(ALPHABET))
        text = ALPHABET[digit] + text
    return text
