# A program that waits for its input when a tracer attaches. The first argument is the input, the others are the program
# and its arguments; INPUT among them is the file that it reads.
. "$(dirname "$0")/hold.sh"
input=$1
shift
mkfifo "$here/input"
(
	held
	cat "$input" >"$here/input"
	rm -rf "$here"
) </dev/null 2>/dev/null &
for word; do
	shift
	[ "$word" = INPUT ] && word=$here/input
	set -- "$@" "$word"
done
exec "$@"
