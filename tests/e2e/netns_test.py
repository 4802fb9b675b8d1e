#!/usr/bin/env python3
"""metaroce between two network namespaces: real MTUs, links that go down, silent drops. Root only.

The ids (S06 ...) are those of docs/cases.md.
"""
import os
import signal
import sys
import threading
import time
import unittest

import harness
import namespaces
from feed import MIB, Feed
from harness import Folders, Receiver, load, send, sha256, start_send, write_noise


def payload_of(mtu, largest=65024):
    """IPv4 20, UDP 8, header 52, CRC 4; cut to a multiple of 16 (MR-PMTU-002)."""
    return min((mtu - 84) // 16 * 16, largest)


class Case(unittest.TestCase):
    made = []

    def network(self, **options):
        net = namespaces.Network(**options)
        self.addCleanup(net.remove)
        return net

    def setUp(self):
        self.folders = Folders()
        Case.made.append(self.folders)  # Ctrl-C skips the clean-ups
        self.addCleanup(self.folders.__exit__)
        self.source, self.target = self.folders.source, self.folders.target
        self.reports = {side: self.folders.root / f"{side}.json" for side in ("send", "recv")}

    def receiver(self, host, *arguments, planes=1, listen=None):
        listen = listen or [f"{host.address(p)}:0" for p in range(planes)]
        receiver = Receiver(self.target, "--once", "--json", self.reports["recv"], *arguments,
                            listen=listen, prefix=host.prefix)
        self.addCleanup(receiver.__exit__)
        return receiver

    def feed(self, net, receiver, *arguments):
        planes = []
        for p in range(net.planes):
            planes += ["--plane", f"{net.left.address(p)}={net.right.address(p)}"]
        return Feed(self, self.folders, receiver.address, *planes, "--json", self.reports["send"],
                    *arguments, prefix=net.left.prefix)

    def finish(self, feed, receiver):
        """Ends a fed transfer; every byte must have arrived. Returns the sender's paths."""
        feed.finish()
        self.assertEqual(receiver.wait(), 0, receiver.text)
        self.assertEqual(sha256(self.target / "stdin"), feed.digest.hexdigest())
        return load(self.reports["send"])["paths"]

    def transfer(self, source, target, *paths, recv=(), sender=()):
        """Files from one host to another; returns the sender's report."""
        receiver = self.receiver(target, *recv)
        result = send(receiver.address, *paths, "--json", self.reports["send"], *sender,
                      prefix=source.prefix)
        self.assertEqual(result.returncode, 0, result.stderr + receiver.text)
        self.assertEqual(receiver.wait(), 0, receiver.text)
        for path in paths:
            self.assertEqual(sha256(self.target / path.name), sha256(path), path.name)
            (self.target / path.name).unlink()
        return load(self.reports["send"])


class PacketSize(Case):
    def test_s06_unequal_mtu_both_directions(self):
        net = self.network(mtu=9000, right_mtu=1500)
        path = write_noise(self.source / "f", 16 * MIB)
        large = ("--set", "max_payload=65024")
        for source, target in ((net.left, net.right), (net.right, net.left)):
            report = self.transfer(source, target, path, recv=large, sender=large)
            sizes = {p["pmtu"] for p in report["paths"]}
            self.assertEqual(sizes, {1500})

    def test_s07_sizes_around_packets(self):
        large = ("--set", "max_payload=65024")
        for mtu in (1280, 1500, 9000, 65535):
            payload = payload_of(mtu)
            sizes = {0, 1, 4095, 4096, 4097, 65535, 65536, 65537, MIB}
            sizes |= {n * payload + d for n in range(1, 5) for d in (-1, 0, 1)}
            with self.subTest(mtu=mtu):
                net = self.network(mtu=mtu)
                files = [write_noise(self.source / f"{mtu}-{size}", size) for size in sorted(sizes)]
                report = self.transfer(net.left, net.right, *files, recv=large, sender=large)
                found = max(p["pmtu"] for p in report["paths"])
                self.assertEqual(payload_of(found), payload, f"packets of {found} bytes")
                net.remove()

    def test_s08_one_plane_shrinks_in_the_middle(self):
        net = self.network(planes=2)
        receiver = self.receiver(net.right, planes=2)
        feed = self.feed(net, receiver)
        feed.go_on()
        net.right.mtu(1280, plane=1)
        feed.give(64 * MIB)
        paths = self.finish(feed, receiver)
        fallbacks = {plane: sum(p["mtu_fallback"] for p in paths if p["plane"] == plane)
                     for plane in (0, 1)}
        self.assertGreater(fallbacks[1], 0, paths)
        self.assertEqual(fallbacks[0], 0, paths)
        self.assertEqual({p["pmtu"] for p in paths if p["plane"] == 1}, {1280})
        self.assertEqual({p["pmtu"] for p in paths if p["plane"] == 0}, {1500})

    def test_s08_the_only_plane_shrinks_in_the_middle(self):
        net = self.network()
        receiver = self.receiver(net.right)
        feed = self.feed(net, receiver)
        feed.go_on()
        net.right.mtu(1280)
        feed.give(64 * MIB)
        paths = self.finish(feed, receiver)
        self.assertGreater(sum(p["mtu_fallback"] for p in paths), 0, paths)
        self.assertEqual({p["pmtu"] for p in paths}, {1280})


class Darkness(Case):
    DARK = 0.5  # seconds; how long the trouble lasts, not a wait for something
    # On a busy machine the end of the trouble may come late; these tests are not about death.
    PATIENT = ("--set", "death_timeout=60000000000")

    def test_n01_everything_vanishes_for_a_while(self):
        net = self.network()
        receiver = self.receiver(net.right, *self.PATIENT)
        feed = self.feed(net, receiver, *self.PATIENT)
        feed.go_on()
        net.silence()
        end = threading.Timer(self.DARK, net.heal)
        end.start()
        feed.give(64 * MIB)
        end.join()
        feed.give(16 * MIB)
        paths = self.finish(feed, receiver)
        self.assertGreater(sum(p["lost"] for p in paths), 0)

    def link_down(self, net, host):
        receiver = self.receiver(net.right, *self.PATIENT)
        feed = self.feed(net, receiver, *self.PATIENT)
        feed.go_on()
        host.link("down")
        end = threading.Timer(2 * self.DARK, host.link, ["up"])
        end.start()
        try:
            feed.give(64 * MIB)
        finally:
            end.join()
        self.finish(feed, receiver)

    def test_n01_link_down_at_the_sender(self):
        net = self.network()
        self.link_down(net, net.left)

    def test_n01_link_down_at_the_receiver(self):
        net = self.network()
        self.link_down(net, net.right)

    def both_planes_again(self, net, feed):
        """Feeds until plane 1 carries data again."""
        before = net.left.sent_bytes(plane=1)
        end = time.monotonic() + 30
        while net.left.sent_bytes(plane=1) < before + 4 * MIB:
            self.assertLess(time.monotonic(), end, "plane 1 carries no data after it came back")
            feed.give(MIB)

    def one_plane_goes_and_returns(self, go, come_back):
        net = self.network(planes=2)
        receiver = self.receiver(net.right, "--overwrite", "always", planes=2)
        feed = self.feed(net, receiver)
        feed.go_on()
        go(net)
        feed.go_on()
        alone = [net.left.sent_bytes(plane) for plane in (0, 1)]
        feed.go_on()
        sent = [net.left.sent_bytes(plane) - alone[plane] for plane in (0, 1)]
        self.assertGreater(sent[0], 8 * MIB, "plane 0 goes on alone")
        self.assertLess(sent[1], MIB, "on plane 1 there are only probes")
        come_back(net)
        self.both_planes_again(net, feed)
        paths = self.finish(feed, receiver)
        self.assertEqual({p["plane"] for p in paths if p["tx_bytes"] > 0}, {0, 1})
        net.remove()

    def test_plane_with_its_link_down(self):
        for side in ("left", "right"):
            with self.subTest(side=side):
                self.one_plane_goes_and_returns(lambda net, s=side: getattr(net, s).link("down", 1),
                                                lambda net, s=side: getattr(net, s).link("up", 1))

    def test_n16_plane_that_swallows_everything(self):
        self.one_plane_goes_and_returns(lambda net: net.silence(1), lambda net: net.heal(1))


class Addresses(Case):
    def test_ipv6_link_local_with_scope(self):
        net = self.network()
        path = write_noise(self.source / "f", 4 * MIB)
        for listen in ("[fe80::2%v0]:0", "[::]:0"):
            with self.subTest(listen=listen):
                receiver = self.receiver(net.right, "--overwrite", "always", listen=listen)
                result = send(f"[fe80::2%v0]:{receiver.port}", path, prefix=net.left.prefix)
                self.assertEqual(result.returncode, 0, result.stderr + receiver.text)
                self.assertEqual(receiver.wait(), 0, receiver.text)
                self.assertEqual(sha256(self.target / "f"), sha256(path))

    def test_s14_nobody_answers(self):
        net = self.network()
        path = write_noise(self.source / "f", 10)
        silent = "10.77.0.9"
        net.left.neighbour(silent, "02:00:00:00:00:99")  # frames leave and nobody takes them
        result = send(f"{silent}:4711", path, "--set", "connect_timeout=300000000",
                      prefix=net.left.prefix)
        self.assertEqual(result.returncode, 3, result.stderr)
        for text in (f"{silent}:4711", "did not answer within 0.300 s", "firewall"):
            self.assertIn(text, result.stderr)

    def test_s14_rejected(self):
        """An ICMP error ends the set-up at once: the timeout would be an hour."""
        net = self.network()
        path = write_noise(self.source / "f", 10)
        hour = ("--set", "connect_timeout=3600000000000")
        right = net.right.address()
        result = send(f"{right}:4711", path, *hour, prefix=net.left.prefix)
        self.assertEqual(result.returncode, 3, result.stderr)
        for text in (f"{right}:4711", "refused"):
            self.assertIn(text, result.stderr)
        # Nobody has that address: the neighbour discovery of this host fails.
        result = send("10.77.0.9:4711", path, *hour, prefix=net.left.prefix)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("10.77.0.9:4711", result.stderr)
        # A router in between says that it does not forward there.
        net.left.ip("route", "add", "10.99.0.0/16", "via", right)
        net.right.write_sysctl("net.ipv4.ip_forward", 1)
        net.right.ip("route", "add", "prohibit", "10.99.0.0/16")
        result = send("10.99.0.1:4711", path, *hour, prefix=net.left.prefix)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("10.99.0.1:4711", result.stderr)
        # No route at all.
        result = send("10.98.0.1:4711", path, *hour, prefix=net.left.prefix)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("10.98.0.1:4711", result.stderr)

    def test_s16_each_address_of_a_host_answers_for_itself(self):
        net = self.network(planes=2)
        net.right.ip("addr", "add", "10.77.0.3/24", "dev", "v0")
        net.right.ip("addr", "add", "10.77.0.4/24", "dev", "v1")  # one subnet, two interfaces
        for host in (net.left, net.right):
            for name in ("all", "v0", "v1"):
                host.write_sysctl(f"net.ipv4.conf.{name}.rp_filter", 1)
        path = write_noise(self.source / "f", MIB)
        for listen in ("[::]:0", "0.0.0.0:0"):
            for to in ("10.77.0.2", "10.77.0.3", "10.77.0.4", "10.77.1.2"):
                with self.subTest(listen=listen, to=to):
                    receiver = self.receiver(net.right, "--overwrite", "always", listen=listen)
                    result = send(f"{to}:{receiver.port}", path, prefix=net.left.prefix)
                    self.assertEqual(result.returncode, 0, result.stderr + receiver.text)
                    self.assertEqual(receiver.wait(), 0, receiver.text)
                    self.assertEqual(sha256(self.target / "f"), sha256(path))


class Load(Case):
    def test_p06_two_pairs_at_once(self):
        net = self.network()
        path = write_noise(self.source / "f", 64 * MIB)
        receivers, senders = [], []
        for i in range(2):
            target = self.target / str(i)
            target.mkdir()
            receivers.append(Receiver(target, "--once", listen=f"{net.right.address()}:0",
                                      prefix=net.right.prefix))
            self.addCleanup(receivers[i].__exit__)
        for receiver in receivers:
            sender = start_send(receiver.address, path, prefix=net.left.prefix)
            senders.append(sender)
            self.addCleanup(lambda s=sender: (s.poll() is None and s.kill(), s.wait(),
                                              s.stdout.close(), s.stderr.close()))
        for i in range(2):
            senders[i].wait(harness.BOUND)
            self.assertEqual(senders[i].returncode, 0, senders[i].stderr.read())
            self.assertEqual(receivers[i].wait(), 0, receivers[i].text)
            self.assertEqual(sha256(self.target / str(i) / "f"), sha256(path))

    def test_p14_figures_agree_with_the_wire_and_with_each_other(self):
        net = self.network(mtu=9000)
        path = write_noise(self.source / "f", 128 * MIB)
        before = net.left.sent_bytes()
        report = self.transfer(net.left, net.right, path)
        wire = net.left.sent_bytes() - before
        session = load(self.reports["recv"])["sessions"][0]
        for side in (report, session):
            rate = 128 * MIB * 8 / side["seconds"] / 1e9
            self.assertAlmostEqual(side["goodput_gbps"] / rate, 1, delta=0.01)
            self.assertAlmostEqual((side["end_ns"] - side["begin_ns"]) / 1e9 / side["seconds"], 1,
                                   delta=0.01)
        # One clock for both on this machine: what the receiver times lies within the sender's time.
        self.assertLessEqual(report["begin_ns"], session["begin_ns"])
        self.assertLessEqual(session["end_ns"], report["end_ns"])
        # Headers are 2 % of such packets; the rest is for acknowledgements, probes and repairs.
        self.assertGreater(wire, 128 * MIB * 1.01)
        self.assertLess(wire, 128 * MIB * 1.06)


def main():
    reason = namespaces.why_not()
    if reason:
        print(f"skipped: {reason}")
        return harness.SKIP
    namespaces.remove_left_over()
    # As Ctrl-C: unittest takes every other exception for the failure of one test and goes on.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        unittest.main(argv=[sys.argv[0]] + sys.argv[1:], verbosity=2 if os.isatty(2) else 1)
    finally:
        namespaces.remove_all()
        for folders in Case.made:
            folders.__exit__()
    return 0


if __name__ == "__main__":
    sys.exit(main())
