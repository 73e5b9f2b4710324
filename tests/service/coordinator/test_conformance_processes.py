"""The conformance test as people run it: the command as a process, our coordinator, TLS, Python without packages."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from coordinator_support import Served
from cryptography import x509
from service.cli.test_cli_tls import LOOPBACK, certificate
from service.coordinator.conformance_mutants import keyed, served
from service.coordinator.minimal_process import EXAMPLE, Minimal

pytestmark = pytest.mark.req("CONF-1")
PACKAGE = EXAMPLE.parents[1]
PATIENCE = 100.0  # seconds, for a machine with much else to do


def conformance(url: str, *words: str, **env: str) -> tuple[int, str, str]:
    """Exit code and both outputs of ``mingora-coordinator conformance``."""
    ended = subprocess.run(
        [sys.executable, "-m", "mingora_coordinator", "conformance", "--url", url, *words],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **env},
        timeout=PATIENCE,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


def unkept(output: str) -> list[dict[str, Any]]:
    """The checks of the report on the standard output that failed, whatever their level."""
    return [check for check in json.loads(output)["checks"] if check["outcome"] == "failed"]


@pytest.mark.req("COORD-1", "COORD-2", "COORD-3", "COORD-5")
@pytest.mark.parametrize("rule", ["nesterov", "mean", "median", "krum"])
def test_our_coordinator_is_conformant_with_every_kind_of_rule(rule: str, tmp_path: Path) -> None:
    with Served(tmp_path, "--outer", rule, rounds=3, results=4) as coordinator:
        code, output, _ = conformance(coordinator.url, "--json", "-")
        assert (code, unkept(output)) == (0, [])
        code, output, _ = conformance(coordinator.url, "--full", "--json", "-")
        assert (code, unkept(output)) == (0, [])
        found = {check["id"]: check["outcome"] for check in json.loads(output)["checks"]}
        assert {found[name] for name in ("tur.end-result", "gorev.bekle", "soru.answer", "soru.rate")} == {"passed"}


@pytest.mark.req("COORD-4")
def test_our_coordinator_is_conformant_behind_a_key(tmp_path: Path) -> None:
    key = "a-key-of-some-length"
    with Served(tmp_path, "--key", key) as coordinator:
        code, output, _ = conformance(coordinator.url, "--key", key, "--json", "-")
        assert (code, unkept(output)) == (0, [])
        assert key not in output
        assert conformance(coordinator.url)[0] == 2


@pytest.mark.req("COORD-7")
def test_a_key_of_our_coordinator_that_belongs_to_a_nickname_is_recognized(tmp_path: Path) -> None:
    with Served(tmp_path, "--key", "a-key-of-some-length") as coordinator:
        words = [sys.executable, "-m", "mingora_coordinator", "key", "add", "ali", "--data-dir", str(coordinator.data)]
        made = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=True)
        code, output, errors = conformance(coordinator.url, MINGORA_COORDINATOR_KEY=made.stdout.split()[-1])
    assert (code, output) == (2, "")
    assert "the key belongs to a nickname: give the shared key" in errors


@pytest.mark.req("COORD-4")
def test_over_tls_by_an_authority_that_the_machine_trusts(tmp_path: Path) -> None:
    trusted, key = certificate(tmp_path, "coordinator", LOOPBACK)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, key)
    with served(keyed, tls=context) as url:
        code, output, _ = conformance(url, "--key", "gizli", "--full", "--json", "-", SSL_CERT_FILE=str(trusted))
        assert (code, unkept(output)) == (0, [])
        code, output, errors = conformance(url, "--key", "gizli")
        assert (code, output) == (2, "")
        assert "give the authority's certificate with --ca-file FILE" in errors
        code, output, _ = conformance(url, "--key", "gizli", "--ca-file", str(trusted), "--json", "-")
        assert (code, unkept(output)) == (0, [])
        code, output, errors = conformance(url, "--key", "gizli", "--ca-file", str(key))
        assert (code, output) == (2, "")
        assert "--ca-file: no PEM certificates there" in errors
    other, key = certificate(tmp_path, "other", x509.DNSName("koordinator.invalid"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(other, key)
    with served(keyed, tls=context) as url:
        code, output, errors = conformance(url, "--ca-file", str(other))
        assert (code, output) == (2, "")
        assert "its certificate isn't valid: " in errors


def test_the_table_is_for_people(tmp_path: Path) -> None:
    with Minimal(tmp_path) as minimal:
        code, output, errors = conformance(minimal.url, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert lines[0] == minimal.url
    assert lines[1].startswith("Safe: ")
    assert lines[-1].startswith("CONFORMANT (mandatory: ")
    assert sum(line.startswith("ok ") for line in lines) > 30
    assert any(line.startswith("not offered optional    soru.empty ") for line in lines)


def test_it_needs_nothing_but_python(tmp_path: Path) -> None:
    script = (
        "import argparse, sys; sys.path.insert(0, sys.argv.pop(1));"
        "from mingora_coordinator.conformance import command;"
        "parser = argparse.ArgumentParser(); command.add_arguments(parser);"
        "sys.exit(command.run(parser.parse_args()))"
    )
    with Minimal(tmp_path) as minimal:
        words = [sys.executable, "-I", "-S", "-c", script, str(PACKAGE), "--url", minimal.url, "--full"]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "\nCONFORMANT (" in ended.stdout
