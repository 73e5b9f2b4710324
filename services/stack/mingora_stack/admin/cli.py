"""``mingora-admin``: api's commands (``mingora_api.admin``) and the two that move a whole platform."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from mingora_api.admin import cli as api_cli
from mingora_api.admin.cli import leaf
from mingora_api.admin.output import Output, note
from mingora_api.admin.session import AdminError, operator, sqlite_path
from mingora_api.store import audit
from mingora_blobstore.server import check_content
from mingora_blobstore.store.content import PIECE
from mingora_blobstore.store.sqlite_content import SqliteContent
from mingora_common import __version__
from mingora_common.clock import SystemClock
from mingora_common.config import Env
from mingora_common.db import migrate, schema
from mingora_common.db.engine import Database
from mingora_common.db.reach import telling
from mingora_common.errors import ServiceError
from mingora_stack.admin.archive import ArchiveError
from mingora_stack.admin.exporting import Exporter, ExportError
from mingora_stack.admin.importing import Importer, ImportRefused, opened, verify
from mingora_stack.admin.outfile import written
from mingora_stack.errors import StackError
from mingora_stack.folder import DataFolder

STDIO = "-"


def run(argv: Sequence[str] | None = None) -> int:
    """The entry point; ``argv`` is without the program's name."""
    return api_cli.run(argv, more=_commands)


def _commands(commands: Any) -> None:
    export = leaf(commands, "export", _export, "write the whole platform into an archive, while it runs", whole=True)
    export.add_argument("file", metavar="FILE", help="a file that doesn't exist yet; - is stdout")
    fill = leaf(commands, "import", _import, "fill an empty platform from an archive", whole=True)
    fill.add_argument("file", metavar="FILE", help="what `mingora-admin export` wrote; - is stdin")


def _export(url: str, arguments: argparse.Namespace, output: Output) -> None:
    content_file = _content_file(arguments)
    path = sqlite_path(url)
    if path is not None and not path.exists():
        raise AdminError(f"There is no platform at {path}.")
    migrate.check(url)
    if not content_file.exists():
        raise AdminError(f"There is no content file {content_file}. Run this where blobstore's volume is.")
    if arguments.file == STDIO and sys.stdout.isatty():
        raise AdminError("An archive is no text for a terminal: name a file, or pipe it on.")
    database, content, clock = Database(url, schema.API), SqliteContent(str(content_file)), SystemClock()
    try:
        with _told(), telling(database.url):
            with database.write() as connection:
                audit.record(connection, clock.now(), operator(), "platform.export")
            exporter = Exporter(database, content, clock, __version__, content_file.parent)
            with (
                contextlib.nullcontext(sys.stdout.buffer)
                if arguments.file == STDIO
                else written(Path(arguments.file)) as stream
            ):
                done = exporter.run(stream)
    finally:
        content.close()
        database.close()
    if done.lost_parts:
        note(f"{done.lost_parts} parts were not there or damaged: they are as lost in the archive as they are here.")
    text = f"Exported {done.rows} rows and {done.parts} parts ({done.part_bytes} bytes)."
    if arguments.file == STDIO:
        note(text)
    else:
        output.result(text, rows=done.rows, parts=done.parts, partBytes=done.part_bytes, lostParts=done.lost_parts)


def _import(url: str, arguments: argparse.Namespace, output: Output) -> None:
    content_file = _content_file(arguments)
    with _told(), _archive(arguments.file, content_file.parent) as archive:
        verify(archive)
        archive.seek(0)
        with _alone(arguments):
            migrate.upgrade(url)
            check_content(str(content_file))
            with opened(url, content_file) as (database, content), telling(database.url):
                done = Importer(database, content, SystemClock(), operator(), content_file.parent).run(archive)
    if done.lost_parts:
        note(f"{done.lost_parts} parts were lost already where the archive was made.")
    output.result(
        f"Imported {done.rows} rows and {done.parts} parts ({done.part_bytes} bytes).",
        rows=done.rows, parts=done.parts, partBytes=done.part_bytes, lostParts=done.lost_parts,
    )  # fmt: skip


@contextlib.contextmanager
def _alone(arguments: argparse.Namespace) -> Iterator[None]:
    """With ``--data``: the folder is made, and no stack runs on it meanwhile."""
    if arguments.data is None:
        yield
        return
    folder = DataFolder(Path(arguments.data))
    folder.prepare()
    with folder.claim():
        yield


@contextlib.contextmanager
def _archive(name: str, folder: Path) -> Iterator[BinaryIO]:
    """The archive as a file that can be read twice: stdin is put aside, where its content will need the room anyway.

    That is ``folder``, or where it will be made: an archive that is refused leaves no folder behind.
    """
    if name != STDIO:
        with open(name, "rb") as file:
            yield file
        return
    there = next((each for each in (folder, *folder.parents) if each.is_dir()), folder)
    with tempfile.TemporaryFile(dir=there) as aside:
        shutil.copyfileobj(sys.stdin.buffer, aside, PIECE)
        aside.seek(0)
        yield aside


def _content_file(arguments: argparse.Namespace) -> Path:
    """Where objects' bytes are: beside the platform with ``--data``, else ``MINGORA_CONTENT_FILE``."""
    if arguments.data is not None:
        return DataFolder(Path(arguments.data)).content
    env = Env(os.environ)
    file = env.optional("MINGORA_CONTENT_FILE")
    env.check()
    if file is None:
        raise AdminError(
            "Where are the objects' bytes? Set MINGORA_CONTENT_FILE, and run this where blobstore's volume is mounted."
        )
    return Path(file)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """What goes wrong while moving, in the words of the command line."""
    try:
        yield
    except (ArchiveError, ExportError, ImportRefused, StackError) as error:
        raise AdminError(str(error)) from error
    except ServiceError as error:
        raise AdminError(f"The content file can't be used: {error.__cause__}.") from error
    except sqlite3.Error as error:  # of the set of keys: all else has its own errors
        raise AdminError(f"The temporary file beside the content file can't be used: {error}. Make room.") from error
