# shellcheck shell=bash
# The image: where it is, what it was made from, and how Apptainer is called here. Needs common.sh, check.sh, environment.sh.

# What goes into /opt/ecg-train, as in Apptainer.def.
BUNDLE_FILES=(env.sh Makefile Apptainer.def LICENSE bin jobs sites requirements python data_prep analysis)

# set_device: DEVICE, cpu or cuda; cuda by itself only where a driver is.
set_device() {
  if [[ -z "${DEVICE+given}" ]]; then
    DEVICE=cpu
    if [[ "${ECG_DEVICE:-auto}" == cuda || ("${ECG_DEVICE:-auto}" == auto && -e /proc/driver/nvidia/version) ]]; then DEVICE=cuda; fi
  fi
  check_choice DEVICE "$DEVICE" cpu cuda
}

# image_path: the image that jobs of this checkout use.
image_path() {
  set_device
  printf '%s\n' "${ECG_IMAGE:-$ECG_ROOT/images/ecg-train-$DEVICE.sif}"
}

# tree_digest PATH...: names and contents below the checkout; what Python or a user left there does not count.
tree_digest() {
  (cd "$ECG_ROOT" && find "$@" -type f ! -path '*/__pycache__/*' ! -name '*.py[co]' -print0 | sort -z | xargs -0 sha256sum | digest)
}

package_key() {
  local name present=()
  for name in "${BUNDLE_FILES[@]}"; do if [[ -e "$ECG_ROOT/$name" ]]; then present+=("$name"); fi; done
  tree_digest "${present[@]}"
}

# environment_key: all that decides what is in the image beside the bundle.
environment_key() {
  {
    tree_digest Apptainer.def bin/build-horovod bin/lib/image/environment.sh requirements/{build,base,train,nodeps,horovod}.txt
    if [[ "$DEVICE" == cuda ]]; then tree_digest requirements/cuda.txt; fi
    if [[ "${TENSORFLOW:-0}" == 1 ]]; then tree_digest requirements/tensorflow.txt; fi
    printf '%s\n' "$DEVICE" "${TENSORFLOW:-0}" "$@"
    uname -m
  } | digest
}

# set_apptainer exec|build: the array `apptainer`, the way to call it that works here.
set_apptainer() {
  local program
  program=$(command -v apptainer || command -v singularity) ||
    die "Apptainer is not installed; load the site's module, or as root on Debian run bin/install-apptainer, or bring an image that was built elsewhere and set ECG_IMAGE"
  apptainer=("$program")
  if ((EUID != 0)); then return; fi
  # Apptainer asks for every capability there is. Where a container or a VM withholds one from root, root gets them all
  # inside a user namespace of its own; a build needs one with many users.
  if (($(sed -n 's/^CapEff:\t/0x/p' /proc/self/status) == $(last_capabilities))); then return; fi
  if [[ "$1" == exec ]]; then
    apptainer=(unshare --user --map-root-user "$program")
  else
    ensure_subids
    apptainer=(unshare --user --mount --map-root-user --map-auto "$program")
  fi
  "${apptainer[@]:0:${#apptainer[@]}-1}" true 2>/dev/null ||
    die "user namespaces are switched off here (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone), and root lacks capabilities; build the image elsewhere and set ECG_IMAGE"
}

# All capabilities that this kernel knows, as a number.
last_capabilities() { printf '%u\n' $(((1 << ($(</proc/sys/kernel/cap_last_cap) + 1)) - 1)); }

# Root's own row of subordinate ids. unshare reads the first row, whoever's it is, so root's comes first.
ensure_subids() {
  local file
  command -v newuidmap >/dev/null || die "newuidmap is not installed; as root run: apt-get install uidmap"
  for file in /etc/subuid /etc/subgid; do
    if [[ "$(head -n 1 "$file" 2>/dev/null)" == root:* ]]; then continue; fi
    { printf 'root:%s:65536\n' 1879048192 && sed '/^root:/d' "$file" 2>/dev/null; } >"$file.ecg"
    cat "$file.ecg" >"$file" && rm "$file.ecg"
  done
}

# image_label FILE NAME: empty where it has none.
image_label() {
  local apptainer
  set_apptainer exec
  "${apptainer[@]}" inspect --labels "$1" 2>/dev/null | sed -n "s/^$2: //p"
}

# image_digest FILE: its SHA-256, from the file beside it when that is newer.
image_digest() {
  if [[ "$1.sha256" -nt "$1" ]]; then
    cut -d' ' -f1 "$1.sha256"
  else
    sha256sum "$1" | cut -d' ' -f1
  fi
}

# image_is_stale FILE: whether the bundle in it is not that of this checkout.
image_is_stale() { [[ "$(image_label "$1" ecg.package_key)" != "$(package_key)" ]]; }

# require_image FILE: there, and made from this checkout.
require_image() {
  [[ -r "$1" ]] || die "there is no image at $(shown "$1"); build it: make image${DEVICE:+ DEVICE=$DEVICE}, or set ECG_IMAGE"
  if image_is_stale "$1"; then
    die "the image $(shown "$1") is older than this checkout (its package is another one); build it anew: make image${DEVICE:+ DEVICE=$DEVICE}"
  fi
}

# free_gb FOLDER
free_gb() { df -Pk "$1" | awk 'NR == 2 { printf "%d\n", $4 / 1048576 }'; }

# require_space FOLDER GB: before the work, not after half of it.
require_space() {
  (($(free_gb "$1") >= $2)) ||
    die "$1 has $(free_gb "$1") GB free, and the build needs $2; make room, or set ECG_CACHE (now $ECG_CACHE) to a larger disk"
}
