"""`metaroce perf` and `metaroce ping` between processes: figures by counts, ends, hostile peers."""
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import unittest

from harness import BOUND, environment, metaroce, run


class Server:
    """`metaroce perf --server` on a free port, behind `prefix`."""

    def __init__(self, *arguments, local="127.0.0.1", prefix=()):
        self.process = subprocess.Popen(
            [*prefix, metaroce(), "perf", "--server", "-p", "0", "-v", "--local", local,
             *[str(a) for a in arguments]],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            env=environment())
        self.lines = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.wait_line("listening on")
        self.address = self.lines[-1].split("listening on ")[1].split(",")[0].split(" ")[0]
        self.port = int(self.address.rsplit(":", 1)[1])

    def _read(self):
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()

    def wait_line(self, text, after=0):
        """Until a line with `text` came behind the first `after` lines."""
        with self._news:
            if not self._news.wait_for(lambda: any(text in line for line in self.lines[after:]),
                                       BOUND):
                self.process.kill()
                raise AssertionError(f"no line with {text}: {self.lines}")

    def stop(self, number=signal.SIGINT):
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(BOUND)
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.process.stderr.closed:
            self.stop(signal.SIGKILL)


def start(*arguments):
    return subprocess.Popen([metaroce(), *[str(a) for a in arguments]], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=environment())


def read_until(client, begin):
    """Reads lines of the client until one begins so; a client that hangs is ended."""
    guard = threading.Timer(BOUND, client.kill)
    guard.start()
    try:
        for line in client.stdout:
            if line.startswith(begin):
                return
    finally:
        guard.cancel()
    raise AssertionError(f"no line begins with {begin}: {client.communicate()}")


def figures(*arguments):
    """The one run of `metaroce perf ARGUMENTS --json -`."""
    result = run("perf", *arguments, "--json", "-")
    if result.returncode != 0:
        raise AssertionError(f"{arguments}: {result.returncode}\n{result.stderr}")
    return json.loads(result.stdout)["runs"]


