"""Which MCP servers requests may name, and what an operator's file of servers may hold."""

import pytest

from service.features.mcp.settings import (
    BadServers,
    OperatorServer,
    Program,
    is_allowed,
    mark_of,
    read_servers,
    trusted_connection,
)
from service.settings.urls import is_url


@pytest.mark.parametrize(
    ("prefix", "url"),
    [
        ("https://a.example", "https://a.example/mcp"),
        ("https://a.example", "HTTPS://A.example/mcp"),
        ("http://[::1]:9000", "http://[::1]:9000/mcp"),
        ("*", "https://b.example/mcp"),
    ],
)
def test_a_url_that_begins_as_the_operator_says_is_allowed(prefix: str, url: str) -> None:
    assert is_url(url)
    assert is_allowed(url, [prefix])


@pytest.mark.parametrize(
    ("prefix", "url"),
    [
        ("https://a.example", "https://a.example.evil/mcp"),
        ("https://a.example", "https://a.example:8443/mcp"),
        ("https://a.example", "https://a.example@evil.example/"),
        ("https://a.example", "http://a.example/"),
        ("https://a.example/mcp", "https://a.example/mcp2"),
        ("https://a.example/mcp", "https://a.example/mcp/../admin"),
        ("https://a.example/mcp", "https://a.example/mcp/%2e%2e/admin"),
        ("https://a.example/mcp", "https://a.example/mcp/%25252e%252e/admin"),
        ("https://a.example/mcp", "https://a.example/mcp/.%00./x"),
        ("https://a.example/mcp", "https://a.example/mcp/%c0%ae%c0%ae/x"),
        ("https://a.example/mcp", "https://a.example/mcp/..%2fadmin"),
        ("https://a.example/mcp", "https://a.example/mcp/..%5cadmin"),
    ],
)
def test_a_url_that_leads_elsewhere_is_not_allowed(prefix: str, url: str) -> None:
    assert not (is_url(url) and is_allowed(url, [prefix]))


def test_what_is_no_url_of_a_server_is_refused() -> None:
    for url in (
        "",
        "a.example",
        "ftp://a.example",
        "https://",
        "https://a b/",
        "https://\u00e4.example/",
        "https://[::1/",
    ):
        assert not is_url(url)
    for end in (":0/", ":65536/", "/#x"):
        assert not is_url(f"https://a.example{end}")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[docs", "at end of document"),
        ('[docs]\nurl = "https://a/"\nwibble = 1', "wibble"),
        ('["a b"]\nurl = "https://a/"', "label"),
        ('[docs]\nurl = "https://a/"\n[docs.headers]\nHost = "s3cret"', "Host"),
        ('[docs]\nurl = "https://a/"\ncommand = ["a"]', "one of the two"),
        ('[docs]\nurl = "https://a/"\ncwd = "/"', "for a command"),
        ("[docs]\ncommand = []", "1 to 256 words"),
        ('[docs]\ncommand = ["a"]\ncwd = "here"', "begins with /"),
        ('[docs]\nurl = "https://a/../s3cret"', "no http:// or https:// URL"),
        ('[docs]\ncommand = ["a", "s3cret\\u0000"]', "NUL"),
        ('[docs]\ncommand = ["a"]\n[docs.env]\n"A=B" = "s3cret"', "name of a variable"),
        ('[docs]\ncommand = ["a"]\n[docs.headers]\nA = "s3cret"', "a command has env"),
    ],
)
def test_a_file_of_servers_that_is_wrong_says_where_and_no_secret(text: str, why: str) -> None:
    with pytest.raises(BadServers, match=why) as refusal:
        read_servers(text)
    assert "s3cret" not in str(refusal.value)


def test_a_server_may_be_a_program() -> None:
    text = '[docs]\ncommand = ["npx", "server"]\ncwd = "/srv"\n[docs.env]\nTOKEN = "s3cret"'
    (server,) = read_servers(text).values()
    connection = trusted_connection("docs", server)

    assert connection.program == Program(("npx", "server"), (("TOKEN", "s3cret"),), "/srv")
    assert mark_of(connection) != mark_of(trusted_connection("docs", OperatorServer(command=["npx", "other"])))
