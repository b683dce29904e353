# shellcheck shell=bash
# Copy to env.local.sh and keep what you need. env.sh sources it before it fills in its defaults.
# `: "${X:=value}"` lets a value given on the command line win over the one written here.

# Folder of raw recordings, one folder per data set below it (mitdb, ptbxl, ...).
#: "${ECG_RAW:=/data/physionet}"
#export ECG_RAW

# Where token shards, results and the Python environment go. All of them may be large.
#: "${ECG_DATA:=/scratch/$USER/ecg/data}"
#: "${ECG_RESULTS:=/scratch/$USER/ecg/results}"
#: "${ECG_CACHE:=/scratch/$USER/ecg/cache}"

# A Python of your own with all the packages in it, instead of the one that `make setup` builds.
#: "${ECG_PYTHON:=/opt/ecg/bin/python}"
#export ECG_PYTHON

# Facts of a cluster: the name of a file in sites/, and what is yours alone there.
#: "${ECG_SITE:=leonardo}"
#: "${ECG_ACCOUNT:=my-project}"
