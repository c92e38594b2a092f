"""The playground: what its server forwards and refuses, and its page in a real browser."""

import base64
import hashlib
import http.client
import json
import re
import urllib.request

import pytest
from browser import PROGRAM, Browser

from export import playground
from export.playground import PAGE, Playground
from export.remote.answers import RequestError
from tfformer.text.vocabularies import SPECIAL


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """One browser page for all tests, which run one after the other."""
    if PROGRAM is None:
        pytest.skip("no Chromium is installed")
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


OPTIONS = {"beam_width": 4, "length_penalty": 0.6, "repetition_penalty": 1.0}
ANSWERS = {
    "serving_default": {"translation": ["eins"], "score": [-1.0], "truncated": [False]},
    "beam_search": {"translations": [["eins zwei", "drei"]], "scores": [[-0.25, -1.5]],
                    "lengths": [[3, 2]]},
    "complete": {"translation": ["drei vier"], "score": [-2.0]},
    "align": {"attention": [[[0.75, 0.25], [0.0, 1.0]]], "source_tokens": [["▁one", "</s>"]],
              "target_tokens": [["▁eins", "</s>"]]},
    "translate_document": {"translation": ["Eins. Zwei."], "sentences": [2]},
}  # fmt: skip
EXPLAINED = {
    "source_tokens": [["▁one", "</s>"]], "target_tokens": [["▁eins", "▁zwei", "</s>"]],
    "probabilities": [[0.9, 0.3, 0.8]],
    "cross_attention": [[[[[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]] * 2,
                         [[[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]], [[1, 0], [0, 1], [0.25, 0.75]]]]],
    "step_tokens": [[["▁eins", "▁drei"], ["▁zwei", "▁vier"], ["</s>", "</s>"]]],
    "step_parents": [[[0, 0], [0, 0], [0, 0]]],
    "step_scores": [[[-0.1, -2], [-0.2, -2.5], [-0.25, -3]]],
}  # fmt: skip
OTHERS = {
    "generate": ({"temperature": 1.0, "seed": 0}, {"text": [" and so on"]}),
    "classify": ({}, {"label": ["b"], "labels": [["a", "b"]], "probabilities": [[0.2, 0.8]]}),
    "tag": ({}, {"words": [["one", "two", ""]], "labels": [["X", "Y", ""]], "length": [2],
                 "probabilities": [[0.7, 0.6, 0]]}),
    "answer": ({}, {"answer": ["little"], "start": [2], "end": [8]}),
    "fill": ({}, {"filled": ["a little house"]}),
}  # fmt: skip


def ask(seen, page, text):
    """Opens the page with a text in its address, and sends it as a user does."""
    seen.open(f"http://localhost:{page.port}/#{text}")
    seen.until("document.querySelector('textarea')?.value")
    seen.run("document.querySelector('form').requestSubmit()")


class Client:
    """Returns fixed answers and records the requests."""

    model = "toy"

    def __init__(self, answers, defaults=None):
        self.answers, self.defaults, self.asked = answers, defaults or {}, []

    def signatures(self):
        return {
            name: (self.defaults.get(name, {}), dict.fromkeys(answer))
            for name, answer in self.answers.items()
        }

    def predict(self, inputs, signature):
        self.asked.append((signature, inputs))
        if inputs.get("text") == ["wrong"]:
            raise RequestError("INVALID_ARGUMENT", "beam_width must be in [1, 64], got 0")
        return self.answers[signature]


def translator(*more):
    defaults = {"beam_search": OPTIONS, "explain": OPTIONS}
    return Client({**ANSWERS, **dict(more)}, defaults)


def post(page, body, kind="application/json", **headers):
    """(status, answer)"""
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
    connection.request("POST", "/predict", body, {"Content-Type": kind, **headers})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_server_describes_the_model_and_forwards_requests():
    client = translator()
    with Playground(client) as page:
        url = f"http://127.0.0.1:{page.port}"
        with urllib.request.urlopen(f"{url}/model") as answer:
            found = json.load(answer)
        assert found["model"] == "toy" and found["signatures"]["beam_search"]["defaults"] == OPTIONS
        with urllib.request.urlopen(f"{url}/?a") as answer:
            assert answer.read() == PAGE.read_bytes()
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        asked = {"text": ["one"], "beam_width": 3}
        body = json.dumps({"signature": "beam_search", "inputs": asked})
        assert post(page, body) == (200, ANSWERS["beam_search"])
        assert client.asked == [("beam_search", asked)]


GOOD = json.dumps({"signature": "align", "inputs": {"source": ["a"], "target": ["b"]}})


@pytest.mark.parametrize(
    ("body", "options", "status", "message"),
    [
        (GOOD, {"kind": "text/plain"}, 415, "Content-Type must be application/json"),
        (GOOD, {"Host": "evil.example"}, 403, "Host must be one of"),
        ("{", {}, 400, "a request must be"),
        ("[]", {}, 400, "a request must be"),
        ('{"signature": "align", "inputs": 3}', {}, 400, "a request must be"),
        ('{"signature": [], "inputs": {}}', {}, 404, "no signature '[]'"),
        ('{"signature": "none", "inputs": {}}', {}, 404, "no signature 'none'"),
        (" " * (2**20 + 1), {}, 413, "at most 1,048,576 bytes"),
        ('{"signature": "align", "inputs": {"text": ["wrong"]}}', {}, 502, "INVALID_ARGUMENT"),
    ],
)
def test_requests_that_the_page_never_sends_are_refused(body, options, status, message):
    with Playground(translator()) as page:
        found, answer = post(page, body, **options)
        assert found == status and message in answer["error"]
        assert post(page, GOOD)[0] == 200  # the next one is answered
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{page.port}/etc/passwd")


def test_headers_allow_only_the_script_of_the_page():
    with Playground(translator()) as page:
        for path in ("", "model"):
            with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/{path}") as answer:
                headers = answer.headers
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/") as answer:
            text = answer.read().decode()
        for tag in ("script", "style"):
            [content] = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in policy
        assert " style=" not in text and " onclick=" not in text  # the policy forbids both


def test_the_page_shows_texts_of_any_direction_and_scores_with_their_unit():
    """What the source of the page shows; the tests below need a browser."""
    page = PAGE.read_text(encoding="utf-8")
    outputs = re.findall(r'make\("output", (\{.*?\})', page)
    assert outputs and all('dir: "auto"' in properties for properties in outputs)
    [field] = re.findall(r"^function field.*?^}", page, re.DOTALL | re.MULTILINE)
    assert 'dir: "auto"' in field
    [body] = re.findall(r"^body \{.*?\}", page, re.DOTALL | re.MULTILINE)
    assert "max-width" not in body and "textarea { width: 100%;" in page
    assert "log-probability (natural logarithm)" in page and "or Ctrl+Enter" in page
    [marks] = re.findall(r"MARKS = new Set\((.*?)\)", page)
    # An unknown token stands for a word of the text, so it is shown.
    assert set(json.loads(marks)) == set(SPECIAL) - {"<unk>"}


def test_text_in_the_address_is_not_sent_automatically(seen):
    client = translator()
    with Playground(client) as page:
        seen.open(f"http://localhost:{page.port}/#one")
        seen.until("document.querySelector('textarea')?.value === 'one'")
        assert seen.run("document.querySelectorAll('#targets .word').length") == 0
        assert client.asked == []


def test_server_values_cannot_inject_styles(seen):
    """Not even one that would end the colour and start an image."""
    bad = "0) url(http://mt.example/x"
    align = {**ANSWERS["align"], "attention": [[[bad, 0.25], [0.0, 1.0]]]}
    with Playground(translator(("align", align))) as page:
        ask(seen, page, "one")
        seen.until("document.querySelector('#targets .word')")
        seen.hover("#targets .word")
        styles = "[...document.querySelectorAll('#sources .word')].map(w => w.style.cssText)"
        assert seen.run(styles) and not any("url" in style for style in seen.run(styles))


def test_page_shows_translation_alternatives_and_attention(seen):
    client = translator()
    with Playground(client) as page:
        ask(seen, page, "one")
        seen.until("document.querySelector('#targets .word')")
        assert client.asked[0] == ("beam_search", {"text": ["one"], **OPTIONS})
        buttons = "[...document.querySelectorAll('#alternatives button')]"
        shown = seen.run(f"{buttons}.map(button => button.innerText.trim())")
        assert [one.split()[-1] for one in shown] == ["-0.25", "-1.50"]
        seen.hover("#targets .word")
        shares = "[...document.querySelectorAll('#sources .word')].map(w => w.title)"
        assert seen.run(shares) == ["75 %"]  # the rest is on the end mark, which is not shown
        assert "export with --explain" in seen.run("document.body.innerText")
        # Another alternative is selected with the keyboard alone.
        seen.run(f"{buttons}[1].focus()")
        seen.press("Enter", "\r")
        seen.until(f"{buttons}[1].ariaPressed == 'true'")
        seen.until("document.querySelector('#said').textContent.startsWith('answered')")
        assert client.asked[-1] == ("align", {"source": ["one"], "target": ["drei"]})


def test_page_handles_prefixes_options_documents_and_errors(seen):
    client = translator()
    with Playground(client) as page:
        seen.open(f"http://localhost:{page.port}/")
        seen.until("document.activeElement.name == 'text'")  # ready to be typed into
        for key in "ab":
            seen.press(key, key)
        seen.run("document.querySelector('[name=beam_width]').value = 7")
        seen.run("document.querySelector('[name=prefix]').value = 'drei'")
        seen.press("Tab")
        seen.run("document.forms[0].requestSubmit()")
        seen.until("document.querySelector('#translation')")
        assert client.asked[0] == ("complete", {"text": ["ab"], "prefix": ["drei"]})
        assert seen.run("document.querySelector('#translation').value") == "drei vier"
        seen.run("document.querySelector('[name=prefix]').value = ''")
        seen.run("document.querySelector('[name=text]').value = 'wrong'")
        seen.run("document.forms[0].requestSubmit()")
        seen.until("document.querySelector('#said').className == 'wrong'")
        said = seen.run("document.querySelector('#said').textContent")
        assert "beam_width must be in [1, 64], got 0" in said
        assert client.asked[-1] == ("beam_search", {"text": ["wrong"], **OPTIONS, "beam_width": 7})
        assert not seen.run("document.querySelector('#translation')")  # the old answer is gone
        seen.run("document.querySelectorAll('#tabs button')[1].click()")
        seen.run("document.querySelector('[name=text]').value = 'One. Two.'")
        seen.run("document.forms[0].requestSubmit()")
        seen.until("document.body.innerText.includes('2 sentences')")
        assert "Eins. Zwei." in seen.run("document.querySelector('output').value")


def test_page_shows_attention_heads_and_search_steps(seen):
    client = translator(("explain", EXPLAINED))
    with Playground(client) as page:
        ask(seen, page, "one")
        seen.until("document.querySelector('#targets .word')")
        assert client.asked[-1] == ("explain", {"text": ["one"], **OPTIONS})
        seen.run("document.querySelectorAll('#targets .word')[1].focus()")
        shares = "[...document.querySelectorAll('#sources .word')].map(w => w.title)"
        assert seen.run(shares) == ["50 %"]
        head = "document.querySelectorAll('select')[1]"
        seen.run(f"{head}.value = 1; {head}.dispatchEvent(new Event('change'))")
        assert seen.run(shares) == ["0 %"]
        step = "document.querySelector('[type=range]')"
        seen.run(f"{step}.value = 1; {step}.dispatchEvent(new Event('input'))")
        rows = (
            "[...document.querySelectorAll('tr')].slice(1)"
            ".map(row => [...row.cells].map(cell => cell.innerText))"
        )
        assert seen.run(rows) == [["1", "eins", "-0.10", "goes on"], ["2", "drei", "-2.00", "cut"]]
        seen.run(f"{step}.value = 3; {step}.dispatchEvent(new Event('input'))")
        assert [row[1:] for row in seen.run(rows)] == [
            ["eins zwei", "-0.25", "ended"], ["eins zwei", "-3.00", "ended"]
        ]  # fmt: skip


def test_pieces_are_shown_as_text(seen):
    pieces = ["▁Zieh", "en", "▁ein", "</s>"]
    explained = {
        "source_tokens": [["▁pull", "</s>"]], "target_tokens": [pieces],
        "probabilities": [[0.9] * 4], "cross_attention": [[[[[0.5, 0.5]] * 4]]],
        "step_tokens": [[[piece] for piece in pieces]], "step_parents": [[[0]] * 4],
        "step_scores": [[[-0.1]] * 4],
    }  # fmt: skip
    with Playground(translator(("explain", explained))) as page:
        ask(seen, page, "pull")
        seen.until("document.querySelector('#targets .word')")
        shown = "[...document.querySelectorAll('#targets .word')].map(word => word.textContent)"
        assert seen.run(shown) == [" Zieh", "en", " ein"]
        assert seen.run("document.querySelector('td:nth-child(2)').textContent") == "Ziehen ein"


def test_each_other_signature_has_a_tab_that_shows_its_answer(seen):
    client = Client(
        {name: answer for name, (_, answer) in OTHERS.items()},
        {name: defaults for name, (defaults, _) in OTHERS.items()},
    )
    expected = {
        "generate": "One and so on", "classify": "b", "tag": "two", "answer": "little",
        "fill": "a little house",
    }  # fmt: skip
    with Playground(client) as page:
        seen.open(f"http://localhost:{page.port}/")
        seen.until("document.querySelectorAll('#tabs button').length == 5")
        for n, (name, words) in enumerate(expected.items()):
            seen.run(f"document.querySelectorAll('#tabs button')[{n}].click()")
            seen.run("document.querySelector('[name=text]').value = 'One'")
            seen.run("document.forms[0].requestSubmit()")
            seen.until("document.querySelector('#said').textContent.startsWith('answered')")
            assert client.asked[-1][0] == name
            assert words in seen.run("document.querySelector('#main').innerText")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give either a directory or --url"),
        (["x", "--url", "http://localhost:1", "--model", "m"], "give either a directory or --url"),
        (["--url", "http://localhost:1"], "--url and --model, "),
        (["x", "--model", "m"], "--url and --model, "),
        (["--url", "ftp://localhost", "--model", "m"], "url must begin with http://"),
    ],
)
def test_wrong_usage_gives_one_line_error(words, message, capsys):
    try:
        code = playground.main(words)
    except SystemExit as ended:
        code = ended.code
    said = capsys.readouterr().err
    assert code == 2 and message in said and said.count("\n") == 1


def test_unreachable_server_and_taken_port_are_errors(tmp_path, capsys):
    with Playground(translator()) as page:
        url = f"http://127.0.0.1:{page.port}"
        assert playground.main(["--url", url, "--model", "m", "--port", "0"]) == 1
        assert capsys.readouterr().err.count("\n") == 1
        with pytest.raises(ValueError, match=f"--port must be free, got {page.port}"):
            Playground(translator(), page.port)
    assert playground.main(["--url", url, "--model", "m", "--port", "0"]) == 1
    assert "UNAVAILABLE" in capsys.readouterr().err
