#!/usr/bin/env python3
"""metaroce send and recv as two processes over loopback."""
import os
import signal
import socket
import subprocess
import sys
import unittest

import harness
from harness import Folders, Receiver, load, send, sha256, start_send, write_noise


class SendRecv(unittest.TestCase):
    def setUp(self):
        self.folders = Folders()
        self.addCleanup(self.folders.__exit__)
        self.source, self.target = self.folders.source, self.folders.target

    def assert_ok(self, result):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def transfer(self, *paths, recv=(), sender=(), stdin=None, **receiver_options):
        """One transfer with --once; returns the two results."""
        options = {} if stdin is None else {"input": stdin.decode("latin-1"), "encoding": "latin-1"}
        with Receiver(self.target, "--once", *recv, **receiver_options) as receiver:
            result = send(receiver.address, *paths, *sender, **options)
            return result, receiver.wait(), receiver

    def test_small_file_says_bytes_rate_and_digest(self):
        path = write_noise(self.source / "small", 12345)
        result, code, receiver = self.transfer(path)
        self.assert_ok(result)
        self.assertEqual(code, 0, receiver.text)
        self.assertEqual(sha256(self.target / "small"), sha256(path))
        self.assertIn("12345 bytes", result.stdout)
        self.assertIn("Gbit/s", result.stdout)
        self.assertIn("sha256 " + sha256(path), result.stdout)
        self.assertIn("sha256 " + sha256(path), receiver.out)
        self.assertEqual(self.folders.leftovers(), [])

    def test_sizes_around_packets_and_chunks(self):
        for size in (0, 1, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 20):
            write_noise(self.source / str(size), size)
        result, code, _ = self.transfer(*sorted(self.source.iterdir()))
        self.assert_ok(result)
        self.assertEqual(code, 0)
        for path in self.source.iterdir():
            self.assertEqual(sha256(self.target / path.name), sha256(path), path.name)

    def test_tree(self):
        root = self.source / "tree"
        for name in ("a/b/c", "with space", "\u00e4\u20ac", "-dash", "x" * 255, "deep/" * 20 + "f"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            write_noise(root / name, 1000, seed=len(name))
        for i in range(200):
            write_noise(root / f"many-{i}", i * 7, seed=i)
        (root / "empty folder").mkdir()
        (root / "link").symlink_to("/etc/passwd")
        result, code, _ = self.transfer(root)
        self.assert_ok(result)
        self.assertEqual(code, 0)
        self.assertIn("symbolic links are not sent", result.stderr)
        sent = {p.relative_to(self.source) for p in root.rglob("*") if not p.is_symlink()}
        stored = {p.relative_to(self.target) for p in self.target.rglob("*")}
        self.assertEqual(stored, sent | {root.relative_to(self.source)})
        for name in sent:
            if (self.source / name).is_file():
                self.assertEqual(sha256(self.target / name), sha256(self.source / name), name)

    def test_standard_input(self):
        path = write_noise(self.source / "in", 3_000_001)
        with Receiver(self.target, "--once") as receiver, open(path, "rb") as data:
            result = send(receiver.address, "-", "--name", "piped", stdin=data)
            self.assert_ok(result)
            self.assertEqual(receiver.wait(), 0)
        self.assertEqual(sha256(self.target / "piped"), sha256(path))

    def test_overwrite_policies(self):
        path = write_noise(self.source / "f", 100)
        (self.target / "f").write_bytes(b"old")
        result, code, _ = self.transfer(path)
        self.assertEqual((result.returncode, code), (1, 1))
        self.assertIn("exists at the receiver", result.stderr)
        self.assertEqual((self.target / "f").read_bytes(), b"old")
        result, code, _ = self.transfer(path, recv=("--overwrite", "rename"))
        self.assertEqual((result.returncode, code), (0, 0), result.stderr)
        self.assertEqual((self.target / "f").read_bytes(), b"old")
        self.assertEqual(sha256(self.target / "f.1"), sha256(path))
        result, code, _ = self.transfer(path, recv=("--overwrite", "always"))
        self.assertEqual((result.returncode, code), (0, 0), result.stderr)
        self.assertEqual(sha256(self.target / "f"), sha256(path))

    def test_ipv6(self):
        try:
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
                probe.bind(("::1", 0))
        except OSError:
            self.skipTest("this host has no IPv6")
        path = write_noise(self.source / "six", 2_000_000)
        result, code, _ = self.transfer(path, listen="[::1]:0")
        self.assert_ok(result)
        self.assertEqual(code, 0)
        self.assertEqual(sha256(self.target / "six"), sha256(path))

    def test_every_address_of_a_wildcard_receiver(self):
        path = write_noise(self.source / "f", 100_000)
        with Receiver(self.target, "--overwrite", "always", listen="[::]:0") as receiver:
            for host in ("127.0.0.1", "127.0.0.2", "localhost"):
                result = send(f"{host}:{receiver.port}", path)
                self.assert_ok(result)
                self.assertEqual(sha256(self.target / "f"), sha256(path))
            self.assertEqual(receiver.stop(), 130)

    def test_planes_and_workers(self):
        path = write_noise(self.source / "f", 20_000_000)
        report = self.folders.root / "report.json"
        result, code, _ = self.transfer(path, planes=3, recv=("--workers", "2"),
                                        sender=("--planes", "3", "--workers", "2",
                                                "--paths-per-plane", "2", "--json", report))
        self.assert_ok(result)
        self.assertEqual(code, 0)
        self.assertEqual(sha256(self.target / "f"), sha256(path))
        paths = load(report)["paths"]
        self.assertEqual({p["worker"] for p in paths}, {0, 1})
        self.assertEqual({p["plane"] for p in paths if p["tx_bytes"] > 0}, {0, 1, 2})

    def test_faults_both_ways(self):
        path = write_noise(self.source / "f", 64 << 20)
        reports = [self.folders.root / "send.json", self.folders.root / "recv.json"]
        faults = "drop=1%,reorder=1%:100us,dup=1%,corrupt=1%"
        result, code, receiver = self.transfer(
            path, planes=2, recv=("--fault", faults, "--json", reports[1]),
            sender=("--planes", "2", "--fault", faults, "--json", reports[0]))
        self.assert_ok(result)
        self.assertEqual(code, 0, receiver.text)
        self.assertEqual(sha256(self.target / "f"), sha256(path))
        for report in map(load, reports):
            tally = report["faults"][0]["rx"]
            for kind in ("drop", "reorder", "duplicate", "corrupt"):
                self.assertGreater(tally[kind], 0, kind)
            # What the injector damaged is what the check found. A damaged copy can be damaged
            # before it is duplicated, so there may be more findings than damages.
            self.assertGreaterEqual(report["udp"]["crc_errors"], tally["corrupt"])
            self.assertLessEqual(report["udp"]["crc_errors"],
                                 tally["corrupt"] + tally["duplicate"])

    def test_nobody_there(self):
        path = write_noise(self.source / "f", 10)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))  # takes packets and never answers: a silent drop
            port = silent.getsockname()[1]
            result = send(f"127.0.0.1:{port}", path, "--set", "connect_timeout=300000000")
        self.assertEqual(result.returncode, 3)
        self.assertIn(f"127.0.0.1:{port}", result.stderr)
        self.assertIn("did not answer within 0.300 s", result.stderr)
        self.assertIn("firewall", result.stderr)
        # Nothing listens: the host says so, and the answer does not wait for the timeout.
        result = send(f"127.0.0.1:{port}", path, "--set", "connect_timeout=3600000000000")
        self.assertEqual(result.returncode, 3)
        self.assertIn(f"127.0.0.1:{port}", result.stderr)
        self.assertIn("refused", result.stderr)

    def hanging_sender(self, receiver):
        """A sender whose standard input never ends; returns when its file is being written."""
        sender = start_send(receiver.address, "-", stdin=subprocess.PIPE)
        self.addCleanup(lambda: (sender.poll() is None and sender.kill(), sender.wait(),
                                 sender.stdin.close(), sender.stdout.close(),
                                 sender.stderr.close()))
        while not any(p.stat().st_size > 0 for p in self.folders.leftovers()):
            if sender.poll() is not None:
                self.fail(sender.stderr.read())
            sender.stdin.write("x" * (1 << 20))
            sender.stdin.flush()
        return sender

    def end_of(self, sender):
        """Waits without closing its standard input, which would be the end of the file."""
        sender.wait(harness.BOUND)
        return sender.stderr.read()

    def test_receiver_killed(self):
        with Receiver(self.target, "--once") as receiver:
            sender = self.hanging_sender(receiver)
            receiver.kill()
            errors = self.end_of(sender)
            self.assertEqual(sender.returncode, 1, errors)
            self.assertIn(f"127.0.0.1:{receiver.port}", errors)
            self.assertIn("the connection to the receiver ended", errors)

    def test_sender_killed(self):
        with Receiver(self.target, "--once") as receiver:
            sender = self.hanging_sender(receiver)
            sender.kill()
            self.assertEqual(receiver.wait(), 1)
            # By ICMP at once, or after the death timeout where no ICMP comes.
            self.assertRegex(receiver.text,
                             r"127\.0\.0\.1:\d+ \(UDP port \d+\) (is gone|stopped answering)")
        self.assertEqual(list(self.target.iterdir()), [])

    def test_interrupted_sides_tell_each_other(self):
        with Receiver(self.target, "--once") as receiver:
            sender = self.hanging_sender(receiver)
            sender.send_signal(signal.SIGINT)
            errors = self.end_of(sender)
            self.assertEqual(sender.returncode, 130, errors)
            self.assertEqual(receiver.wait(), 1)
            self.assertIn("interrupted at the sender", receiver.text)
        self.assertEqual(list(self.target.iterdir()), [])
        with Receiver(self.target) as receiver:
            sender = self.hanging_sender(receiver)
            self.assertEqual(receiver.stop(), 130)
            errors = self.end_of(sender)
            self.assertEqual(sender.returncode, 1)
            self.assertIn("interrupted at the receiver", errors)
        self.assertEqual(list(self.target.iterdir()), [])

    def test_port_in_use(self):
        with Receiver(self.target) as receiver:
            result = harness.run("recv", "--dir", self.target, "--listen", receiver.address)
            self.assertEqual(result.returncode, 1)
            self.assertIn(str(receiver.port), result.stderr)


