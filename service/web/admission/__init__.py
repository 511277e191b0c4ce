"""Admission: what one process works on at once, who waits until there is room, and whose turn it is then.

Lives here: slots and bodies (`slots`), and the queue before the slots (`queue`). Never how a request is answered.
"""
