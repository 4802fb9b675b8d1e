#!/usr/bin/env python3
"""Product against the raw socket limit: reliable Writes (udp_goodput) and udp_limit in turn.

Both ends are pinned to two processors, socket buffers are equal, each pair of runs gives one ratio
of goodputs; the median of the ratios is what counts (machines are noisy, ratios of neighbours less
so). Needs the release build and a machine that does nothing else.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed ({done.returncode}): {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def limit(bins, paths, crc, options):
    command = [bins / "udp_limit", "pair", "--ports", str(paths), "--json", "--pin", "1", "0",
               "--seconds", str(options.seconds), "--buffers", str(options.buffers)]
    figures = run([str(c) for c in command + (["--crc"] if crc else [])])
    return figures["goodput_gbps"]


def product(bins, paths, options):
    command = [bins / "udp_goodput", "--paths", paths, "--json", "--seconds", options.seconds,
               "--buffers", options.buffers]
    return run([str(c) for c in command])["gbps"]


def own_ratio(options):
    """The product with most paths against itself with fewest, in turn."""
    few, many = min(options.paths), max(options.paths)
    ratios = []
    for _ in range(options.pairs):
        base = product(options.bin, few, options)
        ratios.append(product(options.bin, many, options) / base)
    print(f"own {many} paths / own {few}: {statistics.median(ratios):.3f}"
          f"   {[round(r, 3) for r in ratios]}")
    return {"own": [many, few], "ratio": statistics.median(ratios), "ratios": ratios}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default="build/release/bin", type=pathlib.Path)
    parser.add_argument("--pairs", default=5, type=int,
                        help="pairs of runs for each number of paths")
    parser.add_argument("--seconds", default=1.0, type=float, help="length of a run")
    parser.add_argument("--buffers", default=64 << 20, type=int, help="socket buffer bytes")
    parser.add_argument("--paths", default=[1, 8, 64], type=int, nargs="+")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    options = parser.parse_args()
    rows = []
    print(f"{'paths':>5} {'limit+CRC':>10} {'limit':>8} {'product':>8} {'/ CRC':>7} {'/ plain':>8}"
          "   Gbit/s, medians; ratios pair by pair")
    for paths in options.paths:
        with_crc, plain, own = [], [], []
        for _ in range(options.pairs):
            with_crc.append(limit(options.bin, paths, True, options))
            own.append(product(options.bin, paths, options))
            plain.append(limit(options.bin, paths, False, options))
        row = {
            "paths": paths,
            "limit_crc_gbps": statistics.median(with_crc),
            "limit_gbps": statistics.median(plain),
            "product_gbps": statistics.median(own),
            "ratio_crc": statistics.median(p / c for p, c in zip(own, with_crc)),
            "ratio_plain": statistics.median(p / c for p, c in zip(own, plain)),
            "ratios_crc": [round(p / c, 3) for p, c in zip(own, with_crc)],
        }
        rows.append(row)
        print(f"{paths:5} {row['limit_crc_gbps']:10.2f} {row['limit_gbps']:8.2f} "
              f"{row['product_gbps']:8.2f} {row['ratio_crc']:7.3f} {row['ratio_plain']:8.3f}"
              f"   {row['ratios_crc']}", flush=True)
    if len(options.paths) > 1:
        rows.append(own_ratio(options))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
