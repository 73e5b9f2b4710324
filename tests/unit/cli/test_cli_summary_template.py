"""The summary template is a project that runs as it is and computes what it says."""

from __future__ import annotations

import csv
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from mingora import jobfile
from mingora.commands.project import TEMPLATES

SCHEMA = json.loads((Path(__file__).parents[3] / "services/api/mingora_api/domain/job.schema.json").read_text())


@pytest.mark.req("CLI-3")
def test_every_template_has_a_job_that_the_platform_takes() -> None:
    found = [path.parent for path in TEMPLATES.glob("*/job.json")]
    assert TEMPLATES / "summary" in found
    for folder in found:
        jobfile.check(jobfile.read(folder), SCHEMA)


@pytest.mark.req("CLI-3")
def test_the_summary_runs_and_is_right(tmp_path: Path) -> None:
    folder = TEMPLATES / "summary"
    command = jobfile.read(folder)["command"]
    for name in ("main.py", "data/penguins.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    done = subprocess.run(
        [sys.executable, "-S", *command[1:]], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "[3/3] Gentoo: 124 rows" in done.stdout
    summary = json.loads((tmp_path / "results/summary.json").read_text())
    with (folder / "data/penguins.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["species"] == "Adelie"]
    masses = [float(row["body_mass_g"]) for row in rows if row["body_mass_g"] != "NA"]
    adelie = summary["groups"]["Adelie"]
    assert (summary["rows"], adelie["rows"], adelie["columns"]["body_mass_g"]["count"]) == (344, 152, len(masses))
    assert adelie["columns"]["body_mass_g"]["mean"] == pytest.approx(statistics.mean(masses), abs=0.001)
    assert "year" not in adelie["columns"]
    assert "| Adelie | 151 |" in (tmp_path / "results/summary.md").read_text()


@pytest.mark.req("CLI-3")
def test_the_data_sets_source_and_licence_are_stated() -> None:
    text = (TEMPLATES / "summary" / "DATA.md").read_text()
    assert "CC0 1.0" in text and "Gorman" in text
