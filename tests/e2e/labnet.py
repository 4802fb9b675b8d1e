"""Fabrics for tests: `metaroce lab` with a topology written here, gone at the end of the test.

MR_LAB_ROOTLESS=1 (or no root) makes them in a user namespace, where processes carry the links that
have rules instead of the kernel.
"""
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import harness

ROOTLESS = os.environ.get("MR_LAB_ROOTLESS") == "1" or os.geteuid() != 0
_numbers = itertools.count(1)


def metaroce_lab(*arguments, check=True, **options):
    done = subprocess.run([harness.metaroce(), "lab", *map(str, arguments)], capture_output=True,
                          text=True, timeout=harness.BOUND, env=harness.environment(), **options)
    if check and done.returncode != 0:
        raise AssertionError(f"lab {' '.join(map(str, arguments))}: {done.stderr}")
    return done


def no_namespaces(text):
    """Is this what `metaroce lab` says where there can be none?"""
    return "no namespaces here" in text or "cannot mount /proc" in text


def need_namespaces():
    """Ends the program as skipped where there can be no lab, and says why."""
    with tempfile.TemporaryDirectory(prefix="metaroce-lab-") as folder:
        file = Path(folder) / "topology.toml"
        file.write_text("spines = 1", encoding="utf-8")
        done = metaroce_lab("run", *(["--rootless"] if ROOTLESS else []), file, "--", "true",
                            check=False)
    if done.returncode == 1 and no_namespaces(done.stderr):
        print(f"skipped: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(harness.SKIP)


def wait_for(condition, what):
    """Until the condition holds; an AssertionError when it does not within the bound."""
    end = time.monotonic() + harness.BOUND
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"never: {what() if callable(what) else what}")
        select.select([], [], [], 0.02)  # between two looks


def main():
    """Of the test programs: lets clean-ups run when it is told to end, says where it runs."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    need_namespaces()
    print("rootless: links with rules are carried by processes" if ROOTLESS else "as root",
          file=sys.stderr)
    unittest.main(verbosity=2)


class Lab:
    """`links`: {name of links: rules}; the rest are keys of the topology file."""

    def __init__(self, links=(), **keys):
        self.name = f"test-{os.getpid()}-{next(_numbers)}"
        self.planes = keys.get("planes", 1)
        self.up = False
        text = "".join(f"{k} = {json.dumps(v)}\n" for k, v in keys.items())
        for between, rules in dict(links).items():
            text += f'\n[[link]]\nbetween = "{between}"\nrules = "{rules}"\n'
        with tempfile.TemporaryDirectory(prefix="metaroce-lab-") as folder:
            file = Path(folder) / "topology.toml"
            file.write_text(text, encoding="utf-8")
            metaroce_lab("up", file, "--name", self.name, *(["--rootless"] if ROOTLESS else []))
        self.up = True

    def remove(self):
        if self.up:
            metaroce_lab("down", "--name", self.name)
            self.up = False

    def on(self, node):
        """What stands before a command so that it runs on the node."""
        return [harness.metaroce(), "lab", "exec", "--name", self.name, node, "--"]

    def address(self, host, plane=0, family=4):
        return f"10.{plane}.{host}.1" if family == 4 else f"fd00:{plane}:{host}::1"

    def ip(self, node, *arguments):
        subprocess.run([*self.on(node), "ip", *arguments], check=True, timeout=harness.BOUND)

    def link(self, between, rules):
        metaroce_lab("link", "--name", self.name, between, rules)

    def fail(self, target, *how):
        metaroce_lab("fail", "--name", self.name, target, *how)

    def heal(self, target):
        metaroce_lab("heal", "--name", self.name, target)

    def counters(self, target="*"):
        """{name of a direction: its row}"""
        done = metaroce_lab("counters", "--name", self.name, target, "--json")
        return {row["link"]: row for row in json.loads(done.stdout)}

    def fates(self, target="*"):
        """The sum of what happened to packets there."""
        total = {}
        for row in self.counters(target).values():
            for key, value in row.get("fates", {}).items():
                total[key] = total.get(key, 0) + value
        return total

    def packets(self, target):
        return {name: row["sent_packets"] for name, row in self.counters(target).items()}
