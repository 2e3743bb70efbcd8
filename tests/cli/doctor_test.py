#!/usr/bin/python3
"""`penstock doctor` on good and bad places: what it says, its exit code, and that nothing is left.

usage: doctor_test.py PROGRAM WITHOUT_URING LOG_DISK [CLASS...]
"""

import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "crash"))
import disks

PROGRAM, WITHOUT_URING, LOG_DISK = (os.path.abspath(word) for word in sys.argv[1:4])
IS_ROOT = os.geteuid() == 0
NOBODY = 65534
MIB = 1 << 20
PR_SET_THP_DISABLE = 41


class DoctorCase(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="penstock-doctor-")
        self.addCleanup(shutil.rmtree, self.top, ignore_errors=True)
        self.place = self.directory("place")

    def directory(self, name, mode=0o700):
        path = os.path.join(self.top, name)
        os.makedirs(path, mode)
        return path

    def run_doctor(self, *words, program=(), **options):
        options.setdefault("timeout", 60)
        return subprocess.run([*(program or [PROGRAM]), "doctor", *words], capture_output=True,
                              text=True, **options)

    def doctor(self, *paths, code=0, probe=False, **options):
        """The checks by name; of several directories, those of the last."""
        more = [] if probe else ["--no-probe"]
        result = self.run_doctor("--json", *more, *paths, **options)
        self.assertEqual((result.returncode, result.stderr), (code, ""), result)
        report = json.loads(result.stdout)
        self.assertEqual(report["schema"], "penstock.doctor/1")
        self.assertEqual(report["paths"], list(paths) or ["."])
        failed = [check for check in report["checks"] if check["status"] == "FAIL"]
        self.assertEqual(len(failed), report["failures"])
        self.assertEqual(code == 3, bool(failed), failed)
        for check in report["checks"]:
            self.assertTrue(check["why"], check)
            if check["status"] in ("WARN", "FAIL"):
                self.assertTrue(check["cost"] and check["fix"], check)
            if check["status"] == ("FAIL" if failed else "WARN"):
                self.assertIn(check["name"], report["summary"])
        return {check["name"]: check for check in report["checks"]}

    def says(self, check, status, why="", fix=""):
        self.assertEqual(check["status"], status, check)
        self.assertIn(why, check["why"])
        self.assertIn(fix, check["fix"])

    def as_nobody(self):
        """A copy of the program that a user without rights can start."""
        if not IS_ROOT or shutil.which("setpriv") is None:
            self.skipTest("another user takes root and setpriv")
        copy = os.path.join(self.top, "penstock")
        shutil.copy(PROGRAM, copy)
        os.chmod(copy, 0o755)
        os.chmod(self.top, 0o755)
        return ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups",
                "--bounding-set", "-all", "--inh-caps", "-all", "--", copy]


