"""Damage to bytes and to JSON, drawn by a `random.Random`: what nobody should send."""

import copy
import json

ODD_BYTES = [
    b"",
    b"\0",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80",
    b"\r\n",
    b'"',
    b"\\",
]
# Literals that stand where a value should: as text, for Python writes few of them.
ODD_VALUES = [
    "null", "true", "0", "-1", "1.5", "1e999", "-0.0", "NaN", "-Infinity", "[]", "{}", "[[]]",
    "[null]", '[["a"], "a"]', '{"b64": "YQ=="}', '{"b64": "!"}', '{"b64": 1}', '{"b64": null}',
    '{"text": ["a"]}', '{"text": null}', '{"": 1}', '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"',
    '""', '"\\ud83d\\ude00"', '"\\x"', "9" * 400, "9" * 5000, "-" + "9" * 30, "1e-400",
    "2147483648",
    '"' + "long " * 20_000 + '"', "[" * 33 + '"a"' + "]" * 33, "[" * 3000 + "]" * 3000,
    '{"a":' * 3000 + "1" + "}" * 3000, "[" + "0," * 5000 + "0]",
]  # fmt: skip


def damaged(rng, data):
    """Bytes with one to three damages."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                del data[at:]
            case 2:
                data[at:at] = rng.choice(ODD_BYTES)
            case 3:
                data[at:at] = data[: rng.randrange(1, 40)]
            case 4:
                del data[at : at + rng.randrange(1, 20)]
            case _:
                data[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(5))
    return bytes(data)


def places(document, path=()):
    """The paths of all values in nested lists and objects, the whole one's first."""
    yield path
    if isinstance(document, dict | list):
        for key in document if isinstance(document, dict) else range(len(document)):
            yield from places(document[key], (*path, key))


def mutated_json(rng, document):
    """The text of a document with one to three of its places changed, bytes."""
    document = copy.deepcopy(document)
    holes = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        path = rng.choice([*places(document)])
        if not path:
            return _value(rng).encode()
        parent = document
        for key in path[:-1]:
            parent = parent[key]
        _change(rng, parent, path[-1], holes)
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5)
    for name, value in holes:
        text = text.replace(f'"{name}"', value)
    return text.encode("utf-8", "surrogatepass")


def _change(rng, parent, key, holes):
    """Changes what stands in `parent` at `key`; a hole is a name whose literal comes later."""
    hole = f"hole {len(holes)}"
    match rng.randrange(7):
        case 0 if isinstance(parent, dict):  # the same key twice
            holes.append((hole, '"' + str(key) + '": ' + _value(rng) + ', "x"'))
            parent[hole] = 0
        case 1:
            del parent[key]
        case 2 if isinstance(parent, dict):
            parent[str(key) + rng.choice(["", "s", "\0", "é", "x" * 3000])] = parent.pop(key)
        case 2:
            parent.insert(key, copy.deepcopy(parent[key]))
        case 3:
            parent[key] = [parent[key]] * rng.choice([0, 1, 2, 40])
        case 4:
            parent[key] = {rng.choice(["text", "b64", "x"]): parent[key]}
        case _:
            holes.append((hole, _value(rng)))
            parent[key] = hole


def _value(rng):
    return rng.choice(ODD_VALUES)
