"""How long calls may take where a test is not about time: machines may stand still for a while.

Apart, so that programs which are started many times import nothing else.
"""

from store.archive.port import Bounds

PATIENT = Bounds(total_seconds=30.0, request_seconds=20.0, connect_seconds=10.0)
