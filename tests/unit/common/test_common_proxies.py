"""Whose word on a client's address counts, and whose doesn't."""

from __future__ import annotations

from typing import Any

import pytest

from mingora_common.config import ConfigError, Env, FrameConfig
from mingora_common.proxies import TrustedProxies, networks

TRUSTED = networks("10.0.0.0/8, fd00::/8,192.0.2.7")


def seen(peer: str | None, forwarded: str | None = None, proto: str | None = None) -> tuple[str | None, str]:
    """The client's address and scheme as a service sees them."""
    given: dict[str, Any] = {"wsgi.url_scheme": "http"}
    for name, value in (("REMOTE_ADDR", peer), ("HTTP_X_FORWARDED_FOR", forwarded), ("HTTP_X_FORWARDED_PROTO", proto)):
        if value is not None:
            given[name] = value
    found: dict[str, Any] = {}

    def app(environ: dict[str, Any], _start: Any) -> list[bytes]:
        found.update(environ)
        return []

    TrustedProxies(app, TRUSTED)(given, print)
    return found.get("REMOTE_ADDR"), found["wsgi.url_scheme"]


@pytest.mark.req("AUTH-8")
@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.1.1.1", "203.0.113.9", "203.0.113.9"),
        ("192.0.2.7", "203.0.113.9", "203.0.113.9"),
        ("10.1.1.1", None, "10.1.1.1"),
        ("10.1.1.1", "", "10.1.1.1"),
        # What a client wrote itself stands to the left of what the proxy saw.
        ("10.1.1.1", "1.1.1.1, 203.0.113.9", "203.0.113.9"),
        ("10.1.1.1", "10.9.9.9, 203.0.113.9", "203.0.113.9"),
        ("10.1.1.1", "203.0.113.9, 10.2.2.2, 10.3.3.3", "203.0.113.9"),
        ("10.1.1.1", "10.2.2.2, 10.3.3.3", "10.2.2.2"),
        # What can't be read is whoever passed it on.
        ("10.1.1.1", "203.0.113.9, unknown", "10.1.1.1"),
        ("10.1.1.1", "203.0.113.9, <script>, 10.2.2.2", "10.2.2.2"),
        ("10.1.1.1", ",,,", "10.1.1.1"),
        ("10.1.1.1", "203.0.113.9\x00", "10.1.1.1"),
        ("10.1.1.1", "256.1.1.1", "10.1.1.1"),
        ("10.1.1.1", "fe80::1%eth0", "10.1.1.1"),
        ("10.1.1.1", "010.0.0.1", "10.1.1.1"),
        # Ports and IPv6, in the ways that proxies write them.
        ("10.1.1.1", "203.0.113.9:4711", "203.0.113.9"),
        ("10.1.1.1", "2001:db8::1", "2001:db8::1"),
        ("10.1.1.1", "[2001:db8::1]:4711", "2001:db8::1"),
        ("10.1.1.1", "[2001:db8::1]", "2001:db8::1"),
        ("fd00::1", "2001:db8::1, fd00::2", "2001:db8::1"),
        ("::ffff:10.1.1.1", "::ffff:203.0.113.9", "203.0.113.9"),
        ("10.1.1.1", "1.1.1.1," * 5000 + "203.0.113.9", "203.0.113.9"),
        ("10.1.1.1", ",".join(["10.1.1.2"] * 5000), "10.1.1.2"),
        # Nobody asked these.
        ("203.0.113.5", "198.51.100.1", "203.0.113.5"),
        ("192.0.2.8", "198.51.100.1", "192.0.2.8"),
        ("", "198.51.100.1", ""),
        (None, "198.51.100.1", None),
    ],
)
def test_the_client_is_the_first_address_from_the_right_that_is_no_trusted_proxys(
    peer: str | None, forwarded: str | None, client: str | None
) -> None:
    assert seen(peer, forwarded)[0] == client


@pytest.mark.req("AUTH-5")
@pytest.mark.parametrize(
    ("peer", "proto", "scheme"),
    [
        ("10.1.1.1", "https", "https"),
        ("10.1.1.1", "http, HTTPS", "https"),
        ("10.1.1.1", "https, http", "http"),
        ("10.1.1.1", "gopher", "http"),
        ("203.0.113.5", "https", "http"),
    ],
)
def test_the_scheme_is_what_a_trusted_proxy_says(peer: str, proto: str, scheme: str) -> None:
    assert seen(peer, "203.0.113.9", proto)[1] == scheme


@pytest.mark.req("AUTH-8")
@pytest.mark.parametrize("wrong", ["10.0.0.1/8", "gateway", "10.0.0.0/33", "10.0.0.0/8;fd00::/8"])
def test_a_setting_that_names_no_networks_is_refused(wrong: str) -> None:
    env = Env({"MINGORA_TRUSTED_PROXIES": wrong})
    assert FrameConfig.read(env).trusted_proxies == ()
    with pytest.raises(ConfigError, match="MINGORA_TRUSTED_PROXIES"):
        env.check()


@pytest.mark.req("AUTH-8")
def test_nobody_is_trusted_unless_named_and_a_weak_key_opens_nothing() -> None:
    assert FrameConfig.read(Env({})) == FrameConfig(None, ())
    env = Env({"MINGORA_METRICS_KEY": "short"})
    FrameConfig.read(env)
    with pytest.raises(ConfigError, match="MINGORA_METRICS_KEY"):
        env.check()
