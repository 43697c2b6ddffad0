/* SPDX-License-Identifier: MIT OR GPL-2.0 OR Apache-2.0
 *
 * Everything that a host must supply to runtime/core. Called with the program's own stack, possibly in a signal
 * handler, in any state of the program's libc. None of these may block for long, print, exit, or touch errno.
 */
#ifndef NOPAL_PORT_H
#define NOPAL_PORT_H

#include <stdbool.h>
#include <stdint.h>

/* The time stamp counter, read when all loads ahead have their values: what another thread has made visible was
 * before. */
uint64_t port_clock(void);

/* False where reading the counter would fault in this thread. Makes a system call. */
bool port_clock_allowed(void);

/* Thread and process as the tool knows them. Make a system call. */
uint32_t port_thread_id(void);
uint32_t port_process_id(void);

/* Whether no thread of this number is in the process any more. Makes a system call. */
bool port_thread_ended(uint32_t process, uint32_t thread);

/* Where the running thread's control block is, if the program has left it there. */
uintptr_t port_thread_pointer(void);

/* Whether there is memory at an address. Makes a system call. */
bool port_readable(uintptr_t address);

/* Maps zeroed private memory at exactly [address, address + bytes), out of core dumps and without huge pages; it is
 * copied by fork. False, and nothing changed, where anything is mapped there already or a limit forbids it. */
bool port_map(uintptr_t address, uint64_t bytes);

/* Copies memory of the running process within one page; false where it cannot be read. Makes system calls. */
bool port_read(uint64_t address, void *to, uint32_t bytes);

/* Holds back the signals of this thread, but for those that stand for an instruction of its own; returns what to give to port_restore_signals. */
uint64_t port_block_signals(void);
void port_restore_signals(uint64_t saved);

/* Sleeps while *word == value, at most `nanoseconds`, or returns early for no reason. */
void port_wait(uint32_t *word, uint32_t value, uint64_t nanoseconds);
/* Wakes all who sleep so. */
void port_wake(uint32_t *word);

/* Gives the processor away for a moment. */
void port_yield(void);

/* Lets process `tracer` trace this one where the system's policy asks for the traced process's word. */
void port_allow_tracer(uint32_t tracer);

/* A point where a test can make something happen: a signal handler that records, or the death of the thread. */
#ifdef NOPAL_RACE_POINTS
void port_race_point(const char *name);
#else
#define port_race_point(name) ((void)0)
#endif

#endif
