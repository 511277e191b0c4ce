"""harmonium's HTTP service: the Responses API over the conversation store and an engine."""
