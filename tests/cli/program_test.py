#!/usr/bin/python3
"""Runs the program and checks exit code, standard output and standard error of each case."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = None


def run(*arguments, **options):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60,
                          **options)


class ProgramTest(unittest.TestCase):
    def refused(self, code, part, *arguments):
        """One sentence on standard error that has `part`, nothing on standard output."""
        result = run(*arguments)
        self.assertEqual(result.returncode, code, (arguments, result))
        self.assertEqual(result.stdout, "", arguments)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertTrue(result.stderr.startswith("penstock: "), result.stderr)
        self.assertIn(part, result.stderr, arguments)

    def test_version(self):
        result = run("version")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(result.stdout.startswith("penstock "))
        value = json.loads(run("version", "--json").stdout)
        self.assertEqual(value["schema"], "penstock.version/1")
        self.assertIn(value["isa"], ("scalar", "avx2", "avx512"))
        self.assertEqual(json.loads(run("--json", "version").stdout), value)

    def test_help(self):
        for arguments in (["--help"], ["version", "--help"], ["inspect", "-h"]):
            result = run(*arguments)
            self.assertEqual((result.returncode, result.stderr), (0, ""), arguments)
            self.assertIn("Usage", result.stdout)
        lines = run("--help").stdout.split("Subcommands:")[1].splitlines()
        for command in (line.split()[0] for line in lines if line.startswith("  ")):
            text = run(command, "--help").stdout
            self.assertIn("--json", text, command)
            if command != "version":
                self.assertIn(f"penstock {command} ", text.split("Example")[-1], command)

    def test_what_people_try_first(self):
        self.assertEqual(run("--version").stdout, run("version").stdout)
        self.assertEqual(run("--version", "--json").stdout, run("version", "--json").stdout)
        self.assertEqual(run("help").stdout, run("--help").stdout)
        self.assertEqual(run("help", "inspect").stdout, run("inspect", "--help").stdout)
        self.refused(2, 'did you mean "inspect"', "help", "inspekt")
        for arguments in (["--", "inspect", "/nonexistent"], ["inspect", "--", "/nonexistent"]):
            self.refused(2, "/nonexistent: No such file", *arguments)
        self.refused(2, "--json: No such file", "inspect", "--", "--json")

    def test_unknown_words(self):
        self.refused(2, 'did you mean "version"', "vershion")
        self.refused(2, 'did you mean "inspect"', "inspekt", "--verify", "x")
        self.refused(2, "it is one of", "xyzzy")
        self.refused(2, "no command is given")
        self.refused(2, 'unknown flag --jsn; did you mean "--json"', "version", "--jsn")
        self.refused(2, 'unknown flag --verfy; did you mean "--verify"', "inspect", "--verfy", "x")
        self.refused(2, 'unknown flag --quite; did you mean "--quiet"', "--quite=1", "version")
        self.refused(2, 'run "penstock version --help"', "version", "--xyzzy")
        self.refused(2, 'unexpected argument "more"', "version", "more")

    def test_bad_values(self):
        self.refused(2, '--color "blue" is not one of auto|always|never', "version", "--color",
                     "blue")
        self.refused(2, 'did you mean "always"', "version", "--color", "alwys")
        self.refused(2, "--color", "version", "--color")
        self.refused(2, "STORE is required", "inspect")

    def test_stores_that_are_none(self):
        self.refused(2, "No such file or directory", "inspect", "/nonexistent/store")
        for command in ("inspect", "scrub"):
            with tempfile.TemporaryDirectory() as directory:
                path = os.path.join(directory, "file")
                with open(path, "wb"):
                    pass
                self.refused(2, "Not a directory", command, path)
                result = run(command, directory)
                self.assertNotIn(result.returncode, (0, 77))
                self.assertEqual(result.stderr.count("\n"), 1)
                self.assertEqual(os.listdir(directory), ["file"], "it must leave nothing behind")

    def test_colors(self):
        self.assertNotIn("\x1b", run("xyzzy").stderr)
        self.assertNotIn("\x1b", run("--color", "never", "xyzzy").stderr)

    def test_json(self):
        """Data of every command is JSON with a versioned schema, one object a line."""
        lines = run("--help").stdout.split("Subcommands:")[1].splitlines()
        commands = {line.split()[0] for line in lines if line.startswith("  ")}
        with tempfile.TemporaryDirectory() as directory:
            data = os.path.join(directory, "data")
            with open(data, "wb") as file:
                file.write(b"a text that is long enough for a little training\n" * 400)
            store = os.path.join(directory, "store")
            weights = os.path.join(directory, "weights.safetensors")
            calls = [
                ("train", "train", "--model", "nano", "--seq", "32", "--batch", "2", "--threads",
                 "1", "--steps", "2", "--eval-tokens", "100", "--data", data, "--store", store),
                ("generate", "generate", "--store", store, "--tokens", "2", "--threads", "1"),
                ("inspect", "inspect", store, "--verify", "--hash", "--stats"),
                ("scrub", "scrub", store),
                ("export", "export", store, "--out", weights),
                ("safetensors", "inspect", weights),
                ("checkpoints", "checkpoint", "list", store),
                ("clean", "clean", directory),
                ("doctor", "doctor", "--no-probe", directory),
                ("bench", "bench", "io", directory, "--time", "1s", "--size", "16MiB", "--rw",
                 "read"),
                ("tune", "tune", directory, "--budget", "20s", "--size", "16MiB", "--dry-run"),
                ("version", "version"),
            ]
            self.assertEqual(commands - {call[1] for call in calls}, set(),
                             "a command without a case here")
            for schema, *arguments in calls:
                if arguments[0] not in commands:
                    continue  # a build without the trainer
                result = run(*arguments, "--json")
                if "train" not in commands and arguments[0] not in ("version", "clean", "doctor"):
                    continue
                self.assertEqual(result.returncode, 0, (arguments, result.stderr))
                self.assertNotEqual(result.stdout, "", arguments)
                for line in result.stdout.splitlines():
                    value = json.loads(line)
                    self.assertEqual(value["schema"], f"penstock.{schema}/1", arguments)

    def test_full_output(self):
        for words in (["version"], ["--help"], ["train", "--help"]):
            with open("/dev/full", "w") as full:
                result = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE,
                                        text=True, timeout=60)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, r"\Apenstock: cannot write to standard output: .*; .")

    def test_closed_pipe(self):
        """A reader that goes away is a failed write, not a signal."""
        read_end, write_end = os.pipe()
        os.close(read_end)
        result = subprocess.run([PROGRAM, "version"], stdout=write_end, stderr=subprocess.PIPE,
                                text=True, timeout=60)
        os.close(write_end)
        self.assertEqual(result.returncode, 1)
        self.assertIn("Broken pipe", result.stderr)

    def train(self):
        if "train" not in run("--help").stdout:
            self.skipTest("this build has no train command: src/train/run.cpp is missing")

    def test_checkpoints_of_a_run(self):
        """Kept while it runs, gone back to, trained on from, copied: always the same bits."""
        with tempfile.TemporaryDirectory() as place:
            path = lambda name: os.path.join(place, name)
            with open(path("data"), "wb") as file:
                file.write(bytes(i * i % 251 for i in range(4000)))

            def train(steps, *more, store=("run", "run-1")):
                drives = [word for name in store for word in ("--store", path(name))]
                result = run("train", "--model", "nano", "--data", path("data"), "--ram", "min",
                             "--batch", "2", "--seq", "32", "--eval-every", "100",
                             "--block", "16384", "--steps", str(steps), *drives, *more)
                self.assertEqual(result.returncode, 0, result)

            def checkpoint(*arguments):
                result = run("checkpoint", *arguments, "--json")
                self.assertEqual((result.returncode, result.stderr), (0, ""), result)
                return json.loads(result.stdout)

            def names(*stores):
                return [pin["name"] for pin in checkpoint("list", *stores)["checkpoints"]]

            stores = [path("run"), path("run-1")]
            train(6, "--checkpoint-every", "2", "--keep", "2")
            self.assertEqual(names(*stores), ["step-4", "step-6"])
            self.assertEqual(checkpoint("copy", *stores, "--to", path("six"))["step"], 6)
            six = json.loads(run("inspect", path("six"), "--hash", "--json").stdout)["hash"]
            both = json.loads(run("inspect", *reversed(stores), "--hash", "--json").stdout)
            self.assertEqual(both["hash"], six)
            self.assertEqual(run("scrub", *stores).returncode, 0)
            self.assertEqual(run("export", *stores, "--out", path("weights")).returncode, 0)
            self.refused(1, "one of 2 data files", "scrub", stores[0])
            self.assertEqual(checkpoint("restore", *stores, "--name", "step-4")["step"], 4)
            checkpoint("copy", *stores, "--to", path("four"), "--block", "65536", "--keep", "1")
            self.assertEqual(names(path("four")), [])
            for store in (("run", "run-1"), ("four",)):
                train(6, "--resume", store=store)
            for where in (stores, [path("four")]):
                checkpoint("copy", *where, "--to", path("end"), "--block", "32768")
                end = json.loads(run("inspect", path("end"), "--hash", "--json").stdout)
                self.assertEqual(end["hash"], six, where)
                self.assertEqual(run("clean", path("end"), "--stores", "--yes").returncode, 0)
            self.refused(1, "keep 3", "train", "--model", "nano", "--data", path("data"), "--ram",
                         "min", "--batch", "2", "--seq", "32", "--steps", "6", "--resume",
                         "--store", path("four"), "--keep", "3")

    def test_train_bad_input(self):
        self.train()
        with tempfile.TemporaryDirectory() as directory:
            store = os.path.join(directory, "store")
            short = os.path.join(directory, "short")
            with open(short, "wb") as file:
                file.write(b"too short")
            empty = os.path.join(directory, "empty")
            with open(empty, "wb"):
                pass
            tokens = os.path.join(directory, "tokens")
            with open(tokens, "wb") as file:
                file.write(b"\x05\x00" * 20000 + b"\xff\xff" + b"\x05\x00" * 20000)

            def refused(part, *arguments):
                self.refused(2, part, "train", "--store", store, "--model", "nano", *arguments)
                self.assertFalse(os.path.exists(store), "nothing may be written")

            refused("--data is missing")
            refused("No such file", "--data", os.path.join(directory, "none"))
            refused("is empty", "--data", empty)
            refused("needs at least", "--data", short)
            refused("token 65535 at byte 40000", "--data", tokens, "--vocab", "1000", "--seq", "32")
            refused('--steps "abc"', "--data", tokens, "--steps", "abc")
            refused('did you mean "--steps"', "--data", tokens, "--stesp", "3")
            refused("does not divide", "--data", tokens, "--batch", "8", "--micro", "3")
            refused("--ram", "--data", tokens, "--ram", "5X", "--seq", "32")
            self.refused(2, "--store is missing", "train", "--data", tokens)
            self.refused(2, 'did you mean "tiny"', "train", "--data", tokens, "--store", store,
                         "--model", "tiney", "--seq", "32")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
