"""Admission: what one process works on at once, who waits until there is room, and whose turn it is then.

Lives here: slots and bodies (`slots`), the queue before the slots (`queue`), and what tenants were served, by which it
goes (`served`). Never how a request is answered.
"""
