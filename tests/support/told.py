"""A server with fixed answers, for tests of clients."""

import http.server
import json
import ssl
import threading

METADATA = (200, {"metadata": {"signature_def": {"signature_def": {}}}})
BUSY = (503, {"error": "the queue is full"})
ANSWER = (200, {"outputs": {"translation": ["Haus"]}})


class Told:
    """Answers with each of `answers`, (status, body), and repeats the last one.

    The body of a redirection is its target. With a `certificate` it uses TLS.

    Attributes:
        asked: the paths; `tokens`: the header `Authorization` of each.
    """

    def __init__(self, *answers, certificate=None):
        told, self.asked, self.tokens = self, [], []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def do_GET(self):
                status, body = answers[min(len(told.asked), len(answers) - 1)]
                told.asked.append(self.path)
                told.tokens.append(self.headers["Authorization"])
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", body)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, *_):
                """Logs nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.file, certificate.key)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        scheme = "https" if certificate else "http"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
