# shellcheck shell=bash
# Perlmutter (NERSC), GPU nodes: one 64-core EPYC and 4 A100 a node, Slingshot.
# Sources: https://docs.nersc.gov/jobs/policy/ (queues) and https://docs.nersc.gov/systems/perlmutter/running-jobs/
# NERSC's own container programs are Shifter and podman-hpc; the page of the day says whether apptainer is offered.
# Without it, use the environment of the checkout: ECG_CONTAINER=none.

: "${ECG_CONSTRAINT:=gpu}"
: "${ECG_QOS:=regular}"
: "${ECG_CPUS_PER_TASK:=32}" # 128 hardware threads for 4 GPUs; Slurm counts threads here
