#!/usr/bin/env python3
"""Checks what a compiler does not: sizes, arrows, banned calls, words, rule ids, links.

usage: tidy.py [--list-rules] [--suggest REASON] [--root DIR]
Prints file:line: message [check] and exits 1 when there is a finding. `--list-rules` prints, for
every rule of spec/, where code and tests cite it. `--suggest REASON` prints the entries that
spec/exceptions.toml lacks. Standard library only; runs in seconds.
"""
import argparse
import ast
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field

MAX_COLUMNS = 100
MAX_FUNCTION = 70
MAX_FILE = 900  # The aim is 800; what is above 900 has to be split.

# Folder under src/ -> folders it names directly. What those reach is reachable too.
ARROWS = {
    "base": [],
    "secure": ["base"],
    "wire": ["base"],
    "congestion": ["base"],
    "memory": ["base"],
    "path": ["base", "wire", "congestion"],
    "message": ["base", "wire"],
    "connection": ["base", "secure", "wire", "congestion", "path", "message", "memory"],
    "engine": ["connection"],
    "driver/common": ["engine"],
    "driver/udp": ["engine", "driver/common"],
    "driver/dpdk": ["engine", "driver/common"],
    "driver/xdp": ["engine", "driver/common"],
    "driver/shm": ["engine", "driver/common"],
    "telemetry": ["base", "engine"],
    "api": ["engine", "telemetry", "driver/common", "driver/udp", "driver/dpdk", "driver/xdp",
            "driver/shm"],
    "verbs": ["api"],
}
ENGINE_FOLDERS = {"base", "wire", "congestion", "path", "message", "memory", "connection", "engine"}
# Other top folders -> folders under src/ they may name; None means all of them.
OUTSIDE = {"tests": None, "fuzz": None, "bench": None, "tools": None,
           "lab": ["base", "driver/common"], "sim": ["engine", "telemetry"], "conformance": [],
           "include": []}

CLOCKS = [
    (r"\b(?:system|steady|high_resolution)_clock\b", "reads a clock"),
    (r"\b(?:clock_gettime|gettimeofday|timespec_get|__rdtscp?|rdtsc)\b", "reads a clock"),
    (r"\bstd::time\s*\(|(?<![\w.>:])time\s*\(\s*(?:NULL|nullptr|0|&)", "reads a clock"),
    (r"\brandom_device\b|\bgetrandom\b|\bgetentropy\b", "uses a random device"),
    (r"(?<![\w.>])s?rand\s*\(|\bmt19937|\bdefault_random_engine\b", "use base/rng.h"),
    (r"\bsleep_(?:for|until)\b|(?<![\w.>])(?:u|nano)?sleep\s*\(", "sleeps"),
]
BANNED = CLOCKS + [
    (r"\bunordered_(?:multi)?(?:map|set)\b", "hash order can reach a result"),
    (r"\bstd::(?:jthread|thread|mutex|condition_variable|async)\b", "threads live in the drivers"),
    (r"\bthrow\b|\btry\s*\{", "exceptions stay outside the engine"),
    (r"\bstd::(?:cout|cerr|clog)\b|\bf?printf\s*\(", "the engine does not print"),
]
SLEEPS = {
    ".cpp": r"\bsleep_(?:for|until)\b|(?<![\w.>])(?:u|nano)?sleep\s*\(",
    ".h": r"\bsleep_(?:for|until)\b|(?<![\w.>])(?:u|nano)?sleep\s*\(",
    ".py": r"\btime\.sleep\s*\(|^\s*sleep\s*\(",
    ".sh": r"(?:^|[;&|]|\bdo\b)\s*sleep\s+[\d$.]",
}
SYNONYMS = [
    (r"\b(?:QP|qp)\b|\bqp_|_qp\b|queue_pair|QueuePair", "stream or connection", "verbs"),
    (r"sub_?flow", "path", None),
    (r"timestamp_echo|TimestampEcho|echo_timestamp", "echoed stamp", None),
    (r"\bnack\b|\bnack_|_nack\b|\bNack", "long ACK (there is no NACK packet)", None),
    (r"\bmem_?handle\b|\brkey\b|\blkey\b", "key", "verbs"),
]
# Written in two parts so that this file does not find itself.
MACHINE_PATHS = re.compile(r"(?<![\w.$}])(?:/wo" r"rk/|/tmp/m" r"r\b|/ro" r"ot/|/ho" r"me/\w)")
RULE = re.compile(r"MR-[A-Z]+-[0-9]{3}(?![0-9])")
RULE_DEFINITION = re.compile(r"^(?:[-*] )?\*\*(MR-[A-Z]+-[0-9]{3})\*\*")
COVERS = re.compile(r'MR_COVERS\(\s*"([^"]*)"\s*\)')
TEXT_SUFFIXES = set(".cpp .h .c .hpp .py .sh .md .toml .cmake .json .txt .lua .tsv .csv .yml .yaml"
                    .split()) | {""}


