"""HTTP: who may enter, what a request is, and how answers, streams and refusals leave.

The web has this one place, so that responses can be made without it (in the background).
Never how a response is made, and never a key of Redis.
"""
