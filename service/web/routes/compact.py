"""`POST /v1/responses/compact`: a conversation in short, as the beginning of the next one.

It is a response that compacts (`compaction_trigger`), in one piece and never stored; only its answer has another form.
"""

from fastapi import APIRouter, Request
from starlette.responses import Response as HttpResponse

from service.api.response import Compaction, ResponseStatus
from service.responses.compaction.request import Compacted, read_compact, window
from service.responses.refusals import not_compacted
from service.web.routes.asked import begun, body_of, exchange_of, service_of, whole

router = APIRouter()


@router.post("/responses/compact", summary="Compact a conversation")
async def compact(request: Request) -> HttpResponse:
    """The user's messages of a conversation word by word, and all else of it as one sealed item."""
    exchange, service = exchange_of(request), service_of(request)
    wanted = read_compact(await body_of(request), store=service.settings.store)
    creation = await begun(request, wanted)
    prompt, base = await creation.rendered()
    response = await whole(await creation.run(prompt, base), request.receive, exchange)
    made = [item for item in response.output if isinstance(item, Compaction)]
    if response.status is not ResponseStatus.COMPLETED or not made:
        raise not_compacted(response)
    output = window(creation.id, prompt.items, prompt.rules.kept_messages, made[-1])
    return exchange.dialect.answer(Compacted(creation.id, response.created_at, output, response.usage))
