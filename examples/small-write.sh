#!/bin/sh
# Shows the way of a small write: the functions between echo's own code and the kernel, from main to write.
set -e
nopal record --libs -o small-write.data -- /bin/echo hi
nopal plot timeline small-write.data --longer 500ns -o small-write.svg
nopal dump --as latency --of fflush small-write.data
