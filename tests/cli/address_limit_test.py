#!/usr/bin/python3
"""Trainings whose addresses or data are limited (ulimit -v, -d): they run and are right, or are
refused with one sentence before anything is written; none waits, aborts or crashes.
"""

import os
import resource
import shutil

from program_case import Case, main, run

MIB = 1 << 20
LOADER = "error while loading shared libraries"  # what is said where not even the program fits


class AddressTest(Case):
    def setUp(self):
        super().setUp()
        if '"sanitizers":"none"' not in run("version", "--json").stdout.replace(" ", ""):
            self.skipTest("a sanitizer reserves terabytes of addresses: the release build runs it")
        self.train("--steps", "3", "--threads", "2")
        self.hash = self.inspect()["hash"]

    def limited(self, which, mib):
        """Whether it ran; where it did not, it said why."""
        store = self.path(f"limited-{which}-{mib}")
        arguments = self.arguments("--steps", "3", "--threads", "2", store=store)

        def limit():
            resource.setrlimit(which, (mib * MIB, mib * MIB))

        # Without the core of a crash, which takes time; a run that waits for ever ends by timeout.
        result = run(*arguments, preexec_fn=limit)
        if result.returncode == 0:
            self.assertEqual(self.inspect(store)["hash"], self.hash, f"{mib} MiB")
            return True
        if result.returncode == 127 and LOADER in result.stderr:
            return False
        flag = "-v" if which == resource.RLIMIT_AS else "-d"
        self.refused(3, [f"may map .*\"ulimit {flag}\".*raise the limit|out of memory; .*ulimit"],
                     arguments, preexec_fn=limit)
        return False

    def swept(self, which, limits):
        ran = [self.limited(which, mib) for mib in limits]
        self.assertEqual(ran, sorted(ran), "what suffices once suffices for larger limits")
        self.assertFalse(ran[0])
        self.assertTrue(ran[-1])

    def test_addresses(self):
        self.swept(resource.RLIMIT_AS, [40, 56, 64, 80, 97, 112, 128, 144, 160, 176, 200,
                                         *range(232, 296, 4), 300, 600])

    def test_data(self):
        self.swept(resource.RLIMIT_DATA, [1, 4, 8, 16, 20, 32, 48, 64, 80, 96, 112, 128, 160, 300])

    def test_budget_counts(self):
        """A use of memory beyond the limit is refused, and so are too many threads."""
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (300 * MIB, 300 * MIB))

        large = ["--threads", "2", "--model", "124M"]
        self.refused(3, ["may map 300 MiB by \"ulimit -v\"", "GiB of memory for the run"],
                     self.arguments(*large, "--ram", "all", store=self.path("large")),
                     preexec_fn=limit)
        granted = self.path("granted")  # what a small model has no use for does not count
        result = run(*self.arguments("--threads", "2", "--steps", "3", "--ram", "1GiB",
                                     store=granted), preexec_fn=limit)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.inspect(granted)["hash"], self.hash)
        self.refused(3, ["ulimit -v", "lower --ram or --threads"],
                     self.arguments("--threads", "64", store=self.path("wide")), preexec_fn=limit)

    def tool(self, which, mib, arguments):
        """Whether a command that is granted no budget ran; where it did not, what it said."""
        def limit():
            resource.setrlimit(which, (mib * MIB, mib * MIB))

        result = run(*arguments, preexec_fn=limit)
        if result.returncode == 0:
            return True, ""
        if result.returncode != 127 or LOADER not in result.stderr:
            self.sentence(result, 3, [r"memory.*; free some, or raise \"ulimit -v\""
                                      r"|I/O thread.*\"ulimit -u\", or \"-v\""])
        return False, result.stderr

    def copy(self, which, limits, store, to):
        places = [flag for place in to for flag in ("--to", place)]
        for mib in limits:
            ran, said = self.tool(which, mib, ["checkpoint", "copy", store, *places])
            if ran:
                result = run("inspect", *to, "--verify")
                self.assertEqual(result.returncode, 0, result.stderr)
            if "for the largest blocks" in said:
                self.assertFalse(os.path.exists(to[0]), f"{mib} MiB")
            for place in to:
                shutil.rmtree(place, ignore_errors=True)
        self.assertTrue(ran)

    def test_tools(self):
        """scrub and copies, of large blocks: they run or say what to raise; a copy that was refused
        for its blocks' memory has begun nothing."""
        large = self.path("large")
        made = run(*self.arguments("--steps", "1", "--threads", "2", "--model", "tiny", "--batch",
                                   "1", "--block", "4194304", "--eval-tokens", "32", store=large))
        self.assertEqual(made.returncode, 0, made.stderr)
        for which, limits in ((resource.RLIMIT_AS, [44, *range(52, 104, 4), 160]),
                              (resource.RLIMIT_DATA, [1, 4, *range(8, 48, 8), 100])):
            ran = [self.tool(which, mib, ["scrub", large, "--rate", "max"])[0] for mib in limits]
            self.assertFalse(ran[0])
            self.assertTrue(ran[-1])
            copies = [self.path("copy"), self.path("second")]
            for to in (copies[:1], copies):
                self.copy(which, limits, large, to)

    def test_generate(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (100 * MIB, 100 * MIB))

        self.refused(3, ["may map 100 MiB by \"ulimit -v\""],
                     ["generate", "--store", self.store, "--prompt", "line", "--threads", "2"],
                     preexec_fn=limit)


if __name__ == "__main__":
    main()
