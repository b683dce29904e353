# shellcheck shell=bash disable=SC2153,SC2154 # the names in capitals are the user's variables; names is the caller's array
# Recordings for bin/data: what may be asked for, where they are, and the fetch. Needs common.sh, check.sh, environment.sh.

# check_data_request: check the variables of bin/data; sets raw, the folder of recordings.
check_data_request() {
  local name
  check_dataset DATASET "${names[0]-}"
  for name in "${names[@]}"; do
    check_dataset DATASET "$name"
    [[ "$name" != raw ]] || die "DATASET=raw: that folder of ECG_DATA holds recordings; take another name"
  done
  check_mix
  raw=${ECG_RAW:-$ECG_DATA/raw}
  check_choice FETCH "$FETCH" auto only never
  check_integer CONNECTIONS "$CONNECTIONS" 1 16
  if [[ -n "${LIMIT+given}" ]]; then check_integer LIMIT "$LIMIT" 1 1000000000; fi
  if [[ -n "${JOBS+given}" ]]; then check_integer JOBS "$JOBS" 1 4096; fi
  check_accepted
  if [[ " ${names[*]} " == *" synthetic "* ]]; then
    check_positive HOURS "$HOURS"
    check_integer SEED "$SEED" 0 2147483647
    [[ -z "${SRC+given}" ]] || die "DATASET=synthetic is made, not read, but SRC=$(shown "$SRC") is given; leave SRC out"
  elif [[ -n "${SRC+given}" ]]; then
    ((${#names[@]} == 1)) || die "SRC is one folder, but DATASET=$(shown "$DATASET") are ${#names[@]} data sets; prepare them one by one"
    check_folder SRC "$SRC"
  fi
}

# MIX and WEIGHTS; sets the array weights.
check_mix() {
  local weight
  read -r -d '' -a weights <<<"${WEIGHTS-}" || true
  if [[ -z "${MIX+given}" ]]; then
    [[ -z "${WEIGHTS+given}" ]] || die "WEIGHTS=$(shown "$WEIGHTS") are those of a mixture; name it: MIX=name"
    return
  fi
  check_dataset MIX "$MIX"
  ((${#names[@]} > 1)) || die "MIX=$MIX mixes the sets of DATASET, of which $(shown "$DATASET") is one; name two or more"
  [[ " ${names[*]} " != *" $MIX "* && "$MIX" != raw ]] || die "MIX=$MIX is taken; give the mixture another name"
  [[ "$FETCH" != only ]] || die "FETCH=only makes nothing to mix; leave MIX out"
  if [[ -n "${WEIGHTS+given}" ]]; then
    ((${#weights[@]} == ${#names[@]})) || die "WEIGHTS=$(shown "$WEIGHTS") are ${#weights[@]} numbers, but DATASET names ${#names[@]} data sets"
    for weight in "${weights[@]}"; do check_integer WEIGHTS "$weight" 1 1000; done
  fi
}

# ACCEPT_LICENSE: names, as in DATASET; a plain "yes" does not say to what.
check_accepted() {
  local name
  read -r -d '' -a accepted <<<"${ACCEPT_LICENSE-}" || true
  for name in ${accepted[@]+"${accepted[@]}"}; do check_dataset ACCEPT_LICENSE "$name"; done
}

prep() { "$ECG_PYTHON" -m data_prep "$@"; }

# fetch_recordings NAME: have recordings in $raw/NAME. A folder that no fetch of ours has begun is taken as it is.
fetch_recordings() {
  local name=$1 arguments=() accept
  if [[ "$FETCH" == never ]]; then
    [[ -d "$raw/$name" ]] || die "FETCH=never, and there is no folder $raw/$name; give SRC=/path/to/folder, or fetch"
    return
  fi
  if [[ -d "$raw/$name" ]] && ! compgen -G "$raw/$name/.fetch*" >/dev/null && [[ -n "$(ls -A "$raw/$name")" ]]; then return; fi
  if [[ -n "${LIMIT+given}" ]]; then arguments+=(--limit "$LIMIT"); fi
  for accept in ${accepted[@]+"${accepted[@]}"}; do arguments+=(--accept "$accept"); done
  prep fetch --dataset "$name" --raw "$raw" --connections "$CONNECTIONS" ${arguments[@]+"${arguments[@]}"}
}
