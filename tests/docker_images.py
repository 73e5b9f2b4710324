"""The images of Docker tests, each by its pinned reference."""

from __future__ import annotations

from docker_support import Registry

VOLUME = "/var/overflow"
"""Where the image with a volume has it."""
HEALTH_FILE = "/mingora/project/results/health"
"""What the image with a health check writes to, once a second."""
ENTRYPOINT_SAYS = "the image's entry point ran"
"""What the image with an entry point prints before it runs what it is given."""


def plain(registry: Registry) -> str:
    """Debian with Python, coreutils and a shell, run by nobody in particular."""
    return registry.image("plain")


def with_volume(registry: Registry) -> str:
    """It declares a volume: a place that is writable, whatever the root is."""
    return registry.image("volume", [f"VOLUME {VOLUME}"])


def with_health_check(registry: Registry) -> str:
    """It has the engine run a command in the job's container."""
    return registry.image("health", [f"HEALTHCHECK --interval=1s CMD echo checked >>{HEALTH_FILE}"])


def with_entry_point(registry: Registry) -> str:
    """It has a program of its own, a user and a working folder, none of which are the job's."""
    entry = f"""ENTRYPOINT ["sh", "-c", "echo \\"{ENTRYPOINT_SAYS}\\"; exec \\"$@\\"", "entry"]"""
    return registry.image("entry", [entry, 'CMD ["true"]', "USER 4321:4321", "WORKDIR /var/tmp"])
