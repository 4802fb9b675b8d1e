"""Two hosts on one machine: network namespaces joined by veth pairs, one pair a plane. Root only.

Both ends of plane i are called v<i>; left has 10.77.<i>.1, right 10.77.<i>.2, and fe80::1 and
fe80::2. Segmentation happens before the veth, so that an MTU bounds what crosses it.
"""
import json
import os
import re
import shutil
import signal
import subprocess

PREFIX = "mr-test"
BOUND = 20  # seconds for one call of ip

_live = set()


def ip(*arguments, check=True):
    result = subprocess.run(["ip", *[str(a) for a in arguments]], capture_output=True, text=True,
                            timeout=BOUND, check=False)
    if check and result.returncode != 0:
        raise AssertionError(f"ip {' '.join(map(str, arguments))}: {result.stderr.strip()}")
    return result


def _remove(name):
    _live.discard(name)
    for pid in ip("netns", "pids", name, check=False).stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    ip("netns", "del", name, check=False)


def remove_all():
    """What this run made and what still runs in it."""
    for name in list(_live):
        _remove(name)


def remove_left_over():
    """Namespaces of runs that were killed before they could remove theirs."""
    for line in ip("netns", "list", check=False).stdout.splitlines():
        found = re.match(rf"({PREFIX}-(\d+)-\S+)", line)
        if found and not os.path.exists(f"/proc/{found[2]}"):
            _remove(found[1])


def why_not():
    """Why namespaces cannot be used here, or None."""
    if os.geteuid() != 0:
        return "needs root to create network namespaces"
    if shutil.which("ip") is None:
        return "needs the command ip (package iproute2)"
    name = f"{PREFIX}-{os.getpid()}-probe"
    _live.add(name)
    try:
        made = ip("netns", "add", name, check=False)
        if made.returncode != 0:
            return f"cannot create a network namespace: {made.stderr.strip()}"
        made = ip("-n", name, "link", "add", "v0", "type", "veth", "peer", "name", "v1",
                  check=False)
        if made.returncode != 0:
            return f"cannot create a veth pair: {made.stderr.strip()}"
        if ip("netns", "exec", name, "true", check=False).returncode != 0:
            return "cannot run a program in a network namespace"
    finally:
        _remove(name)
    return None


class Host:
    """One namespace."""

    def __init__(self, name, number):
        self.name = name
        self.number = number
        self.prefix = ("ip", "netns", "exec", name)
        _live.add(name)
        ip("netns", "add", name)
        self.ip("link", "set", "lo", "up")

    def ip(self, *arguments):
        return ip("-n", self.name, *arguments).stdout

    def address(self, plane=0):
        return f"10.77.{plane}.{self.number}"

    def set_up(self, plane, mtu):
        device = f"v{plane}"
        self.ip("addr", "add", f"{self.address(plane)}/24", "dev", device)
        self.ip("link", "set", device, "mtu", mtu, "gso_max_segs", 1, "up")
        # Without duplicate address detection the address can be used at once.
        self.ip("addr", "add", f"fe80::{self.number}/64", "dev", device, "nodad")

    def mtu(self, size, plane=0):
        self.ip("link", "set", f"v{plane}", "mtu", size)

    def link(self, state, plane=0):
        self.ip("link", "set", f"v{plane}", state)

    def sent_bytes(self, plane=0):
        return json.loads(self.ip("-j", "-s", "link", "show", f"v{plane}"))[0]["stats64"]["tx"][
            "bytes"]

    def hardware_address(self, plane=0):
        return json.loads(self.ip("-j", "link", "show", f"v{plane}"))[0]["address"]

    def neighbour(self, address, hardware, plane=0):
        self.ip("neigh", "replace", address, "lladdr", hardware, "dev", f"v{plane}",
                "nud", "permanent")

    def write_sysctl(self, name, value):
        subprocess.run([*self.prefix, "sh", "-c",
                        f"echo {value} > /proc/sys/{name.replace('.', '/')}"],
                       check=True, timeout=BOUND)


class Network:
    """Hosts `left` and `right`; removed at the end, however it comes."""

    _count = 0

    def __init__(self, planes=1, mtu=1500, right_mtu=None):
        Network._count += 1
        base = f"{PREFIX}-{os.getpid()}-{Network._count}"
        self.left = Host(base + "l", 1)
        self.right = Host(base + "r", 2)
        self.planes = planes
        for plane in range(planes):
            ip("link", "add", f"v{plane}", "netns", self.left.name, "type", "veth",
               "peer", "name", f"v{plane}", "netns", self.right.name)
            self.left.set_up(plane, mtu)
            self.right.set_up(plane, right_mtu or mtu)

    def silence(self, plane=0):
        """Everything vanishes in both directions; no side gets an error."""
        nobody = "02:00:00:00:00:99"
        self.left.neighbour(self.right.address(plane), nobody, plane)
        self.right.neighbour(self.left.address(plane), nobody, plane)

    def heal(self, plane=0):
        self.left.neighbour(self.right.address(plane), self.right.hardware_address(plane), plane)
        self.right.neighbour(self.left.address(plane), self.left.hardware_address(plane), plane)

    def remove(self):
        for host in (self.left, self.right):
            _remove(host.name)
