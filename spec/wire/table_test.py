#!/usr/bin/env python3
"""The loader refuses a table that contradicts itself, and encodes by hand-computed examples."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import table as wire_table  # noqa: E402

TEXT = wire_table.SOURCE.read_text()


def loaded(text):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "packets.toml")
        path.write_text(text)
        return wire_table.Table(path)


class TableTest(unittest.TestCase):
    def changed(self, old, new):
        self.assertIn(old, TEXT)
        return TEXT.replace(old, new, 1)

    def test_overlap_is_refused(self):
        with self.assertRaisesRegex(ValueError, "overlaps"):
            loaded(self.changed('"epoch", word = 3, bit = 24', '"epoch", word = 3, bit = 20'))

    def test_field_beyond_the_header_is_refused(self):
        with self.assertRaisesRegex(ValueError, "beyond"):
            loaded(self.changed('bytes = 44', 'bytes = 40'))

    def test_name_with_two_meanings_is_refused(self):
        with self.assertRaisesRegex(ValueError, "two ways"):
            loaded(self.changed('"opened_path", word = 8, bit = 0, width = 8',
                                '"start_seq", word = 8, bit = 0, width = 8'))

    def test_number_without_packet_is_refused(self):
        with self.assertRaisesRegex(ValueError, "no packet"):
            loaded(self.changed("ATOMIC_RESPONSE = 10", "ATOMIC_RESPONSE = 10\nMORE = 11"))

    def test_unknown_key_is_refused(self):
        with self.assertRaisesRegex(ValueError, "unknown keys"):
            loaded(self.changed('width = 24, cpp = "s.stamp"', 'width = 24, cqq = "s.stamp"'))

    def test_encode(self):
        probe = loaded(TEXT).packet("PROBE")
        data = probe.encode({"path_id": 7, "floor": 0x21, "connection": 0xAABBCCDD, "path_seq": 1,
                             "stamp": 0x123456, "epoch": 5, "backlog": 2, "cpsn": 9,
                             "credit_stream": 0x0102, "ack_request": 1})
        self.assertEqual(data.hex(" ", 4), "03800721 aabbccdd 00000001 12345658 00000009 01020000 "
                                           "00000000 00000000")


if __name__ == "__main__":
    unittest.main()
