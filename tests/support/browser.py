"""Controls a headless Chromium through its pipe, without other libraries or a port."""

import itertools
import json
import os
import shutil
import subprocess

NAMES = "chromium", "chromium-browser", "google-chrome"
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page, used as a context manager.

    Args:
        folder: for its profile.
    """

    def __init__(self, folder):
        # It reads commands from its descriptor 3, and writes answers and events to 4.
        out, self._write = os.pipe()
        self._read, into = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        flags += [f"--user-data-dir={folder}"]

        def place():
            # (Through copies, because one of the four may be 3 or 4.)
            for descriptor, number in ((os.dup(out), 3), (os.dup(into), 4)):
                os.dup2(descriptor, number)

        self._process = subprocess.Popen(
            [PROGRAM, *flags, "about:blank"], preexec_fn=place, close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(out)
        os.close(into)
        self._numbers, self._rest, self._session = itertools.count(1), b"", None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        found = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        size = {"width": 1000, "height": 1400, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def open(self, url):
        """Goes to an address."""
        self._call("Page.enable")
        self._call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def run(self, code):
        """The value of JavaScript code; a promise is awaited."""
        known = {"awaitPromise": True, "returnByValue": True}
        found = self._call("Runtime.evaluate", expression=code, **known)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"]["exception"]["description"])
        return found["result"].get("value")

    def until(self, code, seconds=60):
        """Waits until JavaScript code is true."""
        wait = f"""(async () => {{
            for (let n = 0; n < {seconds * 20}; n++) {{
                if ({code}) return true;
                await new Promise(done => setTimeout(done, 50));
            }}
        }})()"""
        assert self.run(wait), f"never true: {code}"

    def press(self, key, text=None):
        """Presses a key: its name, such as "Tab", and the text that it enters."""
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            codes = {"Tab": 9, "Enter": 13}
            self._call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                windowsVirtualKeyCode=codes.get(key, 0), **more,
            )  # fmt: skip

    def hover(self, selector):
        """Moves the mouse onto an element."""
        box = self.run(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])

    def _call(self, method, **parameters):
        number = next(self._numbers)
        asked = {"id": number, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        while (answer := self._message()).get("id") != number:
            pass
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def _message(self):
        while b"\0" not in self._rest:
            piece = os.read(self._read, 2**16)
            if not piece:
                raise AssertionError("the browser has ended")
            self._rest += piece
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for descriptor in (self._write, self._read):
            os.close(descriptor)
        self._process.terminate()
        self._process.wait(30)
