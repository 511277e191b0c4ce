"""Items of type `configuration_update`: an effort, and a format of the answer, for the responses that follow.

In a conversation such an item stays in effect until another replaces that setting. So it is noted beside the messages
of its turn. A reader of a chain finds it there without reading any items.
"""

import msgspec
from msgspec import Raw

from service.api.items import ConfigurationUpdateItem
from service.api.request import Effort
from service.decoding import ABSENT

ROLE = "configuration"
"""The role of such a note."""


class Configuration(msgspec.Struct, frozen=True, omit_defaults=True):
    """Settings in effect; None and ABSENT where nothing was set."""

    effort: Effort | None = None
    format: Raw = ABSENT

    def then(self, later: "Configuration") -> "Configuration":
        """The settings in effect behind a later configuration."""
        return Configuration(later.effort or self.effort, self.format if later.format == ABSENT else later.format)


def noted(item: ConfigurationUpdateItem) -> str:
    """The text of an item's note: the settings that it makes."""
    effort = None if item.reasoning is None else item.reasoning["effort"]
    form = ABSENT if item.text is None else item.text["format"]
    return msgspec.json.encode(Configuration(effort, form)).decode()


def read_note(text: str) -> Configuration:
    """The settings of a note. It is ours, so a fault is msgspec.DecodeError, and no request's."""
    return msgspec.json.decode(text, type=Configuration)
