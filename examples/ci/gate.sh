#!/bin/sh
# Deploys MODEL and holds it against the baseline, both measured in turns on this machine.
# Exit code: 0 kept, or no baseline yet; 1 a gate is broken, or nothing ships; 2 bad input, or a gate that could not be
# judged; 3 a stage failed; 4 a gate is undecided: too few sessions or test items, and no gate is broken. If the deploy fails it is the deploy's, else the gates'. README.md explains the variables.
set -eu

export COLUMNS="${COLUMNS:-120}"         # of the tables
MODEL=${MODEL:-}                         # what `edgecompress deploy` takes
DATA=${DATA:-}
TARGET=${TARGET:-x86}
METRIC=${METRIC:-top1}
MEASURE=${MEASURE:---profile standard}   # flags of deploy and compare; a latency has an interval from six sessions on
BASELINE=${BASELINE:-baseline}           # the deployed folder that is the reference
STORE=${STORE:-.edgecompress}            # of results; named, because a cache restored it
OUT=${OUT:-dist}                         # OUT/model is what ships; the comparison is beside it
UPDATE=${UPDATE:-}                       # not empty: a result that keeps all gates becomes the baseline
STRICT=${STRICT:-}                       # not empty: what is undecided fails, in the deploy too
ACCEPT=${ACCEPT:-}                       # not empty: the result becomes the baseline whatever the gates say
COMPARE=${COMPARE:-}                     # flags of compare alone, such as --across-models
GATES=${GATES:-latency_ms > 1.10x
size_bytes > 1.02x
accuracy_drop > 0.01} # one in a line

refuse() {
  echo "gate.sh: $1" >&2
  exit 2
}

real() { # a path without links; its folder must exist
  if [ -d "$1" ]; then (cd -P -- "$1" && pwd -P); else echo "$(cd -P -- "$(dirname -- "$1")" && pwd -P)/${1##*/}"; fi
}

run() { # a command with its output in file $1, too, line by line; sets code
  file=$1
  shift
  { code=0; "$@" || code=$?; echo "$code" >"$OUT/.code"; } | tee "$file"
  code=$(cat "$OUT/.code")
  rm "$OUT/.code"
}

keep() { # the result becomes the baseline, by renaming: the old one stays until the new one is in its place
  rm -rf "$base.new"
  cp -R "$OUT/model" "$base.new"
  rm -rf "$base.old"
  [ ! -e "$base" ] || mv "$base" "$base.old"
  mv "$base.new" "$base"
  rm -rf "$base.old"
  echo "baseline: $BASELINE is now this result"
}

summary() { # a file, on GitHub's page of the run
  if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
    { echo '```'; cat "$1"; echo '```'; } >>"$GITHUB_STEP_SUMMARY"
  fi
}

# --------------------------------------------------------------------------- the input

for name in MODEL DATA TARGET METRIC BASELINE STORE OUT; do
  eval "value=\$$name"
  case $value in -*) refuse "$name=$value begins with '-', as an option does; of a file or folder write ./$value" ;; esac
done
if [ -z "$MODEL" ] || [ -z "$DATA" ]; then refuse "set MODEL and DATA"; fi
while [ "${BASELINE%/}" != "$BASELINE" ] && [ -n "${BASELINE%/}" ]; do BASELINE=${BASELINE%/}; done
if [ -L "$BASELINE" ] && [ ! -e "$BASELINE" ]; then refuse "BASELINE=$BASELINE is a link to nothing"; fi

set -- # what `compare` gets for GATES
while read -r gate; do
  [ -z "$gate" ] || set -- "$@" "--fail-if=$gate"
done <<EOF
$GATES
EOF
[ $# -gt 0 ] || refuse "GATES is empty: write one gate in a line, or leave it unset"

mkdir -p "$OUT" "$(dirname -- "$BASELINE")"
out=$(real "$OUT")
base=$(real "$BASELINE")
case $base/ in "$out"/*) refuse "BASELINE=$BASELINE is in OUT=$OUT: a result cannot be compared with itself" ;; esac
case $out/ in "$base"/*) refuse "OUT=$OUT is in BASELINE=$BASELINE: name two folders, neither in the other" ;; esac
if [ -e "$OUT/model" ] && [ ! -f "$OUT/model/report.json" ]; then
  refuse "OUT=$OUT: $OUT/model is not of a deploy, and would be removed; name another folder"
fi
if [ ! -e "$base" ] && [ -d "$base.old" ]; then mv "$base.old" "$base"; fi # an earlier run was stopped while it renamed

check() { # whether `compare` takes MEASURE, the gates and result $1: before minutes go by, not after
  result=$1
  shift
  # shellcheck disable=SC2086 # MEASURE and COMPARE are several words
  edgecompress compare "$result" "$result" --store "$STORE" $MEASURE $COMPARE "$@" 2>&1 >/dev/null || [ $? -ne 2 ]
}
subject=$base
[ -e "$base" ] || subject=/dev/null # then only MEASURE and the words of GATES
if ! said=$(check "$subject" "$@") && [ -n "$said" ]; then
  case $said in
    *"error: --fail-if "*) refuse "GATES: ${said##*error: }" ;;
    usage:* | *"compare: error: "*) refuse "MEASURE=$MEASURE${COMPARE:+ COMPARE=$COMPARE}: compare does not take it: ${said##*error: }" ;;
  esac
  if [ -e "$base" ] && [ -z "$ACCEPT" ]; then refuse "BASELINE=$BASELINE, GATES: ${said##*error: }"; fi
fi

# --------------------------------------------------------------------------- the work

rm -rf "$OUT/model" "$OUT/report.html" "$OUT/comparison.txt" "$OUT/comparison.html" # of an earlier run
# shellcheck disable=SC2086
run "$OUT/deploy.txt" edgecompress deploy "$MODEL" --store "$STORE" --data "$DATA" --metric "$METRIC" --target "$TARGET" \
  --out "$OUT/model" $MEASURE ${STRICT:+--strict}
if [ "$code" -ne 0 ]; then
  summary "$OUT/deploy.txt"
  report=$(sed -n 's/^ *report: //p' "$OUT/deploy.txt") # nothing shipped: the report is in the store
  [ ! -f "$report" ] || cp "$report" "$OUT/report.html"
  exit "$code"
fi

if [ ! -e "$base" ]; then
  summary "$OUT/deploy.txt"
  if ! said=$(check "$OUT/model" "$@") && [ -n "$said" ]; then refuse "GATES: ${said##*error: }"; fi
  echo "no baseline yet: nothing was compared"
  keep
  exit 0
fi

# shellcheck disable=SC2086
run "$OUT/comparison.txt" edgecompress compare "$BASELINE" "$OUT/model" --store "$STORE" --remeasure $MEASURE $COMPARE ${STRICT:+--strict} \
  "$@" \
  --html "$OUT/comparison.html"
reports=$OUT/model/report.html
[ ! -f "$OUT/comparison.html" ] || reports="$reports, $OUT/comparison.html"
echo "report: $reports" | tee -a "$OUT/comparison.txt"
summary "$OUT/comparison.txt"
if [ -n "$ACCEPT" ]; then
  keep
  exit 0
fi
if [ "$code" -eq 0 ] && [ -n "$UPDATE" ]; then
  keep
fi
if [ "$code" -eq 4 ]; then
  echo "${GITHUB_ACTIONS:+::warning::}gate.sh: undecided: the lines with '?' say what would decide; the baseline stays"
fi
exit "$code"
