#!/usr/bin/python3
"""Messages: their remedies, what they name, and that a name cannot change the terminal."""

import os
import re
import resource
import shutil
import signal
import subprocess

from program_case import Case, Program, StoreCase, main, run


class MessageTest(StoreCase):
    def checkpoint(self, *arguments):
        return run("checkpoint", *arguments)

    def test_names_are_escaped(self):
        for text in ("a\nb", "a\x1b[31mb", "a\rb\x7f"):
            shown = re.escape(text.replace("\n", "\\n").replace("\x1b", "\\x1b")
                              .replace("\r", "\\x0d").replace("\x7f", "\\x7f"))
            self.sentence(run("inspect", text), 2, [shown])
            self.sentence(self.checkpoint("pin", self.store, "--name", text), 2, [shown])
            self.sentence(run(text), 2, [shown])
            shutil.copytree(self.store, self.path(text))
            result = run("clean", self.directory)
            self.assertRegex(result.stdout, shown)
            self.assertNotIn(text, result.stdout)

    def test_checkpoints_that_are_none(self):
        self.sentence(self.checkpoint("drop", self.store, "--name", "x"), 1,
                      [r'\Apenstock: there is no checkpoint "x" in .*store, nor any other; keep'])
        copy = self.path("copy")
        result = self.checkpoint("copy", self.store, "--to", copy, "--keep", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        for name in ("one", "two"):
            self.assertEqual(self.checkpoint("pin", copy, "--name", name).returncode, 0)
        for action in (["drop"], ["restore"], ["copy", "--to", self.path("new")]):
            self.sentence(self.checkpoint(action[0], copy, "--name", "x", *action[1:]), 1,
                          [r'\Apenstock: there is no checkpoint "x" in .*copy, which has one, two'])
        for command in (["inspect"], ["export", "--out", self.path("weights")]):
            self.sentence(run(*command, copy, "--checkpoint", "x"), 1, ["which has one, two; name"])
        # No room is the store's state, not this machine's.
        self.sentence(self.checkpoint("pin", copy, "--name", "three"), 1,
                      ["holds one, two; drop one", r"copy --keep N\)"])
        self.sentence(self.checkpoint("pin", self.store, "--name", "x"), 1,
                      ["without room", r"penstock checkpoint copy --keep N"])

    def test_exports(self):
        weights = self.path("weights")
        self.assertEqual(run("export", self.store, "--out", weights).returncode, 0)
        for command in (["inspect", weights], ["scrub", weights], ["checkpoint", "list", weights],
                        ["generate", "--store", weights]):
            result = run(*command)
            self.sentence(result, 2, ["weights holds exported weights, not a store"])
        # The advice works.
        advice = re.search('"penstock (inspect .*)"', result.stderr)[1].split()
        self.assertEqual(run(*advice).returncode, 0)
        self.sentence(run("export", self.store, "--out", weights), 1,
                      ["--out .*weights: .*not empty", "choose another directory"])
        os.mkdir(self.path("next.penstock-export"))
        result = run("export", self.store, "--out", self.path("next"))
        advice = re.search('"penstock (clean .* --yes)"', result.stderr)[1].split()
        self.assertEqual(run(*advice).returncode, 0)
        self.assertEqual(run("export", self.store, "--out", self.path("next")).returncode, 0)

    def test_places_of_copies(self):
        self.sentence(self.checkpoint("copy", self.store, "--to", self.path("nowhere/deep")), 2,
                      [r"\Apenstock: --to .*nowhere/deep cannot be made in .*create that direct"])
        self.sentence(self.checkpoint("copy", self.store, "--to", self.store), 1,
                      [r"\Apenstock: .*store already holds a store"])

    def test_no_file_descriptors(self):
        """A limit of this process is called that, at whatever call it ends."""
        if '"sanitizers":"none"' not in run("version", "--json").stdout.replace(" ", ""):
            self.skipTest("a sanitizer needs descriptors of its own; the release build runs this")
        met = 0
        for limit in range(4, 16):
            result = run(*self.arguments("--steps", "2", store=self.path(f"limited-{limit}")),
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE,
                                                               (limit, limit)))
            if result.returncode == 0:
                break
            if "error while loading shared libraries" in result.stderr:
                continue
            met += 1
            self.assertRegex(result.stderr, r"ulimit -n", limit)
        self.assertGreater(met, 0)

    @staticmethod
    def holds_lock(pid):
        with open("/proc/locks") as locks:
            return any(line.split()[4] == str(pid) and "FLOCK" in line for line in locks)

    def test_creation_under_way(self):
        """Not "create it again" while another process does."""
        store = self.path("young")
        process = subprocess.Popen([Program.path, *self.arguments("--steps", "1000", store=store)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        while not self.holds_lock(process.pid):
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGSTOP)
        result = run("inspect", store)
        if result.returncode == 0:
            self.skipTest("the creation was over before it could be stopped: run it again")
        self.sentence(result, 1, ["is being made", f"in use by pid {process.pid}"])
        process.kill()
        process.wait()
        self.sentence(run("inspect", store), 1, ["did not finish", "command that began it"])


class DrivesTest(Case):
    def test_older_copy_of_a_directory(self):
        """Called what it is, and not taken for damage of a drive."""
        first, second, old = (self.path(name) for name in ("d0", "d1", "old"))
        arguments = ["--steps", "6", "--store", second, "--checkpoint-every", "2", "--keep", "3",
                     "--commit-every", "1"]
        result = run(*self.arguments(*arguments, store=first))
        self.assertEqual(result.returncode, 0, result.stderr)
        shutil.copytree(first, old)
        result = run("checkpoint", "restore", first, second, "--name", "step-2")
        self.assertEqual(result.returncode, 0, result.stderr)
        result = run(*self.arguments(*arguments, "--resume", store=first))
        self.assertEqual(result.returncode, 0, result.stderr)
        for given in ([old, second], [second, old]):
            for command in (["inspect", "--verify"], ["scrub"]):
                self.sentence(run(*command, *given), 1,
                              ["old is an older copy of that directory", "d1 it is",
                               "name the directory that the training used last"])
        other = self.path("other")
        self.assertEqual(run(*self.arguments(*arguments[:2], store=other)).returncode, 0)
        self.sentence(run("inspect", first, other), 1, ["two stores|both hold data.0"])
        self.assertEqual(run("inspect", "--verify", first, second).returncode, 0)


if __name__ == "__main__":
    main()
