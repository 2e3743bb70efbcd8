#!/usr/bin/python3
"""Takes the power away under a real filesystem, thousands of times from one run.

A training runs on ext4, xfs and btrfs, on a loop device over a disk that logs every write and
flush (log_disk.cpp), with the moments when a step began and when its commit was acknowledged. Then,
for moments drawn by a seed, the disk is what a power loss may have left: everything before the last
flush, and of the writes since any part, torn between pages. The filesystem mounts it, and the store
must open at an acknowledged commit or a later one, with its exact bits; some train on to the end.

The rig is shown to find something: with a rule of the commit protocol broken, and with flushes that
do nothing, there must be bad images.

usage: crash_images.py LOG_DISK CRASH_STORE [FILESYSTEM...]

PENSTOCK_CRASH_IMAGES   images of each filesystem (default 24)
PENSTOCK_CRASH_SEED     of the moments and of what lands
"""

import os
import random
import struct
import subprocess
import sys
import tempfile
import time

import disks

STEPS = 12
WRITE, FLUSH, MARK = 1, 2, 3
LONGEST_S = 120


def read_log(path):
    """[(kind, text of a mark or None)], one for each record."""
    records = []
    with open(path, "rb") as log:
        while head := log.read(24):
            kind, _, length = struct.unpack("=QQQ", head)
            text = log.read(length) if kind == MARK else log.seek(length, os.SEEK_CUR) and None
            records.append((kind, text.decode() if text else None))
    return records


class Rig:
    def __init__(self, log_disk, crash_store, directory, filesystem):
        self.log_disk = log_disk
        self.crash_store = crash_store
        self.filesystem = filesystem
        self.directory = directory
        self.log = os.path.join(directory, "log")
        self.mounted = os.path.join(directory, "mounted")

    def record(self, queue, commit_every, fault=None):
        size = disks.FILESYSTEMS[self.filesystem][0]
        with disks.LogDisk(self.log_disk, os.path.join(self.directory, "fuse"), size,
                           self.log) as disk, disks.Loop(disk.path) as loop:
            disks.make_filesystem(loop.path, self.filesystem)
            with disks.Mount(loop.path, self.mounted, self.filesystem):
                os.sync()
                disk.tell("mark start")
                command = [self.crash_store, "run", self.mounted + "/store", disk.control_path,
                           str(STEPS), queue, str(commit_every)]
                result = subprocess.run(command + ([fault] if fault else []), text=True,
                                        capture_output=True, timeout=LONGEST_S)
                disk.tell("stop")
                if result.returncode != 0 and not fault:
                    raise AssertionError(f"the run failed: {result.stdout} {result.stderr}")
        self.commit_every = commit_every
        self.records = read_log(self.log)
        self.first = next(i for i, (_, text) in enumerate(self.records) if text == "start")

    def replay(self, count, draw, go_on_every=8):
        """Looks at `count` images; returns (bad ones in words, how many held a commit)."""
        bad, held = [], 0
        moments = sorted(draw.randrange(self.first, len(self.records)) + 1 for _ in range(count))
        with disks.LogDisk(self.log_disk, os.path.join(self.directory, "fuse"), "--replay",
                           self.log) as disk:
            for number, moment in enumerate(moments):
                seed = draw.randrange(1 << 32)
                disk.tell(f"image {moment} {seed}")
                problem, found = self.judge(disk, moment, number % go_on_every == 0)
                held += found
                if problem:
                    bad.append(f"{self.filesystem} record {moment} seed {seed}: {problem}")
        return bad, held

    def judge(self, disk, moment, go_on):
        acknowledged, begun = -1, 0
        for _, text in self.records[:moment]:
            if text and text.startswith("acknowledged "):
                acknowledged = int(text.split()[1])
            elif text and text.startswith("begun "):
                begun = int(text.split()[1])
        with disks.Loop(disk.path) as loop:
            try:
                mount = disks.Mount(loop.path, self.mounted, self.filesystem)
            except OSError as error:
                return f"no mount: {error}", 0
            with mount:
                command = [self.crash_store, "check", self.mounted + "/store", str(acknowledged),
                           str(begun), str(STEPS), str(self.commit_every)]
                result = subprocess.run(command + (["go-on"] if go_on else []), text=True,
                                        capture_output=True, timeout=LONGEST_S)
        if result.returncode != 0:
            said = result.stdout.strip() or f"exit {result.returncode}"
            return f"acknowledged {acknowledged}, begun {begun}: {said} {result.stderr}", 0
        return "", result.stdout.startswith("step")

    def ignore_flushes(self):
        """Rewrites the log so that flushes do nothing from the start of the training on."""
        with open(self.log, "r+b") as log:
            for index, _ in enumerate(self.records):
                at = log.tell()
                kind, _, length = struct.unpack("=QQQ", log.read(24))
                if kind == FLUSH and index > self.first:
                    log.seek(at)
                    log.write(struct.pack("=QQQ", MARK, 0, 0))
                    log.seek(at + 24)
                log.seek(length, os.SEEK_CUR)


def check_filesystem(rig, images, draw):
    filesystem = rig.filesystem
    bad, held, taken, started = [], 0, 0, time.monotonic()
    for queue, commit_every in (("threads", 1), ("uring", 3)):
        rig.record(queue, commit_every)
        wanted = images // 2 if queue == "threads" else images - taken
        some_bad, some_held = rig.replay(wanted, draw)
        taken, held, bad = taken + wanted, held + some_held, bad + some_bad
    seconds = time.monotonic() - started
    print(f"{filesystem}: {taken} images in {seconds:.0f} s, {held} held a commit, {len(bad)} bad",
          flush=True)
    for text in bad[:10]:
        print("  " + text, flush=True)
    if held < images // 2:
        raise AssertionError(f"{filesystem}: most images must be of a store in use")
    return len(bad)


def check_honesty(rig, draw):
    """A rig that finds nothing wrong with a broken protocol or drive proves nothing."""
    tries = 40
    rig.record("threads", 1, "reuse_slot_early")
    broken, _ = rig.replay(tries, draw, go_on_every=tries)
    rig.record("threads", 1)
    rig.ignore_flushes()
    flushless, _ = rig.replay(tries // 2, draw, go_on_every=tries)
    print(f"{rig.filesystem}: {len(broken)} of {tries} bad with a slot reused too early, "
          f"{len(flushless)} of {tries // 2} where flushes do nothing", flush=True)
    if not broken or not flushless:
        raise AssertionError("a planted fault was not found")


def main():
    log_disk, crash_store = map(os.path.abspath, sys.argv[1:3])
    filesystems = sys.argv[3:] or disks.KINDS
    images = int(os.environ.get("PENSTOCK_CRASH_IMAGES", "24"))
    seed = os.environ.get("PENSTOCK_CRASH_SEED", "1")
    try:
        disks.need(filesystems)
        print(f"seed {seed}", flush=True)
        bad = 0
        for filesystem in filesystems:
            with tempfile.TemporaryDirectory(prefix="penstock-crash-") as directory:
                rig = Rig(log_disk, crash_store, directory, filesystem)
                bad += check_filesystem(rig, images, random.Random(f"{seed} {filesystem}"))
        with tempfile.TemporaryDirectory(prefix="penstock-crash-") as directory:
            rig = Rig(log_disk, crash_store, directory, filesystems[0])
            check_honesty(rig, random.Random(f"{seed} honesty"))
    except disks.Skip as missing:
        print(f"skipped: {missing}", flush=True)
        return 77
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
