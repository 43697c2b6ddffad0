# Compiles hundreds of functions to the same bytes.
for n in $(seq 100); do
	echo "int f$n(int *a, int b) { for (int i = 0; i < b; i++) a[i] += a[i ^ 1] * $n; return a[b / 2]; }"
done > large.c
$RUN gcc -O2 -g -fdebug-prefix-map="$PWD"=. -c large.c -o large.o
cksum < large.o
