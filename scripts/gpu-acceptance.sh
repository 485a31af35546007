#!/usr/bin/env bash
# What gmemtop does with a real GPU, tried on yours: the device is calibrated, plans are carried out and compared with the simulator, trainings are
# recorded, one is attached to, and an out-of-memory is explained.
#
# usage: scripts/gpu-acceptance.sh [--fresh] GMEMTOP_BINARY OUT_FOLDER [PYTHON]
#
# Needs   Linux, bash, timeout (coreutils), an NVIDIA driver (535 or newer), and a binary that `make build` made; no Go, no CUDA toolkit. PYTHON is one that
#         has torch with CUDA: without it the trainings are skipped. python3 (or PYTHON) reads key figures from the JSON; without any they stay empty.
# Takes   9 minutes at most, 520 s and what the last step needs to end. All of it takes several such runs: what there was no time for is said; run it again, and
#         it goes on there: a step that has an OUT/STEP.ok is not run again. --fresh starts over.
# Touches nothing outside of OUT_FOLDER: caches, calibration and state of gmemtop and the driver go to OUT/cache. GPU memory that others use is left alone.
# Exit    0 if no step failed, 1 if one did, 2 for a wrong command line, 130 if interrupted.
#
# In OUT:  summary.txt, summary.json    one line a step: ok, failed, skipped (and for want of what) or not run; seconds; a key figure
#          STEP.json, STEP.log          what the step printed, and what it and its programs said; of a compare also the rows that are not as simulated
#          calibration-UUID.json        what the device's copies, launches and allocations cost
#          *.gmt, oom.pickle            recordings, to look at with `gmemtop replay`, here or anywhere
#
# Steps:   machine, doctor, calibrate
#          compare-WHAT-BUDGET          every manager's plan of an iteration, on the device, in a budget of so many percent
#          resnet50-*, gpt2-*           examples/*.py recorded; the recording's stats; its iteration under seven managers in 80 %
#          live-*                       plans carried out in a training itself, measured beside what they foretell; to the bit it learns what it learns without
#          pool-*                       plans of addresses, served in a training itself, beside PyTorch's allocator as it is and with expandable segments
#          checkpoint-*, offload-*      a plan beside torch's own checkpointing of every block, and beside offloading everything, in the memory that these take
#          batch-*                      the largest batch that trains in so many GiB, and one more than twice as large there under a plan: time a sample of both
#          beyond-vgg16*                VGG-16 at batch 256 in 12 GiB under a plan, by any means and by swapping alone, and its time a sample beside that with memory enough
#          attach                       examples/gpt2.py, attached to while it runs: it goes on, and learns to the bit what a run learns that nobody watches
#          oom                          torch's snapshot of an out-of-memory, explained
#          estimate                     examples/gpt2.py estimated without the device, beside what its allocator counts
#          overhead                     what being watched costs a step, with its interval
#          history                      examples/gpt2.py recorded by the allocator's own history of one step in 20: what that costs, and equal losses
#          probes                       examples/gpt2.py seen from the kernel; needs root
#
# A replay takes the recorded time: a plan needs 51 steps at 20 iterations, 14 at one. A step of the samples, which were recorded on a slow CPU, takes
# 2 s and 10 s, so they come last, with as many managers and iterations as fit in a step's limit; two networks made from their layers, whose steps take
# milliseconds, come first. One budget of these comes before the trainings and the others behind, so that a first run has seen some of everything.
#
# Environment, for trying parts of it and for testing this script:
#          ACCEPTANCE_SAMPLES           compare these instead, separated by spaces: files, or network=NAME:BATCH
#          ACCEPTANCE_BUDGETS           in these budgets, percent (75 90 60)
#          ACCEPTANCE_SECONDS           end after so many seconds (520)
#          ACCEPTANCE_COMPARE_SECONDS   the limit of one compare (150)
#          ACCEPTANCE_CPU=1             train on the processor, with tiny networks
set -u
export LC_ALL=C

usage() {
	echo "usage: $0 [--fresh] GMEMTOP_BINARY OUT_FOLDER [PYTHON]" >&2
	exit 2
}

fresh=
if [ "${1:-}" = --fresh ]; then
	fresh=1
	shift
