"""The port of models that don't speak Harmony. Here no such model is read: the feature that reads some has another one.

A model with a chat template is prompted by `prompt`, and its response is read as the answer says. A plan has that as
plain data, which `restore` makes whole again in a worker. Never name a template or a markup here.
"""

from collections.abc import Iterable
from typing import Any

from service.api.request import CreateRequest
from service.engine.port import HARMONY, EngineUnavailable, MarkupTags, ModelCard, Speech
from service.responses.output.reading import KnownTurns, RenderPrompt, Speaking, Templated
from service.responses.output.rules import Spoken
from service.responses.prompt.build import Prompt
from service.responses.prompt.read import Read
from store.turn import StoredMessage


class Readings:
    """Of models that speak Harmony alone."""

    def turns_in(self, notes: Iterable[StoredMessage], model: str) -> KnownTurns:
        """The turns that a model has sampled, by the notes of a conversation, the oldest first."""
        return KnownTurns()

    async def prompt(
        self,
        render: RenderPrompt,
        model: ModelCard,
        speech: Speech,
        read: Read,
        request: CreateRequest,
        prompt: Prompt,
        known: KnownTurns,
        *,
        noted: bool,
    ) -> tuple[Templated, Speaking]:
        """A request's prompt, and how its response is read. `known` is what the model has sampled of the conversation;
        what it samples now may be `noted` for later prompts. Raises EngineError.
        """
        raise EngineUnavailable(f"'{model.id}' doesn't use Harmony, and this service supports no other model")

    def restore(self, spoken: Any) -> Spoken:
        """A queued plan's data of how its model speaks, as rules have it. Raises ValueError."""
        raise ValueError("the plan's model doesn't use Harmony, and this service supports no other model")

    def written_by(self, speech: Speech | None) -> MarkupTags:
        """The markup that a model writes; None speaks Harmony."""
        return MarkupTags(HARMONY if speech is None else speech.family)
