"""Starts the command for tests: processes with bounds, the "listening" line, temporary folders."""
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

BIN = Path(os.environ.get("MR_BIN", Path(__file__).resolve().parents[2] / "build/release/bin"))
BOUND = 120  # seconds after which a process counts as hung
SKIP = 77


def metaroce():
    program = BIN / "metaroce"
    if not program.exists():
        sys.exit(f"{program} does not exist; build first")
    return str(program)


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith("METAROCE_")}
    env["LC_ALL"] = "C.UTF-8"
    return env


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_noise(path, size, seed=1):
    """A file whose bytes depend on the seed alone."""
    source = random.Random(seed)
    with open(path, "wb") as file:
        while size > 0:
            block = source.randbytes(min(size, 1 << 20))
            file.write(block)
            size -= len(block)
    return path


class Receiver:
    """`metaroce recv` on a free port, behind `prefix`; waits for its "listening" line."""

    def __init__(self, folder, *arguments, listen="127.0.0.1:0", planes=0, prefix=()):
        command = [*prefix, metaroce(), "recv", "--dir", str(folder)]
        if planes:
            command += ["--planes", str(planes), "--listen", "127.0.1.1:0"]
        else:
            for address in [listen] if isinstance(listen, str) else listen:
                command += ["--listen", address]
        self.process = subprocess.Popen(command + [str(a) for a in arguments],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        errors="replace", env=environment())
        self.lines = []
        self.out = ""
        self._up = threading.Event()
        self._readers = [threading.Thread(target=self._read_errors),
                         threading.Thread(target=self._read_output)]
        for reader in self._readers:
            reader.start()
        if not self._up.wait(BOUND) or not self.lines or "listening on" not in self.lines[-1]:
            self.process.kill()
            self.end()
            raise AssertionError(f"recv did not listen: {self.lines}")
        self.address = self.lines[-1].split("listening on ")[1].split(",")[0].split(" ")[0]
        self.port = int(self.address.rsplit(":", 1)[1])

    def _read_errors(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if "listening on" in line:
                self._up.set()
        self._up.set()

    def _read_output(self):
        self.out = self.process.stdout.read()

    def wait(self, bound=BOUND):
        try:
            code = self.process.wait(bound)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.end()
            raise AssertionError(f"recv hangs: {self.lines}") from None
        self.end()
        return code

    def end(self):
        for reader in self._readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def stop(self):
        """SIGINT, as a person would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if not self.process.stdout.closed:
            self.end()

    @property
    def text(self):
        return "\n".join(self.lines)


def start_send(*arguments, prefix=(), **options):
    return subprocess.Popen([*prefix, metaroce(), "send"] + [str(a) for a in arguments],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            errors="replace", env=environment(), **options)


def run(*arguments, bound=BOUND, prefix=(), **options):
    """Runs `metaroce ARGUMENTS`; a run longer than `bound` seconds fails the test."""
    return subprocess.run([*prefix, metaroce()] + [str(a) for a in arguments], capture_output=True,
                          text=True, errors="replace", timeout=bound, env=environment(), **options)


def send(*arguments, **options):
    return run("send", *arguments, **options)


class Folders:
    """Two temporary folders, `source` and `target`; removed at the end, also on Ctrl-C."""

    def __init__(self, base=None):
        self.root = Path(tempfile.mkdtemp(prefix="metaroce-", dir=base))
        self.source = self.root / "source"
        self.target = self.root / "target"
        self.source.mkdir()
        self.target.mkdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root, ignore_errors=True)

    def leftovers(self):
        return [p for p in self.target.rglob("*") if p.name.startswith(".metaroce-")]


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)
