"""Each export translates everything in each round and gets its own figures."""

from benchmarks import exports


class Model:
    """A translator that answers with the letter of its name, twice, and counts its calls."""

    asked = []

    def __init__(self, directory, batch_size, requests, inter_op_threads):
        self.directory, self.batch_size = directory, batch_size

    def translate(self, lines):
        Model.asked.append((self.directory, self.batch_size, len(lines)))
        return [f"{self.directory} {self.directory}" for _ in lines]

    def close(self):
        Model.asked.append((self.directory, self.batch_size, "closed"))


def test_exports_are_timed_in_turn_after_a_warmup_round(monkeypatch):
    monkeypatch.setattr("export.serving.bulk.BulkTranslator", Model)
    Model.asked.clear()
    options = exports.parser().parse_args(
        ["x=a", "y=b", "--source", "s", "--target", "t", "--singles", "2", "--rounds", "3"]
    )
    found, times = exports.measure({"x": "a", "y": "b"}, ["one", "two", "three"], options)
    turn = [("a", 1, 2), ("a", 32, 3), ("b", 1, 2), ("b", 32, 3)]
    assert Model.asked[:16] == turn * 4
    assert [ask[2] for ask in Model.asked[16:]] == ["closed"] * 4
    assert found == {"x": ["a a"] * 3, "y": ["b b"] * 3}
    assert {key: len(rounds) for key, rounds in times.items()} == dict.fromkeys(
        [("x", 1), ("x", 32), ("y", 1), ("y", 32)], 3
    )


def test_the_table_by_hand():
    times = {("x", 1): [4.0, 9.0, 8.0], ("x", 32): [2.0], ("y", 1): [2.0], ("y", 32): [4.0]}
    found = {"x": ["a b c d e", "f"], "y": ["a a c d e", "f"]}
    rows = [row.split("|")[1:-1] for row in exports.table(found, times, ["a b c d e", "f"], 32)]
    rows = [[cell.strip() for cell in row] for row in rows]
    assert rows[0] == ["", "BLEU", "repeated words, %", "ms, batch 1", "×", "ms, batch 32", "×"]
    assert rows[2] == ["x", "100.00", "0.00", "8.00", "1.00", "2.00", "1.00"]
    assert rows[3][0] == "y" and rows[3][2:] == ["16.67", "2.00", "4.00", "4.00", "0.50"]
