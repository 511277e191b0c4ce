"""Chat Completions and Messages in a process: their routes, and the recognition of conversations."""

from collections.abc import Iterable, Mapping

from fastapi import APIRouter

from service.process import Feature, Offered, Parts
from service.responses.seen import Recogniser
from service.settings.core import CoreSettings
from service.web.dialect import Translate


class ChatsFeature(Feature):
    """Chat Completions and Messages that are made here."""

    def compose(self, parts: Parts) -> None:
        if parts.settings.chats == "remember":
            from service.features.chats.recognise import digest_after, see

            parts.recogniser = Recogniser(see, digest_after)

    def translations(self, settings: CoreSettings) -> Mapping[str, Translate]:
        if settings.chats == "refuse":
            return {}
        from service.features.chats.dialects import translate

        return {"/v1/chat/completions": translate}

    def routers(self, offered: Offered) -> Iterable[APIRouter]:
        if not offered.remembers:
            return ()
        from service.features.chats import routes

        return (routes.router,)


FEATURE = ChatsFeature()
