"""What spans say of a response, under the names of OpenTelemetry's GenAI conventions.

Source: https://github.com/open-telemetry/semantic-conventions-genai, at 1.41. What they call deprecated is not said.
"""

from service.api.response import Response
from service.engine.port import Generation
from service.metrics.counters import Mode
from service.responses.plan import Plan
from service.spans import Fact, conversation

PROVIDER = "harmonium"
"""The conventions have a name for each provider of models that many use, and let others have their own."""


def planned(plan: Plan) -> dict[str, Fact]:
    """What is said of everything that is done for a response: which one it is, and of which conversation. Not its
    model: Phoenix takes a span that names one for a call of it.
    """
    return {
        "gen_ai.response.id": plan.id,
        "gen_ai.request.previous_response.id": plan.parent,
        **conversation(plan.conversation or plan.root or plan.id),
    }


def ended(response: Response) -> dict[str, Fact]:
    """What is said of a response that has ended."""
    return {"gen_ai.response.status": response.status.value}


def asked(plan: Plan, generation: Generation, mode: Mode) -> dict[str, Fact]:
    """What is said of one request to an engine."""
    sampling, base = generation.sampling, plan.base
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDER,
        **planned(plan),
        "gen_ai.request.model": plan.base.model,
        "gen_ai.response.model": generation.model or None,
        "gen_ai.request.stream": mode == "stream",
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.top_k": sampling.top_k or None,
        "gen_ai.request.seed": sampling.seed,
        "gen_ai.request.frequency_penalty": sampling.frequency_penalty or None,
        "gen_ai.request.presence_penalty": sampling.presence_penalty or None,
        "gen_ai.request.reasoning.level": base.reasoning.get("effort") if base.reasoning else None,
        "gen_ai.output.type": "text" if base.text["format"]["type"] == "text" else "json",
    }
