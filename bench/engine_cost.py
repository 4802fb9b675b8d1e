#!/usr/bin/env python3
"""Instructions of the engine per data packet and side, counted by callgrind (no clock involved).

Two engines hand each other their packets in virtual time (engine_cost); everything a driver would
call is counted: packets in, deadlines, runs out, completions, acknowledgements included. Prints
the cost of each side and its functions that cost most. Needs the release build and valgrind.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

SIDES = {"sender": "*sender_turn*", "receiver": "*receiver_turn*"}


def count(program, side, options, paths, runs):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}",
                   f"--toggle-collect={SIDES[side]}", "--collect-atstart=no", str(program),
                   "--megabytes", str(options.megabytes), "--message", str(options.message),
                   "--planes", str(options.planes), "--paths", str(paths), "--runs", str(runs)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"engine_cost failed ({done.returncode}): {done.stderr.strip()[-400:]}")
        packets = int(re.search(r"data_packets (\d+)", done.stdout).group(1))
        text = subprocess.run(["callgrind_annotate", str(out)], capture_output=True, text=True,
                              check=True).stdout
    total, functions = 0, []
    for line in text.splitlines():
        match = re.match(r"\s*([\d,]+) \([^)]*\)\s+(.*)", line)
        if not match:
            continue
        instructions = int(match.group(1).replace(",", ""))
        if "PROGRAM TOTALS" in line:
            total = instructions
            continue
        name = re.sub(r"^\S*?:(?=[A-Za-z_])", "", match.group(2))
        name = re.sub(r" \[.*\]$", "", name).replace("metaroce::", "")
        functions.append((instructions / packets, re.sub(r"\(.*", "", name)))
    merged = {}
    for cost, name in functions:
        merged[name] = merged.get(name, 0) + cost
    top = sorted(merged.items(), key=lambda item: -item[1])[:options.top]
    return total / packets, packets, top


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default="build/release/bin", type=pathlib.Path)
    parser.add_argument("--megabytes", default=16, type=int, help="MiB written while counting")
    parser.add_argument("--message", default=1 << 20, type=int, help="bytes of a Write")
    parser.add_argument("--planes", default=1, type=int)
    parser.add_argument("--paths", default=[1, 8, 64], type=int, nargs="+")
    parser.add_argument("--runs", default=[1, 8], type=int, nargs="+",
                        help="runs that the sender hands over in one turn")
    parser.add_argument("--top", default=10, type=int, help="functions to list")
    parser.add_argument("--limit", type=float, help="exit code 1 when a side costs more")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    options = parser.parse_args()
    rows = []
    for paths in options.paths:
        for runs in options.runs:
            for side in SIDES:
                cost, packets, top = count(options.bin / "engine_cost", side, options, paths, runs)
                rows.append({"paths": paths, "runs": runs, "side": side, "instructions": cost,
                             "packets": packets, "top": top})
                print(f"{paths:3} paths, {runs} runs a turn, {side:8} {cost:7.1f} instructions a "
                      f"data packet ({packets} packets)", flush=True)
                for name, share in top:
                    print(f"      {share:7.1f}  {name}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    if options.limit and any(r["instructions"] > options.limit for r in rows):
        sys.exit(f"engine_cost: more than {options.limit:g} instructions a packet")


if __name__ == "__main__":
    main()
