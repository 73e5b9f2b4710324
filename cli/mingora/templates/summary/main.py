"""Summarises a CSV file by groups: results/summary.json for programs, results/summary.md for people."""

from __future__ import annotations

import argparse
import csv
import json
import statistics
from collections import defaultdict
from pathlib import Path

RESULTS = Path("results")
MISSING = {"", "NA", "NaN", "null"}
BAR_WIDTH = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--group-by", required=True, metavar="COLUMN")
    parser.add_argument("--skip", nargs="*", default=[], metavar="COLUMN", help="number columns to leave out")
    args = parser.parse_args()
    rows = read_rows(args.table)
    if not rows or args.group_by not in rows[0]:
        parser.error(f"{args.table} has no rows with a column {args.group_by!r}")
    print(f"read {len(rows)} rows of {args.table}", flush=True)

    others = [name for name in rows[0] if name not in {args.group_by, *args.skip}]
    columns = [name for name in others if is_numeric(rows, name)]
    groups = defaultdict(list)
    for row in rows:
        groups[row[args.group_by]].append(row)
    summary = {}
    for number, (group, members) in enumerate(sorted(groups.items()), 1):
        summary[group] = {"rows": len(members), "columns": {name: describe(members, name) for name in columns}}
        print(f"[{number}/{len(groups)}] {group}: {len(members)} rows", flush=True)

    RESULTS.mkdir(exist_ok=True)
    document = {"table": args.table.name, "rows": len(rows), "groupBy": args.group_by, "groups": summary}
    (RESULTS / "summary.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (RESULTS / "summary.md").write_text(report(document, columns), encoding="utf-8")
    print("wrote results/summary.json and results/summary.md", flush=True)


def read_rows(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def is_numeric(rows: list[dict[str, str]], column: str) -> bool:
    present = [row[column] for row in rows if row[column] not in MISSING]
    return bool(present) and all(is_number(text) for text in present)


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def describe(rows: list[dict[str, str]], column: str) -> dict[str, float | int | None]:
    """Count, mean, sample standard deviation and range of the values that are there."""
    values = [float(row[column]) for row in rows if row[column] not in MISSING]
    if not values:
        return {"count": 0, "mean": None, "sd": None, "min": None, "median": None, "max": None}
    return {
        "count": len(values),
        "mean": round(statistics.fmean(values), 3),
        "sd": round(statistics.stdev(values), 3) if len(values) > 1 else None,
        "min": min(values),
        "median": statistics.median(values),
        "max": max(values),
    }


def report(document: dict, columns: list[str]) -> str:
    groups = document["groups"]
    lines = [
        f"# {document['table']} by {document['groupBy']}",
        "",
        f"{document['rows']} rows, {len(groups)} groups.",
        "",
    ]
    for column in columns:
        lines += [
            f"## {column}",
            "",
            "| group | count | mean | sd | min | median | max |",
            "|---|---|---|---|---|---|---|",
        ]
        for group, entry in groups.items():
            cells = ["–" if value is None else str(value) for value in entry["columns"][column].values()]
            lines.append(f"| {group} | {' | '.join(cells)} |")
        lines += [
            "",
            "```",
            *chart({group: entry["columns"][column]["mean"] for group, entry in groups.items()}),
            "```",
            "",
        ]
    return "\n".join(lines)


def chart(means: dict[str, float | None]) -> list[str]:
    """Bars of the groups' means, from zero to the greatest."""
    width = max(len(group) for group in means)
    greatest = max((abs(mean) for mean in means.values() if mean is not None), default=0) or 1
    lines = []
    for group, mean in means.items():
        bar = "#" * round(BAR_WIDTH * abs(mean or 0) / greatest)
        lines.append(f"{group:<{width}}  {bar:<{BAR_WIDTH}}  {'–' if mean is None else mean}")
    return lines


if __name__ == "__main__":
    main()
