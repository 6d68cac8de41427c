#!/usr/bin/env python3
"""Derives the files of this folder from the schema resources in the jars of two Kafka releases.

    derive.py NEW_LIB OLD_LIB OUT      e.g. derive.py ~/.cache/kafka-peers/{4.3.1,3.9.2}/lib wire/schemas

For each version of a message the newer release decides if it still knows that version, else the older one.
Only facts of the wire format are kept: names, types, version ranges, null, tags, defaults.
"""

import json
import pathlib
import re
import sys
import zipfile

JARS = ("kafka-clients", "kafka-group-coordinator", "kafka-transaction-coordinator", "kafka-share-coordinator",
        "kafka-metadata")
NO_KIND = {
    # Hand-written in src/header.rs.
    "RequestHeader", "ResponseHeader",
    # The older release's name of ListConfigResources.
    "ListClientMetricsResourcesRequest", "ListClientMetricsResourcesResponse",
}
KINDS = {"request": "request", "response": "response", "data": "data",
         "coordinator-key": "key", "coordinator-value": "value", "metadata": "metadata"}
# Control records of KRaft's log, by the type in their key.
CONTROL = {"LeaderChangeMessage": 2, "SnapshotHeaderRecord": 3, "SnapshotFooterRecord": 4, "KRaftVersionRecord": 5,
           "VotersRecord": 6}


def parse(text):
    """JSON with // comments."""
    token = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*')
    return json.loads(token.sub(lambda m: m.group(1) or "", text))


def release(lib):
    messages = {}
    for jar in sorted(pathlib.Path(lib).expanduser().glob("*.jar")):
        if not jar.name.rsplit("-", 1)[0] in JARS:
            continue
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if re.search(r"(^|/)(message|metadata)/[^/]+\.json$", entry):
                    message = parse(archive.read(entry).decode())
                    messages[message["name"]] = message
    return messages


def versions(text, valid):
    """The versions of `valid` that a range such as 3+, 0-2, 4 or none covers."""
    if text is None or text == "none":
        return set()
    if text.endswith("+"):
        return {v for v in valid if v >= int(text[:-1])}
    low, _, high = text.partition("-")
    return set(range(int(low), int(high or low) + 1)) & (valid if valid is not None else set(range(1000)))


def valid_versions(message):
    return versions(message["validVersions"], set(range(1000))) if message else set()


class Side:
    """One release's opinion on a struct, for the versions in which it decides."""

    def __init__(self, message, decides):
        self.message, self.decides = message, decides

    def structs(self):
        return {s["name"]: s["fields"] for s in (self.message or {}).get("commonStructs", [])}


def default_text(field):
    value = field.get("default")
    # Null is the default only where it stands as a string: the null of JSON means none is given.
    if value is None or value == "null":
        return value
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return None if text == "" else str(int(text, 0)) if re.fullmatch(r"-?(0x)?[0-9a-f]+", text) else text


def merge(new, old):
    """Fields of both releases, each side a list or None, in an order that keeps both orders."""
    new, old = new or [], old or []
    names = [f["name"] for f in new]
    position = 0
    for field in old:
        if field["name"] in names:
            position = names.index(field["name"]) + 1
        else:
            names.insert(position, field["name"])
            position += 1
    return names


class Derivation:
    def __init__(self, new, old):
        self.valid = valid_versions(new) | valid_versions(old)
        decides_new = valid_versions(new)
        self.sides = [Side(new, decides_new), Side(old, valid_versions(old) - decides_new)]
        self.last = max(self.valid)

    def range_of(self, text_of):
        """The union of what each release says for the versions in which it decides."""
        found = set()
        for side, text in zip(self.sides, text_of):
            found |= versions(text, side.decides) & side.decides
        return found

    def show(self, found):
        low, high = min(found), max(found)
        assert found == {v for v in self.valid if low <= v <= high}, found
        if high == self.last:
            return f"{low}+"
        return str(low) if low == high else f"{low}-{high}"

    def fields(self, new, old, depth):
        lines = []
        by_name = [{f["name"]: f for f in fields or []} for fields in (new, old)]
        for name in merge(new, old):
            pair = [side.get(name) for side in by_name]
            lines += self.field(name, pair, depth)
        return lines

    def field(self, name, pair, depth):
        def attribute(key):
            return [f.get(key) if f else None for f in pair]

        # A field that says only in which versions it is tagged exists in those.
        present = self.range_of([f and f.get("versions", f.get("taggedVersions")) for f in pair])
        if not present:
            return []
        best = pair[0] or pair[1]
        words = [name, best["type"], self.show(present)]
        nullable = self.range_of(attribute("nullableVersions")) & present
        tagged = self.range_of(attribute("taggedVersions")) & present
        if nullable:
            words.append(f"nullable={self.show(nullable)}")
        if tagged:
            words.append(f"tag={best['tag']}@{self.show(tagged)}")
        if default_text(best) is not None:
            words.append(f"default={default_text(best)}")
        if str(best.get("ignorable", False)).lower() == "true":
            words.append("ignorable")
        lines = ["  " * depth + " ".join(words)]
        nested = attribute("fields")
        if any(nested):
            lines += self.fields(nested[0], nested[1], depth + 1)
        return lines


def derive(name, new, old):
    best = new or old
    kind = KINDS[best["type"]]
    if name in CONTROL:
        kind, best = "control", dict(best, apiKey=CONTROL[name])
    if kind == "data" and name.endswith(("Key", "Value")):
        kind = "key" if name.endswith("Key") else "value"
    if kind == "key" and old:
        # Before KIP-915 the type of a coordinator record was the version of its key.
        type_id = best.get("apiKey", valid_versions(old) and max(valid_versions(old)))
        best = dict(new or old, apiKey=type_id, validVersions="0")
        if not new:
            best["fields"] = [dict(f, versions="0") for f in old["fields"]]
        new, old = best, None
    derivation = Derivation(new, old)
    flexible = derivation.range_of([m and m.get("flexibleVersions") for m in (new, old)])
    words = [kind, name]
    if kind != "data":
        key = best.get("apiKey")
        if key is None and kind == "value":
            key = {"ShareGroupPartitionMetadataValue": 9}[name]
        words.append(f"id={key}")
    words.append(f"versions={min(derivation.valid)}-{derivation.last}")
    if flexible:
        words.append(f"flexible={min(flexible)}+")
    lines = [" ".join(words)]
    lines += derivation.fields(*[(s.message or {}).get("fields") for s in derivation.sides], 1)
    structs = [s.structs() for s in derivation.sides]
    for struct in list(dict.fromkeys([*structs[0], *structs[1]])):
        body = derivation.fields(structs[0].get(struct), structs[1].get(struct), 1)
        if body:
            lines += [f"struct {struct}", *body]
    return "\n".join(lines) + "\n"


def main():
    new, old = release(sys.argv[1]), release(sys.argv[2])
    out = pathlib.Path(sys.argv[3])
    for stale in out.glob("*.schema"):
        stale.unlink()
    for name in sorted((new.keys() | old.keys()) - NO_KIND):
        (out / f"{name}.schema").write_text(derive(name, new.get(name), old.get(name)))


main()