fi
if [ $# -lt 2 ] || [ $# -gt 3 ]; then usage; fi
for tool in timeout awk sed; do
	command -v "$tool" >/dev/null || { echo "$0: there is no $tool on this machine" >&2; exit 2; }
done
gmemtop=$(command -v -- "$1") || { echo "$0: $1 is no program" >&2; exit 2; }
case $gmemtop in /*) ;; *) gmemtop=$PWD/$gmemtop ;; esac
python=
if [ $# -eq 3 ]; then
	python=$(command -v -- "$3") || { echo "$0: $3 is no program" >&2; exit 2; }
	case $python in /*) ;; *) python=$PWD/$python ;; esac
fi
mkdir -p -- "$2/cache" && out=$(cd -- "$2" && pwd) || exit 2
root=$(cd -- "$(dirname -- "$0")/.." && pwd) || exit 2
if [ -n "$fresh" ]; then rm -rf -- "$out"/*.ok "$out/cache/gmemtop"; fi

# Whatever is run keeps what it wants to keep in OUT; the driver's cache of compiled kernels as well.
export XDG_CACHE_HOME=$out/cache XDG_STATE_HOME=$out/cache/state CUDA_CACHE_PATH=$out/cache/nv PYTHONDONTWRITEBYTECODE=1

deadline=${ACCEPTANCE_SECONDS:-520}
compare_limit=${ACCEPTANCE_COMPARE_SECONDS:-150}
read -ra budgets <<<"${ACCEPTANCE_BUDGETS:-75 90 60}"
if [ -n "${ACCEPTANCE_SAMPLES:-}" ]; then
	read -ra first <<<"$ACCEPTANCE_SAMPLES"
	last=()
else
	first=(network=ResNet-50:32 network=GPT-2-small:2)
	last=("$root/traces/samples/resnet18-steps-cpu.gmt" "$root/traces/samples/gpt-steps-cpu.gmt")
fi
SECONDS=0
reader=$(command -v python3 || echo "$python") # of JSON
# Tiny ops are slowed down by threads that wait for each other.
if [ -n "${ACCEPTANCE_CPU:-}" ]; then export OMP_NUM_THREADS=1; fi

# --- What stands in the summary ---

names=() outcomes=() times=() figures=()

add() { # outcome, seconds, figure
	names+=("$step") outcomes+=("$1") times+=("$2") figures+=("$3")
	shown $((${#names[@]} - 1)) >&2
	summarize # after every step, so that it is there whatever ends this script
}

shown() { printf '%-29s %-8s %4s s  %s\n' "${names[$1]}" "${outcomes[$1]}" "${times[$1]}" "${figures[$1]}"; }

quoted() { # as a JSON string
	local s=${1//\\/\\\\}
	s=${s//\"/\\\"}
	printf '"%s"' "${s//[[:cntrl:]]/ }"
}

summarize() {
	local i failed=0 comma='' f
	for i in "${!names[@]}"; do
		shown "$i"
		if [ "${outcomes[i]}" = failed ]; then failed=$((failed + 1)); fi
	done >"$out/summary.txt"
	{
		printf '{"schema_version": 1, "seconds": %d, "steps": [' "$SECONDS"
		for i in "${!names[@]}"; do
			printf '%s\n {"name": %s, "outcome": %s, "seconds": %d, "figure": %s}' "$comma" "$(quoted "${names[i]}")" "$(quoted "${outcomes[i]}")" "${times[i]}" "$(quoted "${figures[i]}")"
			comma=,
		done
		printf '\n], "recordings": ['
		comma=
		for f in "$out"/*.gmt "$out"/*.pickle; do
			[ -f "$f" ] || continue
			printf '%s\n {"file": %s, "bytes": %d}' "$comma" "$(quoted "${f##*/}")" "$(wc -c <"$f")"
			comma=,
			printf 'recorded: %s, %d bytes\n' "${f##*/}" "$(wc -c <"$f")" >>"$out/summary.txt"
		done
		printf '\n]}\n'
	} >"$out/summary.json"
	printf '%d steps, %d failed, %d s\n' "${#names[@]}" "$failed" "$SECONDS" >>"$out/summary.txt"
	worst=$((failed > 0))
}
worst=0

child='' training=''
trap 'if [ -n "$child$training" ]; then kill $child $training 2>/dev/null; fi; step=interrupted; add "not run" 0 ""; exit 130' INT TERM

# --- How a step is run ---

# run STEP SECONDS FUNCTION ARGUMENT...: the function sets outcome and figure. A step that so few seconds are left for is not begun.
run() {
	step=$1
	local least=$2 began=$SECONDS
	shift 2
	if [ -f "$out/$step.ok" ]; then
		local seconds=0 saved=''
		{ read -r seconds; read -r saved; } <"$out/$step.ok"
		add ok "${seconds:-0}" "$saved"
		return
	fi
	if [ $((deadline - SECONDS)) -lt "$least" ]; then
		add "not run" 0 "no time left"
		return
	fi
	rm -f -- "$out/$step.json"
	: >"$out/$step.log"
	outcome=failed figure=''
	"$@"
	if [ "$outcome" = ok ]; then printf '%d\n%s\n' $((SECONDS - began)) "$figure" >"$out/$step.ok"; fi
	add "$outcome" $((SECONDS - began)) "$figure"
}

skip() { outcome=skipped figure=$1; }
fail() { outcome=failed figure=$1; }
pass() { outcome=ok figure=$1; }

# limited SECONDS FILE COMMAND...: no longer than that and than what is left; what it prints goes to the file, what it says to the step's log.
limited() {
	local limit=$1 file=$2 code=0
	shift 2
	if [ "$limit" -gt $((deadline - SECONDS)) ]; then limit=$((deadline - SECONDS)); fi
	if [ "$limit" -lt 1 ]; then limit=1; fi
	granted=$limit
	echo "+ $*" >>"$out/$step.log"
	timeout -k 5 "$limit" "$@" >"$file" 2>>"$out/$step.log" </dev/null &
	child=$! # waited for, so that an interrupt is not kept waiting
	wait "$child" || code=$?
	child=
	return "$code"
}

# said CODE: why the last command ended with it, in its own words.
said() {
	local line
	case $1 in
	124 | 137) echo "ended after $granted s, its limit"; return ;;
	esac
	line=$(sed -n 's/^gmemtop: //p' "$out/$step.log" | tail -n 1)
	[ -n "$line" ] || line=$(grep -v '^+ ' "$out/$step.log" | grep . | tail -n 1)
	echo "${line:-nothing was said, exit $1}"
}

# ended CODE: what gmemtop's exit codes mean here; true where there is something to look at.
ended() {
	case $1 in
	0) return 0 ;;
	5) skip "$(said 5)" ;; # not possible on this machine
	*) fail "$(said "$1")" ;;
	esac
	return 1
}

# digest PROGRAM ARGUMENT...: a key figure by Python, nothing where there is none.
digest() {
	[ -n "$reader" ] || return 0
	timeout 20 "$reader" -c "$@" 2>>"$out/$step.log"
}

# --- The steps ---

machine() {
	local version='' gpu='' code=0
	{
		uname -a
		limited 10 "$out/version.txt" "$gmemtop" version || code=$?
		cat "$out/version.txt"
		rm -f "$out/version.txt"
	} >"$out/machine.txt"
	if [ $code -ne 0 ]; then fail "the program does not start: $(said $code)"; return; fi
	version=$(tail -n 1 "$out/machine.txt")
	if ! command -v nvidia-smi >/dev/null; then skip "no nvidia-smi here; $version"; return; fi
	limited 30 "$out/machine.csv" nvidia-smi --query-gpu=name,driver_version,memory.total,mig.mode.current --format=csv || code=$?
	if [ $code -ne 0 ]; then
		fail "nvidia-smi: $(tail -n 1 "$out/machine.csv") (exit $code)"
		return
	fi
	gpu=$(sed -n 2p "$out/machine.csv")
	pass "$gpu; $version"
}

