#!/usr/bin/env bash
# From a cold start to a verdict: starts vLLM with the capture plugin, records what it feeds the draft head over the
# tokens of the training shards, and compares. eagle-parity is installed beside vLLM: pip install '/path/to/eagle-parity[live]'
#
#   TARGET=./target DRAFT=./draft SHARDS=./shards examples/capture_vllm.sh
#
# ENGINE=vllm@0.25.0 names the release where it isn't the newest: launch flags differ.
# Exit status: that of diff-captures. With REFERENCE=DIR (eagle-parity capture transformers --target $TARGET --replay
# $SHARDS --output DIR) every slot is named; without one it is compared with the trained slots alone.
set -euo pipefail
: "${TARGET:?the target: a folder or a Hub id}" "${DRAFT:?the draft head}" "${SHARDS:?training shards}"
PYTHON=${PYTHON:-python} TP=${TP:-2} PORT=${PORT:-8000} OUTPUT=${OUTPUT:-live}
work=$(mktemp -d)

# 1. The server, with the plugin switched on by its environment.
environment=$(eagle-parity capture vllm --launch-flags ${ENGINE:+--engine "$ENGINE"} --spool "$work/spool")
eval "exec env $environment setsid $PYTHON -m vllm.entrypoints.openai.api_server --model '$TARGET' --tensor-parallel-size $TP \
  --host 127.0.0.1 --port $PORT \
  --speculative-config '{\"method\": \"eagle3\", \"model\": \"$DRAFT\", \"num_speculative_tokens\": 3}' \
  ${SERVER_FLAGS:-}" > "$work/server.log" 2>&1 &
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
eagle-parity capture vllm --server "http://127.0.0.1:$PORT" --spool "$work/spool" --replay "$SHARDS" \
  --sequences "${SEQUENCES:-16}" --conditions batch --output "$OUTPUT" --quiet

# 3. The verdict.
set +e
eagle-parity diff-captures "$SHARDS" "$OUTPUT" --target "$TARGET" ${REFERENCE:+--reference "$REFERENCE"}
exit $?
