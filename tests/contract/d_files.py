"""Section D: file_write, file_edit, view_image."""

from __future__ import annotations

import os
import struct
import zlib
from typing import Any

from d_help import counts, holds, put, said, same
from table import line
from ways import Way


# ---- file_write


@line("D.5", "file_write: wrote PATH (N bytes): the path as it was given, bytes and not characters", shared=True)
def wrote(way: Way, t: Any) -> None:
    for path, content, text in (
        ("a", "hello\n", "wrote a (6 bytes)"),
        ("./b", "ä€😀", "wrote ./b (9 bytes)"),
        ("/workspace/c d", "", "wrote /workspace/c d (0 bytes)"),
        ("nul", "a\0b\r\n", "wrote nul (5 bytes)"),
    ):
        said(way.file_write(path, content), text)
        same(way.read(os.path.relpath(os.path.join("/workspace", path), "/workspace")), content.encode())


@line("D.5", "file_write makes the directories that lead to the file")
def wrote_deep(way: Way, t: Any) -> None:
    o = said(way.file_write("x/y/z.txt", "1"), "wrote x/y/z.txt (1 bytes)")
    same(way.read("x/y/z.txt"), b"1")
    same(o.commit, way.head())


@line("D.5", "file_write replaces what is there and keeps its mode")
def wrote_over(way: Way, t: Any) -> None:
    way.terminal("echo long content > f; chmod 751 f; ln f hard; ln -s f link")
    said(way.file_write("f", "n"), "wrote f (1 bytes)")
    said(way.file_write("link", "nn"), "wrote link (2 bytes)")
    said(way.terminal("stat -c '%a %F' f; cat f hard; test -L link && echo link"), "751 regular file\nnnnnlink")


@line("D.5", "file_write's paths are relative to the session's directory")
def wrote_cwd(way: Way, t: Any) -> None:
    way.terminal("mkdir d; cd d")
    said(way.file_write("f", "1"), "wrote f (1 bytes)")
    said(way.file_write("../g", "1"), "wrote ../g (1 bytes)")
    same((way.read("d/f"), way.read("g")), (b"1", b"1"))


@line("D.5", "write failed: WHY, and nothing is changed")
def write_failed(way: Way, t: Any) -> None:
    way.terminal("mkdir d; echo 1 > f; ln -s /etc/hostname out; mkfifo p")
    head = way.head()
    for path, text in (
        ("", "write failed: the path is empty"),
        ("a\0b", "write failed: the path holds a NUL"),
        ("d", "write failed: d is a directory"),
        ("f/x", "write failed: a part of f/x is a file, no directory"),
        ("../x", "write failed: ../x is not inside the workspace /workspace"),
        ("/etc/ntr-x", "write failed: /etc/ntr-x is not inside the workspace /workspace"),
    ):
        said(way.file_write(path, "x"), text, ok=False)
    for path in ("out", "p"):
        o = way.file_write(path, "x")
        same(o.ok, False, path)
        assert o.text and o.text.startswith("write failed: "), o.text
    same(way.head(), head)
    same(os.path.exists("/etc/ntr-x"), False)


@line("D.5", "file_write of what is there already is no commit")
def wrote_nothing(way: Way, t: Any) -> None:
    first = way.file_write("f", "1").commit
    o = said(way.file_write("f", "1"), "wrote f (1 bytes)")
    same((o.commit, way.head()), (None, first))


@line("D.5", "file_write is one commit, described by tool and path")
def wrote_commit(way: Way, t: Any) -> None:
    o = way.file_write("d/f", "1")
    top = way.history()[0]
    same((top["commit"], top["tool"], top["path"]), (o.commit, "file_write", "d/f"))
    same(counts(top), (2, 0, 0))
    same(len(way.history()), 2)


# ---- file_edit

FUNCTIONS = "def one():\n    return 1\n\ndef two():\n    return 2\n\ndef three():\n    return 3\n"
MANY = "; quote more of what stands around the one you mean, or pass replace_all to change all of them"

