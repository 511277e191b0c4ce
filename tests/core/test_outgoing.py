"""The URLs that others name: whom they ask, and for what."""

import pytest

from service.outgoing import WebAddress


@pytest.mark.parametrize(
    ("url", "host", "port", "anew"),
    [
        ("HTTP://Tides.Example", "tides.example", 80, "http://tides.example/"),
        ("https://x:443/a b?c=d e#f", "x", 443, "https://x/a%20b?c=d%20e"),
        ("http://x:8080/%20é?é?", "x", 8080, "http://x:8080/%20%C3%A9?%C3%A9?"),
        ("http://[::1]:80/", "::1", 80, "http://[::1]/"),
        ("http://①②⑦.0.0.1/", "127.0.0.1", 80, "http://127.0.0.1/"),
        ("http://x/\r\nhost: y", "x", 80, "http://x/host:%20y"),
    ],
)
def test_a_url_is_written_as_it_is_asked(url: str, host: str, port: int, anew: str) -> None:
    address = WebAddress.of(url)
    assert (address.host, address.port, address.url) == (host, port, anew)
    assert WebAddress.of(anew) == address


@pytest.mark.parametrize(
    "url",
    ["", "x", "//x/", "http:x", "http://", "ftp://x/", "http://x:0/", "http://x:99999/", "http://a@x/", "http://@x/"],
)
def test_what_is_no_url_of_a_host_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL of a host|Port out of range"):
        WebAddress.of(url)


@pytest.mark.parametrize(
    ("location", "where"),
    [
        ("/b?c", "https://x/b?c"),
        ("b", "https://x/a/b"),
        ("//y/", "https://y/"),
        ("http://y", "http://y"),
        ("/é".encode().decode("latin-1"), "https://x/é"),
    ],
)
def test_a_redirect_is_read_from_where_it_stands(location: str, where: str) -> None:
    assert WebAddress.of("https://x/a/").redirect_url(location) == where
