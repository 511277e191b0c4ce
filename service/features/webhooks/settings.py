"""The settings of webhooks."""

import binascii
from base64 import b64decode
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from service.settings.core import CoreSettings
from service.settings.group import Secret, shown_as
from service.settings.sources import PREFIX
from service.settings.urls import check_url, mask_secrets
from service.ssrf import PRIVATELY

SECRET_PREFIX = "whsec_"
LEAST_SECRET_BYTES = 24
"""As Standard Webhooks has it, whose scheme OpenAI's SDKs verify."""


class WebhookSettings(CoreSettings):
    """Where the ends of background responses are sent."""

    heading = "Webhooks"

    webhook_url: Annotated[str, shown_as(mask_secrets)] = Field("", repr=False)
    """The http or https URL that gets the end of each background response. Empty sends none.
    private+http://10.0.0.5/hook allows a private, local or special address."""
    webhook_secret: Secret = SecretStr("")
    """The key that signs webhooks: `whsec_` and at least 24 bytes as base64."""

    @field_validator("webhook_url")
    @classmethod
    def _check_webhook_url(cls, value: str) -> str:
        url = value.removeprefix(PRIVATELY)
        check_url(url, "webhooks are signed with WEBHOOK_SECRET")
        (urlsplit(url).hostname or "").encode("idna")  # raises ValueError for a host that can't be one
        return value

    @field_validator("webhook_secret")
    @classmethod
    def _check_webhook_secret(cls, value: SecretStr) -> SecretStr:
        secret = value.get_secret_value()
        if secret and len(signing_key(secret)) < LEAST_SECRET_BYTES:
            raise ValueError(f"should be {SECRET_PREFIX} and at least {LEAST_SECRET_BYTES} bytes as base64")
        return value

    @model_validator(mode="after")
    def _check_secret(self) -> Self:
        if self.webhook_url and not self.webhook_secret.get_secret_value():
            raise ValueError(
                f"{PREFIX}WEBHOOK_URL is set without {PREFIX}WEBHOOK_SECRET, so webhooks could be forged; set "
                "it to whsec_ and what `openssl rand -base64 32` prints"
            )
        return self


def signing_key(secret: str) -> bytes:
    """The key that a webhook secret stands for; empty for what is no such secret."""
    if not secret.startswith(SECRET_PREFIX):
        return b""
    try:
        return b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        return b""


GROUP = WebhookSettings
