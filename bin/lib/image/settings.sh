# shellcheck shell=bash
# What a build inside an image takes from this machine: pip's settings, proxies, certificates, the base. Needs common.sh,
# check.sh, environment.sh, and for the base an array `apptainer`, a folder `work` and a step log.

# Settings of pip that say where packages come from; those that say where they go have no meaning in there.
PIP_SETTINGS=" index-url extra-index-url find-links constraint cert client-cert proxy trusted-host timeout default-timeout retries no-index prefer-binary pre "

# pip_settings: NAME=value lines, those of the environment last, which win. Values with several words are on one line.
pip_settings() {
  local python line name value
  python=$(find_python 2>/dev/null) || return 0
  "$python" -m pip config list 2>/dev/null | sort -t: -k1,1r | while IFS= read -r line; do
    name=${line%%=*} value=${line#*=}
    name=${name##*.}
    [[ "$PIP_SETTINGS" == *" $name "* ]] || continue
    value=${value#\'} value=${value%\'}
    printf '%s=%s\n' "$name" "${value//'\n'/ }"
  done
}

# write_settings FOLDER: settings.sh for the build, copies of the files that the settings name, and in the array
# `mounts` the folders that they name.
write_settings() {
  local name value word words place number=0
  mounts=()
  : >"$1/settings.sh"
  while IFS='=' read -r name value; do
    words=()
    for word in $value; do
      place=${word#file://}
      if [[ "$place" == /* && -d "$place" ]]; then
        while [[ "$place" == */simple || "$place" == */ ]]; do place=${place%/*}; done # an index may point to files beside it
        mounts+=("$place")
      elif [[ "$place" == /* && -f "$place" ]]; then
        number=$((number + 1))
        cp "$place" "$1/pip-$number"
        word=/mnt/ecg-build/pip-$number
      fi
      words+=("$word")
    done
    name=${name^^}
    printf 'export PIP_%s=%q\n' "${name//-/_}" "${words[*]}" >>"$1/settings.sh"
  done < <(pip_settings)
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY SSL_CERT_FILE; do
    if [[ -z "${!name:-}" ]]; then continue; fi
    value=${!name}
    if [[ "$name" == SSL_CERT_FILE ]]; then
      cp "$value" "$1/certificates"
      value=/mnt/ecg-build/certificates
    fi
    printf 'export %s=%q\n' "$name" "$value" >>"$1/settings.sh"
  done
  mapfile -t mounts < <(printf '%s\n' "${mounts[@]}" | sort -u)
}

# debian_mirror: the machine's own, from apt; empty where it has none.
debian_mirror() {
  # shellcheck disable=SC2016 # apt expands it
  { apt-get indextargets --format '$(REPO_URI) $(LABEL) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null || true; } |
    awk '$2 == "Debian" && $3 == "main" { print $1; exit }'
}

# check_base: a mirror is for debootstrap and means it.
check_base() {
  if [[ -z "${MIRROR+given}" ]]; then return; fi
  [[ "$MIRROR" =~ ^https?://[A-Za-z0-9._:/@%-]+$ ]] || die "MIRROR=$(shown "$MIRROR") is no http:// or https:// address of a Debian mirror"
  : "${BASE=debootstrap}"
  [[ "$BASE" == debootstrap ]] || die "MIRROR=$(shown "$MIRROR") is for debootstrap, but BASE=$(shown "$BASE"); leave one of them out"
}

# shellcheck disable=SC2034,SC2154 # apptainer, work and base are the caller's
# set_base: the arguments of the definition's header, in the array `base`.
set_base() {
  local wanted=${BASE-}
  if [[ -z "$wanted" ]]; then
    wanted=docker://debian:12
    if ! timeout 60 "${apptainer[@]}" pull --force "$work/probe.sif" "$wanted" >>"$STEP_LOG" 2>&1; then
      log "  no container registry answers; the base is made by debootstrap"
      wanted=debootstrap
    fi
  fi
  case "$wanted" in
    debootstrap)
      : "${MIRROR=$(debian_mirror)}"
      [[ -n "$MIRROR" ]] || die "apt's settings name no Debian mirror; give MIRROR=address, or BASE="
      command -v debootstrap >/dev/null || die "debootstrap is not installed; as root run: apt-get install debootstrap, or give BASE="
      base=(--build-arg bootstrap=debootstrap --build-arg "mirror=$MIRROR" --build-arg from=none)
      ;;
    docker://*) base=(--build-arg bootstrap=docker --build-arg "from=${wanted#docker://}") ;;
    *)
      [[ -r "$wanted" ]] || die "BASE=$(shown "$wanted") is no docker:// address, no image file and not debootstrap"
      base=(--build-arg bootstrap=localimage --build-arg "from=$(realpath "$wanted")")
      ;;
  esac
}