class ProgramTest(DoctorCase):
    def test_text(self):
        result = self.run_doctor(self.place)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = result.stdout.splitlines()
        self.assertRegex(lines[0], r"^penstock \d.*, Linux")
        self.assertEqual(lines[1], "this machine")
        self.assertIn(self.place, lines)
        self.assertRegex(lines[-1], r"^\d+ warnings?, 0 failures: A training can run")
        for line in lines[1:-1]:
            self.assertTrue(len(line) <= 100 or line.lstrip().startswith("fix "), line)
        self.assertNotIn("\x1b", result.stdout)
        self.assertEqual(os.listdir(self.place), [])

    def test_probe(self):
        speed = self.doctor(self.place, probe=True)["speed"]
        self.assertIn(speed["status"], ("OK", "WARN"))
        for direction in ("read", "write", "first_write"):
            self.assertGreater(speed["data"][f"{direction}_bytes_per_second"], 0)
            self.assertGreater(speed["data"][f"{direction}_p99_seconds"], 0)
        self.assertLessEqual(speed["data"]["written_bytes"], 2 << 30)
        self.assertEqual(os.listdir(self.place), [])

    def test_default_path(self):
        self.assertEqual(self.doctor(cwd=self.place)["directory"]["path"], ".")

    def test_wrong_paths(self):
        file = os.path.join(self.top, "file")
        with open(file, "w"):
            pass
        for path, why in ((os.path.join(self.top, "none"), "no such directory"),
                          (file, "not a directory"), (file + "/x", "no such directory")):
            result = self.run_doctor(self.place, path)
            self.assertEqual(result.returncode, 2, result)
            self.assertEqual(result.stderr.count("\n"), 1)
            self.assertTrue(result.stderr.startswith("penstock: "), result.stderr)
            self.assertIn(path, result.stderr)
            self.assertIn(why, result.stderr)

    def test_paths_that_count_once(self):
        other = self.directory("other")
        self.says(self.doctor(self.place, self.place)["repeated"], "WARN", self.place)
        checks = self.doctor(self.place, other)
        if checks["drive"]["status"] == "SKIP":
            self.skipTest("temporary files have no drive here; set TMPDIR to a directory on one")
        self.says(checks["shared drives"], "WARN", f"{self.place} and {other} lie on", "one each")

    def test_rights(self):
        os.chmod(self.place, 0o777)
        self.says(self.doctor(self.place)["directory"], "WARN", "mode 0777", "run1")
        link = os.path.join(self.top, "link")
        os.symlink(self.place, link)
        self.says(self.doctor(link)["directory"], "WARN", "symbolic link")
        program = self.as_nobody()
        closed = self.directory("closed", 0o755)
        checks = self.doctor(closed, program=program, code=3)
        self.says(checks["directory"], "FAIL", "Permission denied", f"sudo chown {NOBODY} {closed}")
        self.assertNotIn("speed", checks)
        within = self.directory("closed2/within")
        os.chmod(os.path.dirname(within), 0o700)
        checks = self.doctor(within, program=program, code=3)
        self.says(checks["directory"], "FAIL", "Permission denied", "namei")

    def test_leftovers(self):
        self.assertNotIn("leftovers", self.doctor(self.place))
        data, run = os.path.join(self.place, "data"), os.path.join(self.place, "run")
        with open(data, "wb") as file:
            file.write(b"x" * 4000)
        # Killed while it makes its store, which takes long for a model of this size.
        train = subprocess.Popen([PROGRAM, "train", "--model", "tiny", "--seq", "32", "--batch",
                                  "1", "--threads", "1", "--data", data, "--store", run],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while not os.path.exists(os.path.join(run, "data.0")) and time.monotonic() < until:
            time.sleep(0.001)
        train.kill()
        train.wait(60)
        self.assertFalse([name for name in os.listdir(run) if name.startswith("manifest")])
        # Its last writes may hold the lock a little longer.
        checks = self.doctor(self.place)
        while "leftovers" not in checks and time.monotonic() < until:
            checks = self.doctor(self.place)
        self.says(checks["leftovers"], "WARN", "killed", f"penstock clean {self.place} --yes")

    def test_stop(self):
        """Ctrl-C ends it in an orderly way, wherever it is."""
        for delay in (0.05, 0.5, 1):
            process = subprocess.Popen([PROGRAM, "doctor", self.place], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE)
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
            # It may not have begun to listen, or be through.
            self.assertIn(process.returncode, (130, -signal.SIGINT, 0))
            self.assertEqual(os.listdir(self.place), [])

    def test_output_that_fails(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([PROGRAM, "doctor", "--no-probe", self.place], stdout=full,
                                    stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot write to standard output", result.stderr)


class LimitTest(DoctorCase):
    def test_without_io_uring(self):
        probe = subprocess.run([WITHOUT_URING, "EPERM", "/bin/true"], capture_output=True)
        if probe.returncode != 0:
            self.skipTest("this kernel takes no filter")
        for error, fix in (("EPERM", "seccomp"), ("ENOSYS", "Linux 5.6")):
            checks = self.doctor(self.place, probe=True, program=[WITHOUT_URING, error, PROGRAM])
            self.says(checks["io_uring"], "WARN", "refused: ", fix)
            self.assertEqual(checks["locked memory"]["status"], "SKIP")
            self.assertEqual(checks["speed"]["data"]["queue"], "threads")

    def test_locked_memory(self):
        program = self.as_nobody()
        os.chown(self.place, NOBODY, NOBODY)

        def limited(size):
            return self.doctor(self.place, program=program, preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_MEMLOCK, (size, size)))

        checks = limited(8 * MIB)
        self.says(checks["locked memory"], "WARN", "limit 8 MiB: of 64 MiB", "memlock=-1")
        self.assertEqual(checks["io_uring"]["status"], "OK")
        checks = limited(0)
        self.says(checks["io_uring"], "WARN", "Cannot allocate memory", "ulimit -l unlimited")
        self.says(checks["locked memory"], "SKIP", "limit 0 B")

    def test_file_size(self):
        def limited(size, **options):
            return self.doctor(self.place, preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_FSIZE, (size, size)), **options)

        checks = limited(100 * MIB, probe=True)
        self.says(checks["limits"], "WARN", "100 MiB at most", "ulimit -f unlimited")
        self.assertLessEqual(checks["speed"]["data"]["first_write_bytes"], 100 * MIB)
        checks = limited(4096, code=3)
        self.says(checks["limits"], "FAIL")
        self.says(checks["direct I/O"], "FAIL", "File too large", "ulimit -f unlimited")

    def test_open_files(self):
        for count, status in ((16, "WARN"), (10, "FAIL")):
            checks = self.doctor(self.place, code=3 if status == "FAIL" else 0,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE,
                                                                       (count, count)))
            self.says(checks["limits"], status, f"{count} files", "ulimit -n 1024")

    def test_huge_pages(self):
        libc = ctypes.CDLL(None)
        checks = self.doctor(self.place, preexec_fn=lambda: libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0,
                                                                       0))
        self.says(checks["huge pages"], "WARN", "0 B of 64 MiB")
        self.assertIn("2 to 2.8 times", checks["huge pages"]["cost"])

    def test_instructions(self):
        widest = self.doctor(self.place)["instructions"]["data"]["widest"]
        environment = {**os.environ, "PENSTOCK_ISA": "scalar"}
        checks = self.doctor(self.place, env=environment)
        if widest != "scalar":
            self.says(checks["instructions"], "WARN", "PENSTOCK_ISA", "unset PENSTOCK_ISA")
        environment["PENSTOCK_ISA"] = "avx9"
        self.says(self.doctor(self.place, env=environment, code=3)["instructions"], "FAIL", "avx9")


