#!/usr/bin/env python3
"""zk_tree.py HOST:PORT [PATH...]: a ZooKeeper tree, or the parts below some paths, as TSV: path, kind, version, data.

Speaks just enough of ZooKeeper's protocol to read, so that a script can look often. With --create PATH DATA it makes
one persistent node."""
import socket
import struct
import sys


class ZooKeeper:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.xid = 0
        self.send(struct.pack(">iqiqi16s?", 0, 0, 10000, 0, 16, bytes(16), False))
        self.receive()

    def send(self, body):
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def receive(self):
        (size,) = struct.unpack(">i", self.exactly(4))
        return self.exactly(size)

    def exactly(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def call(self, kind, body):
        self.xid += 1
        self.send(struct.pack(">ii", self.xid, kind) + body)
        reply = self.receive()
        (error,) = struct.unpack(">i", reply[12:16])
        return error, reply[16:]

    def children(self, path):
        error, reply = self.call(8, text(path) + b"\0")
        if error:
            return []
        (count,), at, names = struct.unpack(">i", reply[:4]), 4, []
        for _ in range(count):
            (size,) = struct.unpack(">i", reply[at : at + 4])
            names.append(reply[at + 4 : at + 4 + size].decode())
            at += 4 + size
        return sorted(names)

    def read(self, path):
        error, reply = self.call(4, text(path) + b"\0")
        if error:
            return None
        (size,) = struct.unpack(">i", reply[:4])
        data = None if size < 0 else reply[4 : 4 + size].decode()
        stat = struct.unpack(">qqqqiiiqiiq", reply[-68:])
        return data, stat[4], stat[7]

    def create(self, path, data):
        acl = struct.pack(">ii", 1, 31) + text("world") + text("anyone")
        error, _ = self.call(1, text(path) + text(data) + acl + struct.pack(">i", 0))
        return error


def text(value):
    raw = value.encode()
    return struct.pack(">i", len(raw)) + raw


def walk(zookeeper, path):
    node = zookeeper.read(path)
    if node is None:
        return
    data, version, owner = node
    if path != "/":
        kind = "ephemeral" if owner else "persistent"
        print(path, kind, version, "\\N" if data is None else data, sep="\t")
    for child in zookeeper.children(path):
        if path + child != "/zookeeper":
            walk(zookeeper, path.rstrip("/") + "/" + child)


if __name__ == "__main__":
    tree = ZooKeeper(sys.argv[1])
    if sys.argv[2:3] == ["--create"]:
        sys.exit(tree.create(sys.argv[3], sys.argv[4]))
    for root in sys.argv[2:] or ["/"]:
        walk(tree, root)
