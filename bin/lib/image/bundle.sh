# shellcheck shell=bash
# Inside the build of the image: finish the bundle in /opt/ecg-train. Argument: its git revision.
set -euo pipefail

BUNDLE=/opt/ecg-train

find "$BUNDLE" -name __pycache__ -type d -exec rm -rf {} +
rm -f "$BUNDLE/env.local.sh"
chmod -R u=rwX,go=rX "$BUNDLE"
# Compiled ahead: an image is read-only, so that every start would compile anew. By content, not by time.
/opt/ecg-env/bin/python -m compileall -q --invalidation-mode unchecked-hash "$BUNDLE/python" "$BUNDLE/data_prep" "$BUNDLE/analysis"
# Where pip and proxies of the host were seen during the build.
if [[ -n "${ECG_BUILD_MOUNTS:-}" ]]; then
  for folder in $ECG_BUILD_MOUNTS; do rmdir -p --ignore-fail-on-non-empty "$folder" 2>/dev/null || true; done
fi
while read -r name version; do
  printf 'ecg.%s %s\n' "$name" "$version" >>"${APPTAINER_LABELS:-/dev/null}"
done </opt/ecg-env/.ready
printf 'ecg.code_digest %s\n' "$(PYTHONPATH=$BUNDLE/python /opt/ecg-env/bin/python -c 'from ecg_train.facts import code_digest; print(code_digest())')" \
  >>"${APPTAINER_LABELS:-/dev/null}"
printf '%s\n' "$1" >"$BUNDLE/.revision"
