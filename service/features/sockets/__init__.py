"""WebSockets: `GET /v1/responses` upgraded. Many responses over one connection, each made as over HTTP.

Lives here: the wire and its bounds, frames of JSON, a connection with its lanes. Never a second way to make a
response: what is asked for goes through prepare and Run, as everywhere. docs/websocket.md is its page.
"""
