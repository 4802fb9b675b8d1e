#!/usr/bin/env python3
"""The failure matrix: how a peer goes x whether work is outstanding, between real processes.

usage: failures.py [--repeat N] [--only NAME] [--mode idle|busy] [--json FILE]

The survivor has to name the right cause within 3 s, to be connected again within 1 s of the moment
when the peer is there again, and no message of an old connection may reach the new process. The
row `address` needs root: it takes the peer's address away inside two network namespaces.
Exit code 0 when every repetition held; 1 otherwise; 77 when nothing could be run.
"""
import argparse
import json
import queue
import signal
import subprocess
import sys
import threading
import time

import harness
import namespaces

BOUND = 15        # seconds after which a step counts as never
VERDICT = 3.0     # seconds from the failure to the named cause
RECONNECT = 1.0   # seconds from the peer's return to the first message acknowledged


class Peer:
    """A life_peer process and the events it tells."""

    def __init__(self, *arguments, prefix=()):
        self.command = [*prefix, str(harness.BIN / "life_peer"), *map(str, arguments)]
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.events = queue.Queue()
        self.seen = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            event["got"] = time.monotonic()
            self.events.put(event)
        self.events.put(None)

    def until(self, *names, bound=BOUND):
        """The next event of one of these names; the others are passed over."""
        end = time.monotonic() + bound
        while True:
            try:
                event = self.events.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise Failed(f"no event {names} within {bound} s, got {self.seen[-4:]}") from None
            if event is None:
                raise Failed(f"{self.command[-4:]} ended, wanted {names}, got {self.seen[-4:]}")
            self.seen.append(event)
            if event["event"] in names:
                return event

    def stays(self, seconds, *never):
        """For so long there is no such event: idle, or asking one who does not answer."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                event = self.events.get(timeout=left)
            except queue.Empty:
                return
            if event is None or event["event"] in ("lost", *never):
                raise Failed(f"unexpected: {event}")
            self.seen.append(event)

    def stale(self):
        """Messages of an old connection that it was given, as far as it has told."""
        while True:
            try:
                event = self.events.get_nowait()
            except queue.Empty:
                break
            if event is not None:
                self.seen.append(event)
        return sum(e["event"] == "stale" for e in self.seen)

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()


class Failed(Exception):
    pass


class Scene:
    """A listener and a survivor that is connected to it; everything it made goes with it."""

    def __init__(self, mode, net=None):
        self.net = net
        self.host = net.right.address() if net else "127.0.0.1"
        self.server_prefix = net.right.prefix if net else ()
        self.client_prefix = net.left.prefix if net else ()
        self.peers = []
        self.mode = mode
        self.port = 0
        self.stale = 0

    def __enter__(self):
        self.server = self.listen()
        self.client = Peer("talk", self.host, self.port, self.mode, prefix=self.client_prefix)
        self.peers.append(self.client)
        self.client.until("working")
        if self.mode == "idle":
            self.client.stays(0.2)
        return self

    def listen(self):
        server = Peer("listen", self.host, self.port, prefix=self.server_prefix)
        self.peers.append(server)
        self.port = int(server.until("ready")["status"])
        return server

    def verdict(self, since, wanted):
        event = self.client.until("lost")
        took = event["got"] - since
        if event["status"] not in wanted:
            raise Failed(f"named {event['status']!r}, wanted {wanted}: {event['text']}")
        if str(self.port) not in event["text"] or self.host not in event["text"]:
            raise Failed(f"the text names not {self.host} and {self.port}: {event['text']}")
        if took > VERDICT:
            raise Failed(f"cause named after {took:.3f} s")
        return took

    def back(self, since):
        event = self.client.until("working")
        took = event["got"] - since
        if took > RECONNECT:
            raise Failed(f"working again after {took:.3f} s")
        return took

    def __exit__(self, *_):
        for peer in self.peers:
            self.stale += peer.stale()
            peer.end()


def kill(scene):
    begin = time.monotonic()
    scene.server.signal(signal.SIGKILL)
    took = scene.verdict(begin, ("peer gone",))
    scene.server.process.wait()
    again = time.monotonic()
    scene.listen()
    return took, scene.back(again)


def restart(scene):
    begin = time.monotonic()
    scene.server.signal(signal.SIGKILL)
    scene.server.process.wait()
    scene.listen()
    took = scene.verdict(begin, ("peer gone",))
    return took, scene.back(begin + took)


def listener_gone(scene):
    begin = time.monotonic()
    scene.server.signal(signal.SIGTERM)
    took = scene.verdict(begin, ("closed",))
    scene.client.until("failed")  # nobody listens there any more, and it says so
    if scene.client.seen[-1]["status"] != "refused":
        raise Failed(f"then named {scene.client.seen[-1]}")
    scene.server.process.wait()
    again = time.monotonic()
    scene.listen()
    return took, scene.back(again)


def stop(scene):
    begin = time.monotonic()
    scene.server.signal(signal.SIGSTOP)
    took = scene.verdict(begin, ("unresponsive",))
    scene.client.stays(begin + 5 - time.monotonic(), "connected")
    again = time.monotonic()
    scene.server.signal(signal.SIGCONT)
    return took, scene.back(again)


def address(scene):
    device = ("dev", "v0")
    begin = time.monotonic()
    scene.net.right.ip("addr", "del", f"{scene.host}/24", *device)
    took = scene.verdict(begin, ("unresponsive", "unreachable"))
    scene.net.right.ip("addr", "add", f"{scene.host}/24", *device)
    again = time.monotonic()
    return took, scene.back(again)


SCENARIOS = {"kill": kill, "restart": restart, "listener": listener_gone, "stop": stop,
             "address": address}


def once(name, mode):
    net = namespaces.Network() if name == "address" else None
    try:
        with Scene(mode, net) as scene:
            took = SCENARIOS[name](scene)
        if scene.stale:
            raise Failed(f"{scene.stale} messages of an old connection were accepted")
        return took
    finally:
        if net:
            net.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--only", choices=SCENARIOS)
    parser.add_argument("--mode", choices=("idle", "busy"))
    parser.add_argument("--json")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(SCENARIOS)
    modes = [arguments.mode] if arguments.mode else ["idle", "busy"]
    if "address" in names and (why := namespaces.why_not()):
        print(f"address: skipped, {why}")
        names.remove("address")
    if not names:
        return harness.SKIP
    rows, bad = [], 0
    for name in names:
        for mode in modes:
            verdicts, returns, errors = [], [], []
            for _ in range(arguments.repeat):
                try:
                    verdict, back = once(name, mode)
                    verdicts.append(verdict)
                    returns.append(back)
                except Failed as error:
                    errors.append(str(error))
            bad += len(errors)
            row = {"failure": name, "mode": mode, "held": len(verdicts),
                   "of": arguments.repeat, "verdict_max_s": max(verdicts, default=None),
                   "reconnect_max_s": max(returns, default=None), "errors": errors}
            rows.append(row)
            figures = (f"cause named after at most {max(verdicts):.3f} s, working again after at "
                       f"most {max(returns):.3f} s") if verdicts else "-"
            print(f"{name:9} {mode:5} {len(verdicts):3} of {arguments.repeat}  {figures}",
                  flush=True)
            for error in errors:
                print(f"    {error}", flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 1 if bad else 0


if __name__ == "__main__":
    namespaces.remove_left_over()
    try:
        sys.exit(main())
    finally:
        namespaces.remove_all()
