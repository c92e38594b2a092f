"""Zones of RAPL in a folder, as the kernel shows them in /sys/class/powercap."""


def zone(folder, name, kind, microjoules, maximum=1_000_000_000):
    """Makes a zone; returns the file of its counter, whose text a test may change."""
    path = folder / name
    path.mkdir(parents=True)
    (path / "name").write_text(f"{kind}\n")
    (path / "max_energy_range_uj").write_text(f"{maximum}\n")
    (path / "energy_uj").write_text(f"{microjoules}\n")
    return path / "energy_uj"
