"""Jobs: background responses in their queue, their leases, their event logs and the outbox of webhooks.

Every move of a job is one script, so that a crash leaves it before or after it.
Never a job's work: its plan is bytes here.
"""
