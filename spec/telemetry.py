#!/usr/bin/env python3
"""Writes the tables of 11-telemetry.md from the declarations; --check exits 1 on drift."""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
BASE = HERE.parent / "src" / "base"
PAGE = HERE / "11-telemetry.md"


def rows_of(text, macro, fields):
    body = re.search(rf"#define {macro}\(X\)((?:[^\n]*\\\n)*[^\n]*)", text).group(1)
    strings = r",\s*".join([r'"([^"]*)"'] * fields)
    return re.findall(rf"X\((\w+),\s*{strings}\)", body)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def tables():
    counters = (BASE / "counters.h").read_text()
    out = {}
    for scope in ("path", "connection", "endpoint"):
        rows = rows_of(counters, f"MR_{scope.upper()}_COUNTERS", 2)
        out[f"counters: {scope}"] = table(("name", "unit", "meaning"),
                                          [(f"`{n}`", u, m) for n, u, m in rows])
    events = rows_of((BASE / "events.h").read_text(), "MR_EVENTS", 4)
    out["events"] = table(
        ("kind", "fields", "meaning"),
        [(f"`{row[0]}`", " ".join(f"`{f}`" for f in row[1:4] if f), row[4]) for row in events])
    return out


def render(text):
    for mark, lines in tables().items():
        block = f"<!-- {mark} -->\n" + "\n".join(lines) + "\n"
        text = re.sub(rf"<!-- {mark} -->\n(?:\|[^\n]*\n)*", lambda _, b=block: b, text)
    return text


def main():
    text = PAGE.read_text()
    if "--check" in sys.argv[1:]:
        if render(text) != text:
            print("spec/11-telemetry.md is not current: run spec/telemetry.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(render(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
