"""Computes on JAX the loss of `benchmarks.on_jax.models`, and its gradients; test_on_jax.py has
TensorFlow's.

    KERAS_BACKEND=jax python tests/support/jax_loss.py FILE OUT

FILE has `settings`, JSON, of a model without dropout; its weights, `student/NAME` and, of each
teacher, `0/NAME`; `source` and `labels`, and the options `r_drop` and `teacher_weight`.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.on_jax.models import Models


def main(path, out):
    arrays = dict(np.load(path))
    named = {
        who: {name[len(who) + 1 :]: x for name, x in arrays.items() if name.startswith(f"{who}/")}
        for who in ("student", "0", "1")
    }
    options = {name: float(arrays[name]) for name in ("r_drop", "teacher_weight")}
    models = Models(
        json.loads(bytes(arrays["settings"])),
        [{"seed": 3, "reverse": 0, **options}],
        np.zeros((2, 1, 1, 64), "int16"),
        2,
        {who: named[who] for who in ("0", "1")},
        "float32",
    )
    weights = [jnp.asarray(named["student"][name]) for name in models.names]
    seeds = jax.tree.map(lambda x: x[0], models.state[1])
    given = jnp.asarray(arrays["source"]), jnp.asarray(arrays["labels"])
    known = {name: x[0] for name, x in models.options.items()}, models.teachers, jnp.float32(0)
    (loss, _), gradients = jax.value_and_grad(models._loss, has_aux=True)(
        weights, seeds, *given, *known
    )
    np.savez(out, loss=loss, **dict(zip(models.names, gradients, strict=True)))


if __name__ == "__main__":
    main(*sys.argv[1:])