class Usage(unittest.TestCase):
    def refused(self, text, *arguments):
        result = harness.run(*arguments)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(text, result.stderr)
        self.assertIn("--help", result.stderr)

    def test_wrong_arguments(self):
        self.refused("--nonsense", "send", "127.0.0.1", "-", "--nonsense")
        self.refused("required", "send", "127.0.0.1")
        self.refused("subcommand", )
        self.refused("did you mean death_timeout", "send", "h", "-", "--set", "death_timeot=1")
        self.refused("must be", "recv", "--set", "paths_per_plane=0")
        self.refused("whole number", "recv", "--set", "paths_per_plane=x")
        self.refused("NAME=VALUE", "recv", "--set", "paths_per_plane")
        self.refused("--fault", "recv", "--fault", "explode=1%")
        self.refused("cannot open the folder", "recv", "--dir", "/nonexistent")
        self.refused("overwrite", "recv", "--overwrite", "sometimes")
        self.refused("LOCAL=REMOTE", "send", "127.0.0.1", "-", "--plane", "127.0.0.1")
        self.refused("this host", "send", "10.0.0.1", "-", "--planes", "2")

    def test_help_and_version(self):
        for arguments, text in ((("--help",), "send"), (("send", "--help"), "Examples:"),
                                (("recv", "--help"), "Exit codes:"), (("--version",), "metaroce ")):
            result = harness.run(*arguments)
            self.assertEqual(result.returncode, 0)
            self.assertIn(text, result.stdout)

    def test_missing_file(self):
        result = send("127.0.0.1", "/nonexistent/file")
        self.assertEqual(result.returncode, 1)
        self.assertIn("No such file", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[1:], verbosity=2 if os.isatty(2) else 1)
