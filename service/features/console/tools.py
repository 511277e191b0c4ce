"""The tools that requests may declare here, for who picks some: those that run, and those that a setting would give."""

from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.responses import Response

from service.process import features
from service.web.entering import Aside
from service.web.errors import JsonResponse

router = APIRouter()


class PickedTool(msgspec.Struct):
    """A tool as a request declares it. One with a `setting` isn't here, until the operator sets that."""

    declaration: dict[str, Any]
    setting: str | None = None


class PickedTools(msgspec.Struct):
    """The tools, those that are here first."""

    data: list[PickedTool]
    object: str = "list"


@router.get("/console/api/tools", include_in_schema=False)
async def list_tools(request: Aside) -> Response:
    """The tools of this service, as a request declares them."""
    tools = [tool for tool in request.service.toolbox.tools if tool.usable]
    found = [PickedTool(dict(each)) for tool in tools for each in tool.declarations]
    types = {each.declaration["type"] for each in found}
    settings = {type: name for feature in features() for type, name in feature.tool_settings.items()}
    found += [PickedTool({"type": type}, name) for type, name in settings.items() if type not in types]
    return JsonResponse(PickedTools(found))
