#!/usr/bin/python3
"""Checkpoints: room that is taken, names that are none, and what is said about them."""

import re

from program_case import Case, events, main, run


class RoomTest(Case):
    def checkpoint(self, *arguments):
        result = run("checkpoint", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_room_that_is_pinned(self):
        """Known at the start, not at the first checkpoint of the run."""
        self.train("--steps", "4", "--keep", "2", "--checkpoint-every", "2")
        self.checkpoint("drop", self.store, "--name", "step-4")
        self.checkpoint("pin", self.store, "--name", "mine")
        self.checkpoint("restore", self.store, "--name", "step-2")
        more = self.arguments("--steps", "4", "--resume", "--checkpoint-every", "1", "--keep", "2")
        result = run(*more, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len([note for note in events(result, "note") if re.search(
            r"--keep 2: 1 of the store's room for 2 .* pinned \(mine\), so 1 of this run's stay$",
            note["text"])]), 1, result.stdout)
        self.checkpoint("drop", self.store, "--name", "step-4")
        self.checkpoint("pin", self.store, "--name", "mine-too")
        longer = self.arguments("--steps", "4", "--resume", "--checkpoint-every", "1")
        self.refused(1, ["--checkpoint-every 1", "room for 2 checkpoints",
                         r"taken by 2 that were pinned \(mine, mine-too\)", "checkpoint drop",
                         re.escape(f"penstock checkpoint copy {self.store} --to DIR --keep N")],
                     longer)
        # Both ways out work.
        copy = self.path("copy")
        self.checkpoint("copy", self.store, "--to", copy, "--keep", "3")
        result = run(*self.arguments("--steps", "4", "--resume", "--checkpoint-every", "1",
                                     "--keep", "3", store=copy))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.checkpoint("drop", self.store, "--name", "mine")
        self.assertEqual(run(*longer).returncode, 0)

    def test_no_room(self):
        self.train("--steps", "2")
        self.refused(1, ["--keep 1", "room for 0", "leave --keep and --checkpoint-every out",
                         "checkpoint copy"],
                     self.arguments("--steps", "2", "--resume", "--checkpoint-every", "1"))
        self.still_good(2)


if __name__ == "__main__":
    main()
