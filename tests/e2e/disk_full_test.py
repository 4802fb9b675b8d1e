#!/usr/bin/env python3
"""A full disk at the receiver: a clear error at both ends. Needs root for a small tmpfs."""
import os
import subprocess
import sys

import harness
from harness import Folders, Receiver, send, write_noise


def check(folders, what, *arguments, **options):
    with Receiver(folders.target, "--once") as receiver:
        result = send(receiver.address, *arguments, **options)
        code = receiver.wait()
        assert result.returncode == 1, (what, result.stdout, result.stderr)
        assert code == 1, (what, receiver.text)
        for text in (result.stderr, receiver.text):
            assert "disk full at the receiver" in text, (what, text)
        assert list(folders.target.iterdir()) == [], what


def main():
    if os.geteuid() != 0:
        print("needs root to mount a small tmpfs")
        return harness.SKIP
    with Folders() as folders:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs",
                                  str(folders.target)], capture_output=True, text=True)
        if mounted.returncode != 0:
            print("cannot mount a tmpfs:", mounted.stderr)
            return harness.SKIP
        try:
            big = write_noise(folders.source / "big", 16 << 20)
            check(folders, "known size", big)
            with open(big, "rb") as data:
                check(folders, "unknown size", "-", stdin=data)
        finally:
            subprocess.run(["umount", str(folders.target)], check=True)
    print("disk full: reported at both ends, nothing left behind")
    return 0


if __name__ == "__main__":
    sys.exit(main())
