#!/usr/bin/env python3
"""Writes the seeds of engine_fuzz: every packet kind in every state of a connection.

usage: fuzz/make_engine_seeds.py [DIRECTORY]   (default: fuzz/corpus/engine_fuzz)
Findings stand beside the seeds under names of their own; nothing is deleted.
"""
import pathlib
import sys

RUN, DELIVER, TIME, DISTURB, MUTATE, REPLAY, MAKE_UP, WRITE, SEND, RECEIVE = range(10)
CLOSE, PLANE, HINT, PORT, CONNECT = range(10, 15)

DATA = ["write", "write_imm", "send", "send_imm", "send_inv", "read_request", "read_response",
        "fetch_add", "compare_swap", "atomic_response"]
CONTROL = ["reset", "credit", "path_open", "path_close", "port_status", "add_addr", "close",
           "key_update", "response_error"]


def op(kind, *args):
    return bytes([kind, *args] + [0] * (7 - len(args)))


def made_up():
    """Name and the operations' arguments b to g of each kind of packet."""
    for i, name in enumerate(DATA):
        yield name, [(i, 0, 0, 0x03, 1, 0), (i, 0, 8, 0x23, 2, 1)]
    for i, name in enumerate(CONTROL):
        yield name, [(10 + i, 0, 0, 1, 1, 0), (10 + i, 0, 8, 5, 1, 1)]
    yield "probe", [(19, 0, 0, 0, 1, 0)]
    yield "void", [(20, 0, 0, 0, 0, 0), (20, 2, 0x80, 0, 0, 1)]
    yield "ack", [(21, 1, 0, 0, 3, 0), (21, 9, 8, 0x10, 3, 1)]
    yield "ack_long", [(21, 4, 0, 2, 3, 0), (21, 6, 8, 2, 8, 1)]
    yield "ack_wide", [(21, 1, 0, 0, 3, 0x60), (21, 4, 0, 2, 3, 0x60)]
    yield "hello", [(22, 0, 9, 2, 1, 0), (22, 2, 9, 2, 1, 0)]
    yield "accept", [(22, 1, 9, 2, 1, 0), (22, 3, 9, 2, 1, 0)]
    yield "cookie", [(23, 0, 0, 7, 0, 0)]
    yield "confirm", [(23, 1, 0, 0, 0, 0)]
    yield "host_probe", [(23, 2, 1, 0, 0, 0), (23, 2, 0, 0, 0, 0)]
    yield "unknown_connection", [(23, 3, 0, 0, 0, 0)]


def work(side):
    return (b"".join(op(RECEIVE, 1 - side, stream) for stream in (0, 0, 1)) +
            op(WRITE, side, 0, 9, 0) + op(WRITE, side, 1, 5, 1) + op(SEND, side, 0, 4, 0) +
            op(SEND, side, 1, 7, 1) + op(WRITE, side, 2, 0, 0))


STATES = {
    "hello_sent": b"",
    "accepting": op(DELIVER, 1, 0, 15),
    "open": op(RUN, 0, 60),
    "busy": op(RUN, 0, 60) + work(0) + work(1) + op(RUN, 0, 1),
    "closing": op(RUN, 0, 60) + work(0) + op(CLOSE, 0, 7),
    "time_wait": op(RUN, 0, 60) + op(CLOSE, 0, 7) + op(RUN, 0, 4),
}

