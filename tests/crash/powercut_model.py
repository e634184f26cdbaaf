"""What a disk can look like after a power failure, from the record of powercut_rec.c.

The state of a disk at a cut is made of what was synced before it, and of any of the rest:

  ext4    data=ordered: operations on names are a journal: they survive as a prefix of their order, and every fsync (not
          fdatasync) commits all that came before it. Data that was not synced is dropped (delayed allocation: the file is
          as long as at its last sync), kept, or kept in part, whole pages of 4 KiB.
  posix   what the standard promises, and no more: a name survives for certain only when its directory was synced after
          it was made, removed or renamed; of the others each one may survive or not, whatever the order. A rename is
          atomic. Of data that was not synced any 512 bytes may be there or not, also with the size and zeros in its place.
"""
import os
import random
import struct

HEADER = struct.Struct("<QQQIIIB3x")
O_CREAT, O_TRUNC = 0o100, 0o1000
VARIANTS = ["ext4-synced", "ext4-delayed", "ext4-all", "ext4-torn", "posix-synced", "posix-random", "posix-zeros"]


class Record:
    __slots__ = ("at", "op", "ino", "off", "len", "data", "path", "path2")


def read_log(path):
    """All records; .at is the offset behind the record in the log."""
    blob = memoryview(open(path, "rb").read())
    out, at = [], 0
    while at + HEADER.size <= len(blob):
        r = Record()
        r.ino, r.off, r.len, ndata, npath, npath2, op = HEADER.unpack_from(blob, at)
        at += HEADER.size
        r.op = chr(op)
        r.data = blob[at:at + ndata]
        at += ndata
        r.path = os.fsdecode(bytes(blob[at:at + npath]))
        at += npath
        r.path2 = os.fsdecode(bytes(blob[at:at + npath2]))
        at += npath2
        r.at = at
        out.append(r)
    if at != len(blob):
        raise ValueError("the log ends inside a record")
    return out


class Content:
    """Bytes, and a size that may be larger: the rest are zeros."""

    def __init__(self, data=b"", size=0):
        self.data, self.size = bytearray(data), max(size, len(data))

    def copy(self):
        return Content(self.data, self.size)

    def apply(self, op):
        _, kind, off, arg = op
        if kind == "w":
            if len(self.data) < off:
                self.data.extend(bytes(off - len(self.data)))
            self.data[off:off + len(arg)] = arg
            self.size = max(self.size, len(self.data))
        elif kind == "t":
            del self.data[off:]
            self.size = off
        else:
            self.size = max(self.size, off + arg)

    def write(self, path):
        with open(path, "wb") as f:
            f.write(self.data)
            f.truncate(self.size)


class File:
    """pending: what was done since the last sync: (number, kind, offset, data or length)."""

    def __init__(self):
        self.durable = Content()
        self.pending = []

    def sync(self, before):
        n = 0
        for op in self.pending:
            if op[0] >= before:
                break
            self.durable.apply(op)
            n += 1
        del self.pending[:n]

    def whole(self):
        c = self.durable.copy()
        for op in self.pending:
            c.apply(op)
        return c

    def content(self, variant, rng):
        if not self.pending or variant in ("ext4-synced", "ext4-delayed", "posix-synced"):
            return self.durable
        old, new = self.durable, self.whole()
        if variant == "ext4-all":
            return new
        if variant == "posix-zeros":
            return Content(old.data[:new.size], new.size)
        return self.torn(old, new, 4096 if variant == "ext4-torn" else 512, rng)

    @staticmethod
    def torn(old, new, unit, rng):
        keep = rng.choice((0.0, 0.5, 0.9, 1.0))
        out = Content(old.data, rng.choice((old.size, new.size)))
        out.data = out.data[:out.size]
        first = 0
        while first < len(old.data) and old.data[first:first + unit] == new.data[first:first + unit]:
            first += unit
        for off in range(first, min(out.size, len(new.data)), unit):
            if rng.random() < keep:
                if len(out.data) < off:
                    out.data.extend(bytes(off - len(out.data)))
                out.data[off:off + unit] = new.data[off:min(off + unit, out.size)]
        return out


class Dir:
    pass


class Symlink:
    def __init__(self, to):
        self.to = to


class Names:
    """One operation on names: what it enters in which directory (None: removes)."""
    __slots__ = ("number", "effects", "durable")

    def __init__(self, number, effects):
        self.number, self.effects, self.durable = number, effects, False


