# Sourced by the others. What a program says stays its own: logs go into a directory that goes with it.
# The first word is for who starts them.
shift
here=$(mktemp -d)
export LC_ALL=C

# Waits, where the variable HOLD names a file, until it exists: a tracer comes meanwhile.
held() {
	[ -n "$HOLD" ] || return 0
	: >"$HOLD.held"
	until [ -e "$HOLD" ]; do sleep 0.01; done
}