class DiskTest(DoctorCase):
    """Places that only root can make."""

    def setUp(self):
        super().setUp()
        if not IS_ROOT:
            self.skipTest("filesystems of the test's own take the right to mount: run as root")

    def mount(self, *words):
        result = subprocess.run(["mount", *words, self.place], capture_output=True, text=True)
        if result.returncode != 0:
            self.skipTest(f"mount {' '.join(words)}: {result.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", self.place], check=True)
        if "ro" not in words:
            os.chmod(self.place, 0o700)

    def loop(self, filesystem, *words, sector=512, size=None):
        if shutil.which(f"mkfs.{filesystem}") is None:
            self.skipTest(f"mkfs.{filesystem} is missing; run scripts/install-packages --test")
        backing = os.path.join(self.top, "disk")
        with open(backing, "wb") as file:
            file.truncate(size or disks.FILESYSTEMS[filesystem][0])
        made = subprocess.run(["losetup", "--find", "--show", "--direct-io=on",
                               f"--sector-size={sector}", backing], capture_output=True, text=True)
        if made.returncode != 0:
            self.skipTest(f"losetup: {made.stderr.strip()}")
        device = made.stdout.strip()
        self.addCleanup(subprocess.run, ["losetup", "--detach", device], check=True)
        disks.make_filesystem(device, filesystem)
        self.mount(*words, device)
        return device

    def test_memory_filesystem(self):
        self.mount("-t", "tmpfs", "-o", "size=2g", "tmpfs")
        checks = self.doctor(self.place)
        self.says(checks["filesystem"], "WARN", "tmpfs", "ext4 or xfs")
        self.says(checks["drive"], "SKIP", "no drive of its own")

    def test_full(self):
        self.mount("-t", "tmpfs", "-o", "size=2m", "tmpfs")
        self.says(self.doctor(self.place, code=3)["space"], "FAIL", "2 MiB free of 2 MiB")
        with open(os.path.join(self.place, "filling"), "wb") as file:
            file.write(b"x" * (2 * MIB))
        checks = self.doctor(self.place, code=3)
        self.says(checks["direct I/O"], "FAIL", "No space left", "df -h")
        self.says(checks["space"], "FAIL", "0 B free")

    def test_read_only(self):
        self.loop("ext4", "-o", "ro")
        checks = self.doctor(self.place, code=3)
        self.says(checks["directory"], "FAIL", "mounted read-only",
                  f"mount -o remount,rw {self.place}")
        self.assertNotIn("speed", checks)

    def test_large_sectors(self):
        device = self.loop("ext4", sector=4096)
        checks = self.doctor(self.place, code=3)  # a small disk: no room for a store
        self.says(checks["direct I/O"], "OK", "alignment 4096 B on the drive")
        self.says(checks["drive"], "OK", f"loop device {os.path.basename(device)} on {self.top}")
        self.assertEqual(checks["drive"]["data"]["sector_bytes"], 4096)

    def test_filesystems(self):
        for filesystem in ("xfs", "btrfs"):
            with self.subTest(filesystem):
                self.loop(filesystem, size=1 << 30)
                for name in ("a", "b"):
                    os.mkdir(os.path.join(self.place, name), 0o700)
                paths = [os.path.join(self.place, name) for name in ("a", "b")]
                checks = self.doctor(*paths, probe=True)
                self.says(checks["filesystem"], "OK", filesystem)
                self.says(checks["shared drives"], "WARN", " and ".join(paths))
                self.says(checks["direct I/O"], "OK",
                          "in place" if filesystem == "btrfs" else "alignment")
                self.assertIn(checks["speed"]["status"], ("OK", "WARN"))
                self.assertEqual(sum((os.listdir(path) for path in paths), []), [])
                self.doCleanups()
                self.setUp()

    def test_container_layer(self):
        self.mount("-t", "tmpfs", "-o", "size=1g", "tmpfs")
        parts = {name: os.path.join(self.place, name) for name in ("low", "up", "work", "merged")}
        for path in parts.values():
            os.mkdir(path, 0o700)
        result = subprocess.run(["mount", "-t", "overlay", "-o", "lowerdir={low},upperdir={up},"
                                 "workdir={work}".format(**parts), "overlay", parts["merged"]],
                                capture_output=True, text=True)
        if result.returncode != 0:
            self.skipTest(f"mount overlay: {result.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", parts["merged"]], check=True)
        self.says(self.doctor(parts["merged"])["filesystem"], "WARN", "container", "--volume")
        self.assertEqual(os.listdir(parts["merged"]), [])

    def with_log_disk(self):
        try:
            disks.need(["ext4"])
            disk = disks.LogDisk(LOG_DISK, os.path.join(self.top, "fuse"), 64 * MIB, "/dev/null")
        except disks.Skip as missing:
            self.skipTest(str(missing))
        self.addCleanup(disk.close)
        return disk

    def test_fuse(self):
        disk = self.with_log_disk()
        checks = self.doctor(disk.directory, code=3)
        self.says(checks["filesystem"], "WARN", "FUSE", "ext4 or xfs")
        self.says(checks["directory"], "FAIL", "no file can be created")

    def test_drive_that_hangs(self):
        disk = self.with_log_disk()
        loop = disks.Loop(disk.path)
        self.addCleanup(loop.close)
        disks.make_filesystem(loop.path, "ext4")
        mount = disks.Mount(loop.path, os.path.join(self.top, "mounted"), "ext4")
        self.addCleanup(mount.close)
        os.chmod(mount.directory, 0o700)
        hang_s = 30
        disk.tell(f"hang {hang_s * 1000}")
        began = time.monotonic()
        checks = self.doctor(mount.directory, code=3)
        self.says(checks["directory"], "FAIL", "no answer in 10 s", "umount -l")
        # Not a matter of speed: it must not have waited for the drive.
        self.assertLess(time.monotonic() - began, hang_s - 1)
        self.assertNotIn("speed", checks)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
