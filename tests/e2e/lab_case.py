"""What tests on the lab have in common: transfers that must arrive whole, figures of perf."""
import json
import subprocess
import sys
import unittest

import harness
from feed import MIB, Feed
from harness import Folders, Receiver, load, run, send, sha256, write_noise
from labnet import Lab
from perf_test import Server



class Prober:
    """Datagrams from h0, from ports of our choice: which way do they go?"""

    CODE = """
import socket, sys
address = sys.argv[1]
family = socket.AF_INET6 if ":" in address else socket.AF_INET
for line in sys.stdin:
    own, port, connected = map(int, line.split())
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.bind(("", own))
    if connected:
        s.connect((address, port))
    for _ in range(20):
        try:
            s.send(b"x" * 200) if connected else s.sendto(b"x" * 200, (address, port))
        except ConnectionRefusedError:
            pass  # what the host says of one sent before; this one was not sent
    s.close()
    print("sent", flush=True)
"""

    def __init__(self, test, lab, address):
        self.lab = lab
        self.process = subprocess.Popen([*lab.on("h0"), sys.executable, "-c", self.CODE, address],
                                        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        test.addCleanup(self.process.communicate)

    def spines(self, port, to=4791, connected=False):
        """Links on which most of 20 packets went; a few others may be of the kernel itself."""
        before = self.lab.packets("p0l0:p0s*")
        self.process.stdin.write(f"{port} {to} {int(connected)}\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "sent\n":
            raise AssertionError(f"nothing was sent from port {port}")
        after = self.lab.packets("p0l0:p0s*")
        return {name for name in after if after[name] - before[name] >= 10}


class Case(unittest.TestCase):
    def lab(self, *arguments, **keys):
        lab = Lab(*arguments, **keys)
        self.addCleanup(lab.remove)
        return lab

    def folders(self):
        folders = Folders()
        self.addCleanup(folders.__exit__)
        return folders

    @staticmethod
    def spell(address):
        return f"[{address}]:0" if ":" in address else f"{address}:0"

    def receiver(self, lab, folders, *arguments, family=4):
        """On h1, an address of each plane."""
        listen = [self.spell(lab.address(1, p, family)) for p in range(lab.planes)]
        receiver = Receiver(folders.target, "--once", "--json", folders.root / "recv.json",
                            *arguments, listen=listen, prefix=lab.on("h1"))
        self.addCleanup(receiver.__exit__)
        return receiver

    @staticmethod
    def plane_options(lab, family=4):
        planes = []
        for p in range(lab.planes):
            planes += ["--plane", f"{lab.address(0, p, family)}={lab.address(1, p, family)}"]
        return planes

    def transfer(self, lab, megabytes, *arguments, family=4):
        """A file from h0 to h1 over all planes. Whole, or it fails.

        Returns the sender's report; with the receiver's under "receiver".
        """
        folders = self.folders()
        path = write_noise(folders.source / "f", megabytes * MIB)
        receiver = self.receiver(lab, folders, family=family)
        report = folders.root / "send.json"
        done = send(receiver.address, path, *self.plane_options(lab, family), "--json", report,
                    *arguments, prefix=lab.on("h0"))
        self.assertEqual(done.returncode, 0, done.stderr + receiver.text)
        self.assertEqual(receiver.wait(), 0, receiver.text)
        self.assertEqual(sha256(folders.target / "f"), sha256(path))
        return self.reports(folders)

    @staticmethod
    def reports(folders):
        report = load(folders.root / "send.json")
        report["receiver"] = load(folders.root / "recv.json")
        return report

    def feed(self, lab, *arguments, family=4):
        """A transfer from h0 to h1 that has a middle: the first data are there when this returns.

        Arguments are for both ends.
        """
        folders = self.folders()
        receiver = self.receiver(lab, folders, *arguments, family=family)
        feed = Feed(self, folders, receiver.address, *self.plane_options(lab, family), "--json",
                    folders.root / "send.json", *arguments, prefix=lab.on("h0"))
        feed.receiver, feed.lab = receiver, lab
        feed.more(2 * MIB)
        return feed

    def finish(self, feed):
        """Every byte must have arrived. Returns the reports as transfer() does."""
        feed.finish()
        self.assertEqual(feed.receiver.wait(), 0, feed.receiver.text)
        self.assertEqual(sha256(feed.folders.target / "stdin"), feed.digest.hexdigest())
        return self.reports(feed.folders)

    @staticmethod
    def paths_now(feed):
        """What `metaroce stat` says of the sender's paths."""
        done = run("stat", "--json", "--paths", "--peer", feed.receiver.address,
                   prefix=feed.lab.on("h0"))
        return [path for process in json.loads(done.stdout)
                for connection in process["connections"] for path in connection["paths"]]

    def perf_server(self, lab, planes=None, family=4):
        local = [lab.address(1, p, family) for p in planes or range(lab.planes)]
        server = Server(local=",".join(local), prefix=lab.on("h1"))
        self.addCleanup(server.__exit__)
        server.planes = len(local)
        return server

    def perf_command(self, lab, server, *arguments, planes=None, family=4):
        planes = list(planes or range(lab.planes))
        hosts = ",".join(lab.address(1, p, family) for p in planes)
        local = ",".join(lab.address(0, p, family) for p in planes)
        return ["perf", hosts, "-p", server.port, "--local", local, "--json", "-", *arguments]

    def perf(self, lab, *arguments, **options):
        """The one run of `metaroce perf` from h0 to h1, with a server of its own."""
        server = self.perf_server(lab, **options)
        done = run(*self.perf_command(lab, server, *arguments, **options), prefix=lab.on("h0"))
        server.stop()
        self.assertEqual(done.returncode, 0, done.stderr)
        [figures] = json.loads(done.stdout)["runs"]
        self.assertTrue(figures["complete"], figures["error"])
        return figures

    def goodput(self, lab, *arguments, **options):
        """Mbit/s from h0 to h1."""
        return self.perf(lab, *arguments, **options)["directions"][0]["goodput_gbps"] * 1000

    @staticmethod
    def ratio_of_bests(measure, base, least, pairs=3):
        """measure() / base(), of the best of each; up to so many pairs until it is over `least`.

        Other work on the machine only takes away from a goodput.
        """
        best, best_base = 0, 0
        for _ in range(pairs):
            best_base = max(best_base, base())
            best = max(best, measure())
            if best > best_base * least:
                break
        return best / best_base, best_base


def sum_of(paths, key):
    return sum(p[key] for p in paths)
