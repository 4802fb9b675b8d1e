"""`cpack` gives two Debian packages that hold what they should and say what they need."""
import shutil
import tempfile
from pathlib import Path

from support import BUILD, exported, run, skip, skip_if_instrumented

skip_if_instrumented()
if shutil.which("dpkg-deb") is None or shutil.which("dpkg-shlibdeps") is None:
    skip("no dpkg-dev here")
with tempfile.TemporaryDirectory(prefix="metaroce-deb-") as folder:
    run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", folder, cwd=folder)
    packages = {p.name.split("_")[0]: p for p in Path(folder).glob("*.deb")}
    assert set(packages) == {"softmetaroce", "libsoftmetaroce-dev"}, packages

    def listing(name):
        out = run("dpkg-deb", "-c", packages[name])
        return {line.split()[5].lstrip(".") for line in out.split("\n") if line}

    def holds(name, *suffixes):
        files = listing(name)
        for suffix in suffixes:
            assert any(f.endswith(suffix) for f in files), (name, suffix, sorted(files))
        return files

    runtime = holds("softmetaroce", "/usr/bin/metaroce", "/libsoftmetaroce.so.0",
                    "/libsoftmetaroce.so.0.1.0", "/wireshark/plugins/metaroce.lua")
    dev = holds("libsoftmetaroce-dev", "/usr/include/metaroce/metaroce.h",
                "/usr/include/metaroce/metaroce.hpp", "/libsoftmetaroce.so", "/libsoftmetaroce.a",
                "/pkgconfig/softmetaroce.pc", "/softmetaroceConfig.cmake",
                "/usr/share/man/man3/softmetaroce.3",
                *(f"/usr/share/man/man3/{name}.3" for name in exported()))
    assert not {f for f in runtime & dev if not f.endswith("/")}, "a file is in both"
    assert not [f for f in runtime | dev if not f.startswith("/usr/") and f != "/"]
    depends = run("dpkg-deb", "-f", packages["softmetaroce"], "Depends")
    for needed in ("libc6", "libfmt9", "libisal2", "libspdlog1.10"):
        assert needed in depends, depends
    assert "softmetaroce (= " in run("dpkg-deb", "-f", packages["libsoftmetaroce-dev"], "Depends")
print(f"{len(runtime)} and {len(dev)} entries")
