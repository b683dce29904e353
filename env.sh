# shellcheck shell=bash
# Where things are. To be sourced; it only assigns and exports. A value that is already set is kept.
# Facts of one site or one desk go into env.local.sh (not under version control); see env.local.example.sh.

ECG_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)" # always this checkout, whatever was inherited
export ECG_ROOT

# shellcheck source=/dev/null
if [[ -f "$ECG_ROOT/env.local.sh" ]]; then source "$ECG_ROOT/env.local.sh"; fi
# Facts of the system that ECG_SITE names; see docs/sites.md. bin/lib/common.sh complains about a name that has no file.
# shellcheck source=/dev/null
if [[ "${ECG_SITE:-}" =~ ^[a-z0-9-]+$ && -f "$ECG_ROOT/sites/$ECG_SITE.sh" ]]; then source "$ECG_ROOT/sites/$ECG_SITE.sh"; fi

: "${ECG_DATA:=$ECG_ROOT/data}"                             # token shards, one folder per data set
: "${ECG_RESULTS:=$ECG_ROOT/results}"                       # runs/ and report/
: "${ECG_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/ecg-train}" # Python environments and the Horovod wheel
export ECG_DATA ECG_RESULTS ECG_CACHE
