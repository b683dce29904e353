# shellcheck shell=bash
# Sourced by every command: messages, variables, the Python to use.

# check_sourced FILE: a file that cannot be read as bash must not half take effect.
check_sourced() {
  local message
  if [[ ! -e "$1" ]] || message=$(bash -n "$1" 2>&1); then return; fi
  printf 'error: %s; mend that line\n' "${message%%$'\n'*}" >&2
  exit 2
}

ecg_checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
check_sourced "$ecg_checkout/env.local.sh"
if [[ "${ECG_SITE:-}" =~ ^[a-z0-9-]+$ ]]; then check_sourced "$ecg_checkout/sites/$ECG_SITE.sh"; fi
# shellcheck source=env.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../env.sh"

# Our packages come from the checkout alone; nothing of the user's own Python may shadow what was installed.
export PYTHONPATH="$ECG_ROOT/python:$ECG_ROOT" PYTHONNOUSERSITE=1 PYTHONUNBUFFERED=1
unset PYTHONHOME
# A compilation inside a step must not take part in the user's make.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL
# One collation and one decimal point, so that [a-z] in a check and numbers in a log mean the same everywhere.
export LC_ALL=C
if [[ "${ECG_TRACE:-0}" == 1 ]]; then set -x; fi

log() { printf '%s\n' "$*" >&2; }
warn() { printf 'warning: %s\n' "$*" >&2; }

# die MESSAGE [STATUS]: one line on stderr; status 2 (bad request) unless told otherwise.
die() {
  printf 'error: %s\n' "$1" >&2
  exit "${2:-2}"
}

# ECG_SITE may come from env.local.sh. In the bundle of a job there are no sites: its file holds their facts already.
if [[ -n "${ECG_SITE:-}" && -d "$ECG_ROOT/sites" && ! -f "$ECG_ROOT/sites/$ECG_SITE.sh" ]]; then
  die "ECG_SITE='${ECG_SITE:0:60}' is none of: $(cd "$ECG_ROOT/sites" && printf '%s ' *.sh | sed 's/\.sh / /g'); see docs/sites.md"
fi

# The comment at the top of a command is its manual.
print_help() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"; }

# help_wanted "$@": print the manual and succeed if the first argument asks for it.
help_wanted() {
  [[ "${1:-}" == -h || "${1:-}" == --help ]] || return 1
  print_help
}

# no_arguments "$@": for commands that take none.
no_arguments() {
  (($# == 0)) || die "$(basename "$0"): unexpected argument '$1'; see $(basename "$0") --help"
}

require_cmd() { command -v "$1" >/dev/null || die "'$1' is not installed; $2"; }

# read_assignments NAMES "$@": take NAME=value arguments (as make does) into exported variables, for the NAMES allowed.
read_assignments() {
  local names=$1 argument name
  shift
  for argument in "$@"; do
    name=${argument%%=*}
    if [[ "$argument" != *=* || " $names " != *" $name "* ]]; then
      die "unknown argument '$argument'; known: ${names// /= }="
    fi
    export "$name=${argument#*=}"
  done
}

# Seconds since START (as $EPOCHREALTIME gives it), with one decimal.
elapsed() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f", to - from }'; }
