"""The one HTTP server of the stack: gunicorn with threads over the three services.

Run as ``python -m mingora_stack.server``.
"""

from __future__ import annotations

import os
from typing import Any

from mingora_common import logs, tls
from mingora_common.serving import Server, gunicorn_settings
from mingora_stack import platform, settings
from mingora_stack.launch import die_with_parent


def server_settings() -> dict[str, Any]:
    """gunicorn's settings for this stack: its sockets, its certificate, and an end with its supervisor."""
    descriptors = map(int, os.environ[settings.LISTEN_FDS].split(","))
    chosen = gunicorn_settings(descriptors, platform.waiting_places(os.environ)) | {"post_fork": _after_fork}
    certificate = os.environ.get(settings.CERTIFICATE)
    return chosen | (tls.gunicorn_settings(certificate) if certificate else {})


def _after_fork(_arbiter: Any, worker: Any) -> None:
    die_with_parent(worker.ppid)


def main() -> None:
    """Serve until SIGTERM."""
    logs.configure("server")
    Server(lambda: platform.build(os.environ), server_settings()).run()


if __name__ == "__main__":
    main()