# What it is, the file, old, new, replace_all, the reply after "in f", the file afterwards.
EDITS = [
    ("exactly", "one two three\n", "two", "2", False, "replaced 1 occurrence(s) in f", "one 2 three\n"),
    ("exactly, of several lines", "f() {\n\tx;\n}\n", "{\n\tx;\n}", "{\n\ty;\n}", False, "replaced 1 occurrence(s) in f", "f() {\n\ty;\n}\n"),
    ("exactly, with nothing in its place", "a\nb\nc\n", "b\n", "", False, "replaced 1 occurrence(s) in f", "a\nc\n"),
    ("exactly, what looks like a pattern", "x = a.c\n", "a.c", "\\1$&", False, "replaced 1 occurrence(s) in f", "x = \\1$&\n"),
    ("everywhere with replace_all", "a b a b a\n", "a", "x", True, "replaced 3 occurrence(s) in f", "x b x b x\n"),
    ("exactly, before it looks tolerantly", "a \na\n", "a \n", "b\n", False, "replaced 1 occurrence(s) in f", "b\na\n"),
    ("with blanks at the ends of the file's lines", "a  \nb\t\nc\n", "a\nb\nc", "x\ny", False, "replaced 1 occurrence(s) in f (matched via trailing_ws)", "x\ny\n"),
    ("with blanks at the ends of the quote's lines", "a\nb\n", "a  \nb ", "x", False, "replaced 1 occurrence(s) in f (matched via trailing_ws)", "x\n"),
    ("with trailing blanks, everywhere", "a \nb\na\t\nb\n", "a\nb", "x", True, "replaced 2 occurrence(s) in f (matched via trailing_ws)", "x\nx\n"),
    ("at another indent, the replacement moved along", "def f():\n    if x:\n        y()\n", "if x:\n    y()", "if x:\n    z()\n    w()", False, "replaced 1 occurrence(s) in f (matched via indent_flexible)", "def f():\n    if x:\n        z()\n        w()\n"),
    ("with tabs for blanks", "f() {\n\tif (x)\n\t\ty();\n}\n", "if (x)\n    y();", "if (x)\n    z();", False, "replaced 1 occurrence(s) in f (matched via indent_flexible)", "f() {\n\tif (x)\n\t\tz();\n}\n"),
    ("at another indent, everywhere, each at its own", "a\n  b\n    a\n      b\n", "  a\n    b", "  c\n    d", True, "replaced 2 occurrence(s) in f (matched via indent_flexible)", "c\n  d\n    c\n      d\n"),
    ("by trailing blanks before the indent", "  a\n  b \na\nb \n", "a\nb\n", "x\n", False, "replaced 1 occurrence(s) in f (matched via trailing_ws)", "  a\n  b \nx\n"),
    ("with CR LF kept", "a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", False, "replaced 1 occurrence(s) in f (matched via trailing_ws)", "x\r\ny\r\nz\r\nc\r\n"),
]  # fmt: skip

# The line, what it is, the file, old, new, replace_all, the whole reply.
MISSES = [
    ("D.9", "two hits are an error with the count", "a b a\n", "a", "x", False, f"edit failed: old_string appears 2 times in f{MANY}"),
    ("D.9", "five hits are an error with the count", "a\n" * 5, "a\n", "x", False, f"edit failed: old_string appears 5 times in f{MANY}"),
    ("D.9", "two tolerant hits are an error with the count", "a \nb\na\t\nb\n", "a\nb", "x", False, f"edit failed: old_string, blanks at the ends of lines aside, appears 2 times in f{MANY}"),
    ("D.9", "two hits at other indents are an error with the count", "  a\n    a\n", "\ta", "x", False, f"edit failed: old_string, the indent aside, appears 2 times in f{MANY}"),
    ("D.11", "a miss shows the most similar lines, with numbers and what is around", FUNCTIONS, "def too():\n    return 2", "x", False, "edit failed: old_string was not found in f. Did you mean these lines?\n     1 | def one():\n     2 |     return 1\n     3 | \n>    4 | def two():\n>    5 |     return 2\n     6 | \n     7 | def three():\n     8 |     return 3"),
    ("D.11", "a miss with nothing like it says so", "alpha\nbeta\n", "completely different", "x", True, "edit failed: old_string was not found in f. Nothing in it is like:\ncompletely different"),
    ("D.12", "an empty old_string is an error", "a\n", "", "x", False, "edit failed: old_string is empty; to write a whole file use file_write"),
    ("D.12", "old_string and new_string alike are an error", "a\n", "a", "a", False, "edit failed: old_string and new_string are identical"),
    ("D.12", "another body at another indent is a miss", "  a\n      b\n  c\n", "a\nb\nc", "x", False, None),
]  # fmt: skip


def edits() -> None:
    for what, before, old, new, everywhere, reply, after in EDITS:

        @line(
            "D.7" if "trailing_ws" in reply else "D.8" if "indent_flexible" in reply else "D.6", f"file_edit replaces {what}", shared=True
        )
        def row(way: Way, t: Any, before=before, old=old, new=new, everywhere=everywhere, reply=reply, after=after) -> None:
            way.file_write("f", before)
            o = said(way.file_edit("f", old, new, everywhere), reply)
            same(way.read("f"), after.encode())
            same(o.commit, way.head())

    for number, what, before, old, new, everywhere, reply in MISSES:

        @line(number, f"file_edit: {what}", shared=True)
        def row(way: Way, t: Any, before=before, old=old, new=new, everywhere=everywhere, reply=reply) -> None:  # noqa: F811
            way.file_write("f", before)
            made = way.head()
            o = way.file_edit("f", old, new, everywhere)
            same(o.ok, False)
            if reply:
                same(o.text, reply)
            holds(o.text, "edit failed: ")
            same((way.read("f"), way.head()), (before.encode(), made))


edits()


@line("D.10", "file_edit: an edit already applied is a no-op that says so, and no commit")
def edited_already(way: Way, t: Any) -> None:
    way.file_write("f", "a\nold\nb\n")
    first = way.file_edit("f", "old", "x\ny").commit
    o = said(way.file_edit("f", "old", "x\ny"), "no-op: replacement already present in f")
    same((o.commit, way.head(), way.read("f")), (None, first, b"a\nx\ny\nb\n"))


