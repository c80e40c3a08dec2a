"""Files read and written by a kernel, through queues that threads of the host serve.

Names and meaning are naive/queues.py's; ``transfer`` is asynchronous, on the current stream, and
kernels of other streams run meanwhile: it takes one block per queue. File data go through the
queues' page-locked staging memory, since the controller is software: GPUDirect Storage with a
drive's own queues needs a kernel module, this needs none.
"""

from __future__ import annotations

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import launch_blocks
from penstock.kernels.queue_rules import (
    ALIGNMENT,
    Operation,
    Producer,
    QueueFormat,
    QueueMemory,
    aligned,
)

_FILE = "queues/transfer"
_PRODUCER_WORDS = 3  # struct Producer of transfer.cu


class Queues:
    """Queues in page-locked memory, and the kernel's state of them between launches."""

    def __init__(self, queues: int, form: QueueFormat | None = None) -> None:
        form = form or QueueFormat()
        size = queues * form.stride
        self._pinned = cp.cuda.alloc_pinned_memory(size + ALIGNMENT)
        memory = np.frombuffer(self._pinned, np.uint8, size + ALIGNMENT)
        self.shared = QueueMemory(aligned(memory, size), queues, form)
        self._producers = cp.zeros((queues, _PRODUCER_WORDS), np.uint64)
        self._consumed = cp.zeros((queues, form.entries), np.uint64)

    def transfer(
        self,
        operation: Operation,
        file: int,
        offset: int,
        data: DeviceArray,
        *,
        producer: Producer = Producer.BATCH,
        patience: float = 60.0,
    ) -> DeviceArray:
        """Read or write all bytes of ``data`` at ``offset`` of a file of the controller.

        Returns two int64 on the device, valid once the stream has reached them: a ``Status`` or
        errno, and the number of moved pages. After a status other than 0 the queues are unusable.

        patience  seconds that a round of a queue may take
        """
        assert offset % ALIGNMENT == data.nbytes % ALIGNMENT == 0, (offset, data.nbytes)
        assert data.flags.c_contiguous, data.strides
        assert data.data.ptr % 16 == 0, data.data.ptr
        form, result = self.shared.form, cp.zeros(2, np.int64)
        launch_blocks(
            _FILE,
            f"transfer_pages<{int(producer)}>",
            len(self.shared.queues),
            form.entries,
            np.uint64(self.shared.memory.ctypes.data),
            np.int32(form.entries),
            np.int64(form.staging_at),
            np.int64(form.page_bytes),
            np.int64(form.stride),
            self._producers,
            self._consumed,
            data,
            np.int64(data.nbytes),
            np.uint32(operation),
            np.uint32(file),
            np.uint64(offset),
            np.uint64(int(patience * 1e9)),
            result,
        )
        return result
