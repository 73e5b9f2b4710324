"""What each container of the platform may do, as the Docker Engine has it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from e2e_compose import ONE_SHOTS, SERVICES, ComposeStack

pytestmark = [pytest.mark.engine("docker"), pytest.mark.xdist_group("compose"), pytest.mark.timeout(600)]

USER = "10001:10001"
# Named volumes and whether they can be written; nothing of the host is mounted anywhere.
MOUNTS = {
    "gateway": {"/var/lib/mingora/gateway": True},
    "api": {
        "/run/mingora/database": False, "/run/mingora/redis": False, "/run/mingora/internal": False,
        "/run/mingora/metrics": False,
    },
    "scheduler": {
        "/run/mingora/database": False, "/run/mingora/redis": False, "/run/mingora/internal": False,
        "/run/mingora/metrics": False,
    },
    "scheduler-tasks": {"/run/mingora/database": False, "/run/mingora/redis": False},
    "blobstore": {
        "/var/lib/mingora/content": True, "/run/mingora/database": False, "/run/mingora/internal": False,
        "/run/mingora/metrics": False,
    },
    "coordinator-v1": {
        "/var/lib/mingora/coordinator-data": True, "/var/lib/mingora/adapters": False,
        "/run/mingora/coordinator": False,
    },
    "redis": {"/run/mingora/redis": False},
    "postgres": {"/var/lib/postgresql/data": True, "/run/mingora/database": False},
    "init": {
        "/run/mingora/database": True, "/run/mingora/redis": True, "/run/mingora/internal": True,
        "/run/mingora/metrics": True, "/run/mingora/coordinator": True,
    },
    "migrate": {"/run/mingora/database": False},
}  # fmt: skip
NETWORKS = {
    "gateway": {"edge", "front"},
    "api": {"front", "back"},
    "scheduler": {"front", "back"},
    "blobstore": {"front", "back"},
    "coordinator-v1": {"front"},
    "scheduler-tasks": {"back"},
    "redis": {"back"},
    "postgres": {"back"},
    "migrate": {"back"},
}
IMAGE_LIMIT_BYTES = 400_000_000


def containers(stack: ComposeStack, service: str) -> list[dict[str, Any]]:
    found = stack.inspect(service)
    assert found, f"{service} has no container"
    return found


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("service", [*SERVICES, *ONE_SHOTS])
def test_a_container_has_the_least_rights(compose_stack: ComposeStack, service: str) -> None:
    for container in containers(compose_stack, service):
        host = container["HostConfig"]
        assert container["Config"]["User"] == USER
        assert host["ReadonlyRootfs"] is True
        assert host["CapDrop"] == ["ALL"]
        assert not host["CapAdd"]
        assert host["SecurityOpt"] == ["no-new-privileges:true"]
        assert not host["Privileged"]
        assert not host["Devices"]
        assert host["PidMode"] == "" and host["IpcMode"] == "private"
        assert 0 < host["Memory"] == host["MemorySwap"] <= 1 << 30
        assert 0 < host["PidsLimit"] <= 1024
        assert host["LogConfig"] == {"Type": "local", "Config": {"max-size": "10m", "max-file": "3"}}


@pytest.mark.req("OPS-1")
@pytest.mark.parametrize("service", [*SERVICES, *ONE_SHOTS])
def test_a_container_sees_only_what_it_works_with(compose_stack: ComposeStack, service: str) -> None:
    for container in containers(compose_stack, service):
        mounts = {mount["Destination"]: mount["RW"] for mount in container["Mounts"]}
        assert mounts == MOUNTS[service]
        assert {mount["Type"] for mount in container["Mounts"]} <= {"volume"}
        named = {name.partition("_")[2] for name in container["NetworkSettings"]["Networks"]}
        assert named - {""} == NETWORKS.get(service, set())


@pytest.mark.req("OPS-1", "AUTH-5")
def test_only_the_gateway_is_published_and_only_on_this_machine(compose_stack: ComposeStack) -> None:
    published: dict[str, Any] = {}
    for service in SERVICES:
        for container in containers(compose_stack, service):
            bindings = container["HostConfig"]["PortBindings"] or {}
            published |= {service: bindings} if bindings else {}
    ports = {"8443/tcp": compose_stack.port, "8444/tcp": compose_stack.volunteer_port}
    local = {inside: [{"HostIp": "127.0.0.1", "HostPort": str(port)}] for inside, port in ports.items()}
    assert published == {"gateway": local}


@pytest.mark.req("OPS-1")
def test_every_service_has_a_health_check_and_passes_it(compose_stack: ComposeStack) -> None:
    for service in SERVICES:
        assert all(container["Config"]["Healthcheck"]["Test"] for container in containers(compose_stack, service))
        assert compose_stack.healthy(service)
    for service in ONE_SHOTS:
        assert [container["State"]["ExitCode"] for container in containers(compose_stack, service)] == [0]


@pytest.mark.req("OPS-1")
def test_no_secret_stands_in_a_container_s_settings(compose_stack: ComposeStack) -> None:
    secrets, modes = [], []
    files = "/run/mingora/database/password /run/mingora/redis/password /run/mingora/*/key"
    for service in ("api", "coordinator-v1"):
        shell = f"for f in {files}; do test -f $f && cat $f && echo; done; true"
        secrets += compose_stack.compose("exec", "--no-TTY", service, "sh", "-c", shell).split()
        shell = "stat -c %a:%u /run/mingora/*/*"
        modes += compose_stack.compose("exec", "--no-TTY", service, "sh", "-c", shell).split()
    assert len(secrets) == 5
    assert min(map(len, secrets)) >= 32
    for service in [*SERVICES, *ONE_SHOTS]:
        told = json.dumps(compose_stack.inspect(service))
        logged = compose_stack.compose("logs", "--no-color", service)
        assert [secret for secret in secrets if secret in told or secret in logged] == [], service
    assert set(modes) == {"400:10001"}


@pytest.mark.req("OPS-1")
def test_the_services_image_is_small_and_carries_no_tools(compose_stack: ComposeStack) -> None:
    container = containers(compose_stack, "api")[0]
    size = compose_stack.docker("image", "inspect", "--format", "{{.Size}}", container["Image"])
    assert int(size) < IMAGE_LIMIT_BYTES
    tools = "for tool in pip pip3 gcc cc make git curl; do command -v $tool; done; python3 -m pip --version 2>&1; true"
    said = compose_stack.compose("exec", "--no-TTY", "api", "sh", "-c", tools)
    assert "No module named pip" in said
    assert len(said.splitlines()) == 1, said
    written = compose_stack.try_compose("exec", "--no-TTY", "api", "sh", "-c", "touch /opt/mingora/x || touch /etc/x")
    assert written.returncode != 0
    assert "Read-only" in written.stderr


@pytest.mark.req("OPS-1")
def test_a_second_start_keeps_secrets_and_data(compose_stack: ComposeStack) -> None:
    for service, word in (("init", "All secrets are there."), ("migrate", "has this version's schema")):
        said = compose_stack.try_compose("run", "--rm", "--no-deps", "--no-TTY", service, seconds=60)
        assert said.returncode == 0, said.stderr
        assert word in said.stdout


@pytest.mark.req("OPS-3", "AUTH-8")
@pytest.mark.parametrize("service", ["api", "blobstore", "scheduler"])
def test_a_service_believes_the_gateway_s_address_alone(compose_stack: ComposeStack, service: str) -> None:
    def address(name: str) -> str:
        container = containers(compose_stack, name)[0]
        (front,) = (net for name, net in container["NetworkSettings"]["Networks"].items() if name.endswith("_front"))
        return str(front["IPAddress"])

    container = containers(compose_stack, service)[0]
    trusted = [line for line in container["Config"]["Env"] if line.startswith("MINGORA_TRUSTED_PROXIES=")]
    assert trusted == [f"MINGORA_TRUSTED_PROXIES={address('gateway')}"]
    assert address(service) != address("gateway")
