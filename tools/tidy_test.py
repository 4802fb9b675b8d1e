#!/usr/bin/env python3
"""Self-test of tidy.py: for each check a sample that must fail and one that must pass."""
import unittest

import tidy

RULE = "MR-PATH-" + "001"
SPEC = f"# Delivery\n\n**{RULE}** A sender MUST do it.\n"
CODE = f"#pragma once\nint f();  // {RULE}\n"
TEST = f'TEST(F, g) {{ MR_COVERS("{RULE}"); }}\n'


def findings(files, check):
    return [f for f in tidy.run_checks(tidy.Tree(files)) if f.check == check]


def function(lines, head="int f(int a) const"):
    return f"namespace x {{\n{head} {{\n" + "  a();\n" * lines + "}\n}\n"


class TidyTest(unittest.TestCase):
    def fails(self, check, files, line=None):
        found = findings(files, check)
        self.assertEqual(len(found), 1, found)
        if line is not None:
            self.assertEqual(found[0].line, line)

    def passes(self, check, files):
        self.assertEqual(findings(files, check), [])

    def test_columns(self):
        self.fails("columns", {"src/wire/a.cpp": "\n//" + "x" * 99}, 2)
        self.passes("columns", {"src/wire/a.cpp": "//" + "x" * 98, "a.md": "x" * 300})

    def test_file_size(self):
        self.fails("file-size", {"src/wire/a.cpp": "\n" * 901})
        self.passes("file-size", {"src/wire/a.cpp": "\n" * 900})

    def test_function_size(self):
        for head in ("int f(int a) const", "TEST(A, b)", "auto f() -> std::vector<int>",
                     "A::A(int x) : b_{x}, c_(2)", "A::A() : b_{1}", 'extern "C" int f(int a)',
                     "template <class T>\nstruct R f(T t) noexcept"):
            self.fails("function-size", {"src/wire/a.cpp": function(71, head)})
            self.passes("function-size", {"src/wire/a.cpp": function(70, head)})
        self.fails("function-size", {"tools/a.py": "def f():\n" + "    a()\n" * 71})

    def test_tables_are_no_functions(self):
        for head in ("constexpr Row kTable[] =", "enum class Kind : uint8_t", "struct alignas(8) X",
                     "const std::array<Row, 9> kRows", "class A : public B"):
            self.passes("function-size", {"src/wire/a.cpp": function(200, head)})

    def test_braces_in_text_do_not_count(self):
        text = function(40).replace("a();", "a('{', \"{{\", 1'000); // {", 20)
        self.passes("function-size", {"src/wire/a.cpp": text + function(40)})

    def test_arrows(self):
        self.fails("arrows", {"src/path/a.cpp": '\n#include "message/a.h"\n'}, 2)
        self.fails("arrows", {"src/message/a.cpp": '#include "path/a.h"\n'})
        self.fails("arrows", {"src/base/a.cpp": '#include "wire/a.h"\n'})
        self.fails("arrows", {"src/engine/a.cpp": '#include "driver/udp/a.h"\n'})
        self.fails("arrows", {"conformance/a.cpp": '#include "wire/a.h"\n'})
        self.fails("arrows", {"src/stray/a.cpp": "\n"})
        self.passes("arrows", {"src/engine/a.cpp": '#include "path/a.h"\n#include <vector>\n',
                               "src/driver/udp/a.cpp": '#include "driver/common/a.h"\n',
                               "tests/pair/a.cpp": '#include "engine/a.h"\n'})

    def test_banned(self):
        for call in ("auto t = std::chrono::steady_clock::now();", "std::random_device r;",
                     "std::unordered_map<int, int> m;", "std::mutex m;", "throw 1;",
                     'printf("x");', "int r = rand();", "clock_gettime(c, &t);"):
            self.fails("banned", {"src/path/a.cpp": call})
            self.passes("banned", {"src/driver/udp/a.cpp": call})
            self.passes("banned", {"src/path/b.cpp": "// " + call})
        self.fails("banned", {"src/path/a_test.cpp": "std::random_device r;"})
        self.passes("banned", {"src/path/a_test.cpp": "std::unordered_map<int, int> m;"})

    def test_sleep(self):
        self.fails("sleep", {"tests/e2e/a.py": "import time\ntime.sleep(1)\n"}, 2)
        self.fails("sleep", {"tests/extra/a.sh": "while true; do sleep 1; done\n"})
        self.fails("sleep", {"src/api/a_test.cpp": "std::this_thread::sleep_for(x);"})
        self.passes("sleep", {"src/api/a.cpp": "std::this_thread::sleep_for(x);"})

    def test_words(self):
        self.fails("words", {"src/path/a.cpp": "int qp_number;"})
        self.fails("words", {"src/path/a.cpp": "int subflow;"})
        self.passes("words", {"src/verbs/a.cpp": "int qp_number;", "src/path/a.cpp": "// QP"})

    def test_headers(self):
        self.fails("headers", {"src/path/a.h": "int a;\n"})
        self.passes("headers", {"src/path/a.h": "#pragma once\n"})

    def test_links(self):
        self.fails("links", {"docs/a.md": "\n[x](b.md)\n"}, 2)
        text = "[x](../b.md#y) [y](https://x.org) [z](#z) [s](../src)\n"
        text += "```\nf[a](b)\n```\n`[a](b)`\n"
        self.passes("links", {"docs/a.md": text, "b.md": "", "src/path/a.cpp": ""})

    def test_machine_path(self):
        self.fails("machine-path", {"docs/a.md": "see /wo" + "rk/main"})
        self.fails("machine-path", {"dev": "cd /tmp/m" + "r"})
        self.passes("machine-path", {"docs/a.md": "the net/wo" + "rk/ folder"})

    def test_rule_without_code_or_test(self):
        self.fails("rules", {"spec/a.md": SPEC}, 3)
        self.fails("rules", {"spec/a.md": SPEC, "src/path/a.h": CODE})
        self.fails("rules", {"spec/a.md": SPEC, "src/path/a_test.cpp": TEST})
        self.passes("rules", {"spec/a.md": SPEC, "src/path/a.h": CODE, "src/path/a_test.cpp": TEST})
        self.passes("rules", {"spec/a.md": SPEC.replace("MUST", "SHOULD")})

    def test_rule_unknown_twice_or_without_level(self):
        self.fails("rules", {"src/path/a.h": CODE})
        self.fails("rules", {"spec/a.md": SPEC.replace("MUST", "will")})
        self.fails("rules", {"src/path/a_test.cpp": 'MR_COVERS("nothing");'})
        should = SPEC.replace("MUST", "SHOULD")
        self.fails("rules", {"spec/a.md": should, "spec/b.md": should})

    def test_rule_exceptions(self):
        entry = f'[{RULE}]\nreason = "comes with planes"\n'
        self.passes("rules", {"spec/a.md": SPEC, "spec/exceptions.toml": entry})
        self.fails("rules", {"spec/a.md": SPEC, "spec/exceptions.toml": entry,
                             "src/path/a.h": CODE, "src/path/a_test.cpp": TEST}, 1)
        self.fails("rules", {"spec/exceptions.toml": entry})
        self.fails("exceptions", {"spec/exceptions.toml": "["})

    def test_file_exceptions(self):
        entry = '[[allow]]\nfile = "src/wire/a.cpp"\ncheck = "columns"\nreason = "a table"\n'
        long = {"src/wire/a.cpp": "//" + "x" * 99}
        self.passes("columns", long | {"tools/tidy_exceptions.toml": entry})
        self.passes("exceptions", long | {"tools/tidy_exceptions.toml": entry})
        self.fails("exceptions", {"tools/tidy_exceptions.toml": entry})
        no_reason = entry.replace("a table", "")
        self.fails("exceptions", long | {"tools/tidy_exceptions.toml": no_reason})

    def test_every_check_has_a_sample(self):
        covered = {name.split("_", 1)[1] for name in dir(self) if name.startswith("test_")}
        names = {"check_columns": "columns", "check_file_size": "file_size",
                 "check_function_size": "function_size", "check_arrows": "arrows",
                 "check_banned": "banned", "check_sleeps": "sleep", "check_words": "words",
                 "check_headers": "headers", "check_links": "links", "check_paths": "machine_path",
                 "check_rules": "rule_exceptions"}
        for check in tidy.CHECKS:
            self.assertIn(names[check.__name__], covered)


if __name__ == "__main__":
    unittest.main(verbosity=0)
