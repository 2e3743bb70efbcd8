#!/usr/bin/python3
"""Text from a store: bad input, damage, stores that this user cannot write, and those in use."""

import json
import os
import random
import re
import shutil
import signal
import subprocess

from program_case import IS_ROOT, Program, StoreCase, main, run, tree

TEXT_FLAGS = ["--tokens", "5", "--temperature", "0", "--json"]


class GenerateTest(StoreCase):
    def test_no_store(self):
        result = run("generate", "--store", self.path("none"))
        self.sentence(result, 2, ["none", "No such file"])
        self.assertFalse(os.path.exists(self.path("none")))
        self.refused(2, ["--store is missing"], ["generate"])

    def test_below_the_minimum(self):
        below = ["generate", "--store", self.store, "--tokens", "2", "--ram"]
        self.sentence(run(*below, "1MiB"), 2, ["short by"])
        smallest = re.search(r"smallest that works is --ram ([0-9]+)", run(*below, "1MiB").stderr)
        result = run(*below, smallest[1])
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_reading_flipped_weights(self):
        """A model is not used with a wrong byte: the place is named, and nothing is written."""
        size = os.path.getsize(os.path.join(self.store, "data.0"))
        pages = list(range(8192, size, 4096))
        random.Random(1).shuffle(pages)  # in order, hundreds of pages come before the weights
        for offset in pages:
            self.flip("data.0", offset + 100)
            result = run("inspect", "--verify", "--json", self.store)
            if [bad["section"] for bad in json.loads(result.stdout)["damage"]] == ["hi"]:
                break
            self.flip("data.0", offset + 100)
        else:
            self.fail("no byte of the weights was met")
        before = tree(self.directory)
        result = run("generate", "--store", self.store, "--tokens", "1", "--ram", "min")
        self.assertEqual(result.returncode, 1, result)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, "penstock: .*data.0")
        self.assertEqual(tree(self.directory), before)

    def test_store_that_may_only_be_read(self):
        """It writes nothing, so it needs no right to write: not in the directory, nor the files."""
        if IS_ROOT and "thread" in json.loads(run("version", "--json").stdout)["sanitizers"]:
            self.skipTest("another user cannot read the oneTBB that is built for the thread "
                          "sanitizer; the other builds run this test")
        want = run("generate", "--store", self.store, *TEXT_FLAGS)
        self.assertEqual(want.returncode, 0, want.stderr)
        for name in os.listdir(self.store):
            os.chmod(os.path.join(self.store, name), 0o444)
        os.chmod(self.store, 0o555)
        before = tree(self.directory)
        owner = os.stat(os.path.join(self.store, "owner.json")).st_ino
        program = self.without_rights()
        result = run("generate", "--store", self.store, *TEXT_FLAGS, program=program)
        self.assertEqual((result.returncode, result.stdout), (0, want.stdout), result.stderr)
        os.remove(self.path("penstock")) if IS_ROOT else None
        self.assertEqual(tree(self.directory), before)
        self.assertEqual(os.stat(os.path.join(self.store, "owner.json")).st_ino, owner,
                         "who opened it last stays as it is")
        os.chmod(self.store, 0o300)
        if IS_ROOT:
            shutil.copy(Program.path, self.path("penstock"))
        self.sentence(run("generate", "--store", self.store, program=program), 2,
                      ["Permission denied", "right to read"])
        os.chmod(self.store, 0o700)

    def test_read_only_mount(self):
        place = self.path("mounted")
        os.mkdir(place)
        if not IS_ROOT or subprocess.run(["mount", "--bind", self.store, place],
                                         capture_output=True).returncode != 0:
            self.skipTest("a read-only mount needs the right to mount: run as root")
        self.addCleanup(subprocess.run, ["umount", place], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
        result = run("generate", "--store", place, *TEXT_FLAGS)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_store_in_use(self):
        process = subprocess.Popen([Program.path, *self.arguments("--steps", "100000", "--json",
                                                                  store=self.path("other"))],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if json.loads(line)["event"] == "step":
                break
        result = run("generate", "--store", self.path("other"), *TEXT_FLAGS)
        self.sentence(result, 1, ["other is in use by pid " + str(process.pid), "end that process"])
        process.send_signal(signal.SIGINT)
        process.communicate()
        result = run("generate", "--store", self.path("other"), *TEXT_FLAGS)
        self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    main()
