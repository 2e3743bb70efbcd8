"""Small filesystems on loop devices over the disk of log_disk.cpp, for tests that run as root.

Everything that was made is undone in reverse order when the `with` block ends, killed or not.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time

MIB = 1 << 20
# The smallest that mkfs and our store take, and what mkfs is told. No discards: the disk has none.
FILESYSTEMS = {
    "ext4": (64 * MIB, ["mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0"]),
    "xfs": (300 * MIB, ["mkfs.xfs", "-q", "-K", "-m", "reflink=0"]),
    "btrfs": (128 * MIB, ["mkfs.btrfs", "-q", "-K", "-M"]),
    # With space of its own for metadata, as larger drives have it.
    "btrfs-apart": (300 * MIB, ["mkfs.btrfs", "-q", "-K"]),
}
KINDS = ["ext4", "xfs", "btrfs"]
WAIT_S = 20

LOOP_CTL_GET_FREE = 0x4C82
LOOP_CONFIGURE = 0x4C0A
LO_FLAGS_AUTOCLEAR = 4
LO_FLAGS_DIRECT_IO = 16
MNT_DETACH = 2
MS_NOATIME = 1024  # reading a file must not write to the disk

libc = ctypes.CDLL(None, use_errno=True)


class Skip(Exception):
    """What is missing here; the test ends with 77."""


def need(filesystems):
    """Skips, saying why, where such disks cannot be made."""
    if os.geteuid() != 0:
        raise Skip("only root may mount; run it as root")
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(device):
            raise Skip(f"{device} is missing; use a kernel with FUSE and loop devices")
    for name in filesystems:
        program = FILESYSTEMS[name][1][0]
        if shutil.which(program) is None:
            raise Skip(f"{program} is missing; run scripts/install-packages --test")
        with open("/proc/filesystems") as known:
            if name not in known.read().split():
                raise Skip(f"this kernel has no {name}")


def call(what, result):
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


class LogDisk:
    """A log_disk with its two files."""

    def __init__(self, program, directory, *words):
        self.directory = directory
        os.mkdir(directory)
        self.process = subprocess.Popen([program, directory, *map(str, words)])
        until = time.monotonic() + WAIT_S
        while not os.path.exists(self.path):
            if self.process.poll() is not None or time.monotonic() > until:
                self.process.kill()
                raise Skip("a FUSE filesystem cannot be mounted here")
            time.sleep(0.005)

    @property
    def path(self):
        return self.directory + "/disk"

    @property
    def control_path(self):
        return self.directory + "/control"

    def tell(self, command):
        control = os.open(self.control_path, os.O_WRONLY)
        try:
            os.write(control, command.encode())
        finally:
            os.close(control)

    def close(self):
        libc.umount2(self.directory.encode(), MNT_DETACH)
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.rmdir(self.directory)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


class Loop:
    """A loop device on a file, past the page cache; it goes when its last user does."""

    def __init__(self, path):
        backing = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
        try:
            # Between asking for a free device and taking it, another test may have taken it.
            for _ in range(50):
                number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
                self.path = f"/dev/loop{number}"
                self.device = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
                info = struct.pack("=QQQQQIIII64s64s32sQQ", 0, 0, 0, 0, 0, 0, 0, 0,
                                   LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO, b"", b"", b"", 0, 0)
                try:
                    fcntl.ioctl(self.device, LOOP_CONFIGURE,
                                struct.pack("=II", backing, 0) + info + bytes(64))
                    return
                except OSError as error:
                    os.close(self.device)
                    if error.errno != errno.EBUSY:
                        raise
            raise Skip("no free loop device")
        finally:
            os.close(control)
            os.close(backing)

    def close(self):
        os.close(self.device)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


class Mount:
    """A mounted filesystem."""

    def __init__(self, device, directory, filesystem, options=""):
        self.directory = directory
        os.makedirs(directory, exist_ok=True)
        call(f"mount {filesystem}", libc.mount(device.encode(), directory.encode(),
                                               filesystem.split("-")[0].encode(), MS_NOATIME,
                                               options.encode()))

    def close(self):
        until = time.monotonic() + WAIT_S
        while libc.umount2(self.directory.encode(), 0) != 0:
            code = ctypes.get_errno()
            if code != errno.EBUSY or time.monotonic() > until:
                libc.umount2(self.directory.encode(), MNT_DETACH)
                raise OSError(code, f"unmount {self.directory}: {os.strerror(code)}")
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def make_filesystem(device, filesystem):
    result = subprocess.run([*FILESYSTEMS[filesystem][1], device], capture_output=True, text=True)
    if result.returncode != 0:
        raise OSError(errno.EIO, f"mkfs: {result.stderr}")
