#!/usr/bin/env python3
"""The transport on fabrics that the kernel forwards: loss, failures, marks, limits.

Bars are counts and ratios to what the same lab did without the trouble, never absolute times.
"""
import signal
import subprocess
import sys
import unittest

from lab_case import Case
from labnet import ROOTLESS, need_namespaces


class Paths(Case):
    """What the fabric does with ports, without our transport."""

    SENDER = """
import socket, sys
address = sys.argv[1]
family = socket.AF_INET6 if ":" in address else socket.AF_INET
for line in sys.stdin:
    port, connected = map(int, line.split())
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.bind(("", port))
    if connected:
        s.connect((address, 4791))
    for _ in range(20):
        try:
            s.send(b"x" * 200) if connected else s.sendto(b"x" * 200, (address, 4791))
        except ConnectionRefusedError:
            pass  # what the host says of one sent before; this one was not sent
    s.close()
    print("sent", flush=True)
"""

    def ways_of(self, lab, sender, port, connected):
        """On which links most of 20 packets went; a few others may be of the kernel itself."""
        before = lab.packets("p0l0:p0s*")
        sender.stdin.write(f"{port} {int(connected)}\n")
        sender.stdin.flush()
        self.assertEqual(sender.stdout.readline(), "sent\n")
        after = lab.packets("p0l0:p0s*")
        return {name for name in after if after[name] - before[name] >= 10}

    def test_path_follows_port_and_nothing_else(self):
        lab = self.lab(planes=1, spines=4)
        for family in (4, 6):
            used = set()
            with subprocess.Popen([*lab.on("h0"), sys.executable, "-c", self.SENDER,
                                   lab.address(1, 0, family)], text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sender:
                for port in range(30000, 30012):
                    # A connected socket stamps a hash of its own on its packets.
                    first = self.ways_of(lab, sender, port, connected=True)
                    self.assertEqual(len(first), 1, f"port {port}")
                    self.assertEqual(self.ways_of(lab, sender, port, connected=True), first)
                    self.assertEqual(self.ways_of(lab, sender, port, connected=False), first)
                    used |= first
            self.assertGreater(len(used), 1, "every port took the same spine")


class Spraying(Case):
    def test_all_spines_of_all_planes_are_used(self):
        lab = self.lab(planes=2, spines=4)
        for family in (4, 6):
            before = lab.packets("p*l0:p*s*")
            # The seed decides the ports, and so who hashes where.
            self.transfer(lab, 24, "--paths-per-plane", 32, "--seed", 1, family=family)
            after = lab.packets("p*l0:p*s*")
            shares = [after[name] - before[name] for name in after]
            self.assertEqual(len(shares), 8)
            self.assertGreater(min(shares), 20, shares)

    def lossy(self, rules, least, most, packets_each=4000):
        """Loss on every link between leaf and spine, data and ACKs."""
        lab = self.lab(planes=2, spines=2)
        self.transfer(lab, 8)
        lab.link("p*s*:p*l*", rules)
        report = self.transfer(lab, 24)
        fates = lab.fates("p*s*:p*l*")
        self.assertGreater(fates["seen"], packets_each)
        share = fates["lost"] / fates["seen"]
        self.assertGreater(share, least, fates)
        self.assertLess(share, most, fates)
        paths = report["paths"]
        self.assertEqual({p["plane"] for p in paths if p["tx_bytes"] > 0}, {0, 1})
        return fates, paths

    def test_loss_of_a_tenth_of_a_percent(self):
        self.lossy("loss=0.1%", 0.0001, 0.003)

    def test_loss_of_one_percent(self):
        fates, paths = self.lossy("loss=1%", 0.006, 0.015)
        self.assertGreater(sum(p["lost"] for p in paths), fates["lost"] // 4)

    def test_loss_of_ten_percent(self):
        self.lossy("loss=10%", 0.08, 0.12)

    def test_bursts_of_loss(self):
        self.lossy("ge=0.2%/10%", 0.003, 0.06)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    need_namespaces()
    print("rootless: links with rules are carried by processes" if ROOTLESS else "as root",
          file=sys.stderr)
    unittest.main(verbosity=2)
