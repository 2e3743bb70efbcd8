#!/usr/bin/python3
"""What clean says of damaged stores and of copies of one, and that it keeps them unless asked."""

import json
import os
import shutil

from program_case import StoreCase, main, run, tree


class CleanTest(StoreCase):
    def copy(self, name):
        shutil.copytree(self.store, self.path(name))
        return self.path(name)

    def finds(self, *flags):
        result = run("clean", self.directory, "--json", *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        return {os.path.basename(item["path"]): item for item in json.loads(result.stdout)["items"]}

    def manifests_in(self, store):
        return [os.path.join(store, name) for name in os.listdir(store)
                if name.startswith("manifest.")]

    def setUp(self):
        super().setUp()
        shutil.rmtree(self.store)  # for one whose manifests went round
        self.train("--steps", "6", "--commit-every", "1")

    def damaged(self):
        """Stores that are none any more, and what is to be said of each."""
        os.truncate(os.path.join(self.copy("cut"), "data.0"), 100000)
        os.remove(os.path.join(self.copy("missing"), "data.0"))
        self.file(os.path.join(self.copy("foreign"), "data.0"), b"another program's" * 1000)
        self.file(os.path.join(self.copy("headless"), "data.0"), bytes(100000))
        for name in self.manifests_in(self.copy("lost")):
            os.remove(name)
        for name in self.manifests_in(self.copy("overwritten")):
            self.file(name, b"another program's")
        for name in self.manifests_in(self.copy("flipped")):
            with open(name, "r+b") as file:
                file.seek(200)
                file.write(b"####")
        young = self.path("young")
        self.assertEqual(run(*self.arguments("--steps", "1", store=young)).returncode, 0)
        for name in self.manifests_in(young):
            os.remove(name)
        return {"young": "no manifest is left", "cut": "was cut to 100000 bytes",
                "missing": "data.0 does not exist",
                "foreign": "does not begin with", "headless": "does not begin with",
                "lost": "no manifest is left", "overwritten": "no manifest is left",
                "flipped": "fails its checksum"}

    def test_damaged_stores(self):
        whys = self.damaged()
        before = tree(self.directory)
        for flags in ([], ["--yes"]):
            found = self.finds(*flags)
            self.assertEqual(set(found), {*whys, "store"})
            self.assertEqual(found["store"]["kind"], "store")
            self.assertIn("can be opened", found["store"]["why"])
            for name, why in whys.items():
                self.assertEqual(found[name]["kind"], "damaged store", name)
                self.assertIn(why, found[name]["why"])
                self.assertIn("--stores removes it too", found[name]["why"])
                self.assertFalse(found[name]["removable"])
            self.assertEqual(tree(self.directory), before)
        found = self.finds("--stores", "--yes")
        self.assertTrue(all(item["removed"] for item in found.values()), found)
        # What is not Penstock's by its content stays.
        self.assertEqual(os.listdir(self.path("foreign")), ["data.0"])
        self.assertEqual(os.listdir(self.path("cut")), [])

    def test_copies_are_stores_of_their_own(self):
        self.copy("copy")
        os.truncate(os.path.join(self.copy("cut"), "data.0"), 100000)
        self.assertEqual({name: item["kind"] for name, item in self.finds().items()},
                         {"store": "store", "copy": "store", "cut": "damaged store"})

    def test_copies_over_several_drives(self):
        """Which of them belong together cannot be told, so none of them is removed."""
        shutil.rmtree(self.store)
        drives = [self.path(name) for name in ("d0", "d1")]
        result = run(*self.arguments("--steps", "2", "--store", drives[1], store=drives[0]))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([item["why"] for item in self.finds().values()],
                         ["a store that can be opened; --stores removes it too"])
        shutil.copytree(drives[0], self.path("d2"))
        before = tree(self.directory)
        found = list(self.finds("--stores", "--yes").values())
        self.assertEqual(len(found), 1)
        self.assertIn("copies of a store over several drives", found[0]["why"])
        self.assertEqual(tree(self.directory), before)
        shutil.rmtree(self.path("d2"))
        os.remove(os.path.join(drives[1], "data.1"))
        found = list(self.finds().values())
        self.assertEqual([item["kind"] for item in found], ["damaged store"])
        self.assertIn("d1/data.1 does not exist", found[0]["why"])


if __name__ == "__main__":
    main()
