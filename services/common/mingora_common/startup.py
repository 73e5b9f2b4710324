"""What a process makes sure of before it begins its work: settings and database, with every problem told at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from mingora_common.config import ConfigError, Env
from mingora_common.db import migrate
from mingora_common.db.reach import DatabaseAway, url_problem

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
