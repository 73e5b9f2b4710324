"""Places for sending and receiving adapters, which takes long: some threads stay free for what is answered at once."""

from __future__ import annotations

import threading

from mingora_coordinator.routes.wire import WireError

BUSY = "koordinatör çok yoğun; biraz sonra yeniden deneyin"
RETRY_SECONDS = 10


class Slots:
    """``count`` transfers at a time."""

    def __init__(self, count: int) -> None:
        self._places = threading.BoundedSemaphore(count)

    def take(self) -> None:
        """Take a place, which :meth:`free` gives back; 503 when there is none."""
        if not self._places.acquire(blocking=False):
            raise WireError(503, BUSY, {"Retry-After": str(RETRY_SECONDS)})

    def free(self) -> None:
        self._places.release()
