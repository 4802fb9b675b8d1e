"""The demo on a fabric of the kernel: a spine and then a plane fail, and a table of the paths shows
what the transport makes of it."""
import json
import subprocess
import sys
import time

import harness
import labnet

SPINES = 4
FAILED_SPINE = "p1s2"
FAILED_PLANE = 3
LOOK_SECONDS = 0.2


class Loopback:
    """Planes of one host: 127.0.1.1, 127.0.2.1, ..."""

    def __init__(self, planes):
        self.planes = planes
        self.name = f"planes 127.0.1.1 to 127.0.{planes}.1 of the loopback"
        self.receiver = {"planes": planes}
        self.sender = {}
        self.arguments = ["--planes", planes]

    def remove(self):
        pass


class Fabric:
    """Two hosts of a lab."""

    def __init__(self, planes):
        self.planes = planes
        self.lab = labnet.Lab(planes=planes, spines=SPINES)
        self.name = f"hosts h0 and h1 of a lab, {planes} planes of {SPINES} spines"
        self.receiver = {"listen": [f"{self.lab.address(1, p)}:0" for p in range(planes)],
                         "prefix": self.lab.on("h1")}
        self.sender = {"prefix": self.lab.on("h0")}
        self.arguments = []
        for p in range(planes):
            self.arguments += ["--plane", f"{self.lab.address(0, p)}={self.lab.address(1, p)}"]

    def remove(self):
        self.lab.remove()


def choose_place(planes, wanted):
    """A fabric when there can be one; why not, otherwise."""
    if wanted == "loopback":
        return Loopback(planes), ""
    try:
        return Fabric(planes), ""
    except AssertionError as error:
        # Only when there can be no namespaces: whatever else is wrong must be seen.
        if wanted == "lab" or not labnet.no_namespaces(str(error)):
            raise SystemExit(f"demo: {error}") from None
        return Loopback(planes), str(error)


class PathTable:
    """Rewritten in place on a terminal; elsewhere printed once for each thing that happens."""

    HEAD = (f"  {'path':>4} {'plane':>5} {'port':>6} {'packets':>9} {'repairs':>8} {'lost':>7}"
            f" {'window KiB':>10} {'srtt us':>8}  state")

    def __init__(self, prefix):
        self.prefix = prefix
        self.terminal = sys.stdout.isatty()
        self.lines = 0

    def paths(self):
        """Of the connection that sends."""
        done = harness.run("stat", "--json", "--paths", prefix=self.prefix)
        connections = [c for page in json.loads(done.stdout or "[]") for c in page["connections"]]
        return max(connections, key=lambda c: c["counters"]["bytes_sent"],
                   default={"paths": []})["paths"]

    def rows(self, paths):
        out = [self.HEAD]
        for p in sorted(paths, key=lambda p: (p["plane"], p["id"])):
            c = p["counters"]
            out.append(f"  {p['id']:>4} {p['plane']:>5} {p['source_port']:>6} {c['tx_packets']:>9}"
                       f" {c['tx_repair']:>8} {c['lost']:>7} {p['window'] >> 10:>10}"
                       f" {p['srtt_us']:>8.0f}  {p['state']}")
        return out

    def show(self, said, paths, news):
        if not self.terminal and not news:
            return
        lines = [said, *self.rows(paths)]
        if self.terminal and self.lines:
            print(f"\x1b[{self.lines}F\x1b[J", end="")
        print("\n".join(lines), flush=True)
        self.lines = len(lines)


def watch(process, lab, seconds):
    """Lets a spine and then a plane fail, heals both; returns when what happened (monotonic ns)."""
    table, happened = PathTable(lab.on("h0")), {}
    steps = [(0.2, "spine", f"spine {FAILED_SPINE} swallows everything",
              lambda: lab.fail(FAILED_SPINE, "--silent")),
             (0.45, "plane", f"plane {FAILED_PLANE} is down as well",
              lambda: lab.fail(f"plane{FAILED_PLANE}")),
             (0.75, "heal", "both are healed", lambda: lab.heal("*"))]
    begin, said, news = None, "everything is up", True
    print()
    while process.poll() is None:
        paths = table.paths()
        begin = begin or (time.monotonic() if paths else None)
        if paths:
            table.show(f"{time.monotonic() - begin:6.1f} s: {said}", paths, news)
            news = False
        if begin and steps and time.monotonic() - begin >= steps[0][0] * seconds:
            _, key, said, do = steps.pop(0)
            do()
            happened[key] = time.monotonic_ns()  # the command takes a while
            news = True
        try:
            process.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            pass
    return happened
