"""Each call has a manual page and the other way round, with the header's prototype; no warnings."""
import re
import shutil
import subprocess

from support import SOURCE, exported, skip

PAGES = sorted((SOURCE / "docs/man").glob("*.3"))
header = (SOURCE / "include/metaroce/metaroce.h").read_text()
described = {}
for page in PAGES:
    text = page.read_text()
    name_section = text.split(".Sh NAME", 1)[1].split(".Sh", 1)[0]
    for name in re.findall(r"^\.Nm (\w+)", name_section, re.M):
        assert name not in described, f"{name} is in {described.get(name)} and {page.name}"
        described[name] = page.name
    assert "any thread" in text or "mode of the context" in text, f"{page.name}: no word on threads"
calls = set(described) - {"softmetaroce"}
assert calls == set(exported()), calls ^ set(exported())


def words(text):
    return re.sub(r"\s*([*,()])\s*", r"\1", " ".join(text.split()))


def prototype(name):
    match = re.search(r"^MR_API ([^;]*?\b" + name + r"\([^;]*\));", header, re.M)
    return words(match.group(1))


def documented(name, text):
    synopsis = text.split(".Sh SYNOPSIS", 1)[1].split(".Sh", 1)[0]
    one = re.search(r"^\.Ft ([^\n]*)\n\.Fn " + name + r" (.*)$", synopsis, re.M)
    if one:
        arguments = re.findall(r'"([^"]*)"|(\S+)', one.group(2))
        listed = [a or b for a, b in arguments]
    else:
        one = re.search(r"^\.Ft ([^\n]*)\n\.Fo " + name + r"\n(.*?)\.Fc$", synopsis, re.M | re.S)
        listed = re.findall(r'^\.Fa "([^"]*)"', one.group(2), re.M)
    return words(f"{one.group(1)} {name}({', '.join(listed)})")


for name in sorted(calls):
    text = (SOURCE / "docs/man" / described[name]).read_text()
    assert documented(name, text) == prototype(name), (documented(name, text), prototype(name))

# O04: each status stands in the table of the manual with a first thing to check.
page = (SOURCE / "docs/man/mr_status_text.3").read_text()
for status in re.findall(r"^  (MR_\w+) = \d+,?", header.split("typedef enum mr_status")[1]
                         .split("} mr_status")[0], re.M):
    assert re.search(rf"^\.It Dv {status}\n.+\nFirst check: .+", page, re.M), status

if shutil.which("mandoc") is None:
    skip("mandoc is not installed; everything else is checked")
for page in PAGES:
    lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)],
                          capture_output=True, text=True, check=False)
    assert lint.stdout == "" and lint.stderr == "", lint.stdout + lint.stderr
print(f"{len(calls)} calls on {len(PAGES)} pages")
