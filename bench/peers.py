#!/usr/bin/env python3
"""The product against TCP cubic (iperf3), UCX tcp (ucx_perftest) and libfabric udp;ofi_rxd
(fi_pingpong): same machine, same run, alternating; on loopback and on a 9000-byte veth pair.

Ratios above 1 are in favour of the product for goodput, below 1 for round trips. Needs the Debian
packages iperf3, ucx-utils and libfabric-bin (`./dev bench peers` installs them); what is missing is
left out and named. The veth pair needs root.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))
import namespaces  # noqa: E402  (the hosts of the tests)

TOOLS = {"iperf3": "iperf3", "ucx_perftest": "ucx-utils", "fi_pingpong": "libfabric-bin"}
BOUND = 180


class Fabric:
    """Where the two ends run: how to start a program there, and addresses and device."""

    def __init__(self, name, near, far, address, device, local):
        self.name, self.near, self.far = name, list(near), list(far)
        self.address, self.device, self.local = address, device, local


@contextlib.contextmanager
def background(command, env=None, ready=None):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE if ready else subprocess.DEVNULL, text=True,
                               env=env)
    try:
        yield process.stderr.readline() if ready else wait_a_moment(process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stderr:
            process.stderr.close()


def wait_a_moment(process):
    time.sleep(1.0)  # these tools do not tell when they listen
    return process


def call(command, env=None):
    result = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, env=env,
                            check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {result.stderr.strip()[-300:]}"
                           f"{result.stdout.strip()[-300:]}")
    return result.stdout


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def pin(core):
    return ["taskset", "-c", str(core)]


def metaroce(fabric, options, *arguments):
    program = str(options.bin / "metaroce")
    serve = [*fabric.far, *pin(options.pin[1]), program, "perf", "--server", "-p", "0", "--local",
             fabric.address, "--paths-per-plane", str(options.paths)]
    with background(serve, ready=True) as line:
        address = line.split("listening on ")[1].split(" ")[0]
        out = call([*fabric.near, *pin(options.pin[0]), program, "perf", address, "--local",
                    fabric.local, "--paths-per-plane", str(options.paths), "-t",
                    str(options.seconds), "--json", "-", *map(str, arguments)])
    return json.loads(out)["runs"][0]["directions"][0]


def product_goodput(fabric, options):
    return metaroce(fabric, options, "--op", "write", "-s", "1M")["goodput_gbps"]


def product_round_trip(size):
    def measure(fabric, options):
        return metaroce(fabric, options, "--lat", "--op", "send", "-s",
                        size)["latency_us"]["p50"]
    return measure


def product_mean_round_trip(size):
    def measure(fabric, options):
        return metaroce(fabric, options, "--lat", "--op", "send", "-s",
                        size)["latency_us"]["mean"]
    return measure


def iperf3(fabric, options):
    port = str(free_port())
    with background([*fabric.far, *pin(options.pin[1]), "iperf3", "-s", "-1", "-p", port]):
        out = call([*fabric.near, *pin(options.pin[0]), "iperf3", "-c", fabric.address, "-p", port,
                    "-t", str(max(1, round(options.seconds))), "-C", "cubic", "-J"])
    return json.loads(out)["end"]["sum_received"]["bits_per_second"] / 1e9


def ucx(test, size, column, scale):
    def measure(fabric, options):
        port = str(free_port())
        env = dict(os.environ, UCX_TLS="tcp", UCX_NET_DEVICES=fabric.device, UCX_LOG_LEVEL="error")
        # As many messages as the product's time: bulk about 2 GB, small ones 20,000.
        count = 2000 if size > 65536 else 20000
        count = max(100, int(count * options.seconds))
        with background([*fabric.far, *pin(options.pin[1]), "ucx_perftest", "-p", port], env=env):
            out = call([*fabric.near, *pin(options.pin[0]), "ucx_perftest", fabric.address, "-p",
                        port, "-t", test, "-s", str(size), "-n", str(count), "-w", "100", "-f",
                        "-v"], env=env)
        names, values = [line.strip().split(",") for line in out.strip().splitlines()[-2:]]
        return float(values[names.index(column)]) * scale
    return measure


def libfabric(size):
    def measure(fabric, options):
        port = str(free_port())
        base = ["fi_pingpong", "-d", fabric.device, "-p", "udp;ofi_rxd", "-e", "rdm", "-I",
                str(max(50, int((20000 if size <= 4096 else 500) * options.seconds))),
                "-S", str(size)]
        with background([*fabric.far, *pin(options.pin[1]), *base, "-B", port]):
            out = call([*fabric.near, *pin(options.pin[0]), *base, "-P", port, fabric.address])
        row = out.strip().splitlines()[-1].split()
        return 2 * float(row[-2])  # usec/xfer is half of a round trip
    return measure


# name, tool, figure of the peer, figure of the product, unit, larger is better
COMPARISONS = [
    ("goodput / TCP cubic", "iperf3", iperf3, product_goodput, "Gbit/s", True),
    ("goodput / UCX tcp, 1 MiB", "ucx_perftest",
     ucx("tag_bw", 1 << 20, "overall_bw", 8 * 1048576 / 1e9), product_goodput, "Gbit/s", True),
    ("round trip p50, 64 B / UCX tcp", "ucx_perftest",
     ucx("tag_lat", 64, "50.0_percentile_lat", 2), product_round_trip(64), "us", False),
    ("mean round trip, 64 B / libfabric", "fi_pingpong", libfabric(64),
     product_mean_round_trip(64), "us", False),
    ("mean round trip, 64 KiB / libfabric", "fi_pingpong", libfabric(65536),
     product_mean_round_trip(65536), "us", False),
]


def compare(fabric, options, rows):
    for name, tool, peer, own, unit, larger in COMPARISONS:
        if shutil.which(tool) is None:
            continue
        if options.only and not any(word in name for word in options.only):
            continue
        theirs, ours = [], []
        try:
            for _ in range(options.pairs):
                theirs.append(peer(fabric, options))
                ours.append(own(fabric, options))
        except (RuntimeError, subprocess.TimeoutExpired, ValueError, IndexError, KeyError) as e:
            print(f"{fabric.name:<9} {name:<38} failed: {e}", flush=True)
            rows.append({"fabric": fabric.name, "what": name, "error": str(e)})
            continue
        ratios = [o / t for o, t in zip(ours, theirs)]
        row = {"fabric": fabric.name, "what": name, "unit": unit, "larger_is_better": larger,
               "peer": statistics.median(theirs), "product": statistics.median(ours),
               "ratio": statistics.median(ratios), "ratios": [round(r, 3) for r in ratios]}
        rows.append(row)
        print(f"{fabric.name:<9} {name:<38} {row['peer']:10.3f} {row['product']:10.3f} {unit:<7}"
              f"{row['ratio']:8.3f}  {'more' if larger else 'less'} is better  {row['ratios']}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run of the product")
    parser.add_argument("--paths", type=int, default=1, help="paths of the product")
    parser.add_argument("--pin", type=int, nargs=2, default=[0, 1], metavar=("CLIENT", "SERVER"))
    parser.add_argument("--fabric", choices=["loopback", "veth"], action="append")
    parser.add_argument("--only", action="append", help="rows whose name holds this")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    options = parser.parse_args()
    options.pin = [core % os.cpu_count() for core in options.pin]
    if not (options.bin / "metaroce").exists():
        sys.exit(f"peers.py: {options.bin / 'metaroce'} is missing: run ./dev build release")
    missing = {tool: package for tool, package in TOOLS.items() if shutil.which(tool) is None}
    for tool, package in missing.items():
        print(f"peers.py: {tool} is missing, its rows are left out: apt-get install {package}",
              file=sys.stderr)
    if len(missing) == len(TOOLS):
        sys.exit(1)
    rows = []
    print(f"{'fabric':<9} {'what':<38} {'peer':>10} {'metaroce':>10} {'':<7}{'ratio':>8}  medians "
          f"of {options.pairs} pairs, ratios pair by pair", flush=True)
    for name in options.fabric or ["loopback", "veth"]:
        if name == "loopback":
            compare(Fabric("loopback", [], [], "127.0.0.1", "lo", "127.0.0.1"), options, rows)
            continue
        reason = namespaces.why_not()
        if reason:
            print(f"peers.py: no veth pair: {reason}", file=sys.stderr)
            continue
        network = namespaces.Network(planes=1, mtu=9000)
        try:
            for host in (network.left, network.right):  # the tests cut segments early; nobody here
                host.ip("link", "set", "v0", "gso_max_segs", 65535)
            compare(Fabric("veth 9000", network.left.prefix, network.right.prefix,
                           network.right.address(), "v0", network.left.address()), options, rows)
        finally:
            network.remove()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(0 if any("ratio" in row for row in rows) else 1)


if __name__ == "__main__":
    main()
