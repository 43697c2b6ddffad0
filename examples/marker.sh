#!/bin/sh
# Shows the instructions that a marker adds to a function, in memory, while it is off and while it is on.
set -e
here=$(dirname "$0")
cc -O2 -I"$here/../include" -o marker "$here/marker.c"
size=$(nm -S marker | awk '$4 == "my_open" { print $2 }')
./marker off.bin "$size"
nopal record -M subsys_mark1 -o marker.data -- ./marker on.bin "$size"
for state in off on; do
	echo "$state:"
	objdump -D -b binary -m i386:x86-64 $state.bin | grep '^ '
done
