#!/usr/bin/python3
"""Trains while system calls fail: strace answers some of them in the kernel's place.

What may pass (EINTR, EAGAIN, EBUSY) and what can be done without (registered memory, io_uring)
must change nothing; what cannot (a flush that fails, no space) is one sentence, and the next life
goes on to the same end. Then the same on a drive with sectors of 4 KiB.

usage: system_errors.py PROGRAM
"""

import os
import shutil
import subprocess
import sys
import tempfile

import disks
from training import Training, check, make_text

# queue asked for, calls and answers, queue used
PASSING = [
    ("uring", ["io_uring_enter:error=EINTR:when=3+4"], "io_uring"),
    ("uring", ["io_uring_enter:error=EAGAIN:when=5+7"], "io_uring"),
    ("uring", ["io_uring_enter:error=EBUSY:when=4+9"], "io_uring"),
    ("auto", ["io_uring_register:error=ENOMEM"], "io_uring"),
    ("auto", ["io_uring_register:error=EPERM"], "io_uring"),
    ("auto", ["io_uring_setup:error=EPERM"], "threads"),
    ("auto", ["io_uring_setup:error=ENOMEM"], "threads"),
    ("threads", ["pread64:error=EINTR:when=40+13", "pwrite64:error=EAGAIN:when=40+17"], "threads"),
]
# calls and answers, words of the sentence
FATAL = [
    (["fdatasync:error=EIO:when=9"], ["the drive reports an error"]),
    (["fsync:error=EIO:when=30"], ["the drive reports an error"]),
    (["fallocate:error=ENOSPC"], ["look for a quota"]),
    (["fallocate:error=EDQUOT"], ["look for a quota"]),
]


def tracer(injections):
    names = ",".join(injection.split(":")[0] for injection in injections)
    words = ["strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", f"trace={names}"]
    for injection in injections:
        words += ["-e", f"inject={injection}"]
    return words


def can_trace():
    probe = subprocess.run([*tracer(["fdatasync:error=EIO"]), "/bin/true"], capture_output=True,
                           text=True)
    return "" if probe.returncode == 0 else probe.stderr.strip()


def passing(make, want):
    for number, (queue, injections, used) in enumerate(PASSING):
        training = make(f"passing-{number}", queue, tracer(injections))
        check(training.live(), f"{injections}: it did not end")
        check(training.hash() == want, f"{injections}: another hash")
        check(training.start["queue"].startswith(used), f"{injections}: {training.start['queue']}")
        print(f"{' '.join(injections)}: the same hash, queue {training.start['queue']}", flush=True)


def fatal(make, want):
    for number, (injections, words) in enumerate(FATAL):
        training = make(f"fatal-{number}", "auto", tracer(injections))
        training.begin()
        code = training.finish()
        lines = [line for line in training.errors.splitlines() if line.startswith("penstock: ")]
        check(code in (1, 3) and len(lines) == 1 and any(word in lines[0] for word in words),
              f"{injections}: exit {code}: {training.errors}")
        print(f"{' '.join(injections)}: exit {code}: {lines[0]}", flush=True)
        training.command = training.command[len(tracer(injections)):]
        check(training.live(), f"after {injections}: it did not end")
        check(training.hash() == want, f"after {injections}: another hash")


def large_sectors(program, data, directory, want):
    try:
        disks.need(["ext4"])
    except disks.Skip as skip:
        print(f"sectors of 4 KiB: left out: {skip}", flush=True)
        return
    backing, place = os.path.join(directory, "disk"), os.path.join(directory, "mounted")
    with open(backing, "wb") as file:
        file.truncate(2 * disks.FILESYSTEMS["ext4"][0])
    made = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", "--sector-size=4096",
                           backing], capture_output=True, text=True)
    if made.returncode != 0:
        print(f"sectors of 4 KiB: left out: {made.stderr.strip()}", flush=True)
        return
    device = made.stdout.strip()
    try:
        disks.make_filesystem(device, "ext4")
        with disks.Mount(device, place, "ext4"):
            os.chmod(place, 0o700)
            for queue in ("uring", "threads"):
                store = os.path.join(place, queue)
                log = os.path.join(directory, f"sectors-{queue}.log")
                training = Training(program, data, store, queue, 1, log_path=log)
                check(training.live(), "sectors of 4 KiB: it did not end")
                check(training.hash() == want, "sectors of 4 KiB: another hash")
                check("page cache" not in training.errors, training.errors)
                shutil.rmtree(store)
                print(f"sectors of 4 KiB: the same hash, queue {training.start['queue']}",
                      flush=True)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def main():
    program = os.path.abspath(sys.argv[1])
    if shutil.which("strace") is None:
        print("skipped: strace is missing; run scripts/install-packages --test")
        return 77
    with tempfile.TemporaryDirectory(prefix="penstock-errors-") as directory:
        data = os.path.join(directory, "text")
        make_text(data)

        def make(name, queue, wrapper=()):
            return Training(program, data, os.path.join(directory, name), queue, 1,
                            wrapper=wrapper)

        plain = make("plain", "auto")
        check(plain.live(), "the run without errors did not end")
        want = plain.hash()
        large_sectors(program, data, directory, want)
        reason = can_trace()
        if reason:
            print(f"skipped: strace cannot trace here: {reason}")
            return 77
        passing(make, want)
        fatal(make, want)
    return 0


if __name__ == "__main__":
    sys.exit(main())
