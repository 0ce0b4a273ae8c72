"""``bpf/hark_abi.h`` as clang, the C compiler and Python's struct module see it: all the same."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hark._native import ffi

from hark.kernel import decode, syscalls

ROOT = Path(__file__).resolve().parents[1]
OBJECT = ROOT / "build" / "bpf" / "abi.bpf.o"
HEADER = ROOT / "bpf" / "hark_abi.h"


def _btf() -> dict[int, dict[str, Any]]:
    out = subprocess.run(
        ["/usr/sbin/bpftool", "-j", "btf", "dump", "file", OBJECT], check=True, capture_output=True
    ).stdout
    return {t["id"]: t for t in json.loads(out)["types"]}


BTF = _btf()
STRUCTS = {t["name"]: t for t in BTF.values() if t["kind"] == "STRUCT" and t["name"] != "(anon)"}
ENUMS = {t["name"]: t for t in BTF.values() if t["kind"] in {"ENUM", "ENUM64"}}


def _declared(kind: str) -> list[str]:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    return re.findall(rf"^{kind} (\w+) \{{", text, flags=re.MULTILINE)


def _shape(type_id: int) -> str:
    """A BTF type as a C declaration."""
    kind = BTF[type_id]
    if kind["kind"] == "TYPEDEF":
        return _shape(kind["type_id"])
    if kind["kind"] == "ARRAY":
        return f"{_shape(kind['type_id'])}[{kind['nr_elems']}]"
    if kind["kind"] == "INT":
        if kind["encoding"] == "CHAR" or kind["name"] == "char":
            return "char"
        sign = "i" if kind["encoding"] == "SIGNED" else "u"
        return f"{sign}{kind['nr_bits']}"
    return f"{kind['kind'].lower()} {kind['name']}"


def _cffi_shape(ctype: Any) -> str:
    """A cffi type in the same words."""
    if ctype.kind == "array":
        return f"{_cffi_shape(ctype.item)}[{ctype.length}]"
    if ctype.kind == "primitive":
        if ctype.cname == "char":
            return "char"
        sign = "u" if int(ffi.cast(ctype, -1)) > 0 else "i"
        return f"{sign}{ffi.sizeof(ctype) * 8}"
    return ctype.cname


def test_the_anchor_names_every_type():
    assert set(_declared("struct")) <= set(STRUCTS)
    assert set(_declared("enum")) <= set(ENUMS)


@pytest.mark.parametrize("name", _declared("struct"))
def test_struct(name: str):
    ctype = ffi.typeof(f"struct {name}")
    assert ffi.sizeof(ctype) == STRUCTS[name]["size"]
    seen = [(n, f.offset * 8, _cffi_shape(f.type)) for n, f in ctype.fields]
    told = [(m["name"], m["bits_offset"], _shape(m["type_id"])) for m in STRUCTS[name]["members"]]
    assert seen == told


@pytest.mark.parametrize("name", _declared("struct"))
def test_struct_has_no_hidden_padding(name: str):
    end = 0
    for field, where in ffi.typeof(f"struct {name}").fields:
        assert where.offset == end, field
        end = where.offset + ffi.sizeof(where.type)
    assert end == ffi.sizeof(f"struct {name}")


@pytest.mark.parametrize("name", _declared("enum"))
def test_enum(name: str):
    seen = ffi.typeof(f"enum {name}").relements
    assert seen == {v["name"]: v["val"] for v in ENUMS[name]["values"]}


@pytest.mark.parametrize("name", decode.LAYOUTS)
def test_python_layout(name: str):
    """What decode.py unpacks after head and task has the size, offsets and signs of the struct."""
    head, task, *fields = ffi.typeof(f"struct {name}").fields
    assert (head[0], task[0]) == ("head", "task")
    start = fields[0][1].offset
    layout = decode.LAYOUTS[name]
    assert layout.size == ffi.sizeof(f"struct {name}") - start
    codes = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}
    formats = [
        codes[s] if (s := _cffi_shape(f.type)) in codes else f"{ffi.sizeof(f.type)}s"
        for _, f in fields
    ]
    assert layout.format == "=" + "".join(formats)


def test_python_constants():
    assert decode.COUNT_KEY.size == ffi.sizeof("struct hark_count_key")
    kinds = ffi.typeof("enum hark_rec_kind").relements
    assert {v for n, v in kinds.items() if 0x200 <= v < 0x300} == set(decode.KINDS)
    flags = ffi.typeof("enum hark_rec_flag").relements
    assert (
        flags["HARK_RECF_TRUNCATED"],
        flags["HARK_RECF_IA32"],
        flags["HARK_RECF_THREAD"],
    ) == (decode.TRUNCATED, decode.IA32, decode.THREAD)
    numbers = ffi.typeof("enum hark_count_nr").relements
    assert (numbers["HARK_NR_IA32"], numbers["HARK_NR_OTHER"]) == (syscalls.IA32, syscalls.OTHER)
