"""Messages as they went over the wire: `python -m tests.service.golden` adds those that are new.

What is written here is never changed: clients of that time still say it.
"""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict

FILE = Path(__file__).with_name("golden.json")
FILES = ("types", "prefix_cache", "lease", "watch", "info", "admin", "router")


def message_classes() -> Iterator[Any]:
    """Every message of radixkv.v1."""
    for name in FILES:
        module = import_module(f"radixkv.v1.{name}_pb2")
        yield from (getattr(module, each) for each in module.DESCRIPTOR.message_types_by_name)


def filled(message: Any, depth: int = 0) -> Any:
    """The message with something in every field; of a oneof the last wins."""
    for field in message.DESCRIPTOR.fields:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if depth > 3:
                continue
            inner = getattr(message, field.name)
            filled(inner.add() if field.is_repeated else inner, depth + 1)
            if not field.is_repeated:
                inner.SetInParent()
        elif field.is_repeated:
            getattr(message, field.name).extend([_value(field), _value(field)])
        else:
            setattr(message, field.name, _value(field))
    return message


def _value(field: Any) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = f"{field.name} é"
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_BOOL:
            return True
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return field.number + 0.5
        case FieldDescriptor.CPPTYPE_ENUM:
            return field.enum_type.values[-1].number
    return 1000 + field.number


def shown(message: Any) -> dict[str, Any]:
    """Its fields as JSON has them."""
    fields: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return fields


def main() -> None:
    golden = json.loads(FILE.read_text()) if FILE.exists() else {}
    for kind in message_classes():
        message = filled(kind())
        entry = {"bytes": message.SerializeToString(deterministic=True).hex()}
        golden.setdefault(kind.DESCRIPTOR.full_name, {**entry, "fields": shown(message)})
    FILE.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
