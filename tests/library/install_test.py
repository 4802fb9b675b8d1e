"""The installed tree: examples/hello is built outside with CMake and with make, and runs."""
import shutil
import subprocess
import tempfile
from pathlib import Path

from support import SOURCE, Installed, exported, hello, run, skip_if_instrumented

WANTED = "1048576 bytes: hello from another process"

skip_if_instrumented()
with Installed() as tree, tempfile.TemporaryDirectory(prefix="metaroce-hello-") as outside:
    for file in ("bin/metaroce", "include/metaroce/metaroce.h", "include/metaroce/metaroce.hpp"):
        assert (tree.prefix / file).is_file(), file
    for name in ("softmetaroce", *exported()):
        assert (tree.prefix / f"share/man/man3/{name}.3").is_file(), name
    assert (tree.libraries / "wireshark/plugins/metaroce.lua").is_file()
    link = tree.libraries / "libsoftmetaroce.so.0"
    assert link.is_symlink() and link.resolve().name == "libsoftmetaroce.so.0.1.0"
    for path in tree.prefix.rglob("*"):  # nothing installed names the place it was built in
        if path.is_file() and path.suffix in (".pc", ".cmake", ".h", ".hpp", ".3"):
            assert str(SOURCE) not in path.read_text(), path

    work = Path(outside) / "hello"
    shutil.copytree(SOURCE / "examples/hello", work)
    run("cmake", "-S", work, "-B", work / "build", f"-DCMAKE_PREFIX_PATH={tree.prefix}")
    run("cmake", "--build", work / "build")
    for name in ("hello", "hello_static"):
        assert hello(work / "build" / name, None) == WANTED, name
    linked = run("ldd", work / "build/hello_static")
    assert "softmetaroce" not in linked, linked

    run("make", "-C", work, env=tree.environment)
    assert hello(work / "hello", tree.environment) == WANTED
    version = run("pkg-config", "--modversion", "softmetaroce", env=tree.environment)
    assert version.strip() == "0.1.0", version

    # The command of the package works from where it is installed.
    assert run(tree.prefix / "bin/metaroce", "--version").startswith("metaroce 0.1")
    if shutil.which("man"):
        page = subprocess.run(["man", "-M", str(tree.prefix / "share/man"), "mr_abort"],
                              capture_output=True, text=True, check=False, env={
                                  **tree.environment, "MANPAGER": "cat", "LC_ALL": "C"})
        assert "mr_abort" in page.stdout, page.stdout + page.stderr
print("built with CMake and make, shared and static; data verified")
