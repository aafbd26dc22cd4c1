"""What the schemas of other engines name: field names and kinds, read from their wheels without importing anything.

    pip download --no-deps axolotl llamafactory skypilot deepspeed, then
    python tests/export_fields.py FOLDER > tests/reference/export_fields.json

`misfits` holds an exported file to such a list.
"""

import ast
import json
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["misfits"]

CLASSES = {
    "axolotl": ("AxolotlInputConfig", "CutCrossEntropyArgs", "LigerArgs", "FSDPConfig", "SFTDataset", "UserDefinedPrompterType"),
    "llamafactory": ("ModelArguments", "DataArguments", "FinetuningArguments"),
    "deepspeed": ("DeepSpeedZeroConfig", "DeepSpeedZeroOffloadOptimizerConfig", "DeepSpeedZeroOffloadParamConfig"),
}
FILES = {
    "axolotl": ("axolotl/utils/schemas/", "axolotl/integrations/cut_cross_entropy/args", "axolotl/integrations/liger/args"),
    "llamafactory": ("llamafactory/hparams/",),
    "deepspeed": ("deepspeed/runtime/zero/", "deepspeed/runtime/constants", "deepspeed/runtime/precision_config"),
    "skypilot": ("sky/utils/schemas",),
}


def _sources(archive: Path, starts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if name.endswith(".py") and name.startswith(starts):
                    yield name, wheel.read(name).decode()
        return
    with tarfile.open(archive) as sdist:
        for member in sdist:
            name = member.name.partition("/")[2]
            if name.endswith(".py") and name.startswith(starts):
                yield name, sdist.extractfile(member).read().decode()  # type: ignore[union-attr]


def _fields(name: str, classes: dict[str, ast.ClassDef]) -> dict[str, str]:
    """Annotated fields of a class and of its bases."""
    found: dict[str, str] = {}
    for base in classes[name].bases:
        if isinstance(base, ast.Name) and base.id in classes:
            found |= _fields(base.id, classes)
    for node in classes[name].body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            keywords = node.value.keywords if isinstance(node.value, ast.Call) else []
            alias = [k.value.value for k in keywords if k.arg == "alias" and isinstance(k.value, ast.Constant)]
            found[(alias or [node.target.id])[0]] = ast.unparse(node.annotation)
    return found


def _properties(function: ast.FunctionDef) -> dict[str, str]:
    """Names and types of the JSON schema that a function returns."""
    schema = next(node.value for node in ast.walk(function) if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict))
    found = {}
    for key, value in zip(_value(schema, "properties").keys, _value(schema, "properties").values, strict=True):
        if isinstance(key, ast.Constant):
            kinds = (
                {node.value for node in ast.walk(value) if isinstance(node, ast.Constant)}
                if isinstance(value, ast.Dict)
                else set()
            )
            found[key.value] = (
                " | ".join(sorted(kinds & {"string", "integer", "number", "boolean", "object", "array", "null"})) or "Any"
            )
    return found


def _value(node: ast.Dict, name: str) -> Any:
    return next(
        value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant) and key.value == name
    )


def read(folder: Path) -> dict[str, Any]:
    """The lists of all archives in a folder."""
    found: dict[str, Any] = {}
    for target, starts in FILES.items():
        archive = next(path for path in folder.iterdir() if path.name.startswith(f"{target}-") and path.suffix in (".whl", ".gz"))
        trees = {name: ast.parse(text) for name, text in _sources(archive, starts)}
        nodes = [node for tree in trees.values() for node in ast.walk(tree)]
        classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
        fields: dict[str, Any] = {name: _fields(name, classes) for name in CLASSES.get(target, ())}
        if target == "skypilot":
            functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
            fields = {part: _properties(functions[f"get_{part}_schema"]) for part in ("task", "storage")}
            fields["resources"] = _properties(functions["_get_single_resources_schema"]) | {
                "accelerators": "array | object | string"
            }
        if target == "deepspeed":
            values = [n.value.value for n in nodes if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)]
            fields["keys"] = sorted({value for value in values if isinstance(value, str) and value.isidentifier()})
        version = archive.name.removesuffix(".tar.gz").split("-")[1]
        found[target] = {"version": version, "licence": "Apache-2.0", "fields": fields}
    return found


def misfits(values: dict[str, Any], fields: dict[str, str], classes: dict[str, dict[str, str]], at: str = "") -> list[str]:
    """What of `values` a schema does not know, or wants of another kind."""
    found = []
    for name, value in values.items():
        if name not in fields:
            found.append(f"{at}{name} is no field")
        elif not _fits(value, ast.parse(fields[name], mode="eval").body, classes):
            found.append(f"{at}{name} = {value!r} is no {fields[name]}")
    return found


_KINDS: dict[str, Any] = {
    "str": str, "bool": bool, "int": int, "float": (int, float), "dict": dict, "list": list, "string": str, "boolean": bool, "integer": int,
    "number": (int, float), "object": dict, "array": list, "PositiveInt": int,
}  # fmt: skip


def _fits(value: Any, kind: ast.expr, classes: dict[str, dict[str, str]]) -> bool:
    match kind:
        case ast.BinOp(left=left, right=right):
            return _fits(value, left, classes) or _fits(value, right, classes)
        case ast.Constant(value=None) | ast.Name(id="null"):
            return value is None
        case ast.Subscript(value=ast.Name(id="Literal"), slice=slice_):
            return value in [item.value for item in (slice_.elts if isinstance(slice_, ast.Tuple) else [slice_])]  # type: ignore[attr-defined]
        case ast.Subscript(value=ast.Name(id="Optional"), slice=slice_):
            return value is None or _fits(value, slice_, classes)
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[inner, *_])):
            return _fits(value, inner, classes)
        case ast.Subscript(value=ast.Name(id="list"), slice=slice_):
            return isinstance(value, list) and all(_fits(item, slice_, classes) for item in value)
        case ast.Subscript(value=ast.Name(id="dict")):
            return isinstance(value, dict)
        case ast.Name(id=name) if name in classes:
            return isinstance(value, dict) and not misfits(value, classes[name], classes)
        case ast.Name(id=name) if name in _KINDS:
            return isinstance(value, _KINDS[name]) and not (isinstance(value, bool) and name not in ("bool", "boolean"))
    return not isinstance(value, dict)  # an enumeration, or Any


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1])), indent=1, sort_keys=True))