@line("D.12", "edit failed: WHY, of a file that is not there, is none, or is no text")
def edit_failed(way: Way, t: Any) -> None:
    way.terminal("mkdir d; printf 'a\\377b' > raw; ln -s /etc/hostname out")
    for path, text in (
        ("nope", "edit failed: there is no file nope"),
        ("d", "edit failed: d is a directory"),
        ("", "edit failed: the path is empty"),
        ("../x", "edit failed: ../x is not inside the workspace /workspace"),
    ):
        said(way.file_edit(path, "a", "b"), text, ok=False)
    for path in ("raw", "out"):
        o = way.file_edit(path, "a", "b")
        same(o.ok, False, path)
        assert o.text and o.text.startswith("edit failed: "), o.text
    same(way.read("raw"), b"a\xffb")


@line("D.6", "file_edit keeps mode, links and all else of the file")
def edit_keeps(way: Way, t: Any) -> None:
    way.terminal("mkdir d; cd d; echo aXb > f; chmod 700 f; ln -s f link")
    said(way.file_edit("link", "X", "-"), "replaced 1 occurrence(s) in link")
    said(way.terminal("stat -c '%a %F' f; cat f; readlink link"), "700 regular file\na-b\nf")


@line("D.6", "file_edit is one commit, described by tool and path")
def edit_commit(way: Way, t: Any) -> None:
    way.file_write("f", "a")
    o = way.file_edit("f", "a", "b")
    top = way.history()[0]
    same((top["commit"], top["tool"], top["path"], len(way.history())), (o.commit, "file_edit", "f", 3))
    same(counts(top), (0, 1, 0))


# ---- view_image


def png(size: int = 0) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    b = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\0\0\0")) + chunk(b"IEND", b"")
    return b + b"\0" * max(0, size - len(b))


IMAGES = [
    ("png", png(), "image/png"),
    ("jpeg", b"\xff\xd8\xff\xe0\0\x10JFIF\0", "image/jpeg"),
    ("gif", b"GIF87a\1\0\1\0", "image/gif"),
    ("gif", b"GIF89a\1\0\1\0", "image/gif"),
    ("webp", b"RIFF\x1a\0\0\0WEBPVP8L", "image/webp"),
]


@line("D.13", "view_image: PATH (png, N bytes) and the image, of png, jpeg, gif and webp, by their first bytes")
def images(way: Way, t: Any) -> None:
    way.terminal("mkdir d")
    for i, (kind, data, mime) in enumerate(IMAGES):
        put(t, way, f"d/{i}.txt", data)
    head = way.head()
    for i, (kind, data, mime) in enumerate(IMAGES):
        o = said(way.view_image(f"d/{i}.txt"), f"d/{i}.txt ({kind}, {len(data)} bytes)")
        same((o.data["mime"], o.data["data"]), (mime, data), kind)
    same(way.head(), head)


@line("D.13", "view_image takes up to 10,000,000 bytes")
def image_size(way: Way, t: Any) -> None:
    way.terminal("printf '\\211PNG\\r\\n\\032\\n' > a.png; cp a.png b.png; truncate -s 10000000 a.png; truncate -s 10000001 b.png")
    o = said(way.view_image("a.png"), "a.png (png, 10000000 bytes)")
    same(len(o.data["data"]), 10_000_000)
    o = said(
        way.view_image("b.png"),
        "view_image failed: b.png has 10000001 bytes, and at most 10000000 can be viewed: save it smaller",
        ok=False,
    )
    same(o.data.get("data") or b"", b"")


@line("D.14", "view_image failed: WHY")
def image_failed(way: Way, t: Any) -> None:
    way.terminal(
        "echo text > t.png; : > empty; mkdir d; printf '%%PDF-1.4' > p; printf '<svg' > s.svg; printf 'RIFF\\0\\0\\0\\0WAVE' > w.webp; printf 'BM12' > b; ln -s /etc/hostname out"
    )
    other = "is no png, jpeg, gif or webp image but"
    for path, text in (
        ("none.png", "view_image failed: there is no file none.png"),
        ("d", "view_image failed: d is a directory"),
        ("", "view_image failed: the path is empty"),
        ("t.png", f"view_image failed: t.png {other} text"),
        ("empty", f"view_image failed: empty {other} empty"),
        ("p", f"view_image failed: p {other} a PDF"),
        ("s.svg", f"view_image failed: s.svg {other} an SVG image"),
        ("w.webp", f"view_image failed: w.webp {other} other data"),
        ("b", f"view_image failed: b {other} a BMP image"),
        ("/etc/hostname", "view_image failed: /etc/hostname is not inside the workspace /workspace"),
    ):
        said(way.view_image(path), text, ok=False)
    o = way.view_image("out")
    same(o.ok, False)
    assert o.text and o.text.startswith("view_image failed: "), o.text
