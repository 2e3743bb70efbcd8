#!/usr/bin/python3
"""Kills a real training with SIGKILL at random moments, resumes it, and compares bits.

A run that is never interrupted is the reference. Another run of the same training is killed again
and again; each time it must resume at a committed step, not older than the newest one it had
reported as committed, and repeat the steps after it exactly: data index, loss and norm of every
step are those of the reference. At its end `penstock inspect --hash` gives the reference's hash.

usage: kill_loop.py PROGRAM

PENSTOCK_KILLS      kills of the first case; unset: 10 in all, in two short cases. Set: that many
                    with --queue threads --commit-every 1, a fifth of them in each other case.
PENSTOCK_KILL_SEED  seed of the moments; the default is a fixed one, "random" draws one
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

STEPS = 30
TRAINING = ["--model", "nano", "--steps", str(STEPS), "--batch", "2", "--seq", "32", "--ram", "min",
            "--threads", "1", "--eval-tokens", "64", "--seed", "7"]
LONGEST_S = 120  # of one life of the program; a hang is a failure
SAME = ("data_index", "loss", "norm", "clip", "applied", "lr")


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def make_text(path):
    """Words of a small vocabulary: the same bytes each time, and something to learn."""
    words = ["river", "stone", "light", "under", "the", "a", "turns", "wheel", "water", "and", "of",
             "slow", "bright", "mill"]
    draw = random.Random(3)
    with open(path, "w") as file:
        for _ in range(4000):
            file.write(" ".join(draw.choice(words) for _ in range(draw.randint(4, 9))) + ".\n")


class Training:
    """One training in one store, in as many lives as it takes."""

    def __init__(self, program, data, store, queue, commit_every):
        self.store = store
        self.program = program
        self.command = [program, "--json", "train", *TRAINING, "--data", data, "--store", store,
                        "--queue", queue, "--commit-every", str(commit_every)]
        self.log_path = store + ".log"
        self.steps = {}      # step -> what was said of it first
        self.committed = 0   # newest step that was said to be committed
        self.repeated = 0    # steps that ran again after a kill

    def live(self, kill_after_s=None):
        """Runs until the end or the kill; returns whether it ended by itself."""
        resume = os.path.isdir(self.store) and any(
            name.startswith("manifest.") and not name.endswith(".tmp")
            for name in os.listdir(self.store))
        command = self.command + (["--resume"] if resume else [])
        with open(self.log_path, "wb") as log, open(self.log_path + ".err", "wb") as errors:
            process = subprocess.Popen(command, stdout=log, stderr=errors)
            try:
                process.wait(LONGEST_S if kill_after_s is None else kill_after_s)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait(LONGEST_S)
                check(kill_after_s is not None, f"still running after {LONGEST_S} s: {command}")
        killed = process.returncode == -signal.SIGKILL
        if not killed and process.returncode != 0:
            with open(self.log_path + ".err") as errors:
                raise AssertionError(f"exit {process.returncode}: {command}: {errors.read()}")
        self.read_log(resume)
        return not killed

    def read_log(self, resumed):
        with open(self.log_path, "rb") as log:
            lines = log.read().split(b"\n")[:-1]  # what a kill cut off is no line
        events = [json.loads(line) for line in lines]
        steps = [event for event in events if event["event"] == "step"]
        newest = max(self.steps, default=0)
        if steps:
            first = steps[0]["step"]
            check(first > self.committed, f"step {first} again: {self.committed} was committed")
            check(first <= newest + 1, f"step {first} follows step {newest}")
            check(resumed or first == 1, f"a new run begins at step {first}")
            check([s["step"] for s in steps] == list(range(first, first + len(steps))),
                  "steps are not in order")
        for event in steps:
            said = {key: event[key] for key in SAME}
            known = self.steps.setdefault(event["step"], said)
            check(known == said, f"step {event['step']} came back as {said}, it was {known}")
            self.repeated += event["step"] <= newest
        for event in events:
            self.committed = max(self.committed, event.get("committed_step", 0))

    def hash(self):
        result = subprocess.run([self.program, "--json", "inspect", "--verify", "--hash",
                                 self.store], capture_output=True, text=True, timeout=LONGEST_S)
        check(result.returncode == 0, f"inspect: {result.stdout} {result.stderr}")
        return json.loads(result.stdout)["hash"]


def run_case(program, data, directory, queue, commit_every, kills, draw):
    reference = Training(program, data, os.path.join(directory, "reference"), queue, commit_every)
    started = time.monotonic()
    check(reference.live(), "the reference did not end")
    length_s = time.monotonic() - started
    want = reference.hash()
    check(sorted(reference.steps) == list(range(1, STEPS + 1)), "the reference skipped steps")

    done, rounds, repeated, lives = 0, 0, 0, 0
    while done < kills:
        training = Training(program, data, os.path.join(directory, f"killed-{rounds}"), queue,
                            commit_every)
        ended = False
        while not ended:
            lives += 1
            # Some moments lie in creation and opening, most in the steps.
            moment_s = draw.uniform(0, length_s * draw.choice([0.3, 1.0])) if done < kills else None
            ended = training.live(moment_s)
            done += not ended
            for step, said in training.steps.items():
                check(said == reference.steps[step],
                      f"step {step} is {said}, uninterrupted it was {reference.steps[step]}")
        check(sorted(training.steps)[-1] == STEPS, "the end was not reached")
        check(training.hash() == want, f"another hash after {done} kills in round {rounds}")
        repeated += training.repeated
        rounds += 1
        shutil.rmtree(training.store)
    print(f"--queue {queue} --commit-every {commit_every}: {done} kills in {rounds} trainings of "
          f"{STEPS} steps ({lives} lives of up to {length_s:.2f} s), {repeated} steps repeated "
          f"exactly, hash {want} each time", flush=True)
    shutil.rmtree(reference.store)


def main():
    program = os.path.abspath(sys.argv[1])
    wanted = os.environ.get("PENSTOCK_KILLS")
    if wanted:
        cases = [("threads", 1, int(wanted)), ("uring", 1, int(wanted) // 5),
                 ("threads", 3, int(wanted) // 5), ("uring", 3, int(wanted) // 5)]
    else:
        cases = [("threads", 1, 5), ("uring", 3, 5)]
    seed = os.environ.get("PENSTOCK_KILL_SEED", "20")
    seed = str(random.SystemRandom().randrange(1 << 32)) if seed == "random" else seed
    print(f"seed {seed}", flush=True)
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="penstock-kill-") as directory:
        data = os.path.join(directory, "text")
        make_text(data)
        for queue, commit_every, kills in cases:
            case = os.path.join(directory, f"{queue}-{commit_every}")
            os.mkdir(case)
            run_case(program, data, case, queue, commit_every, kills, draw)
    return 0


if __name__ == "__main__":
    sys.exit(main())
