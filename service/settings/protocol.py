"""The settings of what the protocol offers beside sampling: seals, stored prompts, and what the model can't see."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

MAX_SEAL_KEYS = 16
LEAST_SEAL_KEY_CHARS = 32
"""Twice what an attacker could ever guess, where it is `openssl rand`'s."""

_SEAL_KEY = re.compile(rf"[\x21-\x7e]{{{LEAST_SEAL_KEY_CHARS},512}}")


class ProtocolSettings(BaseSettings):
    """What the protocol needs besides. The text below each setting is its help and its documentation."""

    model_config = SettingsConfigDict(use_attribute_docstrings=True)

    seal_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field((), max_length=MAX_SEAL_KEYS)
    """Keys for what clients keep sealed: encrypted reasoning and compacted conversations. Comma-separated, each of 32
    characters or more; the first seals, all open. Empty makes one in Redis."""
    prompts_dir: str = ""
    """Folder of the stored prompts that a request may name by `prompt`. Empty has none."""
    images: Literal["placeholder", "refuse"] = "placeholder"
    """What happens to images in the input, which the model can't read: `placeholder`, a text that says so in their
    place; `refuse`, a 400."""

    @field_validator("seal_keys", mode="before")
    @classmethod
    def _parse_seal_keys(cls, value: object) -> object:
        return _parsed(value) if isinstance(value, str) else value

    @field_validator("seal_keys")
    @classmethod
    def _check_seal_keys(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for place, key in enumerate(value, start=1):
            if not _SEAL_KEY.fullmatch(key.get_secret_value()):
                raise ValueError(
                    f"entry {place}: should be {LEAST_SEAL_KEY_CHARS} to 512 printable ASCII characters, no space; "
                    "`openssl rand -base64 32` prints one"
                )
            if key in value[: place - 1]:
                raise ValueError(f"entry {place}: this key is listed twice")
        return value

    @field_validator("prompts_dir")
    @classmethod
    def _check_prompts_dir(cls, value: str) -> str:
        folder = Path(value).expanduser().absolute()
        if value and not folder.is_dir():
            raise ValueError("should be a folder that exists")
        return str(folder) if value else ""


def _parsed(text: str) -> tuple[SecretStr, ...]:
    return tuple(SecretStr(each.strip()) for each in text.split(",") if each.strip())
