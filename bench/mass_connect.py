#!/usr/bin/env python3
"""1,000 connects at one listener at the same instant: 10 processes x 100, over UDP loopback.

usage: mass_connect.py [--processes N] [--connects N]    (MR_BIN names the folder of the programs)

Prints how long the slowest process took until all its connections were open. Exit code 1 unless
every connect and a message on each succeeded within 10 s.
"""
import argparse
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))
from failures import Peer  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--connects", type=int, default=100)
    arguments = parser.parse_args()
    server = Peer("listen", "127.0.0.1", 0)
    clients = []
    try:
        port = int(server.until("ready")["status"])
        clients = [Peer("mass", "127.0.0.1", port, arguments.connects)
                   for _ in range(arguments.processes)]
        told = [c.until("mass", bound=90) for c in clients]
    finally:
        for peer in [server, *clients]:
            peer.end()
    slowest = max(float(re.search(r"after ([\d.]+) ms", t["text"])[1]) for t in told)
    good = sum(t["status"] == "ok" for t in told)
    print(f"{arguments.processes} x {arguments.connects} connects: {good} of {len(told)} processes "
          f"complete, all open after {slowest / 1000:.2f} s")
    for t in told:
        if t["status"] != "ok":
            print(f"    {t['text']}")
    return 0 if good == len(told) and slowest < 10_000 else 1


if __name__ == "__main__":
    sys.exit(main())
