"""Requests in a server's own API, such as Chat Completions: the endpoints (`routes`), and their answers (`answer`).

They are passed on to the engine's server, within the bounds of all other requests. Never store, sample or translate
anything here.
"""
