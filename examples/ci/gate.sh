#!/bin/sh
# Deploys MODEL and holds it against the baseline, both measured in turns on this machine.
# Exit code: 0 kept, or no baseline yet; 1 a gate is broken, or nothing ships; 2 bad input, or a gate that could not be
# judged; 3 a stage failed. If the deploy fails it is the deploy's, else the gates'. README.md explains the variables.
set -eu

export COLUMNS="${COLUMNS:-120}"         # of the tables
MODEL=${MODEL:-}                         # what `edgecompress deploy` takes
DATA=${DATA:-}
TARGET=${TARGET:-x86}
METRIC=${METRIC:-top1}
MEASURE=${MEASURE:---profile standard}   # flags of deploy and compare; a latency has an interval from six sessions on
BASELINE=${BASELINE:-baseline}           # the deployed folder that is the reference
OUT=${OUT:-dist}                         # OUT/model is what ships; the comparison is beside it
UPDATE=${UPDATE:-}                       # not empty: a result that keeps all gates becomes the baseline
ACCEPT=${ACCEPT:-}                       # not empty: the result becomes the baseline whatever the gates say
GATES=${GATES:-latency_ms > 1.10x
size_bytes > 1.02x
accuracy_drop > 0.01} # one in a line

if [ -z "$MODEL" ] || [ -z "$DATA" ]; then
  echo "gate.sh: set MODEL and DATA" >&2
  exit 2
fi
mkdir -p "$OUT"
rm -rf "$OUT/model" "$OUT/report.html" "$OUT/comparison.txt" "$OUT/comparison.html" # of an earlier run

keep() { # the result becomes the baseline
  rm -rf "$BASELINE.new"
  cp -R "$OUT/model" "$BASELINE.new"
  rm -rf "$BASELINE"
  mv "$BASELINE.new" "$BASELINE"
  echo "baseline: $BASELINE is now this result"
}

summary() { # a file, on the console and on GitHub's page of the run
  cat "$1"
  if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
    { echo '```'; cat "$1"; echo '```'; } >>"$GITHUB_STEP_SUMMARY"
  fi
}

code=0
# shellcheck disable=SC2086 # MEASURE is several words
edgecompress deploy "$MODEL" --data "$DATA" --metric "$METRIC" --target "$TARGET" --out "$OUT/model" $MEASURE \
  --quiet >"$OUT/deploy.txt" || code=$?
if [ "$code" -ne 0 ]; then
  summary "$OUT/deploy.txt"
  report=$(sed -n 's/^report: //p' "$OUT/deploy.txt") # nothing shipped: the report is in the store
  [ ! -f "$report" ] || cp "$report" "$OUT/report.html"
  exit "$code"
fi

if [ ! -e "$BASELINE" ]; then
  summary "$OUT/deploy.txt"
  echo "no baseline yet: nothing was compared"
  keep
  exit 0
fi

set --
while IFS= read -r gate; do
  [ -z "$gate" ] || set -- "$@" --fail-if "$gate"
done <<EOF
$GATES
EOF
# shellcheck disable=SC2086
edgecompress compare "$BASELINE" "$OUT/model" --remeasure $MEASURE "$@" --html "$OUT/comparison.html" \
  --quiet >"$OUT/comparison.txt" || code=$?
echo "report: $OUT/model/report.html, $OUT/comparison.html" >>"$OUT/comparison.txt"
summary "$OUT/comparison.txt"
if [ -n "$ACCEPT" ]; then
  keep
  exit 0
fi
if [ "$code" -eq 0 ] && [ -n "$UPDATE" ]; then
  keep
fi
exit "$code"
