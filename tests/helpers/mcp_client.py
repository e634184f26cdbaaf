"""A client of the Model Context Protocol as small as can be: lines out, lines in, nothing done behind the test's
back. The tests with real clients are tests/long/mcp.sh."""
import itertools
import json
import os
import subprocess
import threading
import time

META = "io.modelcontextprotocol/"
HANDSHAKES = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
STATELESS = ["2026-07-28"]
CLIENT = {"name": "test", "version": "0"}


def envelope(version, **more):
    """The _meta of a request that says by itself of which revision it is."""
    more = {(META + k if k == "logLevel" else k): v for k, v in more.items()}
    return {META + "protocolVersion": version, META + "clientCapabilities": {}, META + "clientInfo": CLIENT, **more}


class Server:
    def __init__(self, *args, revision=None, env=None, session="w"):
        argv = ["ntr", "mcp", *(["-s", session] if session else []), *args]
        env = {**os.environ, **(env or {})}
        self.p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self.ids = itertools.count(1)
        self.revision = revision
        self.answers, self.news, self.cond = {}, [], threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if revision in HANDSHAKES:
            self.hello = self.ask("initialize", protocolVersion=revision, capabilities={}, clientInfo=CLIENT)
            self.notify("notifications/initialized")

    def _read(self):
        for line in self.p.stdout:
            m = json.loads(line)
            with self.cond:
                if "method" in m:
                    self.news.append(m)
                else:
                    self.answers.setdefault(json.dumps(m["id"]), []).append(m)
                self.cond.notify_all()
        with self.cond:
            self.answers["end"] = True
            self.cond.notify_all()

    def raw(self, data):
        self.p.stdin.write(data if isinstance(data, bytes) else data.encode())
        self.p.stdin.flush()

    def send(self, method, id=None, **params):
        """Sends a request and does not wait. Returns its id."""
        id = next(self.ids) if id is None else id
        if self.revision in STATELESS:
            params["_meta"] = envelope(self.revision, **params.pop("_meta", {}))
        self.raw(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + "\n")
        return id

    def notify(self, method, **params):
        self.raw(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}) + "\n")

    def wait(self, id=None, timeout=10):
        """The answer to a request (None: to what had no id): its result, or its error as an exception."""
        key, end = json.dumps(id), time.monotonic() + timeout
        with self.cond:
            while not self.answers.get(key):
                if "end" in self.answers:
                    raise EOFError
                if not self.cond.wait(end - time.monotonic()):
                    raise TimeoutError(key)
            m = self.answers[key].pop(0)
        if "error" in m:
            raise Failure(m["error"])
        return m["result"]

    def heard(self, method, match=lambda p: True, timeout=10):
        """Waits for a notification."""
        end = time.monotonic() + timeout
        with self.cond:
            while True:
                for m in self.news:
                    if m["method"] == method and match(m["params"]):
                        return m["params"]
                if not self.cond.wait(end - time.monotonic()):
                    raise TimeoutError(method)

    def ask(self, method, **params):
        return self.wait(self.send(method, **params))

    def start(self, tool, meta=None, **args):
        return self.send("tools/call", name=tool, arguments=args, **({"_meta": meta} if meta else {}))

    def call(self, tool, **args):
        return self.wait(self.start(tool, **args))

    def text(self, tool, **args):
        return self.call(tool, **args)["content"][0]["text"]

    def sh(self, command, **args):
        return self.text("terminal", command=command, **args)

    def read(self, uri):
        return self.ask("resources/read", uri=uri)["contents"][0]

    def fails(self, code, method, **params):
        """Asks what is to fail with this code; returns the error."""
        return self.failed(code, self.send(method, **params))

    def failed(self, code, id=None, timeout=10):
        try:
            r = self.wait(id, timeout)
        except Failure as e:
            assert e.code == code, e
            return e
        raise AssertionError(f"no error: {r}")

    def close(self, timeout=10):
        """The end of what is sent; returns the exit status."""
        self.p.stdin.close()
        status = self.p.wait(timeout)
        self.reader.join(timeout)
        return status

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.p.poll() is None and not self.p.stdin.closed:
            self.close()
        self.p.kill()
        self.p.wait()


class Failure(Exception):
    def __init__(self, error):
        super().__init__(error)
        self.code, self.text, self.data = error["code"], error["message"], error.get("data")
