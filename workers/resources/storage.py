"""The speed of the disk below a folder, as far as Linux knows it."""

from __future__ import annotations

import re
from enum import IntEnum
from pathlib import Path


class Speed(IntEnum):
    """Kinds of storage for scratch, the best last."""

    MEMORY = 0  # fast, but it takes memory from the jobs
    SHARED = 1  # over the network, or from the host of a virtual machine
    DISK = 2  # rotates, or unknown
    SSD = 3
    NVME = 4


_IN_MEMORY = ("tmpfs", "ramfs")
_SHARED = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|lustre|gpfs|beegfs\w*|ceph|glusterfs|9p|virtiofs|afs|orangefs|pvfs2"
    r"|panfs|wekafs|daos|fuse\..*"
)
_LOCAL_FUSE = ("fuse.fuse-overlayfs",)


def storage_speed(path: Path, *, top: Path = Path("/")) -> Speed:
    """Return the storage of ``path``, which need not exist yet."""
    number, kind, source = _mount(path.resolve(), top)
    if kind in _IN_MEMORY:
        return Speed.MEMORY
    if _SHARED.fullmatch(kind) and kind not in _LOCAL_FUSE:
        return Speed.SHARED
    device = top / "sys/dev/block" / number
    if number.startswith("0:") and source.startswith("/dev/"):  # btrfs
        device = top / "sys/class/block" / Path(source).resolve().name
    return _device_speed(device.resolve()) if device.exists() else Speed.DISK


def _mount(path: Path, top: Path) -> tuple[str, str, str]:
    wanted, best, found = f"{path}/".replace("//", "/"), -1, ("0:0", "", "")
    try:
        # Undecodable names of unrelated mounts must not matter.
        lines = (top / "proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:
        here, _, there = (part.split() for part in line.partition(" - "))
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), here[4])
        point = point.rstrip("/") + "/"
        # Of two mounts in one place the later one is visible.
        if wanted.startswith(point) and len(point) >= best:
            best, found = len(point), (here[2], there[0], there[1])
    return found


def _device_speed(device: Path) -> Speed:
    """Return the speed of a block device by its folder in /sys; a group's is its slowest disk's."""
    disk = device if (device / "queue").is_dir() else device.parent  # a partition has no queue
    if below := [entry.resolve() for entry in (disk / "slaves").glob("*")]:
        return min(_device_speed(entry) for entry in below)
    if disk.name.startswith("nvme"):
        return Speed.NVME
    if re.match(r"z?ram\d", disk.name):
        return Speed.MEMORY
    try:
        rotates = (disk / "queue/rotational").read_text().strip() != "0"
    except OSError:
        rotates = True
    return Speed.DISK if rotates else Speed.SSD
