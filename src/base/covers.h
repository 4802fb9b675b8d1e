// Marks the test that covers a rule of spec/; tools/tidy.py reads it.
#pragma once

#define MR_COVERS(rule_id) static_assert(sizeof(rule_id) > 1)
