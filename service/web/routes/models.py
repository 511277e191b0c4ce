"""`GET /v1/models`: what is served here."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response as HttpResponse

from service.engine.port import ModelCard
from service.errors import ApiError
from service.responses.prepare import known_model, names_of
from service.web.errors import JsonResponse
from service.web.routes.query import StrictRoute
from service.web.routes.received import service_of

router = APIRouter(route_class=StrictRoute, tags=["Models"])


@router.get("/models", summary="List the models", operation_id="listModels")
async def models(request: Request) -> HttpResponse:
    """The models that a create request may name."""
    service = service_of(request)
    card = await known_model(service.engine)
    names = names_of(card, service.settings.model_aliases)
    return JsonResponse({"object": "list", "data": [_model(card, name) for name in names]})


@router.get("/models/{model_id:path}", summary="Retrieve a model", operation_id="retrieveModel")
async def model(request: Request, model_id: str) -> HttpResponse:
    """One model. Its id may hold slashes."""
    service = service_of(request)
    card = await known_model(service.engine)
    if model_id not in names_of(card, service.settings.model_aliases):
        raise ApiError(404, f"The model '{model_id[:100]}' does not exist here.", code="model_not_found", param="model")
    return JsonResponse(_model(card, model_id))


def _model(card: ModelCard, name: str) -> dict[str, Any]:
    """A model under one of its names; its context's length as vLLM has it."""
    return {
        "id": name,
        "object": "model",
        "created": card.created,
        "owned_by": "harmonium",
        "max_model_len": card.context_tokens,
    }
