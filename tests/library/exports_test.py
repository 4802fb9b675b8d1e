"""The shared library exports what src/api/exported_symbols.txt lists and the header declares."""
import re

from support import BUILD, SOURCE, cache, exported, run

listing = exported()
assert listing == sorted(set(listing)), "the list is not sorted"
header = (SOURCE / "include/metaroce/metaroce.h").read_text()
declared = sorted(re.findall(r"^MR_API [^;]*?\b(mr_\w+)\(", header, re.M))
assert declared == listing, set(declared) ^ set(listing)

lines = run("nm", "-D", "--defined-only", BUILD / "lib/libsoftmetaroce.so").split("\n")
symbols = {line.split()[2].split("@")[0]: line.split()[1] for line in lines if line}
versions = {name for name, kind in symbols.items() if kind == "A"}
assert versions == {"SOFTMETAROCE_0"}, versions
names = sorted(set(symbols) - versions)
if cache("MR_SANITIZE") or cache("MR_COVERAGE") in ("ON", "1", "TRUE"):
    names = [n for n in names if n.startswith("mr_")]
assert names == listing, set(names) ^ set(listing)
assert all(symbols[name] == "T" for name in listing)

dynamic = run("readelf", "-d", BUILD / "lib/libsoftmetaroce.so")
assert "Library soname: [libsoftmetaroce.so.0]" in dynamic, dynamic
assert "TEXTREL" not in dynamic
print(f"{len(listing)} symbols")
