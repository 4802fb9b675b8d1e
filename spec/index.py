#!/usr/bin/env python3
"""Writes INDEX.md from the rules of the chapters; --check exits 1 on drift or a malformed rule."""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
AREAS = "ADDR|WIRE|PATH|CPSN|LOSS|HEALTH|ACK|MSG|MEM|CC|CONN|PMTU|SEC|TEL"
RULE = re.compile(r"^\*\*(MR-(" + AREAS + r")-\d{3})\*\* (.+)$")
LEVEL = re.compile(r"\b(MUST NOT|MUST|SHOULD NOT|SHOULD|MAY)\b")


def level_of(text):
    """The first level word of a rule: it is the rule's level. '-' when there is none."""
    match = LEVEL.search(text)
    return match.group(1) if match else "-"


def summary_of(text):
    words = re.sub(r"[`*|]", "", text.replace(" [MC]", ""))
    words = re.split(r"(?<=[a-z0-9)])[.;:] ", words)[0]
    return words if len(words) <= 118 else words[:115].rsplit(" ", 1)[0] + " ..."


def collect():
    rules, errors = {}, []
    for path in sorted(HERE.glob("[0-9][0-9]-*.md")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            where = f"{path.name}:{number}"
            match = RULE.match(line)
            if not match:
                if line.startswith("**MR-"):
                    errors.append(f"{where}: malformed rule")
                continue
            if match[1] in rules:
                errors.append(f"{where}: {match[1]} stands twice")
            rules[match[1]] = (level_of(match[3]), summary_of(match[3]), path.stem)
            if rules[match[1]][0] == "-":
                errors.append(f"{where}: {match[1]} has no level word")
    known = set(rules)
    for path in sorted(HERE.glob("*.md")):
        if path.name != "INDEX.md":
            for rule in re.findall(r"MR-[A-Z]+-\d{3}", path.read_text()):
                if rule not in known:
                    errors.append(f"{path.name}: cites unknown {rule}")
    listed = (HERE / "exceptions.toml").read_text()
    for rule in re.findall(r'^\["?(MR-[A-Z]+-\d{3})"?\]', listed, re.M):
        if rule not in known:
            errors.append(f"exceptions.toml: unknown {rule}")
    return rules, errors


def render(rules):
    out = ["# Index of rules", "", "Written by `index.py`; do not edit.", "",
           "| id | level | summary | chapter |", "| --- | --- | --- | --- |"]
    out += [f"| {k} | {v[0]} | {v[1]} | {v[2]} |" for k, v in sorted(rules.items())]
    musts = sum(v[0].startswith("MUST") for v in rules.values())
    out += ["", f"{len(rules)} rules, {musts} of them MUST or MUST NOT.", ""]
    return "\n".join(out)


def main():
    rules, errors = collect()
    text, index = render(rules), HERE / "INDEX.md"
    if "--check" in sys.argv[1:]:
        if not index.exists() or index.read_text() != text:
            errors.append("INDEX.md is not current: run spec/index.py")
    else:
        index.write_text(text)
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
