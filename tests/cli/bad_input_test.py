#!/usr/bin/python3
"""Every kind of bad input to a training, and what must be left behind.

Each case checks the exit code, that standard error is one sentence which names the object and the
remedy, and that nothing is half-written: no store appears, or the one that was there still verifies
and goes on.
"""
# lint: long because every kind of input passes the same checks

import ctypes
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = None
IS_ROOT = os.geteuid() == 0
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
COMMON = ["--model", "nano", "--seq", "32", "--batch", "2", "--threads", "1"]
TEXT = b"".join(b"line %d of a text that is long enough to train on\n" % i for i in range(2000))


def run(*arguments, program=(), **options):
    return subprocess.run([*(program or [PROGRAM]), *arguments], capture_output=True, text=True,
                          errors="replace", timeout=120, **options)  # a young model writes anything


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
            return [PROGRAM]
        copy = self.path("penstock")
        shutil.copy(PROGRAM, copy)
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


class DataTest(Case):
    def test_missing(self):
        self.refused(2, ["none", "No such file"], self.arguments(data=self.path("none")))

    def test_directory(self):
        os.mkdir(self.path("folder"))
        self.refused(2, ["folder", "not a regular file"], self.arguments(data=self.path("folder")))

    def test_unreadable(self):
        os.chmod(self.data, 0)
        program = self.without_rights()
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        before = os.listdir(self.directory)
        self.sentence(run(*self.arguments(store=self.path("open/store")), program=program), 2,
                      ["text", "Permission denied"])
        self.assertEqual(os.listdir(self.path("open")), [])
        self.assertEqual(os.listdir(self.directory), before)

    def test_empty(self):
        self.refused(2, ["nothing", "is empty"], self.arguments(data=self.file("nothing", b"")))

    def test_too_short(self):
        self.refused(2, ["tiny", "needs at least [0-9]+"],
                     self.arguments(data=self.file("tiny", b"short")))

    def test_shortest_that_works(self):
        """The length in the message is one that works."""
        result = run(*self.arguments(data=self.file("tiny", b"short")))
        needed = int(re.search("needs at least ([0-9]+)", result.stderr)[1])
        self.refused(2, ["needs at least"],
                     self.arguments(data=self.file("tiny", TEXT[:needed - 1])))
        self.file("tiny", TEXT[:needed])
        result = run(*self.arguments("--steps", "1", data=self.path("tiny")))
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_odd_length(self):
        self.refused(2, ["odd"], self.arguments("--vocab", "1000",
                                                data=self.file("odd", b"\x01" * 20001)))

    def test_token_outside_vocabulary(self):
        tokens = self.file("tokens", struct.pack("<H", 5) * 20000 + struct.pack("<H", 1000) +
                           struct.pack("<H", 5) * 20000)
        self.refused(2, ["tokens", "token 1000 at byte 40000", "1000"],
                     self.arguments("--vocab", "1000", data=tokens))

    def test_vocabulary_of_data_and_model(self):
        config = self.file("config.json", json.dumps(self.config(vocab_size=100)).encode())
        self.refused(2, ["vocabulary of 256", "vocab_size", "100"],
                     ["train", "--config", config, "--data", self.data, "--store", self.store])

    @staticmethod
    def config(**changes):
        values = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
                  "vocab_size": 256, "max_position_embeddings": 128}
        values.update(changes)
        return values


