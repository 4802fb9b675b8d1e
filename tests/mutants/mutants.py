#!/usr/bin/env python3
"""Breaks the engine in one place at a time and looks whether a test notices.

usage: mutants.py [--check] [--build FOLDER] [--jobs N] [NAME ...]

Without NAME every mutant of mutants.toml runs; --check only looks whether each still applies. The
tree is copied into FOLDER (default: build/mutants), so the working tree is never touched. The
tests that a mutant names run first, the others until one fails. Exit code 1 when a mutant survives
(write the test that is missing) or no longer applies (bring its text up to date).
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["base", "secure", "memory", "congestion", "wire", "path", "message", "connection",
           "engine"]
UNIT = [f"{f}_test" for f in FOLDERS if list((ROOT / "src" / f).glob("*_test.cpp"))]
UNIT += ["pair_test", "scenarios_test", "oracle_test"]
# Last: what is slow to build or to run. engine_fuzz replays its corpus.
ALL = UNIT + ["engine_fuzz", "mr_sim", "ops", "ops_last"]
# Words that stand for a program with arguments.
PROGRAM = {"ops": "mr_sim", "ops_last": "mr_sim"}
OPS = {"ops": ["--seeds", "1..2000"], "ops_last": ["--last-receive", "--seeds", "1..5000"]}
PARTS = ["CMakeLists.txt", "cmake", "src", "include", "lab", "tests", "fuzz", "spec", "tools",
         "bench", "docs", "examples", "README.md", "LICENSE"]
TEST_LIMIT = 120


def load():
    with open(ROOT / "tests/mutants/mutants.toml", "rb") as f:
        return tomllib.load(f)["mutant"]


def broken(mutant, text):
    """The text with the mutation; None when its place is not there exactly once."""
    if text.count(mutant["old"]) != 1 or mutant["old"] == mutant["new"]:
        return None
    return text.replace(mutant["old"], mutant["new"])


def check(mutants):
    names = [m["name"] for m in mutants]
    bad = [f"{n}: named twice" for n in set(names) if names.count(n) > 1]
    for m in mutants:
        if broken(m, (ROOT / m["file"]).read_text()) is None:
            bad.append(f"{m['name']}: its text is not exactly once in {m['file']}")
        bad += [f"{m['name']}: no test named {t}" for t in m["tests"] if t not in ALL]
    for line in bad:
        print(line, file=sys.stderr)
    return not bad


class Workshop:
    def __init__(self, folder, jobs):
        self.tree, self.build, self.jobs = folder / "tree", folder / "build", jobs
        self.tree.mkdir(parents=True, exist_ok=True)
        for part in PARTS:
            self.sync(ROOT / part, self.tree / part)
        command = ["cmake", "-S", str(self.tree), "-B", str(self.build), "-G", "Ninja",
                   "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -w",
                   "-DMR_DASSERT=ON", "-DMR_BENCH=OFF"]
        if shutil.which("ccache"):
            command.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
        if self.run(command, 300).returncode != 0:
            sys.exit("mutants: cannot configure the copy of the tree")

    def sync(self, source, target):
        """Copies what differs, so that the next run of this program builds little."""
        if source.is_dir():
            target.mkdir(exist_ok=True)
            there = {p.name for p in source.iterdir() if p.name != "__pycache__"}
            for old in target.iterdir():
                if old.name in there:
                    continue
                if old.is_dir():
                    shutil.rmtree(old)
                else:
                    old.unlink()
            for name in there:
                self.sync(source / name, target / name)
        elif source.exists():
            if not target.exists() or target.read_bytes() != source.read_bytes():
                shutil.copyfile(source, target)

    def run(self, command, limit):
        try:
            return subprocess.run(command, cwd=self.build if self.build.is_dir() else None,
                                  capture_output=True, text=True, timeout=limit, check=False,
                                  errors="replace")
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", "too long")

    def make(self, targets):
        programs = sorted({PROGRAM.get(t, t) for t in targets})
        done = self.run(["ninja", f"-j{self.jobs}", *programs], 3000)
        return "" if done.returncode == 0 else done.stdout[-2000:]

    def fails(self, test):
        """What failed, or an empty string."""
        program = str(self.build / "bin" / PROGRAM.get(test, test))
        if test == "mr_sim":
            scenarios = sorted(str(p) for p in (self.tree / "tests/scenarios").glob("*.toml"))
            command = [program, "run", *scenarios, "--jobs", str(self.jobs)]
        elif test in OPS:
            command = [program, "ops", *OPS[test], "--no-small", "--jobs", str(self.jobs)]
        elif test == "engine_fuzz":
            command = [program, str(self.tree / "fuzz/corpus/engine_fuzz")]
        else:
            command = [program, "--gtest_brief=1", "--gtest_fail_fast"]
        done = self.run(command, TEST_LIMIT)
        if done.returncode == 0:
            return ""
        for line in done.stdout.splitlines():
            if line.startswith("[  FAILED  ] "):
                return line[13:].split(",")[0].split(" (")[0]
            if line.startswith("FAIL "):
                words = line.split()
                return " ".join(words[1:4] if test in OPS else ["scenario", words[1]])
        for line in done.stderr.splitlines():
            if "ssert" in line or "engine_fuzz:" in line:
                return f"{test}: {line.strip()[:60]}"
        return f"{test}: exit code {done.returncode}"

    def prove(self, tests):
        """Without a mutant all is well: a test that is red anyway would catch everything."""
        error = self.make(sorted(tests))
        if error:
            sys.exit(f"mutants: the tree does not build\n{error}")
        for test in sorted(tests):
            failed = self.fails(test)
            if failed:
                sys.exit(f"mutants: {test} fails without any mutant: {failed}")

    def hunt(self, mutant):
        first = mutant["tests"]
        for group in (first, [t for t in UNIT if t not in first],
                      [t for t in ALL if t not in UNIT and t not in first]):
            if not group:
                continue
            error = self.make(group)
            if error:
                print(error, file=sys.stderr)
                return None
            for test in group:
                caught = self.fails(test)
                if caught:
                    return caught
        return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true", help="only look whether each applies")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/mutants")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    mutants = load()
    if not check(mutants):
        return 1
    if options.check:
        print(f"{len(mutants)} mutants apply")
        return 0
    by_name = {m["name"]: m for m in mutants}
    unknown = set(options.names) - set(by_name)
    if unknown:
        parser.error(f"no such mutant: {' '.join(sorted(unknown))}")
    shop = Workshop(options.build.resolve(), options.jobs)
    chosen = [by_name[n] for n in options.names] or mutants
    shop.prove({t for m in chosen for t in m["tests"]})
    survived = []
    print(f"{'mutant':34} {'seconds':>7}  caught by")
    for m in chosen:
        begin = time.monotonic()
        place = shop.tree / m["file"]
        whole = place.read_text()
        place.write_text(broken(m, whole))
        try:
            caught = shop.hunt(m)
        finally:
            place.write_text(whole)
        result = "DOES NOT BUILD" if caught is None else caught or "SURVIVED"
        print(f"{m['name']:34} {time.monotonic() - begin:7.1f}  {result}", flush=True)
        if not caught:
            survived.append(m["name"])
    if survived:
        print(f"no test noticed: {' '.join(survived)}", file=sys.stderr)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
