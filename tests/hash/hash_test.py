#!/usr/bin/env python3
"""The same seed gives the same run with every compiler and every set of flags.

hashes.txt holds the hashes of a few runs. Each build (g++ and clang++, dev and release) compares
its own against it; so all are equal. A change of behaviour changes them on purpose: then run

    tests/hash/hash_test.py --update build/dev/bin

and commit the file together with the change.
"""
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "hashes.txt"
# Loss, reordering, marks, refusals, a dark plane, port changes, a smaller MTU: every part decides.
RUNS = [("bulk_1", 1), ("bursts", 2), ("duplicates", 1), ("late_receives", 1), ("messages", 1),
        ("mtu_shrink", 1), ("no_marks", 1), ("plane_dark", 1), ("port_change", 1),
        ("reorder", 1), ("setup_loss", 1)]


def hash_of(binary, name, seed):
    scenario = HERE.parent / "scenarios" / f"{name}.toml"
    run = subprocess.run([binary, "run", str(scenario), "--seed", str(seed), "--jobs", "1"],
                         capture_output=True, text=True, check=False, timeout=250)
    found = re.search(r"\bhash ([0-9a-f]{16})\b", run.stdout)
    if not found:
        sys.exit(f"{name} seed {seed}: no hash in the output of mr_sim\n{run.stdout}{run.stderr}")
    return found.group(1)


def main():
    update = len(sys.argv) > 1 and sys.argv[1] == "--update"
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else os.environ.get("MR_BIN", ""))
    binary = folder / "mr_sim"
    if not binary.is_file():
        sys.exit(f"{binary}: not there; name the folder of the programs or set MR_BIN")
    lines = [f"{name} {seed} {hash_of(binary, name, seed)}" for name, seed in RUNS]
    if update:
        GOLDEN.write_text("\n".join(lines) + "\n")
        return
    golden = GOLDEN.read_text().splitlines()
    different = [(a, b) for a, b in zip(golden, lines) if a != b]
    if len(golden) != len(lines):
        different.append((f"{len(golden)} lines", f"{len(lines)} runs"))
    for expected, got in different:
        print(f"expected {expected}\ngot      {got}")
    if different:
        sys.exit("Hashes differ. If the engine or a scenario was changed on purpose:\n"
                 f"  tests/hash/hash_test.py --update {folder}\n"
                 "If not, or if one compiler is red and the other is not: a run is no longer "
                 "a function of its seed.")


if __name__ == "__main__":
    main()
