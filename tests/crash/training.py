"""A small training of the real program, in as many lives as it takes, with what it said.

Used by the rigs that kill it, fail its drive or take its limits away: whatever happens, the steps
that it repeats and the hash at its end must be those of a run that nothing happened to.
"""

import json
import os
import random
import signal
import subprocess

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
    """One training in one store. `wrapper` is a command that runs the program under limits."""

    def __init__(self, program, data, store, queue, commit_every, log_path=None, wrapper=()):
        self.store = store
        self.program = program
        self.command = [*wrapper, program, "--json", "train", *TRAINING, "--data", data, "--store",
                        store, "--queue", queue, "--commit-every", str(commit_every)]
        self.log_path = log_path or store + ".log"
        self.steps = {}      # step -> what was said of it first
        self.committed = 0   # newest step that was said to be committed
        self.repeated = 0    # steps that ran again
        self.start = {}      # the newest start event
        self.errors = ""     # of the newest life
        self.resumed = False
        self.process = None

    def begin(self, preexec=None):
        """Starts a life: a new run, or from the store's newest commit."""
        self.resumed = os.path.isdir(self.store) and any(
            name.startswith("manifest.") and not name.endswith(".tmp")
            for name in os.listdir(self.store))
        command = self.command + (["--resume"] if self.resumed else [])
        with open(self.log_path, "wb") as log, open(self.log_path + ".err", "wb") as errors:
            self.process = subprocess.Popen(command, stdout=log, stderr=errors, preexec_fn=preexec)
        return self.process

    def finish(self):
        """Waits for the life's end; its exit code, negative after a signal."""
        try:
            self.process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"still running after {LONGEST_S} s: {self.command}")
        with open(self.log_path + ".err") as errors:
            self.errors = errors.read()
        self.read_log()
        return self.process.returncode

    def live(self, kill_after_s=None, preexec=None):
        """One life, killed after so long if it lasts; returns whether it ended by itself, well."""
        process = self.begin(preexec)
        if kill_after_s is not None:
            try:
                process.wait(kill_after_s)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
        code = self.finish()
        check(code in (0, -signal.SIGKILL), f"exit {code}: {self.command}: {self.errors}")
        return code == 0

    def events(self):
        """What the life has said so far."""
        with open(self.log_path, "rb") as log:
            lines = log.read().split(b"\n")[:-1]  # what a kill cut off is no line
        return [json.loads(line) for line in lines]

    def read_log(self):
        events = self.events()
        self.start = next((e for e in events if e["event"] == "start"), {})
        steps = [event for event in events if event["event"] == "step"]
        newest = max(self.steps, default=0)
        if steps:
            first = steps[0]["step"]
            check(first > self.committed, f"step {first} again: {self.committed} was committed")
            check(first <= newest + 1, f"step {first} follows step {newest}")
            check(self.resumed or first == 1, f"a new run begins at step {first}")
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
