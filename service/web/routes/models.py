"""`GET /v1/models`: what is served here."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response as HttpResponse

from service.engine.engines import Engines, Offer
from service.engine.port import MODEL_CREATED
from service.errors import ApiError
from service.web.errors import JsonResponse
from service.web.routes.query import StrictRoute
from service.web.routes.received import service_of

router = APIRouter(route_class=StrictRoute, tags=["Models"])


@router.get("/models", summary="List the models", operation_id="listModels")
async def models(request: Request) -> HttpResponse:
    """The models that a create request may name."""
    offers = await _offers(service_of(request).engine)
    return JsonResponse({"object": "list", "data": [_model(offer, name) for offer in offers for name in offer.names]})


@router.get("/models/{model_id:path}", summary="Retrieve a model", operation_id="retrieveModel")
async def model(request: Request, model_id: str) -> HttpResponse:
    """One model. Its id may hold slashes."""
    for offer in await _offers(service_of(request).engine):
        if model_id in offer.names:
            return JsonResponse(_model(offer, model_id))
    raise ApiError(404, f"The model '{model_id[:100]}' does not exist here.", code="model_not_found", param="model")


async def _offers(engine: Engines) -> list[Offer]:
    """The models. Raises EngineUnavailable where the only engine has yet to say what it serves."""
    if not engine.offers()[0].names:
        await engine.find("")
    return engine.offers()


def _model(offer: Offer, name: str) -> dict[str, Any]:
    """A model under one of its names; its context's length as vLLM has it, which is left out where no server of it has
    been up yet.
    """
    shown: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": MODEL_CREATED if offer.card is None else offer.card.created,
        "owned_by": "harmonium",
        "root": offer.names[0],
    }
    if offer.card is not None:
        shown["max_model_len"] = offer.card.context_tokens
        if offer.card.max_output_tokens:
            shown["max_output_tokens"] = offer.card.max_output_tokens
    return shown
