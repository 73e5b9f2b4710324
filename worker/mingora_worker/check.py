"""`--check`: what this machine offers, and what stands in the way, each with the remedy."""

from __future__ import annotations

from mingora.errors import MingoraError
from mingora_worker.config import Config
from mingora_worker.console import Console, plain
from mingora_worker.disk import Disk
from mingora_worker.machine import Machine, describe, lock_gpu
from mingora_worker.offering import Offering, refuse_nothing
from mingora_worker.register import Registrar
from mingora_worker.runtimes.base import Offer
from mingora_worker.state import Root
from mingora_worker.texts import _


def check(config: Config) -> int:
    """Prints one finding a line on stdout. Returns 0 when a worker could start with these options, else 1."""
    report = _Report()
    for part in (_machine, _folder, _runtimes, _platform):
        try:
            part(report, config)
        except MingoraError as error:
            report.problem(error.message, error.hint)
    return 0 if report.good else 1


class _Report:
    def __init__(self) -> None:
        self.good = True
        self.machine: Machine | None = None
        self.folder_is_free = False
        self.offer = Offer(())

    def fine(self, text: str) -> None:
        print(f"ok       {plain(text)}")

    def problem(self, text: str, remedy: str | None) -> None:
        self.good = False
        heading = _("PROBLEM")
        print(f"{heading:<7}  {plain(text)}")
        if remedy:
            print(f"         {plain(remedy)}")


def _machine(report: _Report, config: Config) -> None:
    machine = describe(config.gpu_index)
    report.machine = machine
    report.fine(_("machine: {id}").format(id=machine.machine_id))
    size = _("platform: {platform}, {cpu} CPUs, {memory} MiB of memory")
    report.fine(size.format(platform=machine.platform, cpu=machine.cpu, memory=machine.memory_mib))
    report.fine(_("environment fingerprint: {value}").format(value=machine.fingerprint))
    for name, path in sorted(config.data.items()):
        report.fine(_("data {name}: {path}").format(name=name, path=path))
    if machine.gpu is None:
        report.fine(_("GPU: none offered (--gpu-index)"))
    else:
        lock_gpu(machine.gpu).close()
        gpu = _("GPU {index}: {name}, {memory} MiB, {uuid}")
        report.fine(
            gpu.format(
                index=machine.gpu.index, name=machine.gpu.name, memory=machine.gpu.memory_mib, uuid=machine.gpu.uuid
            )
        )


def _folder(report: _Report, config: Config) -> None:
    root = Root(config.root)
    root.open()
    root.close()
    report.folder_is_free = True
    report.fine(_("folder: {path}").format(path=config.root))
    space = Disk(config.root, config.max_disk).problem()
    if space is None:
        report.fine(_("disk: enough room"))
    else:
        report.problem(_("disk: {problem}").format(problem=space), _("Make room, or raise --max-disk."))


def _runtimes(report: _Report, config: Config) -> None:
    """Tries the container engine as a start does, the image's download included."""
    if report.machine is None or not report.folder_is_free:  # else a running worker's containers would be ended
        return
    refuse_nothing(config)
    root = Root(config.root)
    root.open()
    offering = None
    try:
        offering = Offering(root, config, report.machine, Console())
        ready = offering.prepare(lambda: None)
        report.offer = offering.offer()
    finally:
        if offering is not None:
            offering.close()
        root.close()
    report.fine(_("native jobs: run") if "native" in ready else _("native jobs: not allowed (--allow-own-code)"))
    if config.docker_image is None:
        report.fine(_("Docker jobs: no image (--docker-image)"))
    elif report.offer.isolation is not None:
        text = _("Docker jobs: in {image} on engine {engine}; output limited by {quota}")
        report.fine(text.format(**report.offer.isolation))
    else:
        report.problem(_("Docker jobs: refused, see above"), None)


def _platform(report: _Report, config: Config) -> None:
    if report.machine is not None and report.folder_is_free:  # else a running worker's record would be changed
        registrar = Registrar(
            Root(config.root), config, report.machine, lambda: report.offer, Console(), pause=lambda _seconds: None
        )
        report.fine(registrar.probe())
