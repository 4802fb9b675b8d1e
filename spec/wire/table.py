"""Loads packets.toml, expands its groups and refuses a table that contradicts itself."""
import pathlib
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "packets.toml"
MAX_PAYLOAD_END = 1 << 31


class Field:
    """One field: `at` is the bit of the packet (or TLV) where it starts."""

    def __init__(self, raw, form, first_word=0):
        self.name = raw["name"]
        self.word = raw["word"] + first_word
        self.bit = raw["bit"]
        self.width = raw["width"]
        self.at = self.word * 32 + self.bit
        self.end = self.at + self.width
        self.meaning = raw["meaning"]
        self.base = raw.get("base", "dec")
        self.enum = raw.get("enum")
        self.family = raw.get("family")
        self.within = raw.get("within")
        self.covers = raw.get("covers")
        self.clamp = raw.get("clamp")
        self.invalid = raw.get("invalid")
        self.mask = raw.get("mask")
        self.cpp = raw.get("cpp")
        if self.cpp:
            self.cpp = self.cpp.replace("{h}", form.head)
        self.values = raw.get("values")
        self.low, self.high = raw.get("range", [0, (1 << self.width) - 1])
        if self.values:
            self.low, self.high = self.values[0], self.values[-1]
        unknown = set(raw) - {"name", "word", "bit", "width", "meaning", "base", "enum", "family",
                              "within", "covers", "clamp", "invalid", "mask", "cpp", "values",
                              "range"}
        if unknown:
            raise ValueError(f"{form.name}.{self.name}: unknown keys {unknown}")

    def definition(self):
        """What has to agree wherever a name is used again."""
        return (self.width, self.base, self.enum, self.family, self.meaning)

    def beyond(self):
        """A value that fits the width but not the range, or None."""
        if self.values:
            return next((v for v in range(1 << self.width) if v not in self.values), None)
        return self.high + 1 if self.high + 1 < 1 << self.width else None


class Form:
    """A packet kind in one of its forms (opcode, with or without LAST), or a TLV."""

    def __init__(self, raw, groups, enums):
        self.name = raw["name"]
        self.head = raw.get("head", "")
        self.cpp = raw.get("cpp")
        self.cpp_base = raw.get("cpp_base", "")
        self.type = raw["type"]
        self.last = raw.get("last")
        self.tail = raw.get("tail", "none")
        self.payload = raw.get("payload", [0, None])
        self.bytes = raw.get("bytes", 2 + raw.get("value_bytes", 0))
        self.least = raw.get("least", self.bytes)
        self.critical = raw.get("critical", False)
        self.constants = {"version": 0}
        if isinstance(self.type, str):
            self.constants["type"] = enums["packet_type"][self.type]
        for key in ("opcode", "control_opcode"):
            if key in raw:
                self.constants[key] = enums[key][raw[key]]
        if self.last is not None:
            self.constants["last"] = int(self.last)
        self.fields = [Field(f, self) for g in raw.get("uses", []) for f in groups[g]["fields"]]
        self.fields += [Field(f, self) for f in raw["fields"]]
        for key, group in (("ack_words_at", "ack_words"), ("refusal_words_at", "refusal_words")):
            if key in raw:
                self.fields += [Field(f, self, raw[key]) for f in groups[group]["fields"]]
        self.fields.sort(key=lambda f: f.at)
        for f in self.fields:
            if f.name in self.constants:
                f.cpp = None
        self.check()

    def check(self):
        end = 0
        for f in self.fields:
            if f.at < end:
                raise ValueError(f"{self.name}.{f.name} overlaps the field before it")
            if f.end > self.bytes * 8:
                raise ValueError(f"{self.name}.{f.name} ends beyond {self.bytes} bytes")
            if f.width < 8 and f.at // 8 != (f.end - 1) // 8:
                raise ValueError(f"{self.name}.{f.name}: a small field stays in one byte")
            if f.width >= 8 and (f.at % 8 or f.width % 8):
                raise ValueError(f"{self.name}.{f.name}: a large field consists of bytes")
            end = f.end

    def field(self, name):
        return next(f for f in self.fields if f.name == name)

    def unused_bits(self):
        """A mask over the whole header (bit 0 of the packet is the most significant)."""
        total = self.bytes * 8
        used = 0
        for f in self.fields:
            used |= ((1 << f.width) - 1) << (total - f.end)
        return ((1 << total) - 1) ^ used

    def encode(self, values):
        """Header bytes from a dict of field values; missing fields are zero."""
        total = self.bytes * 8
        number = 0
        for f in self.fields:
            value = self.constants.get(f.name, values.get(f.name, 0))
            if not 0 <= value < 1 << f.width:
                raise ValueError(f"{self.name}.{f.name}: {value} does not fit")
            number |= value << (total - f.end)
        return number.to_bytes(self.bytes, "big")


class Table:
    def __init__(self, source=SOURCE):
        with open(source, "rb") as f:
            raw = tomllib.load(f)
        self.enums = {}
        self.enum_cpp = {}
        for name, values in raw["enum"].items():
            self.enum_cpp[name] = values.pop("cpp", None)
            self.enums[name] = values
        self.packets = [Form(p, raw["group"], self.enums) for p in raw["packet"]]
        self.tlvs = [Form(t, raw["group"], self.enums) for t in raw["tlv"]]
        self.check()

    def check(self):
        seen = {}
        for form in self.packets + self.tlvs:
            for f in form.fields:
                if seen.setdefault(f.name, f.definition()) != f.definition():
                    raise ValueError(f"{form.name}.{f.name} is defined in two ways")
        for key, enum in (("type", "packet_type"), ("opcode", "opcode"),
                          ("control_opcode", "control_opcode")):
            present = {p.constants.get(key) for p in self.packets} - {None}
            missing = set(self.enums[enum].values()) - present
            if missing:
                raise ValueError(f"no packet for {enum} {missing}")

    def packet(self, name):
        return next(p for p in self.packets if p.name == name)

    def tlv(self, name):
        return next(t for t in self.tlvs if t.name == name)

    def all_fields(self):
        """Every field once, by name, in the order of appearance."""
        result = {}
        for form in self.packets + self.tlvs:
            for f in form.fields:
                result.setdefault(f.name, f)
        return result


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def make_crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ 0x82F63B78 if value & 1 else value >> 1
        table.append(value)
    return table


CRC_TABLE = make_crc_table()
assert crc32c(b"123456789") == 0xE3069283
