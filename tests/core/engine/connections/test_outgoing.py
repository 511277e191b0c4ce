"""The head of a request to a server of an engine."""

import pytest

from service.engine.names import ServerAddress
from service.engine.servers.connection import Peer, head, target_of


def place(url: str, **more: str) -> ServerAddress:
    return ServerAddress(url, url, **more)


@pytest.mark.parametrize(
    ("url", "peer", "authority", "prefix"),
    [
        ("http://10.0.0.5:8000", Peer(False, "10.0.0.5", 8000, "10.0.0.5"), "10.0.0.5:8000", ""),
        ("http://vllm:80/a", Peer(False, "vllm", 80, "vllm"), "vllm", "/a"),
        ("https://VLLM.test:443", Peer(True, "vllm.test", 443, "vllm.test"), "vllm.test", ""),
        ("http://[::1]:8000/b c/ö/%20", Peer(False, "::1", 8000, "::1"), "[::1]:8000", "/b%20c/%C3%B6/%20"),
        ("http://bücher.test", Peer(False, "xn--bcher-kva.test", 80, "xn--bcher-kva.test"), "xn--bcher-kva.test", ""),
    ],
)
def test_a_url_says_who_is_asked_and_as_whom(url: str, peer: Peer, authority: str, prefix: str) -> None:
    target = target_of(place(url))
    assert (target.peer, target.authority, target.prefix) == (peer, authority, prefix)


def test_a_place_of_a_name_is_asked_for_the_name() -> None:
    target = target_of(place("https://10.0.0.5:8000", host="vllm.test:8000", certified="vllm.test"))
    assert (target.peer, target.authority) == (Peer(True, "10.0.0.5", 8000, "vllm.test"), "vllm.test:8000")


def test_a_head_has_what_it_is_told_and_the_length() -> None:
    told = {"authorization": "Bearer k", "x-request-id": "resp_1"}
    assert head("POST", target_of(place("http://h:1/base")), "/v1/x", told, 12) == (
        b"POST /base/v1/x HTTP/1.1\r\nhost: h:1\r\nauthorization: Bearer k\r\nx-request-id: resp_1\r\n"
        b"user-agent: harmonium\r\ncontent-length: 12\r\n\r\n"
    )


def test_a_get_says_nothing_of_a_body_and_its_own_agent() -> None:
    assert head("GET", target_of(place("http://h")), "/", {"user-agent": "mine"}, 0) == (
        b"GET / HTTP/1.1\r\nhost: h\r\nuser-agent: mine\r\n\r\n"
    )


@pytest.mark.parametrize("mark", ["\r", "\n", "\0"])
@pytest.mark.parametrize("name", [True, False])
def test_no_header_becomes_two(mark: str, name: bool) -> None:
    told = {f"x{mark}y": "z"} if name else {"x": f"y{mark}z"}
    with pytest.raises(ValueError, match="line break"):
        head("POST", target_of(place("http://h")), "/", told, 0)
