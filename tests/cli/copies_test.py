#!/usr/bin/python3
"""Copies of a training in other stores (train --copy-to): made, refused, killed at any moment."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

from program_case import Case, Program, events, main, run

STEPS = "30"


class CopiesTest(Case):
    def setUp(self):
        super().setUp()
        self.place = self.path("copies")

    def copying(self, *more, store=None, place=None, every="2"):
        return self.arguments("--steps", STEPS, "--copy-to", place or self.place, "--copy-every",
                              every, "--json", *more, store=store)

    def copies(self, place=None):
        """Directory and step of the whole copies."""
        found = {}
        for name in ("copy-1", "copy-2"):
            path = os.path.join(place or self.place, name)
            result = run("inspect", "--verify", "--json", path)
            if result.returncode == 0:
                found[path] = json.loads(result.stdout)["step"]
        return found

    def hash_at_end(self, store):
        result = run(*self.arguments("--steps", STEPS, "--resume", store=store))
        self.assertEqual(result.returncode, 0, result.stderr)
        return self.inspect(store)["hash"]

    def test_two_by_turns(self):
        result = run(*self.copying(every="10"))
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = events(result, "copy")
        self.assertEqual([(line["step"], os.path.basename(line["directory"]), line["failure"])
                          for line in lines],
                         [(10, "copy-1", None), (20, "copy-2", None), (30, "copy-1", None)])
        self.assertEqual(sorted(self.copies().values()), [20, 30])
        want = self.inspect()["hash"]
        # An ordinary store: to go on in, to copy from, to write with.
        older = os.path.join(self.place, "copy-2")
        self.assertEqual(run("checkpoint", "copy", older, "--to", self.path("new"), "--keep",
                             "1").returncode, 0)
        self.assertEqual(run("generate", "--store", older, "--tokens", "1").returncode, 0)
        self.assertEqual(self.hash_at_end(older), want)
        self.assertEqual(self.hash_at_end(self.path("new")), want)

    def test_over_several_drives(self):
        second = self.path("second")
        result = run(*self.copying("--copy-to", second, every="15"))
        self.assertEqual(result.returncode, 0, result.stderr)
        for name, step in (("copy-1", 15), ("copy-2", 30)):
            both = [os.path.join(place, name) for place in (self.place, second)]
            result = run("inspect", "--verify", "--json", *both)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(json.loads(result.stdout)["step"], step)

    def test_refused_before_anything_is_written(self):
        self.refused(2, ["--copy-to needs --copy-every"],
                     self.arguments("--copy-to", self.place))
        self.refused(2, ["--copy-every needs --copy-to"], self.arguments("--copy-every", "2"))
        self.refused(2, ["--scratch and --copy-to"], self.copying("--scratch"))
        self.refused(2, ["nowhere", "No such file"], self.copying(place=self.path("nowhere/deep")))
        os.mkdir(self.place)
        self.refused(2, ["copy-2 is the store that is trained on"],
                     self.copying(store=os.path.join(self.place, "copy-2")))
        self.assertEqual(run(*self.copying(every="10")).returncode, 0)
        other = self.path("other")
        self.refused(1, ["copy-1 is a copy of another training", "choose another place",
                         re.escape(f"clean {self.place}/copy-1 --stores --yes")],
                     self.copying(store=other))
        result = run("clean", f"{self.place}/copy-1", f"{self.place}/copy-2", "--stores", "--yes")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(run(*self.copying(store=other, every="10")).returncode, 0)

    def test_copy_that_was_trained_on_is_left_alone(self):
        self.train("--steps", STEPS, "--copy-to", self.place, "--copy-every", "10")
        older = os.path.join(self.place, "copy-2")
        self.hash_at_end(older)
        process_hash = self.inspect(older)["hash"]
        self.assertEqual(run(*self.arguments("--steps", STEPS, "--resume", "--copy-to", self.place,
                                             "--copy-every", "10")).returncode, 0)
        self.assertEqual(self.inspect(older)["hash"], process_hash)

    def test_killed_at_any_moment(self):
        """At least the newest copy that was reported stays whole, and gives the same bits."""
        seed = 7
        draw = random.Random(seed)
        started = time.monotonic()
        self.assertEqual(run(*self.copying()).returncode, 0)
        length_s = time.monotonic() - started
        want = self.inspect()["hash"]
        shutil.rmtree(self.store)
        shutil.rmtree(self.place)
        reported = 0
        for life in range(8):
            with self.subTest(seed=seed, life=life):
                resume = ["--resume"] if run("inspect", self.store).returncode == 0 else []
                process = subprocess.Popen([Program.path, *self.copying(*resume)],
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                           text=True)
                try:
                    out, _ = process.communicate(timeout=draw.uniform(0.1, 0.7) * length_s)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    out, _ = process.communicate()
                for line in out.splitlines():
                    event = json.loads(line) if line.endswith("}") else {"event": "cut"}
                    if event["event"] == "copy" and event["failure"] is None:
                        reported = max(reported, event["step"])
                steps = self.copies().values()
                self.assertGreaterEqual(max(steps, default=0), reported)
        self.assertGreater(reported, 0, "no life was long enough for a copy")
        newest = max(self.copies().items(), key=lambda copy: copy[1])[0]
        self.assertEqual(self.hash_at_end(newest), want)


if __name__ == "__main__":
    main()
