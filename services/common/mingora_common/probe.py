"""Whether a service answers: ``python -m mingora_common.probe PORT [PATH]`` ends with 0 when it does.

What a container's health check runs; small, for it runs often, and images carry no other HTTP client.
"""

from __future__ import annotations

import http.client
import sys
from collections.abc import Sequence

TIMEOUT_SECONDS = 4.0


def main(arguments: Sequence[str]) -> int:
    """0 when ``127.0.0.1:PORT`` answers 200 on ``PATH`` (``/readyz``), else 1 with the reason on stderr."""
    port, path = int(arguments[0]), (arguments[1] if len(arguments) > 1 else "/readyz")
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
    except (OSError, http.client.HTTPException) as error:
        print(f"{path} doesn't answer: {error}", file=sys.stderr)
        return 1
    if status != 200:
        print(f"{path} answers {status}", file=sys.stderr)
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
