#!/usr/bin/env python3
"""Runs a program over drives that are throttled to given rates.

usage: drive_set.py MIB_PER_S,MIB_PER_S,... PROGRAM [ARGUMENT...]

Each drive is a loop device over a preallocated file in /var/tmp, with ext4, throttled in both
directions by a control group (v1) in which the program runs; it gets the mounted directories behind
its own arguments. Needs root. Everything is undone at the end.
"""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "crash"))
import disks  # noqa: E402

GROUP = "/sys/fs/cgroup/blkio/penstock-drive-set"
DRIVE_BYTES = 4 << 30
MIB = 1 << 20


def run(rates, directory, command):
    if not rates:
        return subprocess.run(
            command, preexec_fn=lambda: open(GROUP + "/tasks", "w").write(str(os.getpid()))
        ).returncode
    number = len(command)
    path = f"{directory}/drive{number}"
    with open(path, "wb") as backing:
        os.posix_fallocate(backing.fileno(), 0, DRIVE_BYTES)
    with disks.Loop(path) as loop:
        disks.make_filesystem(loop.path, "ext4")
        with disks.Mount(loop.path, f"{directory}/mounted{number}", "ext4") as mount:
            device = os.stat(loop.path).st_rdev
            for direction in ("read", "write"):
                with open(f"{GROUP}/blkio.throttle.{direction}_bps_device", "w") as limit:
                    limit.write(f"{os.major(device)}:{os.minor(device)} {rates[0] * MIB}")
            return run(rates[1:], directory, command + [mount.directory])


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    rates = [int(rate) for rate in sys.argv[1].split(",")]
    try:
        disks.need(["ext4"])
    except disks.Skip as missing:
        print(f"skipped: {missing}")
        return 77
    os.makedirs(GROUP, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-drives-", dir="/var/tmp") as directory:
            return run(rates, directory, sys.argv[2:])
    finally:
        os.rmdir(GROUP)


if __name__ == "__main__":
    sys.exit(main())
