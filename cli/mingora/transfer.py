"""Moves files between this machine and the platform: both directions under one name (see upload.py, download.py)."""

from mingora.download import download_files
from mingora.upload import upload_files

__all__ = ["download_files", "upload_files"]
