#!/usr/bin/python3
"""Trains where the system gives less: no io_uring, little locked memory, short files, few handles.

Each run must end with the bits of one without limits, or stop with one sentence and nothing lost:
without the limit it goes on to the same end.

usage: limits.py PROGRAM WITHOUT_URING
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

from training import Training, check, make_text

NOBODY = 65534
KIB = 1024


def same_end(training, want, what):
    check(training.live(), f"{what}: it did not end")
    check(training.hash() == want, f"{what}: another hash")
    print(f"{what}: the same hash, queue {training.start['queue']}", flush=True)


def warned_once(training, words, what):
    """What is missing costs something: said in one line, with what helps."""
    notes = [event["text"] for event in training.events() if event.get("event") == "note" and
             event["text"].startswith("storage queue: ")]
    check(len(notes) == 1 and words in notes[0], f"{what}: it said {notes}")


def refused(training, preexec, what, words, codes=(1, 3)):
    """The life ends with an error of one sentence that has one of the words."""
    training.begin(preexec)
    code = training.finish()
    check(code in codes, f"{what}: exit {code}: {training.errors}")
    lines = [line for line in training.errors.splitlines() if line.startswith("penstock: ")]
    check(len(lines) == 1 and any(word in lines[0] for word in words),
          f"{what}: it said {training.errors!r}")
    print(f"{what}: exit {code}: {lines[0]}", flush=True)


def without_uring(make, want, wrapper):
    for error in ("EPERM", "ENOSYS"):
        training = make(f"no-uring-{error}", "auto", [wrapper, error])
        same_end(training, want, f"io_uring refused with {error}")
        check(training.start["queue"].startswith("threads"), f"queue {training.start['queue']}")
        warned_once(training, "CPU time", f"io_uring refused with {error}")
        # Asked for by name it is refused, not replaced.
        refused(make(f"asked-{error}", "uring", [wrapper, error]), None,
                f"--queue uring refused with {error}", ["io_uring"])


def little_locked_memory(program, data, directory, want):
    """As a user without privileges: root may lock what it likes."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        print("locked memory: left out, it takes root and setpriv", flush=True)
        return
    place = os.path.join(directory, "nobody")
    os.mkdir(place)
    own = os.path.join(place, "penstock")
    shutil.copy(program, own)
    os.chmod(own, 0o755)
    os.chmod(directory, 0o755)
    os.chown(place, NOBODY, NOBODY)
    wrapper = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups",
               "--bounding-set", "-all", "--inh-caps", "-all", "--"]
    training = Training(own, data, os.path.join(place, "store"), "auto", 1,
                        os.path.join(directory, "nobody.log"), wrapper)
    limit = 64 * KIB
    training.begin(lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit)))
    code = training.finish()
    check(code == 0, f"64 KiB of locked memory: exit {code}: {training.errors}")
    check(training.hash() == want, "64 KiB of locked memory: another hash")
    warned_once(training, "ulimit -l", "64 KiB of locked memory")
    print(f"64 KiB of locked memory, as nobody: the same hash, queue {training.start['queue']}",
          flush=True)


def file_size(make, want):
    """A limit below the store's file: at creation, and on one that is there already."""
    def limit(size):
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    words = ["File too large", "space", "ulimit -f"]
    for queue in ("threads", "uring"):
        training = make(f"short-new-{queue}", queue)
        refused(training, limit(1 << 20), f"files of at most 1 MiB, new store, {queue}", words)
        same_end(training, want, "and then without the limit")

        training = make(f"short-old-{queue}", queue)
        training.begin()
        while not any(e.get("committed_step", 0) >= 3 for e in training.events()):
            check(training.process.poll() is None, f"it ended: {training.log_path}")
        training.process.send_signal(signal.SIGKILL)
        training.finish()
        refused(training, limit((2 << 20) + 64 * KIB), f"shorter than its file is, {queue}", words)
        same_end(training, want, "and then without the limit")


def few_handles(make, want):
    training = make("handles", "auto")

    def limit(count):
        return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))

    for count in range(4, 64):
        training.begin(limit(count))
        code = training.finish()
        if code == 0:
            break
        check(code in (1, 2, 3, 127), f"{count} open files: exit {code}: {training.errors}")
    check(code == 0 and training.hash() == want, f"open files: exit {code}: {training.errors}")
    print(f"{count} open files are enough, fewer are refused: the same hash", flush=True)


def main():
    program, wrapper = map(os.path.abspath, sys.argv[1:3])
    probe = subprocess.run([wrapper, "EPERM", "/bin/true"], capture_output=True, text=True)
    with tempfile.TemporaryDirectory(prefix="penstock-limits-") as directory:
        data = os.path.join(directory, "text")
        make_text(data)

        def make(name, queue, wrapped=()):
            return Training(program, data, os.path.join(directory, name), queue, 1,
                            wrapper=wrapped)

        plain = make("plain", "auto")
        check(plain.live(), "the run without limits did not end")
        want = plain.hash()
        if probe.returncode == 0:
            without_uring(make, want, wrapper)
        else:
            print(f"io_uring refused: left out: {probe.stderr.strip()}", flush=True)
        little_locked_memory(program, data, directory, want)
        file_size(make, want)
        few_handles(make, want)
    return 0


if __name__ == "__main__":
    sys.exit(main())
