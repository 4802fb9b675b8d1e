# Writes the bytes of IN as an array into the header OUT.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "(................................................................)" "\\1\n"
  bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "// Generated: the program of lab/bpf/link.bpf.c.
#pragma once

alignas(8) inline constexpr unsigned char kLinkProgram[] = {\n${bytes}};\n")
