"""How the process holds the memory that a training step takes and frees again and again.

It is gigabytes, which the processor finds sooner in pages of 2 MiB than of 4 KiB. And glibc gives a
large block back to the system as soon as it is freed, and the next step waits for the system to
clear the same pages anew. A step of a Transformer frees a dozen blocks of many megabytes: logits,
their exponentials, their gradient. Kept, they cost nothing.
"""

import ctypes
import os
import sys

# Of glibc 2.35 and later, which reads it when a program begins: ask the system for huge pages.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
# Of <malloc.h>.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


def take_huge_pages(program):
    """Begins this program again, once, with `HUGE_PAGES` in its environment.

    To be called before it has done anything. Where the user has set glibc's tunables, they stay.

    Args:
        program: the module that Python was to run. Where its command line does not name it, this
            process is somebody else's (a notebook's, say), and goes on as it is.
    """
    named = bool(sys.executable) and program in sys.orig_argv
    if sys.platform == "linux" and named and not HUGE_PAGES.keys() & os.environ.keys():
        os.environ.update(HUGE_PAGES)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


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