class Perf(unittest.TestCase):
    def check(self, direction, size, messages):
        self.assertEqual(direction["messages"], messages)
        self.assertEqual(direction["bytes"], messages * size)
        rate = direction["bytes"] * 8 / direction["seconds"] / 1e9
        self.assertAlmostEqual(direction["goodput_gbps"], rate, delta=rate / 100)
        self.assertGreater(direction["longest_gap_us"], 0)
        self.assertLessEqual(direction["longest_gap_us"], direction["seconds"] * 1e6)
        latency = direction["latency_us"]
        self.assertEqual(latency["count"], messages)
        order = [latency[k] for k in ("min", "p50", "p90", "p99", "p999", "max")]
        self.assertEqual(order, sorted(order))
        self.assertGreater(order[0], 0)

    def test_operations_and_directions_with_verification(self):
        with Server() as server:
            for op in ("write", "write-imm", "send"):
                for way in ([], ["-R"], ["--bidir"]):
                    with self.subTest(op=op, way=way):
                        [r] = figures(server.address, "--op", op, *way, "-s", 5000, "-n", 300,
                                      "-P", 3, "-d", 8, "--verify", "--warmup", 0.02)
                        self.assertTrue(r["complete"])
                        self.assertEqual(len(r["directions"]), 2 if way == ["--bidir"] else 1)
                        for direction in r["directions"]:
                            self.check(direction, 5000, 300)
                        takers = {"client to server": "server", "server to client": "client"}
                        for d in r["directions"]:
                            taker = r[takers[d["direction"]]]
                            self.assertGreater(taker["verified"], 0)
                            self.assertEqual(taker["verify_errors"], 0)
                            if op != "write":
                                self.assertEqual(taker["messages_received"], 300)

    def test_latency_of_each_operation(self):
        with Server() as server:
            for op, name in (("write", "completion"), ("write-imm", "round trip"),
                             ("send", "round trip")):
                for way in ([], ["-R"]):
                    [r] = figures(server.address, "--lat", "--op", op, *way, "-n", 50,
                                  "--warmup", 0)
                    self.assertEqual(r["latency_is"], name)
                    self.check(r["directions"][0], 64, 50)

    def test_sweep_has_a_line_a_size_and_no_figure_of_the_size_before(self):
        with Server() as server:
            result = run("perf", server.address, "-s", "1K:8K", "-n", 40, "--warmup", 0, "-q")
            self.assertEqual(result.returncode, 0, result.stderr)
            rows = [line.split() for line in result.stdout.splitlines()[1:]]
            self.assertEqual([r[:2] for r in rows], [[str(1024 << i), "40"] for i in range(4)])
            runs = figures(server.address, "-s", "1K:8K", "-n", 40, "--warmup", 0)
            self.assertEqual([r["directions"][0]["bytes"] for r in runs],
                             [40 * (1024 << i) for i in range(4)])

    def test_counters_are_conserved_through_loss(self):
        """O01: what was sent is acknowledged, lost or on its way; bare probes are neither."""
        with Server() as server:
            [r] = figures(server.address, "-s", "64K", "-n", 400, "--fault", "drop=2%:dir=both",
                          "--warmup", 0, "--seed", 5)
            direction = r["directions"][0]
            self.check(direction, 65536, 400)
            self.assertGreater(direction["packets"]["lost"], 0)
            self.assertGreaterEqual(direction["packets"]["repairs"], 1)
            for p in r["client"]["paths"]:
                # A sequence judged lost that was acknowledged later stands in both counters and in
                # "spurious", which also has late arrivals that no acknowledgement names.
                # The second copy of what was accepted may still be on its way at the end.
                rest = p["packets"] - p["acked"] - p["lost"] - p["in_flight"]
                self.assertGreaterEqual(rest, -p["spurious"], p)
                self.assertLessEqual(rest, p["probes"], p)
                self.assertEqual(p["packets"],
                                 p["data"] + p["repairs"] + p["copies"] + p["probes"], p)

    def test_planes_and_intervals(self):
        with Server("--paths-per-plane", 2, local="127.0.1.1,127.0.2.1,127.0.3.1") as server:
            address = ",".join(f"127.0.{i}.1:{server.port}" for i in (1, 2, 3))
            result = run("perf", address, "--local", "127.0.1.1,127.0.2.1,127.0.3.1",
                         "--paths-per-plane", 2, "-t", 1, "-i", 0.25)
            self.assertEqual(result.returncode, 0, result.stderr)
            lines = [line for line in result.stdout.splitlines() if line.startswith("[")]
            self.assertGreaterEqual(len(lines), 2, result.stdout)
            self.assertIn("of 6 paths", lines[0])
            for end in ("client", "server"):
                self.assertEqual(sum(line.strip().startswith(end + " ") and "good" in line
                                     for line in result.stdout.splitlines()), 6, result.stdout)

    def test_several_clients_at_once_and_after_each_other(self):
        with Server() as server:
            clients = [start("perf", server.address, "-n", 300, "-s", "16K", "--json", "-",
                             "--op", op, "--verify") for op in ("write", "send", "write-imm")]
            for client in clients:
                out, err = client.communicate(timeout=BOUND)
                self.assertEqual(client.returncode, 0, err)
                self.check(json.loads(out)["runs"][0]["directions"][0], 16384, 300)
            self.check(figures(server.address, "-n", 10)[0]["directions"][0], 65536, 10)
            self.assertEqual(server.stop(), 130)

    def test_server_outlives_killed_clients_and_garbage(self):
        with Server("--set", "death_timeout=300000000") as server:
            noise = random.Random(3)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stray:
                for _ in range(300):
                    stray.sendto(noise.randbytes(noise.randrange(1, 1400)),
                                 ("127.0.0.1", server.port))
            for round_trip in (["--lat", "--op", "send"], ["-R"], []):
                seen = len(server.lines)
                client = start("perf", server.address, "-t", 60, *round_trip)
                server.wait_line("bytes", after=seen)
                client.kill()
                client.communicate()
            self.assertIsNone(server.process.poll(), server.lines)
            self.check(figures(server.address, "-n", 10)[0]["directions"][0], 65536, 10)

    def test_interrupt_prints_the_summary(self):
        with Server() as server:
            for way in ([], ["-R"], ["--bidir"]):
                client = start("perf", server.address, "-t", 60, "-i", 0.1, *way)
                read_until(client, "[")
                client.send_signal(signal.SIGINT)
                out, err = client.communicate(timeout=BOUND)
                self.assertEqual(client.returncode, 130, err)
                self.assertIn("goodput", out)
                self.assertIn("CPU", out)
                self.assertIn("interrupted (SIGINT)", err)

    def test_server_gone_in_the_middle(self):
        for number in (signal.SIGKILL, signal.SIGINT):
            with Server() as server:
                client = start("perf", server.address, "-t", 60, "-i", 0.1)
                read_until(client, "[")
                server.stop(number)
                out, err = client.communicate(timeout=BOUND)
                self.assertEqual(client.returncode, 1, err)
                self.assertIn("the server is gone", err)
                self.assertIn(server.address, err)
                self.assertNotIn("goodput", out)

    def test_refusals_and_wrong_arguments(self):
        with Server("--memory", "1M") as server:
            result = run("perf", server.address, "-s", "1M", "-P", 4, "-n", 1)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("memory", result.stderr)
            result = run("perf", server.address, "--op", "send", "-P", 100, "-d", 1000, "-s", 1,
                         "-n", 1)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("max_receives", result.stderr)
            for op in ("write", "read"):  # the server has room for half of the client's messages
                result = run("perf", server.address, "--op", op, "-n", 100)
                self.assertEqual(result.returncode, 0, result.stderr)
            for arguments in (["--lat", "-P", 2], ["--lat", "--bidir"], ["-s", "0"], ["-s", "x"],
                              ["-t", 1, "-n", 1], ["--op", "swap"], ["-R", "--bidir"], ["--once"],
                              ["--server"], ["-d", 0], ["-a", "-s", 1], ["--lat", "--bw"],
                              ["--local", "127.0.0.1,127.0.0.2", "--planes", 2]):
                with self.subTest(arguments=arguments):
                    result = run("perf", server.address, *arguments)
                    self.assertEqual(result.returncode, 2, result.stderr)
                    self.assertIn("perf --help", result.stderr)
        self.assertEqual(run("perf").returncode, 2)
        result = run("perf", f"127.0.0.1:{server.port}", "-n", 1)
        self.assertEqual(result.returncode, 3)
        self.assertIn(f"port {server.port}", result.stderr)
        self.assertIn("Exit codes", run("perf", "--help").stdout)

    def test_the_port_may_stand_in_an_option_as_with_iperf(self):
        with Server() as server:
            host = server.address.rsplit(":", 1)[0]
            for command in (["perf", "-n", "10", "-s", "64"], ["ping", "-c", "1", "-q"]):
                done = run(*command, host, "-p", server.port)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_reads_and_atomics(self):
        with Server() as server:
            for op in ("read", "fetch-add"):
                size = ["-s", "100000"] if op == "read" else []
                for extra in ([], ["--lat"], ["-R"], ["--bidir"]):
                    r = figures(server.address, "--op", op, "-n", 200, "--verify", *size, *extra)
                    asker = r[0]["server"] if extra == ["-R"] else r[0]["client"]
                    self.assertGreaterEqual(asker["verified"], 200, (op, extra))
                    self.assertEqual(asker["verify_errors"], 0)
            wrong = run("perf", server.address, "--op", "fetch-add", "-n", 1, "-s", 16)
            self.assertEqual(wrong.returncode, 2)
            self.assertIn("8 bytes, not 16", wrong.stderr)

    def test_once(self):
        with Server("--once") as server:
            figures(server.address, "-n", 10)
            self.assertEqual(server.process.wait(BOUND), 0)


