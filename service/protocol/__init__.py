"""The pure protocol: requests to prompt tokens, sampled tokens to events, events to responses. No I/O, no clock."""
