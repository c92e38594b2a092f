"""Data parallelism on the JAX backend: two devices give the weights of one, to 1e-5."""

import os
import subprocess
import sys

import numpy as np
import pytest
from paths import ROOT, SUPPORT

pytest.importorskip("jax")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The weights and metrics computed by support/jax_devices.py, by the number of devices."""
    folder, processes = tmp_path_factory.mktemp("jax"), {}
    for devices in (1, 2):
        environment = {
            **os.environ,
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(ROOT),
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        }
        command = [sys.executable, str(SUPPORT / "jax_devices.py"), str(folder / f"{devices}.npz")]
        processes[devices] = subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, text=True
        )
    for process in processes.values():
        _, said = process.communicate()
        assert process.returncode == 0, said
    return {devices: dict(np.load(folder / f"{devices}.npz")) for devices in processes}


def test_two_devices_give_the_results_of_one(trained):
    one, two = trained[1], trained[2]
    assert (one.pop("devices"), two.pop("devices")) == (1, 2)
    assert (one.pop("placed"), two.pop("placed")) == (1, 2), "a copy of each weight a device"
    assert one["perplexity"][1] < one["perplexity"][0]
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


def test_train_command_is_refused_with_the_jax_backend(tmp_path):
    command = [sys.executable, "-m", "training.train", "dates", "--run", str(tmp_path / "run")]
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "KERAS_BACKEND=tensorflow, got jax" in done.stderr.strip().splitlines()[-1]
    assert not (tmp_path / "run").exists()
