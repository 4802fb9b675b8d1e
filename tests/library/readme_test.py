"""The program in README.md is compiled and run as it stands there."""
import re
import tempfile
from pathlib import Path

from support import SOURCE, Installed, run, skip_if_instrumented

skip_if_instrumented()
blocks = re.findall(r"^```c\n(.*?)^```$", (SOURCE / "README.md").read_text(), re.M | re.S)
assert len(blocks) == 1, f"{len(blocks)} blocks of C in README.md"
lines = blocks[0].count("\n")
assert lines <= 25, f"{lines} lines; the README promises about twenty"
with Installed() as tree, tempfile.TemporaryDirectory(prefix="metaroce-readme-") as folder:
    program = Path(folder) / "hello.c"
    program.write_text(blocks[0])
    flags = run("pkg-config", "--cflags", "--libs", "softmetaroce", env=tree.environment).split()
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", Path(folder) / "hello",
        program, *flags)
    out = run(Path(folder) / "hello", env=tree.environment)
    assert out == "success: hello\n", out
print(f"{lines} lines")