class Ping(unittest.TestCase):
    def test_any_endpoint_answers(self):
        with Server() as server:
            for size in (0, 1, 5000):
                result = run("ping", server.address, "-c", 3, "-i", 0, "-s", size, "--json", "-",
                             "--paths")
                self.assertEqual(result.returncode, 0, result.stderr)
                report = json.loads(result.stdout)
                self.assertEqual((report["sent"], report["answered"], report["size"]),
                                 (3, 3, size))
                rtt = report["rtt_ms"]
                self.assertTrue(0 < rtt["min"] <= rtt["mean"] <= rtt["max"])
                self.assertEqual(len(report["paths"]), 4)
                self.assertEqual(result.stderr.count("srtt"), 12)

    def test_reads_and_atomics_are_answered_by_the_transport(self):
        with Server() as server:
            for op, size in (("read", 0), ("read", 5000), ("fetch-add", 8)):
                result = run("ping", server.address, "-c", 3, "-i", 0, "-s", size, "--op", op,
                             "--json", "-")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(json.loads(result.stdout)["answered"], 3)
            odd = run("ping", server.address, "--op", "fetch-add", "-s", 4)
            self.assertEqual(odd.returncode, 2)

    def test_quiet_prints_the_summary_alone(self):
        with Server() as server:
            result = run("ping", server.address, "-c", 2, "-i", 0, "-q")
            self.assertEqual(result.returncode, 0)
            self.assertTrue(result.stdout.startswith("---"), result.stdout)
            self.assertIn("2 messages sent, 2 answered", result.stdout)

    def test_interrupt_prints_the_summary(self):
        with Server() as server:
            client = start("ping", server.address, "-i", 0.01)
            read_until(client, "0 bytes")
            client.send_signal(signal.SIGINT)
            out, _ = client.communicate(timeout=BOUND)
            self.assertEqual(client.returncode, 0)
            self.assertIn("min/avg/max/stddev", out)

    def test_exit_codes(self):
        with Server() as server:
            port = server.port
        self.assertEqual(run("ping", f"127.0.0.1:{port}", "-c", 1).returncode, 1)
        self.assertEqual(run("ping", "no.such.host.invalid", "-c", 1).returncode, 2)
        self.assertEqual(run("ping").returncode, 2)
        self.assertEqual(run("ping", "127.0.0.1", "-s", "x").returncode, 2)


if __name__ == "__main__":
    sys.exit(unittest.main())
