#!/usr/bin/python3
"""Trains on real filesystems whose drive fails, is slow, or is full.

A drive that fails (a read, a write or a flush, from some moment of the training on) ends the run
with one sentence that names the place; when the drive is well again, the run goes on from its
newest commit to the same bits. A slow drive changes nothing, nor does one that others fill to the
last byte once the run has begun: everything it needs was reserved.

usage: device_errors.py LOG_DISK PROGRAM [FILESYSTEM...]

PENSTOCK_DEVICE_ERRORS   failures of each kind on each filesystem (default: 1, and on ext4 only)
PENSTOCK_DEVICE_SEED     of the moments
"""

import errno
import os
import random
import signal
import sys
import tempfile
import time

import disks
from training import STEPS, Training, check, make_text

LONGEST_S = 60


class Place:
    """A filesystem with room for a store, on a disk that can be told to fail."""

    def __init__(self, log_disk, directory, filesystem):
        self.filesystem = filesystem
        self.mounted = os.path.join(directory, "mounted")
        self.disk = disks.LogDisk(log_disk, os.path.join(directory, "fuse"),
                                  disks.FILESYSTEMS[filesystem][0], "/dev/null")
        self.loop = disks.Loop(self.disk.path)
        disks.make_filesystem(self.loop.path, filesystem)
        self.mount()

    def mount(self):
        self.mount_point = disks.Mount(self.loop.path, self.mounted, self.filesystem)

    def close(self):
        self.mount_point.close()
        self.loop.close()
        self.disk.close()

    def heal(self):
        """The drive is well again, and the filesystem gets over it as after a new start."""
        for kind in ("read", "write", "flush"):
            self.disk.tell(f"fail {kind} 0")
        self.mount_point.close()
        self.mount()

    def fill(self):
        """Others take all the space there is, in large pieces and in small ones."""
        taken = 0
        for number, piece in enumerate((1 << 20, 1 << 16, 1 << 12, 1)):
            try:
                with open(f"{self.mounted}/others-{number}", "wb", buffering=0) as file:
                    while True:
                        taken += file.write(b"\1" * piece)
                        os.fsync(file.fileno())
            except OSError as error:
                check(error.errno == errno.ENOSPC, f"filling: {error}")
        return taken


class Rig:
    def __init__(self, log_disk, program, data, directory, filesystem, want):
        self.log_disk = log_disk
        self.program = program
        self.data = data
        self.directory = directory
        self.filesystem = filesystem
        self.want = want

    def on_place(self, body, what, queue, commit_every):
        with tempfile.TemporaryDirectory(dir=self.directory) as directory:
            place = Place(self.log_disk, directory, self.filesystem)
            try:
                training = Training(self.program, self.data, place.mounted + "/store", queue,
                                    commit_every, os.path.join(directory, "log"))
                said = body(place, training)
                check(training.hash() == self.want, f"{what}: another hash")
            finally:
                place.close()
        print(f"{self.filesystem}: {what}, --queue {queue}: {said}", flush=True)

    @staticmethod
    def wait_for_step(training, step):
        until = time.monotonic() + LONGEST_S
        while not any(e["event"] == "step" and e["step"] >= step for e in training.events()):
            if training.process.poll() is not None or time.monotonic() > until:
                break
            time.sleep(0.002)

    def fails(self, kind, step, after, queue, commit_every):
        def body(place, training):
            training.begin()
            self.wait_for_step(training, step)
            place.disk.tell(f"fail-after {after} {kind} {errno.EIO}")
            code = training.finish()
            lines = [line for line in training.errors.splitlines()
                     if line.startswith("penstock: ")]
            said = f"exit {code}"
            if code != 0:  # 0: the run was over before
                check(code == 1, f"exit {code}: {training.errors}")
                check(lines and "mounted/store" in lines[-1], f"it said {training.errors!r}")
                said += f": {lines[-1]}"
            place.heal()
            committed = training.committed
            check(training.live(), "it did not go on")
            return f"{said}; resumed after step {committed}"
        self.on_place(body, f"{kind} fails {after} after step {step}", queue, commit_every)

    def slow(self, milliseconds, queue):
        def body(place, training):
            for kind in ("write", "flush"):
                place.disk.tell(f"delay {kind} {milliseconds}")
            check(training.live(), "it did not end")
            return "the same hash"
        self.on_place(body, f"writes take {milliseconds} ms", queue, 1)

    def full(self, queue):
        def body(place, training):
            training.begin()
            self.wait_for_step(training, 2)
            training.process.send_signal(signal.SIGSTOP)  # or it might be over before
            try:
                taken = place.fill()
            finally:
                training.process.send_signal(signal.SIGCONT)
            at = max(training.events(), key=lambda e: e.get("step", 0)).get("step", 0)
            code = training.finish()
            check(code == 0, f"exit {code}: {training.errors}")
            check(at < STEPS, f"the drive was full only at step {at}")
            return f"others took {taken >> 20} MiB by step {at}"
        self.on_place(body, "a full drive", queue, 1)


def main():
    log_disk, program = map(os.path.abspath, sys.argv[1:3])
    each = os.environ.get("PENSTOCK_DEVICE_ERRORS")
    filesystems = sys.argv[3:] or (disks.KINDS if each else ["ext4"])
    seed = os.environ.get("PENSTOCK_DEVICE_SEED", "1")
    try:
        disks.need(filesystems)
        print(f"seed {seed}", flush=True)
        draw = random.Random(seed)
        with tempfile.TemporaryDirectory(prefix="penstock-device-") as directory:
            data = os.path.join(directory, "text")
            make_text(data)
            plain = Training(program, data, os.path.join(directory, "plain"), "threads", 1)
            check(plain.live(), "the run on a good drive did not end")
            want = plain.hash()
            for filesystem in filesystems:
                rig = Rig(log_disk, program, data, directory, filesystem, want)
                for number in range(int(each or 1)):
                    for kind in ("write", "flush", "read"):
                        rig.fails(kind, draw.randrange(0, 20), draw.randrange(0, 30),
                                  draw.choice(["threads", "uring"]), draw.choice([1, 3]))
                rig.slow(3, "uring")
                if filesystem == "btrfs":
                    rig.filesystem = "btrfs-apart"  # or others could take the metadata's space, too
                rig.full("threads")
    except disks.Skip as missing:
        print(f"skipped: {missing}", flush=True)
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
