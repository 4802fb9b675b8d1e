#!/usr/bin/env python3
"""Once through the failure matrix, and many connects at one listener at the same instant.

How long it takes is not judged here (failures.py does, for docs/evidence.md); what is named is.
"""
import sys
import unittest

import failures
import harness
import namespaces
from failures import Peer, once


class Lifecycle(unittest.TestCase):
    def setUp(self):
        self.bounds = failures.VERDICT, failures.RECONNECT
        failures.VERDICT = failures.RECONNECT = failures.BOUND

    def tearDown(self):
        failures.VERDICT, failures.RECONNECT = self.bounds

    def both(self, name):
        for mode in ("idle", "busy"):
            with self.subTest(mode=mode):
                once(name, mode)

    def test_o07_killed(self):
        self.both("kill")

    def test_o08_restarted_at_the_same_port(self):
        self.both("restart")

    def test_listener_gone(self):
        self.both("listener")

    def test_o10_stopped_for_five_seconds(self):
        once("stop", "busy")

    def test_address_removed(self):
        why = namespaces.why_not()
        if why:
            self.skipTest(why)
        self.both("address")

    def test_s25_many_connects_at_once(self):
        server = Peer("listen", "127.0.0.1", 0)
        clients = []
        try:
            port = int(server.until("ready")["status"])
            clients = [Peer("mass", "127.0.0.1", port, 50) for _ in range(4)]
            for client in clients:
                told = client.until("mass", "failed", bound=harness.BOUND)
                self.assertEqual(told["status"], "ok", told)
        finally:
            for peer in [server, *clients]:
                peer.end()


if __name__ == "__main__":
    namespaces.remove_left_over()
    try:
        result = unittest.main(exit=False, verbosity=2).result
    finally:
        namespaces.remove_all()
    sys.exit(0 if result.wasSuccessful() else 1)