doctor() {
	local code=0
	limited 60 "$out/$step.json" "$gmemtop" doctor --json || code=$?
	ended $code || return
	pass "$(digest '
import json, sys
found = json.load(open(sys.argv[1]))["findings"]
gpu = [f for f in found if f["name"] in ("replay on a GPU", "nvml", "probes")]
print(sum(f["available"] for f in found), "of", len(found), "available;", "; ".join(f["name"] + ": " + (f["detail"] if f["available"] else f["why"]) for f in gpu))
' "$out/$step.json")"
}

no_gpu='' # the program's sentence, where the device cannot be used

# what_to_compare WHAT: sets the arguments that name it.
what_to_compare() {
	case $1 in
	network=*:*)
		local network=${1#network=}
		what=(--network "${network%:*}" --batch "${network##*:}")
		;;
	*) what=("$1") ;;
	esac
}

calibrate() {
	local code=0 f
	what_to_compare "${first[0]}"
	limited 90 "$out/$step.json" "$gmemtop" compare "${what[@]}" --managers caching --target cuda --calibrate --iterations 3 --json || code=$?
	if [ $code -eq 5 ]; then no_gpu=$(said 5); fi
	ended $code || return
	for f in "$XDG_CACHE_HOME"/gmemtop/hardware/*.json; do
		if [ -f "$f" ]; then cp -- "$f" "$out/calibration-${f##*/}"; fi
	done
	if ! ls "$out"/calibration-*.json >/dev/null 2>&1; then fail "measured, and not kept: $(said 0)"; return; fi
	pass "$(digest '
import json, sys
h = json.load(open(sys.argv[1]))["hardware"]
print("%s: %.1f GB/s to the host, %.1f GB/s to the device" % (h["name"], h["d2h_bytes_per_s"] / 1e9, h["h2d_bytes_per_s"] / 1e9))
' "$out/$step.json")"
}

# seconds_for NANOSECONDS MANAGERS ITERATIONS: what measuring may take: a row each, some managers two; three steps of warming up and half of the iterations of
# keeping everything twice, the plan's own, two that are traced; a fifth more, since plans are slower, and what pinning and checking take.
seconds_for() {
	awk -v ns="$1" -v managers="$2" -v n="$3" 'BEGIN {
		rows = managers == "all" ? 46 : split(managers, list, ",") * 1.5
		planning = managers == "all" ? 25 : split(managers, list, ",") * 2
		printf "%d", rows * ((2 * (3 + int((n + 1) / 2)) + 3 + n + 2) * ns / 1e9 * 1.2 + 0.7) + planning
	}'
}

compared='
import json, sys
d = json.load(open(sys.argv[1]))
rows = d["results"]
sim = {(r["manager"], r["executor"]): r for r in rows if r["target"] == "sim" and r["available"]}
real = [r for r in rows if r["target"] != "sim"]
done = [r for r in real if r["available"]]
within = 0
with open(sys.argv[2], "a") as log:
    for r in real:
        name = r["manager"] + " " + r["executor"]
        if not r["available"]:
            print("not measured: %s: %s" % (name, r["reason"]), file=log)
            continue
        s = sim.get((r["manager"], r["executor"]))
        if s is None:
            print("not simulated: %s" % name, file=log)
            continue
        footprint = r["footprint_bytes"] / s["footprint_bytes"] - 1 if s["footprint_bytes"] else float("nan")
        overhead = r["overhead"] - s["overhead"]
        if abs(footprint) <= 0.02 and abs(overhead) <= 0.02:
            within += 1
            continue
        print("not as simulated: %s: footprint %d, simulated %d (%+.1f %%); overhead %.1f %%, simulated %.1f %%; step %.3f ms, simulated %.3f ms; %s" % (
            name, r["footprint_bytes"], s["footprint_bytes"], footprint * 100, r["overhead"] * 100, s["overhead"] * 100,
            r["step_time_ns"] / 1e6, s["step_time_ns"] / 1e6, "; ".join(r.get("causes") or ["no cause named"])), file=log)
print("%d of %d plans measured, %d verified, %d as simulated" % (len(done), len(real), sum(r.get("verified") is True for r in real), within))
'

# compare WHAT BUDGET MANAGERS...: with the first of the lists, and as many iterations, that can be done in time.
compare() {
	local budget=$2 code=0 ns='' list='' n='' managers='' iterations='' need=0
	what_to_compare "$1"
	shift 2
	if [ -n "$no_gpu" ]; then skip "$no_gpu"; return; fi
	limited 60 "$out/$step.json" "$gmemtop" compare "${what[@]}" --managers caching --json || code=$?
	ended $code || return
	ns=$(sed -n 's/.*"step_time_ns": \([0-9]*\).*/\1/p' "$out/$step.json" | head -n 1) # the problem's, which comes first
	for list in "$@"; do
		for n in 20 5 1; do
			need=$(seconds_for "${ns:-0}" "$list" "$n")
			if [ "$need" -le "$compare_limit" ]; then
				managers=$list iterations=$n
				break 2
			fi
		done
	done
	if [ -z "$managers" ]; then
		skip "one step of it takes $((ns / 1000000)) ms: $need s for $list once, and $compare_limit s are allowed (ACCEPTANCE_COMPARE_SECONDS)"
		return
	fi
	if [ "$need" -gt $((deadline - SECONDS)) ]; then
		outcome="not run" figure="no time left: about $need s are needed"
		return
	fi
	limited "$compare_limit" "$out/$step.json" "$gmemtop" compare "${what[@]}" --managers "$managers" --budget "$budget%" --target cuda --iterations "$iterations" --limit 10s --json || code=$?
	if [ $code -eq 3 ]; then
		skip "budget below what must reside: $(said 3)"
		return
	fi
	if [ -s "$out/$step.json" ] && [ $code -le 1 ]; then figure=$(digest "$compared" "$out/$step.json" "$out/$step.log"); fi
	local measured="$figure${figure:+; }$iterations iterations"
	if [ "$managers" != all ]; then measured+=", $managers"; fi
	ended $code || { figure="$figure${measured:+; $measured}"; return; }
	pass "$measured"
}

