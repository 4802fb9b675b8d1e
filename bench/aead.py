#!/usr/bin/env python3
"""Goodput of secured connections against plain ones and the bare cipher, in turn.

A secured packet costs what a plain one costs and its encryption, one after the other on one core:
1 / (1 / plain + 1 / cipher) is what that gives. The share is what the product reaches of it, as the
median over rounds of three neighbouring runs (machines are noisy, neighbours less so). Needs the
release build and a machine that does nothing else.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed ({done.returncode}): {done.stderr.strip()}")
    return done.stdout.strip().splitlines()[-1]


def goodput(options, suite):
    command = [options.bin / "udp_goodput", "--json", "--paths", options.paths,
               "--seconds", options.seconds]
    return json.loads(run(command + (["--suite", suite] if suite else [])))["gbps"]


def cipher(options, suite):
    """The slower direction: the receiver opens what the sender seals, each on its own core."""
    both = []
    for more in ([], ["--open"]):
        line = run([options.bin / "cipher", "--suite", suite, "--seconds", options.seconds / 2,
                    "--payload", options.payload] + more)
        both.append(float(re.search(r"gbps=([0-9.]+)", line).group(1)))
    return min(both)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default="build/release/bin", type=pathlib.Path)
    parser.add_argument("--suites", nargs="+",
                        default=["AES-128-GCM", "AES-256-GCM", "ChaCha20-Poly1305"])
    parser.add_argument("--rounds", default=7, type=int)
    parser.add_argument("--seconds", default=1.0, type=float, help="length of a run")
    parser.add_argument("--paths", default=1, type=int)
    parser.add_argument("--payload", default=4096, type=int, help="of a packet in the cipher loop")
    parser.add_argument("--bar", type=float, help="exit 1 when AES-128-GCM's share is below")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    options = parser.parse_args()
    rows = []
    print("suite                plain   cipher  secured  possible  share   Gbit/s, medians")
    for suite in options.suites:
        runs = [(goodput(options, ""), cipher(options, suite), goodput(options, suite))
                for _ in range(options.rounds)]
        shares = [s / (1 / (1 / p + 1 / c)) for p, c, s in runs]
        plain, bare, secured = (statistics.median(column) for column in zip(*runs))
        rows.append({"suite": suite, "plain_gbps": plain, "cipher_gbps": bare,
                     "secured_gbps": secured, "share": statistics.median(shares),
                     "shares": [round(s, 3) for s in shares]})
        print(f"{suite:18} {plain:7.2f} {bare:8.2f} {secured:8.2f} "
              f"{1 / (1 / plain + 1 / bare):9.2f} {rows[-1]['share']:6.3f}   {rows[-1]['shares']}",
              flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    if options.bar is None:
        return 0
    return 0 if all(r["share"] >= options.bar for r in rows if r["suite"] == "AES-128-GCM") else 1


if __name__ == "__main__":
    sys.exit(main())
