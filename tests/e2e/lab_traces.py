"""What a lab leaves in the system: network namespaces, BPF programs, processes."""
import ctypes
import os
from pathlib import Path

BPF_PROG_GET_NEXT_ID = 11
SYS_BPF = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine)


def network_namespaces():
    """Of all processes that can be seen: named ones are held by a process of their lab."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            found.add((entry / "ns/net").readlink())
            found |= {link.readlink() for link in (entry / "fd").iterdir()
                      if str(link.readlink()).startswith("net:")}
        except OSError:
            continue
    return found


def bpf_programs():
    """Ids of the programs that are loaded; empty where that may not be asked."""
    libc, found, attribute = ctypes.CDLL(None, use_errno=True), set(), (ctypes.c_uint32 * 16)()
    while SYS_BPF and libc.syscall(SYS_BPF, BPF_PROG_GET_NEXT_ID, attribute, 64) == 0:
        found.add(attribute[1])
        attribute[0] = attribute[1]
    return found


def processes():
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"metaroce\0lab" in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def traces():
    return network_namespaces(), bpf_programs(), processes()


def more_than(before):
    """How many of each kind are there that were not."""
    return [len(now - then) for now, then in zip(traces(), before)]
