"""Chat Completions and Messages that are made here, as responses.

Lives here: their routes, which translate a request, and the dialects in which it is answered. Never a second way to
make a response: what is asked for goes through `answer_create`, as everywhere. docs/clients.md is its page.
"""
