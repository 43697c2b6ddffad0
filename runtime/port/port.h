/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Everything that a host must supply to runtime/core. Called with the program's own stack, possibly in a signal
 * handler, in any state of the program's libc. None of these may block for long, print, exit, or touch errno.
 */
#ifndef NOPAL_PORT_H
#define NOPAL_PORT_H

#include <stdbool.h>
#include <stdint.h>

/* Reads the time stamp counter after all earlier loads are complete: the stores that these saw happened before. */
uint64_t port_clock(void);

/* False if reading the counter would fault in this thread. Makes a system call. */
bool port_clock_allowed(void);

/* The ids of thread and process, as the tool sees them. Make a system call. */
uint32_t port_thread_id(void);
uint32_t port_process_id(void);

/* Whether the process has no thread with this id. Makes a system call. */
bool port_thread_ended(uint32_t process, uint32_t thread);

/* The address of the running thread's control block, unless the program has changed it. */
uintptr_t port_thread_pointer(void);

/* Whether an address is mapped. Makes a system call. */
bool port_readable(uintptr_t address);

/* Maps zeroed private memory at exactly [address, address + bytes), out of core dumps and without huge pages; it is
 * copied by fork. False, with nothing changed, if anything is mapped there, a limit forbids it, or the tool could not
 * read the stack at `slot`, whose frames it has to unwrap. */
bool port_map_mirror(uintptr_t address, uint64_t bytes, uintptr_t slot);

/* Copies memory of the running process within one page; false if it cannot be read. Makes system calls. */
bool port_read(uint64_t address, void *to, uint32_t bytes);

/* Blocks the signals of this thread, except those caused by its own instructions; returns the argument for
 * port_restore_signals. */
uint64_t port_block_signals(void);
void port_restore_signals(uint64_t saved);

/* Sleeps while *word == value, at most `nanoseconds`. False: it has returned early, for any reason. */
bool port_wait(uint32_t *word, uint32_t value, uint64_t nanoseconds);
/* Wakes all threads that sleep on it. */
void port_wake(uint32_t *word);

/* Yields the processor. */
void port_yield(void);

/* Permits process `tracer` to trace this one, if the system's policy requires that. */
void port_allow_tracer(uint32_t tracer);

/* A point where a test can run a signal handler that records, or kill the thread. */
#ifdef NOPAL_RACE_POINTS
void port_race_point(const char *name);
#else
#define port_race_point(name) ((void)0)
#endif

#endif
