"""Docker's compose plugin for the tests, from the distribution's packages; which packages apt takes stays as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

# The first Debian release whose compose is the plugin (`docker compose`); it is one static program.
SUITE = "trixie"
PACKAGE = "docker-compose"
PLUGIN = "usr/libexec/docker/cli-plugins/docker-compose"
TARGET = Path("/usr/local/lib/docker/cli-plugins/docker-compose")


def install() -> None:
    """Put the plugin where Docker's client finds it; what fails is seen by the plugin not being there."""
    if _apt_get("install", "-y", "--no-install-recommends", "docker-compose-v2"):  # Ubuntu's name for it
        return
    mirror = _mirror()
    if mirror is None:
        return
    with tempfile.TemporaryDirectory(prefix="mingora-compose-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # apt fetches as a user of its own
        (folder / "lists").mkdir()
        (folder / "sources.list").write_text(f"deb {mirror} {SUITE} main\n")
        (folder / "preferences").write_text(f"Package: *\nPin: release n={SUITE}\nPin-Priority: 100\n")
        ours = (
            f"Dir::Etc::SourceList={folder}/sources.list", "Dir::Etc::SourceParts=/dev/null",
            f"Dir::Etc::Preferences={folder}/preferences", f"Dir::State::Lists={folder}/lists",
            f"Dir::Cache::pkgcache={folder}/pkgcache.bin", f"Dir::Cache::srcpkgcache={folder}/srcpkgcache.bin",
        )  # fmt: skip
        options = [word for setting in ours for word in ("-o", setting)]
        if not _apt_get(*options, "update") or not _apt_get(*options, "download", PACKAGE, cwd=folder):
            return
        (package,) = folder.glob(f"{PACKAGE}_*.deb")
        subprocess.run(["dpkg-deb", "--extract", str(package), str(folder / "root")], check=True)
        TARGET.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "root" / PLUGIN, TARGET)
        TARGET.chmod(0o755)


def _mirror() -> str | None:
    """Where apt gets Debian from on this machine."""
    done = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = [line for line in done.stdout.splitlines() if "security" not in line]
    return found[0] if found else None


def _apt_get(*words: str, cwd: Path | None = None) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["apt-get", "-qq", *words], env=environment, cwd=cwd, capture_output=True, check=False)
    return done.returncode == 0
