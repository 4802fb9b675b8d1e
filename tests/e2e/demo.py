#!/usr/bin/env python3
"""Two processes move a file over 4 planes x 4 paths: lossless, through loss, past a dying plane.

usage: demo.py [--bin DIR] [--size 1GiB] [--on lab|loopback] [--json FILE]

They run on two hosts of a fabric that the kernel forwards (`metaroce lab`, 4 planes of 4 spines),
or on the loopback where there can be no namespaces. Loss is injected at both receive sides, so
data and acknowledgements suffer alike. In the last run a spine and then a plane of the fabric fail
(on the loopback: plane 1 goes dark in both directions). Exit code 1 when a digest differs, recovery
takes more than 200 ms, or fewer than 90 % of the paths carried data.
"""
import argparse
import json
import os
import platform
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import demo_lab
import harness

PLANES = 4
PATHS_PER_PLANE = 4
WINDOW_NS = 20_000_000  # goodput is looked at over 20 ms
MAX_RECOVERY_MS = 200
MIN_PATHS = 0.9
UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def parse_size(text):
    match = re.fullmatch(r"(\d+)\s*([KMG]iB|B|)", text)
    if not match or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no size; write for example 256MiB")
    return int(match[1]) * UNITS[match[2]]


def choose_base(needed):
    """A folder with room for three copies; memory first, so that no disk is measured."""
    seen = []
    for folder in ("/dev/shm", os.environ.get("TMPDIR", "/tmp"), "."):
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            continue
        free = shutil.disk_usage(folder).free
        if free >= needed:
            return folder
        seen.append(f"{folder}: {free >> 20} MiB free")
    sys.exit(f"demo: {needed >> 20} MiB of free space are needed ({'; '.join(seen)}); "
             "try --size 256MiB")


def read_series(path):
    rows = []
    for line in path.read_text().splitlines()[1:]:
        _, when, count, _ = line.split("\t")
        rows.append((int(when), int(count)))
    return rows


def bytes_at(rows, when):
    """Bytes at a time, between samples in proportion."""
    before = rows[0]
    for row in rows:
        if row[0] >= when:
            if row[0] == before[0]:
                return row[1]
            share = (when - before[0]) / (row[0] - before[0])
            return before[1] + share * (row[1] - before[1])
        before = row
    return rows[-1][1]


def recovery_ms(rows, dark_ns, begin_ns, end_ns):
    """First drop until goodput over 20 ms is back at 0.95 (n-1)/n of that before, or None."""
    start = max(begin_ns, dark_ns - 300_000_000)
    before = (bytes_at(rows, dark_ns) - bytes_at(rows, start)) / (dark_ns - start)
    bar = 0.95 * (PLANES - 1) / PLANES * before * WINDOW_NS
    for when in range(dark_ns + WINDOW_NS, end_ns, 1_000_000):
        if bytes_at(rows, when) - bytes_at(rows, when - WINDOW_NS) >= bar:
            return (when - dark_ns) / 1e6
    return None


