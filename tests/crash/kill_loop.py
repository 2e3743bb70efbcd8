#!/usr/bin/python3
"""Kills a real training with SIGKILL at random moments, resumes it, and compares bits.

A run that is never interrupted is the reference. Another run of the same training is killed again
and again; each time it must resume at a committed step, not older than the newest one it had
reported as committed, and repeat the steps after it exactly: data index, loss and norm of every
step are those of the reference. At its end `penstock inspect --hash` gives the reference's hash.

usage: kill_loop.py PROGRAM

PENSTOCK_KILLS         kills in the temporary directory, shared out over both queues and commit
                       intervals 1 and 3; unset: 10 in all, in two short cases
PENSTOCK_KILLS_TMPFS   the same in /dev/shm (default: as many as PENSTOCK_KILLS)
PENSTOCK_KILL_SEED     seed of the moments; the default is a fixed one, "random" draws one
PENSTOCK_KILL_SECONDS  no further kill once so many seconds have passed
"""

import concurrent.futures
import os
import random
import shutil
import sys
import tempfile
import time

from training import STEPS, Training, check, make_text

TMPFS = "/dev/shm"


class Case:
    """Kills under one queue and commit interval in one directory, from one seed."""

    def __init__(self, program, data, directory, queue, commit_every, kills, seed, until):
        self.what = (program, data)
        self.directory = directory
        self.how = (queue, commit_every)
        self.kills = kills
        self.draw = random.Random(seed)
        self.until = until
        self.done = self.rounds = self.repeated = self.lives = 0

    def training(self, name):
        return Training(*self.what, os.path.join(self.directory, name), *self.how)

    def more(self):
        return self.done < self.kills and (self.until is None or time.monotonic() < self.until)

    def run(self):
        reference = self.training("reference")
        started = time.monotonic()
        check(reference.live(), "the reference did not end")
        self.length_s = time.monotonic() - started
        self.want = reference.hash()
        check(sorted(reference.steps) == list(range(1, STEPS + 1)), "the reference skipped steps")
        while self.more():
            self.one_round(reference)
        shutil.rmtree(reference.store)
        return self

    def one_round(self, reference):
        training = self.training(f"killed-{self.rounds}")
        ended = False
        while not ended:
            self.lives += 1
            # Some moments lie in creation and opening, most in the steps.
            moment_s = self.draw.uniform(0, self.length_s * self.draw.choice([0.3, 1.0]))
            started = time.monotonic()
            ended = training.live(moment_s if self.more() else None)
            if ended:  # the reference may have shared the drive with much else: few would be killed
                self.length_s = max(time.monotonic() - started, 0.8 * self.length_s)
            self.done += not ended
            for step, said in training.steps.items():
                check(said == reference.steps[step],
                      f"step {step} is {said}, uninterrupted it was {reference.steps[step]}")
        check(sorted(training.steps)[-1] == STEPS, "the end was not reached")
        check(training.hash() == self.want,
              f"another hash after {self.done} kills in round {self.rounds}")
        self.repeated += training.repeated
        self.rounds += 1
        shutil.rmtree(training.store)

    def report(self):
        queue, commit_every = self.how
        print(f"{self.directory}: --queue {queue} --commit-every {commit_every}: {self.done} kills "
              f"in {self.rounds} trainings of {STEPS} steps ({self.lives} lives), {self.repeated} "
              f"steps repeated exactly, hash {self.want} each time", flush=True)


def wanted_cases():
    """(on tmpfs, queue, commit interval, kills)"""
    disk = os.environ.get("PENSTOCK_KILLS")
    if not disk:
        return [(False, "threads", 1, 5), (False, "uring", 3, 5)]
    memory = os.environ.get("PENSTOCK_KILLS_TMPFS", disk)
    ways = [(queue, interval) for queue in ("threads", "uring") for interval in (1, 3)]
    return [(tmpfs, *way, max(1, int(kills) // len(ways)))
            for tmpfs, kills in ((False, disk), (True, memory)) for way in ways]


def main():
    program = os.path.abspath(sys.argv[1])
    seed = os.environ.get("PENSTOCK_KILL_SEED", "20")
    seed = str(random.SystemRandom().randrange(1 << 32)) if seed == "random" else seed
    seconds = os.environ.get("PENSTOCK_KILL_SECONDS")
    until = time.monotonic() + float(seconds) if seconds else None
    print(f"seed {seed}", flush=True)
    started, kills = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="penstock-kill-") as on_disk, \
            tempfile.TemporaryDirectory(prefix="penstock-kill-", dir=TMPFS) as in_memory, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        data = os.path.join(in_memory, "text")
        make_text(data)
        running = []
        for number, (tmpfs, queue, commit_every, wanted) in enumerate(wanted_cases()):
            directory = os.path.join(in_memory if tmpfs else on_disk, f"{queue}-{commit_every}")
            os.mkdir(directory)
            case = Case(program, data, directory, queue, commit_every, wanted,
                        f"{seed} {number}", until)
            running.append(pool.submit(case.run))
        for future in concurrent.futures.as_completed(running):
            case = future.result()
            case.report()
            kills += case.done
    seconds = time.monotonic() - started
    print(f"{kills} kills in {seconds:.0f} s, {kills / seconds:.1f} a second", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
