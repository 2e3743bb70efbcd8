#!/usr/bin/python3
"""Full, small and forbidden drives, and signals, while a training runs."""

import json
import os
import re
import resource
import signal
import subprocess
import time

from program_case import Case, IS_ROOT, Program, main, run, tree


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
            result = subprocess.run([Program.path, *self.arguments("--json", "--steps", "3")],
                                    stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("cannot write to standard output", result.stderr)
        self.still_good(3)


class SignalTest(Case):
    STEPS = "4000"

    def start(self, *more, steps=STEPS):
        process = subprocess.Popen(
            [Program.path, *self.arguments("--steps", steps, "--commit-every", "5", "--json",
                                           *more)],
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
    main()
