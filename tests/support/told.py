"""A server that answers as it is told, for tests of clients."""

import http.server
import json
import threading

METADATA = (200, {"metadata": {"signature_def": {"signature_def": {}}}})
BUSY = (503, {"error": "the queue is full"})
ANSWER = (200, {"outputs": {"translation": ["Haus"]}})


class Told:
    """Answers with each of `answers`, (status, body), the last one again and again."""

    def __init__(self, *answers):
        told, self.asked = self, []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def do_GET(self):
                status, body = answers[min(len(told.asked), len(answers) - 1)]
                told.asked.append(self.path)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, *_):
                """Says nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
