"""The demo engine: what a fresh machine without a GPU gets, a deterministic stand-in for gpt-oss.

It reads the Harmony prompt that a model would read and samples the tokens that a model could sample, so that
every feature of the service can be tried. `engine` paces, `mind` decides, the other modules know one thing
each. Only `engine` may touch the event loop; the rest are plain generators, in which an empty piece means
"let others run".
"""

from service.engine.demo.engine import DemoEngine

__all__ = ["DemoEngine"]
