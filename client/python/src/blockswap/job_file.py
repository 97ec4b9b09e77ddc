# SPDX-License-Identifier: Apache-2.0
"""Job files and dictionaries as the message the server takes."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor, json_format

from blockswap.v1 import job_pb2

Source = "str | os.PathLike[str] | Mapping[str, Any] | job_pb2.JobSpec"


def load_spec(source: str | os.PathLike[str] | Mapping[str, Any] | job_pb2.JobSpec,
              overrides: Mapping[str, Any] | None = None) -> job_pb2.JobSpec:
    """A job file (YAML or JSON), a dictionary of its form, or a message; `overrides` maps "memory.ring_size" to values.

    Raises ValueError that names the field for unknown keys and wrong types; everything else is the server's to judge.
    """
    if isinstance(source, job_pb2.JobSpec):
        tree = json_format.MessageToDict(source, preserving_proto_field_name=True)
    elif isinstance(source, Mapping):
        tree = json.loads(json.dumps(source))
    else:
        tree = _read(pathlib.Path(source))
    for path, value in (overrides or {}).items():
        *parents, last = path.split(".")
        at = tree
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = value
    spec = job_pb2.JobSpec()
    try:
        json_format.ParseDict(_as_text(tree, spec.DESCRIPTOR), spec)
    except json_format.ParseError as error:
        raise ValueError(str(error)) from None
    return spec


def _read(path: pathlib.Path) -> dict[str, Any]:
    text = path.read_text()
    if path.suffix == ".json":
        tree = json.loads(text)
    else:
        try:
            import yaml
        except ImportError:
            raise ValueError(f"{path} is no .json file and PyYAML is not installed: pip install blockswap[yaml]") from None
        tree = yaml.safe_load(text)
    if not isinstance(tree, dict):
        raise ValueError(f"{path} is no job file: it holds no mapping")
    return tree


def _as_text(value: Any, message: descriptor.Descriptor) -> Any:
    """Numbers and switches where the schema has text: `blocks_to_swap: 4` is "4"."""
    if not isinstance(value, dict):
        return value
    result = {}
    for key, element in value.items():
        field = message.fields_by_name.get(key)
        if field is None:
            result[key] = element
        elif field.type == field.TYPE_MESSAGE and not field.message_type.GetOptions().map_entry:
            result[key] = ([_as_text(each, field.message_type) for each in element] if isinstance(element, list)
                           else _as_text(element, field.message_type))
        elif field.type == field.TYPE_STRING and isinstance(element, (bool, int, float)):
            result[key] = str(element).lower() if isinstance(element, bool) else str(element)
        else:
            result[key] = element
    return result
