# Functions for scripts that watch a training: ". $LIVE" defines them, "sh $LIVE FUNCTION ARGUMENT..." calls
# one.
# None of them waits for a fixed time: a busy machine takes as long as it takes.

# await COMMAND...: repeats it until it succeeds, for at most three minutes.
await() {
	for i in $(seq 1800); do
		if "$@"; then return 0; fi
		sleep 0.1
	done
	echo "waited in vain for: $*" >&2
	return 1
}

# state PID: prints how many threads and sockets a process has.
state() {
	ls /proc/$1/task | wc -l
	ls -l /proc/$1/fd | grep -c socket || true
}

# settled PID: writes the process's state to the file "after" and compares it with the file "before". A thread
# may live on for a moment after the last message that it sent.
settled() {
	state $1 >after
	cmp -s before after
}

# captured FILE: whether a recording that is still written already holds a whole captured step.
captured() { gmemtop stats $1 2>/dev/null | grep -q 'iteration'; }

# planned WORDS COMMAND...: runs a command that trains train.py with a plan, and makes the training last until
# the command prints these words.
planned() {
	words=$1
	shift
	touch hold
	# the first look may come before the command's own redirection, and would find the last command's words
	: >said
	"$@" 2>>said &
	command=$!
	# if something fails, nothing waits for the training
	trap 'rm -f hold; kill $command 2>/dev/null || true; cat said >&2' EXIT
	await grep -q "$words" said || return
	rm hold
	wait $command
}

# thrice FUNCTION ARGUMENT...: calls a function of this file until it succeeds, three times at most, and
# prints what the last call printed. Use it where the outcome depends on step times: on a busy machine, steps
# under a cheap plan may turn out shorter than those without it.
thrice() {
	for i in 1 2 3; do
		failed=0
		sh "$0" "$@" >thrice.out 2>thrice.err || failed=$?
		[ $failed -ne 0 ] || break
	done
	cat thrice.out
	cat thrice.err >&2
	return $failed
}

[ $# -eq 0 ] || "$@"
