"""The hosts of URLs that may have a password, so that no message has a part of one. Pure."""

from urllib.parse import urlsplit


def check_hosts(url: str) -> None:
    """Check that a URL of one host, or of several with commas between, can be read. Raises ValueError."""
    try:
        _ = [urlsplit(f"//{host}").port for host in urlsplit(url).netloc.rpartition("@")[2].split(",")]
    except ValueError:
        raise ValueError(
            "is not a URL: its port is above 65535 or no number, or its password has / ? # @ : or [ in it, which are "
            "written %2F %3F %23 %40 %3A and %5B"
        ) from None
