"""What Linux says of the disk below a folder, on machines that are described here."""

from pathlib import Path

import pytest

from penstock.workers.resources.storage import Speed, storage_speed

MOUNTS = r"""
21 27 0:21 / /proc rw - proc proc rw
27 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
28 27 259:2 / /mnt/nvme0 rw,relatime - xfs /dev/nvme0n1p2 rw
29 27 8:16 / /ssd rw - ext4 /dev/sdb rw
30 27 8:0 / /disk rw - ext4 /dev/sda rw
31 27 253:0 / /striped rw - xfs /dev/mapper/vg-fast rw
32 27 253:1 / /mixed rw - xfs /dev/mapper/vg-mixed rw
33 27 0:40 / /home rw - nfs4 server:/home rw,addr=10.0.0.1
34 27 0:41 / /lustre rw - lustre 10.0.0.1@o2ib:/fs rw
35 27 0:42 / /tmp rw - tmpfs tmpfs rw
37 27 0:44 / /container rw - overlay overlay rw,lowerdir=/l,upperdir=/u
42 27 8:0 / /with\040space rw - ext4 /dev/sda rw
43 28 0:49 / /mnt/nvme0/share rw - nfs4 server:/share rw
44 27 8:0 / /twice rw - ext4 /dev/sda rw
45 27 0:50 / /twice rw - tmpfs tmpfs rw
"""

DISKS = {
    "nvme0n1": ("259:0", "0", {"nvme0n1p2": "259:2", "nvme0n1p3": "259:3"}),
    "nvme1n1": ("259:4", "0", {}),
    "sda": ("8:0", "1", {}),
    "sdb": ("8:16", "0", {}),
    "vda": ("254:0", "1", {"vda1": "254:1"}),
    "dm-0": ("253:0", "0", {}),
    "dm-1": ("253:1", "0", {}),
}
BELOW = {"dm-0": ["nvme0n1/nvme0n1p2", "nvme1n1"], "dm-1": ["nvme1n1", "sda"]}


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(MOUNTS.lstrip())
    blocks, numbers, names = (
        tmp_path / "sys" / part for part in ("devices/block", "dev/block", "class/block")
    )
    for folder in (blocks, numbers, names):
        folder.mkdir(parents=True)
    for name, (number, rotates, partitions) in DISKS.items():
        (blocks / name / "queue").mkdir(parents=True)
        (blocks / name / "queue/rotational").write_text(f"{rotates}\n")
        (blocks / name / "slaves").mkdir()
        (numbers / number).symlink_to(blocks / name)
        (names / name).symlink_to(blocks / name)
        for partition, its_number in partitions.items():
            (blocks / name / partition).mkdir()
            (numbers / its_number).symlink_to(blocks / name / partition)
            (names / partition).symlink_to(blocks / name / partition)
    for name, below in BELOW.items():
        for other in below:
            (blocks / name / "slaves" / Path(other).name).symlink_to(blocks / other)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "speed"),
    [
        ("/mnt/nvme0/a/b", Speed.NVME),
        ("/mnt/nvme01", Speed.DISK),
        ("/mnt/nvme0/share/g", Speed.SHARED),
        ("/ssd/x", Speed.SSD),
        ("/disk/x", Speed.DISK),
        ("/striped", Speed.NVME),
        ("/mixed", Speed.DISK),
        ("/home/me/g", Speed.SHARED),
        ("/lustre/g", Speed.SHARED),
        ("/tmp", Speed.MEMORY),
        ("/container", Speed.DISK),
        ("/with space/g", Speed.DISK),
        ("/twice", Speed.MEMORY),
    ],
)
def test_the_speed_of_a_folder(machine, path, speed):
    assert storage_speed(Path(path), top=machine) == speed


def test_this_machine(tmp_path):
    assert storage_speed(tmp_path / "not/there") == storage_speed(tmp_path)
    if Path("/dev/shm").is_dir():
        assert storage_speed(Path("/dev/shm/x")) == Speed.MEMORY
