#!/usr/bin/env bash
# All mutants still apply, and two of them are caught; ./dev mutants runs all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec python3 tests/mutants/mutants.py bounds_off_by_one credit_limit_ignored
