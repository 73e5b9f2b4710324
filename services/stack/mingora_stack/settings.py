"""What the stack's processes are told by their environment.

They get the services' own settings, and nothing that happens to be set where the stack was started.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import quote

import sqlalchemy as sa

from mingora_common import faults
from mingora_stack import leftovers
from mingora_stack.folder import DataFolder

# What a program needs of its surroundings. Settings of gunicorn, systemd or another Mingora never get through.
PASSED_ON = (
    "PATH",
    "HOME",
    "LANG",
    "TZ",
    "TMPDIR",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONDONTWRITEBYTECODE",
    faults.SETTING,
    faults.TESTING,
)

LISTEN_FDS = "MINGORA_STACK_LISTEN_FDS"
CERTIFICATE = "MINGORA_STACK_CERTIFICATE"


def surroundings(folder: DataFolder, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of every process: what is passed on, and the mark that leftovers are known by.

    ``PYTHONSAFEPATH``: a module's name never means a file that lies in the folder where the stack was started.
    """
    kept = {name: value for name, value in environ.items() if name in PASSED_ON or name.startswith("LC_")}
    return kept | {leftovers.MARK: folder.mark(), "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}


def database_url(folder: DataFolder) -> str:
    """The SQLAlchemy URL of the folder's platform database."""
    return sa.URL.create("sqlite", database=str(folder.platform)).render_as_string(hide_password=False)


def services(folder: DataFolder, *, redis_socket: str, url: str, ca_file: str | None) -> dict[str, str]:
    """The settings of api, blobstore, scheduler and the task worker; ``url`` is where they reach each other."""
    settings = {
        "DATABASE_URL": database_url(folder),
        "REDIS_URL": f"unix://{quote(redis_socket)}",
        "MINGORA_CONTENT_FILE": str(folder.content),
        "MINGORA_INTERNAL_KEY_FILE": str(folder.internal_key_file()),
        "MINGORA_METRICS_KEY_FILE": str(folder.metrics_key_file()),
        "MINGORA_BLOBSTORE_URL": url,
    }
    return settings if ca_file is None else settings | {"MINGORA_INTERNAL_CA_FILE": ca_file}