class Demo:
    def __init__(self, place, folders, size):
        self.place = place
        self.folders = folders
        self.size = size
        self.source = folders.source / "file"
        self.digest = None

    def prepare(self):
        block = os.urandom(16 << 20)
        left = self.size
        with open(self.source, "wb") as file:
            while left > 0:
                file.write(block[:left])
                left -= min(left, len(block))
        self.digest = harness.sha256(self.source)

    def run(self, name, recv_fault="", send_fault="", watch=None):
        """`watch`: gets the sending process and returns what it did."""
        folders = self.folders
        files = {side: folders.root / f"{side}.json" for side in ("recv", "send")}
        series = folders.root / "series"
        recv = ["--once", "--overwrite", "always", "--paths-per-plane", PATHS_PER_PLANE,
                "--json", files["recv"], "--series", series]
        send = [*self.place.arguments, "--paths-per-plane", PATHS_PER_PLANE,
                "--json", files["send"]]
        if recv_fault:
            recv += ["--fault", recv_fault]
        if send_fault:
            send += ["--fault", send_fault]
        with harness.Receiver(folders.target, *recv, **self.place.receiver) as receiver:
            sender = harness.start_send(receiver.address, self.source, *send, **self.place.sender)
            happened = watch(sender) if watch else {}
            out, errors = sender.communicate(timeout=harness.BOUND)
            code = receiver.wait()
        if sender.returncode != 0 or code != 0:
            print(out + errors + receiver.text, file=sys.stderr)
        result = {"name": name, "ok": sender.returncode == 0 and code == 0, **happened}
        if not result["ok"]:
            return result
        reports = {side: harness.load(path) for side, path in files.items()}
        result.update(self.figures(reports))
        result["series"] = read_series(series)
        (folders.target / "file").unlink()
        return result

    def figures(self, reports):
        sender, receiver = reports["send"], reports["recv"]
        session = receiver["sessions"][0]
        target = harness.sha256(self.folders.target / "file")
        tally = {side: r["faults"][0] for side, r in reports.items()}
        injected = sum(t[d][k] for t in tally.values() for d in ("rx", "tx")
                       for k in ("drop", "blackhole"))
        # Counted apart from the injectors: what went into a driver and did not come out of it.
        missing = sum(r["udp"]["rx_datagrams"] - r["udp"]["crc_errors"] - r["engine"]["packets_in"]
                      + r["engine"]["packets_out"] - r["udp"]["tx_datagrams"]
                      - r["udp"]["send_errors"] for r in reports.values())
        paths = sender["paths"]
        carried = sum(p["tx_bytes"] > 0 for p in paths)
        return {
            "gbps": session["goodput_gbps"], "seconds": session["seconds"],
            "per_useful": sender["packets"]["sent_per_useful"],
            "sha_ok": target == self.digest == session["sha256"],
            "injected": injected, "missing": missing,
            "kernel_drops": sum(r["udp"]["rx_overflow"] for r in reports.values()),
            "paths": paths, "carried": carried,
            "dark_ns": tally["send"]["tx"]["first_drop_ns"],
            "begin_ns": session["begin_ns"], "end_ns": session["end_ns"],
            "warnings": sender["warnings"] + receiver["warnings"],
        }


def print_paths(paths):
    print(f"\n  {'path':>4} {'plane':>5} {'port':>6} {'packets':>9} {'repairs':>8} {'lost':>7}"
          f" {'probes':>7} {'srtt us':>8}  state")
    for p in paths:
        print(f"  {p['id']:>4} {p['plane']:>5} {p['source_port']:>6} {p['tx_packets']:>9}"
              f" {p['tx_repair']:>8} {p['lost']:>7} {p['tx_probes']:>7} {p['srtt_us']:>8.0f}"
              f"  {p['state']}")


def print_table(results):
    print(f"\n{'run':<28} {'Gbit/s':>7} {'of lossless':>11} {'sent/useful':>11} {'recovery':>9}"
          f" {'sha256':>7} {'injected':>9} {'counted':>9} {'paths':>6}")
    for r in results:
        if not r["ok"]:
            print(f"{r['name']:<28} failed")
            continue
        recovery = r.get("recovery_ms", "-")
        if recovery is None:
            recovery = "never"
        elif recovery != "-":
            recovery = f"{recovery:.0f} ms"
        print(f"{r['name']:<28} {r['gbps']:>7.2f} {r['share']:>11.3f} {r['per_useful']:>11.4f}"
              f" {recovery:>9} {'equal' if r['sha_ok'] else 'DIFFERS':>7} {r['injected']:>9}"
              f" {r['missing']:>9} {r['carried']:>3}/{len(r['paths'])}")


