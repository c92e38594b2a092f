"""Keeps the memory that each training step allocates and frees, to make training faster.

This memory has several gigabytes. The processor finds it faster in pages of 2 MiB than in pages of
4 KiB. By default, glibc returns a large block to the system as soon as it is freed, and the next
step waits while the system clears the same pages again. A step of a Transformer frees a dozen
blocks of many megabytes: logits, their exponentials, their gradient. If the process keeps them,
this time is saved.
"""

import ctypes
import os
import sys

# For glibc 2.35 and later, which reads it at program start: request huge pages from the system.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
# Constants of <malloc.h>.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


def take_huge_pages(program):
    """Restarts this program once, with `HUGE_PAGES` in its environment.

    Call it before the program has done anything else. If the user has set glibc's tunables, they
    stay and there is no restart; nor is there one if the command line does not name the module
    `program`: then the process belongs to another program, a notebook for example.
    """
    named = bool(sys.executable) and program in sys.orig_argv
    if sys.platform == "linux" and named and not HUGE_PAGES.keys() & os.environ.keys():
        os.environ.update(HUGE_PAGES)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def keep_freed_memory():
    """Makes the process keep freed memory from now on, up to its peak use. False: not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # Map no block separately, and never trim the end of the heap.
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 2**26}
    return all([mallopt(name, value) for name, value in settings.items()])
