"""How the process keeps the memory that a training step takes and frees again and again.

glibc gives a large block back to the system as soon as it is freed, and the next step waits for the
system to clear the same pages anew. A step of a Transformer frees a dozen blocks of many megabytes:
logits, their exponentials, their gradient. Kept, they cost nothing.
"""

import ctypes

# Of <malloc.h>.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


def keep_freed_memory():
    """From here on, freed memory stays with the process, up to the most it has ever used at once.

    Returns:
        Whether the allocator took it: only glibc's does.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # No block is mapped by itself, and the heap's end is not cut off.
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 2**26}
    return all([mallopt(name, value) for name, value in settings.items()])
