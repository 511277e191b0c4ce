"""`GET /v1/models`: what is served here."""

from typing import Any

from service.engine.engines import Offer
from service.engine.port import MODEL_CREATED, ModelCard
from service.errors import ApiError
from service.markup.tags import written_by
from service.web.received import Received
from service.web.routing import Router

router = Router("Models")


@router.route("GET", "/models", "List the models", "listModels")
async def models(request: Received) -> object:
    """The models that a create request may name."""
    offers = await _offers(request)
    return {"object": "list", "data": [_model(offer, name) for offer in offers for name in offer.names]}


@router.route("GET", "/models/{model_id:path}", "Retrieve a model", "retrieveModel")
async def model(request: Received, model_id: str) -> object:
    """One model. Its id may hold slashes."""
    for offer in await _offers(request):
        if model_id in offer.names:
            return _model(offer, model_id)
    raise ApiError(404, f"The model '{model_id[:100]}' does not exist here.", code="model_not_found", param="model")


async def _offers(request: Received) -> list[Offer]:
    """The caller's models. Raises EngineUnavailable where the only engine has yet to say what it serves."""
    engine = request.service.engine
    if not engine.offers()[0].names:
        await engine.find("")
    return engine.offers(request.exchange.caller.may_use)


def _model(offer: Offer, name: str) -> dict[str, Any]:
    """A model under one of its names. Facts from its servers are left out where none of them has been up yet: its
    context's length by the names of vLLM and OpenRouter, and its abilities by those of Ollama and OpenRouter.
    """
    shown: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": MODEL_CREATED if offer.card is None else offer.card.created,
        "owned_by": "harmonium",
        "root": offer.names[0],
    }
    if offer.card is not None:
        shown["max_model_len"] = shown["context_length"] = offer.card.context_tokens
        if offer.card.max_output_tokens:
            shown["max_output_tokens"] = offer.card.max_output_tokens
        shown |= _abilities(offer.card)
    return shown


def _abilities(card: ModelCard) -> dict[str, Any]:
    """The modalities and abilities of a model, as far as models differ in them."""
    written = written_by(card.speech)
    parameters = {
        "reasoning": written.reasoning,
        "tools": written.calls,
        "tool_choice": card.constrains and written.held_calls,
        "structured_outputs": card.constrains,
        "logprobs": card.logprobs,
        "top_logprobs": card.logprobs,
    }
    sees = card.speech is not None and card.speech.sees
    capabilities = {"completion": True, "tools": written.calls, "thinking": written.reasoning, "vision": sees}
    return {
        "markup": written.markup,
        "architecture": {
            "input_modalities": ["text", "image"] if sees else ["text"],
            "output_modalities": ["text"],
        },
        "capabilities": [name for name, there in capabilities.items() if there],
        "supported_parameters": [name for name, there in parameters.items() if there],
    }