@dataclass(frozen=True, order=True)
class Finding:
    file: str
    line: int
    check: str
    message: str

    def __str__(self):
        return f"{self.file}:{self.line}: {self.message} [{self.check}]"


@dataclass
class Rule:
    name: str
    file: str
    line: int
    level: str
    code: list = field(default_factory=list)
    tests: list = field(default_factory=list)
    reason: str = ""


_TOKENS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"([^(\s"]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|"""
    r"""\b[0-9][0-9A-Za-z_.']*|'(?:\\.|[^'\\\n])*'""", re.S)


def blank(match):
    text = match.group(0)
    if text[0].isdigit():
        return text
    return re.sub(r"[^\n]", " ", text)


def strip_cpp(text):
    """The text with comments and strings turned into spaces; line numbers stay."""
    return _TOKENS.sub(blank, text)


class Tree:
    """The files of the project, read once: path -> text."""

    def __init__(self, files, names=None):
        self.files = files
        self.names = set(names if names is not None else files)
        self.code = {f: strip_cpp(t) for f, t in files.items() if is_cpp(f)}


def is_cpp(name):
    return name.endswith((".cpp", ".h", ".hpp", ".c"))


def is_test(name):
    return name.startswith(("tests/", "fuzz/", "conformance/")) or \
        re.search(r"_test\.(cpp|py)$", name) is not None


def src_folder(name):
    parts = name.split("/")
    if parts[0] != "src" or len(parts) < 3:
        return None
    if parts[1] == "driver" and len(parts) > 3:
        return "driver/" + parts[2]
    return parts[1]


def reach(folder):
    seen, todo = set(), [folder]
    while todo:
        for dep in ARROWS.get(todo.pop(), []):
            if dep not in seen:
                seen.add(dep)
                todo.append(dep)
    return seen


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_columns(tree):
    for name, text in tree.files.items():
        if is_cpp(name) or name.endswith(".py"):
            for number, line in enumerate(text.split("\n"), 1):
                if len(line) > MAX_COLUMNS:
                    yield Finding(name, number, "columns", f"{len(line)} columns, at most "
                                  f"{MAX_COLUMNS}")


def check_file_size(tree):
    for name, text in tree.files.items():
        if (is_cpp(name) or name.endswith(".py")) and text.count("\n") > MAX_FILE:
            yield Finding(name, MAX_FILE, "file-size", f"{text.count(chr(10))} lines; aim at 800")


_SCOPE = re.compile(r"(?:^|[>\s])(?:namespace|class|struct|enum|union)\b")
_FUNCTION = re.compile(
    r"(?:\)|\}|\bconst|\bnoexcept|\boverride|\bfinal|\bmutable|&|\btry|->\s*[\w:<>,\s*&]+)\s*$")


def opens_function(head):
    if "(" not in head or not _FUNCTION.search(head):
        return False
    before = head.split("(", 1)[0]
    # "struct Result f()" returns a struct; "struct alignas(8) X" ends in a name, not here.
    return not (_SCOPE.search(before) and not re.search(r"\w\s+[\w:~]+\s*$", before))


def functions_of(code):
    """(first line, last line) of each outermost function body; a brace is enough to find it."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, code, flags=re.M)
    stack, start = [], 0
    for match in re.finditer(r"[{};]", code):
        position, char = match.start(), match.group(0)
        if char == "{":
            head = code[start:position].strip()
            if any(kind == "function" for kind, _ in stack):
                kind = "block"
            elif opens_function(head):
                kind = "function"
            elif _SCOPE.search(head) or not head or re.fullmatch(r"extern\s*", head):
                kind = "scope"
            else:
                kind = "data"  # An initializer: the head goes on after it.
            stack.append((kind, position))
            if kind != "data":
                start = position + 1
        elif char == "}":
            kind, opened = stack.pop() if stack else ("scope", 0)
            if kind == "function":
                yield line_of(code, opened), line_of(code, position)
            if kind != "data":
                start = position + 1
        elif not any(kind == "data" for kind, _ in stack):
            start = position + 1


def check_function_size(tree):
    for name, code in tree.code.items():
        for first, last in functions_of(code):
            if last - first - 1 > MAX_FUNCTION:
                yield Finding(name, first, "function-size",
                              f"function of {last - first - 1} lines, at most {MAX_FUNCTION}")
    for name, text in tree.files.items():
        if not name.endswith(".py"):
            continue
        try:
            nodes = list(ast.walk(ast.parse(text)))
        except SyntaxError as error:
            yield Finding(name, error.lineno or 1, "function-size", "does not parse")
            continue
        for node in nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = node.end_lineno - node.lineno
                if length > MAX_FUNCTION:
                    yield Finding(name, node.lineno, "function-size",
                                  f"function of {length} lines, at most {MAX_FUNCTION}")


def include_target(path):
    """The folder under src/ that an include names, or None when it is not one of ours."""
    parts = path.split("/")
    if len(parts) < 2:
        return None
    if parts[0] == "driver":
        return "driver/" + parts[1] if len(parts) > 2 else "driver/common"
    return parts[0] if parts[0] in ARROWS else None


def allowed_folders(name):
    folder = src_folder(name)
    if folder is not None:
        return reach(folder) | {folder}
    rule = OUTSIDE.get(name.split("/")[0], None)
    if rule is None:
        return set(ARROWS)
    return set(rule).union(*(reach(f) for f in rule)) if rule else set()


def check_arrows(tree):
    include = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
    for name, text in tree.files.items():
        if not is_cpp(name):
            continue
        folder = src_folder(name)
        if folder is not None and folder not in ARROWS:
            yield Finding(name, 1, "arrows", f"folder src/{folder} has no line in the arrow table")
            continue
        allowed = allowed_folders(name)
        for number, line in enumerate(text.split("\n"), 1):
            match = include.match(line)
            if not match:
                continue
            target = include_target(match.group(1))
            if target is not None and target not in allowed:
                yield Finding(name, number, "arrows",
                              f"{folder or name.split('/')[0]} may not include {target}")
            if match.group(1).startswith(".."):
                yield Finding(name, number, "arrows", "include from the root src/, not with ..")


def check_banned(tree):
    for name, code in tree.code.items():
        if src_folder(name) not in ENGINE_FOLDERS:
            continue
        for pattern, why in (CLOCKS if is_test(name) else BANNED):
            for match in re.finditer(pattern, code):
                yield Finding(name, line_of(code, match.start()), "banned",
                              f"'{match.group(0).strip()}' in an engine folder: {why}")


def check_sleeps(tree):
    for name, text in tree.files.items():
        pattern = SLEEPS.get(os.path.splitext(name)[1])
        if pattern is None or not is_test(name):
            continue
        for number, line in enumerate(tree.code.get(name, text).split("\n"), 1):
            if re.search(pattern, line):
                yield Finding(name, number, "sleep", "a test waits for an event, it does not sleep")


def check_words(tree):
    for name, code in tree.code.items():
        for pattern, better, but in SYNONYMS:
            if but and src_folder(name) == but:
                continue
            for match in re.finditer(pattern, code):
                yield Finding(name, line_of(code, match.start()), "words",
                              f"'{match.group(0)}': the project says {better}")


def check_headers(tree):
    for name, text in tree.files.items():
        if name.endswith(".h") and name.startswith("src/") and "#pragma once" not in text:
            yield Finding(name, 1, "headers", "no #pragma once")


def check_links(tree):
    link = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
    folders = {os.path.dirname(n) for n in tree.names}
    folders |= {"/".join(f.split("/")[:i]) for f in folders for i in range(1, f.count("/") + 1)}
    for name, text in tree.files.items():
        if not name.endswith(".md"):
            continue
        fenced = False
        for number, line in enumerate(text.split("\n"), 1):
            fenced ^= line.lstrip().startswith("```")
            for match in () if fenced else link.finditer(re.sub(r"`[^`]*`", "", line)):
                target = match.group(1).split("#")[0]
                if not target or re.match(r"[a-z]+:", target):
                    continue
                path = os.path.normpath(os.path.join(os.path.dirname(name), target))
                if path != "." and path not in tree.names and path not in folders:
                    yield Finding(name, number, "links", f"no such file: {target}")


def check_paths(tree):
    for name, text in tree.files.items():
        for match in MACHINE_PATHS.finditer(text):
            yield Finding(name, line_of(text, match.start()), "machine-path",
                          f"'{match.group(0)}' is a path of one machine")


def define_rules(name, text):
    """The rules a chapter defines; a rule lasts until a blank line or the next rule."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        match = RULE_DEFINITION.match(line)
        if not match:
            continue
        paragraph = [line]
        for following in lines[number + 1:]:
            if not following.strip() or RULE_DEFINITION.match(following):
                break
            paragraph.append(following)
        level = re.search(r"\b(MUST|SHOULD|MAY)\b", " ".join(paragraph))
        yield Rule(match.group(1), name, number + 1, level.group(1) if level else "")


def cite_rules(tree, rules, findings):
    for name, text in tree.files.items():
        if not name.startswith(("src/", "tests/", "fuzz/", "conformance/", "sim/", "include/")):
            continue
        code_cites = name.startswith("src/") and not is_test(name)
        for match in RULE.finditer(text):
            place = (name, line_of(text, match.start()))
            rule = rules.get(match.group(0))
            if rule is None:
                findings.append(Finding(*place, "rules", f"{match.group(0)} is not in spec/"))
            elif code_cites:
                rule.code.append(place)
        for match in COVERS.finditer(text) if is_test(name) else ():
            rule = rules.get(match.group(1))
            place = (name, line_of(text, match.start()))
            if rule is not None:
                rule.tests.append(place)
            elif not RULE.fullmatch(match.group(1)):
                findings.append(Finding(*place, "rules", f"'{match.group(1)}' is not a rule id"))


def read_exceptions(tree, name, findings):
    try:
        return tomllib.loads(tree.files.get(name, ""))
    except tomllib.TOMLDecodeError as error:
        findings.append(Finding(name, 1, "exceptions", str(error)))
        return {}


def collect_rules(tree):
    """All rules with their citations, and the findings about them."""
    rules, findings = {}, []
    for name in sorted(tree.files):
        if not (name.startswith("spec/") and name.endswith(".md")):
            continue
        for rule in define_rules(name, tree.files[name]):
            if rule.name in rules:
                findings.append(Finding(name, rule.line, "rules", f"{rule.name} is defined twice"))
            elif not rule.level:
                findings.append(Finding(name, rule.line, "rules",
                                        f"{rule.name} says neither MUST, SHOULD nor MAY"))
            rules.setdefault(rule.name, rule)
    cite_rules(tree, rules, findings)
    listed = "spec/exceptions.toml"
    for name, entry in read_exceptions(tree, listed, findings).items():
        rule = rules.get(name)
        reason = entry.get("reason", "") if isinstance(entry, dict) else ""
        line = next((n for n, t in enumerate(tree.files[listed].split("\n"), 1) if name in t), 1)
        if rule is None:
            findings.append(Finding(listed, line, "rules", f"{name} is not in spec/"))
        elif not str(reason).strip():
            findings.append(Finding(listed, line, "rules", f"{name} has no reason"))
        elif rule.level != "MUST" or (rule.code and rule.tests):
            findings.append(Finding(listed, line, "rules", f"{name} needs no exception any more"))
        else:
            rule.reason = str(reason)
    for rule in rules.values():
        lacks = [what for what, have in (("code", rule.code), ("test", rule.tests)) if not have]
        if rule.level == "MUST" and lacks and not rule.reason:
            findings.append(Finding(rule.file, rule.line, "rules",
                                    f"{rule.name} is a MUST without {' and '.join(lacks)}"))
    return rules, findings


def check_rules(tree):
    return collect_rules(tree)[1]


CHECKS = [check_columns, check_file_size, check_function_size, check_arrows, check_banned,
          check_sleeps, check_words, check_headers, check_links, check_paths, check_rules]


def run_checks(tree):
    """All findings that no entry of tools/tidy_exceptions.toml allows, sorted."""
    findings = [finding for check in CHECKS for finding in check(tree)]
    listed = "tools/tidy_exceptions.toml"
    extra = []
    allowed = read_exceptions(tree, listed, extra).get("allow", [])
    for entry in allowed:
        file, check = entry.get("file", ""), entry.get("check", "")
        line = next((n for n, t in enumerate(tree.files[listed].split("\n"), 1) if file in t), 1)
        kept = [f for f in findings if not (f.file == file and f.check == check)]
        if not str(entry.get("reason", "")).strip():
            extra.append(Finding(listed, line, "exceptions", f"{file}: no reason"))
        elif len(kept) == len(findings):
            extra.append(Finding(listed, line, "exceptions", f"{file}: '{check}' not needed"))
        findings = kept
    return sorted(set(findings + extra))


def read_tree(root):
    listing = subprocess.run(["git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard"],
                             capture_output=True, check=False)
    if listing.returncode == 0:
        names = [n for n in listing.stdout.decode().split("\0") if n]
    else:
        names = [os.path.relpath(os.path.join(where, file), root)
                 for where, dirs, files in os.walk(root)
                 if dirs.__setitem__(slice(None), [d for d in dirs if d not in (".git", "build")])
                 is None for file in files]
    names = [n for n in names if os.path.isfile(os.path.join(root, n))]
    files = {}
    for name in names:
        if os.path.splitext(name)[1] not in TEXT_SUFFIXES or name.startswith("fuzz/corpus/"):
            continue
        with open(os.path.join(root, name), "rb") as file:
            data = file.read()
        if b"\0" not in data:
            files[name] = data.decode("utf-8", "replace")
    return Tree(files, names)


def list_rules(tree):
    def place(places):
        more = f" +{len(places) - 1}" if len(places) > 1 else ""
        return f"{places[0][0]}:{places[0][1]}{more}" if places else "-"

    rules, _ = collect_rules(tree)
    for rule in sorted(rules.values(), key=lambda r: r.name):
        print(f"{rule.name:<16} {rule.level:<7} {place(rule.code):<44} {place(rule.tests):<44} "
              f"{rule.reason}".rstrip())
    must = [r for r in rules.values() if r.level == "MUST"]
    done = [r for r in must if r.code and r.tests]
    print(f"{len(rules)} rules, {len(must)} MUST, {len(done)} of them with code and test, "
          f"{sum(bool(r.reason) for r in must)} excepted")


def suggest(tree, reason):
    rules, _ = collect_rules(tree)
    for rule in sorted(rules.values(), key=lambda r: r.name):
        lacks = [what for what, have in (("code", rule.code), ("test", rule.tests)) if not have]
        if rule.level == "MUST" and lacks and not rule.reason:
            print(f'[{rule.name}]\nreason = "no {" and no ".join(lacks)}: {reason}"\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list-rules", action="store_true", help="print the table of rules")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), ".."))
    parser.add_argument("--suggest", metavar="REASON", help="print missing rule exceptions")
    arguments = parser.parse_args()
    tree = read_tree(os.path.abspath(arguments.root))
    if arguments.list_rules:
        list_rules(tree)
        return 0
    if arguments.suggest:
        suggest(tree, arguments.suggest)
        return 0
    findings = run_checks(tree)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(tree.files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
