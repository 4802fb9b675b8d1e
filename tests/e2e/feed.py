"""A sender whose file is its standard input, so that a transfer has a middle without sleeping."""
import hashlib
import os
import random
import subprocess
import threading
import time

import harness
from harness import start_send

MIB = 1 << 20
ROOM = 48 * MIB  # 32 slots, see docs/file-transfer.md, and what the sender has read already
AHEAD = 6 * MIB  # what until() keeps under way: enough to be busy, little enough to end soon
BLOCK = MIB // 4


class Feed:
    """Between our end of the pipe and the receiver's disk there is room for about ROOM; when give()
    returns after more than that, the transfer is on its way.
    """

    def __init__(self, test, folders, address, *arguments, prefix):
        self.test = test
        self.folders = folders
        self.noise = random.Random(7).randbytes(MIB - 8)
        self.digest = hashlib.sha256()
        self.fed = 0
        self.receiver = None  # whoever knows it sets it; failures then tell what it said
        self.process = start_send(address, "-", *arguments, prefix=prefix, stdin=subprocess.PIPE)
        # Bytes go through a descriptor of their own; start_send opens pipes for text.
        self.pipe = self.process.stdin.buffer
        test.addCleanup(self._end)

    def _end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdout.close()
        self.process.stderr.close()

    def give(self, size):
        """Blocks while the transfer does not go on; BOUND seconds without end kill the sender."""
        guard = threading.Timer(harness.BOUND, self.process.kill)
        guard.start()
        try:
            while size > 0:
                block = (self.fed.to_bytes(8, "big") + self.noise)[:size]
                self.pipe.write(block)
                self.pipe.flush()
                self.digest.update(block)
                self.fed += len(block)
                size -= len(block)
        except BrokenPipeError:
            self.fail_with("the sender ended")
        finally:
            guard.cancel()

    def fail_with(self, what):
        self.process.wait(harness.BOUND)
        text = self.receiver.text if self.receiver else "not known"
        self.test.fail(f"{what}: {self.process.stderr.read()}\nthe receiver: {text}")

    def stored(self):
        return sum(p.stat().st_size for p in self.folders.leftovers())

    def go_on(self):
        """Until at least 8 MiB more are at the receiver than were given before."""
        before = self.fed
        self.give(ROOM + 8 * MIB)
        # The receiver's disk may be a little behind what its transport took.
        end = time.monotonic() + harness.BOUND
        while self.stored() < before + 4 * MIB:
            self.test.assertLess(time.monotonic(), end, f"{self.stored()} stored of {self.fed}")
            os.sched_yield()

    def until(self, condition, what):
        """Keeps the transfer busy until the condition holds, with no more than AHEAD under way."""
        end = time.monotonic() + harness.BOUND
        pause = threading.Event()
        while not condition():
            self.test.assertLess(time.monotonic(), end, f"never: {what}; {self.stored()} stored")
            if self.process.poll() is not None:
                self.fail_with("the sender ended")
            if self.fed - self.stored() < AHEAD:
                self.give(BLOCK)
            else:
                pause.wait(0.002)  # the processors are for the transfer

    def more(self, size):
        """Until so many bytes more are on the receiver's disk."""
        goal = self.stored() + size
        self.until(lambda: self.stored() >= goal, f"{goal} bytes at the receiver")

    def finish(self):
        self.process.stdin.close()
        self.process.wait(harness.BOUND)
        errors = self.process.stderr.read()
        self.test.assertEqual(self.process.returncode, 0, errors)
        return errors
