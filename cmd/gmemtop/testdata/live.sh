# What scripts share that watch a training: ". $LIVE" has the functions, "sh $LIVE FUNCTION ARGUMENT..." runs one.
# None of them waits for a time: a machine that is busy takes as long as it takes.

# await COMMAND...: until it succeeds, for at most three minutes.
await() {
	for i in $(seq 1800); do
		if "$@"; then return 0; fi
		sleep 0.1
	done
	echo "in vain: $*" >&2
	return 1
}

# state PID: how many threads and sockets a process has.
state() {
	ls /proc/$1/task | wc -l
	ls -l /proc/$1/fd | grep -c socket || true
}

# settled PID: whether its state, which goes to the file after, is that of the file before. A thread that has said its last word is not gone yet.
settled() {
	state $1 >after
	cmp -s before after
}

# captured FILE: whether a recording that grows holds a step that was captured whole.
captured() { gmemtop stats $1 2>/dev/null | grep -q 'iteration'; }

# planned WORDS COMMAND...: has a command train with a plan, and the training, which is train.py, last until these words are said of that.
planned() {
	words=$1
	shift
	touch hold
	: >said # the command's own redirection may come later than the first look, which would find the last command's words
	"$@" 2>>said &
	command=$!
	trap 'rm -f hold; kill $command 2>/dev/null || true; cat said >&2' EXIT # whatever fails, it is not waited for
	await grep -q "$words" said || return
	rm hold
	wait $command
}

[ $# -eq 0 ] || "$@"
