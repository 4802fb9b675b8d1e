#!/usr/bin/env python3
"""Runs the generated dissector in tshark over all golden packets and compares what it shows.

usage: dissector_test.py DISSECTOR_LUA
Exit 77 when tshark is not installed. The capture is written here: Ethernet, IPv4 or IPv6, UDP to
the standard service port, packet, CRC32C.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "spec" / "wire"))
sys.dont_write_bytecode = True
import table as wire_table  # noqa: E402
import vectors as wire_vectors  # noqa: E402

SKIP = 77
PORT = 28672
TABLE = wire_table.Table()


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(payload, port=PORT, ipv6=False):
    length = 8 + len(payload)
    if ipv6:
        source, target = (bytes([0xFD]) + bytes(14) + bytes([end]) for end in (1, 2))
        pseudo = source + target + struct.pack("!IHBB", length, 0, 0, 17)
        head = struct.pack("!IHBB", 6 << 28, length, 17, 64) + source + target
        kind = b"\x86\xdd"
    else:
        source, target = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
        pseudo = source + target + struct.pack("!BBH", 0, 17, length)
        bare = struct.pack("!BBHHHBBH", 0x45, 2, 20 + length, 1, 0, 64, 17, 0) + source + target
        head = bare[:10] + struct.pack("!H", checksum(bare)) + bare[12:]
        kind = b"\x08\x00"
    udp = struct.pack("!HHHH", 50000, port, length, 0)
    udp = udp[:6] + struct.pack("!H", checksum(pseudo + udp + payload) or 0xFFFF)
    return bytes(6) + b"\x02" + bytes(5) + kind + head + udp + payload


def with_crc(packet, flip=0):
    return packet + struct.pack("!I", wire_table.crc32c(packet) ^ flip)


def write_capture(path, frames):
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, data in enumerate(frames):
            out.write(struct.pack("<IIII", 1_700_000_000, number, len(data), len(data)) + data)


class Shark:
    """tshark with the dissector loaded."""

    def __init__(self, dissector):
        self.folder = tempfile.TemporaryDirectory()
        os.chmod(self.folder.name, 0o755)
        self.dissector = shutil.copy(dissector, os.path.join(self.folder.name, "metaroce.lua"))
        os.chmod(self.dissector, 0o644)
        self.environment = dict(os.environ, HOME=self.folder.name, LC_ALL="C")
        self.user = None
        if not self.loaded() and os.geteuid() == 0:
            self.user = "nobody"  # init.lua of some packages switches Lua off for root
        if not self.loaded():
            raise RuntimeError("this tshark does not load Lua scripts")

    def run(self, arguments):
        command = ["tshark"] + arguments + ["-X", f"lua_script:{self.dissector}"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True,
                              timeout=120, check=False, user=self.user)
        if done.returncode != 0:
            raise RuntimeError(f"tshark failed: {done.stderr}")
        return done.stdout

    def loaded(self):
        return "\tmetaroce" in self.run(["-G", "protocols"])

    def packets(self, frames, preferences=()):
        """The layers of each frame; every value is a list."""
        capture = os.path.join(self.folder.name, "capture.pcap")
        write_capture(capture, frames)
        options = [o for p in preferences for o in ("-o", p)]
        text = self.run(["-r", capture, "-T", "json", "--no-duplicate-keys"] + options)
        return [p["_source"]["layers"] for p in json.loads(text)]


def collect(node, out=None):
    """Field name -> all values under it, whatever the nesting."""
    out = {} if out is None else out
    if isinstance(node, dict):
        for key, value in node.items():
            if isinstance(value, (str, int)):
                out.setdefault(key, []).append(value)
            elif isinstance(value, list) and all(isinstance(v, str) for v in value):
                out.setdefault(key, []).extend(value)
            collect(value, out)
    elif isinstance(node, list):
        for value in node:
            collect(value, out)
    return out


def number_of(text):
    return int(text, 16) if text.startswith("0x") else int(text)


def address_text(value, family):
    import ipaddress
    return str(ipaddress.ip_address(value >> 96) if family == 4 else ipaddress.IPv6Address(value))


SHARK = None


class Dissector(unittest.TestCase):
    def expect_field(self, form, field, values, shown):
        value = values[field.name]
        value = int(value, 16) if isinstance(value, str) else value
        key = f"metaroce.{field.name}"
        if field.base == "address":
            family = values[field.family]
            if family == 0:
                return
            self.assertIn(address_text(value, family), shown[f"{key}_v{family}"], key)
        elif field.width > 64 or field.base == "bytes":
            wanted = f"{value:0{field.width // 4}x}"
            self.assertIn(wanted, [v.replace(":", "") for v in shown[key]], key)
        else:
            self.assertIn(value, [number_of(v) for v in shown[key]], f"{form.name} {key}")

    def test_valid_vectors(self):
        valid = [v for v in wire_vectors.load() if "fields" in v]
        packets = SHARK.packets([frame(with_crc(bytes.fromhex(v["hex"]))) for v in valid])
        self.assertEqual(len(packets), len(valid))
        for vector, layers in zip(valid, packets):
            with self.subTest(vector["name"]):
                shown = collect(layers["metaroce"])
                self.assertEqual(shown["metaroce.form"], [vector["form"]])
                self.assertNotIn("metaroce.drop", shown)
                self.assertNotIn("_ws.malformed", layers)
                self.assertEqual(shown["metaroce.crc.status"], ["1"])
                form = TABLE.packet(vector["form"])
                clamped = {f.name for f in form.fields if f.clamp is not None}
                for field in form.fields:
                    if "not known" in vector["name"] and field.name in clamped:
                        continue  # shown as sent; a receiver reads it as UNKNOWN
                    self.expect_field(form, field, vector["fields"], shown)
                if form.tail == "payload":
                    self.assertEqual(shown["metaroce.payload_bytes"],
                                     [str(vector["payload_bytes"])])
                for said in vector.get("tlvs", []):
                    tlv = TABLE.tlv(said["tlv"])
                    self.assertIn(tlv.name, shown["metaroce.tlv"])
                    for field in tlv.fields:
                        self.expect_field(tlv, field, said["fields"], shown)

    def test_invalid_vectors(self):
        invalid = [v for v in wire_vectors.load() if "drop" in v]
        packets = SHARK.packets([frame(with_crc(bytes.fromhex(v["hex"]))) for v in invalid])
        self.assertEqual(len(packets), len(invalid))
        for vector, layers in zip(invalid, packets):
            with self.subTest(vector["name"]):
                shown = collect(layers["metaroce"])
                self.assertEqual(shown.get("metaroce.drop"), [vector["drop"]])
                self.assertEqual(shown["metaroce.crc.status"], ["1"])
                self.assertNotIn("_ws.lua.text", shown, "the script failed")

    def test_wrong_crc_is_shown(self):
        packet = bytes.fromhex(next(v["hex"] for v in wire_vectors.load() if v["form"] == "PROBE"))
        layers = SHARK.packets([frame(with_crc(packet, flip=0x100)), frame(with_crc(packet))])
        shown = [collect(p["metaroce"]) for p in layers]
        self.assertEqual([s["metaroce.crc.status"] for s in shown], [["0"], ["1"]])
        self.assertIn("metaroce.expert.crc", shown[0])
        self.assertNotIn("metaroce.expert.crc", shown[1])

    def test_ports_and_ipv6(self):
        packet = with_crc(TABLE.packet("VOID").encode({"cpsn": 77}))
        layers = SHARK.packets([frame(packet, PORT + 4095, True), frame(packet, PORT + 4096)])
        self.assertEqual(collect(layers[0]["metaroce"])["metaroce.cpsn"], ["77"])
        self.assertNotIn("metaroce", layers[1])

    def test_trailer_preference(self):
        packet = TABLE.packet("VOID").encode({"cpsn": 77})
        layers = SHARK.packets([frame(packet + bytes(range(16)))], ["metaroce.trailer:AEAD tag "
                               "(payload stays encrypted)"])
        shown = collect(layers[0]["metaroce"])
        self.assertEqual(shown["metaroce.tag"], [":".join(f"{i:02x}" for i in range(16))])
        self.assertNotIn("metaroce.drop", shown)

    def test_delay_in_nanoseconds(self):
        packet = TABLE.packet("ACK").encode({"ack_delay": 0x31})
        shown = collect(SHARK.packets([frame(with_crc(packet))])[0]["metaroce"])
        self.assertEqual(shown["metaroce.delay_ns"], [str((16 + 1) * 4 * 64)])


    def test_cut_packets_are_not_malformed(self):
        data = TABLE.packet("WRITE").encode({"cpsn": 5}) + bytes(1000)
        whole = frame(with_crc(data))
        capture = os.path.join(SHARK.folder.name, "cut.pcap")
        with open(capture, "wb") as out:
            out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
            out.write(struct.pack("<IIII", 1, 2, 120, len(whole)) + whole[:120])
        layers = json.loads(SHARK.run(["-r", capture, "-T", "json", "--no-duplicate-keys"]))
        shown = collect(layers[0]["_source"]["layers"]["metaroce"])
        self.assertEqual(shown["metaroce.payload_bytes"], ["1000"])
        self.assertEqual(shown["metaroce.cut"], [str(len(whole) - 120)])
        self.assertNotIn("metaroce.drop", shown)
        self.assertNotIn("metaroce.expert.crc", shown)


def main():
    global SHARK
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    if shutil.which("tshark") is None:
        print("skipped: tshark is not installed (./dev setup installs it)")
        return SKIP
    SHARK = Shark(os.path.abspath(sys.argv[1]))
    result = unittest.TextTestRunner(verbosity=2).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(Dissector))
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
