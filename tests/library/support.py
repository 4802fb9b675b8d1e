"""What the tests of the installed library share: the build folder, an installation, programs."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(os.environ.get("MR_SOURCE_DIR", Path(__file__).resolve().parents[2]))
BUILD = Path(os.environ.get("MR_BIN", SOURCE / "build/dev/bin")).parent
SKIP = 77
BOUND = 120  # seconds after which a process counts as hung


def cache(name):
    """A variable of the build, "" when it has none."""
    for line in (BUILD / "CMakeCache.txt").read_text().split("\n"):
        if line.startswith(name + ":"):
            return line.split("=", 1)[1]
    return ""


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIP)


def skip_if_instrumented():
    """A program that is built outside would lack the sanitizer's or the coverage's library."""
    if cache("MR_SANITIZE") or cache("MR_COVERAGE") in ("ON", "1", "TRUE"):
        skip("instrumented build")


def run(*command, **options):
    options.setdefault("timeout", BOUND)
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} gave {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def exported():
    return (SOURCE / "src/api/exported_symbols.txt").read_text().split()


class Installed:
    """The tree installed into a folder of its own, removed at the end."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="metaroce-install-")
        self.prefix = Path(self.folder.name) / "usr"
        run("cmake", "--install", BUILD, "--prefix", self.prefix)
        self.libraries = self.prefix / cache("CMAKE_INSTALL_LIBDIR")
        self.environment = dict(os.environ, LD_LIBRARY_PATH=str(self.libraries),
                                PKG_CONFIG_PATH=str(self.libraries / "pkgconfig"))
        return self

    def __exit__(self, *_):
        self.folder.cleanup()


def hello(program, environment, prefix=()):
    """Server and client as two processes; the server's last line."""
    server = subprocess.Popen([*prefix, str(program), "server"], stdout=subprocess.PIPE, text=True,
                              env=environment)
    try:
        port = server.stdout.readline().split()[1]
        run(*prefix, program, "client", f"127.0.0.1:{port}", env=environment)
        out = server.communicate(timeout=BOUND)[0]
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
    assert server.returncode == 0, server.returncode
    return out.strip()
