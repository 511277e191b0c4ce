"""The console's page, its script and its style sheet: files that are made of `console/` (scripts/console).

They need no key, as nothing is in them but the program; what it shows it asks for with the key that somebody types.
Never put anything here that is of a service, a tenant or a request.
"""

import asyncio
import gzip
from functools import cache
from mimetypes import guess_type
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

from service.web.entering import Open
from service.web.nowhere import no_such_url

router = APIRouter()

FILES = Path(__file__).parent / "static"
INDEX = FILES / "index.html"

_ASSETS = {file.name: file for file in FILES.iterdir() if file != INDEX}
"""The files by name; a name has the digest of its content, so no two contents share one."""

_SAFE = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
"""The headers of the page: no shown text becomes a script; nobody frames the page, or learns where it led."""

_ONCE = _SAFE | {"cache-control": "no-store"}
_FOREVER = _SAFE | {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}


@router.api_route("/console", methods=["GET", "HEAD"], include_in_schema=False)
@router.api_route("/console/", methods=["GET", "HEAD"], include_in_schema=False)
async def console(_: Open) -> FileResponse:
    """The page."""
    return FileResponse(INDEX, headers=_ONCE)


@router.api_route("/console/static/{name:path}", methods=["GET", "HEAD"], include_in_schema=False)
async def asset(request: Open, name: str) -> Response:
    """A file of the page, compressed for who takes that."""
    file = _ASSETS.get(name)
    if file is None:
        raise no_such_url(request.exchange.method, request.exchange.scope["path"])
    if "gzip" not in dict(request.exchange.scope["headers"]).get(b"accept-encoding", b"").decode("latin-1"):
        return FileResponse(file, headers=_FOREVER)
    content = await asyncio.to_thread(_gzip_of, name)
    return Response(content, headers=_FOREVER | {"content-encoding": "gzip"}, media_type=guess_type(name)[0])


@cache
def _gzip_of(name: str) -> bytes:
    """The bytes of one of the files, compressed: some 10 ms, once in a process."""
    return gzip.compress(_ASSETS[name].read_bytes(), mtime=0)
