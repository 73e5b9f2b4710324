"""Holds the training still while another process uses the GPU.

NVIDIA's driver counts a GPU's use in windows of up to a second. While this program does nothing, what it counts is
somebody else's: so it pauses for a moment, looks, and goes on or waits. That sees games as well as programs, also from
within a container, where the driver names no processes.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from mingora.errors import MingoraError
from mingora_volunteer.texts import _

LOOK_SECONDS = 30.0
STILL_SECONDS = 1.5
BUSY_SECONDS = 10.0
BUSY_PERCENT = 10
_SMI_SECONDS = 30


class NoFigures(MingoraError):
    """The driver doesn't tell how busy the GPU is."""


class Courtesy:
    """Called between steps: waits while the GPU is busy. `percent` looks at it and raises `NoFigures`."""

    def __init__(
        self,
        percent: Callable[[], int],
        note: Callable[[str], object],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._percent = percent
        self._note = note
        self._clock = clock
        self._sleep = sleep
        self._next = clock()

    def __call__(self) -> None:
        """The caller's own work on the GPU has to be over."""
        if self._clock() < self._next:
            return
        self._sleep(STILL_SECONDS)
        if self._busy():
            self._note(_("Another process uses the GPU; the training waits."))
            while self._busy():
                self._sleep(BUSY_SECONDS)
            self._note(_("The GPU is free again; the training goes on."))
        self._next = self._clock() + LOOK_SECONDS

    def _busy(self) -> bool:
        try:
            return self._percent() >= BUSY_PERCENT
        except NoFigures as error:
            self._note(error.message)
            return False


def gpu_percent(uuid: str) -> int:
    """How busy the driver counts that GPU over its last window, in percent. Raises `NoFigures`."""
    query = ["nvidia-smi", f"--id={uuid}", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_SMI_SECONDS, check=False)
    except FileNotFoundError as error:
        raise NoFigures(_("nvidia-smi isn't installed: nobody else's use of the GPU is seen.")) from error
    except (OSError, UnicodeDecodeError, subprocess.TimeoutExpired) as error:
        raise NoFigures(_("nvidia-smi failed: nobody else's use of the GPU is seen.")) from error
    figure = done.stdout.strip()
    if done.returncode != 0 or not figure.isascii() or not figure.isdigit():
        raise NoFigures(_("nvidia-smi doesn't tell how busy this GPU is: nobody else's use of it is seen."))
    return int(figure)