class ModelTest(Case):
    def config(self, **changes):
        text = json.dumps(DataTest.config(**changes)).encode()
        return ["train", "--config", self.file("config.json", text), "--data", self.data,
                "--store", self.store, "--seq", "32"]

    def test_unknown(self):
        arguments = ["train", "--data", self.data, "--store", self.store, "--model"]
        self.refused(2, ['"tiney"', 'did you mean "tiny"'], [*arguments, "tiney"])
        self.refused(2, ['"xyzzy"', "known sizes are nano, tiny"], [*arguments, "xyzzy"])
        self.refused(2, ["none.json", "No such file"], [*arguments, self.path("none.json")])

    def test_config_fields(self):
        self.refused(2, ["config.json", "model_type", "mamba"], self.config(model_type="mamba"))
        self.refused(2, ["attention_bias", "supports only false"],
                     self.config(attention_bias=True))
        self.refused(2, ["hidden_act", "gelu"], self.config(hidden_act="gelu"))
        self.refused(2, ["num_hidden_layers", "whole number"], self.config(num_hidden_layers=-1))
        self.refused(2, ["num_experts"], self.config(num_experts=8))
        self.refused(2, ["rope_scaling"], self.config(rope_scaling={"type": "linear",
                                                                    "factor": 2.0}))
        self.refused(2, ["num_key_value_heads"], self.config(num_key_value_heads=3))

    def test_config_that_is_none(self):
        for content in (b"", b"{", b"[1]", b"\xff\xfe", b'{"model_type": "llama"}'):
            path = self.file("config.json", content)
            self.refused(2, ["config.json"], ["train", "--config", path, "--data", self.data,
                                              "--store", self.store])

    def test_good_config_works(self):
        result = run(*self.config(), "--steps", "1", "--batch", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.still_good(1)

    def test_sequence_beyond_positions(self):
        self.refused(2, ["--seq 256", "128 positions", "shorter"],
                     [*self.config()[:-2], "--seq", "256"])


class FlagTest(Case):
    def test_unknown_flags(self):
        self.refused(2, ["--stesp", 'did you mean "--steps"'], self.arguments("--stesp", "3"))
        self.refused(2, ["--rma", 'did you mean "--ram"'], self.arguments("--rma=3MiB"))
        self.refused(2, ["--xyzzy", "train --help"], self.arguments("--xyzzy"))

    def test_the_last_one_counts(self):
        self.assertEqual(events(self.train("--steps", "5", "--steps", "1", "--json"),
                                "end")[0]["step"], 1)

    def test_bad_values(self):
        self.refused(2, ["--batch 4", "--micro 3"], self.arguments("--batch", "4", "--micro", "3"))
        self.refused(2, ["--steps", "0"], self.arguments("--steps", "0"))
        self.refused(2, ["--lr", "nan"], self.arguments("--lr", "nan"))
        self.refused(2, ["--ram \"5X\" is not a size"], self.arguments("--ram", "5X"))
        self.refused(2, ["--scratch", "--resume"], self.arguments("--scratch", "--resume"))
        self.refused(2, ["--queue", "threads"], self.arguments("--queue", "thread"))


class BudgetTest(Case):
    def test_the_smallest_that_works_works(self):
        below = self.arguments("--ram", "1MiB")
        self.refused(2, ["--ram", "host memory is short by", "1.00 MiB|1 MiB"], below)
        smallest = int(re.search(r"smallest that works is --ram ([0-9]+)", run(*below).stderr)[1])
        self.refused(2, ["short by"], self.arguments("--ram", str(smallest - 1)))
        self.train("--ram", str(smallest), "--steps", "2")
        self.still_good(2)

    def test_resume_below_the_minimum(self):
        self.train("--steps", "2")
        self.refused(2, ["short by"], self.arguments("--steps", "2", "--resume", "--ram", "1MiB"))
        self.still_good(2)

    def test_blocks_of_the_store_decide_the_minimum(self):
        """Not those that a new store would get."""
        self.train("--steps", "1", "--block", "65536")
        smallest = self.train("--steps", "1", "--resume", "--ram", "min", "--json")
        bytes_used = events(smallest, "start")[0]["ram_bytes"]
        self.refused(2, ["short by"], self.arguments("--steps", "1", "--resume", "--ram",
                                                     str(bytes_used - 1)))
        result = run("generate", "--store", self.store, "--tokens", "2", "--ram", "min")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_generate_below_the_minimum(self):
        self.train("--steps", "1")
        below = ["generate", "--store", self.store, "--tokens", "2", "--ram"]
        self.sentence(run(*below, "1MiB"), 2, ["short by"])
        smallest = re.search(r"smallest that works is --ram ([0-9]+)", run(*below, "1MiB").stderr)
        result = run(*below, smallest[1])
        self.assertEqual(result.returncode, 0, result.stderr)


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


class StoreTest(StoreCase):
    def test_not_resumed(self):
        self.refused(1, ["already holds a store", "--resume|resum"],
                     self.arguments("--steps", "2"))

    def test_nothing_to_resume(self):
        self.refused(1, ["none", "no committed store", "without"],
                     self.arguments("--resume", store=self.path("none")))

    def test_other_model(self):
        self.refused(1, ["another model", "wpe|another directory"],
                     ["train", "--model", "nano-gpt2", *COMMON[2:], "--data", self.data,
                      "--store", self.store, "--steps", "2", "--resume"])
        self.store_kept()

    def test_other_hyper_parameters(self):
        for flag, value, name in (("--lr", "0.5", "lr"), ("--seed", "9", "seed"),
                                  ("--clip", "7", "clip"), ("--warmup", "3", "warmup"),
                                  ("--batch", "4", "batch"), ("--seq", "16", "seq"),
                                  ("--compute", "fp32", "compute")):
            self.refused(1, [f"{name} \\(store .*, now {value}" if flag != "--compute" else name],
                         self.arguments("--steps", "2", flag, value, "--resume"))
        self.refused(1, ["lr", "clip"], self.arguments("--steps", "2", "--lr", "0.5", "--clip",
                                                       "7", "--resume"))
        self.store_kept()

    def test_other_data(self):
        other = self.file("other", TEXT[1:])
        self.refused(1, ["data"], self.arguments("--steps", "2", "--resume", data=other))
        self.store_kept()

    def newer(self, where, found):
        """Every command says that the version is the reason, and touches nothing."""
        for arguments in (["inspect", self.store], self.arguments("--steps", "3", "--resume"),
                          ["generate", "--store", self.store]):
            self.refused(3, [re.escape(os.path.join(self.store, where)),
                             rf"has format {found}\.0, this build reads up to 2\.x",
                             r"use a newer Penstock$"], arguments)

    def test_header_of_a_newer_version(self):
        for at in (0, 4096):
            self.patch("data.0", at + 8, struct.pack("<I", 99))
            self.reseal("data.0", at, 4096)
        self.newer("data.0", 99)

    def test_manifest_of_a_newer_version(self):
        for name in self.manifests():
            self.patch(name, 8, struct.pack("<I", 3))
            with open(os.path.join(self.store, name), "rb") as file:
                length = struct.unpack_from("<Q", file.read(56), 48)[0]  # the file may be longer
            self.reseal(name, 0, length)
        self.newer("manifest", 3)

    def test_foreign_directory(self):
        """Files of another program are left alone."""
        os.mkdir(self.path("theirs"))
        self.file("theirs/data.0", b"their data" * 1000)
        self.refused(1, ["was not made by Penstock", "another directory"],
                     self.arguments(store=self.path("theirs")))

    def test_store_is_a_file(self):
        self.refused(2, ["text", "[Nn]ot a directory"], self.arguments(store=self.data))

    def test_generate(self):
        result = run("generate", "--store", self.path("none"))
        self.sentence(result, 2, ["none", "No such file"])
        self.assertFalse(os.path.exists(self.path("none")))
        self.refused(2, ["--store is missing"], ["generate"])

    def test_data_changed_its_length(self):
        with open(self.data, "ab") as file:
            file.write(b"more")
        self.refused(1, ["data"], self.arguments("--steps", "2", "--resume"))


class DamageTest(StoreCase):
    def flip(self, name, offset):
        path = os.path.join(self.store, name)
        with open(path, "rb") as file:
            file.seek(offset)
            byte = file.read(1)[0]
        self.patch(name, offset, bytes([byte ^ 0x10]))

    def damaged(self, parts=()):
        """Neither command goes on from damage, and neither makes it worse."""
        before = tree(self.directory)
        for arguments in (["inspect", "--verify", self.store],
                          self.arguments("--steps", "3", "--resume")):
            result = run(*arguments)
            self.assertEqual(result.returncode, 1, result)
            self.assertTrue(result.stderr.strip().splitlines()[-1].startswith("penstock: "),
                            result.stderr)
            for part in parts:
                self.assertRegex(result.stderr + result.stdout, part)
            self.assertEqual(tree(self.directory), before)

    def test_header_that_only_looks_newer(self):
        """Without the hash it is damage, and the other copy counts."""
        self.patch("data.0", 8, struct.pack("<I", 99))
        self.store_kept()
        self.patch("data.0", 4096 + 8, struct.pack("<I", 99))
        self.damaged(["data.0 header at 0 fails its checksum"])

    def test_flipped_data(self):
        """Every page of the file: what belongs to the commit is found, the rest does not matter."""
        size = os.path.getsize(os.path.join(self.store, "data.0"))
        found = 0
        for offset in range(8192, size, max(4096, size // 40 // 4096 * 4096)):
            self.flip("data.0", offset + 100)
            result = run("inspect", "--verify", self.store)
            self.assertIn(result.returncode, (0, 1), result)
            if result.returncode == 1:
                found += 1
                self.assertRegex(result.stderr, "damaged in [0-9]+ places; restore")
            else:
                self.store_kept()
            self.flip("data.0", offset + 100)
        self.assertGreater(found, 5)
        self.store_kept()

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

    def test_flipped_manifest(self):
        names = self.manifests()
        self.assertEqual(len(names), 2)
        self.flip(names[0], 300)
        self.assertEqual(self.inspect()["hash"], self.hash, "the other copy counts")
        self.flip(names[1], 300)
        result = run("inspect", "--verify", self.store)
        if result.returncode == 1:
            self.sentence(result, 1, ["manifest"])
        else:  # every byte of the commit before is still there
            self.assertLess(self.inspect()["step"], 2)

    def test_truncated(self):
        path = os.path.join(self.store, "data.0")
        size = os.path.getsize(path)
        for length in (size - 4096, size // 2, 4096, 0):
            os.truncate(path, length)
            self.damaged(["data.0"])

    def test_lost_manifests(self):
        for name in os.listdir(self.store):
            if name.startswith("manifest."):
                os.unlink(os.path.join(self.store, name))
        before = tree(self.directory)
        self.sentence(run("inspect", self.store), 1, ["did not finish", "again"])
        self.assertEqual(tree(self.directory), before)


class PlaceTest(Case):
    def test_not_writable(self):
        os.mkdir(self.path("locked"))
        os.chmod(self.path("locked"), 0o555)
        program = self.without_rights()
        before = tree(self.directory)
        result = run(*self.arguments(store=self.path("locked/store")), program=program)
        self.sentence(result, 2, ["locked", "Permission denied"])
        result = run(*self.arguments(store=self.path("locked")), program=program)
        self.sentence(result, 2, ["locked", "Permission denied"])
        self.assertEqual(tree(self.directory), before)

    def test_parent_is_missing(self):
        self.refused(2, ["nowhere", "No such file"],
                     self.arguments(store=self.path("nowhere/deeper/store")))

    def small_drive(self):
        place = self.path("drive")
        os.mkdir(place)
        if not IS_ROOT or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place],
                                         capture_output=True).returncode != 0:
            self.skipTest("a drive of 2 MiB needs the right to mount a tmpfs: run as root")
        self.addCleanup(subprocess.run, ["umount", place], check=True)
        return place

    def test_drive_too_small(self):
        place = self.small_drive()
        result = run(*self.arguments(store=os.path.join(place, "store")))
        self.sentence(result, 3, [r"needs .* \([0-9]+ bytes\)", "free", "another drive"])
        self.assertEqual(os.listdir(place), [], "nothing may be written")
        needed = int(re.search(r"needs .*? \(([0-9]+) bytes\)", result.stderr)[1])
        self.assertGreater(needed, 2 << 20)
        subprocess.run(["mount", "-o", f"remount,size={needed + (1 << 20)}", place], check=True)
        result = run(*self.arguments("--steps", "2", store=os.path.join(place, "store")))
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_drive_too_small_for_scratch(self):
        place = self.small_drive()
        result = run(*self.arguments("--scratch", store=os.path.join(place, "store")))
        self.sentence(result, 3, [r"needs .* \([0-9]+ bytes\)", "another drive"])
        self.assertEqual(os.listdir(place), [], "nothing may be written")

    def test_file_size_limit(self):
        """Known before anything is written, with the limit that is enough."""
        def limited(size):
            return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))}
        arguments = self.arguments("--steps", "2")
        self.refused(3, [re.escape(self.store), r"needs a file of .* \([0-9]+ bytes\)",
                         "files of 1 MiB", "ulimit -f"], arguments, **limited(1 << 20))
        needed = int(re.search(r"needs a file of .*? \(([0-9]+) bytes\)",
                               run(*arguments, **limited(1 << 20)).stderr)[1])
        self.refused(3, ["ulimit -f"], arguments, **limited(needed - 1))
        self.assertEqual(run(*arguments, **limited(needed)).returncode, 0)
        self.still_good(2)

    def test_full_output(self):
        """A full standard output is an error, but the work is not lost."""
        with open("/dev/full", "w") as full:
            result = subprocess.run([PROGRAM, *self.arguments("--json", "--steps", "3")],
                                    stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("cannot write to standard output", result.stderr)
        self.still_good(3)


class SignalTest(Case):
    STEPS = "4000"

    def start(self, *more, steps=STEPS):
        process = subprocess.Popen(
            [PROGRAM, *self.arguments("--steps", steps, "--commit-every", "5", "--json", *more)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    @staticmethod
    def wait_for_step(process, step):
        losses = {}
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "step":
                losses[event["step"]] = event["loss"]
                if event["step"] >= step:
                    return losses
        raise AssertionError("the run ended early: " + process.stderr.read())

    def test_interrupt_and_resume(self):
        process = self.start()
        self.wait_for_step(process, 7)
        process.send_signal(signal.SIGINT)
        rest, message = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, message)
        self.assertRegex(message, "--resume")
        end = [json.loads(line) for line in rest.splitlines()][-1]
        self.assertEqual(end["event"], "end")
        self.assertTrue(end["stopped"])
        self.assertEqual(end["committed_step"], end["step"], "nothing may be lost")
        self.still_good(end["step"])
        process = self.start("--resume")
        again = self.wait_for_step(process, end["step"] + 2)
        self.assertEqual(min(again), end["step"] + 1)
        process.kill()
        process.communicate()

    def test_terminate(self):
        process = self.start()
        self.wait_for_step(process, 3)
        process.send_signal(signal.SIGTERM)
        _, message = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, message)

    def test_second_interrupt(self):
        process = self.start()
        self.wait_for_step(process, 7)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        step = self.inspect()["step"]
        process = self.start("--resume")
        self.assertEqual(min(self.wait_for_step(process, step + 1)), step + 1)
        process.kill()
        process.communicate()

    def test_file_size_limit(self):
        """One that comes in the middle of a run: SIGXFSZ does not end it, the error is told."""
        for queue in ("threads", "auto"):
            process = self.start("--ram", "min", "--queue", queue,
                                 *(["--resume"] if os.path.exists(self.store) else []))
            self.wait_for_step(process, 7)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
            _, message = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 3, message)
            self.assertRegex(message, r"\Apenstock: .*File too large; the last commit "
                             r"\(step [0-9]+\) is safe: .*file size limit, then resume\n\Z")
            step = self.inspect()["step"]
            self.assertGreaterEqual(step, 5)
            process = self.start("--ram", "min", "--resume")
            self.assertEqual(min(self.wait_for_step(process, step + 2)), step + 1)
            process.kill()
            process.communicate()

    def test_store_in_use(self):
        process = self.start()
        self.wait_for_step(process, 6)
        for arguments in (self.arguments("--steps", self.STEPS, "--resume"),
                          self.arguments("--steps", self.STEPS)):
            result = run(*arguments)
            self.sentence(result, 1, ["store", "in use|already holds"])
        result = run(*self.arguments("--steps", self.STEPS, "--commit-every", "5", "--resume"))
        self.assertIn(str(process.pid), result.stderr, "whose it is")
        self.assertEqual(run("inspect", self.store).returncode, 0, "looking is allowed")
        self.wait_for_step(process, 8)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.inspect()

    def test_reader_goes_away(self):
        """A reader that goes away is an error, but the work is not lost."""
        process = self.start(steps="300")
        self.wait_for_step(process, 3)
        process.stdout.close()
        message = process.stderr.read()
        self.assertEqual(process.wait(timeout=60), 1, message)
        self.assertIn("cannot write to standard output", message)
        self.still_good(300)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    unittest.main()
