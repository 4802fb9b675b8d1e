#!/usr/bin/env python3
"""Prints line coverage per folder under src/ from a gcovr JSON report."""
import json
import sys


def folder_of(name):
    parts = name.split("/")
    if len(parts) < 3 or parts[0] != "src":
        return None
    return "/".join(parts[1:-1])


def main():
    with open(sys.argv[1], encoding="utf-8") as report:
        files = json.load(report)["files"]
    # One header appears once for each object that includes it: a line counts once.
    lines = {}
    for entry in files:
        folder = folder_of(entry["file"])
        if folder is None:
            continue
        for line in entry["lines"]:
            if line.get("gcovr/noncode"):
                continue
            key = (entry["file"], line["line_number"])
            lines[key] = lines.get(key, 0) + line["count"]
    totals = {}
    for (name, _), count in lines.items():
        hit, total = totals.get(folder_of(name), (0, 0))
        totals[folder_of(name)] = (hit + (count > 0), total + 1)
    print(f"{'folder':<20}{'lines':>8}{'hit':>8}{'%':>8}")
    for folder in sorted(totals):
        hit, total = totals[folder]
        print(f"{folder:<20}{total:>8}{hit:>8}{100.0 * hit / total:>8.1f}")
    hit = sum(value[0] for value in totals.values())
    total = sum(value[1] for value in totals.values())
    if total == 0:
        print("no coverage data", file=sys.stderr)
        return 1
    print(f"{'all':<20}{total:>8}{hit:>8}{100.0 * hit / total:>8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
