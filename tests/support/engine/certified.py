"""A certificate of a test's own: what a server speaks TLS with, and what trusts it."""

import ssl
import subprocess
from pathlib import Path


def certified(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What speaks TLS as a host of this name, and whoever trusts it. Made once in a folder."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    if not certificate.exists():
        made = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN={name}"
        told = ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(["openssl", *made.split(), *told], check=True, capture_output=True)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate, key)
    return served, ssl.create_default_context(cafile=str(certificate))
