# shellcheck shell=bash
# LUMI (CSC). Its GPUs are AMD MI250X, for which this bundle has no image (CPU and CUDA only), so these are the facts of
# the CPU nodes, LUMI-C: two 64-core EPYC a node. A worker is a process on a share of the cores.
# Sources: https://docs.lumi-supercomputer.eu/runjobs/scheduled-jobs/partitions/ and .../hardware/lumig/ (the GPUs)

: "${ECG_PARTITION:=standard}"
: "${ECG_GPU_REQUEST=}"
: "${ECG_DEVICE:=cpu}"
: "${ECG_CONTAINER:=singularity}"
: "${ECG_CPUS_PER_TASK:=16}"
