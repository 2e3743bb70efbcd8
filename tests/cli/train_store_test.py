#!/usr/bin/python3
"""Stores that a training does not fit, and damaged ones."""

import json
import os
import re
import struct

from program_case import COMMON, TEXT, StoreCase, main, run, tree


class StoreTest(StoreCase):
    def test_not_resumed(self):
        self.refused(1, ["already holds a store", "--resume|resum"],
                     self.arguments("--steps", "2"))

    def test_nothing_to_resume(self):
        self.refused(2, ["--resume: there is no store .*none", "check the path", "leave --resume"],
                     self.arguments("--resume", store=self.path("none")))
        os.mkdir(self.path("empty"))
        self.refused(1, ["empty holds no committed store", "check the path", "without"],
                     self.arguments("--resume", store=self.path("empty")))

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

    def test_data_changed(self):
        """In its length, or anywhere inside: a run goes on with the data it began with."""
        data, store = self.file("long", TEXT * 3), self.path("other")
        self.assertEqual(run(*self.arguments("--steps", "2", data=data, store=store)).returncode, 0)
        resume = self.arguments("--steps", "2", "--resume", data=data, store=store)
        self.assertEqual(run(*resume).returncode, 0)
        self.file("long", TEXT + TEXT[:-9] + b"#" + TEXT[-8:] + TEXT)
        self.refused(1, [r'values: data content \(store "[0-9a-f]{16}", now "[0-9a-f]{16}"\); '
                         "give the values and the data it was made with"], resume)
        self.file("long", TEXT * 3 + b"more")
        self.refused(1, [f"data bytes \\(store {3 * len(TEXT)}, now {3 * len(TEXT) + 4}\\)"],
                     resume)
        self.file("long", TEXT * 3)
        self.assertEqual(run(*resume).returncode, 0)



class DamageTest(StoreCase):
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
                self.assertRegex(result.stderr, "damaged in [0-9]+ places; go back")
            else:
                self.store_kept()
            self.flip("data.0", offset + 100)
        self.assertGreater(found, 5)
        self.store_kept()

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
        self.sentence(run("inspect", self.store), 1, ["did not finish", "again with the command",
                                                      "clean .* --yes"])
        self.assertEqual(tree(self.directory), before)


if __name__ == "__main__":
    main()
