#!/usr/bin/env bash
# From a cold start to a verdict: starts SGLang with the capture hook, records what it feeds the draft head over the
# tokens of the training shards, and compares. eagle-parity is installed beside SGLang: pip install '/path/to/eagle-parity[live]'
#
#   TARGET=./target DRAFT=./draft SHARDS=./shards examples/capture_sglang.sh
#
# ENGINE=sglang@0.5.12 names the release where it isn't the newest: launch flags differ.
# Exit status: that of diff-captures. With REFERENCE=DIR (eagle-parity capture transformers --target $TARGET --replay
# $SHARDS --output DIR) every slot is named; without one it is compared with the trained slots alone.
set -euo pipefail
: "${TARGET:?the target: a folder or a Hub id}" "${DRAFT:?the draft head}" "${SHARDS:?training shards}"
PYTHON=${PYTHON:-python} TP=${TP:-2} PORT=${PORT:-30000} OUTPUT=${OUTPUT:-live}
work=$(mktemp -d)

# 1. The server, with the hook. The launch flags are one line for a shell.
flags=$(eagle-parity capture sglang --launch-flags ${ENGINE:+--engine "$ENGINE"} --spool "$work/spool")
eval "exec setsid $PYTHON -m sglang.launch_server --model-path '$TARGET' --tp $TP --host 127.0.0.1 --port $PORT \
  --speculative-algorithm EAGLE3 --speculative-draft-model-path '$DRAFT' \
  --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 \
  $flags ${SERVER_FLAGS:-}" > "$work/server.log" 2>&1 &
server=$!
# exec and setsid make this process the leader of a group of its own; the example ends when all of the group have.
stop() {
  kill -- -$server 2>/dev/null || true
  for _ in {1..40}; do kill -0 -- -$server 2>/dev/null || break; sleep 0.5; done
  rm -rf "$work/spool"
}
trap stop EXIT
echo "waiting for the server, log in $work/server.log" >&2
until curl --silent --fail --max-time 5 --output "$work/health" "http://127.0.0.1:$PORT/health"; do
  kill -0 $server || { tail -n 20 "$work/server.log" >&2; exit 2; }
  sleep 2
done

# 2. The capture: the shards' own tokens, alone and in a batch. The server goes on serving others meanwhile.
eagle-parity capture sglang --server "http://127.0.0.1:$PORT" --replay "$SHARDS" --sequences "${SEQUENCES:-16}" \
  --conditions batch --output "$OUTPUT" --quiet

# 3. The verdict.
set +e
eagle-parity diff-captures "$SHARDS" "$OUTPUT" --target "$TARGET" ${REFERENCE:+--reference "$REFERENCE"}
exit $?
