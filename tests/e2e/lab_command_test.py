#!/usr/bin/env python3
"""`metaroce lab` as a command: what it says, what it leaves behind, who may use it."""
import json
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

import harness
import labnet
from lab_traces import more_than, network_namespaces, traces
from labnet import ROOTLESS, Lab, metaroce_lab, wait_for


class Case(unittest.TestCase):
    TOPOLOGY = 'name = "two"\nhosts = 2\nleaves = 2\nspines = 2\nplanes = 2\n'

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="metaroce-lab-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.name = f"command-{os.getpid()}"
        self.rootless = ["--rootless"] if ROOTLESS else []

    def topology(self, text=TOPOLOGY):
        file = self.folder / "t.toml"
        file.write_text(text, encoding="utf-8")
        return file

    def lab(self, *arguments, **keys):
        lab = Lab(*arguments, **keys)
        self.addCleanup(lab.remove)
        return lab

    def refused(self, code, text, *arguments):
        done = metaroce_lab(*arguments, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(text, done.stderr)
        self.assertEqual(done.stdout, "")

    def gone(self, before):
        """Everything but what was there; kernel threads take namespaces away a little later."""
        wait_for(lambda: not any(more_than(before)), lambda: f"{more_than(before)} are left")


class Traces(Case):
    def test_nothing_is_left_after_down(self):
        before = traces()
        lab = Lab({"p0s0=p0l0": "loss=1%", "p0s1=p0l1": "delay=1ms"}, planes=2, spines=2)
        self.assertGreater(len(network_namespaces()), len(before[0]) + 8)
        lab.remove()
        self.gone(before)

    def test_nothing_is_left_when_the_holder_is_killed(self):
        before = traces()
        lab = Lab({"p0s0=p0l0": "loss=1%", "p0s1=p0l1": "delay=1ms"}, planes=2, spines=2)
        sleeper = subprocess.Popen([*lab.on("h0"), "sh", "-c", "echo up; exec sleep 1000"],
                                   stdout=subprocess.PIPE)
        self.assertEqual(sleeper.stdout.readline(), b"up\n")
        listed = json.loads(metaroce_lab("list", "--json").stdout)
        holder = next(row["pid"] for row in listed if row["name"] == lab.name)
        os.kill(holder, signal.SIGKILL)
        self.assertEqual(sleeper.wait(harness.BOUND), 128 + signal.SIGKILL)
        sleeper.stdout.close()
        self.gone(before)

    def test_nothing_is_left_when_run_is_killed(self):
        before = traces()
        topology = self.topology(self.TOPOLOGY + '[[link]]\nbetween = "p0s0"\nrules = "delay=1ms"')
        run = subprocess.Popen([harness.metaroce(), "lab", "run", *self.rootless, str(topology),
                                "--", "sh", "-c", "echo up; sleep 1000"], stdout=subprocess.PIPE)
        self.assertEqual(run.stdout.readline(), b"up\n")
        run.kill()
        run.wait()
        run.stdout.close()
        self.gone(before)

    def test_a_stopped_holder_can_be_taken_down(self):
        before = traces()
        lab = Lab(spines=1)
        listed = json.loads(metaroce_lab("list", "--json").stdout)
        holder = next(row["pid"] for row in listed if row["name"] == lab.name)
        os.kill(holder, signal.SIGSTOP)
        lab.remove()
        self.gone(before)


    def test_nothing_is_left_when_up_is_killed(self):
        before = traces()
        topology = self.topology("planes = 4\nhosts = 64\nleaves = 4\nspines = 4")
        up = subprocess.Popen([harness.metaroce(), "lab", "up", *self.rootless, str(topology),
                               "--name", self.name], stdout=subprocess.PIPE)
        bound = f"@metaroce-lab/{os.geteuid()}/{self.name}\n"
        wait_for(lambda: bound in Path("/proc/net/unix").read_text(), "the name is taken")
        up.kill()
        self.assertEqual(up.communicate()[0], b"", "it was up before it was killed")
        self.gone(before)

    def test_nothing_of_the_starter_stays_open(self):
        readable, writable = os.pipe()
        try:
            metaroce_lab("up", *self.rootless, self.topology(), "--name", self.name,
                         pass_fds=[writable])
            os.close(writable)
            self.assertEqual(select.select([readable], [], [], 10)[0], [readable])
            self.assertEqual(os.read(readable, 1), b"", "the other end is closed everywhere")
        finally:
            os.close(readable)
            metaroce_lab("down", "--name", self.name, check=False)


class Running(Case):
    def run_in(self, *command, arguments=(), **options):
        return subprocess.run([harness.metaroce(), "lab", "run", *self.rootless,
                               str(self.topology()), *arguments, "--", *command],
                              capture_output=True, text=True, timeout=harness.BOUND, **options)

    def test_the_exit_code_is_that_of_the_command(self):
        self.assertEqual(self.run_in("sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.run_in("sh", "-c", "kill -9 $$").returncode, 128 + 9)
        done = self.run_in("there-is-no-such-program")
        self.assertEqual(done.returncode, 127)
        self.assertIn("there-is-no-such-program: No such file", done.stderr)
        self.assertEqual(self.run_in("/etc/passwd").returncode, 126)

    def test_the_command_can_use_the_lab(self):
        done = self.run_in("sh", "-c", f"{harness.metaroce()} lab exec h1 ip -br addr && "
                           f"{harness.metaroce()} lab fail p0s1 && echo $METAROCE_LAB && pwd",
                           cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("10.1.1.1/24", done.stdout)
        self.assertIn("2 links down\ntwo\n" + str(self.folder.resolve()), done.stdout)

    def test_it_runs_on_a_node_and_in_a_lab_of_its_own(self):
        done = self.run_in("ip", "-br", "addr", arguments=["--on", "h0"])
        self.assertIn("10.0.0.1/24", done.stdout)
        inner = self.run_in("sh", "-c", f"{harness.metaroce()} lab run {self.topology()} --on h1 "
                            "-- ip -br addr; ls /sys/class/net")
        self.assertIn("10.0.1.1/24", inner.stdout)
        self.assertNotIn("10.0.0.1/24", inner.stdout)

    def test_two_dashes_of_the_command_are_its_own(self):
        lab = self.lab(spines=1)
        for dashes in ([], ["--"]):
            done = metaroce_lab("exec", "--name", lab.name, "h0", *dashes, "echo", "a", "--", "b")
            self.assertEqual(done.stdout, "a -- b\n")

    def test_programs_see_the_interfaces_of_their_node(self):
        done = self.run_in("ls", "/sys/class/net", arguments=["--on", "p0s1"])
        self.assertEqual(sorted(done.stdout.split()), ["l0", "l1", "lo"])


class Words(Case):
    def test_wrong_topologies_name_file_and_line(self):
        unknown = self.topology("planes = 1\nhost = 2")
        self.refused(2, "t.toml:2: unknown key 'host'", "run", unknown, "--", "true")
        self.refused(2, "cannot be read: No such file", "up", self.folder / "none.toml")
        self.refused(2, "'los' is no rule of a link", "up",
                     self.topology('[[link]]\nbetween = "p0s0"\nrules = "los=1%"'))
        self.refused(2, "there is no such node", "run", self.topology(), "--on", "h9", "--", "true")
        self.refused(2, "what is to be run?", "run", self.topology())

    def test_wrong_words_say_what_there_is(self):
        lab = self.lab(spines=2)
        at = ["--name", lab.name]
        self.refused(1, "leaves p0l0 to p0l1", "link", *at, "p7s0", "loss=1%")
        self.refused(2, "'101%' is out of range", "link", *at, "p0s0", "loss=101%")
        self.refused(1, "give it a rate", "link", *at, "p0s0", "mark=30k")
        self.refused(126, "there is no 'h7' in this lab", "exec", *at, "h7", "true")
        self.refused(126, "there is no '../h0' in this lab", "exec", *at, "../h0", "true")
        self.refused(1, f"there are {lab.name}" if len(self.labs()) == 1 else lab.name,
                     "counters", "--name", "another")
        self.refused(2, "runs no command", "heal", *at, "*", "--", "true")
        self.refused(1, "is no name for a lab", "up", self.topology(), "--name", "a/b")

    def labs(self):
        return json.loads(metaroce_lab("list", "--json").stdout)

    def test_a_name_is_taken_once(self):
        lab = self.lab(spines=1)
        other = self.lab(spines=1)
        self.refused(1, f"a lab of the name '{lab.name}' is up", "up", self.topology(), "--name",
                     lab.name)
        names = {row["name"] for row in self.labs()}
        self.assertLessEqual({lab.name, other.name}, names)
        lab.ip("h0", "link", "set", "e0", "down")
        self.assertTrue(other.counters()["h0:p0l0"]["up"], "two labs are one")
        self.assertFalse(lab.counters()["h0:p0l0"]["up"])

    @unittest.skipUnless(os.geteuid() == 0, "becomes another user")
    def test_it_is_of_nobody_else(self):
        lab = self.lab(spines=1)
        stranger = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        program = self.folder / "metaroce"
        program.write_bytes(Path(harness.metaroce()).read_bytes())
        program.chmod(0o755)
        self.folder.chmod(0o755)
        done = subprocess.run([*stranger, str(program), "lab", "down", "--name", lab.name],
                              capture_output=True, text=True, timeout=harness.BOUND)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no lab is up", done.stderr)
        # One who knows the address of the socket gets no answer either.
        asked = subprocess.run([*stranger, sys.executable, "-c", f"""
import socket
s = socket.socket(socket.AF_UNIX)
s.connect("\\0metaroce-lab/0/{lab.name}")
try:
    s.sendall(b'{{"do":"end"}}')
    s.shutdown(socket.SHUT_WR)
    print(s.recv(100))
except OSError:
    print(b"")
"""], capture_output=True, text=True, timeout=harness.BOUND)
        self.assertEqual(asked.stdout, "b''\n", asked.stderr)
        self.assertIn("h0:p0l0", lab.counters())

    @unittest.skipUnless(os.geteuid() == 0, "becomes another user")
    def test_a_stranger_with_our_name_is_not_believed(self):
        name = f"strange-{os.getpid()}"
        with subprocess.Popen(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                               sys.executable, "-c", f"""
import socket
s = socket.socket(socket.AF_UNIX)
s.bind("\\0metaroce-lab/{os.geteuid()}/{name}")
s.listen(8)
print("there", flush=True)
while True:
    c, _ = s.accept()
    try:
        c.sendall(b'{{"name":"x"}}')
    except OSError:
        pass
    c.close()
"""], stdout=subprocess.PIPE, text=True) as stranger:
            self.addCleanup(stranger.kill)
            self.assertEqual(stranger.stdout.readline(), "there\n")
            self.refused(1, "user 65534 has taken this name", "exec", "--name", name, "h0", "true")
            self.refused(1, "user 65534 has taken this name", "down", "--name", name)
            self.assertNotIn(name, metaroce_lab("list").stdout)
            self.assertIsNone(stranger.poll(), "it was killed")
            stranger.kill()

    def test_requests_that_make_no_sense_are_answered(self):
        lab = self.lab(spines=1)
        for request in (b"", b"{", b"[]", b'{"do":7}', b'{"do":"fly"}', b"\0" * 70000):
            with self.subTest(request=request[:10]), socket.socket(socket.AF_UNIX) as s:
                s.connect(f"\0metaroce-lab/{os.geteuid()}/{lab.name}")
                try:
                    s.sendall(request)
                    s.shutdown(socket.SHUT_WR)
                    answer = s.recv(4096)
                except OSError:
                    continue  # it was too long
                self.assertTrue(answer == b"" or b"error" in answer, answer)
        self.assertIn("h0:p0l0", lab.counters())


class Trouble(Case):
    """The kernel's tables are the same again after failures and wires in any order."""

    def tables(self, lab):
        """Addresses, routes and neighbours of each node."""
        found = {}
        for node in ("h0", "h1", "p0l0", "p0l1", "p0s0", "p0s1"):
            for what in ("route show table all", "-6 route show table all", "-br addr", "neigh"):
                done = subprocess.run([*lab.on(node), "ip", *what.split()], text=True, check=True,
                                      capture_output=True, timeout=harness.BOUND)
                # What the kernel adds by itself, in its own time, and other ends of veths.
                found[node, what] = sorted(
                    re.sub(r"@\S+|proto \S+|metric \d+| pref medium| *$", "", line).strip()
                    for line in done.stdout.splitlines()
                    if not re.search(r"fe80|ff00|multicast|anycast|::1 dev lo|FAILED", line))
        return found

    def test_everything_is_there_again(self):
        lab = self.lab(spines=2)
        before = self.tables(lab)
        links = ["p0s1", "p0l0=p0s0", "h1", "plane0", "p0l1", "p0s0:p0l1"]
        random_order = random.Random(7)
        for _ in range(12):
            do = random_order.choice(["fail", "fail --silent", "fail --one-way", "heal", "wire"])
            target = random_order.choice(links)
            if do == "wire":
                lab.link(target, "delay=100us")
            elif do == "heal":
                lab.heal(target)
            else:
                lab.fail(target, *do.split()[1:])
        lab.heal("*")
        self.assertEqual({row["failed"] for row in lab.counters().values()}, {""})
        self.assertEqual(self.tables(lab), before)

    def test_a_wire_that_died_is_seen_and_made_anew(self):
        lab = self.lab(spines=1)
        lab.link("p0l0=p0s0", "delay=100us")
        listed = json.loads(metaroce_lab("list", "--json").stdout)
        holder = next(row["pid"] for row in listed if row["name"] == lab.name)
        children = Path(f"/proc/{holder}/task/{holder}/children").read_text().split()
        self.assertEqual(len(children), 1)
        os.kill(int(children[0]), signal.SIGKILL)
        wait_for(lambda: lab.counters()["p0l0:p0s0"]["failed"] == "cut", "nobody missed it")
        lab.heal("*")
        self.assertEqual(lab.counters()["p0l0:p0s0"]["failed"], "")
        self.assertEqual(lab.counters()["p0l0:p0s0"]["carried_by"], "wire")


    def test_rules_of_several_lines_add_up(self):
        lab = self.lab({"p0s*=p0l*": "loss=1%", "p0s0:p0l1": "dup=2%"}, spines=2)
        self.assertEqual(lab.counters("p0s0:p0l1")["p0s0:p0l1"]["rules"], "loss=1%,dup=2%")
        lab.link("p0s0:p0l1", "dark=on")
        self.assertEqual(lab.counters("p0s0:p0l1")["p0s0:p0l1"]["rules"], "loss=1%,dup=2%,dark=on")
        lab.link("p0s0:p0l1", "none,loss=3%")
        self.assertEqual(lab.counters("p0s0:p0l1")["p0s0:p0l1"]["rules"], "loss=3%")

    def test_what_failed_is_counted_as_it_was(self):
        lab = self.lab(spines=2)

        def said(*words):
            return metaroce_lab(*words, "--name", lab.name).stdout
        self.assertEqual(said("fail", "p0s0:p0l1", "--silent"), "2 directions dark\n")
        self.assertEqual(said("heal", "*"), "1 link healed\n")
        self.assertEqual(said("fail", "p0s0:p0l1", "--one-way"), "1 direction dark\n")
        self.assertEqual(said("fail", "p0s1"), "2 links down\n")
        self.assertEqual(said("heal", "*"), "3 links healed\n")


class Showing(Case):
    def test_pictures(self):
        text = metaroce_lab("show", self.topology()).stdout
        self.assertIn("p1l1 - h1", text)
        svg = self.folder / "lab.svg"
        metaroce_lab("show", self.topology(), "--svg", svg)
        picture = xml.etree.ElementTree.parse(svg).getroot()
        boxes = [e for e in picture.iter() if e.tag.endswith("rect")]
        self.assertEqual(len(boxes), 2 + 2 * (2 + 2))
        lab = self.lab(planes=2, spines=2)
        self.assertIn("10.1.1.1", metaroce_lab("show", "--name", lab.name).stdout)
        self.refused(1, "cannot write", "show", self.topology(), "--svg", self.folder / "no" / "x")

    def test_a_capture_has_what_went_over_the_link(self):
        lab = self.lab(spines=1)
        file = self.folder / "c.pcap"
        watch = subprocess.Popen([harness.metaroce(), "lab", "pcap", "--name", lab.name,
                                  "p0l0:p0s0", "-o", str(file)], stderr=subprocess.PIPE, text=True)
        wait_for(lambda: file.exists() and file.stat().st_size >= 24, "no file")
        subprocess.run([*lab.on("h0"), sys.executable, "-c", """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(5):
    s.sendto(b"looked for" * 20, ("10.0.1.1", 9))
"""], check=True, timeout=harness.BOUND)
        # At least: who has no such port says so, and quotes them.
        wait_for(lambda: file.read_bytes().count(b"looked for" * 20) >= 5, "not captured")
        lab.link("p0l0:p0s0", "delay=1ms")  # another interface of the same name
        subprocess.run([*lab.on("h0"), sys.executable, "-c", """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(5):
    s.sendto(b"found again" * 20, ("10.0.1.1", 9))
"""], check=True, timeout=harness.BOUND)
        wait_for(lambda: b"found again" in file.read_bytes(), "deaf")
        watch.send_signal(signal.SIGINT)
        _, said = watch.communicate(timeout=harness.BOUND)
        self.assertEqual(watch.returncode, 0, said)
        self.assertIn("packets of p0l0 (s0)", said)
        self.assertEqual(file.read_bytes()[:4], bytes.fromhex("4d3cb2a1"))


if __name__ == "__main__":
    labnet.main()
