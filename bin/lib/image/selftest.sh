# shellcheck shell=bash
# In the finished image: is everything there that a run needs? Argument: cpu or cuda. Ends with 1 and says what is missing.
set -euo pipefail

PYTHON=/opt/ecg-env/bin/python
BUNDLE=/opt/ecg-train
export PYTHONPATH=$BUNDLE/python:$BUNDLE PYTHONNOUSERSITE=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Two processes of one machine need no network.
export OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_pml=ob1

fail() {
  printf 'error: the image lacks something: %s\n' "$1" >&2
  exit 1
}

"$PYTHON" "$BUNDLE/bin/lib/verify_environment.py" || fail "a framework does not import, or Horovod has not all operations"
if [[ "$1" == cuda ]]; then
  "$PYTHON" -c 'import horovod.torch as h, torch; assert h.nccl_built() and torch.version.cuda and torch.cuda.nccl.version()' ||
    fail "NCCL (torch's or Horovod's)"
fi
for program in gcc g++ cc nvcc; do
  if command -v "$program" >/dev/null; then fail "nothing, but a compiler stayed: $program"; fi
done
sum=$(mpirun --oversubscribe --bind-to none -np 2 "$PYTHON" -c 'from mpi4py import MPI; s = MPI.COMM_WORLD.allreduce(1); print(s) if MPI.COMM_WORLD.rank == 0 else None')
[[ "$sum" == 2 ]] || fail "MPI: two ranks do not see each other ('$sum')"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trains() { # PYTHON ENTRY
  "$1" -m "ecg_train.$2" --data-dir "$scratch" --dataset synthetic --model tiny --steps 2 --batch 2 --timing-warmup 0 \
    --calibration-steps 0 --device cpu --run-dir "$scratch/$2" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2 && fail "$2 does not train"; }
}
"$PYTHON" -m data_prep synthetic --hours 0.02 --jobs 1 --out "$scratch" >"$scratch/log" 2>&1 ||
  { cat "$scratch/log" >&2 && fail "recordings are not converted"; }
trains "$PYTHON" train_serial
if [[ -x /opt/ecg-env-tensorflow/bin/python ]]; then CUDA_VISIBLE_DEVICES='' trains /opt/ecg-env-tensorflow/bin/python train_tensorflow; fi
echo "image: every framework imports, MPI ranks meet, a step is trained"
