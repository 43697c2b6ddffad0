# Sourced by the other scripts. Logs go into a directory that is removed with the program.
# The first word is for the caller.
shift
here=$(mktemp -d)
export LC_ALL=C

# Waits until the file exists that the variable HOLD names, if it does: a tracer attaches meanwhile.
held() {
	[ -n "$HOLD" ] || return 0
	: >"$HOLD.held"
	until [ -e "$HOLD" ]; do sleep 0.01; done
}
