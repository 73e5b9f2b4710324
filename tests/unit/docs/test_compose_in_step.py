"""compose.yaml is in step with the services' settings and with its own document."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from mingora_api.config import Config as ApiConfig
from mingora_blobstore.config import Config as BlobstoreConfig
from mingora_common import proxies
from mingora_common.config import Env
from mingora_common.serving import Address
from mingora_coordinator import cli as coordinator
from mingora_scheduler.config import Config as SchedulerConfig
from mingora_scheduler.config import TaskConfig
from mingora_worker import config as worker

ROOT = Path(__file__).parents[3]
COMPOSE = (ROOT / "compose.yaml").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE)["services"]
READERS: dict[str, tuple[Callable[[Mapping[str, str]], object], ...]] = {
    "api": (ApiConfig.from_env, Address.from_env),
    "blobstore": (BlobstoreConfig.from_env, Address.from_env),
    "scheduler": (SchedulerConfig.from_env, Address.from_env),
    "scheduler-tasks": (TaskConfig.from_env,),
    "coordinator-v1": (lambda environment: Env(environment).optional(coordinator.KEY),),
}
DOCKERFILES = ("services/Dockerfile", "deploy/gateway/Dockerfile", "worker/Dockerfile")
FILES = {
    "/run/mingora/database/url": "postgresql+psycopg://mingora:0123456789abcdefghijklmnopqrstuv@postgres:5432/mingora",
    "/run/mingora/redis/url": "redis://:0123456789abcdefghijklmnopqrstuv@redis:6379/0",
    "/run/mingora/internal/key": "0123456789abcdefghijklmnopqrstuv",
    "/run/mingora/metrics/key": "zyxwvutsrqponmlkjihgfedcba987654",
    "/run/mingora/coordinator/key": "0123456789zyxwvutsrqponmlkjihgfe",
}


def by_default(value: str) -> str:
    """A value of compose.yaml where the site sets no variable."""
    return re.sub(r"\$\{\w+:\+[^}]*\}", "", re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value))


class Recording(Mapping[str, str]):
    """A service's environment that remembers what was asked of it."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values_ = values
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return self.values_[name]

    def __iter__(self) -> Any:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("service", READERS)
def test_a_service_gets_the_settings_that_it_reads_and_no_others(service: str, tmp_path: Path) -> None:
    environment = {}
    for name, value in SERVICES[service]["environment"].items():
        if name.endswith("_FILE") and value in FILES:
            copy = tmp_path / name
            copy.write_text(FILES[value])
            environment[name] = str(copy)
        else:
            environment[name] = by_default(value)
    recording = Recording(environment)
    for read in READERS[service]:
        read(recording)  # complete: nothing raises
    assert set(environment) <= recording.asked
    mounted = {volume.split(":")[1] for volume in SERVICES[service]["volumes"]}
    files = {value for name, value in SERVICES[service]["environment"].items() if value.startswith("/run/mingora/")}
    assert {file.rpartition("/")[0] for file in files} == {path for path in mounted if path.startswith("/run/mingora/")}


@pytest.mark.req("OPS-1")
def test_the_services_believe_the_gateway_alone_about_a_clients_address() -> None:
    (front,) = yaml.safe_load(COMPOSE)["networks"]["front"]["ipam"]["config"]
    network, others = (ip_network(by_default(front[name])) for name in ("subnet", "ip_range"))
    gateway = SERVICES["gateway"]["networks"]["front"]["ipv4_address"]
    address = ip_address(by_default(gateway))
    assert address in network
    assert address not in others
    assert set(others) < set(network)
    assert network[1] != address  # what an engine may give the host's bridge
    trusted = {
        name: found["environment"].get("MINGORA_TRUSTED_PROXIES")
        for name, found in SERVICES.items()
        if "front" in found.get("networks", ()) and name != "coordinator-v1"
    }
    assert trusted == {"gateway": None, "api": gateway, "blobstore": gateway, "scheduler": gateway}


@pytest.mark.req("OPS-1", "COORD-4")
def test_the_coordinator_s_command_is_one_that_it_takes() -> None:
    command = SERVICES["coordinator-v1"]["command"]
    program, *words = shlex.split(by_default(command))
    assert program == "mingora-coordinator"
    options = coordinator._parser().parse_args(words)
    assert (options.initial, options.host, options.port) == ("example", "0.0.0.0", 8000)
    gateway = by_default(SERVICES["gateway"]["networks"]["front"]["ipv4_address"])
    assert options.behind_proxy == proxies.networks(gateway)
    # Where it runs, the program's own default is the folder of the volume, for it and for who looks.
    service = SERVICES["coordinator-v1"]
    assert f"coordinator:{service['working_dir']}/{options.data_dir}" in service["volumes"]
    assert '--initial="${COORDINATOR_INITIAL:+adapters/}${COORDINATOR_INITIAL:-example}"' in command
    assert f"${{COORDINATOR_ADAPTER_DIR:-adapters}}:{service['working_dir']}/adapters:ro" in service["volumes"]


@pytest.mark.req("OPS-1", "WORK-1")
def test_the_worker_s_command_is_one_that_it_takes_in_a_folder_that_is_the_same_outside() -> None:
    service = SERVICES["worker"]
    command = service["command"].replace("${MINGORA_JOB_IMAGE:-}", f"python@sha256:{'0' * 64}")
    program, *words = shlex.split(by_default(command))
    assert program == "mingora-worker"
    options = worker.parse(words)
    assert options.docker_image is not None
    assert not options.allow_own_code
    folder = next(volume for volume in service["volumes"] if isinstance(volume, dict))
    assert folder["source"] == folder["target"] == service["environment"]["HOME"]
    assert options.root.parent == Path(by_default(folder["source"]))
    assert Path(by_default(service["environment"]["MINGORA_CONFIG"])).parent == options.root.parent
    # Its jobs have its number: no other container here shall have it.
    assert by_default(service["user"]) not in {
        found.get("user") for name, found in SERVICES.items() if name != "worker"
    }


@pytest.mark.req("OPS-1")
def test_every_variable_of_compose_is_documented_and_every_documented_one_is_there() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    table = text.partition("## Variables")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(re.findall(r"\$\{(\w+)", COMPOSE))


@pytest.mark.req("OPS-1")
def test_every_image_is_pinned_and_can_be_named_by_the_site() -> None:
    upstream = re.findall(r"\$\{(\w+_IMAGE):-([^$}]+)\}", COMPOSE)
    assert {name for name, _ in upstream} >= {"BASE_IMAGE", "REDIS_IMAGE", "POSTGRES_IMAGE", "GATEWAY_IMAGE"}
    assert [image for _, image in upstream if not re.search(r":\d+\.\d+(\.\d+)?(-[a-z0-9-]+)?$", image)] == []
    dockerfiles = "".join((ROOT / path).read_text() for path in DOCKERFILES)
    for name, image in re.findall(r"^ARG (\w+)=([^$\s]+)$", dockerfiles, re.MULTILINE):
        assert (name, image) in upstream
