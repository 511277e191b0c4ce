"""How a response is made: a request becomes a plan, a plan is run, and its tokens become events and a turn.

One way for every request, in the foreground and in the background.
Never HTTP, and never a queue: `web` and `background` call this room.
"""
