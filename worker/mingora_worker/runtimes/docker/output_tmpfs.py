"""An output in a tmpfs volume of the engine, for a worker without root: the kernel keeps the limit.

The volume's content vanishes with the last container that uses it, so a second one, of the same image and with no
rights, holds it from before the job until its results are read. What is in it counts as the job's memory.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import tarfile
import tempfile
from collections.abc import Callable
from typing import IO

from docker.models.containers import Container
from docker.types import LogConfig, Mount

from mingora_worker.results import Collected
from mingora_worker.runtimes.docker.archive import BLOCK, PAGE_BYTES, Contents, take, whole_pages
from mingora_worker.runtimes.docker.engine import CALL_SECONDS, FAILURES, explanation, is_answer
from mingora_worker.runtimes.docker.output import OutputFailed, Place, preset_entries, preset_too_large
from mingora_worker.state import remove_tree
from mingora_worker.texts import _

SPOOL = "spool"
INSIDE = "/mingora/output"
# How often the archive is read anew without a file of holes; each time it may be as long as the limit.
MAX_REMOVED = 8
_FOREVER = ["sleep", "2147483647"]


class TmpfsOutput:
    """Needs `sleep` and, for files of holes, `rm` in the image."""

    kind = "tmpfs"

    def __init__(self, place: Place) -> None:
        self._place = place
        self._name = f"mingora-output-{secrets.token_hex(8)}"
        self._spool = place.folder / SPOOL
        self._holder: Container | None = None
        self._seen: str | None = None
        self._full = False
        try:
            self._holder = self._hold()
            self._copy_preset(self._holder)
        except BaseException as error:
            self.close()
            if isinstance(error, FAILURES) and is_answer(error):
                text = _("The engine can't make the output: {reason}")
                raise OutputFailed(text.format(reason=explanation(error))) from error
            raise

    def mount(self, target: str) -> Mount:
        return Mount(target, self._name, type="volume", no_copy=True)

    def full(self) -> bool:
        """Seen through the holder's process where that is on this machine, and else only when collected."""
        if not self._full and self._seen is not None:
            with contextlib.suppress(OSError, AttributeError):  # Windows has no such call
                info = os.statvfs(self._seen)
                ours = info.f_blocks * info.f_frsize == whole_pages(self._place.limit_bytes)
                self._full = ours and 0 in (info.f_bavail, info.f_favail)
        return self._full

    def over(self) -> bool:
        return False

    def collect(self, check: Callable[[], object]) -> Collected:
        removed: list[str] = []
        while True:
            contents = self._take(check)
            holes = contents.holes
            if holes is None or len(removed) == MAX_REMOVED or not self._remove(holes):
                break
            removed.append(holes)
        found = contents.found
        for path in removed:
            found.refuse(path, _("is a huge file of almost nothing but holes"))
        if holes is not None:
            found.refuse(holes, _("is a huge file of almost nothing but holes; what comes after it is left out too"))
        self._full = self._full or self._reached(contents)
        return found

    def close(self) -> None:
        """The engine may be away: what is left there is found by its labels."""
        remove_tree(self._spool)
        with contextlib.suppress(*FAILURES):
            if self._holder is not None:
                self._holder.remove(force=True, v=True)
        self._holder = None
        with contextlib.suppress(*FAILURES):
            self._place.engine.volumes.get(self._name).remove()

    def _hold(self) -> Container:
        place = self._place
        options = [
            f"size={place.limit_bytes}", f"nr_inodes={place.limit_inodes + 1}", f"uid={place.uid}", f"gid={place.gid}",
            "mode=0700", "nosuid", "nodev",
        ]  # fmt: skip
        place.engine.volumes.create(
            self._name,
            driver="local",
            driver_opts={"type": "tmpfs", "device": "tmpfs", "o": ",".join(options)},
            labels=dict(place.labels),
        )
        holder = place.engine.containers.create(
            place.image,
            entrypoint=_FOREVER,
            command=[],
            name=self._name,
            labels=dict(place.labels),
            user=f"{place.uid}:{place.gid}",
            mounts=[self.mount(INSIDE)],
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            mem_limit="32m",
            memswap_limit="32m",
            pids_limit=8,
            healthcheck={"test": ["NONE"]},
            log_config=LogConfig(type="none"),
        )
        self._holder = holder
        holder.start()
        holder.reload()
        self._seen = f"/proc/{holder.attrs['State']['Pid']}/root{INSIDE}"
        return holder

    def _copy_preset(self, holder: Container) -> None:
        """Sends the project's own results as an archive. Raises `OutputFull`."""
        with tempfile.TemporaryFile(dir=self._place.folder) as archive:
            _write_preset(self._place, archive)
            if archive.tell() == 0:
                return
            archive.seek(0)
            try:
                holder.put_archive(INSIDE, archive)
            except FAILURES as error:
                if is_answer(error) and "no space left" in explanation(error):
                    raise preset_too_large(self._place) from error
                raise

    def _take(self, check: Callable[[], object]) -> Contents:
        remove_tree(self._spool)
        self._spool.mkdir(0o700)
        if self._holder is None:
            raise OutputFailed(_("The output is closed."))
        try:
            # By hand: the SDK's own call gives no answer to close, and an open one keeps the holder from being removed.
            api = self._place.engine.api
            url = f"{api.base_url}/v{api.api_version}/containers/{self._holder.id}/archive"
            with contextlib.closing(api.get(url, params={"path": INSIDE}, stream=True, timeout=CALL_SECONDS)) as answer:
                answer.raise_for_status()
                return take(answer.iter_content(BLOCK), self._spool, self._place.limit_bytes, check)
        except FAILURES as error:
            if is_answer(error):
                text = _("The engine can't read the results: {reason}")
                raise OutputFailed(text.format(reason=explanation(error))) from error
            raise

    def _remove(self, path: str) -> bool:
        """Whether the file is gone. The holder's user is the job's: a folder without rights keeps what is in it."""
        name = f"{INSIDE}/{path}".encode("utf-8", "surrogateescape")
        with contextlib.suppress(UnicodeDecodeError, *FAILURES):
            if self._holder is not None:
                return self._holder.exec_run(["rm", "-f", "--", name.decode()]).exit_code == 0
        return False

    def _reached(self, contents: Contents) -> bool:
        place = self._place
        return contents.size + PAGE_BYTES > whole_pages(place.limit_bytes) or contents.entries >= place.limit_inodes


def _write_preset(place: Place, file: IO[bytes]) -> None:
    entries = list(preset_entries(place))
    if not entries:
        return
    with tarfile.open(fileobj=file, mode="w|", bufsize=io.DEFAULT_BUFFER_SIZE, format=tarfile.PAX_FORMAT) as archive:
        for source, name, is_folder in entries:
            member = archive.gettarinfo(source, name)
            member.uid, member.gid, member.uname, member.gname = place.uid, place.gid, "", ""
            member.mode = member.mode & 0o700 | (0o700 if is_folder else 0o600)
            if is_folder:
                archive.addfile(member)
            else:
                with source.open("rb") as content:
                    archive.addfile(member, content)
