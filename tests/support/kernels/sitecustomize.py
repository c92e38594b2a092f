"""What a Python that runs a notebook begins with: as in conftest.py, its graphs live on."""

import gc

gc.set_threshold(50_000, 20, 100)
