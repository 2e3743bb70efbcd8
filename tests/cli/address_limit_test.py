#!/usr/bin/python3
"""Trainings whose addresses or data are limited (ulimit -v, -d): they run and are right, or are
refused with one sentence before anything is written; none waits, aborts or crashes.
"""

import resource

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
        self.assertIn(result.returncode, (1, 3), result)
        flag = "-v" if which == resource.RLIMIT_AS else "-d"
        self.refused(result.returncode, ["out of memory" if result.returncode == 1
                                         else f"may map .*\"ulimit {flag}\".*raise the limit"],
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

    def test_generate(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (100 * MIB, 100 * MIB))

        self.refused(3, ["may map 100 MiB by \"ulimit -v\""],
                     ["generate", "--store", self.store, "--prompt", "line", "--threads", "2"],
                     preexec_fn=limit)


if __name__ == "__main__":
    main()
