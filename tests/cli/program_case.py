"""What the tests of the program's answers to bad input share: runs, trees, one sentence on error.

Each case checks the exit code, that standard error is one sentence which names the object and the
remedy, and that nothing is half-written: no store appears, or the one that was there still verifies
and goes on.
"""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

IS_ROOT = os.geteuid() == 0
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
COMMON = ["--model", "nano", "--seq", "32", "--batch", "2", "--threads", "1"]
TEXT = b"".join(b"line %d of a text that is long enough to train on\n" % i for i in range(2000))


class Program:
    """Whose path is the first argument of the test."""
    path = None


def main():
    Program.path = sys.argv.pop(1)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ["PENSTOCK_PROFILE"] = "none"  # what the user's own drives were tuned to is no input
    unittest.main(module="__main__")


def run(*arguments, program=(), **options):
    return subprocess.run([*(program or [Program.path]), *arguments], capture_output=True,
                          text=True, errors="replace",  # a young model writes anything
                          timeout=120, **options)


def wait_for_signals(process, number):
    """Returns once the process answers that signal, for which it has a thread.

    Sent earlier, it would end the program as if it had none.
    """
    while process.poll() is None:
        with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
            mask = next(line.split()[1] for line in file if line.startswith("SigBlk:"))
        if int(mask, 16) >> (number - 1) & 1:
            return
        time.sleep(0.01)
    raise AssertionError("it ended by itself: " + repr(process.communicate()))


def tree(directory):
    """Names and contents below a directory."""
    found = {}
    for path, _, names in os.walk(directory):
        for name in names:
            full = os.path.join(path, name)
            with open(full, "rb") as file:
                # owner.json only says who opened the store last.
                content = b"" if name == "owner.json" else file.read()
                found[os.path.relpath(full, directory)] = hash(content)
        found[os.path.relpath(path, directory) + "/"] = 0
    return found


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def xxh3_128(content):
    """The hash that ends headers and manifests, as they hold it."""
    function = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
    function.restype = Hash128
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return bytes(function(content, len(content)))


def events(result, kind):
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return [line for line in lines if line["event"] == kind]


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="penstock-bad-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.data = self.file("text", TEXT)
        self.store = self.path("store")

    def path(self, name):
        return os.path.join(self.directory, name)

    def file(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)
        return self.path(name)

    def arguments(self, *more, data=None, store=None):
        return ["train", *COMMON, "--data", data or self.data, "--store", store or self.store,
                *more]

    def train(self, *more, **options):
        result = run(*self.arguments(*more), **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def without_rights(self):
        """The program as a user who may not do everything; a copy, which that user can reach."""
        os.chmod(self.directory, 0o755)
        if not IS_ROOT:
            return [Program.path]
        copy = self.path("penstock")
        shutil.copy(Program.path, copy)
        os.chmod(copy, 0o755)
        return [*NOBODY, copy]

    def sentence(self, result, code, parts):
        """One sentence on standard error; `parts` are patterns in it."""
        self.assertEqual(result.returncode, code, result)
        self.assertEqual(result.stdout, "", result)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertTrue(result.stderr.startswith("penstock: "), result.stderr)
        self.assertNotIn("terminate", result.stderr)
        self.assertNotRegex(result.stderr, r"\Apenstock: (store|engine|memory|machine|model|data|"
                            r"training|trainer|plan|planner|queue|storage|prompt|visit): ",
                            "a sentence has no prefix that names a part of the program")
        for part in parts:
            self.assertRegex(result.stderr, part)

    def refused(self, code, parts, arguments, **options):
        """Fails with one sentence and changes no file at all."""
        before = tree(self.directory)
        self.sentence(run(*arguments, **options), code, parts)
        self.assertEqual(tree(self.directory), before, "nothing may be written")

    def inspect(self, store=None):
        result = run("inspect", "--verify", "--hash", "--json", store or self.store)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def still_good(self, step):
        """The store verifies, at that step."""
        self.assertEqual(self.inspect()["step"], step)


class StoreCase(Case):
    """A store with two steps in it."""

    def setUp(self):
        super().setUp()
        self.train("--steps", "2")
        self.hash = self.inspect()["hash"]

    def store_kept(self):
        self.assertEqual(self.inspect()["hash"], self.hash)

    def patch(self, name, offset, content):
        with open(os.path.join(self.store, name), "r+b") as file:
            file.seek(offset)
            file.write(content)

    def flip(self, name, offset):
        with open(os.path.join(self.store, name), "rb") as file:
            file.seek(offset)
            byte = file.read(1)[0]
        self.patch(name, offset, bytes([byte ^ 0x10]))

    def manifests(self):
        """The names of the newest commit's copies."""
        names = sorted(n for n in os.listdir(self.store) if n.startswith("manifest."))
        newest = max(re.sub(r"[^0-9]", " ", n).split()[0] for n in names)
        return [n for n in names if re.sub(r"[^0-9]", " ", n).split()[0] == newest]

    def reseal(self, name, at, length):
        """Puts the right hash behind changed bytes, as the writer of such a file would."""
        with open(os.path.join(self.store, name), "rb") as file:
            file.seek(at)
            content = file.read(length - 16)
        self.patch(name, at + len(content), xxh3_128(content))
