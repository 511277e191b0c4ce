"""Chat Completions and Messages in a process: their routes, and the recognition of conversations."""

from collections.abc import Iterable

from fastapi import APIRouter

from service.process import Feature, Offered, Parts
from service.responses.seen import Recogniser


class ChatsFeature(Feature):
    """Chat Completions and Messages that are made here."""

    def compose(self, parts: Parts) -> None:
        if parts.settings.chats == "remembered":
            from service.features.chats.recognise import digest_after, see

            parts.recogniser = Recogniser(see, digest_after)

    def routers(self, offered: Offered) -> Iterable[APIRouter]:
        if not offered.remembers:
            return ()
        from service.features.chats import routes

        return (routes.router,)


FEATURE = ChatsFeature()
