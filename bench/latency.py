#!/usr/bin/env python3
"""Round trips of 64 bytes: `metaroce perf --lat` against raw spinning UDP, alternating.

Prints the median of the ratios pair by pair; bars: p50 at most 1.25, p99 at most 1.6. Exit code 1
when a bar is missed and --check is given.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BARS = {"p50": 1.25, "p99": 1.6}


def raw(options):
    out = subprocess.run([options.bin / "udp_pingpong", "--size", str(options.size), "--seconds",
                          str(options.seconds), "--pin", f"{options.pin[0]},{options.pin[1]}",
                          "--json"], capture_output=True, text=True, check=True).stdout
    return json.loads(out)


def pinned(core, *command):
    return ["taskset", "-c", str(core), *map(str, command)]


def start_server(options, core):
    server = subprocess.Popen(
        pinned(core, options.bin / "metaroce", "perf", "--server", "-p", 0, "--local",
               "127.0.0.1"), stderr=subprocess.PIPE, text=True)
    line = server.stderr.readline()
    if "listening on" not in line:
        sys.exit(f"latency.py: no server: {line}")
    return server, line.split("listening on ")[1].split(" ")[0]


def product(options):
    server, address = start_server(options, options.pin[1])
    try:
        out = subprocess.run(
            pinned(options.pin[0], options.bin / "metaroce", "perf", address, "--lat", "--op",
                   options.op, "-s", options.size, "-t", options.seconds, "--warmup", 0.2,
                   "--local", "127.0.0.1", "--paths-per-plane", options.paths, "--json", "-"),
            capture_output=True, text=True, check=True).stdout
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
    return json.loads(out)["runs"][0]["directions"][0]["latency_us"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--op", default="send", choices=["send", "write-imm", "write"])
    parser.add_argument("--paths", type=int, default=1)
    parser.add_argument("--pin", type=int, nargs=2, default=[0, 1], metavar=("CLIENT", "SERVER"))
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    parser.add_argument("--check", action="store_true", help="fail when a bar is missed")
    options = parser.parse_args()
    for name in ("metaroce", "udp_pingpong"):
        if not (options.bin / name).exists():
            sys.exit(f"latency.py: {options.bin / name} is missing: run ./dev build release")
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("latency.py: two processes that spin need two cores")
    pairs = []
    names = ("min", "p50", "p90", "p99", "p999")
    for _ in range(options.pairs):
        pairs.append((raw(options), product(options)))
        time.sleep(0.1)
    print(f"{'us':>8} {'raw UDP':>9} {'metaroce':>9} {'ratio':>7}   medians of {options.pairs} "
          "pairs; ratios pair by pair")
    result = {"size": options.size, "op": options.op, "pairs": options.pairs}
    missed = []
    for name in names:
        ratios = [own[name] / base[name] for base, own in pairs]
        row = {"raw_us": statistics.median(b[name] for b, _ in pairs),
               "product_us": statistics.median(o[name] for _, o in pairs),
               "ratio": statistics.median(ratios), "ratios": [round(r, 3) for r in ratios]}
        result[name] = row
        bar = BARS.get(name)
        if bar is not None and row["ratio"] > bar:
            missed.append(name)
        print(f"{name:>8} {row['raw_us']:9.2f} {row['product_us']:9.2f} {row['ratio']:7.3f}   "
              f"{row['ratios']}{f'  bar {bar}' if bar else ''}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(1 if missed and options.check else 0)


if __name__ == "__main__":
    main()