def judge(results):
    problems = []
    for r in results:
        if not r["ok"]:
            problems.append(f"{r['name']}: the transfer failed")
            continue
        if not r["sha_ok"]:
            problems.append(f"{r['name']}: the digests differ")
        if len(r["paths"]) != PLANES * PATHS_PER_PLANE or \
                r["carried"] < MIN_PATHS * PLANES * PATHS_PER_PLANE:
            problems.append(f"{r['name']}: {r['carried']} of {PLANES * PATHS_PER_PLANE} paths"
                            " carried data")
        if r["missing"] != r["injected"]:
            problems.append(f"{r['name']}: {r['injected']} packets injected as lost,"
                            f" {r['missing']} counted as missing")
        if "recovery_ms" in r and (r["recovery_ms"] is None or
                                   r["recovery_ms"] > MAX_RECOVERY_MS):
            problems.append(f"{r['name']}: recovery took more than {MAX_RECOVERY_MS} ms")
    return problems


def dark_plane(demo, seconds):
    """On the loopback: a plane goes dark in the middle."""
    middle = max(0.05, seconds / 2) * 1000
    result = demo.run("plane 1 dark in the middle",
                      send_fault=f"blackhole@{middle:.0f}ms-:plane=1:dir=both")
    result["plane"] = result.get("dark_ns")
    return result


def failing_fabric(demo, seconds):
    return demo.run("a spine, then a plane fail",
                    watch=lambda sender: demo_lab.watch(sender, demo.place.lab, seconds))


def run_all(demo):
    results = [demo.run("no loss")]
    if not results[0]["ok"]:
        return results
    for percent in (1, 10):
        fault = f"drop={percent}%"
        results.append(demo.run(f"{percent} % loss, both ways", fault, fault))
    fail = failing_fabric if isinstance(demo.place, demo_lab.Fabric) else dark_plane
    last = fail(demo, results[0]["seconds"])
    if last["ok"]:
        last["recovery_ms"] = None if last.get("plane") is None else recovery_ms(
            last["series"], last["plane"], last["begin_ns"], last["end_ns"])
    results.append(last)
    for r in results:
        if r["ok"]:
            r["share"] = r["gbps"] / results[0]["gbps"]
    return results


def write_report(path, place, size, results, problems):
    report = {"date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "size": size,
              "machine": platform.machine(), "kernel": platform.release(),
              "cores": os.cpu_count(), "planes": PLANES, "paths_per_plane": PATHS_PER_PLANE,
              "place": place,
              "problems": problems,
              "runs": [{k: v for k, v in r.items() if k != "series"} for r in results]}
    Path(path).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", type=Path, help="folder of the program metaroce")
    parser.add_argument("--size", type=parse_size, default=1 << 30, help="default 1GiB")
    parser.add_argument("--on", choices=("lab", "loopback"),
                        help="otherwise a lab if there can be one")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    if arguments.bin:
        harness.BIN = arguments.bin.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    base = choose_base(3 * arguments.size)
    place, why_not = demo_lab.choose_place(PLANES, arguments.on)
    if why_not:
        print(f"No fabric can be built here, so the loopback stands in for it. {why_not}")
    print(f"Moving {arguments.size >> 20} MiB between two processes, {PLANES} planes x "
          f"{PATHS_PER_PLANE} paths: {place.name}; files in {base}")
    try:
        with harness.Folders(base) as folders:
            demo = Demo(place, folders, arguments.size)
            demo.prepare()
            results = run_all(demo)
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    finally:
        place.remove()
    if results[-1]["ok"]:
        print_paths(results[-1]["paths"])
    print_table(results)
    for warning in sorted({w for r in results for w in r.get("warnings", [])}):
        print(f"warning: {warning}")
    problems = judge(results)
    for problem in problems:
        print(f"FAILED: {problem}")
    if arguments.json:
        write_report(arguments.json, place.name, arguments.size, results, problems)
    if not problems:
        print("\nEvery byte arrived, everything lost was injected and counted.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
