"""The walk's records and events, as clients/README.md tells them."""
import os
import sys

PARTITIONS = 4
COUNT = 40


def arguments():
    return sys.argv[1:4]


def emit(*fields):
    # One write a line: members that poll in threads of their own must not tear each other's lines.
    line = "\t".join(str(field) for field in fields) + "\n"
    os.write(1, line.encode())


def records(phase):
    """(partition, key, value, headers) of each record of a phase."""
    for i in range(COUNT):
        key = "%s-%d" % (phase, i)
        value = key + ":" + "0123456789" * 20
        headers = [("phase", phase.encode()), ("number", str(i).encode())]
        yield i % PARTITIONS, key.encode(), value.encode(), headers


def read(by, partition, offset, key, value, headers):
    text = ",".join("%s=%s" % (name, value.decode()) for name, value in headers or [])
    emit("read", by, partition, offset, key.decode(), value.decode(), text)


def restart():
    emit("restart")
    if not sys.stdin.readline():
        sys.exit("stdin ended instead of telling of the restart")


class Seen:
    """How many different records of each phase were read so far, by their keys."""

    def __init__(self):
        self.keys = set()

    def add(self, key):
        self.keys.add(key.decode())

    def has(self, phases):
        return all("%s-%d" % (phase, i) in self.keys for phase in phases for i in range(COUNT))
