"""`GET /v1/models`: what is served here, in OpenAI's form, and in Anthropic's for who sends `anthropic-version`.

Of Anthropic's clients parameters that aren't known are passed over, as its API does. Source:
anthropic 2.14, types/model_info.py and types/model_list_params.py.
"""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from service.engine.engines import ModelOffer
from service.engine.port import MODEL_CREATED, MarkupTags, ModelCard
from service.errors import ApiError, InvalidRequest
from service.responses.readings import Readings
from service.web.entering import Aside
from service.web.errors import JsonResponse
from service.web.queries import not_in_list, refuse_unknown
from service.web.received import Received

router = APIRouter(prefix="/v1", tags=["Models"])

MAX_MODELS = 1_000


class ModelQuery(BaseModel):
    """The query of a model. In Anthropic's form any parameter is passed over, in OpenAI's none is taken."""

    model_config = ConfigDict(extra="allow")


class ModelsQuery(ModelQuery):
    """The query of a list, whose pages are Anthropic's; it has no retired models."""

    limit: Annotated[int, Field(ge=1, le=MAX_MODELS)] = 20
    after_id: str | None = None
    before_id: str | None = None


@router.get("/models", summary="List the models", operation_id="listModels")
async def models(request: Aside, query: Annotated[ModelsQuery, InQuery()]) -> Response:
    """The models for create requests."""
    if not (anthropics := request.exchange.is_anthropics):
        refuse_unknown(request.parameters, ())
    readings = request.service.readings
    listed = [(offer, name) for offer in await _offers(request) for name in offer.names]
    if anthropics:
        return JsonResponse(_page(listed, query))
    return JsonResponse({"object": "list", "data": [_model(readings, offer, name) for offer, name in listed]})


@router.get("/models/{model_id:path}", summary="Retrieve a model", operation_id="retrieveModel")
async def model(request: Aside, _: Annotated[ModelQuery, InQuery()], model_id: str) -> Response:
    """One model. Its id may hold slashes."""
    if not (anthropics := request.exchange.is_anthropics):
        refuse_unknown(request.parameters, ())
    readings = request.service.readings
    for offer in await _offers(request):
        if model_id in offer.names:
            return JsonResponse(_anthropics(offer, model_id) if anthropics else _model(readings, offer, model_id))
    raise ApiError(404, f"The model '{model_id[:100]}' does not exist here.", code="model_not_found", param="model")


async def _offers(request: Received) -> list[ModelOffer]:
    """The caller's models. Raises EngineUnavailable where the only engine has yet to say what it serves."""
    engine = request.service.engine
    if not engine.offers()[0].names:
        await engine.find("")
    return engine.offers(request.exchange.entry.may_use)


def _model(readings: Readings, offer: ModelOffer, name: str) -> dict[str, Any]:
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
        shown |= _abilities(offer.card, readings.written_by(offer.card.speech))
    return shown


def _page(listed: list[tuple[ModelOffer, str]], query: ModelsQuery) -> dict[str, Any]:
    """A page of the models, behind one of them or right before one. Raises InvalidRequest."""
    names = [name for _, name in listed]
    for param, id in (("after_id", query.after_id), ("before_id", query.before_id)):
        if id is not None and id not in names:
            raise not_in_list("model", id[:100], param)
    if query.after_id is not None and query.before_id is not None:
        raise InvalidRequest("Give 'after_id' or 'before_id', not both.", code="invalid_value", param="before_id")
    if query.before_id is not None:
        end = names.index(query.before_id)
        start = max(0, end - query.limit)
        more = start > 0
    else:
        start = 0 if query.after_id is None else names.index(query.after_id) + 1
        end = start + query.limit
        more = end < len(names)
    data = [_anthropics(offer, name) for offer, name in listed[start:end]]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return {"data": data, "has_more": more, **ends}


def _anthropics(offer: ModelOffer, name: str) -> dict[str, Any]:
    """A model in Anthropic's form. What its API tells of its own models alone is null."""
    card = offer.card
    created = MODEL_CREATED if card is None else card.created
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": None if card is None else card.context_tokens,
        "max_tokens": None if card is None else card.max_output_tokens or card.context_tokens,
        **dict.fromkeys(("capabilities", "deprecated_at", "line", "retires_at")),
    }


def _abilities(card: ModelCard, written: MarkupTags) -> dict[str, Any]:
    """The modalities and abilities of a model that writes such a markup, as far as models differ in them."""
    parameters = {
        "reasoning": written.reasoning,
        "tools": written.calls,
        "tool_choice": card.constrains and written.held_calls,
        "structured_outputs": card.constrains,
        "logprobs": True,
        "top_logprobs": True,
    }
    sees = card.speech is not None and card.speech.sees
    capabilities = {"completion": True, "tools": written.calls, "thinking": written.reasoning, "vision": sees}
    return {
        "markup": written.markup,
        "architecture": {"input_modalities": ["text", "image"] if sees else ["text"], "output_modalities": ["text"]},
        "capabilities": [name for name, there in capabilities.items() if there],
        "supported_parameters": [name for name, there in parameters.items() if there],
    }
