"""A host program of Python calls, for tests: objects whose methods run here, answers as docs/protocol.md has them.

with Host(store) as host:
    reply = host.py("default", "obj.add(1, b=2)", {"obj": thing})
"""

import os

from client import Client


class Host(Client):
    def py(self, session, code, objects=None, events=None, allow=None, **more):
        """The reply to a call of code. allow: methods by object; None: every public one."""
        objects = objects or {}
        specs = [{"name": n, "methods": (allow or {}).get(n)} for n in objects]
        msg = dict({"op": "py", "session": session, "code": code, "capture": True, "objects": specs}, **more)
        null = os.open("/dev/null", os.O_RDONLY)
        try:
            self.send(msg, [null])
        finally:
            os.close(null)
        for m in self.frames():
            if m.get("event") == "object":
                self.send(dict(self.answer(objects, m), op="answer", n=m["n"]))
            elif "event" in m and events is not None:
                events.append(m)
        return m

    def answer(self, objects, m):
        try:
            return {"value": getattr(objects[m["name"]], m["method"])(*m["args"], **m["kwargs"])}
        except Exception as e:
            return {"error": {"type": type(e).__name__, "text": str(e)}}

    def send(self, msg, fds=()):
        """The op comes first: what is no `answer` at first sight waits for the end of the call."""
        super().send({k: msg[k] for k in sorted(msg, key=lambda k: k != "op")}, fds)
