"""`GET /v1/models`: what is served here."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response as HttpResponse

from service.engine.port import ModelCard
from service.errors import ApiError
from service.responses.prepare import known_model
from service.web.errors import JsonResponse
from service.web.routes.received import service_of

router = APIRouter()


@router.get("/models", summary="List the models")
async def models(request: Request) -> HttpResponse:
    """The models that a create request may name."""
    return JsonResponse({"object": "list", "data": [_model(await known_model(service_of(request).engine))]})


@router.get("/models/{model_id:path}", summary="Retrieve a model")
async def model(request: Request, model_id: str) -> HttpResponse:
    """One model. Its id may hold slashes."""
    card = await known_model(service_of(request).engine)
    if model_id != card.id:
        raise ApiError(404, f"The model '{model_id[:100]}' does not exist here.", code="model_not_found", param="model")
    return JsonResponse(_model(card))


def _model(card: ModelCard) -> dict[str, Any]:
    return {"id": card.id, "object": "model", "created": card.created, "owned_by": "harmonium"}
