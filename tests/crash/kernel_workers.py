#!/usr/bin/python3
"""Counts the requests of a training that io_uring hands to kernel threads: none in steady state.

Such a request costs a core what the ring saves. The first writes to fresh space may be handed over,
so counting begins after a few steps. Told by a tracepoint, in a trace instance of our own.

usage: kernel_workers.py PROGRAM
"""

import os
import subprocess
import sys
import tempfile
import time

from training import LONGEST_S, Training, check, make_text

TRACING = "/sys/kernel/tracing"
EVENT = "events/io_uring/io_uring_queue_async_work/enable"
WARM_STEPS = 10


class Instance:
    """A trace buffer that only this test writes to."""

    def __init__(self):
        if not os.path.isdir(TRACING + "/events"):
            subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], capture_output=True)
        self.path = f"{TRACING}/instances/penstock-{os.getpid()}"
        os.mkdir(self.path)

    def write(self, name, text):
        with open(f"{self.path}/{name}", "w") as file:
            file.write(text)

    def lines(self):
        with open(self.path + "/trace") as trace:
            return [line for line in trace if not line.startswith("#")]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        os.rmdir(self.path)


def threads_of(process):
    return {int(name) for name in os.listdir(f"/proc/{process.pid}/task")}


def wait_for_step(training, step):
    until = time.monotonic() + LONGEST_S
    while not any(event.get("step", 0) >= step for event in training.events()):
        check(training.process.poll() is None, f"it ended before step {step}: {training.log_path}")
        check(time.monotonic() < until, f"step {step} does not come")
        time.sleep(0.01)


def main():
    program = os.path.abspath(sys.argv[1])
    try:
        instance = Instance()
    except OSError as error:
        print(f"skipped: {error}; run as root, where the kernel has tracefs")
        return 77
    with instance, tempfile.TemporaryDirectory(prefix="penstock-workers-") as directory:
        try:
            instance.write(EVENT, "1")
        except OSError as error:
            print(f"skipped: {error}; this kernel has no tracepoints of io_uring")
            return 77
        kind = subprocess.run(["stat", "-f", "-c", "%T", directory], capture_output=True,
                              text=True).stdout.strip()
        if kind not in ("ext2/ext3", "xfs"):
            print(f"skipped: {directory} is on {kind}; point TMPDIR to ext4 or xfs")
            return 77
        data = os.path.join(directory, "text")
        make_text(data)
        training = Training(program, data, os.path.join(directory, "store"), "uring", 1)
        process = training.begin()
        wait_for_step(training, WARM_STEPS)
        threads = threads_of(process)
        instance.write("trace", "")
        code = training.finish()
        check(code == 0, f"exit {code}: {training.errors}")
        handed = [line for line in instance.lines() for thread in threads
                  if f"-{thread} " in line.split("[")[0] + " "]
        steps = len(training.steps) - WARM_STEPS
        check(steps > 0 and not handed, f"{len(handed)} requests in {steps} steps: {handed[:3]}")
        print(f"no request of {steps} steps was handed to a kernel thread", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
