# shellcheck shell=bash
# Reads frameworks.tsv, the one table of what can be run and how. Needs common.sh.

FRAMEWORK_TABLE=$ECG_ROOT/bin/lib/frameworks.tsv

framework_names() { awk -F'\t' '!/^#/ { print $1 }' "$FRAMEWORK_TABLE"; }

# framework_row NAME: its module, launcher and the Python package that tells whether it is installed.
framework_row() { awk -F'\t' -v name="$1" '!/^#/ && $1 == name { print $2, $3, $4 }' "$FRAMEWORK_TABLE"; }

# Without importing it: that takes seconds.
framework_installed() {
  "$ECG_PYTHON" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)' "$1"
}
