#!/bin/sh
# Shows the way of requests through three processes: the time of each from the first process to the last, and the work of
# the processes in the longest one.
set -e
cc -O2 -o request "$(dirname "$0")/request.c"
nopal record --args -F 'ask@request' -F 'look_up@request' -F 'serve@request' -F 'note@request' -o request.data -- \
	sh -c 'sleep 1 | ./request ask 20 | ./request serve | ./request note'
nopal hist ask.arg1..note.arg1 request.data
nopal plot timeline --section ask.arg1..note.arg1 request.data -o request.svg
