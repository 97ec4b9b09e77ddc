# SPDX-License-Identifier: Apache-2.0
"""Reads Prometheus text strictly, and the table of deploy/prometheus/METRICS.md."""

import pathlib
import re

ESCAPES = {"\\": "\\", "n": "\n", '"': '"'}
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
METRICS_LIST = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "METRICS.md"


def parse_labels(line, at):
    """The labels behind the brace at `at` - 1 and where they end."""
    labels = {}
    while line[at] != "}":
        name = NAME.match(line, at)
        assert name and line[name.end() : name.end() + 2] == '="', f"no label at {at}: {line!r}"
        at, value = name.end() + 2, []
        while line[at] != '"':
            if line[at] == "\\":
                at += 1
                value.append(ESCAPES[line[at]])
            else:
                value.append(line[at])
            at += 1
        assert name[0] not in labels, f"label twice: {line!r}"
        labels[name[0]] = "".join(value)
        at += 1
        if line[at] == ",":
            at += 1
    return labels, at + 1


def parse(text):
    """{(sample name, ((label, value), ...)): number}; raises on anything the format does not allow."""
    samples, types = {}, {}
    assert text.endswith("\n")
    for line in text.split("\n")[:-1]:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types, f"type twice: {name}"
            types[name] = kind
            continue
        if line.startswith("#"):
            continue
        name = NAME.match(line)
        assert name, f"no name: {line!r}"
        labels, at = {}, name.end()
        if line[at] == "{":
            labels, at = parse_labels(line, at + 1)
        assert line[at] == " ", f"no value: {line!r}"
        key = (name[0], tuple(sorted(labels.items())))
        assert key not in samples, f"series twice: {line!r}"
        samples[key] = float(line[at + 1 :])
    return samples


def documented():
    """{name: type} of the table."""
    rows = re.findall(r"^\| ([a-z_]+) \| (gauge|counter|histogram) \|", METRICS_LIST.read_text(), re.MULTILINE)
    return dict(rows)


def sample_names():
    """Every name a query may use."""
    names = set()
    for name, kind in documented().items():
        names.update(name + suffix for suffix in ("_bucket", "_sum", "_count")) if kind == "histogram" else names.add(name)
    return names