caps_known='' # whether torch tells what share of the GPU a program allows itself: otherwise a plan is made for all of it
caps_why="this torch does not tell how much memory a program allows itself (torch.cuda.get_per_process_memory_fraction): take a newer one"
torch_missing='' # why trainings cannot be run; "none" when they can, "" before it was asked
training_arguments=()

# trainable: whether PYTHON has what trainings need.
trainable() {
	if [ -z "$torch_missing" ]; then
		torch_missing=none caps_known=''
		local asked=''
		if [ -z "$python" ]; then
			torch_missing="no PYTHON was named that has torch with CUDA"
		else
			limited 90 "$out/torch.txt" "$python" -c 'import torch; print(hasattr(torch.cuda, "get_per_process_memory_fraction"), torch.__version__, torch.cuda.is_available())' || torch_missing="no torch in $python"
			asked=$(tail -n 1 "$out/torch.txt")
			if [ "${asked%% *}" = True ]; then caps_known=1; fi
			asked=${asked#* }
			case $torch_missing/$asked in
			none/*True) ;;
			none/*)
				if [ -z "${ACCEPTANCE_CPU:-}" ]; then torch_missing="no CUDA in $python (torch ${asked% *})"; fi
				;;
			esac
			rm -f -- "$out/torch.txt"
		fi
	fi
	if [ "$torch_missing" != none ]; then skip "$torch_missing"; return 1; fi
}

# sized NAME: how the example is run; on a processor so that a step takes no time.
sized() {
	training_arguments=()
	if [ -z "${ACCEPTANCE_CPU:-}" ]; then return; fi
	case $1 in
	mlp) training_arguments=(--device cpu --batch 2048 --inputs 64 --width 64) ;;
	resnet50) training_arguments=(--device cpu --batch 16 --image 32 --width 4 --classes 10) ;;
	vgg16) training_arguments=(--device cpu --batch 16 --image 32 --width 4 --hidden 32 --classes 10) ;;
	vit) training_arguments=(--device cpu --batch 16 --image 32 --patch 4 --layers 2 --width 32 --heads 2 --classes 10) ;;
	gpt2) training_arguments=(--device cpu --batch 8 --sequence 64 --layers 4 --width 64 --heads 2 --vocabulary 500) ;;
	esac
}

size() { wc -c <"$1" | awk '{ if ($1 < 1048576) printf "%.0f KiB", $1 / 1024; else printf "%.1f MiB", $1 / 1048576 }'; }

# steps FILE: what a training printed, in a few words.
steps() {
	awk '$1 == "step" { n++; if (n == 1) first = $4; last = $4; ms[n] = $5 }
		END { if (n) printf "%d steps, loss %s to %s, the last in %s ms", n, first, last, ms[n]; else printf "no steps" }' "$1"
}

record() { # example
	local code=0
	trainable || return
	sized "$1"
	limited 120 "$out/$1.txt" "$gmemtop" record -f -o "$out/$1.gmt" -- "$python" "$root/examples/$1.py" --steps 30 ${training_arguments[@]+"${training_arguments[@]}"} || code=$?
	ended $code || return
	if [ ! -s "$out/$1.gmt" ]; then fail "no recording: $(said 0)"; return; fi
	pass "$(size "$out/$1.gmt"); $(steps "$out/$1.txt")"
}

recorded() { # example: whether there is a recording of it
	trainable || return
	if [ ! -f "$out/$1-record.ok" ]; then skip "no recording $1.gmt"; return 1; fi
}

stats() { # example
	local code=0
	recorded "$1" || return
	limited 60 "$out/$step.json" "$gmemtop" stats "$out/$1.gmt" --json || code=$?
	ended $code || return
	pass "$(digest 'import json, sys; print(json.load(open(sys.argv[1]))["headline"])' "$out/$step.json")"
}

compare_recording() { # example
	recorded "$1" || return
	compare "$out/$1.gmt" 80 caching,expandable,smartpool,autoswap,capuchin,delta,joint caching,autoswap,joint
}

# train FILE [EXAMPLE [LAST]]: the training that is attached to; it ends behind step LAST, or when OUT/STEP.stop comes. Not under timeout, since its own number is
# needed; it is in training.
train() {
	rm -f -- "$out/$step.stop"
	env LAST="${3:-0}" STOP="$out/$step.stop" "$python" "$root/replay/acceptance/python/learn.py" plain "$root/examples/${2:-gpt2}.py" --steps "$attach_steps" --deterministic \
		${training_arguments[@]+"${training_arguments[@]}"} >"$1" 2>>"$out/$step.log" </dev/null &
	training=$!
}

# over SECONDS: waits for the training and returns its exit status, 124 where it was ended for want of time.
over() {
	local until=$((SECONDS + $1)) code=0
	while kill -0 "$training" 2>/dev/null; do
		if [ "$SECONDS" -ge "$until" ] || [ "$SECONDS" -ge "$deadline" ]; then
			kill -KILL "$training" 2>/dev/null
			wait "$training" 2>/dev/null
			training=
			return 124
		fi
		sleep 0.2
	done
	wait "$training" || code=$?
	training=
	return $code
}

losses() { awk '$1 == "step" { print $2, $4 }' "$1"; }

# learnt FILE: behind which step a training ended, and a digest of what it had learnt.
learnt() { awk '$1 == "digest" { print $2, $3 }' "$1"; }

attach() {
	local code=0 status=0 at=0 until
	trainable || return
	sized gpt2
	attach_steps=120 # so many that it has not ended when it is let go: attaching takes a second
	if [ -n "${ACCEPTANCE_CPU:-}" ]; then attach_steps=500; fi
	train "$out/attach-alone.txt"
	over 90 || { status=$?; fail "the training alone ended with $status: $(tail -n 1 "$out/$step.log")"; return; }
	train "$out/attach-watched.txt"
	until=$((SECONDS + 60))
	while ! grep -qs '^step 3 ' "$out/attach-watched.txt" && kill -0 "$training" 2>/dev/null && [ "$SECONDS" -lt "$until" ]; do sleep 0.1; done
	limited 60 "$out/attach-record.txt" "$gmemtop" record -f -o "$out/attached.gmt" --every 4 --steps 12 "$training" || code=$?
	at=$(losses "$out/attach-watched.txt" | wc -l)
	over 90 || status=$?
	ended $code || return # after the training, which is not left behind
	if [ $status -ne 0 ]; then fail "the training that was attached to ended with $status: $(tail -n 1 "$out/$step.log")"; return; fi
	if [ "$at" -ge "$attach_steps" ]; then fail "the training was over before it was let go: whether it goes on was not seen"; return; fi
	if ! cmp -s <(learnt "$out/attach-alone.txt") <(learnt "$out/attach-watched.txt"); then
		# Said of the machine and not of gmemtop, where two runs that nobody watches differ as well.
		train "$out/attach-again.txt"
		over 60
		if cmp -s <(learnt "$out/attach-alone.txt") <(learnt "$out/attach-again.txt"); then
			fail "it learnt something else than without gmemtop: attach-alone.txt, attach-watched.txt"
		else
			fail "what is learnt differs, and that of two runs without gmemtop does so as well: attach-alone.txt, attach-again.txt"
		fi
		return
	fi
	pass "$(size "$out/attached.gmt"); let go at step $at of $attach_steps, ended with 0, to the bit the same behind $attach_steps steps"
}

carried='
import json, sys
rows = json.load(open(sys.argv[1]))["results"]
sim = {(r["manager"], r["executor"]): r for r in rows if r["target"] == "sim" and r["available"]}
live = [r for r in rows if r["target"] == "live" and r["available"]]
said, within = [], 0
for r in live:
    s = sim.get((r["manager"], r["executor"]))
    footprint = r["footprint_bytes"] / r["footprint_foretold_bytes"] - 1 if r.get("footprint_foretold_bytes") else float("nan")
    step = (1 + r["overhead"]) / (1 + s["overhead"]) - 1 if s else float("nan")
    within += abs(footprint) <= 0.03 and abs(step) <= 0.07
    said.append("%s %.0f MiB (foretold %.0f), step %+.1f %% (foretold %+.1f %%)" % (
        r["manager"], r["footprint_bytes"] / 2**20, r.get("footprint_foretold_bytes", 0) / 2**20, r["overhead"] * 100, s["overhead"] * 100 if s else float("nan")))
said += ["%s simulated %.0f MiB" % (r["manager"], r["footprint_bytes"] / 2**20) for r in sim.values() if r["manager"] in ("caching", "expandable")]
if live:
    print("%d of %d footprints within 3 %% and steps within 7 %% of what was foretold; the step without any: %.1f ms before all, %.1f ms behind all; %s" % (
        within, len(live), live[0]["keep_all_before_ns"] / 1e6, live[-1]["keep_all_after_ns"] / 1e6, "; ".join(said)))
sys.exit(0 if live else 1)
'

# live EXAMPLE MANAGERS: every plan in turn, while it trains; then it trains as many steps alone.
live() {
	local code=0 status=0 until='' began=$SECONDS behind=''
	trainable || return
	sized "$1"
	attach_steps=1000000
	train "$out/$step-managed.txt" "$1"
	until=$((SECONDS + 60))
	while ! grep -qs '^step 3 ' "$out/$step-managed.txt" && kill -0 "$training" 2>/dev/null && [ "$SECONDS" -lt "$until" ]; do sleep 0.1; done
	limited 120 "$out/$step.json" "$gmemtop" compare --target "live:$training" --budget "$live_budget" --managers "$2" --limit 5s --iterations 20 --json || code=$?
	: >"$out/$step.stop"
	over 60 || status=$?
	ended $code || return # after the training, which is not left behind
	if [ $status -ne 0 ]; then fail "the training ended with $status: $(tail -n 1 "$out/$step.log")"; return; fi
	behind=$(learnt "$out/$step-managed.txt")
	if [ -z "$behind" ]; then fail "the training does not say what it learnt"; return; fi
	figure=$(digest "$carried" "$out/$step.json") || { fail "no plan was carried out"; return; }
	if [ $((deadline - SECONDS)) -lt $((SECONDS - began)) ]; then
		outcome="not run" figure="no time left to train ${behind% *} steps alone; $figure"
		return
	fi
	train "$out/$step-alone.txt" "$1" "${behind% *}"
	over 180 || { status=$?; fail "the training alone ended with $status: $(tail -n 1 "$out/$step.log")"; return; }
	if [ "$(learnt "$out/$step-alone.txt")" != "$behind" ]; then fail "it learnt something else than without plans: $step-alone.txt, $step-managed.txt"; return; fi
	pass "$figure; to the bit the same behind ${behind% *} steps"
}

# under_a_plan NAME MANAGER [FLAG...] -- SCRIPT [ARGUMENT...]: trains under a plan until it has been on for some seconds, or never comes. What it printed is in OUT/NAME.txt.
under_a_plan() {
	local name=$1 manager=$2 code=0 flags=()
	shift 2
	while [ "$1" != -- ]; do
		flags+=("$1")
		shift
	done
	shift
	rm -f -- "$out/$step.stop"
	(
		until grep -qs -e ' is on since ' -e ' not carried out' "$out/$step.log"; do sleep 0.2; done
		if grep -qs ' is on since ' "$out/$step.log"; then sleep "$on_for"; fi
		: >"$out/$step.stop"
	) &
	training=$! # so that it ends where this script is ended
	limited 200 "$out/$name.txt" env STOP="$out/$step.stop" "$gmemtop" run --headless --manager "$manager" ${flags[@]+"${flags[@]}"} -- \
		"$python" "$root/replay/acceptance/python/learn.py" plain "$@" --steps 1000000 || code=$?
	kill "$training" 2>/dev/null
	wait "$training" 2>/dev/null
	training=
	return $code
}
on_for=15 live_budget=70% # of what PyTorch's allocator takes, which of tiny networks is half empty
if [ -n "${ACCEPTANCE_CPU:-}" ]; then on_for=2 live_budget=50%; fi

# beside EXAMPLE HOW MANAGER...: time and memory of a training that torch checkpoints, or that offloads everything, and of a plan in the memory that this takes,
# by the first of the managers that makes one which PyTorch can carry out.
beside() {
	local manager='' code=0 theirs='' peak=0 budget=$live_budget mine=''
	trainable || return
	sized "$1"
	limited 120 "$out/$step-theirs.txt" "$python" "$root/replay/acceptance/python/learn.py" "$2" "$root/examples/$1.py" --steps 20 ${training_arguments[@]+"${training_arguments[@]}"} || code=$?
	if [ $code -ne 0 ]; then fail "$2: $(said $code)"; return; fi
	theirs=$(per_sample "$out/$step-theirs.txt" 1)
	peak=$(awk '$1 == "peak" { print $2 }' "$out/$step-theirs.txt")
	if [ "${peak:-0}" -gt 0 ]; then budget=$((peak / 1048576))MiB; fi
	figure="$2: $theirs ms a step in $((${peak:-0} / 1048576)) MiB"
	for manager in "${@:3}"; do
		: >"$out/$step.log"
		under_a_plan "$step-planned" "$manager" --budget "$budget" -- "$root/examples/$1.py" ${training_arguments[@]+"${training_arguments[@]}"} || code=$?
		if [ $code -ne 0 ]; then fail "$figure; $manager: $(said $code)"; return; fi
		if grep -qs ' is on since ' "$out/$step.log"; then break; fi
	done
	on_a_plan "$figure; it" || return
	mine=$(per_sample "$out/$step-planned.txt" 1)
	peak=$(awk '$1 == "peak" { print $2 }' "$out/$step-planned.txt")
	pass "$figure; $manager: $mine ms in $((${peak:-0} / 1048576)) MiB, $(awk -v a="$theirs" -v b="$mine" 'BEGIN { printf "%+.1f %%", (a > 0) ? 100 * (b / a - 1) : 0 }')"
}

# capped NAME GIB BATCH STEPS [MANAGER]: trains with so much memory, all there is for 0; or under a manager's plan, until that has been on for a while. 0 if it
# trained, 1 if it ran out of memory, 2 for anything else; what it printed is in OUT/NAME.txt.
capped() {
	local name=$1 memory=$2 batch=$3 steps=$4 code=0
	shift 4
	if [ $# -gt 0 ]; then
		under_a_plan "$name" "$1" -- "$root/examples/${capped_script[0]}" "${capped_script[@]:1}" --memory "$memory" --batch "$batch" || code=$?
	else
		limited 120 "$out/$name.txt" "$python" "$root/examples/${capped_script[0]}" "${capped_script[@]:1}" --memory "$memory" --batch "$batch" --steps "$steps" || code=$?
	fi
	if [ $code -eq 0 ]; then return 0; fi
	if grep -qs 'out of memory' "$out/$step.log" "$out/$name.txt"; then
		: >"$out/$step.log" # so that the next run is not taken to have run out as well
		return 1
	fi
	return 2
}

# per_sample FILE BATCH: the median of the last ten steps' times, in milliseconds a sample.
per_sample() { awk '$1 == "step" { print $5 }' "$1" | tail -n 10 | sort -n | awk -v b="$2" '{ t[NR] = $1 } END { if (NR) printf "%.4f", t[int((NR + 1) / 2)] / b }'; }

# largest_batch GIB FACTOR SCRIPT [ARGUMENT...]: by doubling and halving, to an eighth; then FACTOR times as much under a plan. The papers' factors are of other cards.
largest_batch() {
	local memory=$1 factor=$2 fits=0 fails=0 batch=16 code=0 more=0 plain='' planned=''
	shift 2
	capped_script=("$@")
	trainable || return
	if [ -z "$caps_known" ]; then skip "$caps_why"; return; fi
	if [ -n "${ACCEPTANCE_CPU:-}" ]; then skip "a processor has no allocator to run out of memory"; return; fi
	while :; do
		code=0
		capped "$step-plain" "$memory" "$batch" 4 || code=$?
		case $code in
		0) fits=$batch ;;
		1) fails=$batch ;;
		*) fail "batch $batch: $(said $code)"; return ;;
		esac
		if [ "$fails" -eq 0 ]; then batch=$((batch * 2)); continue; fi
		if [ "$fits" -eq 0 ]; then fail "not even batch $batch trains in $memory GiB"; return; fi
		if [ $((8 * (fails - fits))) -le "$fits" ]; then break; fi
		batch=$(((fits + fails) / 2))
	done
	capped "$step-plain" "$memory" "$fits" 20 || { fail "batch $fits trained for 4 steps and not for 20"; return; }
	plain=$(per_sample "$out/$step-plain.txt" "$fits")
	more=$(awk -v b=$((fails - 1)) -v f="$factor" 'BEGIN { printf "%d", b * f + 0.999 }') # of the largest that may train, since it was found to an eighth only
	figure="in $memory GiB batch $fits without a plan, below $fails"
	code=0
	capped "$step-planned" "$memory" "$more" 0 joint || code=$?
	if [ $code -ne 0 ]; then fail "$figure; batch $more does not train under a plan: $(said $code)"; return; fi
	on_a_plan "$figure; batch $more" || return
	planned=$(per_sample "$out/$step-planned.txt" "$more")
	pass "$figure; batch $more under a plan: $plain and $planned ms a sample, $(awk -v a="$plain" -v b="$planned" 'BEGIN { printf "%+.1f %%", (a > 0) ? 100 * (b / a - 1) : 0 }')"
}

# on_a_plan WORDS: whether the log says that a plan came to be on, and not that it ended.
on_a_plan() {
	if ! grep -qs ' is on since ' "$out/$step.log" || grep -qs ' is not carried out' "$out/$step.log"; then
		fail "$1 trained, and not under a plan to the end: $(said 0)"
		return 1
	fi
}

# beyond_vgg16 MANAGER: what vDNN's paper is known for: 12 GiB, batch 256.
beyond_vgg16() {
	local code=0 plain='' planned=''
	capped_script=(vgg16.py)
	trainable || return
	if [ -z "$caps_known" ]; then skip "$caps_why"; return; fi
	if [ -n "${ACCEPTANCE_CPU:-}" ]; then skip "a processor has no allocator to run out of memory"; return; fi
	capped "$step-oracle" 0 256 15 || code=$?
	if [ $code -eq 1 ]; then skip "batch 256 does not train in all of this GPU's memory: there is nothing to compare with"; return; fi
	if [ $code -ne 0 ]; then fail "batch 256: $(said $code)"; return; fi
	plain=$(per_sample "$out/$step-oracle.txt" 256)
	capped "$step-planned" 12 256 0 "$1" || code=$?
	if [ $code -ne 0 ]; then fail "it does not train in 12 GiB under a plan: $(said $code)"; return; fi
	on_a_plan "batch 256" || return
	planned=$(per_sample "$out/$step-planned.txt" 256)
	pass "$plain ms a sample with enough memory, $planned in 12 GiB under a plan: a loss of $(awk -v a="$plain" -v b="$planned" 'BEGIN { printf "%.1f %%", (b > 0) ? 100 * (1 - a / b) : 0 }')"
}

out_of_memory='
import sys, torch
torch.cuda.memory._record_memory_history(max_entries=100000)
total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(1.5 * 2**30 / total)
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
try:
    for i in range(12):  # each step takes twice the batch of the one before
        x = torch.randn(512 << i, 2048, device="cuda")
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
except torch.cuda.OutOfMemoryError as e:
    print(str(e).splitlines()[0])
    torch.cuda.memory._dump_snapshot(sys.argv[1])
else:
    sys.exit("no out-of-memory came")
'

oom() {
	local code=0
	trainable || return
	if [ -n "${ACCEPTANCE_CPU:-}" ]; then skip "a processor has no allocator to run out of memory"; return; fi
	limited 90 "$out/oom.txt" "$python" -c "$out_of_memory" "$out/oom.pickle" || code=$?
	if [ $code -ne 0 ]; then fail "no snapshot: $(said $code)"; return; fi
	limited 60 "$out/$step.json" "$gmemtop" oom "$out/oom.pickle" --json || code=$?
	case $code in
	3) ;; # found
	0) fail "no out-of-memory was found in oom.pickle"; return ;;
	*) ended $code; return ;;
	esac
	pass "$(size "$out/oom.pickle"); $(digest '
import json, sys
for d in json.load(open(sys.argv[1]))["devices"]:
    if d.get("sentence"):
        print(d["sentence"])
        break
' "$out/$step.json")"
}

# estimate: what the unchanged script takes, foretold without the device, beside what its allocator counts.
estimate() {
	local code=0
	trainable || return
	sized gpt2
	if [ -n "${ACCEPTANCE_CPU:-}" ]; then skip "a processor has no allocator to count"; return; fi
	limited 60 "$out/$step.json" "$gmemtop" estimate --json -- "$python" "$root/examples/gpt2.py" --steps 3 || code=$?
	if [ $code -ne 3 ]; then ended $code || return; fi # 3: it does not fit the preset, and what it takes is known all the same
	limited 60 "$out/$step.txt" "$python" -c "$counted" "$root/examples/gpt2.py" --steps 3 || { fail "the training itself: $(said $?)"; return; }
	figure=$(digest "$foretold" "$out/$step.json" "$out/$step.txt") || { fail "$figure"; return; }
	pass "$figure"
}

counted='
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
import torch
print("counted", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
'

# Workspaces of kernels are not in an estimate, so it is a lower bound; a third off is no estimate.
foretold='
import json, sys
r = json.load(open(sys.argv[1]))["results"][0]
allocated, reserved = [int(n) for n in [l for l in open(sys.argv[2]) if l.startswith("counted")][-1].split()[1:]]
print("%.0f MiB at the peak, foretold %.0f (%+.1f %%); reserved %.0f MiB, foretold %.0f" % (
    allocated / 2**20, r["peak_allocated_bytes"] / 2**20, 100 * (r["peak_allocated_bytes"] / allocated - 1), reserved / 2**20, r["reserved_bytes"] / 2**20))
sys.exit(0 if abs(r["peak_allocated_bytes"] / allocated - 1) < 1 / 3 else 1)
'

# overhead: what being watched costs a step of a small network, for totals alone; of a GPU no more than half a percent is wished for.
overhead() {
	local device=cuda pairs=150 code=0
	trainable || return
	if [ -n "${ACCEPTANCE_CPU:-}" ]; then device=cpu pairs=10; fi
	limited 30 "$out/$step.txt" "$gmemtop" run --headless -- sh -c 'cat "${PYTHONPATH%%:*}/agent.py"' || { fail "no agent: $(said $?)"; return; }
	mv -- "$out/$step.txt" "$out/agent.py"
	DEVICE=$device limited 90 "$out/$step.json" "$python" "$root/replay/acceptance/python/overhead.py" "$out/agent.py" "$pairs" 10 || code=$?
	rm -f -- "$out/agent.py"
	if [ $code -ne 0 ]; then fail "$(said $code)"; return; fi
	figure=$(digest '
import json, sys
r = json.load(open(sys.argv[1]))
print("steps of %.2f ms on %s take %+.2f %% longer, 95 %% interval %+.2f to %+.2f" % ((r["step_ms"], sys.argv[2], 100 * r["time"]["overhead"]) + tuple(100 * x for x in r["time"]["interval95"])))
sys.exit(sys.argv[2] != "cpu" and r["time"]["interval95"][0] > 0.005)
' "$out/$step.json" "$device") || { fail "$figure"; return; }
	pass "$figure"
}

mean_step() { awk '$1 == "step" && $2 > 10 { s += $5; n++ } END { if (n) printf "%.2f", s / n }' "$1"; }

headline_of='
import json, sys
r = json.load(open(sys.argv[1]))
print(r["headline"])
sys.exit(not sum(d["events"] for d in r["devices"]))
'

# history: the allocator's own history of one step in 20, what that costs on the average, and that the training learns the same.
history() {
	local code=0 alone='' watched=''
	trainable || return
	if [ -n "${ACCEPTANCE_CPU:-}" ]; then skip "a processor has no allocator that keeps a history"; return; fi
	limited 60 "$out/$step-alone.txt" "$python" "$root/examples/gpt2.py" --steps 90 --deterministic || { fail "the training alone: $(said $?)"; return; }
	limited 60 "$out/$step-watched.txt" "$gmemtop" record -f -o "$out/gpt2-history.gmt" --depth history --every 20 -- "$python" "$root/examples/gpt2.py" --steps 90 --deterministic || code=$?
	ended $code || return
	if ! cmp -s <(losses "$out/$step-alone.txt") <(losses "$out/$step-watched.txt"); then fail "other losses than without gmemtop: $step-alone.txt, $step-watched.txt"; return; fi
	limited 60 "$out/$step.json" "$gmemtop" stats "$out/gpt2-history.gmt" --json || { fail "$(said $?)"; return; }
	figure=$(digest "$headline_of" "$out/$step.json") || { fail "no history was recorded: $figure"; return; }
	alone=$(mean_step "$out/$step-alone.txt") watched=$(mean_step "$out/$step-watched.txt")
	pass "$(size "$out/gpt2-history.gmt"); $figure; steps of $alone ms, $watched with one in 20 recorded ($(awk -v a="$alone" -v b="$watched" 'BEGIN { printf "%+.2f %%", (a > 0) ? 100 * (b / a - 1) : 0 }')); equal losses"
}

# probes: a training's blocks, seen from the kernel.
probes() {
	local code=0 until
	trainable || return
	if [ -n "${ACCEPTANCE_CPU:-}" ]; then skip "a processor's training has no CUDA to probe"; return; fi
	sized gpt2
	attach_steps=60
	train "$out/$step.txt"
	until=$((SECONDS + 60))
	while ! grep -qs '^step 3 ' "$out/$step.txt" && kill -0 "$training" 2>/dev/null && [ "$SECONDS" -lt "$until" ]; do sleep 0.1; done
	limited 90 "$out/$step-record.txt" "$gmemtop" record --probes -f -o "$out/probes.gmt" "$training" || code=$?
	over 90 || { fail "the training that was probed ended with $?"; return; }
	ended $code || return
	limited 60 "$out/$step.json" "$gmemtop" stats "$out/probes.gmt" --json || { fail "$(said $?)"; return; }
	figure=$(digest "$headline_of" "$out/$step.json") || { fail "nothing was recorded: $figure"; return; }
	pass "$(size "$out/probes.gmt"); $figure"
}

# compare_all BUDGET WHAT...
compare_all() {
	local budget=$1 x name
	shift
	for x; do
		name=${x##*/}
		name=${name#network=}
		name=${name%%:*}
		run "compare-${name%.*}-$budget" 15 compare "$x" "$budget" all caching,smartpool,autoswap,joint autoswap,joint autoswap
	done
}

run machine 5 machine
run doctor 5 doctor
run calibrate 15 calibrate
compare_all "${budgets[0]}" "${first[@]}"
for example in resnet50 gpt2; do
	run "$example-record" 15 record "$example"
	run "$example-stats" 5 stats "$example"
	run "$example-compare-80" 15 compare_recording "$example"
done
for example in resnet50 gpt2; do run "live-$example" 60 live "$example" sqrt,dtr,autoswap,capuchin,joint; done
run pool-gpt2 60 live gpt2 smartpool,stalloc
run checkpoint-gpt2 60 beside gpt2 checkpoint sqrt
run offload-gpt2 60 beside gpt2 offload autoswap vdnn-all
run attach 40 attach
run oom 15 oom
run estimate 15 estimate
run overhead 20 overhead
run history 40 history
run probes 20 probes
run batch-resnet50 120 largest_batch 8 2.05 resnet50.py
run beyond-vgg16 60 beyond_vgg16 joint
run beyond-vgg16-swapping 60 beyond_vgg16 autoswap
run batch-resnet101 120 largest_batch 8 2.26 resnet50.py --blocks 3,4,23,3
for example in vgg16 vit mlp; do run "live-$example" 60 live "$example" sqrt,dtr,autoswap,capuchin,joint; done
run pool-resnet50 60 live resnet50 smartpool,stalloc
run checkpoint-resnet50 60 beside resnet50 checkpoint sqrt
run offload-resnet50 60 beside resnet50 offload autoswap vdnn-all
for budget in "${budgets[@]:1}"; do compare_all "$budget" "${first[@]}"; done
for budget in "${budgets[@]}"; do compare_all "$budget" ${last[@]+"${last[@]}"}; done
echo >&2
cat "$out/summary.txt"
exit "$worst"
