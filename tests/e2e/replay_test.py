#!/usr/bin/env python3
"""Recordings and captures of real processes: metaroce replay and tshark look at them."""
import json
import os
import shutil
import sys
import unittest
from pathlib import Path

import harness
from harness import BIN, Folders, Receiver, run, send, sha256, write_noise

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "dissector"))
sys.dont_write_bytecode = True
FAULT = "drop=1%,reorder=1%:50us,dup=0.1%,corrupt=0.01%"


class Recordings(unittest.TestCase):
    def setUp(self):
        self.folders = Folders()
        self.addCleanup(self.folders.__exit__)
        self.source, self.target = self.folders.source, self.folders.target

    def transfer(self, size, *more):
        """A transfer through loss in both directions; --record at both ends unless told."""
        path = write_noise(self.source / "f", size)
        files = [self.folders.root / name for name in ("recv", "send")]
        options = more or ("--record",)
        at = [[str(o) for pair in zip(options, [f"{file}{o}" for o in options]) for o in pair]
              for file in files]
        with Receiver(self.target, "--once", "--fault", FAULT, *at[0], planes=2) as receiver:
            result = send(receiver.address, path, "--planes", 2, "--fault", FAULT, *at[1])
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertEqual(receiver.wait(), 0, receiver.text)
        self.assertEqual(sha256(self.target / "f"), sha256(path))
        return [[f"{file}{o}" for o in options] for file in files]

    def test_a_lossy_run_replays_bit_for_bit_at_both_ends(self):
        for (recording,) in self.transfer(48 << 20):
            result = run("replay", recording, "--json")
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            report = json.loads(result.stdout)
            self.assertTrue(report["identical"] and report["complete"], report)
            self.assertGreater(report["calls"], 1000)
            self.assertIn("calls identical", run("replay", recording).stdout)

    def test_several_workers_record_into_files_of_their_own(self):
        path = write_noise(self.source / "f", 1 << 20)
        recording = self.folders.root / "r"
        with Receiver(self.target, "--once", "--workers", 2) as receiver:
            result = send(receiver.address, path, "--workers", 2, "--record", recording)
            self.assertEqual(result.returncode, 0, result.stderr)
            receiver.wait()
        for name in (recording, f"{recording}.1"):
            self.assertEqual(run("replay", name).returncode, 0, name)

    def test_a_killed_process_leaves_a_recording_up_to_then(self):
        recording = self.folders.root / "r"
        with Receiver(self.target, "--record", recording) as receiver:
            send(receiver.address, write_noise(self.source / "f", 8 << 20))
            receiver.kill()
        result = run("replay", recording)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("the recording has no end", result.stdout)

    def test_errors_name_file_and_place(self):
        (_, (recording,)) = self.transfer(1 << 20)
        data = Path(recording).read_bytes()
        cut = self.folders.root / "cut"
        cut.write_bytes(data[:-10])
        result = run("replay", cut)
        self.assertEqual(result.returncode, 4)
        self.assertIn("damaged", result.stderr)
        self.assertIn(str(cut), result.stderr)
        result = run("replay", self.source / "f")
        self.assertEqual(result.returncode, 4)
        self.assertIn("is no recording", result.stderr)
        self.assertEqual(run("replay").returncode, 2)
        result = send("127.0.0.1:1", self.source / "f", "--record", "/nowhere/r")
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot write the recording /nowhere/r", result.stderr)

    @unittest.skipUnless(shutil.which("tshark"), "tshark is not installed")
    def test_every_packet_of_a_capture_is_understood(self):
        import dissector_test
        lua = BIN.parent / "share" / "metaroce.lua"
        if not lua.exists():
            self.skipTest("the dissector is not built")
        shark = dissector_test.Shark(str(lua))
        both = self.transfer(1 << 20, "--pcap", "--record")
        for capture, recording in both:
            again = recording + ".pcapng"
            result = run("replay", recording, "--pcap", again)
            self.assertEqual(result.returncode, 0, result.stderr)
            counts = [self.look_at(shark, file) for file in (capture, again)]
            self.assertEqual(counts[0], counts[1], "the replay has other packets")

    def look_at(self, shark, capture):
        """No packet malformed or dropped, whole ones with a right CRC; returns packets by form."""
        inside = os.path.join(shark.folder.name, "look.pcapng")
        shutil.copy(capture, inside)
        os.chmod(inside, 0o644)
        decode = [word for port in self.ports_of(shark, inside)
                  for word in ("-d", f"udp.port=={port},metaroce")]
        fields = ("metaroce.form", "metaroce.drop", "_ws.malformed", "metaroce.crc.status",
                  "metaroce.cut", "ip.dsfield.ecn")
        text = shark.run(["-r", inside, *decode, "-T", "fields",
                          *[word for field in fields for word in ("-e", field)]])
        forms, marks = {}, set()
        for line in text.splitlines():
            form, drop, malformed, crc, cut, ecn = (line.split("\t") + [""] * 6)[:6]
            self.assertTrue(form, line)
            self.assertEqual((drop, malformed), ("", ""), line)
            self.assertTrue(cut or crc == "1", line)
            forms[form] = forms.get(form, 0) + 1
            marks.add(ecn)
        for form in ("HELLO", "ACCEPT", "CONFIRM", "ACK", "PROBE"):
            self.assertIn(form, forms)
        self.assertTrue({"0", "2"} <= marks, "no ECT(0)")
        return forms

    def ports_of(self, shark, capture):
        """The service ports of both ends: a HELLO goes from the one to the other."""
        text = shark.run(["-r", capture, "-c", "1", "-T", "fields", "-e", "udp.srcport",
                          "-e", "udp.dstport"])
        return text.split()


if __name__ == "__main__":
    unittest.main()
