#!/usr/bin/env python3
"""metaroce stat looks at living processes from outside (cases O01, O02, O03, O06)."""
import json
import os
import signal
import socket
import subprocess
import time
import unittest
from pathlib import Path

import harness
from harness import Folders, Receiver, metaroce, run, send, write_noise

BOUND = 60


def stat(*arguments):
    result = run("stat", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def processes(*pids):
    return {p["pid"]: p for p in
            json.loads(stat("--json", *[a for pid in pids for a in ("--pid", pid)]))}


def wait_for(look, done):
    """Looks again (each look takes a quarter of a second) until `done`; returns the last look."""
    end = time.monotonic() + BOUND
    while True:
        seen = look()
        if done(seen):
            return seen
        if time.monotonic() > end:
            raise AssertionError(f"not within {BOUND} s: {json.dumps(seen, indent=1)[:4000]}")


class Sender:
    """A sender that reads standard input: it moves what it is given and stays."""

    def __init__(self, receiver, *arguments):
        self.process = subprocess.Popen(
            [metaroce(), "send", receiver.address, "-", "-q"] + [str(a) for a in arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=harness.environment())
        self.pid = self.process.pid

    def give(self, size):
        self.process.stdin.write(bytes(size))
        self.process.stdin.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Stat(unittest.TestCase):
    def setUp(self):
        self.folders = Folders()
        self.addCleanup(self.folders.__exit__)
        self.target = self.folders.target

    def connections_of(self, *pids):
        """The only connection of each process, once all have one that is open."""
        def look():
            return processes(*pids)

        def done(seen):
            return len(seen) == len(pids) and all(
                p["connections"] and p["connections"][0]["state"] == "open" and
                p["connections"][0]["planes"] > 0 for p in seen.values())
        return {pid: p["connections"][0] for pid, p in wait_for(look, done).items()}

    def test_both_ends_of_a_living_connection(self):
        with Receiver(self.target, planes=2) as receiver, Sender(receiver, "--planes", 2) as sender:
            sender.give(4 << 20)
            rx, tx = receiver.process.pid, sender.pid
            seen = wait_for(lambda: self.connections_of(rx, tx),
                            lambda c: c[tx]["counters"]["bytes_sent"] >= 4 << 20 and
                            c[rx]["counters"]["bytes_received"] >= 4 << 20)
            self.assertIn(str(receiver.port), seen[tx]["peer"])
            for connection in seen.values():
                self.assertEqual(connection["planes"], 2)
                self.assertEqual(len(connection["paths"]), 8)
                self.assertEqual(connection["waits_for"], "application")
                for path in connection["paths"]:
                    self.assertEqual(path["state"], "good")
                    self.assertGreater(path["srtt_us"], 0)
                    self.assertIn(path["last_change"], ("validated", "opened", "answered"))
            table = stat("--pid", tx)
            self.assertRegex(table, r"PROCESS +PEER +STATE")
            self.assertIn(f"{tx}/metaroce", table)
            self.assertIn("open", table)
            paths = stat("--paths", "--pid", tx).splitlines()
            self.assertEqual(len(paths), 9)
            self.assertIn("LAST CHANGE", paths[0])
            self.assertEqual(stat("--pid", tx, "--peer", "203.0.113.1").count("\n"), 1)
            self.assertEqual(processes(1), {})

    def test_page_is_private_and_goes_with_its_process(self):
        with Receiver(self.target) as receiver:
            pid = receiver.process.pid
            pages = list(Path("/dev/shm").glob(f"metaroce-{os.geteuid()}-{pid}-*"))
            self.assertEqual(len(pages), 1)
            self.assertEqual(pages[0].stat().st_mode & 0o777, 0o600)
            receiver.kill()
            self.assertTrue(pages[0].exists())
            self.assertEqual(processes(pid), {})
            self.assertFalse(pages[0].exists(), "the page of a dead process stays")
        with Receiver(self.target) as receiver:
            pid = receiver.process.pid
            receiver.stop()
            self.assertEqual(list(Path("/dev/shm").glob(f"metaroce-*-{pid}-*")), [])

    def test_o02_the_bad_path_stands_in_the_first_row(self):
        fault = "blackhole@1s-600s:plane=2:dir=both"
        with Receiver(self.target, planes=4) as receiver, \
                Sender(receiver, "--planes", 4, "--fault", fault) as sender:
            sender.give(1 << 20)

            def states():
                sender.give(1 << 20)
                return self.connections_of(sender.pid)[sender.pid]["paths"]
            paths = wait_for(states, lambda p: [x["plane"] for x in p[:4]] == [2] * 4 and
                             all(x["state"] == "dead" for x in p[:4]))
            self.assertTrue(all(p["state"] == "good" for p in paths[4:]), paths)
            self.assertIn(paths[0]["last_change"], ("unanswered", "silent"))
            row = stat("--paths", "--pid", sender.pid).splitlines()[1].split()
            self.assertEqual((row[0], row[2]), ("dead", "2"))

    def test_o03_a_stopped_peer_and_a_stopped_program_are_told_apart(self):
        long = ("--set", "death_timeout=600000000000")
        with Receiver(self.target, *long) as receiver, Sender(receiver, *long) as sender:
            sender.give(1 << 20)
            rx, tx = receiver.process.pid, sender.pid
            self.connections_of(rx, tx)
            receiver.process.send_signal(signal.SIGSTOP)
            try:
                sender.give(8 << 20)
                seen = wait_for(lambda: self.connections_of(rx, tx),
                                lambda c: c[tx]["waits_for"].startswith("path dead") and
                                c[rx]["waits_for"].startswith("application (stopped"))
                work = seen[tx]["oldest_work"]
                self.assertIsNotNone(work)
                later = wait_for(lambda: self.connections_of(tx)[tx],
                                 lambda c: c["oldest_work"]["seconds"] > 1)
                self.assertEqual(later["oldest_work"]["id"], work["id"])
                self.assertGreater(later["silent_seconds"], 0)
            finally:
                receiver.process.send_signal(signal.SIGCONT)
            wait_for(lambda: self.connections_of(rx, tx),
                     lambda c: all(x["waits_for"] == "application" for x in c.values()))

    def test_watch_goes_on_until_it_is_stopped(self):
        with Receiver(self.target) as receiver:
            watch = subprocess.Popen([metaroce(), "stat", "--watch", "0.1", "--json", "--pid",
                                      str(receiver.process.pid)], stdout=subprocess.PIPE, text=True,
                                     env=harness.environment())
            lines = [watch.stdout.readline() for _ in range(3)]
            watch.send_signal(signal.SIGINT)
            watch.stdout.read()
            self.assertEqual(watch.wait(BOUND), 0)
            watch.stdout.close()
            for line in lines:
                self.assertEqual(json.loads(line)[0]["pid"], receiver.process.pid)

    def test_o06_a_clean_run_and_a_flood_of_garbage_say_nothing(self):
        path = write_noise(self.folders.source / "f", 16 << 20)
        with Receiver(self.target, "--once", "--fault", "drop=1%") as receiver:
            before = list(receiver.lines)
            flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            for i in range(5000):
                flood.sendto(os.urandom(i % 200), ("127.0.0.1", receiver.port))
            flood.close()
            result = send(receiver.address, path, "-q")
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
            self.assertEqual(receiver.wait(), 0)
            more = [line for line in receiver.lines[len(before):]
                    if "connected: " not in line and "Gbit/s" not in line]
            self.assertEqual(more, [])

    def test_wrong_arguments(self):
        self.assertEqual(run("stat", "--watch", "0").returncode, 2)
        self.assertEqual(run("stat", "--nonsense").returncode, 2)


if __name__ == "__main__":
    unittest.main()
