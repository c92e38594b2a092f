"""What attention knows of places, in plain NumPy: rotary, ALiBi, T5's biases, where it was."""

import math

import numpy as np


def array(x):
    """A Keras variable or tensor as float64."""
    return np.asarray(x.numpy(), "float64")


def turned(x, base=10000, factor=1, length=8192):
    """Each pair of the features of x [B, T, K], turned by the angle of its place."""
    turned = np.zeros(x.shape)
    for t, i in np.ndindex(x.shape[1], x.shape[2] // 2):
        angle = t * frequency(base ** (-2 * i / x.shape[2]), factor, length)
        turn = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        turned[:, t, 2 * i : 2 * i + 2] = x[:, t, 2 * i : 2 * i + 2] @ np.array(turn)
    return turned


def frequency(frequency, factor, length):
    """A frequency of Llama 3.1: the lower, the more it is divided."""
    wavelength = 2 * math.pi / frequency
    if wavelength < length / 4:
        return frequency
    if wavelength > length:
        return frequency / factor
    smooth = (length / wavelength - 1) / (4 - 1)
    return (1 - smooth) * frequency / factor + smooth * frequency


def bucket(distance, causal, count=32, maximum=128):
    """T5's bucket of a key that stands so many places behind its query."""
    if not causal:
        first = count // 2 if distance > 0 else 0
        return first + bucket(-abs(distance), True, count // 2, maximum)
    distance = max(-distance, 0)
    near = count // 2
    if distance < near:
        return distance
    far = near + int(math.log(distance / near) / math.log(maximum / near) * (count - near))
    return min(far, count - 1)


def place_bias(layer, head, length, causal):
    """What places add to the scores of a head, [T, T], query by query and key by key."""
    found = np.zeros((length, length))
    for i, j in np.ndindex(length, length):
        if layer.positions == "alibi":
            number = head + 1 if j <= i else layer.num_heads - head
            found[i, j] = -(2 ** (-8 * number / layer.num_heads)) * abs(i - j)
        if layer.positions == "relative":
            found[i, j] = array(layer.places.table)[bucket(j - i, causal), head]
    return found


def location(layer, below, mask):
    """What is added to the scores of each head, [B, H, T, S], place by place."""
    kernel = array(layer.location.kernel)
    size, half = below.shape[-1], len(kernel) // 2
    found = np.zeros(below.shape)
    for s, n in np.ndindex(size, len(kernel)):
        if 0 <= s + n - half < size:
            found[..., s] += np.einsum("bgt,gh->bht", below[..., s + n - half], kernel[n])
    return found
