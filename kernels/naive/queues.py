"""Moving pages through submission and completion queues, as a producer on the host.

One producer per queue, one after another; kernels/queue_rules.py defines the format.
"""

from __future__ import annotations

import time

import numpy as np

from penstock.arrays import Array
from penstock.kernels.queue_rules import (
    ALIGNMENT,
    Operation,
    Producer,
    Queue,
    QueueFormat,
    QueueMemory,
    Status,
    aligned,
    tag,
)


class Queues:
    """Queues in host memory, with the state of a producer.

    ``producer`` has no effect on places and order: one thread needs no lock.
    """

    def __init__(self, queues: int, form: QueueFormat | None = None) -> None:
        form = form or QueueFormat()
        size = queues * form.stride
        self.shared = QueueMemory(aligned(np.zeros(size + 4096, np.uint8), size), queues, form)

    def transfer(
        self,
        operation: Operation,
        file: int,
        offset: int,
        data: Array,
        *,
        producer: Producer = Producer.BATCH,
        patience: float = 60.0,
    ) -> Array:
        """Read or write all bytes of ``data`` at ``offset`` of a file of the controller.

        Queue q moves rounds q, q + queues, ... of ``entries`` pages each. Returns two int64: a
        ``Status`` or errno, and the number of moved pages.

        patience  seconds that a round may take
        """
        assert offset % ALIGNMENT == data.nbytes % ALIGNMENT == 0, (offset, data.nbytes)
        flat = data.reshape(-1).view(np.uint8)
        result = np.zeros(2, np.int64)
        form, queues = self.shared.form, self.shared.queues
        pages = -(-flat.size // form.page_bytes)
        for number, first in enumerate(range(0, pages, form.entries)):
            count = min(form.entries, pages - first)
            part = flat[first * form.page_bytes : (first + count) * form.page_bytes]
            where = offset + first * form.page_bytes
            queue = queues[number % len(queues)]
            status, moved = _round(queue, operation, file, where, part, patience)
            result[1] += moved
            if status:
                result[0] = status
                break
        return result


def _round(
    queue: Queue, operation: Operation, file: int, offset: int, part: Array, patience: float
) -> tuple[int, int]:
    form, start = queue.form, int(queue.submitted[0])
    pages = -(-part.size // form.page_bytes)
    cuts = [slice(i * form.page_bytes, (i + 1) * form.page_bytes) for i in range(pages)]
    for i, cut in enumerate(cuts):
        place, size = (start + i) % form.entries, part[cut].size
        if operation == Operation.WRITE:
            queue.staging[place, :size] = part[cut]
        queue.commands[place] = (operation, file, offset + cut.start, size, place, start + i)
    queue.submitted[0] = start + pages
    bad, moved, end = 0, 0, time.monotonic() + patience
    for i in range(pages):
        place = (start + i) % form.entries
        while int(queue.tags[place]) >> 32 != tag(start + i, form.entries):
            if queue.stopped[0]:
                return Status.STOPPED, moved
            if time.monotonic() > end:
                return Status.TIMED_OUT, moved
            time.sleep(1e-5)
        found = int(queue.completions[place]["status"])
        bad, moved = bad or found, moved + (not found)
    queue.read[0] = start + pages
    if operation == Operation.READ and not bad:
        for i, cut in enumerate(cuts):
            part[cut] = queue.staging[(start + i) % form.entries, : part[cut].size]
    return bad, moved
