#!/usr/bin/env python3
"""docs/settings.md says what `metaroce settings --markdown` says."""
import json
import os
import sys
from pathlib import Path

import harness


def main():
    root = Path(os.environ.get("MR_SOURCE_DIR", Path(__file__).resolve().parents[2]))
    page = harness.run("settings", "--markdown").stdout
    if (root / "docs/settings.md").read_text(encoding="utf-8") != page:
        print("docs/settings.md is out of date; run: metaroce settings --markdown "
              "> docs/settings.md")
        return 1
    table = json.loads(harness.run("settings", "--json").stdout)
    plain = harness.run("settings").stdout
    for row in table:
        assert row["minimum"] <= row["default"] <= row["maximum"], row
        assert row["name"] in plain and f"`{row['name']}`" in page, row
    print(f"{len(table)} settings, page up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
