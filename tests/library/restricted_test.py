"""S22, S12: no capability, plain user, no locked memory, read-only root and /sys, empty /dev."""
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from support import SOURCE, Installed, hello, run, skip, skip_if_instrumented

skip_if_instrumented()
if os.getuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "prlimit"))):
    skip("needs root, util-linux")

# Everything the program could touch is read-only; device nodes and /dev/infiniband are gone.
JAIL = """
mount --make-rprivate / &&
mount -t tmpfs -o ro,size=4k none /dev &&
mount -o remount,bind,ro / && mount -o remount,bind,ro /sys 2>/dev/null
exec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --inh-caps=-all \
  --ambient-caps=-all --no-new-privs prlimit --memlock=0:0 -- "$@"
"""
prefix = ["unshare", "--mount", "--ipc", "sh", "-c", JAIL, "jail"]
if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
    skip("no mount namespace here")

with Installed() as tree, tempfile.TemporaryDirectory(prefix="metaroce-jail-") as folder:
    for place in (folder, Path(tree.folder.name)):
        os.chmod(place, 0o755)
    work = Path(folder) / "hello"
    shutil.copytree(SOURCE / "examples/hello", work)
    run("make", "-C", work, env=tree.environment)
    look = "grep CapBnd /proc/self/status; ulimit -l; ls /dev; id -u; touch /tmp/x 2>&1"
    inside = subprocess.run([*prefix, "sh", "-c", look], capture_output=True, text=True,
                            check=False).stdout
    assert "CapBnd:\t0000000000000000" in inside and "65534" in inside, inside
    assert "Read-only file system" in inside, inside
    out = hello(work / "hello", tree.environment, prefix)
    assert out == "1048576 bytes: hello from another process", out
print("data moved with no right at all")
