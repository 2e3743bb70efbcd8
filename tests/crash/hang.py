#!/usr/bin/python3
"""A drive that does not answer for a while, under a real filesystem.

A training with a deadline of 3 s runs while the drive hangs for 10 s. The step under way must end
with an error that says so, after the deadline and long before the drive is back; while requests are
in flight nobody else may open the store, whether the process that asked lives or was killed; and
when the drive is back, the run goes on from its last commit to the right bits.

usage: hang.py LOG_DISK CRASH_STORE

PENSTOCK_HANG=all   both queues, with the process alive and killed (default: each once)
"""

import os
import re
import subprocess
import sys
import tempfile
import time

import disks

STEPS = 100000  # more than there is time for
LAST = 40       # steps of the run that goes on to its end
DEADLINE_S = 3
HANG_S = 10
LONGEST_S = 60


def check(holds, what):
    if not holds:
        raise AssertionError(what)


class Rig:
    def __init__(self, crash_store, disk, store, queue):
        self.crash_store = crash_store
        self.disk = disk
        self.store = store
        self.queue = queue

    def begin(self, *more, control="/dev/null", steps=STEPS):
        return subprocess.Popen([self.crash_store, "run", self.store, control, str(steps),
                                 self.queue, "1", *more], stdout=subprocess.PIPE, text=True)

    def wait_for_commit(self, process, number):
        until = time.monotonic() + LONGEST_S
        while True:
            names = os.listdir(self.store) if os.path.isdir(self.store) else []
            matches = (re.fullmatch(r"manifest\.(\d+)\.a", name) for name in names)
            numbers = [int(match[1]) for match in matches if match]
            if numbers and max(numbers) >= number:
                return
            check(process.poll() is None and time.monotonic() < until, "no commit")
            time.sleep(0.01)

    def run(self, kill):
        process = self.begin(f"deadline={DEADLINE_S}")
        self.wait_for_commit(process, 3)
        self.disk.tell(f"hang {HANG_S * 1000}")
        began = time.monotonic()
        said = process.stdout.readline().strip()
        failed_s = time.monotonic() - began
        # A transfer hangs, or the flush of a commit.
        check(re.search("has not answered a request|nothing moved on the drive", said),
              f"it said {said!r}")
        check(DEADLINE_S - 0.1 <= failed_s < HANG_S - 1, f"after {failed_s:.2f} s: {said}")
        check(process.poll() is None, "the process ended with requests in flight")
        if kill:
            process.kill()
        else:
            second = self.begin(steps=self.committed() + 1)
            refused = second.communicate(timeout=LONGEST_S)[0]
            if time.monotonic() - began < HANG_S:
                check(second.returncode != 0, "a second opening")
                check(f"{process.pid}" in refused, f"it said {refused!r}")
            else:  # the filesystem itself may wait for the drive before it lets anybody in
                print("the second opening hung as well", flush=True)
            process.communicate(timeout=LONGEST_S)
        steps = self.committed() + LAST
        after = self.begin(steps=steps)
        rest = after.communicate(timeout=LONGEST_S)[0]
        check(after.returncode == 0, f"going on: {rest}")
        back_s = time.monotonic() - began
        check(not kill or back_s >= HANG_S - 0.5, f"opened after {back_s:.2f} s, writes in flight")
        process.wait(LONGEST_S)
        subprocess.run([self.crash_store, "check", self.store, str(steps), str(steps), str(steps),
                        "1"], check=True, stdout=subprocess.DEVNULL, timeout=LONGEST_S)
        print(f"{self.queue}, {'killed' if kill else 'alive'}: error after {failed_s:.2f} s "
              f"({said}); done after {back_s:.2f} s", flush=True)

    def committed(self):
        """Steps and commits have the same numbers here, but for the first version."""
        return max(int(name.split(".")[1]) for name in os.listdir(self.store)
                   if name.startswith("manifest.") and name.endswith(".a"))


def main():
    log_disk, crash_store = map(os.path.abspath, sys.argv[1:3])
    try:
        disks.need(["ext4"])
        for queue in ("threads", "uring"):
            for kill in (False, True):
                if os.environ.get("PENSTOCK_HANG") != "all" and kill != (queue == "uring"):
                    continue
                with tempfile.TemporaryDirectory(prefix="penstock-hang-") as directory, \
                     disks.LogDisk(log_disk, directory + "/fuse", disks.FILESYSTEMS["ext4"][0],
                                   "/dev/null") as disk, \
                     disks.Loop(disk.path) as loop:
                    disks.make_filesystem(loop.path, "ext4")
                    with disks.Mount(loop.path, directory + "/mounted", "ext4"):
                        Rig(crash_store, disk, directory + "/mounted/store", queue).run(kill)
    except disks.Skip as missing:
        print(f"skipped: {missing}", flush=True)
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
