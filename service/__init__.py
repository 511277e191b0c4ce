"""harmonium's HTTP service: the Responses API over the conversation store and an engine.

Rooms, from the ground up: harmony, grammar, engine, api, settings, metrics, responses, webhooks, background, web,
commands. An import goes down this list, never up (docs/architecture.md).
"""
