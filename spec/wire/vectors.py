#!/usr/bin/env python3
"""Writes the golden packets of spec/vectors from the field table alone.

usage: vectors.py OUTPUT_FOLDER | vectors.py --check | vectors.py --corpus OUTPUT_FOLDER
Valid ones carry the fields, invalid ones the drop reason. `canonical` says that encoding the fields
gives exactly these bytes. Bytes are without the trailer. --check compares with the committed files;
--corpus writes one binary file a vector, as seeds for a fuzzer.
"""
import hashlib
import json
import pathlib
import sys

import table as wire_table

TABLE = wire_table.Table()
VECTORS = pathlib.Path(__file__).resolve().parent.parent / "vectors"
PAYLOAD = bytes(range(0x10, 0x30))


def picked(form, field):
    """A value inside the range that looks like nothing else; the same on every run."""
    digest = hashlib.sha256(f"{form.name}.{field.name}".encode()).digest() * 4
    value = int.from_bytes(digest, "big") >> (len(digest) * 8 - field.width)
    if field.values:
        return field.values[-1]
    return field.low + value % (field.high - field.low + 1)


def finish(form, values):
    for f in form.fields:
        if f.name in form.constants:
            values[f.name] = form.constants[f.name]
        if f.within:
            values[f.name] &= values[f.within]
    return values


def low(form):
    return finish(form, {f.name: f.low for f in form.fields})


def high(form):
    return finish(form, {f.name: f.high for f in form.fields})


def mixed(form):
    values = {f.name: picked(form, f) for f in form.fields}
    if "offset" in values:
        values["offset"] &= 0x3FFFFFFF
    return finish(form, values)


def valid(name, form, header, tail, values, canonical=True, tlvs=None):
    vector = {"name": name, "form": form.name, "canonical": canonical, "hex": (header + tail).hex(),
              "fields": {k: to_json(form, k, v) for k, v in values.items()}}
    if form.tail == "payload":
        vector["payload_bytes"] = len(tail)
    if tlvs is not None:
        vector["tlvs"] = tlvs
    return vector


def to_json(form, name, value):
    width = form.field(name).width
    return value if width <= 32 else f"0x{value:0{width // 4}x}"


def invalid(name, form, data, drop):
    return {"name": name, "form": form.name if form else None, "hex": data.hex(), "drop": drop}


def tlv_bytes(tlv, values, number=None, cut=None):
    """A whole TLV with head and padding; `cut` shortens its value."""
    value = tlv.encode(values)[2:]
    return raw_tlv((number or tlv.type) | (0x80 if tlv.critical else 0), value[:cut])


def raw_tlv(type_byte, value):
    data = bytes([type_byte, len(value)]) + value
    return data + bytes(-len(data) % 4)


def tlv_values(tlv, maker):
    values = maker(tlv)
    if tlv.name == "PLANE_ADDRESS":
        values["tlv_plane"] = 3
    return values


def tail_of(form, length=32):
    if form.tail != "payload":
        return b""
    return PAYLOAD[:form.payload[0] or length]


def hello(form, values, area, pad=True):
    values = dict(values, tlv_bytes=len(area))
    data = form.encode(values) + area
    if pad and form.name == "HELLO":
        data += bytes(max(0, 512 - len(data)))
    return data, values


def valid_hello(form):
    out = []
    for label, maker in (("low", low), ("mixed", mixed), ("high", high)):
        chosen = [TABLE.tlv(n) for n in ("VERSIONS", "LIMITS", "PLANE_ADDRESS", "COOKIE")]
        area, said = b"", []
        for tlv in chosen:
            values = tlv_values(tlv, maker)
            if values.get("tlv_family") == 4:
                values["tlv_address"] = 0
            area += tlv_bytes(tlv, values)
            said.append({"tlv": tlv.name,
                         "fields": {k: to_json(tlv, k, v) for k, v in values.items()}})
        data, values = hello(form, maker(form), area)
        out.append(valid(f"{form.name} {label}", form, data, b"", values, tlvs=said))
    values = mixed(form)
    data, said = hello(form, values, b"")
    out.append(valid(f"{form.name} without TLVs", form, data, b"", said, False))
    grease = raw_tlv(0x41, b"\x55" * 5) + raw_tlv(0x07, b"") + raw_tlv(0x05, b"")
    data, said = hello(form, values, grease)
    out.append(valid(f"{form.name} unknown TLVs", form, data, b"", said, False))
    versions = raw_tlv(0x81, b"\x00\x03" + b"\xee" * 3)
    data, said = hello(form, values, versions)
    out.append(valid(f"{form.name} longer TLV value", form, data, b"", said, False,
                     [{"tlv": "VERSIONS", "fields": {"versions": 3}}]))
    return out


