"""Moves files: up in parts that resume and skip what the account has, down with the whole SHA-256 re-computed (CLI-9)."""

from __future__ import annotations

from mingora.download import Wanted, download_files
from mingora.upload import upload_files

__all__ = ["Wanted", "download_files", "upload_files"]
