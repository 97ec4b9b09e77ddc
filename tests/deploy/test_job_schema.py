# SPDX-License-Identifier: Apache-2.0
"""deploy/examples/job.schema.json as an editor uses it: the examples fit it, files with a fault do not.

job_schema_test holds the file to the server's own checks. What editors need of JSON Schema is small, and a keyword that is
not known here fails the test.
"""

import copy
import json
import re

import pytest
import yaml

TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "integer": lambda value: TYPES["number"](value) and value == int(value),
}
NOTES = {"$schema", "title", "description", "examples"}


def faults(value, schema, path="job"):
    is_number = TYPES["number"](value)
    bounds = {
        "minimum": lambda limit: value >= limit,
        "maximum": lambda limit: value <= limit,
        "exclusiveMinimum": lambda limit: value > limit,
        "exclusiveMaximum": lambda limit: value < limit,
    }
    for keyword, rule in schema.items():
        if keyword in NOTES or keyword in ("properties", "additionalProperties"):
            continue
        if keyword == "type":
            allowed = [rule] if isinstance(rule, str) else rule
            fits = any(TYPES[name](value) for name in allowed)
        elif keyword == "enum":
            fits = any(value == word and type(value) is type(word) for word in rule)
        elif keyword == "required":
            fits = isinstance(value, dict) and set(rule) <= set(value)
        elif keyword == "anyOf":
            fits = any(not list(faults(value, one, path)) for one in rule)
        elif keyword == "pattern":
            fits = not isinstance(value, str) or re.search(rule, value) is not None
        elif keyword == "items":
            fits = isinstance(value, list) and not [fault for one in value for fault in faults(one, rule, path)]
        else:
            fits = not is_number or bounds[keyword](rule)
        if not fits:
            yield f"{path}: {keyword} {rule}"
    if not isinstance(value, dict):
        return
    others = schema.get("additionalProperties", True)
    for key, inner in value.items():
        if key in schema.get("properties", {}):
            yield from faults(inner, schema["properties"][key], f"{path}.{key}")
        elif others is False:
            yield f"{path}.{key}: unknown"
        elif isinstance(others, dict):
            yield from faults(inner, others, f"{path}.{key}")


class Core(yaml.SafeLoader):
    """YAML 1.2, as editors read it: 4e-3 is a number, on is a word."""


Core.yaml_implicit_resolvers = {}
Core.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), list("tf"))
Core.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
Core.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$"), list("-+0123456789")
)


@pytest.fixture(scope="module")
def schema(source_root):
    return json.loads((source_root / "deploy/examples/job.schema.json").read_text())


@pytest.fixture
def job(source_root):
    return yaml.load((source_root / "deploy/examples/digits.yaml").read_text(), Loader=Core)


def test_every_example_fits_and_names_the_schema_for_editors(source_root, schema):
    examples = sorted((source_root / "deploy/examples").glob("*.yaml"))
    assert len(examples) >= 2
    for example in examples:
        text = example.read_text()
        assert list(faults(yaml.load(text, Loader=Core), schema)) == [], example.name
        (named,) = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", text, flags=re.MULTILINE)
        assert (example.parent / named).exists()


CHANGES = {
    "unknown key": ("memory", "ring_sise", 2),
    "unknown word": ("memory", "mode", "h2d"),
    "beyond the limit": ("memory", "ring_size", 0),
    "no whole number": ("training", "max_steps", 1.5),
    "text for a number": ("training", "learning_rate", "fast"),
    "bound that is excluded": ("training", "learning_rate", 0),
    "text for a switch": ("training", "gradient_checkpointing", "yes please"),
    "negative blocks": ("memory", "blocks_to_swap", -1),
    "no number of blocks": ("memory", "blocks_to_swap", "many"),
    "list for a table": ("model", None, []),
    "bad name": ("name", None, "a/b"),
    "bad device": ("device", None, "gpu0"),
}


@pytest.mark.parametrize("fault", CHANGES)
def test_a_fault_is_found_where_it_is(schema, job, fault):
    assert list(faults(job, schema)) == []
    section, key, value = CHANGES[fault]
    wrong = copy.deepcopy(job)
    if key is None:
        wrong[section] = value
    else:
        wrong.setdefault(section, {})[key] = value
    found = list(faults(wrong, schema))
    assert found and all(one.startswith(f"job.{section}") for one in found), found


@pytest.mark.parametrize("path", ["name", "model", "model.weights", "dataset.config", "training.max_steps"])
def test_what_is_required_is_missed(schema, job, path):
    *sections, key = path.split(".")
    table = job
    for section in sections:
        table = table[section]
    del table[key]
    assert list(faults(job, schema))


@pytest.mark.parametrize("section, key, value", [
    ("memory", "blocks_to_swap", 4), ("memory", "blocks_to_swap", "auto"), ("memory", "vram_budget", 12884901888),
    ("memory", "checkpointing", "off"), ("memory", "checkpointing", False), ("labels", "team", "vision"), ("labels", "run", 7),
    ("training", "max_steps", 1e3),
])
def test_what_the_server_takes_is_taken(schema, job, section, key, value):
    job.setdefault(section, {})[key] = value
    assert list(faults(job, schema)) == []
