# Compiles a file of nine megabytes to the same bytes.
cp "$("$SOAK/sqlite-source")" .
$RUN gcc -O2 -g -fdebug-prefix-map="$PWD"=. -c sqlite3.c
cksum < sqlite3.o
