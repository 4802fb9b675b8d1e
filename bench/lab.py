#!/usr/bin/env python3
"""How long `metaroce lab up` takes, and what is left afterwards.

usage: lab.py [--bin DIR] [--topology FILE] [--times 10] [--user UID]

Prints the median of so many ups, as root (if it is) and as an ordinary user, and what is left of
namespaces, BPF programs and processes after `down`, and after the holder was killed. Needs a
machine that does nothing else, and no other lab. Exit code 1 when anything is left.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import lab_traces  # noqa: E402  (tests/e2e)

PATIENCE = 60  # seconds until the kernel has taken everything away


def run(program, user, *arguments):
    as_user = [] if user is None else ["setpriv", "--reuid", str(user), "--regid", str(user),
                                       "--clear-groups"]
    done = subprocess.run([*as_user, str(program), "lab", *map(str, arguments)],
                          capture_output=True, text=True, check=False, cwd="/")
    if done.returncode != 0:
        sys.exit(f"lab {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def left(before):
    """What is there now and was not, once the kernel had time for it."""
    end = time.monotonic() + PATIENCE
    while any(more := lab_traces.more_than(before)) and time.monotonic() < end:
        time.sleep(0.05)
    return more


def measure(program, topology, user, times):
    seconds, bad = [], False
    for kill in (False, True):
        before = lab_traces.traces()
        for i in range(times if not kill else 1):
            up = json.loads(run(program, user, "up", topology, "--name", f"bench{i}", "--json"))
            seconds.append(up["seconds"])
            there = lab_traces.more_than(before)
            if kill:
                os.kill(up["pid"], signal.SIGKILL)
            else:
                run(program, user, "down", "--name", f"bench{i}")
            more = left(before)
            bad = bad or any(more)
        print(f"  {'killed' if kill else 'down'}: namespaces, BPF programs, processes: "
              f"{there} while it was up, {more} left")
    print(f"  up: median {statistics.median(seconds[:times]):.2f} s, "
          f"{min(seconds):.2f} to {max(seconds):.2f}")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=ROOT / "build/release/bin", type=Path)
    parser.add_argument("--topology", default=ROOT / "examples/lab/big.toml", type=Path)
    parser.add_argument("--times", default=10, type=int)
    parser.add_argument("--user", default=65534, type=int, help="the ordinary user, for root")
    arguments = parser.parse_args()
    bad = False
    with tempfile.TemporaryDirectory() as folder:  # where an ordinary user can read them
        os.chmod(folder, 0o755)
        program = Path(shutil.copy2(arguments.bin / "metaroce", folder))
        topology = Path(shutil.copy2(arguments.topology, folder))
        users = [(None, "root"), (arguments.user, "ordinary user")] if os.geteuid() == 0 else \
            [(None, "ordinary user")]
        for user, name in users:
            print(f"{name}, {arguments.topology.name}:")
            bad = measure(program, topology, user, arguments.times) or bad
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
