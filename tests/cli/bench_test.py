#!/usr/bin/python3
"""penstock bench as a user meets it: what is refused, what comes out, and that nothing stays."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from program_case import wait_for_signals

PROGRAM = None
IS_ROOT = os.geteuid() == 0
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
SHORT = ["--time", "6s", "--size", "64MiB", "--rw", "read"]


def run(*arguments, program=(), **options):
    return subprocess.run([*(program or [PROGRAM]), *arguments], capture_output=True, text=True,
                          timeout=300, **options)


class BenchTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="penstock-bench-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.drive = os.path.join(self.directory, "drive")
        os.mkdir(self.drive)

    def tearDown(self):
        self.assertEqual(os.listdir(self.drive), [], "nothing stays behind")

    def path(self, name, content=None):
        path = os.path.join(self.directory, name)
        if content is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
        return path

    def refused(self, code, part, *arguments, **options):
        """One sentence on standard error that has `part`, nothing on standard output."""
        result = run(*arguments, **options)
        self.assertEqual(result.returncode, code, (arguments, result))
        self.assertEqual(result.stdout, "", arguments)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(part, result.stderr, arguments)

    def measure(self, *more):
        result = run("bench", "io", self.drive, *SHORT, "--json", *more)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout.count("\n"), 1, "one object, on one line")
        return json.loads(result.stdout)

    def test_measures_the_current_directory(self):
        result = run("bench", "io", *SHORT, "--json", cwd=self.drive)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual([target["path"] for target in json.loads(result.stdout)["targets"]], ["."])

    def test_words_and_paths(self):
        self.refused(2, "io, copy, mem or all", "bench", "disk", self.drive)
        self.refused(2, "measures no drive", "bench", "mem", self.drive)
        self.refused(2, "take io or all", "bench", "mem", "--fio")
        self.refused(2, "No such file", "bench", "io", self.path("none"))
        self.refused(2, "not a file", "bench", "io", self.path("file", "x"))

    def test_flags(self):
        for flag, value, part in (("--time", "soon", "such as 30s"), ("--time", "0", "such as 30s"),
                                  ("--time", "nan", "such as 30s"), ("--size", "many", "--size"),
                                  ("--size", "0", "--size 0"), ("--block", "5000", "4 KiB"),
                                  ("--block", "1GiB", "4 KiB"), ("--depth", "0", "--depth"),
                                  ("--rw", "append", "--rw"), ("--tolerance", "x", "--tolerance"),
                                  ("--size", "8MiB", "--size")):
            self.refused(2, part, "bench", "io", self.drive, flag, value)

    def test_space(self):
        self.refused(3, "are free", "bench", "io", self.drive, "--size", "1000TB")

    @unittest.skipUnless(IS_ROOT, "needs root, to become a user who may not write there")
    def test_a_place_that_may_not_be_written_to(self):
        os.chmod(self.directory, 0o755)
        os.chmod(self.drive, 0o555)
        self.refused(2, "that you may write to", "bench", "io", self.drive,
                     program=[*NOBODY, PROGRAM])

    def test_fio_that_is_not_there(self):
        self.refused(3, "apt-get install fio", "bench", "io", self.drive, "--fio",
                     env={**os.environ, "PATH": self.directory})

    def test_report(self):
        report = self.measure()
        self.assertEqual(report["schema"], "penstock.bench/1")
        self.assertEqual([row["name"] for row in report["rows"]], ["read"])
        row = report["rows"][0]
        self.assertEqual(set(row), {
            "name", "kind", "block_bytes", "depth", "threads", "read_share", "gb_per_second",
            "cpu_seconds_per_gb", "latency_us", "mean_depth", "window_seconds", "dropped_seconds",
            "drive_gb_per_second", "limit", "ratios", "note"})
        self.assertGreater(row["gb_per_second"]["median"], 0)
        self.assertEqual(row["gb_per_second"]["rounds"], report["rounds"])
        self.assertEqual(row["limit"]["of"], "read")
        self.assertIn(report["targets"][0]["file_bytes"], range(16 << 20, (64 << 20) + 1))
        self.assertLess(report["seconds"], 6.5 + 30, "the time bounds the command, but for a wait")

    def test_table(self):
        result = run("bench", "io", self.drive, *SHORT)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("GB/s", result.stdout)
        self.assertRegex(result.stdout, r"\nread +1 MiB +8 ")

    def test_comparison(self):
        before = self.measure()
        faster = json.loads(json.dumps(before))
        for key in ("p10", "median", "p90"):
            faster["rows"][0]["gb_per_second"][key] *= 1000
        other = json.loads(json.dumps(before))
        other["targets"][0]["device_id"] = "another"
        slower = json.loads(json.dumps(before))
        for key in ("p10", "median", "p90"):
            slower["rows"][0]["gb_per_second"][key] /= 1000
        arguments = ["bench", "io", self.drive, *SHORT, "--compare"]

        result = run(*arguments, self.path("slower.json", json.dumps(slower)))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("was", result.stdout)

        result = run(*arguments, self.path("faster.json", json.dumps(faster)), "--json")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn('"read" GB/s -99.', result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)
        changes = json.loads(result.stdout)["comparison"]["changes"]
        self.assertEqual([change["regression"] for change in changes], [True])

        self.refused(2, "the device was another", *arguments,
                     self.path("other.json", json.dumps(other)))
        self.refused(2, "its schema is", *arguments, self.path("schema.json", "{}"))
        self.refused(2, "No such file", *arguments, self.path("none.json"))
        result = run(*arguments, self.path("before.json", json.dumps(before)), "--block", "64KiB")
        self.assertEqual(result.returncode, 2)
        self.assertIn("the block was 1048576", result.stderr)

    def stopped(self, *more):
        process = subprocess.Popen([PROGRAM, "bench", "io", self.drive, "--size", "64MiB", "--time",
                                    "120s", *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for_signals(process, signal.SIGINT)
        time.sleep(0.5)  # into the middle; earlier or later would do as well
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)

    def test_ctrl_c(self):
        self.stopped()
        if shutil.which("fio"):
            self.stopped("--fio", "--rw", "read")

    def test_kill(self):
        process = subprocess.Popen([PROGRAM, "bench", "io", self.drive, "--size", "64MiB"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        process.kill()
        process.wait(timeout=60)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
