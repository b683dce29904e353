# shellcheck shell=bash
# Inside the build of the image, as root there: system packages and the Python environment in /opt/ecg-env. Nothing is
# done when a base that was kept has them already. ECG_BUILD_DEVICE: cpu or cuda.
set -euo pipefail

ENV=/opt/ecg-env
# /tmp and the home folder may be the host's own during a build: nothing but our own folder may be touched there.
SCRATCH=$(mktemp -d)
trap 'rm -rf "$SCRATCH"' EXIT
BUNDLE=/opt/ecg-train
RUN_PACKAGES=(ca-certificates python3 openmpi-bin libpmix2 libibverbs1 ibverbs-providers librdmacm1 libucx0 libfabric1 util-linux tar)
BUILD_PACKAGES=(python3-venv python3-dev g++ make libopenmpi-dev)

# The host's settings of pip and proxies, for the build alone.
if [[ -r /mnt/ecg-build/settings.sh ]]; then
  # shellcheck source=/dev/null
  source /mnt/ecg-build/settings.sh
fi
export DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PYTHONNOUSERSITE=1

pip_install() { "$ENV/bin/python" -m pip install --no-build-isolation "$@"; }

# train.txt pins the CPU build of torch; the CUDA build is another release.
train_requirements() {
  if [[ "$ECG_BUILD_DEVICE" == cuda ]]; then
    grep -v '^torch==' "$BUNDLE/requirements/train.txt"
    cat "$BUNDLE/requirements/cuda.txt"
  else
    cat "$BUNDLE/requirements/train.txt"
  fi
}

# All CUDA 13 wheels unpack into one tree, which is a toolkit once a few names are added.
cuda_toolkit() {
  local site tree
  site=$("$ENV/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  tree=$site/nvidia/cu13
  ln -sfn lib "$tree/lib64"
  ln -sfn libcudart.so.13 "$tree/lib/libcudart.so"
  ln -sfn libnccl.so.2 "$site/nvidia/nccl/lib/libnccl.so"
  export CUDA_HOME=$tree HOROVOD_CUDA_HOME=$tree HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_NCCL_LINK=SHARED
  export HOROVOD_NCCL_INCLUDE=$site/nvidia/nccl/include HOROVOD_NCCL_LIB=$site/nvidia/nccl/lib HOROVOD_BUILD_CUDA_CC_LIST=80,90
  export PATH=$tree/bin:$PATH
}

horovod() {
  local wheel
  # Wheels are kept outside of the image when the build was given a folder for them.
  export ECG_CACHE=$SCRATCH/cache
  mkdir -p "$ECG_CACHE"
  if [[ -d /mnt/ecg-build/wheels ]]; then ln -sfn /mnt/ecg-build/wheels "$ECG_CACHE/wheels"; fi
  # The headers of the CUDA build's torch want a newer C++ than those of the CPU build's.
  if [[ "$ECG_BUILD_DEVICE" == cuda ]]; then sed -i 's/\\117)/\\120)/; s/STANDARD 17)/STANDARD 20)/' "$BUNDLE/bin/build-horovod"; fi
  wheel=$("$BUNDLE/bin/build-horovod" "$ENV")
  pip_install --no-deps "$wheel"
}

# TensorFlow apart: its CUDA libraries are those of another release than torch's, in files of the same names.
tensorflow() {
  local tf=/opt/ecg-env-tensorflow
  cp "$BUNDLE/requirements/tensorflow.txt" "$SCRATCH/tensorflow.txt"
  if [[ "$ECG_BUILD_DEVICE" == cuda ]]; then sed -i 's/^tensorflow-cpu==/tensorflow[and-cuda]==/' "$SCRATCH/tensorflow.txt"; fi
  python3 -m venv "$tf"
  "$tf/bin/python" -m pip install -r "$SCRATCH/tensorflow.txt"
}

main() {
  local file
  if [[ -e "$ENV/.ready" ]]; then return; fi
  apt-get update
  apt-get install -y --no-install-recommends "${RUN_PACKAGES[@]}"
  apt-mark manual "${RUN_PACKAGES[@]}" >/dev/null
  apt-get install -y --no-install-recommends "${BUILD_PACKAGES[@]}"
  python3 -m venv "$ENV"
  pip_install -r "$BUNDLE/requirements/build.txt"
  pip_install -r "$BUNDLE/requirements/base.txt"
  train_requirements >"$SCRATCH/train.txt"
  pip_install -r "$SCRATCH/train.txt"
  pip_install --no-deps -r "$BUNDLE/requirements/nodeps.txt"
  if [[ "$ECG_BUILD_DEVICE" == cuda ]]; then cuda_toolkit; fi
  horovod
  if [[ "$ECG_BUILD_TENSORFLOW" == 1 ]]; then tensorflow; fi
  # Run-time libraries stay, what built against them goes.
  for file in /usr/lib/x86_64-linux-gnu/libmpi_cxx.so.40 /usr/lib/x86_64-linux-gnu/libmpi.so.40; do
    if [[ -e "$file" ]]; then apt-mark manual "$(dpkg -S "$(readlink -f "$file")" | cut -d: -f1)" >/dev/null; fi
  done
  "$ENV/bin/python" -m pip uninstall -y cmake Cython ninja wheel >/dev/null
  apt-get purge -y --auto-remove "${BUILD_PACKAGES[@]}"
  apt-get clean
  rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* /usr/share/doc/* /usr/share/man/* /usr/share/locale/*
  find "$ENV" -depth \( -name tests -o -name test \) -type d -path '*/site-packages/*' ! -path '*/torch/*' ! -path '*/numpy/*' -exec rm -rf {} +
  find "$ENV" -name '*.a' -delete
  "$ENV/bin/python" - >"$ENV/.ready" <<'PYTHON'
import importlib.metadata as metadata
for name in ("torch", "deepspeed", "horovod", "mpi4py", "wfdb", "numpy"):
    print(name, metadata.version(name))
PYTHON
}

main