def valid_of(form):
    if form.tail == "tlvs":
        return valid_hello(form)
    out = []
    for label, maker in (("low", low), ("mixed", mixed), ("high", high)):
        values = maker(form)
        if any(f.family and values[f.family] == 0 for f in form.fields):
            values.update({f.name: 0 for f in form.fields if f.family})
        for f in form.fields:
            if f.family and values[f.family] == 4:
                values[f.name] = 0xC0000201 << 96
        free = form.tail == "payload" and form.payload[0] == 0
        tail = b"" if free and label != "mixed" else tail_of(form)
        if form.payload[0] and "offset" in values and label == "high":
            values["offset"] -= form.payload[0]
        out.append(valid(f"{form.name} {label}", form, form.encode(values), tail, values))
    values = mixed(form)
    data = int.from_bytes(form.encode(values), "big") | form.unused_bits()
    if form.unused_bits():
        out.append(valid(f"{form.name} unused bits set", form,
                         data.to_bytes(form.bytes, "big"), tail_of(form), values, False))
    families = [f for f in form.fields if f.family]
    if families:
        for f in families:
            values[f.family], values[f.name] = 4, (0x0A000001 << 96) | 0xFF
        said = dict(values, **{f.name: 0x0A000001 << 96 for f in families})
        out.append(valid(f"{form.name} IPv4, rest ignored", form, form.encode(values), b"", said,
                         False))
    if form.tail == "padding":
        values = mixed(form)
        out.append(valid(f"{form.name} padded to 512", form, form.encode(values),
                         bytes(512 - form.bytes), values, False))
    for f in form.fields:
        if f.clamp is not None:
            values = mixed(form)
            data = form.encode(dict(values, **{f.name: f.beyond()}))
            out.append(valid(f"{form.name} {f.name} not known", form, data, b"",
                             dict(values, **{f.name: f.clamp}), False))
    return out


def invalid_of(form):
    out = []
    values = mixed(form)
    if form.tail == "tlvs":
        area = tlv_bytes(TABLE.tlv("LIMITS"), mixed(TABLE.tlv("LIMITS")))
        header, values = hello(form, values, area)
        tail = b""
    else:
        header, tail = form.encode(values), tail_of(form)
    whole = header + tail
    cut = form.bytes - 1
    out.append(invalid(f"{form.name} one byte short", form, whole[:cut], "TOO_SHORT"))
    out.append(invalid(f"{form.name} head only", form, whole[:8], "TOO_SHORT"))
    if form.least > form.bytes:
        out.append(invalid(f"{form.name} under its least size", form, whole[:form.least - 1],
                           "BAD_LENGTH"))
    if form.tail == "none":
        out.append(invalid(f"{form.name} one byte long", form, whole + b"\0", "BAD_LENGTH"))
    if form.payload[0]:
        out.append(invalid(f"{form.name} payload short", form, whole[:-1], "TOO_SHORT"))
        out.append(invalid(f"{form.name} payload long", form, whole + b"\0", "BAD_LENGTH"))
    for version in (1, 2, 3):
        data = bytes([whole[0] | version << 6]) + whole[1:]
        out.append(invalid(f"{form.name} version {version}", form, data, "BAD_VERSION"))
    for f in form.fields:
        beyond = f.beyond()
        if f.invalid is None or beyond is None or f.name in ("version", "type"):
            continue
        saved = dict(form.constants)
        form.constants.pop(f.name, None)
        data = form.encode(dict(values, **{f.name: beyond}))
        out.append(invalid(f"{form.name} {f.name} {beyond}", form, data, f.invalid))
        if f.low > 0 and not f.values:
            data = form.encode(dict(values, **{f.name: f.low - 1}))
            out.append(invalid(f"{form.name} {f.name} {f.low - 1}", form, data, f.invalid))
        form.constants.update(saved)
    if form.tail == "payload":
        data = form.encode(dict(values, offset=(1 << 31) - len(tail) + 1)) + tail
        out.append(invalid(f"{form.name} ends beyond 2^31", form, data, "BAD_LENGTH"))
    for f in form.fields:
        if f.within:
            data = form.encode(dict(values, **{f.name: 1, f.within: values[f.within] & ~1}))
            out.append(invalid(f"{form.name} {f.name} not in {f.within}", form, data, "BAD_FIELD"))
    return out


