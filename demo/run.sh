#!/usr/bin/env bash
# The incident: a page carries a planted instruction, an agent obeys it, and what it tries to leak
# is a placeholder that goes nowhere. Hermetic: the page, the model and the thief are demo/stub.py
# on loopback. Needs root, because the containment is real. Ends with 0 only when every line that
# it promises was found in the recording and the recording verifies.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD out=$PWD/build/demo hark=$PWD/.venv/bin/hark python=$PWD/.venv/bin/python

if [[ $EUID -ne 0 ]]; then
	echo "demo: error: the demo contains a real process, so it needs root: sudo demo/run.sh" >&2
	exit 1
fi
make -s setup

# hark does not run as root from code that somebody else can write, unless told to.
foreign() {
	local path=$PWD
	[[ -z $(find . -maxdepth 1 ! -user root -print -quit) ]] || return 0
	until [[ $path == / ]]; do
		[[ $(stat -c %u "$path") -eq 0 ]] || return 0
		path=$(dirname "$path")
	done
	return 1
}
if [[ -z ${HARK_DEV:-} ]] && foreign; then
	echo "demo: this tree is not owned by root: HARK_DEV=1 (hark records that)"
	export HARK_DEV=1
fi

rm -rf "$out"
mkdir -p "$out/world" "$out/work"
cp demo/agent.py "$out/work/"
# The agent runs as the person behind sudo, who must own the workspace and the bundle's folder.
[[ -z ${SUDO_UID:-} ]] || chown -R "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" "$out"

"$python" demo/stub.py "$out/world" &
stub=$!
trap 'kill "$stub" 2>/dev/null || true; wait "$stub" 2>/dev/null || true' EXIT
for ((i = 0; i < 300; i++)); do
	[[ -s $out/world/port ]] && break
	kill -0 "$stub" || { echo "demo: error: the stub did not start" >&2; exit 1; }
	sleep 0.1
done
there=127.0.0.1:$(<"$out/world/port")
echo "demo: the page, the model and the thief are a stub on $there; no real service is asked"

# A value made for this run, so that finding it anywhere is proof and not chance.
DEMO_API_KEY=sk-demo-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export DEMO_API_KEY

echo "demo: hark run --policy demo/policy.toml -- python3 agent.py"
status=0
(cd "$out/work" && "$hark" run --policy "$root/demo/policy.toml" \
	--upstream "news.example=$there" --upstream "model.example=$there" \
	--upstream-ca "$out/world/ca.pem" -o "$out/incident.hark" \
	-- /usr/bin/python3 agent.py) || status=$?
if [[ $status -ne 0 ]]; then
	echo "demo: error: hark run ended with $status" >&2
	exit 1
fi

"$hark" inspect --json "$out/incident.hark" >"$out/events.jsonl"
"$python" demo/show.py "$out/events.jsonl" "$out/world/seen.jsonl" "$out/incident.hark"

echo
echo "demo: hark verify build/demo/incident.hark"
"$hark" verify "$out/incident.hark" | tee "$out/verify.txt"
grep -q VERIFIED "$out/verify.txt"

# The outside world is gone and so is the key: whatever the agent gets now comes from the recording.
kill "$stub"
wait "$stub" 2>/dev/null || true
unset DEMO_API_KEY
echo
echo "demo: hark replay build/demo/incident.hark   (the stub is stopped)"
(cd "$out/work" && "$hark" replay --quiet "$out/incident.hark") | tee "$out/replay.txt"
grep -q '^REPLAY-EQUAL exact' "$out/replay.txt"

sed -i 's/Summarise this page/Please summarise this page/' "$out/work/agent.py"
echo
echo "demo: the agent asks in other words: hark replay --workspace=current build/demo/incident.hark"
status=0
(cd "$out/work" && "$hark" replay --quiet --workspace=current "$out/incident.hark") \
	>"$out/diverged.txt" || status=$?
cat "$out/diverged.txt"
[[ $status -eq 1 ]] && grep -q '^REPLAY-DIVERGED at action' "$out/diverged.txt"
