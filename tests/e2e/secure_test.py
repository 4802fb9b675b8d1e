#!/usr/bin/env python3
"""Real processes with keys: keygen, refusals in words, and secured send, recv, ping and perf."""
import json
import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

from harness import environment, metaroce


def run(*command, timeout=60):
    return subprocess.run([metaroce(), *map(str, command)], capture_output=True, text=True,
                          timeout=timeout, check=False, env=environment())


class Server:
    """metaroce perf --server on a free port."""

    def __init__(self, *options):
        self.process = subprocess.Popen(
            [metaroce(), "perf", "--server", "-p", "0", "--local", "127.0.0.1",
             *map(str, options)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        while "listening on" not in line:
            if not line:
                raise RuntimeError("the server did not start")
            line = self.process.stderr.readline()
        self.line = line
        self.port = line.split("127.0.0.1:")[1].split()[0].rstrip(",")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=20)
        self.process.stderr.close()


class Secured(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.at = pathlib.Path(self.folder.name)

    def keygen(self, name, kind="--x25519"):
        made = run("keygen", kind, "-o", self.at / f"{name}.key", "--name", name)
        self.assertEqual(made.returncode, 0, made.stderr)
        (self.at / f"{name}.pub").write_text(made.stdout)
        return self.at / f"{name}.key", self.at / f"{name}.pub"

    def test_keygen_makes_files_for_the_owner_alone(self):
        key, public = self.keygen("a")
        self.assertEqual(stat.S_IMODE(key.stat().st_mode), 0o600)
        self.assertRegex(public.read_text(), r"^metaroce-x25519-public a [0-9a-f]{64}\n$")
        again = run("keygen", "-o", key)
        self.assertEqual(again.returncode, 1)
        self.assertIn("never overwritten", again.stderr)
        self.assertEqual(run("keygen").returncode, 2)
        self.assertEqual(run("keygen", "-o", self.at / "x", "--name", "a b").returncode, 2)
        psk, _ = self.keygen("lab", "--psk")
        os.chmod(psk, 0o640)
        refused = run("ping", "127.0.0.1", "--psk-file", psk)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("chmod 600", refused.stderr)
        self.assertIn("0640", refused.stderr)

    def test_refusals_in_words(self):
        a, a_public = self.keygen("a")
        b, b_public = self.keygen("b")
        psk, _ = self.keygen("lab", "--psk")
        with Server("--key-file", b, "--peer-key", a_public) as server:
            self.assertIn("plain peers are refused", server.line)
            target = ["127.0.0.1", "-p", server.port, "-c", "1"]
            plain = run("ping", *target)
            self.assertEqual(plain.returncode, 1)
            self.assertIn("give --psk-file or --peer-key", plain.stderr)
            other = run("ping", *target, "--psk-file", psk)
            self.assertEqual(other.returncode, 1)
            self.assertIn("do not know each other's keys", other.stderr)
            stranger, _ = self.keygen("c")
            unknown = run("ping", *target, "--key-file", stranger, "--peer-key", b_public)
            self.assertEqual(unknown.returncode, 1)
            self.assertIn("do not know each other's keys", unknown.stderr)
            good = run("ping", *target, "--key-file", a, "--peer-key", b_public)
            self.assertEqual(good.returncode, 0, good.stderr)
            self.assertIn("secured: AES-128-GCM, peer b", good.stdout)
        with Server() as server:
            self.assertIn("plain: not encrypted, not authenticated", server.line)
            target = ["127.0.0.1", "-p", server.port, "-c", "1"]
            wants = run("ping", *target, "--psk-file", psk)
            self.assertEqual(wants.returncode, 1)
            self.assertIn("offers no secured connection", wants.stderr)
            offers = run("ping", *target, "--psk-file", psk, "--security", "offered")
            self.assertEqual(offers.returncode, 0, offers.stderr)
            self.assertIn("plain: not encrypted, not authenticated", offers.stdout)

    def test_options_that_would_give_less_than_they_say(self):
        a, a_public = self.keygen("a")
        _, b_public = self.keygen("b")
        psk, _ = self.keygen("lab", "--psk")
        target = ["ping", "127.0.0.1", "-p", "9"]
        for option, value in (("--peer-name", "b"), ("--identity", "lab"),
                              ("--suites", "AES-256-GCM"), ("--security", "offered")):
            plain = run(*target, option, value)
            self.assertEqual(plain.returncode, 2, plain.stderr)
            self.assertIn(f"{option} needs keys: --psk-file, or", plain.stderr)
        anybody = run(*target, "--psk-file", psk, "--identity", "lab", "--peer-key", b_public,
                      "--peer-name", "b")
        self.assertEqual(anybody.returncode, 2, anybody.stderr)
        self.assertIn("a pre-shared key does not tell one peer from another", anybody.stderr)
        for command in (["send", "127.0.0.1:9", psk], ["recv", "--dir", self.at],
                        ["perf", "127.0.0.1", "-p", "9"]):
            seeded = run(*command, "--seed", "5", "--key-file", a, "--peer-key", b_public)
            self.assertEqual(seeded.returncode, 2, seeded.stderr)
            self.assertIn("--seed cannot go with keys", seeded.stderr)
        os.chmod(a_public, 0o664)
        writable = run(*target, "--key-file", a, "--peer-key", a_public)
        self.assertEqual(writable.returncode, 2, writable.stderr)
        self.assertIn("chmod go-w", writable.stderr)

    def test_wrong_pre_shared_key(self):
        one, _ = self.keygen("lab", "--psk")
        other = self.at / "other.key"
        self.assertEqual(run("keygen", "--psk", "-o", other, "--name", "lab").returncode, 0)
        with Server("--psk-file", one) as server:
            refused = run("ping", "127.0.0.1", "-p", server.port, "--psk-file", other)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("did not prove to have the key", refused.stderr)

    def test_perf_verifies_over_every_suite_with_loss_and_updates(self):
        psk, _ = self.keygen("lab", "--psk")
        for suite in ("AES-128-GCM", "AES-256-GCM", "ChaCha20-Poly1305"):
            with Server("--psk-file", psk) as server:
                done = run("perf", "127.0.0.1", "-p", server.port, "--psk-file", psk, "--suites",
                           suite, "--verify", "-s", "256K", "-n", "200", "--json", "-",
                           "--set", "key_update_packets=256", "--fault", "drop=1%")
                self.assertEqual(done.returncode, 0, done.stderr)
                security = json.loads(done.stdout)["runs"][0]["security"]
                self.assertEqual(security["suite"], suite)
                self.assertEqual(security["peer"], "lab")
                self.assertGreater(security["key_updates"], 0)

    def test_send_and_recv(self):
        psk, _ = self.keygen("lab", "--psk")
        (self.at / "in").write_bytes(os.urandom(3_000_000))
        (self.at / "out").mkdir()
        recv = subprocess.Popen(
            [metaroce(), "recv", "--once", "--listen", "127.0.0.1:0", "--dir", self.at / "out",
             "--psk-file", psk], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        line = recv.stderr.readline()
        while "listening on" not in line:
            self.assertNotEqual(line, "")
            line = recv.stderr.readline()
        self.assertIn("plain peers are refused", line)
        port = line.split("127.0.0.1:")[1].split()[0].rstrip(",")
        sent = run("send", f"127.0.0.1:{port}", self.at / "in", "--psk-file", psk, "--json",
                   self.at / "report")
        self.assertEqual(sent.returncode, 0, sent.stderr)
        self.assertIn("secured: AES-128-GCM, peer lab", sent.stderr)
        self.assertEqual(recv.wait(timeout=30), 0)
        recv.stderr.close()
        self.assertTrue(json.loads((self.at / "report").read_text())["security"]["secured"])
        self.assertEqual((self.at / "out" / "in").read_bytes(), (self.at / "in").read_bytes())


if __name__ == "__main__":
    unittest.main()
