"""Addresses: what belongs to everybody may be asked, and nothing else, however it is written."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from service import ssrf
from service.ssrf import ForbiddenAddress, is_own, is_public, look_up, outside_of, public_addresses

SPECIAL = [
    *("127.0.0.1", "127.255.0.3", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.3.4", "172.31.255.255", "192.168.0.1"),
    *("169.254.169.254", "169.254.170.2", "100.64.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16"),
    *("224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.51.100.7", "203.0.113.9"),
    *("198.18.0.1", "192.88.99.1", "::", "::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1"),
    *("ff02::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1", "4000::1", "2001::1"),
]
INNER = ["10.0.0.1", "127.0.0.1", "169.254.169.254", "224.0.0.1", "192.0.0.192"]
PUBLIC = ["8.8.8.8", "93.184.215.14", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450:4001:80b::200e"]


def forms(address: str) -> list[str]:
    """IPv6 addresses that lead to an IPv4 one: mapped, behind a NAT64, and by 6to4."""
    first, second, third, fourth = map(int, address.split("."))
    high, low = f"{first * 256 + second:x}", f"{third * 256 + fourth:x}"
    return [f"::ffff:{address}", f"64:ff9b::{high}:{low}", f"2002:{high}:{low}::1"]


def test_an_address_with_a_purpose_is_not_public_and_one_of_the_internet_is() -> None:
    assert [each for each in SPECIAL if is_public(each)] == []
    assert [each for each in (*PUBLIC, *forms("8.8.8.8")) if not is_public(each)] == []


def test_no_way_of_writing_an_address_makes_it_public() -> None:
    for address in INNER:
        ways = [*forms(address), f"::{address}", f"::ffff:0:{address}", f"64:ff9b:1::{address}"]
        assert [way for way in ways if is_public(way)] == []


def test_a_network_of_the_operator_s_is_out_of_a_stranger_s_reach_however_its_addresses_are_written() -> None:
    may_reach = outside_of(["8.8.8.0/24", "2606:4700::/32"])
    refused = ["8.8.8.8", *forms("8.8.8.8"), "2606:4700:4700::1111", "10.0.0.1"]
    assert [each for each in refused if may_reach(each)] == []
    assert may_reach("1.1.1.1")
    assert may_reach("2a00:1450:4001:80b::200e")


def test_an_address_of_this_machine_is_out_of_a_stranger_s_reach_though_it_were_public(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert is_own("127.0.0.1")
    assert not any(map(is_own, [*PUBLIC, "192.0.2.1"]))
    monkeypatch.setattr(ssrf, "is_public", lambda address: True)
    may_reach = outside_of([])
    assert [each for each in ("127.0.0.1", "::ffff:127.0.0.1", "::1") if may_reach(each)] == []
    assert may_reach("192.0.2.1")


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "::1", "localhost"])
async def test_a_host_is_judged_by_where_it_leads(host: str) -> None:
    with pytest.raises(ForbiddenAddress, match=r"127\.0\.0\.1|::1"):
        await public_addresses(host, 80, look_up)


async def test_one_address_that_is_not_public_spoils_them_all() -> None:
    async def both(host: str, port: int) -> list[str]:
        return ["8.8.8.8", "10.0.0.7"]

    with pytest.raises(ForbiddenAddress, match=r"10\.0\.0\.7"):
        await public_addresses("example.com", 443, both)


async def test_a_host_that_can_not_be_found_is_an_error_of_the_system() -> None:
    for host in ("a" * 70 + ".example", "x..example", "no-such-host.invalid"):
        with pytest.raises(OSError, match=r"\w"):
            await look_up(host, 80)


async def test_name_servers_that_never_answer_keep_nobody_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    never, known = threading.Event(), socket.getaddrinfo

    def getaddrinfo(host: str, *arguments: Any, **named: Any) -> Any:
        return known(host, *arguments, **named) if host == "localhost" else never.wait(10)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    asked = [asyncio.create_task(look_up("slow.example", 80)) for _ in range(40)]
    try:
        await asyncio.sleep(0)
        own = asyncio.get_running_loop().getaddrinfo("localhost", 80)
        assert await asyncio.wait_for(own, 3)
        assert await asyncio.wait_for(look_up("localhost", 80), 3)
    finally:
        for each in asked:
            each.cancel()
        never.set()
