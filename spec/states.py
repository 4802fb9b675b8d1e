#!/usr/bin/env python3
"""Renders states.toml into chapter 9 between two marks; --check exits 1 when it is not current."""
import pathlib
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
CHAPTER = HERE / "09-setup-security.md"
BEGIN, END = "<!-- states.toml: begin -->", "<!-- states.toml: end -->"


def cell(state, entry):
    does, answer, after = entry
    parts = [does]
    if answer != "-":
        parts.append("answer " + answer)
    if after != state and not state.startswith(after):
        parts.append("then " + after)
    return "; ".join(parts)


def render(table):
    states = list(table["states"])
    lines = ["| packet | " + " | ".join(states) + " |", "| --- " * (len(states) + 1) + "|"]
    for kind in table["kinds"]:
        cells = [cell(s, table["states"][s][kind]) for s in states]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    lines += ["", "The packets:", ""]
    lines += [f"- {kind}: {meaning}" for kind, meaning in table["kinds"].items()]
    return "\n".join(lines)


def main():
    table = tomllib.loads((HERE / "states.toml").read_text())
    for state, cells in table["states"].items():
        if set(cells) != set(table["kinds"]):
            sys.exit(f"states.toml: {state} lacks {set(table['kinds']) ^ set(cells)}")
    text = CHAPTER.read_text()
    head, rest = text.split(BEGIN)
    new = f"{head}{BEGIN}\n{render(table)}\n{END}{rest.split(END)[1]}"
    if "--check" in sys.argv[1:]:
        if new != text:
            sys.exit("09-setup-security.md is not current: run spec/states.py")
    else:
        CHAPTER.write_text(new)


if __name__ == "__main__":
    main()