def invalid_tlvs(form):
    values = mixed(form)
    limits = tlv_bytes(TABLE.tlv("LIMITS"), mixed(TABLE.tlv("LIMITS")))
    plane_values = tlv_values(TABLE.tlv("PLANE_ADDRESS"), mixed)
    plane = tlv_bytes(TABLE.tlv("PLANE_ADDRESS"), plane_values)
    cases = [("unknown and critical", raw_tlv(0xC1, b"")),
             ("ACK wide critical", raw_tlv(0x85, b"")),
             ("limits twice", limits + limits),
             ("plane twice", plane + plane),
             ("two bytes left", limits + b"\x41\x00"),
             ("value beyond the TLVs", limits + bytes([0x41, 3, 0, 0])),
             ("longest value, nothing there", bytes([0x41, 255, 0, 0]))]
    for tlv in TABLE.tlvs:
        for cut in (0, tlv.bytes - 3):
            cases.append((f"{tlv.name} value of {cut} bytes",
                          tlv_bytes(tlv, tlv_values(tlv, mixed), cut=cut)))
        for f in tlv.fields:
            for v in {f.beyond(), f.low - 1}:
                if f.invalid and v is not None and v >= 0 and not (f.values and v in f.values):
                    good = tlv_values(tlv, mixed)
                    cases.append((f"{tlv.name} {f.name} {v}",
                                  tlv_bytes(tlv, dict(good, **{f.name: v}))))
    out = [invalid(f"{form.name} {n}", form, hello(form, values, a)[0], "BAD_TLV")
           for n, a in cases]
    data, _ = hello(form, values, limits)
    room = len(data) - form.bytes + 1
    head = form.encode(dict(values, tlv_bytes=room))
    out.append(invalid(f"{form.name} TLV bytes beyond the packet", form, head + data[form.bytes:],
                       "BAD_LENGTH"))
    return out


def no_form():
    probe = TABLE.packet("PROBE")
    data = probe.encode(mixed(probe))
    out = [invalid("empty", None, b"", "TOO_SHORT"),
           invalid("one byte", None, b"\x01", "TOO_SHORT"),
           invalid("seven bytes", None, data[:7], "TOO_SHORT")]
    for number in (0, 16, 32, 63):
        out.append(invalid(f"type {number}", None, bytes([number]) + data[1:], "BAD_TYPE"))
    for form in (TABLE.packet("WRITE"), TABLE.packet("RESET")):
        data = form.encode(mixed(form))
        for opcode in (0, 16, 127, 255):
            out.append(invalid(f"{form.type} opcode {opcode}", None,
                               data[:22] + bytes([opcode]) + data[23:], "BAD_OPCODE"))
    return out


def build():
    """File name -> text."""
    files = {}
    for kind in TABLE.enums["packet_type"]:
        forms = [p for p in TABLE.packets if p.type == kind]
        vectors = [v for p in forms for v in valid_of(p) + invalid_of(p)]
        vectors += [v for p in forms if p.tail == "tlvs" for v in invalid_tlvs(p)]
        files[kind.lower() + ".json"] = render(vectors)
    files["no_kind.json"] = render(no_form())
    return files


def render(vectors):
    names = [v["name"] for v in vectors]
    assert len(names) == len(set(names)), "two vectors of one name"
    return "[\n" + ",\n".join(" " + json.dumps(v) for v in vectors) + "\n]\n"


def load(folder=VECTORS):
    return [v for path in sorted(folder.glob("*.json")) for v in json.loads(path.read_text())]


def main(arguments):
    if arguments == ["--check"]:
        files = build()
        there = {p.name: p.read_text() for p in VECTORS.glob("*.json")}
        wrong = sorted(n for n in files.keys() | there.keys() if files.get(n) != there.get(n))
        for name in wrong:
            print(f"spec/vectors/{name} is not what the table says: run spec/wire/vectors.py "
                  "spec/vectors and read the difference")
        return 1 if wrong else 0
    if len(arguments) == 2 and arguments[0] == "--corpus":
        folder = pathlib.Path(arguments[1])
        folder.mkdir(parents=True, exist_ok=True)
        for vector in load():
            name = "".join(c if c.isalnum() else "_" for c in vector["name"])
            (folder / name).write_bytes(bytes.fromhex(vector["hex"]))
        return 0
    if len(arguments) == 1 and not arguments[0].startswith("-"):
        for name, text in build().items():
            pathlib.Path(arguments[0], name).write_text(text)
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
