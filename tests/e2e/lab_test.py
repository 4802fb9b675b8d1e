#!/usr/bin/env python3
"""Fabrics that the kernel forwards, and the transport on them: paths, spraying, loss.

Bars are counts and ratios to what the same lab did without the trouble, never absolute times.
"""
import subprocess
import sys

import harness
import labnet
from lab_case import Case, Prober
from labnet import wait_for


class Paths(Case):
    """What the fabric does with ports, without our transport."""

    def test_path_follows_port_and_nothing_else(self):
        lab = self.lab(planes=1, spines=4)
        for family in (4, 6):
            prober, used = Prober(self, lab, lab.address(1, 0, family)), set()
            for port in range(30000, 30012):
                # A connected socket stamps a hash of its own on its packets.
                first = prober.spines(port, connected=True)
                self.assertEqual(len(first), 1, f"port {port}")
                self.assertEqual(prober.spines(port, connected=True), first)
                self.assertEqual(prober.spines(port), first)
                used |= first
            self.assertGreater(len(used), 1, "every port took the same spine")

    def test_the_seed_decides_which(self):
        def ways(seed, family):
            lab = self.lab(planes=1, spines=4, seed=seed)
            prober = Prober(self, lab, lab.address(1, 0, family))
            return [prober.spines(port) for port in range(30000, 30012)]
        for family in (4, 6):
            with self.subTest(family=family):
                self.assertEqual(ways(1, family), ways(1, family))
                self.assertNotEqual(ways(1, family), ways(2, family))

    SUPER_PACKET = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(17, 103, 500)  # SOL_UDP, UDP_SEGMENT
for _ in range(10):
    s.sendto(b"x" * 20000, (sys.argv[1], 4791))
"""

    def test_super_packets_are_cut_where_they_leave_their_host(self):
        for gso, least, most in ((False, 400, 450), (True, 10, 60)):
            with self.subTest(gso=gso):
                lab = self.lab(spines=1, gso=gso)
                before = lab.packets("p0l0:p0s0")["p0l0:p0s0"]
                subprocess.run([*lab.on("h0"), sys.executable, "-c", self.SUPER_PACKET,
                                lab.address(1)], check=True, timeout=harness.BOUND)
                sent = lab.packets("p0l0:p0s0")["p0l0:p0s0"] - before
                self.assertTrue(least <= sent <= most, f"{sent} packets on the uplink")

    def test_a_leaf_leaves_out_an_uplink_without_carrier_or_not(self):
        for linkdown in (True, False):
            with self.subTest(linkdown=linkdown):
                lab = self.lab(spines=4, linkdown=linkdown)
                prober, ports = Prober(self, lab, lab.address(1)), range(30000, 30012)
                lab.ip("p0s0", "link", "set", "l0", "down")  # the far end: the leaf sees no carrier
                wait_for(lambda: not lab.counters("p0l0:p0s0")["p0l0:p0s0"]["up"], "carrier lost")
                # What goes to a link without carrier is counted nowhere.
                ways = [prober.spines(port) for port in ports]
                self.assertEqual(all(ways), linkdown, ways)


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
    labnet.main()