class Disk:
    def __init__(self):
        self.root = Dir()
        self.tree = {self.root: {}}  # as processes see it
        self.synced = {self.root: {}}  # the beginning of ops, as far as all of it is durable
        self.ops = []
        self.nodes = {}  # by inode number
        self.begun = {}  # syncs under way
        self.number = 0

    def find(self, path):
        node = self.root
        for part in path.split("/") if path else []:
            node = self.tree.get(node, {}).get(part)
            if node is None:
                return None
        return node

    def parent(self, path):
        head, _, tail = path.rpartition("/")
        node = self.find(head)
        if node is None:
            raise ValueError("no directory for " + path)
        return node, tail

    def names(self, *effects):
        for d, name, node in effects:
            if node is None:
                self.tree[d].pop(name, None)
            else:
                self.tree[d][name] = node
        self.ops.append(Names(self.number, effects))

    def make(self, path, node, ino=0):
        d, name = self.parent(path)
        if isinstance(node, Dir):
            self.tree[node] = {}
        if ino:
            self.nodes[ino] = node
        self.names((d, name, node))

    def rename(self, r):
        a, b = self.parent(r.path), self.parent(r.path2)
        node, other = self.find(r.path), self.find(r.path2)
        if node is None:
            return  # made before the record began
        if r.off & 2:  # RENAME_EXCHANGE
            self.names((*a, other), (*b, node))
        else:
            self.names((*a, None), (*b, node))

    def sync(self, node, before, data):
        """A sync that ended: what began before it is durable."""
        if node is None or isinstance(node, File):
            for f in [node] if node else [n for n in self.nodes.values() if isinstance(n, File)]:
                f.sync(before)
        if not data:
            self.journal = max(getattr(self, "journal", 0), before)
        for op in self.ops:
            if op.number < before and (node is None or any(d is node for d, _, _ in op.effects)):
                op.durable = True
        while self.ops and self.ops[0].durable:
            self.enter(self.synced, self.ops.pop(0))

    @staticmethod
    def enter(tree, op):
        for d, name, node in op.effects:
            if node is None:
                tree.setdefault(d, {}).pop(name, None)
            else:
                tree.setdefault(d, {})[name] = node
                if isinstance(node, Dir):
                    tree.setdefault(node, {})

    def step(self, r):
        self.number += 1
        node = self.nodes.get(r.ino)
        if r.op == "o":
            at = self.find(r.path)
            if at is None:
                self.make(r.path, File(), r.ino)
            elif r.off & O_TRUNC:
                at.pending.append((self.number, "t", 0, 0))
        elif r.op in "wta" and node is not None:
            node.pending.append((self.number, r.op, r.off, bytes(r.data) if r.op == "w" else r.len))
        elif r.op == "b":
            self.begun[r.off] = self.number
        elif r.op == "s":
            self.sync(None if not r.ino else node or self.root, self.begun.pop(r.off), bool(r.len))
        elif r.op == "r":
            self.rename(r)
        elif r.op == "l":
            d, name = self.parent(r.path2)
            self.names((d, name, self.find(r.path)))
        elif r.op in "uD":
            if self.find(r.path) is not None:
                self.names((*self.parent(r.path), None))
        elif r.op == "d":
            self.make(r.path, Dir(), r.ino)
        elif r.op == "y":
            self.make(r.path, Symlink(bytes(r.data)))
        elif r.op == "m":
            raise ValueError("a shared writable mapping: its stores cannot be recorded")

    def survivors(self, variant, rng):
        if variant in ("ext4-all", "ext4-delayed", "posix-zeros"):
            return self.ops
        journal = getattr(self, "journal", 0)
        if variant == "ext4-synced":
            return [op for op in self.ops if op.number < journal]
        if variant == "ext4-torn":
            last = rng.randint(journal, self.number + 1)
            return [op for op in self.ops if op.number < last]
        if variant == "posix-synced":
            return [op for op in self.ops if op.durable]
        keep = rng.choice((0.1, 0.5, 0.9))
        return [op for op in self.ops if op.durable or rng.random() < keep]

    def build(self, where, variant, rng):
        tree = {d: dict(e) for d, e in self.synced.items()}
        for op in self.survivors(variant, rng):
            self.enter(tree, op)
        done = {}
        self.write(tree, self.root, where, variant, rng, done)

    def write(self, tree, d, where, variant, rng, done):
        for name, node in tree.get(d, {}).items():
            path = os.path.join(where, name)
            if isinstance(node, Dir):
                if node in done:
                    continue  # a rename of which one half survived: it is at one place only
                done[node] = path
                os.mkdir(path, 0o700)
                self.write(tree, node, path, variant, rng, done)
            elif isinstance(node, Symlink):
                os.symlink(node.to, path)
            elif node in done:
                os.link(done[node], path)
            else:
                done[node] = path
                node.content(variant, rng).write(path)


def rng_of(seed, cut, variant):
    return random.Random(f"{seed}/{cut}/{variant}")
