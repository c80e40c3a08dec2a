"""What Linux says of the disk below a folder, on a machine that is described here."""

from pathlib import Path

import pytest

from penstock.workers.resources.storage import Speed, storage_speed

MOUNTS = r"""21 27 0:21 / /proc rw - proc proc rw
27 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
28 27 259:2 / /mnt/nvme0 rw,relatime - xfs /dev/nvme0n1p2 rw
29 27 8:16 / /ssd rw - ext4 /dev/sdb rw
31 27 253:0 / /striped rw - xfs /dev/mapper/vg-fast rw
32 27 253:1 / /mixed rw - xfs /dev/mapper/vg-mixed rw
34 27 0:41 / /lustre rw - lustre 10.0.0.1@o2ib:/fs rw
37 27 0:44 / /container rw - overlay overlay rw,lowerdir=/l,upperdir=/u
42 27 8:0 / /with\040space rw - ext4 /dev/sda rw
43 28 0:49 / /mnt/nvme0/share rw - nfs4 server:/share rw
44 27 8:0 / /twice rw - ext4 /dev/sda rw
45 27 0:50 / /twice rw - tmpfs tmpfs rw
"""
# name: number, whether it rotates, partitions, what it is made of
DISKS = {
    "nvme0n1": ("259:0", "0", {"nvme0n1p2": "259:2"}, []),
    "nvme1n1": ("259:4", "0", {}, []),
    "sda": ("8:0", "1", {}, []),
    "sdb": ("8:16", "0", {}, []),
    "vda": ("254:0", "1", {"vda1": "254:1"}, []),
    "dm-0": ("253:0", "0", {}, ["nvme0n1/nvme0n1p2", "nvme1n1"]),
    "dm-1": ("253:1", "0", {}, ["nvme1n1", "sda"]),
}


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(MOUNTS)
    places = "devices/block", "dev/block", "class/block"
    blocks, numbers, names = (tmp_path / "sys" / place for place in places)
    for name, (number, rotates, partitions, below) in DISKS.items():
        for folder in (blocks / name / "queue", blocks / name / "slaves", numbers, names):
            folder.mkdir(parents=True, exist_ok=True)
        (blocks / name / "queue/rotational").write_text(f"{rotates}\n")
        for other in below:
            (blocks / name / "slaves" / Path(other).name).symlink_to(blocks / other)
        for part, its_number in {"": number, **partitions}.items():
            (blocks / name / part).mkdir(exist_ok=True)
            (numbers / its_number).symlink_to(blocks / name / part)
            (names / (part or name)).symlink_to(blocks / name / part)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "speed"),
    [
        ("/mnt/nvme0/a/b", Speed.NVME),
        ("/mnt/nvme01", Speed.DISK),
        ("/mnt/nvme0/share/g", Speed.SHARED),
        ("/ssd/x", Speed.SSD),
        ("/striped", Speed.NVME),
        ("/mixed", Speed.DISK),
        ("/lustre/g", Speed.SHARED),
        ("/container", Speed.DISK),
        ("/with space/g", Speed.DISK),
        ("/twice", Speed.MEMORY),
    ],
)
def test_the_speed_of_a_folder(machine, path, speed):
    assert storage_speed(Path(path), top=machine) == speed
