"""How a service starts that has a process of its own: settings and database first, with every problem told at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TypeVar

from mingora_common import logs
from mingora_common.config import ConfigError, Env
from mingora_common.db import migrate
from mingora_common.db.reach import DatabaseAway, url_problem
from mingora_common.serving import Address, Served, Server, gunicorn_settings

T = TypeVar("T")


def checked(read: Callable[[Mapping[str, str]], T], environ: Mapping[str, str]) -> T:
    """What ``read`` makes of the environment, once the database answers and has this code's schema.

    Raises:
        ConfigError: every problem, of the settings and of the database, each with its fix.
    """
    problems: list[str] = []
    try:
        config = read(environ)
    except ConfigError as error:
        problems.append(str(error))
    url = Env(environ).optional("DATABASE_URL")
    if url is not None and url_problem(url) is None:  # else ``read`` has told it
        try:
            migrate.check(url)
        except (migrate.SchemaError, DatabaseAway) as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("; ".join(problem.rstrip(".") for problem in problems))
    return config


def run(service: str, waiting_places: Callable[[Mapping[str, str]], int], build: Callable[[], Served]) -> None:
    """The command of a service that has a process of its own: serve until SIGTERM.

    Args:
        service: its name, for logs and messages.
        waiting_places: reads and checks the service's configuration, and gives the number of reads that may wait.
        build: makes the application.
    """
    os.umask(0o077)
    try:
        places = checked(waiting_places, os.environ)
        listener = Address.from_env(os.environ).bind()
    except ConfigError as error:
        sys.exit(f"mingora-{service}: {error}")
    logs.configure(service)
    Server(build, gunicorn_settings([listener.fileno()], places)).run()
