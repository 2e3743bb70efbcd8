#!/usr/bin/python3
"""penstock tune as a user meets it: what is refused, what comes out, what is written and used."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

from program_case import wait_for_signals

PROGRAM = None
IS_ROOT = os.geteuid() == 0
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
SHORT = ["--budget", "20s", "--size", "64MiB"]


class TuneTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="penstock-tune-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.drive = self.path("drive")
        os.mkdir(self.drive)
        self.config = self.path("config")
        self.profile = os.path.join(self.config, "penstock", "profile.toml")
        self.environment = {name: value for name, value in os.environ.items()
                            if name not in ("PENSTOCK_PROFILE", "HOME", "XDG_CONFIG_HOME")}
        self.environment["XDG_CONFIG_HOME"] = self.config

    def tearDown(self):
        self.assertEqual(os.listdir(self.drive), [], "nothing stays behind")

    def path(self, name, content=None):
        path = os.path.join(self.directory, name)
        if content is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
        return path

    def run_program(self, *arguments, program=(), **more):
        return subprocess.run([*(program or [PROGRAM]), *arguments], capture_output=True,
                              text=True, timeout=300, env={**self.environment, **more})

    def refused(self, code, part, *arguments, program=(), **more):
        """One sentence on standard error that has `part`, nothing on standard output or kept."""
        result = self.run_program("tune", *arguments, program=program, **more)
        self.assertEqual(result.returncode, code, (arguments, result))
        self.assertEqual(result.stdout, "", arguments)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(part, result.stderr, arguments)
        self.assertFalse(os.path.exists(self.profile))

    def tune(self, *more, **environment):
        result = self.run_program("tune", self.drive, *SHORT, "--json", *more, **environment)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout.count("\n"), 1, "one object, on one line")
        return json.loads(result.stdout)

    def test_paths_and_flags(self):
        self.refused(2, "PATH", "--dry-run")
        self.refused(2, "No such file", self.path("none"))
        self.refused(2, "not a file", self.path("file", "x"))
        for flag, value, part in (("--budget", "soon", "such as 30s"),
                                  ("--budget", "3s", "grant 10s at least"),
                                  ("--size", "0", "--size 0"), ("--size", "8MiB", "--size"),
                                  ("--seed", "-1", "--seed")):
            self.refused(2, part, self.drive, flag, value)
        self.refused(3, "are free", self.drive, "--size", "1000TB")

    def test_places_for_the_profile(self):
        del self.environment["XDG_CONFIG_HOME"]
        self.refused(2, "neither XDG_CONFIG_HOME nor HOME", self.drive)
        self.refused(2, "PENSTOCK_PROFILE is none", self.drive, PENSTOCK_PROFILE="none")
        self.refused(1, "cannot be written", self.drive,
                     PENSTOCK_PROFILE=self.path("file", "x") + "/profile.toml")
        self.refused(2, "not a profile", self.drive, PENSTOCK_PROFILE=self.path("file", "x"))
        self.refused(2, "no regular file", self.drive, PENSTOCK_PROFILE="/dev/null")

    @unittest.skipUnless(IS_ROOT, "needs root, to become a user who may not write there")
    def test_places_that_may_not_be_written_to(self):
        os.chmod(self.directory, 0o755)
        copy = self.path("penstock")
        shutil.copy(PROGRAM, copy)
        os.chmod(copy, 0o755)
        os.mkdir(self.config, 0o755)
        self.refused(1, "cannot be written: Permission denied", self.drive,
                     program=[*NOBODY, copy])
        os.chmod(self.config, 0o777)
        self.refused(2, "that you may write to", self.drive, program=[*NOBODY, copy])

    def test_profile(self):
        second = self.path("drive/second")
        os.mkdir(second)
        self.addCleanup(shutil.rmtree, second, ignore_errors=True)
        report = self.tune(second)
        self.assertEqual(report["schema"], "penstock.tune/1")
        self.assertEqual(len(report["drives"]), 1, "two directories on one drive count once")
        self.assertIn("counts once", report["notes"][0])
        drive = report["drives"][0]
        self.assertIn("writes", [curve["knob"].split()[0] for curve in drive["curves"]])
        for curve in drive["curves"]:
            values = [point["value"] for point in curve["points"]]
            self.assertIn(curve["chosen"], values)
            self.assertIn(curve["before"], values)
        self.assertGreater(drive["default"]["gb_per_second"]["median"], 0)
        self.assertGreater(drive["default"]["rounds"], 0)
        self.assertEqual(report["profile"], self.profile)
        self.assertEqual(stat.S_IMODE(os.stat(self.profile).st_mode), 0o600)
        self.assertEqual(os.listdir(os.path.dirname(self.profile)), ["profile.toml"])
        with open(self.profile, encoding="utf-8") as file:
            text = file.read()
        self.assertIn('schema = "penstock.profile/1"', text)
        self.assertEqual(text.count("[[drive]]"), 1)
        self.assertIn(f'device = "{drive["device_id"]}"', text)
        os.rmdir(second)

    def test_table_and_dry_run(self):
        result = self.run_program("tune", self.drive, *SHORT, "--dry-run")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"\npiece\n")
        self.assertRegex(result.stdout, r"\n > .* #+")
        self.assertIn("no profile was written", result.stdout)
        self.assertFalse(os.path.exists(self.config))

    def test_ctrl_c(self):
        process = subprocess.Popen([PROGRAM, "tune", self.drive, "--size", "64MiB", "--budget",
                                    "120s"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=self.environment)
        wait_for_signals(process, signal.SIGINT)
        time.sleep(0.5)  # into the middle; earlier or later would do as well
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertFalse(os.path.exists(self.config), "nothing is written")

    def train(self, store, *more, **environment):
        data = self.path("text", "a text that is long enough to train on\n" * 2000)
        result = self.run_program("train", "--model", "nano", "--seq", "32", "--batch", "2",
                                  "--threads", "1", "--steps", "3", "--ram", "min", "--data", data,
                                  "--store", self.path(store), "--json", *more, **environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [json.loads(line) for line in result.stdout.splitlines()], result.stderr

    def test_training_uses_it_and_gives_the_same_bits(self):
        plain = self.train("store-1")[0]
        start = next(line for line in plain if line["event"] == "start")
        self.assertEqual(start["profile"], "")
        damaged = 'schema = "penstock.profile/1"\n[[drive]]\n'
        os.makedirs(os.path.dirname(self.profile))
        with open(self.profile, "w", encoding="utf-8") as file:
            file.write(damaged)
        report = self.tune()
        self.assertEqual(report["moved"], self.profile + ".old", "kept beside the new one")
        with open(self.profile + ".old", encoding="utf-8") as file:
            self.assertEqual(file.read(), damaged)
        with open(self.profile, encoding="utf-8") as file:
            text = file.read()
        # Whatever was found: everything set, to be seen.
        lines = [line for line in text.splitlines() if "_credit_" not in line and
                 not line.startswith(("queue", "piece", "register"))]
        at = next(i for i, line in enumerate(lines) if line.startswith("default_read"))
        lines[at:at] = ['queue = "threads"', "piece_bytes = 65536", "read_credit_bytes = 262144",
                        "write_credit_bytes = 67108864", "register_memory = false"]
        with open(self.profile, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        tuned = self.train("store-2")[0]
        start = next(line for line in tuned if line["event"] == "start")
        self.assertEqual(start["profile"], self.profile)
        self.assertEqual(start["queue"], "threads")
        end = [next(line for line in lines if line["event"] == "end") for lines in (plain, tuned)]
        self.assertEqual(end[0]["held_out_loss"], end[1]["held_out_loss"])
        hashes = [json.loads(self.run_program("inspect", "--hash", "--json",
                                              self.path(store)).stdout)["hash"]
                  for store in ("store-1", "store-2")]
        self.assertEqual(hashes[0], hashes[1])

        for environment in ({"PENSTOCK_PROFILE": "none"}, {"XDG_CONFIG_HOME": self.path("else")}):
            start = next(line for line in self.train("store-3", **environment)[0]
                         if line["event"] == "start")
            self.assertEqual(start["profile"], "")
            shutil.rmtree(self.path("store-3"))
        start = next(line for line in self.train("store-3", "--queue", "uring")[0]
                     if line["event"] == "start") if report["drives"][0]["queue"] == "io_uring" \
            else {"profile": ""}
        self.assertEqual(start["profile"], "", "options go first")

    def test_a_damaged_profile_is_one_warning(self):
        os.makedirs(os.path.dirname(self.profile))
        for content in ("nonsense", 'schema = "penstock.profile/9"\n'):
            with open(self.profile, "w", encoding="utf-8") as file:
                file.write(content)
            events, _ = self.train("store-1")
            notes = [line["text"] for line in events if line["event"] == "note" and
                     self.profile in line["text"]]
            self.assertEqual(len(notes), 1, events)
            self.assertIn('run "penstock tune" again', notes[0])
            shutil.rmtree(self.path("store-1"))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