LONGER = {
    "clean": work(0) + op(RUN, 0, 60) + work(1) + op(RUN, 0, 100) + op(CLOSE, 1, 0) +
             op(RUN, 0, 60),
    "loss": op(RUN, 0, 60) + work(0) + work(1) +
            b"".join(op(DISTURB, i & 1, i, 0) + op(DELIVER, i & 1, 1, 2) for i in range(30)) +
            op(RUN, 0, 200),
    "reorder": op(RUN, 0, 60) + work(0) +
               b"".join(op(DISTURB, 1, i + 2, 3) + op(DELIVER, 1, 0, 0) for i in range(30)) +
               op(RUN, 0, 200),
    "duplicates": op(RUN, 0, 60) + work(0) +
                  b"".join(op(REPLAY, i & 1, i * 3) + op(DELIVER, i & 1, 0, 1)
                           for i in range(40)) + op(RUN, 0, 100),
    "marks": op(RUN, 0, 60) + work(0) +
             b"".join(op(DELIVER, i & 1, 0, 3, 0x55) for i in range(40)) + op(RUN, 0, 100),
    "dark": op(RUN, 0, 60) + work(0) +
            b"".join(op(DISTURB, 0, 0, 1) + op(DISTURB, 1, 0, 1) + op(TIME, 0, 1)
                     for _ in range(60)) + op(RUN, 0, 250),
    "death": op(RUN, 0, 60) + work(0) +
             b"".join(op(DISTURB, 0, 0, 1) + op(DISTURB, 1, 0, 1) + op(TIME, 0, 0, 200, 14)
                      for _ in range(40)),
    "planes": op(RUN, 0, 60) + work(0) + op(PLANE, 0, 1, 0) + op(RUN, 0, 30) +
              op(PLANE, 0, 1, 1) + op(RUN, 0, 60) + op(PLANE, 1, 0, 0) + op(RUN, 0, 99),
    "plane_down_first": op(PLANE, 0, 1, 0) + op(RUN, 0, 60) + op(PLANE, 0, 1, 1) +
                        op(RUN, 0, 99),
    "ports": op(RUN, 0, 60) + work(0) + op(PORT, 0, 0, 1) + op(RUN, 0, 3) + work(0) +
             op(PORT, 0, 1, 2) + op(RUN, 0, 99),
    "hints": op(RUN, 0, 60) + work(0) + op(HINT, 0, 0, 2, 80) + op(RUN, 0, 60) +
             op(HINT, 0, 255, 0) + op(RUN, 0, 60) + op(HINT, 0, 1, 1) +
             b"".join(op(DISTURB, 0, 0, 1) + op(TIME, 0, 1) for _ in range(30)),
    "refused": op(RUN, 0, 60) + op(WRITE, 0, 0, 9, 0, 0, 255, 1) + op(RUN, 0, 9) +
               op(WRITE, 0, 1, 9, 0, 0, 254) + op(RUN, 0, 9) + op(WRITE, 0, 2, 9, 0, 0, 253) +
               op(SEND, 1, 0, 4) + op(RUN, 0, 40) + op(RECEIVE, 0, 0) + op(RUN, 0, 60) +
               op(RECEIVE, 0, 1) + op(SEND, 1, 1, 8) + op(RUN, 0, 60),
    "no_credit": op(RUN, 0, 60) + op(SEND, 0, 0, 4) * 4 + op(RUN, 0, 80) +
                 op(RECEIVE, 1, 0) * 4 + op(RUN, 0, 80),
    "crossing": op(CONNECT, 1) + op(RUN, 0, 120) + work(0) + op(RUN, 0, 60),
    "idle": op(RUN, 0, 250),
    "mutations": op(RUN, 0, 60) + work(0) + work(1) +
                 b"".join(op(MUTATE, i & 1, 0, i % 17, i % 6, i * 7 & 255, i) + op(DELIVER, i & 1)
                          for i in range(60)) + op(RUN, 0, 100),
}


def main():
    default = pathlib.Path(__file__).parent / "corpus" / "engine_fuzz"
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    out.mkdir(parents=True, exist_ok=True)
    config = bytes([1, 1, 0xF6, 0, 1, 0, 0, 0])
    count = 0
    for state, before in STATES.items():
        for name, variants in made_up():
            body = before
            for arguments in variants:
                body += op(MAKE_UP, 0, *arguments) + op(MAKE_UP, 1, *arguments)
            body += op(TIME, 0, 1) + op(RUN, 0, 40)
            (out / f"{state}_{name}").write_bytes(config + body)
            count += 1
    for name, body in LONGER.items():
        for planes in (0, 1, 2):
            shape = bytes([planes, 1 + planes, 0xF6, planes & 2, 1, 0, 0, 0])
            (out / f"run_{name}_{planes}").write_bytes(shape + body)
            count += 1
    print(f"{count} seeds in {out}")


if __name__ == "__main__":
    main()
