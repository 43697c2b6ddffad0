// Two versions of one program: in the second, -DSLOW=N makes `lookup` take N times as long, adds `added` and leaves out
// `removed`.
#include <stdlib.h>

#ifndef SLOW
#define SLOW 1
#endif

static volatile unsigned long sink;

__attribute__((noinline)) static void spin(int times) {
    for (int time = 0; time < times; time++) {
        sink += (unsigned long)time;
    }
}

__attribute__((noinline)) static void parse(void) {
    spin(300);
    sink++;
}

__attribute__((noinline)) static void lookup(void) {
    for (int time = 0; time < 300 * SLOW; time++) {
        sink += (unsigned long)time;
    }
}

#if SLOW == 1
__attribute__((noinline)) static void removed(void) {
    spin(30);
    sink++;
}
#else
__attribute__((noinline)) static void added(void) {
    spin(30);
    sink++;
}
#endif

__attribute__((noinline)) static void handle(void) {
    parse();
    lookup();
#if SLOW == 1
    removed();
#else
    added();
#endif
    sink++;
}

int main(int count, char **words) {
    int requests = count > 1 ? atoi(words[1]) : 2000;
    for (int request = 0; request < requests; request++) {
        handle();
    }
    return 0;
}
