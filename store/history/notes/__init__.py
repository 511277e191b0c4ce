"""What is kept beside the turns, for a while: approvals of calls, requests with an Idempotency-Key, containers of code.

Each is bounded for a tenant, and gone by itself. Never a turn: nothing here is needed to continue a conversation.
"""
