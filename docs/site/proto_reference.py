"""The reference of the protocol, made from the .proto files with their comments by protoc."""

import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)
from grpc_tools import protoc

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "proto" / "radixkv" / "v1").glob("*.proto"))
# Of a file's parts, as descriptor.proto numbers them.
MESSAGES, ENUMS, SERVICES, MEMBERS = 4, 5, 6, 2


def page() -> str:
    parts = (part for file in files() for part in sections(file))
    return "# Protocol\n\nThe contract is `proto/radixkv/v1/`.\n\n" + "\n".join(parts)


def files() -> list[FileDescriptorProto]:
    with tempfile.NamedTemporaryFile() as out:
        includes = [f"-I{ROOT / 'proto'}", f"-I{resources.files('grpc_tools') / '_proto'}"]
        arguments = ["--include_source_info", f"--descriptor_set_out={out.name}"]
        status = protoc.main(["protoc", *includes, *arguments, *map(str, FILES)])
        if status != 0:
            raise RuntimeError(f"protoc must read {ROOT / 'proto'}; its status is {status}")
        return list(FileDescriptorSet.FromString(Path(out.name).read_bytes()).file)


def sections(file: FileDescriptorProto) -> Iterator[str]:
    comments = {
        tuple(place.path): place.leading_comments.strip()
        for place in file.source_code_info.location
        if place.leading_comments
    }
    yield f"## {Path(file.name).name}\n"
    for at, service in enumerate(file.service):
        yield from of_service(service, (SERVICES, at), comments)
    for at, message in enumerate(file.message_type):
        yield from of_message(message, (MESSAGES, at), comments)
    for at, enum in enumerate(file.enum_type):
        yield from of_enum(enum, (ENUMS, at), comments)


Comments = dict[tuple[int, ...], str]


def of_service(
    service: ServiceDescriptorProto, path: tuple[int, ...], comments: Comments
) -> Iterator[str]:
    yield f"### {service.name}\n\n{text(comments.get(path, ''))}\n"
    yield "| call | takes | answers | |\n|---|---|---|---|"
    for at, rpc in enumerate(service.method):
        stream = "stream of " if rpc.server_streaming else ""
        said = line(comments.get((*path, MEMBERS, at), ""))
        takes, answers = short(rpc.input_type), stream + short(rpc.output_type)
        yield f"| `{rpc.name}` | {takes} | {answers} | {said} |"
    yield ""


def of_message(
    message: DescriptorProto, path: tuple[int, ...], comments: Comments
) -> Iterator[str]:
    yield f"### {message.name}\n\n{text(comments.get(path, ''))}\n"
    if message.field:
        yield "| field | type | number | |\n|---|---|---|---|"
    for at, field in enumerate(message.field):
        said = line(comments.get((*path, MEMBERS, at), ""))
        yield f"| `{field.name}` | {kind(field)} | {field.number} | {said} |"
    yield ""


def of_enum(enum: EnumDescriptorProto, path: tuple[int, ...], comments: Comments) -> Iterator[str]:
    yield f"### {enum.name}\n\n{text(comments.get(path, ''))}\n"
    yield "| value | number | |\n|---|---|---|"
    for at, value in enumerate(enum.value):
        said = line(comments.get((*path, MEMBERS, at), ""))
        yield f"| `{value.name}` | {value.number} | {said} |"
    yield ""


def kind(field: FieldDescriptorProto) -> str:
    name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    shown = short(field.type_name) if field.type_name else name
    return f"repeated {shown}" if field.label == field.LABEL_REPEATED else shown


def short(name: str) -> str:
    return name.removeprefix(".radixkv.v1.").removeprefix(".google.protobuf.")


def text(comment: str) -> str:
    return "\n".join(each.strip() for each in comment.splitlines())


def line(comment: str) -> str:
    return " ".join(comment.split()).replace("|", "\\|")
